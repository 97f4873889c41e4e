/*
 * points: snapshots of a session, and its timeline.
 *
 * Invariants: lists are newest first and follow time as it was lived, also
 * through lines that a rewind left; `on_line` says whether the present came
 * through the point. A page is one read view, so it is one moment.
 */
#include "api/v1/v1.h"

#include <inttypes.h>
#include <stdio.h>

#define V1_TIMELINE_POINTS 1000
#define V1_TIMELINE_POINTS_MAX 20000

int v1_point_create(struct call *c, struct err *e)
{
	static const char *const keys[] = { "name", NULL };
	struct command *cmd;
	struct session s;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = call_command(c, COMMAND_SNAPSHOT, s.id, &cmd, e);
	if (r < 0)
		return r;
	r = call_body_copy(c, "name", cmd->name, sizeof(cmd->name), e);
	if (r < 0) {
		command_free(cmd);
		return r;
	}
	return call_operate(c, cmd, e);
}

struct v1_point_walk {
	const struct reader *rd;
	const struct session *session;
	json_t *items;
	int64_t limit;
	int64_t before_ns; /* only points earlier than this */
	int64_t last_ns; /* time of the last one taken */
	bool more;
	int r;
	struct err *e;
};

static int v1_point_list_one(void *ctx, const void *key, size_t key_len,
			     const void *value, size_t len)
{
	struct v1_point_walk *w = ctx;
	struct point_ref ref;
	struct point p;
	bool on_line;

	(void)key;
	(void)key_len;
	w->r = point_decode(&p, value, len, w->e);
	if (w->r < 0)
		return 1;
	if (p.time_ns >= w->before_ns)
		return 0;
	if ((int64_t)json_array_size(w->items) == w->limit) {
		w->more = true;
		return 1;
	}
	ref = point_ref_of(&p);
	w->r = timespec_on_line(w->rd, w->session, &ref, &on_line, w->e);
	if (w->r < 0)
		return 1;
	json_array_append_new(w->items, v1_point_json(&p, on_line));
	w->last_ns = p.time_ns;
	return 0;
}

/* Newest first, from before_ns on downwards. */
static int v1_point_walk(struct v1_point_walk *w)
{
	uint8_t from[POINT_KEY_LEN];
	int r;

	point_key(from, w->session->id, w->before_ns);
	r = w->rd->ops->scan(w->rd->view, TABLE_POINTS, w->session->id, ID_LEN,
			     from, sizeof(from), true, v1_point_list_one, w,
			     w->e);
	return r < 0 ? r : w->r;
}

static int v1_point_cursor(const char *after, int64_t *ret, struct err *e)
{
	long long v;
	char *end;

	*ret = INT64_MAX;
	if (!after)
		return 0;
	errno = 0;
	v = strtoll(after, &end, 10);
	if (errno || end == after || *end || v < 0)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "?after is not a cursor of this list");
	*ret = v;
	return 0;
}

int v1_point_list(struct call *c, struct err *e)
{
	SCOPED(call_page_done) struct call_page page = { 0 };
	struct v1_point_walk w = { .e = e };
	struct session s;
	int r = call_page_init(c, &page, e);

	if (r == 0)
		r = v1_point_cursor(page.after, &w.before_ns, e);
	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = call_reader(c, &w.rd, e);
	if (r < 0)
		return r;
	w.session = &s;
	w.items = page.items;
	w.limit = page.limit;
	r = v1_point_walk(&w);
	if (r < 0)
		return r;
	if (w.more)
		snprintf(page.next, sizeof(page.next), "%" PRId64, w.last_ns);
	call_page_reply(c, &page);
	return 0;
}

/* --- timeline ------------------------------------------------------------- */

struct v1_timeline_walk {
	struct call *call;
	const struct session *session;
	json_t *epochs, *forks;
	int r;
	struct err *e;
};

/* One row of EPOCHS: when it began, from which point, how its start went. */
static int v1_timeline_epoch(void *ctx, const void *key, size_t key_len,
			     const void *value, size_t len)
{
	struct v1_timeline_walk *w = ctx;
	json_t *row = NULL, *start;

	(void)key;
	(void)key_len;
	w->r = json_parse(&row, value, len, w->e);
	if (w->r < 0)
		return 1;
	v1_rename_time(row, "time_ns", "time");
	v1_rename_time(row, "started_ns", "started");
	start = json_object_get(row, "start");
	if (start)
		v1_rename_time(start, "time_ns", "time");
	json_array_append_new(w->epochs, row);
	return 0;
}

static int v1_timeline_fork(void *ctx, const void *key, size_t key_len,
			    const void *value, size_t len)
{
	struct v1_timeline_walk *w = ctx;
	struct session s;
	json_t *o;

	(void)key;
	(void)key_len;
	w->r = session_decode(&s, value, len, w->e);
	if (w->r < 0)
		return 1;
	if (strcmp(s.parent, w->session->id) || s.park ||
	    !call_may_see(w->call, s.tenant))
		return 0;
	o = json_object();
	json_put_str(o, "session", s.id);
	if (s.name[0])
		json_put_str(o, "name", s.name);
	json_put_str(o, "point", s.base.id);
	json_put_str(o, "state", session_state_word(s.state));
	v1_put_time(o, "time", s.base.time_ns);
	json_array_append_new(w->forks, o);
	return 0;
}

static int v1_timeline_fill(struct v1_timeline_walk *w)
{
	const struct reader *rd = &w->call->reader;
	int r = rd->ops->scan(rd->view, TABLE_EPOCHS, w->session->id, ID_LEN,
			      NULL, 0, false, v1_timeline_epoch, w, w->e);

	/* no index by parent: the walk is as long as there are sessions */
	if (r >= 0 && w->r == 0 && w->session->children)
		r = rd->ops->scan(rd->view, TABLE_SESSIONS, "", 0, NULL, 0,
				  false, v1_timeline_fork, w, w->e);
	return r < 0 ? r : w->r;
}

int v1_timeline_get(struct call *c, struct err *e)
{
	SCOPED_JSON json_t *o = json_object();
	struct v1_timeline_walk w = { .call = c, .e = e };
	struct v1_point_walk p = { .e = e, .before_ns = INT64_MAX };
	struct session s;
	int r = call_query_int(c, "limit", 1, V1_TIMELINE_POINTS_MAX,
			       V1_TIMELINE_POINTS, &p.limit, e);

	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = call_reader(c, &p.rd, e);
	if (r < 0)
		return r;
	w.session = p.session = &s;
	w.epochs = json_array();
	w.forks = json_array();
	p.items = json_array();
	json_object_set_new(o, "session", v1_session_json(&s, c->conf));
	json_object_set_new(o, "epochs", w.epochs);
	json_object_set_new(o, "points", p.items);
	json_object_set_new(o, "forks", w.forks);
	r = v1_point_walk(&p);
	if (r == 0)
		r = v1_timeline_fill(&w);
	if (r < 0)
		return r;
	json_put_bool(o, "more", p.more);
	call_reply_json(c, 200, STEAL(o));
	return 0;
}
