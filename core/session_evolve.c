/*
 * session_evolve: the second pure function: what an event means for the row
 * of its session.
 *
 * How it works: one table leads from the type to a function. Types that are
 * not in it leave the session as it is. Members that are missing in an event
 * leave theirs unchanged, so that logs of older builds fold.
 *
 * Invariants
 *  1. The state moves along session_fsm, or the event is refused as a whole.
 *  2. The result depends on the row and the event, on nothing else.
 *  3. ttl_used_ns grows only while running; a stretch that ended with the
 *     host counts nothing.
 */
#include "core/session.h"

struct evolve {
	struct session s; /* a copy, given back when all went well */
	const struct event *ev;
};

static const char *text(const struct event *ev, const char *key)
{
	const char *v = json_string_value(json_object_get(ev->data, key));

	return v ? v : "";
}

static void copy_text(char *dst, size_t len, const struct event *ev,
		      const char *key)
{
	memset(dst, 0, len);
	base_strcpy(dst, len, text(ev, key));
}

static uint64_t number(const struct event *ev, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(ev->data, key));

	return v > 0 ? (uint64_t)v : 0;
}

static int part(const struct event *ev, const char *key, const struct fields *t,
		void *ret)
{
	json_t *o = json_object_get(ev->data, key);
	struct err e;

	if (!o)
		return 0;
	memset(ret, 0, t->size);
	return fields_decode(o, t, ret, &e) ? -EPROTO : 0;
}

static int move(struct evolve *x, enum session_state to)
{
	int state = (int)x->s.state;
	int r = fsm_move(&session_fsm, &state, (int)to);

	x->s.state = (enum session_state)state;
	return r;
}

static void clear_op(struct session *s)
{
	memset(&s->op, 0, sizeof(s->op));
}

static bool holds(const struct session *s, const char *operation)
{
	return s->op.id[0] && !strcmp(s->op.id, operation);
}

/* --- running time -------------------------------------------------------- */

static void clock_start(struct evolve *x)
{
	/* 0 means "not running": a host's first nanosecond counts as one */
	x->s.running_since_ns = MAX(x->ev->mono_ns, 1);
	memcpy(x->s.running_boot, x->ev->boot_id, 16);
}

static void clock_stop(struct evolve *x)
{
	struct session *s = &x->s;
	int64_t ns = x->ev->mono_ns - s->running_since_ns;

	if (s->running_since_ns && ns > 0 &&
	    !memcmp(s->running_boot, x->ev->boot_id, 16))
		s->ttl_used_ns += ns;
	s->running_since_ns = 0;
	memset(s->running_boot, 0, 16);
}

/* --- life ---------------------------------------------------------------- */

static void found_base(struct session *s)
{
	if (!s->base.id[0])
		return;
	s->start = s->head = point_ref_of(&s->base);
	s->newest_ns = s->base.time_ns;
}

static int on_created(struct evolve *x)
{
	struct session *s = &x->s;
	const struct event *ev = x->ev;
	int r = move(x, SESSION_CREATING);

	if (r)
		return r;
	base_strcpy(s->id, sizeof(s->id), ev->session);
	base_strcpy(s->tenant, sizeof(s->tenant), ev->tenant);
	base_strcpy(s->actor, sizeof(s->actor), ev->actor);
	copy_text(s->name, sizeof(s->name), ev, "name");
	copy_text(s->parent, sizeof(s->parent), ev, "parent");
	copy_text(s->park_key, sizeof(s->park_key), ev, "park_key");
	copy_text(s->waits_on, sizeof(s->waits_on), ev, "waits_on");
	s->park = json_is_true(json_object_get(ev->data, "park"));
	s->epoch = 1;
	s->created_ns = ev->wall_ns;
	r = part(ev, "spec", &session_spec_fields, &s->spec);
	if (!r)
		r = part(ev, "operation", &session_op_fields, &s->op);
	if (!r)
		r = part(ev, "base", &point_fields, &s->base);
	found_base(s);
	return r;
}

