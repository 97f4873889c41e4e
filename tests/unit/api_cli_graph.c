/*
 * api_cli_graph: timelines as they must be drawn, worked out by hand.
 */
#include "tools/cryo/graph.c" /* the modules themselves: in no library */
#include "tools/cryo/table.c"

#include "tests/tap.h"

/* A point of a document; `t` is its minute. */
static void point(json_t *points, const char *id, const char *parent, int t,
		  const char *kind, const char *name, bool on_line)
{
	json_t *p = json_object();
	char when[32];

	snprintf(when, sizeof(when), "2026-01-31T12:%02d:00Z", t);
	json_put_str(p, "id", id);
	json_put_str(p, "parent", parent);
	json_put_str(p, "time", when);
	json_put_str(p, "kind", kind);
	json_put_str(p, "name", name);
	json_put_bool(p, "on_line", on_line);
	json_put_int(p, "stored_bytes", 1024 * t);
	json_array_insert_new(points, 0, p); /* newest first */
}

static json_t *document(json_t *points, const char *head, json_t *forks)
{
	json_t *doc = json_object(), *s = json_object(), *h = json_object();

	json_put_str(h, "id", head);
	json_object_set_new(s, "head", h);
	json_put_str(s, "state", "running");
	json_put_int(s, "epoch", 3);
	json_object_set_new(doc, "session", s);
	json_object_set_new(doc, "points", points);
	json_object_set_new(doc, "forks", forks ? forks : json_array());
	return doc;
}

static void drawn(json_t *doc, bool utf8, bool all, const char *want,
		  const char *what)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct graph_style style = { .utf8 = utf8, .all = all };

	graph_draw(&b, doc, &style);
	is_str(buf_cstr(&b), want, "%s", what);
	json_decref(doc);
}

static void straight(void)
{
	json_t *p = json_array();

	point(p, "a", NULL, 1, "manual", "first", true);
	point(p, "b", "a", 2, "rolling", NULL, true);
	drawn(document(p, "b", NULL), false, false,
	      "*  2026-01-31 12:01:00Z  manual         a    1.0 KiB  first\n"
	      "*  2026-01-31 12:02:00Z  rolling        b    2.0 KiB\n"
	      "@  now: running, epoch 3\n",
	      "a straight line");
	drawn(document(json_array(), "", NULL), true, false,
	      "◆  now: running, epoch 3\n", "no point at all");
}

static void rewound(void)
{
	json_t *p = json_array();

	point(p, "a", NULL, 1, "manual", "first", true);
	point(p, "b", "a", 2, "rolling", NULL, false);
	point(p, "c", "b", 3, "before-rewind", "before-rewind-1", false);
	point(p, "d", "a", 4, "manual", NULL, true);
	drawn(document(p, "d", NULL), false, false,
	      "*    2026-01-31 12:01:00Z  manual         a    1.0 KiB  first\n"
	      "|-.\n"
	      "o |  2026-01-31 12:02:00Z  rolling        b    2.0 KiB\n"
	      "o |  2026-01-31 12:03:00Z  before-rewind  c    3.0 KiB  "
	      "before-rewind-1\n"
	      "  *  2026-01-31 12:04:00Z  manual         d    4.0 KiB\n"
	      "  @  now: running, epoch 3\n",
	      "a rewind leaves a line");
}

/* Rewound to `a`, undone to `c`, nothing since: now hangs on c. */
static void undone(void)
{
	json_t *p = json_array();

	point(p, "a", NULL, 1, "manual", "first", true);
	point(p, "c", "a", 3, "before-rewind", NULL, true);
	point(p, "e", "a", 5, "before-rewind", NULL, false);
	drawn(document(p, "c", NULL), true, false,
	      "●    2026-01-31 12:01:00Z  manual         a    1.0 KiB  first\n"
	      "├─╮\n"
	      "● │  2026-01-31 12:03:00Z  before-rewind  c    3.0 KiB\n"
	      "│ ○  2026-01-31 12:05:00Z  before-rewind  e    5.0 KiB\n"
	      "◆    now: running, epoch 3\n",
	      "an undo returns to the line");
}

static void twice(void)
{
	json_t *p = json_array();

	point(p, "a", NULL, 1, "manual", NULL, true);
	point(p, "b", "a", 2, "before-rewind", NULL, false);
	point(p, "c", "a", 3, "before-rewind", NULL, false);
	drawn(document(p, "a", NULL), false, false,
	      "*      2026-01-31 12:01:00Z  manual         a    1.0 KiB\n"
	      "|-.\n"
	      "|-+-.\n"
	      "o | |  2026-01-31 12:02:00Z  before-rewind  b    2.0 KiB\n"
	      "  o |  2026-01-31 12:03:00Z  before-rewind  c    3.0 KiB\n"
	      "    @  now: running, epoch 3\n",
	      "two rewinds to one point");
}

