/*
 * session: decide, the first of the two pure functions; the second, evolve,
 * is in session_evolve.c.
 *
 * How it works: one table leads from the kind of a command to the function
 * that decides it. What clients ask is in session_ask.c and session_exec.c,
 * what drivers report in session_outcome.c, what a restart finds in
 * session_recover.c, the node's own things in session_node.c. This file has
 * the words they all use.
 *
 * Invariants
 *  1. A session has at most one operation in its slot. Whoever asks for
 *     another one is told that it is busy; only destroy takes the slot over.
 *  2. An operation that was accepted is ended by exactly one event:
 *     operation.done or operation.failed.
 *  3. Whatever the state, a destroy is accepted or already under way.
 *  4. An outcome that isn't awaited changes nothing.
 *  5. A session whose slot is taken either waits for an outcome that the
 *     driver owes it, or (wait-base) for an operation that will wake it.
 *
 * A crash loses nothing: decisions hold no state; their events are either
 * in the log or never were.
 */
#include "core/session_internal.h"

#include <stdarg.h>
#include <stdio.h>

const struct limits limits_default = {
	.memory_min_mib = 64,
	.memory_max_mib = 4096,
	.memory_mib = 256,
	.vcpus_max = 16,
	.disk_min_mib = 16,
	.disk_max_mib = 16384,
	.disk_mib = 256,
	.snapshot_every_ns = 60 * NS_PER_S,
	.snapshot_min_ns = NS_PER_S,
	.sessions_max = 1000,
	.execs_max = 128,
	.template = "tiny:latest",
};

typedef void (*decide_fn)(struct decide *x);

static const decide_fn deciders[COMMAND_NR] = {
	[COMMAND_CREATE] = decide_create,
	[COMMAND_FORK] = decide_fork,
	[COMMAND_PAUSE] = decide_pause,
	[COMMAND_CONTINUE] = decide_continue,
	[COMMAND_SUSPEND] = decide_suspend,
	[COMMAND_RESUME] = decide_resume,
	[COMMAND_REWIND] = decide_rewind,
	[COMMAND_SNAPSHOT] = decide_snapshot,
	[COMMAND_DESTROY] = decide_destroy,
	[COMMAND_EXEC_START] = decide_exec_start,
	[COMMAND_EXEC_SIGNAL] = decide_exec_signal,
	[COMMAND_TENANT_CREATE] = decide_tenant_create,
	[COMMAND_KEY_CREATE] = decide_key_create,
	[COMMAND_KEY_REMOVE] = decide_key_remove,
	[COMMAND_TEMPLATE_ADD] = decide_template_add,
	[COMMAND_NODE_START] = decide_node_start,
	[COMMAND_TTL] = decide_ttl,
	[COMMAND_OVERDUE] = decide_overdue,
	[COMMAND_BASE] = decide_base,
	[COMMAND_BASE_FAILED] = decide_base_failed,
	[COMMAND_RECOVER] = decide_recover,
	[COMMAND_STARTED] = decide_started,
	[COMMAND_PAUSED] = decide_paused,
	[COMMAND_CONTINUED] = decide_continued,
	[COMMAND_CAPTURED] = decide_captured,
	[COMMAND_CAPTURE_SKIPPED] = decide_capture_skipped,
	[COMMAND_KILLED] = decide_killed,
	[COMMAND_PURGED] = decide_purged,
	[COMMAND_EFFECT_FAILED] = decide_effect_failed,
	[COMMAND_DIED] = decide_died,
	[COMMAND_STALLED] = decide_stalled,
	[COMMAND_HEALED] = decide_healed,
	[COMMAND_EXEC_EXITED] = decide_exec_exited,
	[COMMAND_EXEC_HELLO] = NULL, /* below */
};

static_assert(ARRAY_LEN(deciders) == COMMAND_NR, "a command has no decider");

void session_decide(const struct session *s, const struct command *c,
		    const struct facts *f, struct decision *ret)
{
	struct decide x = { .s = s, .c = c, .f = f, .d = ret };

	PRE(c->kind < COMMAND_NR);
	memset(ret, 0, sizeof(*ret));
	if (c->session[0])
		base_strcpy(ret->session, sizeof(ret->session), c->session);
	if (c->kind == COMMAND_EXEC_HELLO)
		decide_hello(&x, false);
	else
		deciders[c->kind](&x);
	POST(IMPLIES(ret->rc, !ret->nr_events && !ret->nr_effects));
}

