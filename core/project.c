/*
 * project: the rows that follow from an event.
 *
 * How it works: an event about a session first evolves that session's row;
 * then one function per type, from a table, keeps the other tables: points
 * and their names, epochs, execs, operations, parks, what the node has.
 *
 * Invariants
 *  1. Rows depend on rows and events alone: no clock, no randomness. Folding
 *     the log into empty tables gives the tables.
 *  2. Every index row leads to a row, and every row has its index rows.
 *  3. A destroyed session leaves only its operations.
 *
 * A crash: the caller's transaction holds the event and all of this, or
 * none of it.
 */
#include "core/project.h"

#include "core/rows.h"
#include "core/session.h"

struct project {
	const struct store_port *w;
	struct reader r;
	const struct event *ev;
	struct session before, s; /* zeroed if it has no row */
	struct err *e;
};

static const char *text(const struct project *x, const char *key)
{
	const char *v = json_string_value(json_object_get(x->ev->data, key));

	return v ? v : "";
}

static uint64_t number(const struct project *x, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(x->ev->data, key));

	return v > 0 ? (uint64_t)v : 0;
}

static int broken(const struct project *x, const char *why)
{
	return err_set(x->e, -EPROTO, ERR_CORRUPT,
		       "event %llu (%s) of session %s can't be: %s",
		       (unsigned long long)x->ev->seq, x->ev->type_name,
		       x->ev->session, why);
}

static int put(const struct project *x, enum table t, const void *key,
	       size_t key_len, const void *v, size_t len)
{
	return x->w->put(x->w->ctx, t, key, key_len, v, len, x->e);
}

static int del(const struct project *x, enum table t, const void *key,
	       size_t key_len)
{
	return x->w->del(x->w->ctx, t, key, key_len, x->e);
}

static int put_key2(const struct project *x, enum table t, const char *a,
		    const char *b, const void *v, size_t len)
{
	uint8_t key[ROW_KEY_MAX];
	size_t n = rows_key2(key, a, b);

	return put(x, t, key, n, v, len);
}

static int del_key2(const struct project *x, enum table t, const char *a,
		    const char *b)
{
	uint8_t key[ROW_KEY_MAX];
	size_t n = rows_key2(key, a, b);

	return del(x, t, key, n);
}

/* --- epochs -------------------------------------------------------------- */

static size_t epoch_key(uint8_t key[ID_LEN + 8], const struct session *s)
{
	memcpy(key, s->id, ID_LEN);
	put_be64(key + ID_LEN, s->epoch);
	return ID_LEN + 8;
}

/* A new incarnation, and the point that it starts from. */
static int put_epoch(const struct project *x)
{
	uint8_t key[ID_LEN + 8];
	size_t len = epoch_key(key, &x->s);
	json_t *o SCOPED_JSON = json_object();

	json_put_int(o, "epoch", (int64_t)x->s.epoch);
	json_put_int(o, "seq", (int64_t)x->ev->seq);
	json_put_ns(o, "time_ns", x->ev->wall_ns);
	json_put_str(o, "type", x->ev->type_name);
	if (x->s.start.id[0]) {
		json_object_set_new(o, "start", json_object());
		fields_encode(json_object_get(o, "start"), &point_ref_fields,
			      &x->s.start);
	}
	return rows_put_json(x->w, TABLE_EPOCHS, key, len, o, x->e);
}

static int epoch_started(const struct project *x)
{
	static const char *const members[] = { "backend", "accel", "us",
					       "agent", "renewed" };
	uint8_t key[ID_LEN + 8];
	size_t len = epoch_key(key, &x->s);
	json_t *o SCOPED_JSON = NULL;
	int r = rows_json(&x->r, TABLE_EPOCHS, key, len, &o, x->e);

	if (r == -ENOENT)
		return broken(x, "its epoch has no row");
	if (r)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		json_t *v = json_object_get(x->ev->data, members[i]);

		if (v)
			json_object_set(o, members[i], v);
	}
	json_put_ns(o, "started_ns", x->ev->wall_ns);
	return rows_put_json(x->w, TABLE_EPOCHS, key, len, o, x->e);
}

/* --- operations ---------------------------------------------------------- */

