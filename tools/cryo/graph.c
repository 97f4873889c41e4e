/*
 * graph: draws the points of a session from the oldest down to the present.
 *
 * How it works: a point goes into the lane (column) of its parent if it is
 * the first to follow it; else a new lane begins beside the parent: that is
 * a rewind. The present is drawn like a last point. Lanes are drawn from the
 * row of the point that they leave to their own last row.
 *
 *   *    12:00:00 rolling
 *   |-.
 *   | |    (rewound to the point above)
 *   o |  12:01:00 before-rewind-1     o: on a line that was left
 *     @  now: running, epoch 2
 *
 * Invariants: each point is in exactly one row or one run; the order of rows
 * is the order of time; no byte of a name reaches the terminal unchecked.
 */
#include "tools/cryo/graph.h"

#include "tools/cryo/table.h"

#include <stdio.h>

#define GRAPH_LANES_MAX 24
#define GRAPH_RUN_MIN 4 /* fewer rolling points in a row are drawn singly */

struct graph_node {
	const json_t *point; /* NULL: the present */
	int parent; /* index, or -1 */
	int lane;
	int forks; /* sessions that were forked here */
	bool plain; /* may go into a run */
};

struct graph_lane {
	int from; /* node that it leaves, or -1 */
	int first, last;
};

struct graph {
	const struct graph_style *style;
	const json_t *doc;
	struct graph_node *nodes;
	int nr;
	struct graph_lane lanes[GRAPH_LANES_MAX];
	int nr_lanes;
	struct buf *out;
};

/* What is drawn: bar, branch, dash, corner, on line, left, now, run, fork */
enum graph_glyph { BAR, TEE, DASH, CORNER, CROSS, ON, LEFT, NOW, RUN, FORK };

static const char *const graph_glyphs[2][10] = {
	{ "|", "|", "-", ".", "+", "*", "o", "@", ":", "`->" },
	{ "│", "├", "─", "╮", "┼", "●", "○", "◆", "┆", "╰▶" },
};

static void graph_put(struct graph *g, enum graph_glyph glyph)
{
	buf_put_str(g->out, graph_glyphs[g->style->utf8][glyph]);
}

static const char *graph_str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static bool graph_left(const struct graph_node *n)
{
	return !json_is_true(json_object_get(n->point, "on_line"));
}

/* Foreign text: control characters become '?'. */
static void graph_text(struct graph *g, const char *s)
{
	for (; *s; s++)
		buf_put_u8(g->out, (unsigned char)*s < 32 || *s == 127
					   ? '?'
					   : (uint8_t)*s);
}

/* --- layout --------------------------------------------------------------- */

static int graph_find(const struct graph *g, const char *id, int before)
{
	for (int i = before - 1; *id && i >= 0; i--)
		if (!strcmp(graph_str(g->nodes[i].point, "id"), id))
			return i;
	return -1;
}

static int graph_lane_new(struct graph *g, int node, int from)
{
	int lane = MIN(g->nr_lanes, GRAPH_LANES_MAX - 1);

	if (g->nr_lanes < GRAPH_LANES_MAX)
		g->nr_lanes++;
	else
		from = -1; /* no room for another column: start afresh */
	g->lanes[lane] = (struct graph_lane){ from, node, node };
	return lane;
}

static void graph_place(struct graph *g, int i, const char *parent)
{
	struct graph_node *n = &g->nodes[i];

	n->parent = graph_find(g, parent, i);
	if (n->parent >= 0 && g->lanes[g->nodes[n->parent].lane].last == n->parent)
		n->lane = g->nodes[n->parent].lane;
	else
		n->lane = graph_lane_new(g, i, n->parent);
	g->lanes[n->lane].last = i;
	if (n->parent >= 0 && n->lane != g->nodes[n->parent].lane)
		g->nodes[n->parent].plain = false;
}

