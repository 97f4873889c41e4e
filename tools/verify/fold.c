/*
 * fold: adds all events up from nothing and compares with the live rows.
 *
 * The adding up is core's own projection, the one the engine uses, run on
 * empty tables in memory. What a destroyed session did can't be added up any
 * more; its rows are gone too, but for the operations that name it, so rows
 * that concern it are left out on both sides, and counted.
 *
 * Invariants:
 *  1. Every live row is compared, found in no fold, or left out by the rule.
 *  2. A session that still has a state other than stopping has its key: else
 *     the key was lost, not destroyed.
 */
#include "tools/verify/verify.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#include "core/operation.h"
#include "core/project.h"
#include "tools/verify/memrows.h"

struct fold {
	struct verify *v;
	struct store_port mem;
	struct rowbox live;
	struct check *events, *rows, *keys;
	uint64_t left_out;
	enum table t;
};

/* --- what can't be compared ----------------------------------------------- */

static bool names_gone(const struct idset *gone, const json_t *value)
{
	const char *s = json_string_value(value);

	return s && strlen(s) == ID_LEN && idset_has(gone, s);
}

static bool json_concerns(const struct idset *gone, const void *p, size_t len)
{
	SCOPED_JSON json_t *o = NULL;
	json_t *list;
	size_t i;
	json_t *one;

	if (!len || json_parse(&o, p, len, NULL))
		return false;
	if (names_gone(gone, json_object_get(o, "session")))
		return true;
	list = json_object_get(o, "sessions");
	json_array_foreach(list, i, one)
		if (names_gone(gone, one))
			return true;
	return false;
}

/* Is the row about a session whose events can't be read? */
static bool concerns(const struct fold *f, enum table t, const uint8_t *key,
		     size_t key_len, const uint8_t *value, size_t len)
{
	const struct idset *gone = &f->v->gone;
	SCOPED(buf_done) struct buf op = { 0 };
	struct rowbox live;
	bool found;

	if (!gone->nr)
		return false;
	if (key_len >= ID_LEN &&
	    (idset_has(gone, key) || idset_has(gone, key + key_len - ID_LEN)))
		return true;
	if (len >= ID_LEN && idset_has(gone, value))
		return true;
	if (t != TABLE_OPERATIONS_OPEN)
		return json_concerns(gone, value, len);
	evlog_rowbox_init(f->v->log, &live);
	found = !rowbox_get(&live, f->v->txn, TABLE_OPERATIONS, key, key_len,
			    &op, NULL) &&
		json_concerns(gone, op.p, op.len);
	rowbox_done(&live);
	return found;
}

/* --- adding up ------------------------------------------------------------ */

/*
 * An operation that was asked of a session now destroyed may end in events of
 * others (a fork's children). Its own events can't be read, so it is put in
 * as still open; its row is not compared.
 */
static void know_operation(struct fold *f, const struct event *ev,
			   const char *member)
{
	const char *id = json_string_value(json_object_get(ev->data, member));
	SCOPED(buf_done) struct buf row = { 0 }, open = { 0 };
	struct operation op;

	if (!id || !id_valid(id) || !f->v->gone.nr ||
	    f->mem.ops->get(f->mem.ctx, TABLE_OPERATIONS, id, ID_LEN, &open,
			    NULL) != -ENOENT ||
	    rowbox_get(&f->live, f->v->txn, TABLE_OPERATIONS, id, ID_LEN, &row,
		       NULL) ||
	    !json_concerns(&f->v->gone, row.p, row.len) ||
	    operation_decode(&op, row.p, row.len, NULL))
		return;
	op.state = OPERATION_OPEN;
	op.waiting = (uint32_t)json_array_size(op.sessions);
	operation_encode(&open, &op);
	operation_done(&op);
	f->mem.put(f->mem.ctx, TABLE_OPERATIONS, id, ID_LEN, open.p, open.len,
		   NULL);
}

static int apply(void *ctx, const struct event *ev)
{
	struct fold *f = ctx;
	struct err e = { 0 };
	char session[ID_LEN + 1] = { 0 };

	base_strcpy(session, sizeof(session), ev->session);
	if (ev->session[0] && idset_has(&f->v->gone, session))
		return 0;
	know_operation(f, ev, "operation");
	know_operation(f, ev, "ended");
	f->events->done++;
	if (project_apply(&f->mem, ev, &e))
		report_fail(&f->v->report, f->events, "event %" PRIu64 ": %s",
			    ev->seq, e.msg);
	return 0;
}

/* --- comparing ------------------------------------------------------------ */

/* A key for people: what is no text comes as \xNN. */
static const char *key_text(char ret[128], const uint8_t *key, size_t len)
{
	size_t at = 0;

	for (size_t i = 0; i < len && at < 120; i++) {
		if (isalnum(key[i]) || strchr("-_.:/", key[i]))
			ret[at++] = (char)key[i];
		else
			at += (size_t)snprintf(ret + at, 5, "\\x%02x", key[i]);
	}
	ret[at] = 0;
	return ret;
}