static json_t *fork_of(const char *id, const char *name, const char *point_id)
{
	json_t *f = json_object();

	json_put_str(f, "session", id);
	json_put_str(f, "name", name);
	json_put_str(f, "point", point_id);
	json_put_str(f, "state", "running");
	json_put_str(f, "time", "2026-01-01T00:00:00Z");
	return f;
}

static void forked(void)
{
	json_t *p = json_array(), *forks = json_array();

	point(p, "a", NULL, 1, "manual", NULL, true);
	point(p, "b", "a", 2, "fork", NULL, true);
	json_array_append_new(forks, fork_of("s1", NULL, "a"));
	json_array_append_new(forks, fork_of("s2", "k\x1b[31mid", "b"));
	json_array_append_new(forks, fork_of("s3", NULL, "zz"));
	drawn(document(p, "b", forks), false, false,
	      "*  2026-01-31 12:01:00Z  manual         a    1.0 KiB\n"
	      "|  `-> fork s1 (running)\n"
	      "*  2026-01-31 12:02:00Z  fork           b    2.0 KiB\n"
	      "|  `-> fork s2 k?[31mid (running)\n"
	      "@  now: running, epoch 3\n"
	      "fork s3 at 2026-01-01T00:00:00Z, before what is drawn\n",
	      "forks hang on their points; names can't paint");
}

static json_t *long_line(void)
{
	json_t *p = json_array();
	char id[8], parent[8] = "";

	for (int i = 1; i <= 9; i++) {
		snprintf(id, sizeof(id), "p%d", i);
		point(p, id, parent[0] ? parent : NULL, i, "rolling",
		      i == 3 ? "kept" : NULL, true);
		base_strcpy(parent, sizeof(parent), id);
	}
	return document(p, "p9", NULL);
}

static void runs(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct graph_style all = { .all = true };
	json_t *doc = long_line();
	int lines = 0;

	drawn(json_incref(doc), false, false,
	      "*  2026-01-31 12:01:00Z  rolling        p1    1.0 KiB\n"
	      "*  2026-01-31 12:02:00Z  rolling        p2    2.0 KiB\n"
	      "*  2026-01-31 12:03:00Z  rolling        p3    3.0 KiB  kept\n"
	      ":  2026-01-31 12:04:00Z  6 rolling points up to 2026-01-31 "
	      "12:09:00Z  39.0 KiB\n"
	      "@  now: running, epoch 3\n",
	      "rolling points in a row are one line, named ones not");
	graph_draw(&b, doc, &all);
	for (size_t i = 0; i < b.len; i++)
		lines += b.p[i] == '\n';
	is_int(lines, 10, "or each its own");
	json_decref(doc);
}

/* More lines of time than columns: nothing breaks. */
static void crowded(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct graph_style style = { 0 };
	json_t *p = json_array(), *doc;
	char id[8];
	int rows = 0;

	point(p, "a", NULL, 0, "manual", NULL, true);
	for (int i = 1; i < 50; i++) {
		snprintf(id, sizeof(id), "b%d", i);
		point(p, id, "a", i, "before-rewind", NULL, false);
	}
	doc = document(p, "a", NULL);
	graph_draw(&b, doc, &style);
	for (const char *s = buf_cstr(&b); (s = strstr(s, "2026-")); s++)
		rows++;
	is_int(rows, 50, "fifty lines of time, fifty rows");
	json_decref(doc);
}

static void sizes_and_times(void)
{
	static const struct {
		int64_t bytes;
		const char *want;
	} v[] = {
		{ 0, "0 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.0 KiB" },
		{ 1536, "1.5 KiB" },
		{ 1048575, "1023.9 KiB" },
		{ 1048576, "1.0 MiB" },
		{ 5368709120, "5.0 GiB" },
		{ 1125899906842624, "1024.0 TiB" },
	};
	char text[TABLE_SIZE_LEN], when[TABLE_TIME_LEN];

	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		table_size(text, v[i].bytes);
		is_str(text, v[i].want, "%lld bytes", (long long)v[i].bytes);
	}
	table_time(when, "2026-01-31T12:34:56.789Z");
	is_str(when, "2026-01-31 12:34:56Z", "a time to the second");
	table_time(when, "-");
	is_str(when, "-", "no time");
}

static void columns(void)
{
	static const char *const titles[] = { "NAME", "NR" };
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct table t;

	table_init(&t, titles, 2, 1 << 1);
	table_put(&t, "äö\x1b");
	table_putf(&t, "%d", 7);
	table_put(&t, "longer");
	table_put(&t, "1234");
	table_print(&t, f);
	fclose(f);
	is_str(text,
	       "NAME      NR\n"
	       "äö?        7\n"
	       "longer  1234\n",
	       "columns by characters, numbers to the right");
	table_done(&t);
	free(text);
}

int main(void)
{
	straight();
	rewound();
	undone();
	twice();
	forked();
	runs();
	crowded();
	sizes_and_times();
	columns();
	return tap_done();
}