void decision_done(struct decision *d)
{
	for (int i = 0; i < d->nr_events; i++)
		event_done(&d->events[i]);
	for (int i = 0; i < d->nr_effects; i++)
		effect_free(d->effects[i]);
	free(d->events);
	free(d->effects);
	memset(d, 0, sizeof(*d));
}

void facts_done(struct facts *f)
{
	for (int i = 0; i < f->nr_execs; i++)
		exec_done(&f->execs[i]);
	for (int i = 0; i < f->nr_origins; i++)
		exec_done(&f->origins[i]);
	free(f->execs);
	free(f->origins);
	free(f->ids);
	exec_done(&f->exec);
	operation_done(&f->op);
	memset(f, 0, sizeof(*f));
}

/* --- building a decision ------------------------------------------------- */

json_t *decide_event_on(struct decide *x, enum event_type type,
			const char *session, const char *tenant)
{
	static const uint16_t schemas[EVENT_NR] = {
#define X(name, word, schema) [EVENT_##name] = schema,
		EVENT_TYPES(X)
#undef X
	};
	struct decision *d = x->d;
	struct event *ev;

	if (d->nr_events == d->cap_events) {
		d->cap_events = d->cap_events ? 2 * d->cap_events : 4;
		d->events = base_realloc(d->events,
					 (size_t)d->cap_events * sizeof(*ev));
	}
	ev = &d->events[d->nr_events++];
	memset(ev, 0, sizeof(*ev));
	ev->type = type;
	ev->schema = schemas[type];
	ev->wall_ns = x->c->wall_ns;
	ev->mono_ns = x->c->mono_ns;
	memcpy(ev->boot_id, x->c->boot_id, sizeof(ev->boot_id));
	base_strcpy(ev->type_name, sizeof(ev->type_name), event_type_name(type));
	base_strcpy(ev->session, sizeof(ev->session), session);
	base_strcpy(ev->tenant, sizeof(ev->tenant), tenant);
	base_strcpy(ev->actor, sizeof(ev->actor),
		    x->c->actor[0] ? x->c->actor : "system");
	ev->data = json_object();
	return ev->data;
}

json_t *decide_event(struct decide *x, enum event_type type)
{
	PRE(x->s);
	return decide_event_on(x, type, x->s->id, x->s->tenant);
}

static struct effect *add_effect(struct decide *x, enum effect_kind kind)
{
	struct decision *d = x->d;

	if (d->nr_effects == d->cap_effects) {
		d->cap_effects = d->cap_effects ? 2 * d->cap_effects : 4;
		d->effects = base_realloc(
			d->effects, (size_t)d->cap_effects * sizeof(*d->effects));
	}
	return d->effects[d->nr_effects++] = effect_new(kind);
}

struct effect *decide_effect(struct decide *x, enum effect_kind kind)
{
	struct effect *fx = add_effect(x, kind);

	if (!x->s) { /* something lives that no row owns */
		base_strcpy(fx->session, sizeof(fx->session), x->c->session);
		fx->epoch = x->c->epoch;
		return fx;
	}
	base_strcpy(fx->session, sizeof(fx->session), x->s->id);
	base_strcpy(fx->tenant, sizeof(fx->tenant), x->s->tenant);
	base_strcpy(fx->operation, sizeof(fx->operation), x->s->op.id);
	fx->epoch = x->s->epoch;
	return fx;
}

bool decide_refused(const struct decide *x)
{
	return x->d->rc != 0;
}

