/*
 * timespec: the language in which people name a moment of a session.
 *
 * How it works: the text is tried as event number, as span before now, as
 * time, as id and as name, in this order; the forms can't be mistaken for
 * each other, because names begin with a letter and are not shaped like ids.
 * A time is found by one reverse seek in TABLE_POINTS, whose keys sort by
 * time; points of all lines of a session lie in it together.
 *
 * Whether a point is on the line that leads to the present: from the present
 * epoch, each epoch knows the point it started from. The line holds the
 * points of an epoch up to the point where the next one on the line began.
 */
#include "core/timespec.h"

#include "core/clock.h"

#define HOPS_MAX 1000000 /* a ring in the rows would be a bug, not a hang */

/* --- which line ---------------------------------------------------------- */

/* Point that an epoch started from; an empty ref if it booted. */
static int epoch_start(const struct reader *r, const char *session,
		       uint64_t epoch, struct point_ref *ret, struct err *e)
{
	uint8_t key[ID_LEN + 8];
	json_t *o SCOPED_JSON = NULL, *start;
	int rc;

	memcpy(key, session, ID_LEN);
	put_be64(key + ID_LEN, epoch);
	memset(ret, 0, sizeof(*ret));
	rc = rows_json(r, TABLE_EPOCHS, key, sizeof(key), &o, e);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	start = json_object_get(o, "start");
	return start ? fields_decode(start, &point_ref_fields, ret, e) : 0;
}

int timespec_on_line(const struct reader *r, const struct session *s,
		     const struct point_ref *p, bool *ret, struct err *e)
{
	uint64_t epoch = s->epoch;
	int64_t until = INT64_MAX;

	for (int hop = 0; hop < HOPS_MAX; hop++) {
		struct point_ref start;
		int rc;

		if (!strcmp(p->session, s->id) && p->epoch == epoch &&
		    p->time_ns <= until) {
			*ret = true;
			return 0;
		}
		rc = epoch_start(r, s->id, epoch, &start, e);
		if (rc)
			return rc;
		if (!start.id[0] || strcmp(start.session, s->id)) {
			*ret = start.id[0] && !strcmp(start.id, p->id);
			return 0;
		}
		epoch = start.epoch;
		until = start.time_ns;
	}
	NEVER("the epochs of a session form a ring");
}

/* --- which point --------------------------------------------------------- */

struct seek {
	struct point point;
	bool found;
	struct err *e;
};

static int seek_row(void *ctx, UNUSED const void *key, UNUSED size_t key_len,
		    const void *value, size_t len)
{
	struct seek *k = ctx;
	int rc = point_decode(&k->point, value, len, k->e);

	k->found = !rc;
	return rc ? rc : 1;
}

/* First (forward) or last (reverse) point, from `from` if not NULL. */
static int seek_point(const struct reader *r, const char *session,
		      const uint8_t *from, bool reverse, struct seek *k)
{
	int rc = r->ops->scan(r->view, TABLE_POINTS, session, ID_LEN, from,
			      from ? POINT_KEY_LEN : 0, reverse, seek_row, k,
			      k->e);

	return rc < 0 ? rc : 0;
}

static int none_before(const struct reader *r, const struct session *s,
		       int64_t t, struct err *e)
{
	struct seek k = { .e = e };
	char asked[CLOCK_TEXT_LEN], first[CLOCK_TEXT_LEN];
	int rc = seek_point(r, s->id, NULL, false, &k);

	if (rc)
		return rc;
	clock_format(asked, t);
	if (!k.found && s->base.id[0])
		k.point = s->base;
	else if (!k.found)
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "session %s has no point yet: wait for its "
			       "first, or take one with `cryo snapshot %s`",
			       s->id, s->id);
	clock_format(first, k.point.time_ns);
	return err_set(e, -ENOENT, ERR_NOT_FOUND,
		       "session %s has no point at or before %s: its first "
		       "is %s at %s",
		       s->id, asked, k.point.id, first);
}

/* The newest point at or before t; else the one the session began with. */
static int at_time(const struct reader *r, const struct session *s, int64_t t,
		   struct timespec_point *ret, struct err *e)
{
	struct seek k = { .e = e };
	uint8_t from[POINT_KEY_LEN];
	int rc;

	if (t < 0)
		return none_before(r, s, 0, e);
	point_key(from, s->id, t);
	rc = seek_point(r, s->id, from, true, &k);
	if (rc)
		return rc;
	if (k.found)
		ret->point = k.point;
	else if (s->base.id[0] && s->base.time_ns <= t)
		ret->point = s->base;
	else
		return none_before(r, s, t, e);
	ret->asked_ns = t;
	return 0;
}