static const char *stage_of(const struct session_op *op)
{
	if (op->step == STEP_WAIT_BASE && op->kind == OPERATION_CREATE)
		return "building the template's parked snapshot";
	return operation_step_text(op->step);
}

/* A session moved on: its operation says so. Other children don't matter. */
static int tell_stage(const struct project *x)
{
	const struct session_op *op = &x->s.op;
	struct operation row;
	int r;

	if (!op->id[0] ||
	    (op->step == x->before.op.step && !strcmp(op->id, x->before.op.id)))
		return 0;
	r = rows_operation(&x->r, op->id, &row, x->e);
	if (r)
		return r == -ENOENT ? 0 : r; /* it is accepted just after */
	base_strcpy(row.stage, sizeof(row.stage), stage_of(op));
	r = rows_put_operation(x->w, &row, x->e);
	operation_done(&row);
	return r;
}

/* A child of a fork has come to its end, well or not. */
static int count_child(const struct project *x, const char *id, bool good)
{
	struct operation row;
	int r;

	if (!id[0])
		return 0;
	r = rows_operation(&x->r, id, &row, x->e);
	if (r)
		return r == -ENOENT ? broken(x, "no such operation") : r;
	if (row.kind == OPERATION_FORK && row.waiting &&
	    strcmp(row.session, x->s.id)) {
		row.waiting--;
		row.broken += !good;
		r = rows_put_operation(x->w, &row, x->e);
	}
	operation_done(&row);
	return r;
}

/* The first answer to a request with an Idempotency-Key. */
static int put_idem(const struct project *x)
{
	json_t *i = json_object_get(x->ev->data, "idempotency");
	json_t *o SCOPED_JSON = NULL;
	uint8_t scope[32];
	int r;

	if (!i)
		return 0;
	r = json_get_hex(i, "scope", scope, sizeof(scope), x->e);
	if (r)
		return broken(x, "its idempotency scope is no digest");
	o = json_object();
	json_object_set(o, "body", json_object_get(i, "body"));
	json_put_str(o, "session", x->ev->session);
	json_put_ns(o, "time_ns", x->ev->wall_ns);
	if (x->ev->type == EVENT_EXEC_STARTED)
		json_put_str(o, "exec", text(x, "id"));
	else
		json_put_str(o, "operation", text(x, "operation"));
	if (json_object_get(x->ev->data, "sessions"))
		json_object_set(o, "sessions",
				json_object_get(x->ev->data, "sessions"));
	return rows_put_json(x->w, TABLE_IDEMPOTENCY, scope, sizeof(scope), o,
			     x->e);
}

static int on_accepted(struct project *x)
{
	int kind = fields_word(operation_kind_words, OPERATION_KIND_NR,
			       text(x, "kind"));
	int step = fields_word(operation_step_words, STEP_NR, text(x, "step"));
	struct operation op = { .state = OPERATION_OPEN,
				.accepted_ns = x->ev->wall_ns };
	struct session_op slot = { .step = (enum operation_step)step,
				   .kind = (enum operation_kind)kind };
	int r;

	if (kind < 0 || step < 0 || !id_valid(text(x, "operation")))
		return broken(x, "its members are not an operation's");
	base_strcpy(op.id, sizeof(op.id), text(x, "operation"));
	op.kind = (enum operation_kind)kind;
	base_strcpy(op.tenant, sizeof(op.tenant), x->ev->tenant);
	base_strcpy(op.session, sizeof(op.session), x->ev->session);
	base_strcpy(op.actor, sizeof(op.actor), x->ev->actor);
	base_strcpy(op.stage, sizeof(op.stage), stage_of(&slot));
	op.sessions = json_object_get(x->ev->data, "sessions"); /* borrowed */
	if (op.kind == OPERATION_FORK)
		op.waiting = (uint32_t)json_array_size(op.sessions);
	r = rows_put_operation(x->w, &op, x->e);
	if (!r)
		r = put(x, TABLE_OPERATIONS_OPEN, op.id, ID_LEN, "", 0);
	return r ? r : put_idem(x);
}

/*
 * The last child ends a fork's operation, perhaps while the parent still
 * waits for its capture: the parent is free then.
 */