static void graph_count_forks(struct graph *g)
{
	const json_t *fork;
	size_t k;

	json_array_foreach(json_object_get(g->doc, "forks"), k, fork) {
		int i = graph_find(g, graph_str(fork, "point"), g->nr - 1);

		if (i >= 0) {
			g->nodes[i].forks++;
			g->nodes[i].plain = false;
		}
	}
}

static void graph_layout(struct graph *g)
{
	const json_t *points = json_object_get(g->doc, "points");
	const json_t *session = json_object_get(g->doc, "session");
	int nr = (int)json_array_size(points);

	g->nodes = base_alloc((size_t)(nr + 1) * sizeof(*g->nodes));
	for (int i = 0; i < nr; i++) { /* newest first in the document */
		const json_t *p = json_array_get(points, (size_t)(nr - 1 - i));

		g->nodes[i].point = p;
		g->nodes[i].plain = !strcmp(graph_str(p, "kind"), "rolling") &&
				    !graph_str(p, "name")[0];
		graph_place(g, i, graph_str(p, "parent"));
	}
	g->nr = nr + 1;
	graph_place(g, nr, graph_str(json_object_get(session, "head"), "id"));
	graph_count_forks(g);
}

/* --- rows ----------------------------------------------------------------- */

/* Is lane l drawn through the row of node i without being its own? */
static bool graph_passes(const struct graph *g, int l, int i)
{
	const struct graph_lane *lane = &g->lanes[l];
	int begin = lane->from >= 0 ? lane->from : lane->first - 1;

	return begin < i && i < lane->last;
}

/* The columns of node i's row, `own` in its own lane. */
static void graph_columns(struct graph *g, int i, enum graph_glyph own)
{
	for (int l = 0; l < g->nr_lanes; l++) {
		if (l == g->nodes[i].lane)
			graph_put(g, own);
		else if (graph_passes(g, l, i))
			graph_put(g, BAR);
		else
			buf_put_u8(g->out, ' ');
		buf_put_u8(g->out, ' ');
	}
	buf_put_u8(g->out, ' ');
}

/* Ends a line: no blanks at its end. */
static void graph_end(struct graph *g)
{
	while (g->out->len && g->out->p[g->out->len - 1] == ' ')
		g->out->len--;
	buf_put_u8(g->out, '\n');
}

/* The row below node i where lane `to` leaves it. */
static void graph_branch(struct graph *g, int i, int to)
{
	int from = g->nodes[i].lane;

	for (int l = 0; l <= to; l++) {
		bool between = l > from && l < to;
		bool passes = graph_passes(g, l, i) ||
			      (g->lanes[l].from == i && l < to);

		if (l == from)
			graph_put(g, TEE);
		else if (l == to)
			graph_put(g, CORNER);
		else if (between)
			graph_put(g, passes ? CROSS : DASH);
		else if (passes)
			graph_put(g, BAR);
		else
			buf_put_u8(g->out, ' ');
		if (l >= from && l < to)
			graph_put(g, DASH);
		else if (l < to)
			buf_put_u8(g->out, ' ');
	}
	for (int l = to + 1; l < g->nr_lanes; l++) {
		buf_put_u8(g->out, ' ');
		if (graph_passes(g, l, i))
			graph_put(g, BAR);
		else
			buf_put_u8(g->out, ' ');
	}
	graph_end(g);
}

static void graph_forks(struct graph *g, int i)
{
	const char *id = graph_str(g->nodes[i].point, "id");
	bool goes_on = i < g->lanes[g->nodes[i].lane].last;
	const json_t *fork;
	size_t k;

	json_array_foreach(json_object_get(g->doc, "forks"), k, fork) {
		if (strcmp(graph_str(fork, "point"), id))
			continue;
		if (goes_on)
			graph_columns(g, i, BAR);
		else
			buf_printf(g->out, "%*s", 2 * g->nr_lanes + 1, "");
		graph_put(g, FORK);
		buf_put_str(g->out, " fork ");
		graph_text(g, graph_str(fork, "session"));
		if (graph_str(fork, "name")[0]) {
			buf_put_u8(g->out, ' ');
			graph_text(g, graph_str(fork, "name"));
		}
		buf_printf(g->out, " (%s)", graph_str(fork, "state"));
		graph_end(g);
	}
}