static int on_based(struct evolve *x)
{
	struct session *s = &x->s;
	int r = part(x->ev, "base", &point_fields, &s->base);

	if (s->state != SESSION_CREATING || s->op.step != STEP_WAIT_BASE)
		return -EPROTO;
	found_base(s);
	s->op.step = STEP_RESTORE;
	s->waits_on[0] = 0;
	return r;
}

static int on_started(struct evolve *x)
{
	struct session *s = &x->s;
	int r = move(x, SESSION_RUNNING);

	if (r)
		return r;
	copy_text(s->backend, sizeof(s->backend), x->ev, "backend");
	copy_text(s->accel, sizeof(s->accel), x->ev, "accel");
	s->agent = json_is_true(json_object_get(x->ev->data, "agent"));
	s->started_ns = x->ev->wall_ns;
	s->stalled = false;
	s->stall_why[0] = 0;
	if (s->op.kind == OPERATION_PARK)
		s->op.step = STEP_CAPTURE;
	else if (s->op.kind == OPERATION_FORK)
		clear_op(s); /* the others may still be under way */
	clock_start(x);
	return 0;
}

static int on_paused(struct evolve *x)
{
	clock_stop(x);
	return move(x, SESSION_PAUSED);
}

static int on_continued(struct evolve *x)
{
	clock_start(x);
	return move(x, SESSION_RUNNING);
}

static void left_sandbox(struct evolve *x)
{
	clock_stop(x);
	x->s.agent = false;
	x->s.stalled = false;
	x->s.stall_why[0] = 0;
}

static int on_suspended(struct evolve *x)
{
	left_sandbox(x);
	return move(x, SESSION_SUSPENDED);
}

static void begin_epoch(struct evolve *x)
{
	struct session *s = &x->s;

	left_sandbox(x);
	s->epoch = MAX(number(x->ev, "epoch"), s->epoch + 1);
	s->op.step = STEP_RESTORE;
	s->fail_code = 0;
	s->fail_why[0] = 0;
}

static int on_resuming(struct evolve *x)
{
	struct session *s = &x->s;
	int r = part(x->ev, "point", &point_ref_fields, &s->start);

	begin_epoch(x);
	/* asked for after its time was over: it gets a new stretch */
	if (s->spec.ttl_ns && s->ttl_used_ns >= s->spec.ttl_ns)
		s->ttl_used_ns = 0;
	return r ? r : move(x, SESSION_RESUMING);
}

static int on_rewinding(struct evolve *x)
{
	struct session *s = &x->s;
	int r = part(x->ev, "point", &point_ref_fields, &s->start);

	if (!r)
		r = part(x->ev, "left", &point_ref_fields, &s->undo);
	s->head = s->start;
	begin_epoch(x);
	return r ? r : move(x, SESSION_RESUMING);
}

static enum err_code code_of(const char *word)
{
	for (int i = 0; i < ERR_NR; i++)
		if (!strcmp(err_word((enum err_code)i), word))
			return (enum err_code)i;
	return ERR_INTERNAL;
}

static int on_failed(struct evolve *x)
{
	struct session *s = &x->s;

	left_sandbox(x);
	copy_text(s->fail_why, sizeof(s->fail_why), x->ev, "why");
	s->fail_code = (int)code_of(text(x->ev, "code"));
	s->waits_on[0] = 0;
	clear_op(s);
	return move(x, SESSION_FAILED);
}

static int on_stopping(struct evolve *x)
{
	left_sandbox(x);
	x->s.waits_on[0] = 0;
	clear_op(&x->s);
	return move(x, SESSION_STOPPING);
}

static int on_destroyed(struct evolve *x)
{
	return move(x, SESSION_DESTROYED);
}

static int on_stalled(struct evolve *x)
{
	x->s.stalled = true;
	copy_text(x->s.stall_why, sizeof(x->s.stall_why), x->ev, "why");
	return 0;
}

static int on_healed(struct evolve *x)
{
	x->s.stalled = false;
	x->s.stall_why[0] = 0;
	return 0;
}

static int on_forked(struct evolve *x)
{
	x->s.children +=
		json_array_size(json_object_get(x->ev->data, "children"));
	return 0;
}