static int free_asked(const struct project *x, const char *session)
{
	struct session s;
	int r;

	if (!strcmp(session, x->ev->session))
		return 0;
	r = rows_session(&x->r, session, &s, x->e);
	if (r)
		return r == -ENOENT ? 0 : r;
	if (strcmp(s.op.id, text(x, "operation")))
		return 0;
	r = session_evolve(&s, x->ev);
	return r ? r : rows_put_session(x->w, &s, x->e);
}

static int on_operation_end(struct project *x)
{
	bool good = x->ev->type == EVENT_OPERATION_DONE;
	struct operation op;
	int state, r = rows_operation(&x->r, text(x, "operation"), &op, x->e);

	if (r)
		return r == -ENOENT ? broken(x, "no such operation") : r;
	state = (int)op.state;
	if (fsm_move(&operation_fsm, &state,
		     good ? OPERATION_ENDED : OPERATION_BROKEN)) {
		operation_done(&op);
		return broken(x, "its operation has ended before");
	}
	op.state = (enum operation_state)state;
	op.ended_ns = x->ev->wall_ns;
	op.stage[0] = 0;
	base_strcpy(op.point, sizeof(op.point), text(x, "point"));
	base_strcpy(op.error, sizeof(op.error), text(x, "why"));
	for (int i = 0; !good && i < ERR_NR; i++)
		if (!strcmp(err_word((enum err_code)i), text(x, "code")))
			op.error_code = i;
	r = rows_put_operation(x->w, &op, x->e);
	if (!r)
		r = del(x, TABLE_OPERATIONS_OPEN, op.id, ID_LEN);
	if (!r)
		r = free_asked(x, op.session);
	operation_done(&op);
	return r;
}

/* --- points -------------------------------------------------------------- */

static int on_committed(struct project *x)
{
	uint8_t key[POINT_KEY_LEN];
	struct point p = { .session = "" };
	int r = fields_decode(x->ev->data, &point_fields, &p, x->e);

	if (r || !id_valid(p.id))
		return broken(x, "its members are not a point's");
	base_strcpy(p.session, sizeof(p.session), x->s.id);
	p.seq = x->ev->seq;
	point_key(key, p.session, p.time_ns);
	r = rows_put_point(x->w, &p, x->e);
	if (!r)
		r = put(x, TABLE_POINTS_BY_ID, p.id, ID_LEN, key, sizeof(key));
	if (!r && p.name[0])
		r = put_key2(x, TABLE_POINTS_BY_NAME, p.session, p.name, key,
			     sizeof(key));
	return r;
}

static int on_named(struct project *x)
{
	uint8_t key[POINT_KEY_LEN];
	struct point p;
	int r = rows_point(&x->r, text(x, "point"), &p, x->e);

	if (r)
		return r == -ENOENT ? broken(x, "no such point") : r;
	point_key(key, p.session, p.time_ns);
	if (p.name[0])
		r = del_key2(x, TABLE_POINTS_BY_NAME, p.session, p.name);
	memset(p.name, 0, sizeof(p.name));
	base_strcpy(p.name, sizeof(p.name), text(x, "name"));
	if (!r)
		r = rows_put_point(x->w, &p, x->e);
	return r ? r
		 : put_key2(x, TABLE_POINTS_BY_NAME, p.session, p.name, key,
			    sizeof(key));
}

/* --- execs --------------------------------------------------------------- */

static int exec_move(const struct project *x, struct exec *run, enum exec_state to)
{
	int state = (int)run->state;

	if (fsm_move(&exec_fsm, &state, (int)to))
		return broken(x, "its exec is not in a state for that");
	run->state = (enum exec_state)state;
	return 0;
}

/* Row of a new exec; JSON members are borrowed from the event. */
static void exec_from_event(const struct project *x, struct exec *run)
{
	memset(run, 0, sizeof(*run));
	base_strcpy(run->id, sizeof(run->id), text(x, "id"));
	base_strcpy(run->tag, sizeof(run->tag), text(x, "tag"));
	base_strcpy(run->origin, sizeof(run->origin), text(x, "origin"));
	base_strcpy(run->session, sizeof(run->session), x->ev->session);
	base_strcpy(run->tenant, sizeof(run->tenant), x->ev->tenant);
	base_strcpy(run->cwd, sizeof(run->cwd), text(x, "cwd"));
	base_strcpy(run->user, sizeof(run->user), text(x, "user"));
	run->argv = json_object_get(x->ev->data, "argv");
	run->env = json_object_get(x->ev->data, "env");
	run->has_stdin = json_is_true(json_object_get(x->ev->data, "stdin"));
	run->tty = json_is_true(json_object_get(x->ev->data, "tty"));
	run->started_ns = x->ev->wall_ns;
	run->epoch = number(x, "epoch");
	run->state = EXEC_RUNNING;
}

