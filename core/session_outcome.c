/*
 * session_outcome: what drivers report, decided. An outcome counts only if
 * it is of the present epoch and the session waits for it; everything else
 * is late news and changes nothing.
 */
#include "core/session_internal.h"

static bool present(const struct decide *x)
{
	return x->s && x->c->epoch == x->s->epoch;
}

static const char *why_of(const struct command *c, const char *otherwise)
{
	return c->err.msg[0] ? c->err.msg : otherwise;
}

/* --- starts -------------------------------------------------------------- */

static bool starting(const struct session *s)
{
	return (s->state == SESSION_CREATING || s->state == SESSION_RESUMING) &&
	       (s->op.step == STEP_BOOT || s->op.step == STEP_RESTORE);
}

/* A sandbox that nobody waits for any more has to go. */
static void unwanted(struct decide *x)
{
	const struct session *s = x->s;

	if (s && s->state == SESSION_STOPPING)
		return; /* the KILL under way covers it */
	if (s && s->epoch == x->c->epoch &&
	    (s->state == SESSION_RUNNING || s->state == SESSION_PAUSED))
		return; /* told twice */
	decide_kill(x, "", x->c->epoch);
}

void decide_started(struct decide *x)
{
	const struct session *s = x->s;
	const struct command *c = x->c;
	json_t *data;

	if (!present(x) || !starting(s)) {
		unwanted(x);
		return;
	}
	data = decide_event(x, EVENT_SESSION_STARTED);
	json_put_int(data, "epoch", (int64_t)s->epoch);
	json_put_str(data, "backend", c->backend);
	json_put_str(data, "accel", c->accel);
	json_put_int(data, "us", (int64_t)MIN(c->us, 1ull << 52));
	json_put_bool(data, "agent", c->agent);
	json_put_str(data, "operation", s->op.id);
	if (json_is_object(c->info))
		json_object_set(data, "renewed", c->info);
	decide_hello(x, true);
	if (s->op.kind == OPERATION_PARK)
		decide_capture(x, OPERATION_PARK, s->op.id, "");
	else
		decide_done(x, s->start.id);
}

void decide_base(struct decide *x)
{
	const struct session *s = x->s;
	json_t *data;

	if (!s || s->state != SESSION_CREATING ||
	    s->op.step != STEP_WAIT_BASE || !x->f->have_point)
		return;
	data = decide_event(x, EVENT_SESSION_BASED);
	json_object_set_new(data, "base", json_object());
	fields_encode(json_object_get(data, "base"), &point_fields, &x->f->point);
	json_put_str(data, "operation", s->op.id);
	decide_start(x, s, s->op.id, s->epoch, &x->f->point);
}

void decide_base_failed(struct decide *x)
{
	const struct session *s = x->s;

	if (!s || s->state != SESSION_CREATING || s->op.step != STEP_WAIT_BASE)
		return;
	decide_fail(x, x->c->err.code,
		    why_of(x->c, "there is no snapshot to "
				 "start from"));
	if (s->op.kind != OPERATION_FORK)
		return;
	/* a fork that never began to exist leaves nothing behind */
	decide_event(x, EVENT_SESSION_STOPPING);
	decide_kill(x, "", s->epoch);
}

/* --- pause and continue -------------------------------------------------- */

void decide_paused(struct decide *x)
{
	json_t *data;

	if (!decide_awaited(x, STEP_STOP) || x->s->state != SESSION_RUNNING)
		return;
	data = decide_event(x, EVENT_SESSION_PAUSED);
	json_put_str(data, "operation", x->s->op.id);
	decide_done(x, "");
}

void decide_continued(struct decide *x)
{
	json_t *data;

	if (!decide_awaited(x, STEP_CONT) || x->s->state != SESSION_PAUSED)
		return;
	data = decide_event(x, EVENT_SESSION_CONTINUED);
	json_put_str(data, "operation", x->s->op.id);
	decide_done(x, "");
}

/* --- captures ------------------------------------------------------------ */

static void put_committed(struct decide *x, const struct point *p, bool asked)
{
	json_t *data = decide_event(x, EVENT_SNAPSHOT_COMMITTED);

	fields_encode(data, &point_fields, p);
	json_object_del(data, "seq"); /* the log gives it */
	json_object_del(data, "session");
	if (asked)
		json_put_str(data, "operation", x->s->op.id);
	base_strcpy(x->d->point, sizeof(x->d->point), p->id);
}