static int named(const struct reader *r, const struct session *s,
		 const char *text, struct timespec_point *ret, struct err *e)
{
	int rc = -ENOENT;

	if (id_valid(text)) {
		rc = rows_point(r, text, &ret->point, e);
		if (!rc && strcmp(ret->point.session, s->id))
			rc = -ENOENT;
		if (rc == -ENOENT && !strcmp(text, s->base.id)) {
			ret->point = s->base;
			rc = 0;
		}
	} else if (point_name_valid(text)) {
		rc = rows_point_by_name(r, s->id, text, &ret->point, e);
	} else {
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"%.60s\" is no moment: give a time like "
			       "2026-01-31T12:00:00Z, a span like -10m, a "
			       "point's id or name, or @EVENT",
			       text);
	}
	if (rc == -ENOENT)
		return err_set(e, rc, ERR_NOT_FOUND,
			       "session %s has no point \"%.63s\": `cryo "
			       "snapshots %s` lists them",
			       s->id, text, s->id);
	ret->exact = !rc;
	ret->asked_ns = ret->point.time_ns;
	return rc;
}

/* --- events -------------------------------------------------------------- */

struct find_event {
	uint64_t seq;
	bool found;
	int64_t wall_ns;
	char point[ID_LEN + 1]; /* if it is a point of this session */
	const char *session;
};

static int event_row(void *ctx, const struct event *ev)
{
	struct find_event *f = ctx;
	const char *id;

	if (ev->seq != f->seq)
		return 1;
	f->found = true;
	f->wall_ns = ev->wall_ns;
	if (ev->type == EVENT_SNAPSHOT_COMMITTED &&
	    !strcmp(ev->session, f->session)) {
		id = json_string_value(json_object_get(ev->data, "id"));
		base_strcpy(f->point, sizeof(f->point), id ? id : "");
	}
	return 1;
}

static int at_event(const struct reader *r, const struct session *s,
		    const char *text, struct timespec_point *ret, struct err *e)
{
	struct find_event f = { .session = s->id };
	char *end;
	int rc;

	errno = 0;
	f.seq = strtoull(text, &end, 10);
	if (*end || end == text || *text == '-' || *text == '+' || errno || !f.seq)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"@%.40s\" is no event: give its number, as "
			       "`cryo events` shows it",
			       text);
	rc = r->ops->events(r->view, NULL, f.seq - 1, event_row, &f, e);
	if (rc < 0)
		return rc;
	if (!f.found)
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "there is no event %llu: the last is %llu",
			       (unsigned long long)f.seq,
			       (unsigned long long)r->ops->last_seq(r->view));
	if (f.point[0])
		return named(r, s, f.point, ret, e);
	return at_time(r, s, f.wall_ns, ret, e);
}

/* --- all together -------------------------------------------------------- */

static int resolve(const struct reader *r, const struct session *s,
		   const char *text, int64_t now_ns, struct timespec_point *ret,
		   struct err *e)
{
	int64_t t;

	if (text[0] == '@')
		return at_event(r, s, text + 1, ret, e);
	if (text[0] == '-') {
		if (clock_parse_duration(&t, text + 1))
			return err_set(e, -EINVAL, ERR_INVALID,
				       "\"%.40s\" is no span of time: give "
				       "one like -10m, -1h30m or -250ms",
				       text);
		return at_time(r, s, now_ns - t, ret, e);
	}
	if (clock_parse(&t, text))
		return named(r, s, text, ret, e);
	if (t > now_ns)
		return err_set(e, -ERANGE, ERR_INVALID,
			       "%s is in the future: only the past can be "
			       "gone back to",
			       text);
	return at_time(r, s, t, ret, e);
}

int timespec_resolve(const struct reader *r, const struct session *s,
		     const char *text, int64_t now_ns,
		     struct timespec_point *ret, struct err *e)
{
	struct timespec_point p = { .exact = false };
	struct point_ref ref;
	bool on_line;
	int rc = resolve(r, s, text, now_ns, &p, e);

	if (rc)
		return rc;
	p.off_ns = MAX(p.asked_ns - p.point.time_ns, 0);
	p.inherited = strcmp(p.point.session, s->id) != 0;
	ref = point_ref_of(&p.point);
	rc = timespec_on_line(r, s, &ref, &on_line, e);
	if (rc)
		return rc;
	p.off_line = !on_line;
	*ret = p;
	return 0;
}