static int put_new_exec(const struct project *x, struct exec *run)
{
	int r;

	if (!id_valid(run->id) || !id_valid(run->tag))
		return broken(x, "its members are not an exec's");
	r = rows_put_exec(x->w, run, x->e);
	return r ? r
		 : put_key2(x, TABLE_EXECS_BY_SESSION, run->session, run->id,
			    "", 0);
}

static int on_exec_started(struct project *x)
{
	struct exec run;
	int r;

	exec_from_event(x, &run);
	r = put_new_exec(x, &run);
	return r ? r : put_idem(x);
}

static int on_exec_adopted(struct project *x)
{
	struct exec run;
	int r = rows_exec(&x->r, text(x, "id"), &run, x->e);

	if (r == -ENOENT) {
		exec_from_event(x, &run);
		run.out_base = number(x, "out");
		run.err_base = number(x, "err");
		return put_new_exec(x, &run);
	}
	if (r)
		return r;
	r = exec_move(x, &run, EXEC_RUNNING);
	if (!r) {
		run.epoch = number(x, "epoch");
		run.out_base = number(x, "out");
		run.err_base = number(x, "err");
		run.code = run.signal = 0;
		run.out = run.err = 0;
		run.ended_ns = 0;
		run.why[0] = 0;
		r = rows_put_exec(x->w, &run, x->e);
	}
	exec_done(&run);
	return r;
}

static int end_exec(const struct project *x, struct exec *run,
		    enum exec_state to, const char *why)
{
	int r = exec_move(x, run, to);

	if (r)
		return r;
	run->ended_ns = x->ev->wall_ns;
	base_strcpy(run->why, sizeof(run->why), why);
	return rows_put_exec(x->w, run, x->e);
}

static int on_exec_end(struct project *x)
{
	bool exited = x->ev->type == EVENT_EXEC_EXITED;
	struct exec run;
	int r = rows_exec(&x->r, text(x, "id"), &run, x->e);

	if (r)
		return r == -ENOENT ? broken(x, "no such exec") : r;
	if (exited) {
		run.code = (int)json_integer_value(
			json_object_get(x->ev->data, "code"));
		run.signal = (int)number(x, "signal");
		run.out = number(x, "out");
		run.err = number(x, "err");
	}
	r = end_exec(x, &run, exited ? EXEC_EXITED : EXEC_LOST,
		     text(x, exited ? "error" : "why"));
	exec_done(&run);
	return r;
}

static int lose_execs(const struct project *x)
{
	struct exec *list = NULL;
	int nr = 0, r = rows_execs(&x->r, x->s.id, true, &list, &nr, x->e);

	for (int i = 0; i < nr; i++) {
		if (!r)
			r = end_exec(x, &list[i], EXEC_LOST, "the sandbox ended");
		exec_done(&list[i]);
	}
	free(list);
	return r;
}

/* --- sessions ------------------------------------------------------------ */

static int on_created(struct project *x)
{
	const struct session *s = &x->s;
	int r;

	if (s->park)
		r = put(x, TABLE_PARKS, s->park_key, strlen(s->park_key), s->id,
			ID_LEN);
	else
		r = put_key2(x, TABLE_SESSIONS_BY_TENANT, s->tenant, s->id, "",
			     0);
	if (!r && s->name[0])
		r = put_key2(x, TABLE_SESSIONS_BY_NAME, s->tenant, s->name,
			     s->id, ID_LEN);
	return r ? r : put_epoch(x);
}

static int on_new_epoch(struct project *x)
{
	return put_epoch(x);
}

static int on_started(struct project *x)
{
	int r = epoch_started(x);

	return r ? r : count_child(x, text(x, "operation"), true);
}