/* Whose turn it is after a capture that an operation asked for. */
static void after_capture(struct decide *x, const struct point *p)
{
	const struct session *s = x->s;
	struct decision *d = x->d;
	json_t *data;

	switch ((int)s->op.kind) {
	case OPERATION_SUSPEND:
	case OPERATION_REWIND:
		decide_kill(x, s->op.id, s->epoch);
		return;
	case OPERATION_PARK:
		data = decide_event(x, EVENT_TEMPLATE_PARKED);
		json_put_str(data, "park_key", s->park_key);
		json_put_str(data, "point", p->id);
		decide_kill(x, s->op.id, s->epoch);
		break;
	case OPERATION_FORK:
		data = decide_event(x, EVENT_SESSION_FORKED);
		if (x->f->op.sessions)
			json_object_set(data, "children", x->f->op.sessions);
		json_put_str(data, "point", p->id);
		json_put_str(data, "operation", s->op.id);
		break;
	case OPERATION_SNAPSHOT:
		decide_done(x, p->id);
		return;
	default:
		NEVER("this operation captures nothing");
	}
	base_strcpy(d->wake, sizeof(d->wake), s->op.id);
	base_strcpy(d->wake_point, sizeof(d->wake_point), p->id);
	d->wake_ok = true;
}

static struct point point_made(const struct decide *x, bool asked)
{
	const struct session *s = x->s;
	struct point p = x->c->made;

	base_strcpy(p.session, sizeof(p.session), s->id);
	base_strcpy(p.parent, sizeof(p.parent), s->head.id);
	p.epoch = s->epoch;
	p.seq = 0;
	p.time_ns = MAX(p.time_ns, s->newest_ns + 1);
	if (asked)
		base_strcpy(p.name, sizeof(p.name), s->op.name);
	else
		p.name[0] = 0;
	return p;
}

void decide_captured(struct decide *x)
{
	const struct session *s = x->s;
	const struct command *c = x->c;
	bool asked = decide_awaited(x, STEP_CAPTURE);
	struct point p;

	if (s && x->f->have_point && !strcmp(x->f->point.session, s->id)) {
		/* told again: the acknowledgement was lost */
		base_strcpy(x->d->point, sizeof(x->d->point), c->made.id);
		return;
	}
	if (!present(x) || x->f->have_point || !id_valid(c->made.id) ||
	    (s->state != SESSION_RUNNING && s->state != SESSION_PAUSED)) {
		decide_refuse(x, -ESTALE, ERR_GONE,
			      "capture %s of session %s, epoch %llu, comes "
			      "too late: drop it",
			      c->made.id, c->session,
			      (unsigned long long)c->epoch);
		return;
	}
	p = point_made(x, asked);
	put_committed(x, &p, asked);
	if (asked)
		after_capture(x, &p);
	else if (c->stay_stopped && s->state == SESSION_RUNNING)
		decide_effect(x, EFFECT_CONT)->operation[0] = 0;
}

void decide_capture_skipped(struct decide *x)
{
	const struct session *s = x->s;
	const struct command *c = x->c;
	bool asked = decide_awaited(x, STEP_CAPTURE);
	const char *why = why_of(c, "the driver did not say why");
	json_t *data;

	if (!present(x) ||
	    (s->state != SESSION_RUNNING && s->state != SESSION_PAUSED))
		return;
	data = decide_event(x, EVENT_SNAPSHOT_SKIPPED);
	json_put_str(data, "why", why);
	json_put_str(data, "code", err_word(c->err.code));
	json_put_str(data, "kind", point_kind_words[c->made.kind]);
	if (!asked)
		return;
	json_put_str(data, "operation", s->op.id);
	if (s->op.kind == OPERATION_PARK)
		decide_fail(x, c->err.code, why);
	else
		decide_fail_operation(x, c->err.code, why);
}

/* --- ends ---------------------------------------------------------------- */

static void suspended(struct decide *x)
{
	json_t *data = decide_event(x, EVENT_SESSION_SUSPENDED);

	json_put_str(data, "point", x->s->head.id);
	json_put_str(data, "operation", x->s->op.id);
	decide_done(x, x->s->head.id);
}

static void rewinding(struct decide *x)
{
	const struct session *s = x->s;
	uint64_t epoch = s->epoch + 1;
	json_t *data;

	if (!x->f->have_point) {
		decide_fail(x, ERR_NOT_FOUND, "the point to rewind to is gone");
		return;
	}
	data = decide_event(x, EVENT_SESSION_REWINDING);
	json_put_int(data, "epoch", (int64_t)epoch);
	decide_put_ref(data, "point", &s->op.target);
	decide_put_ref(data, "left", &s->head);
	json_put_str(data, "operation", s->op.id);
	decide_start(x, s, s->op.id, epoch, &x->f->point);
}