/* Names the members that differ; never values. */
static void differing(char *ret, size_t room, const struct buf *mem,
		      const void *value, size_t len)
{
	SCOPED_JSON json_t *a = NULL, *b = NULL;
	const char *name;
	json_t *member;
	size_t at = 0;

	ret[0] = 0;
	if (json_parse(&a, mem->p, mem->len, NULL) ||
	    json_parse(&b, value, len, NULL))
		return;
	json_object_foreach(a, name, member)
		if (!json_equal(member, json_object_get(b, name)) &&
		    at + strlen(name) + 2 < room)
			at += (size_t)snprintf(ret + at, room - at, " %s", name);
	json_object_foreach(b, name, member)
		if (!json_object_get(a, name) && at + strlen(name) + 2 < room)
			at += (size_t)snprintf(ret + at, room - at, " %s", name);
}

static int live_row(void *ctx, const void *key, size_t key_len,
		    const void *value, size_t len)
{
	struct fold *f = ctx;
	SCOPED(buf_done) struct buf mem = { 0 };
	char name[128], members[96];

	if (concerns(f, f->t, key, key_len, value, len)) {
		f->left_out++;
		return 0;
	}
	f->rows->done++;
	if (f->mem.ops->get(f->mem.ctx, f->t, key, key_len, &mem, NULL)) {
		report_fail(&f->v->report, f->rows,
			    "table %s: row %s is in no event",
			    rowbox_table_name(f->t),
			    key_text(name, key, key_len));
	} else if (mem.len != len || (len && memcmp(mem.p, value, len) != 0)) {
		differing(members, sizeof(members), &mem, value, len);
		report_fail(&f->v->report, f->rows,
			    "table %s: row %s is not what the events add up "
			    "to%s%s",
			    rowbox_table_name(f->t), key_text(name, key, key_len),
			    members[0] ? "; members:" : "", members);
	}
	return 0;
}

static int mem_row(void *ctx, const void *key, size_t key_len,
		   const void *value, size_t len)
{
	struct fold *f = ctx;
	SCOPED(buf_done) struct buf live = { 0 };
	struct err e = { 0 };
	char name[128];
	int r = rowbox_get(&f->live, f->v->txn, f->t, key, key_len, &live, &e);

	if (r != -ENOENT || concerns(f, f->t, key, key_len, value, len))
		return 0; /* compared from the other side, or to be left out */
	f->rows->done++;
	report_fail(&f->v->report, f->rows, "table %s: row %s is missing",
		    rowbox_table_name(f->t), key_text(name, key, key_len));
	return 0;
}

static void compare_table(struct fold *f, enum table t)
{
	struct err e = { 0 };

	f->t = t;
	if (rowbox_scan(&f->live, f->v->txn, t, "", 0, NULL, 0, false, live_row,
			f, &e))
		report_fail(&f->v->report, f->rows, "table %s: %s",
			    rowbox_table_name(t), e.msg);
	f->mem.ops->scan(f->mem.ctx, t, "", 0, NULL, 0, false, mem_row, f, &e);
}

/* --- lost keys ------------------------------------------------------------ */

/*
 * A session without key but with a life: its key was not destroyed by us. A
 * new view, since it may be removed while we look.
 */
static int check_keys(struct fold *f, struct err *e)
{
	SCOPED(lmdb_txn_abort_p) struct lmdb_txn *now = NULL;
	int r = lmdb_txn_begin(&now, evlog_env(f->v->log), false, e);

	if (r)
		return r;
	for (size_t i = 0; i < f->v->gone.nr; i++) {
		const char *id = f->v->gone.ids[i].s;
		SCOPED(buf_done) struct buf row = { 0 };
		SCOPED_JSON json_t *o = NULL;
		const char *state = "?";

		f->keys->done++;
		if (rowbox_get(&f->live, now, TABLE_SESSIONS, id, strlen(id),
			       &row, NULL))
			continue;
		if (!json_parse(&o, row.p, row.len, NULL))
			json_get_str(o, "state", &state, NULL);
		if (strcmp(state, "stopping") != 0)
			report_fail(&f->v->report, f->keys,
				    "session %s is %s, but its key is missing: "
				    "bring %s/keys/session/%.2s/%s.key back",
				    id, state, f->v->data, id, id);
	}
	return 0;
}

int fold_verify(struct verify *v, struct err *e)
{
	struct fold f = { .v = v };
	struct memrows *m = memrows_new();
	int r;

	f.events = report_check(&v->report, LEVEL_FOLD, "events");
	f.rows = report_check(&v->report, LEVEL_FOLD, "rows");
	f.keys = report_check(&v->report, LEVEL_FOLD, "destroyed keys");
	memrows_port(m, &f.mem);
	evlog_rowbox_init(v->log, &f.live);
	r = evlog_events(v->log, v->txn, NULL, 0, apply, &f, e);
	for (int t = 0; !r && t < TABLE_NR; t++)
		compare_table(&f, (enum table)t);
	if (!r) {
		r = check_keys(&f, e);
	} else { /* a body that can't be read; the chain's level names it */
		report_fail(&v->report, f.events, "stopped: %s", e->msg);
		r = 0;
	}
	if (f.left_out)
		snprintf(f.rows->note, sizeof(f.rows->note),
			 "%" PRIu64 " left out: of destroyed sessions",
			 f.left_out);
	rowbox_done(&f.live);
	memrows_free(m);
	return r;
}