static int forget_park(const struct project *x)
{
	struct buf b SCOPED(buf_done) = { 0 };
	const char *key = x->s.park_key;
	int r = x->r.ops->get(x->r.view, TABLE_PARKS, key, strlen(key), &b, x->e);

	if (r == -ENOENT)
		return 0;
	if (!r && !strcmp(buf_cstr(&b), x->s.id))
		r = del(x, TABLE_PARKS, key, strlen(key));
	return r;
}

/* The point that a fork starts from is part of its operation's result. */
static int on_forked(struct project *x)
{
	struct operation op;
	int r = rows_operation(&x->r, text(x, "operation"), &op, x->e);

	if (r)
		return r == -ENOENT ? broken(x, "no such operation") : r;
	base_strcpy(op.point, sizeof(op.point), text(x, "point"));
	r = rows_put_operation(x->w, &op, x->e);
	operation_done(&op);
	return r;
}

static int on_failed(struct project *x)
{
	int r = lose_execs(x);

	if (!r)
		r = count_child(x, text(x, "operation"), false);
	if (!r && x->s.park)
		r = forget_park(x);
	return r;
}

static int on_stopping(struct project *x)
{
	return count_child(x, text(x, "ended"), false);
}

struct keys {
	struct buf b; /* u16 length + bytes, one after the other */
};

static int keys_row(void *ctx, const void *key, size_t key_len,
		    UNUSED const void *value, UNUSED size_t len)
{
	struct keys *k = ctx;

	buf_put_u16(&k->b, (uint16_t)key_len);
	buf_put(&k->b, key, key_len);
	return 0;
}

/* Removes all rows of a table that begin with the session's id. */
static int del_all(const struct project *x, enum table t, bool execs)
{
	struct keys k = { 0 };
	struct cur c;
	int r = x->r.ops->scan(x->r.view, t, x->s.id, ID_LEN, NULL, 0, false,
			       keys_row, &k, x->e);

	c = cur_init(k.b.p, k.b.len);
	while (r >= 0 && cur_left(&c)) {
		size_t len = cur_get_u16(&c);
		const uint8_t *key = cur_get(&c, len);

		r = del(x, t, key, len);
		if (!r && execs)
			r = del(x, TABLE_EXECS, key + ID_LEN, ID_LEN);
	}
	buf_done(&k.b);
	return r < 0 ? r : 0;
}

struct point_ids {
	struct buf b; /* ids, ID_LEN each */
	struct err *e;
};

static int point_ids_row(void *ctx, UNUSED const void *key,
			 UNUSED size_t key_len, const void *value, size_t len)
{
	struct point_ids *ids = ctx;
	struct point p;
	int r = point_decode(&p, value, len, ids->e);

	if (!r)
		buf_put(&ids->b, p.id, ID_LEN);
	return r;
}

static int del_points(const struct project *x)
{
	struct point_ids ids = { .e = x->e };
	int r = x->r.ops->scan(x->r.view, TABLE_POINTS, x->s.id, ID_LEN, NULL,
			       0, false, point_ids_row, &ids, x->e);

	for (size_t i = 0; r >= 0 && i < ids.b.len; i += ID_LEN)
		r = del(x, TABLE_POINTS_BY_ID, ids.b.p + i, ID_LEN);
	buf_done(&ids.b);
	if (r >= 0)
		r = del_all(x, TABLE_POINTS_BY_NAME, false);
	return r < 0 ? r : del_all(x, TABLE_POINTS, false);
}

static int on_destroyed(struct project *x)
{
	const struct session *s = &x->s;
	int r = del_points(x);

	if (!r)
		r = del_all(x, TABLE_EPOCHS, false);
	if (!r)
		r = del_all(x, TABLE_EXECS_BY_SESSION, true);
	if (!r && s->park)
		r = forget_park(x);
	if (!r && !s->park)
		r = del_key2(x, TABLE_SESSIONS_BY_TENANT, s->tenant, s->id);
	if (!r && s->name[0])
		r = del_key2(x, TABLE_SESSIONS_BY_NAME, s->tenant, s->name);
	return r ? r : del(x, TABLE_SESSIONS, s->id, ID_LEN);
}

/* --- the node's ---------------------------------------------------------- */