static void graph_point(struct graph *g, int i)
{
	const json_t *p = g->nodes[i].point;
	char when[TABLE_TIME_LEN], size[TABLE_SIZE_LEN];

	table_time(when, graph_str(p, "time"));
	table_size(size, json_integer_value(json_object_get(p, "stored_bytes")));
	graph_columns(g, i, graph_left(&g->nodes[i]) ? LEFT : ON);
	buf_printf(g->out, "%s  %-13s  %s  %9s  ", when, graph_str(p, "kind"),
		   graph_str(p, "id"), size);
	graph_text(g, graph_str(p, "name"));
	graph_end(g);
	if (g->nodes[i].forks)
		graph_forks(g, i);
	for (int l = 0; l < g->nr_lanes; l++)
		if (g->lanes[l].from == i)
			graph_branch(g, i, l);
}

static void graph_now(struct graph *g, int i)
{
	const json_t *s = json_object_get(g->doc, "session");

	graph_columns(g, i, NOW);
	buf_printf(g->out, "now: %s, epoch %lld", graph_str(s, "state"),
		   (long long)json_integer_value(json_object_get(s, "epoch")));
	graph_end(g);
}

/* Rolling points from i on that may go into one line. */
static int graph_run(const struct graph *g, int i)
{
	int n = 0;

	if (g->style->all)
		return 0;
	while (i + n < g->nr - 1 && g->nodes[i + n].plain &&
	       g->nodes[i + n].lane == g->nodes[i].lane &&
	       graph_left(&g->nodes[i + n]) == graph_left(&g->nodes[i]))
		n++;
	return n >= GRAPH_RUN_MIN ? n : 0;
}

static void graph_draw_run(struct graph *g, int i, int nr)
{
	char from[TABLE_TIME_LEN], to[TABLE_TIME_LEN], size[TABLE_SIZE_LEN];
	int64_t bytes = 0;

	for (int k = i; k < i + nr; k++)
		bytes += json_integer_value(
			json_object_get(g->nodes[k].point, "stored_bytes"));
	table_time(from, graph_str(g->nodes[i].point, "time"));
	table_time(to, graph_str(g->nodes[i + nr - 1].point, "time"));
	table_size(size, bytes);
	graph_columns(g, i, RUN);
	buf_printf(g->out, "%s  %d rolling points up to %s  %s", from, nr, to,
		   size);
	graph_end(g);
}

/* Forks whose point is older than what the document has. */
static void graph_far_forks(struct graph *g)
{
	const json_t *fork;
	size_t k;

	json_array_foreach(json_object_get(g->doc, "forks"), k, fork) {
		if (graph_find(g, graph_str(fork, "point"), g->nr - 1) >= 0)
			continue;
		buf_put_str(g->out, "fork ");
		graph_text(g, graph_str(fork, "session"));
		buf_printf(g->out, " at %s, before what is drawn",
			   graph_str(fork, "time"));
		graph_end(g);
	}
}

void graph_draw(struct buf *out, const json_t *doc,
		const struct graph_style *style)
{
	struct graph g = { .style = style, .doc = doc, .out = out };

	graph_layout(&g);
	if (json_is_true(json_object_get(doc, "more")))
		buf_put_str(out, "(older points are not drawn; see --limit)\n");
	for (int i = 0; i < g.nr;) {
		int run = graph_run(&g, i);

		if (run) {
			graph_draw_run(&g, i, run);
			i += run;
		} else if (g.nodes[i].point) {
			graph_point(&g, i++);
		} else {
			graph_now(&g, i++);
		}
	}
	graph_far_forks(&g);
	free(g.nodes);
}