void decide_refuse(struct decide *x, int ret, enum err_code code,
		   const char *fmt, ...)
{
	char text[sizeof(x->d->err.msg)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	decision_done(x->d);
	x->d->rc = err_set(&x->d->err, ret, code, "%s", text);
}

void decide_busy(struct decide *x)
{
	const struct session_op *op = &x->s->op;

	decide_refuse(x, -EBUSY, ERR_BUSY,
		      "session %s is busy: operation %s (%s: %s) is under "
		      "way; try again when it has ended",
		      x->s->id, op->id, operation_kind_words[op->kind],
		      operation_step_text(op->step));
	x->d->wait = !x->c->no_wait;
}

void decide_put_ref(json_t *o, const char *key, const struct point_ref *r)
{
	json_t *part;

	if (!r->id[0])
		return;
	part = json_object();
	fields_encode(part, &point_ref_fields, r);
	json_object_set_new(o, key, part);
}

void decide_put_idem(struct decide *x, json_t *data)
{
	const struct command_idem *i = &x->c->idem;
	json_t *o;

	if (!i->given)
		return;
	o = json_object();
	json_put_hex(o, "scope", i->scope, sizeof(i->scope));
	json_put_hex(o, "body", i->body, sizeof(i->body));
	json_object_set_new(data, "idempotency", o);
}

/* --- operations ---------------------------------------------------------- */

json_t *decide_accept(struct decide *x, enum operation_kind kind,
		      enum operation_step step)
{
	json_t *data = decide_event(x, EVENT_OPERATION_ACCEPTED);

	PRE(x->c->operation[0]);
	json_put_str(data, "operation", x->c->operation);
	json_put_str(data, "kind", operation_kind_words[kind]);
	json_put_str(data, "step", operation_step_words[step]);
	decide_put_idem(x, data);
	base_strcpy(x->d->operation, sizeof(x->d->operation), x->c->operation);
	return data;
}

/* A fork's operation is held by the parent first, then by each child. */
static bool is_child_of_fork(const struct decide *x)
{
	return x->s->op.kind == OPERATION_FORK && x->f->have_op &&
	       strcmp(x->f->op.session, x->s->id) != 0;
}

static void put_operation_end(struct decide *x, bool good, enum err_code code,
			      const char *why, const char *point)
{
	json_t *data = decide_event(x, good ? EVENT_OPERATION_DONE
					    : EVENT_OPERATION_FAILED);

	json_put_str(data, "operation", x->s->op.id);
	if (good) {
		if (point[0])
			json_put_str(data, "point", point);
		return;
	}
	json_put_str(data, "code", err_word(code));
	json_put_str(data, "why", why);
}

/* The last child to come to an end ends the operation of all. */
static void end_child(struct decide *x, bool good, enum err_code code,
		      const char *why)
{
	const struct operation *op = &x->f->op;
	uint32_t broken = op->broken + !good;
	char text[256];

	if (op->waiting > 1)
		return;
	if (!broken) {
		put_operation_end(x, true, ERR_INTERNAL, "", op->point);
		return;
	}
	snprintf(text, sizeof(text), "%u of the %zu forks failed; last: %s",
		 broken, json_array_size(op->sessions),
		 good ? "see the sessions" : why);
	put_operation_end(x, false, good ? ERR_INTERNAL : code, text, "");
}

void decide_done(struct decide *x, const char *point)
{
	if (!x->s->op.id[0])
		return;
	if (is_child_of_fork(x))
		end_child(x, true, ERR_INTERNAL, "");
	else
		put_operation_end(x, true, ERR_INTERNAL, "", point);
}

static void wake(struct decide *x, bool good, const char *point,
		 enum err_code code, const char *why)
{
	struct decision *d = x->d;

	base_strcpy(d->wake, sizeof(d->wake), x->s->op.id);
	d->wake_ok = good;
	base_strcpy(d->wake_point, sizeof(d->wake_point), point);
	if (!good)
		err_set(&d->err, -EIO, code, "%s", why);
}

void decide_fail_operation(struct decide *x, enum err_code code, const char *why)
{
	if (!x->s->op.id[0])
		return;
	if (is_child_of_fork(x)) {
		end_child(x, false, code, why);
	} else if (x->s->op.kind == OPERATION_FORK) {
		/* its children, still waiting for the point, end it */
		wake(x, false, "", code, why);
	} else {
		put_operation_end(x, false, code, why, "");
		if (x->s->op.kind == OPERATION_PARK)
			wake(x, false, "", code, why);
	}
}

void decide_fail(struct decide *x, enum err_code code, const char *why)
{
	json_t *data = decide_event(x, EVENT_SESSION_FAILED);

	json_put_str(data, "why", why);
	json_put_str(data, "code", err_word(code));
	json_put_int(data, "epoch", (int64_t)x->s->epoch);
	if (x->s->op.id[0])
		json_put_str(data, "operation", x->s->op.id);
	decide_fail_operation(x, code, why);
	if (!x->s->park)
		return;
	/* nobody sees a park session: it removes itself, the next create
	 * builds another */
	decide_event(x, EVENT_SESSION_STOPPING);
	decide_kill(x, "", x->s->epoch);
}

/* --- effects ------------------------------------------------------------- */

struct effect *decide_start(struct decide *x, const struct session *s,
			    const char *operation, uint64_t epoch,
			    const struct point *base)
{
	struct effect *fx = add_effect(x, base ? EFFECT_RESTORE : EFFECT_BOOT);

	base_strcpy(fx->session, sizeof(fx->session), s->id);
	base_strcpy(fx->tenant, sizeof(fx->tenant), s->tenant);
	base_strcpy(fx->operation, sizeof(fx->operation), operation);
	base_strcpy(fx->name, sizeof(fx->name), s->name);
	base_strcpy(fx->parent, sizeof(fx->parent), s->parent);
	fx->epoch = epoch;
	fx->spec = s->spec;
	fx->park = s->park;
	fx->forensic = s->op.forensic;
	fx->newest_ns = s->newest_ns;
	if (s->park || s->spec.keep == KEEP_NONE)
		fx->spec.snapshot_every_ns = 0;
	if (base) {
		fx->base = *base;
		fx->fork = strcmp(base->session, s->id) != 0;
		fx->newest_ns = MAX(fx->newest_ns, base->time_ns);
	}
	return fx;
}

static enum point_kind point_kind_of(enum operation_kind kind)
{
	static const enum point_kind kinds[OPERATION_KIND_NR] = {
		[OPERATION_SNAPSHOT] = POINT_MANUAL,
		[OPERATION_SUSPEND] = POINT_SUSPEND,
		[OPERATION_REWIND] = POINT_BEFORE_REWIND,
		[OPERATION_FORK] = POINT_FORK,
		[OPERATION_PARK] = POINT_PARK,
	};

	PRE(kinds[kind]);
	return kinds[kind];
}

void decide_capture(struct decide *x, enum operation_kind kind,
		    const char *operation, const char *name)
{
	struct effect *fx = decide_effect(x, EFFECT_CAPTURE);

	base_strcpy(fx->operation, sizeof(fx->operation), operation);
	fx->point_kind = point_kind_of(kind);
	base_strcpy(fx->point_name, sizeof(fx->point_name), name);
	base_strcpy(fx->point_parent, sizeof(fx->point_parent), x->s->head.id);
	fx->newest_ns = x->s->newest_ns;
	fx->stay_stopped = x->s->state == SESSION_PAUSED ||
			   kind == OPERATION_SUSPEND ||
			   kind == OPERATION_REWIND || kind == OPERATION_PARK;
}

void decide_kill(struct decide *x, const char *operation, uint64_t epoch)
{
	struct effect *fx = decide_effect(x, EFFECT_KILL);

	base_strcpy(fx->operation, sizeof(fx->operation), operation);
	fx->epoch = epoch;
}

bool decide_awaited(const struct decide *x, enum operation_step step)
{
	const struct session *s = x->s;

	return s && s->op.id[0] && s->op.step == step &&
	       x->c->epoch == s->epoch && !strcmp(x->c->operation, s->op.id);
}

/* --- specs --------------------------------------------------------------- */

void session_spec_fill(struct session_spec *spec, const struct limits *l)
{
	size_t len;

	if (!spec->template[0])
		base_strcpy(spec->template, sizeof(spec->template), l->template);
	len = strlen(spec->template);
	if (!strchr(spec->template, ':') &&
	    len + sizeof(":latest") <= sizeof(spec->template))
		memcpy(spec->template + len, ":latest", sizeof(":latest"));
	if (!spec->memory_mib)
		spec->memory_mib = l->memory_mib;
	if (!spec->vcpus)
		spec->vcpus = 1;
	if (!spec->disk_mib)
		spec->disk_mib = l->disk_mib;
	if (spec->keep == KEEP_NONE)
		spec->snapshot_every_ns = 0;
	else if (!spec->snapshot_every_ns)
		spec->snapshot_every_ns = l->snapshot_every_ns;
}

void session_park_key(char ret_key[PARK_KEY_LEN + 1],
		      const struct session_spec *spec, const struct limits *l)
{
	int n = snprintf(ret_key, PARK_KEY_LEN + 1, "%s/%u/%u/%u/%s",
			 spec->template_digest, spec->memory_mib, spec->vcpus,
			 spec->disk_mib, l->platform);

	POST(n > 0 && n <= PARK_KEY_LEN);
}