/* The sandbox is gone, as it should be: on with the operation. */
void decide_killed(struct decide *x)
{
	const struct session *s = x->s;

	if (!present(x))
		return;
	if (s->state == SESSION_STOPPING)
		decide_effect(x, EFFECT_PURGE);
	else if (s->op.step != STEP_KILL)
		decide_died(x);
	else if (s->op.kind == OPERATION_REWIND)
		rewinding(x);
	else
		suspended(x);
}

void decide_purged(struct decide *x)
{
	if (!present(x) || x->s->state != SESSION_STOPPING)
		return;
	decide_done(x, "");
	decide_event(x, EVENT_SESSION_DESTROYED);
}

void decide_died(struct decide *x)
{
	const struct session *s = x->s;
	bool has_sandbox;

	if (!present(x))
		return;
	has_sandbox = s->state == SESSION_RUNNING ||
		      s->state == SESSION_PAUSED || starting(s);
	if (has_sandbox && s->op.step != STEP_KILL)
		decide_fail(x, x->c->err.code,
			    why_of(x->c, "its sandbox ended unexpectedly"));
}

static void kill_failed(struct decide *x)
{
	const struct session *s = x->s;
	const char *why = why_of(x->c, "the driver could not remove it");

	if (!present(x))
		return;
	if (s->state == SESSION_STOPPING)
		decide_fail_operation(x, x->c->err.code, why);
	else if (s->op.step == STEP_KILL)
		decide_fail(x, x->c->err.code, why);
}

static void exec_failed(struct decide *x)
{
	const struct exec *run = &x->f->exec;
	json_t *data;

	if (!present(x) || !x->f->have_exec || run->state != EXEC_RUNNING)
		return;
	data = decide_event(x, EVENT_EXEC_EXITED);
	json_put_str(data, "id", run->id);
	json_put_int(data, "code", 126);
	json_put_int(data, "signal", 0);
	json_put_str(data, "error", why_of(x->c, "it could not be started"));
}

void decide_effect_failed(struct decide *x)
{
	const struct session *s = x->s;
	const struct command *c = x->c;
	const char *why = why_of(c, "the driver did not say why");

	if (!s)
		return;
	switch (c->effect) {
	case EFFECT_BOOT:
	case EFFECT_RESTORE:
		if (present(x) && starting(s))
			decide_fail(x, c->err.code, why);
		return;
	case EFFECT_STOP:
	case EFFECT_CONT:
		if (decide_awaited(x, c->effect == EFFECT_STOP ? STEP_STOP
							       : STEP_CONT))
			decide_fail_operation(x, c->err.code, why);
		return;
	case EFFECT_CAPTURE:
		decide_capture_skipped(x);
		return;
	case EFFECT_KILL:
	case EFFECT_PURGE:
		kill_failed(x);
		return;
	case EFFECT_EXEC_START:
		exec_failed(x);
		return;
	case EFFECT_EXEC_SIGNAL:
		return;
	case EFFECT_NR:
		break;
	}
	NEVER("unknown effect");
}

/* --- trouble under the disk ---------------------------------------------- */

static bool resident(const struct decide *x)
{
	return present(x) &&
	       (x->s->state == SESSION_RUNNING || x->s->state == SESSION_PAUSED);
}

void decide_stalled(struct decide *x)
{
	json_t *data;

	if (!resident(x) || x->s->stalled)
		return;
	data = decide_event(x, EVENT_SESSION_STALLED);
	json_put_str(data, "why", why_of(x->c, "its disk reported an error"));
}

void decide_healed(struct decide *x)
{
	if (resident(x) && x->s->stalled)
		decide_event(x, EVENT_SESSION_HEALED);
}

/* --- operations that take too long --------------------------------------- */

void decide_overdue(struct decide *x)
{
	const struct session *s = x->s;
	const char *why = "it took longer than an operation may";
	json_t *data;

	if (!s || !s->op.id[0] || strcmp(s->op.id, x->c->operation))
		return;
	if (s->state == SESSION_STOPPING) {
		decide_fail_operation(x, ERR_TIMEOUT, why);
	} else if (s->state == SESSION_CREATING || s->state == SESSION_RESUMING ||
		   s->op.kind == OPERATION_PARK || s->op.step == STEP_KILL) {
		decide_fail(x, ERR_TIMEOUT, why);
		if (!s->park)
			decide_kill(x, "", s->epoch);
	} else {
		if (s->op.step == STEP_CAPTURE) {
			data = decide_event(x, EVENT_SNAPSHOT_SKIPPED);
			json_put_str(data, "why", why);
			json_put_str(data, "code", err_word(ERR_TIMEOUT));
			json_put_str(data, "operation", s->op.id);
		}
		decide_fail_operation(x, ERR_TIMEOUT, why);
	}
}