/* --- points -------------------------------------------------------------- */

static int on_committed(struct evolve *x)
{
	struct session *s = &x->s;
	struct point p = { .session = "" };
	struct err e;

	if (fields_decode(x->ev->data, &point_fields, &p, &e) ||
	    p.time_ns <= s->newest_ns)
		return -EPROTO;
	base_strcpy(p.session, sizeof(p.session), s->id);
	s->head = point_ref_of(&p);
	s->newest_ns = p.time_ns;
	s->points++;
	s->stored_bytes += p.stored_bytes;
	if (!holds(s, text(x->ev, "operation")))
		return 0;
	if (s->op.kind == OPERATION_FORK)
		clear_op(s); /* the children go on alone */
	else if (s->op.kind != OPERATION_SNAPSHOT)
		s->op.step = STEP_KILL;
	return 0;
}

static int on_skipped(struct evolve *x)
{
	struct session *s = &x->s;

	if (holds(s, text(x->ev, "operation")) && s->op.kind == OPERATION_FORK)
		clear_op(s);
	return 0;
}

/* --- operations ---------------------------------------------------------- */

static int on_accepted(struct evolve *x)
{
	struct session *s = &x->s;
	const char *id = text(x->ev, "operation");
	int kind = fields_word(operation_kind_words, OPERATION_KIND_NR,
			       text(x->ev, "kind"));
	int step =
		fields_word(operation_step_words, STEP_NR, text(x->ev, "step"));
	int r;

	if (kind < 0 || step < 0)
		return -EPROTO;
	if (step == STEP_NONE || holds(s, id))
		return 0;
	clear_op(s);
	r = part(x->ev, "target", &point_ref_fields, &s->op.target);
	base_strcpy(s->op.id, sizeof(s->op.id), id);
	s->op.kind = (enum operation_kind)kind;
	s->op.step = (enum operation_step)step;
	copy_text(s->op.name, sizeof(s->op.name), x->ev, "name");
	s->op.forensic = json_is_true(json_object_get(x->ev->data, "forensic"));
	if (kind == OPERATION_REWIND && step == STEP_CAPTURE)
		s->rewinds++;
	return r;
}

static int on_operation_end(struct evolve *x)
{
	if (holds(&x->s, text(x->ev, "operation")))
		clear_op(&x->s);
	return 0;
}

typedef int (*evolve_fn)(struct evolve *x);

static const evolve_fn evolvers[EVENT_NR] = {
	[EVENT_SESSION_CREATED] = on_created,
	[EVENT_SESSION_BASED] = on_based,
	[EVENT_SESSION_STARTED] = on_started,
	[EVENT_SESSION_PAUSED] = on_paused,
	[EVENT_SESSION_CONTINUED] = on_continued,
	[EVENT_SESSION_SUSPENDED] = on_suspended,
	[EVENT_SESSION_RESUMING] = on_resuming,
	[EVENT_SESSION_REWINDING] = on_rewinding,
	[EVENT_SESSION_FORKED] = on_forked,
	[EVENT_SESSION_FAILED] = on_failed,
	[EVENT_SESSION_STOPPING] = on_stopping,
	[EVENT_SESSION_DESTROYED] = on_destroyed,
	[EVENT_SESSION_STALLED] = on_stalled,
	[EVENT_SESSION_HEALED] = on_healed,
	[EVENT_SNAPSHOT_COMMITTED] = on_committed,
	[EVENT_SNAPSHOT_SKIPPED] = on_skipped,
	[EVENT_OPERATION_ACCEPTED] = on_accepted,
	[EVENT_OPERATION_DONE] = on_operation_end,
	[EVENT_OPERATION_FAILED] = on_operation_end,
};

int session_evolve(struct session *s, const struct event *ev)
{
	struct evolve x = { .s = *s, .ev = ev };
	int r;

	if ((int)ev->type < 0 || ev->type >= EVENT_NR || !evolvers[ev->type])
		return 0;
	r = evolvers[ev->type](&x);
	if (r)
		return r;
	x.s.changed_ns = ev->wall_ns;
	*s = x.s;
	return 0;
}