/* The event's data is the row, with who and when. */
static int put_data(const struct project *x, enum table t, const char *key)
{
	json_t *o SCOPED_JSON = NULL;

	if (!key[0] || strlen(key) > ROW_KEY_MAX)
		return broken(x, "it names nothing");
	o = json_copy(x->ev->data);
	json_put_ns(o, "created_ns", x->ev->wall_ns);
	json_put_int(o, "seq", (int64_t)x->ev->seq);
	json_put_str(o, "tenant", x->ev->tenant);
	return rows_put_json(x->w, t, key, strlen(key), o, x->e);
}

static int on_tenant_created(struct project *x)
{
	return put_data(x, TABLE_TENANTS, text(x, "id"));
}

static int on_key_created(struct project *x)
{
	return put_data(x, TABLE_KEYS, text(x, "id"));
}

static int on_key_removed(struct project *x)
{
	const char *id = text(x, "id");

	return id[0] ? del(x, TABLE_KEYS, id, strlen(id))
		     : broken(x, "it names nothing");
}

static int on_template_added(struct project *x)
{
	return put_data(x, TABLE_TEMPLATES, text(x, "name"));
}

static int on_node_started(struct project *x)
{
	return put_data(x, TABLE_META, "node");
}

typedef int (*project_fn)(struct project *x);

static const project_fn projectors[EVENT_NR] = {
	[EVENT_NODE_STARTED] = on_node_started,
	[EVENT_TENANT_CREATED] = on_tenant_created,
	[EVENT_KEY_CREATED] = on_key_created,
	[EVENT_KEY_REMOVED] = on_key_removed,
	[EVENT_TEMPLATE_ADDED] = on_template_added,
	[EVENT_SESSION_CREATED] = on_created,
	[EVENT_SESSION_BASED] = on_new_epoch,
	[EVENT_SESSION_STARTED] = on_started,
	[EVENT_SESSION_RESUMING] = on_new_epoch,
	[EVENT_SESSION_REWINDING] = on_new_epoch,
	[EVENT_SESSION_FORKED] = on_forked,
	[EVENT_SESSION_FAILED] = on_failed,
	[EVENT_SESSION_STOPPING] = on_stopping,
	[EVENT_SESSION_DESTROYED] = on_destroyed,
	[EVENT_SNAPSHOT_COMMITTED] = on_committed,
	[EVENT_SNAPSHOT_NAMED] = on_named,
	[EVENT_EXEC_STARTED] = on_exec_started,
	[EVENT_EXEC_EXITED] = on_exec_end,
	[EVENT_EXEC_LOST] = on_exec_end,
	[EVENT_EXEC_ADOPTED] = on_exec_adopted,
	[EVENT_OPERATION_ACCEPTED] = on_accepted,
	[EVENT_OPERATION_DONE] = on_operation_end,
	[EVENT_OPERATION_FAILED] = on_operation_end,
};

static bool about_operation(enum event_type t)
{
	return t == EVENT_OPERATION_ACCEPTED || t == EVENT_OPERATION_DONE ||
	       t == EVENT_OPERATION_FAILED;
}

/* The session's row: before, evolved, written unless it is gone. */
static int evolve_row(struct project *x)
{
	const struct event *ev = x->ev;
	int r;

	if (!ev->session[0])
		return 0;
	r = rows_session(&x->r, ev->session, &x->s, x->e);
	if (r == -ENOENT && about_operation(ev->type))
		return 0; /* an operation may outlive its session */
	if (r == -ENOENT && ev->type != EVENT_SESSION_CREATED)
		return broken(x, "there is no such session");
	if (r && r != -ENOENT)
		return r;
	x->before = x->s;
	if (session_evolve(&x->s, ev))
		return broken(x, session_state_word(x->s.state));
	if (x->s.state == SESSION_DESTROYED)
		return 0;
	r = rows_put_session(x->w, &x->s, x->e);
	return r ? r : tell_stage(x);
}

int project_apply(const struct store_port *w, const struct event *ev,
		  struct err *e)
{
	struct project x = { .w = w, .r = reader_of(w), .ev = ev, .e = e };
	int r;

	if (ev->type == EVENT_UNKNOWN || ev->type >= EVENT_NR)
		return 0;
	r = evolve_row(&x);
	if (!r && projectors[ev->type])
		r = projectors[ev->type](&x);
	return r;
}
