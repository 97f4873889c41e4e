/*
 * session_ask: what clients ask of sessions, decided. A refusal says what is
 * the matter and what to do; it never changes anything.
 *
 * Order of the checks, the same everywhere: may you see it; is it going
 * away; is it busy (then the command may wait its turn); is it in a state
 * that fits; are the arguments good.
 */
#include "core/session_internal.h"

/* Foreign sessions answer exactly like unknown ones. */
static bool visible(struct decide *x)
{
	const struct session *s = x->s;
	const struct command *c = x->c;

	if (s && !s->park && (c->admin || !strcmp(s->tenant, c->tenant)))
		return true;
	decide_refuse(x, -ENOENT, ERR_NOT_FOUND,
		      "no session %s: `cryo ls` lists those there are",
		      c->session);
	return false;
}

static bool staying(struct decide *x)
{
	if (x->s->state != SESSION_STOPPING)
		return true;
	decide_refuse(x, -ESTALE, ERR_GONE,
		      "session %s is being destroyed: nothing else can be "
		      "done with it",
		      x->s->id);
	return false;
}

static bool unoccupied(struct decide *x)
{
	if (!x->s->op.id[0])
		return true;
	decide_busy(x);
	return false;
}

/* All that an ordinary request needs before it looks at the state. */
static bool ready(struct decide *x)
{
	return visible(x) && staying(x) && unoccupied(x);
}

static void wrong_state(struct decide *x, const char *what)
{
	static const char *const hints[SESSION_STATE_NR] = {
		[SESSION_RUNNING] = "it would have to be paused or suspended",
		[SESSION_PAUSED] = "`cryo resume` lets it go on first",
		[SESSION_SUSPENDED] = "`cryo resume` starts it first",
		[SESSION_FAILED] = "`cryo resume` starts it from its last "
				   "point, `cryo rm` removes it",
	};
	const char *hint = hints[x->s->state];

	decide_refuse(x, -EPERM, ERR_CONFLICT, "session %s is %s: can't %s; %s",
		      x->s->id, session_state_word(x->s->state), what,
		      hint ? hint : "try again later");
}

/* Accepted and done at once: the session is already as it was asked. */
static void already(struct decide *x, enum operation_kind kind, const char *point)
{
	json_t *data = decide_accept(x, kind, STEP_NONE);

	data = decide_event(x, EVENT_OPERATION_DONE);
	json_put_str(data, "operation", x->c->operation);
	if (point[0])
		json_put_str(data, "point", point);
	base_strcpy(x->d->point, sizeof(x->d->point), point);
}

/* --- create -------------------------------------------------------------- */

static bool in_range(struct decide *x, const char *what, uint32_t v,
		     uint32_t lo, uint32_t hi)
{
	if (v >= lo && v <= hi)
		return true;
	decide_refuse(x, -ERANGE, ERR_INVALID, "%s is %u: must be %u to %u",
		      what, v, lo, hi);
	return false;
}

static bool good_times(struct decide *x, const struct session_spec *spec)
{
	const struct limits *l = x->f->limits;

	if (spec->snapshot_every_ns < 0 ||
	    (spec->snapshot_every_ns &&
	     spec->snapshot_every_ns < l->snapshot_min_ns)) {
		decide_refuse(x, -ERANGE, ERR_INVALID,
			      "snapshot interval of %lld ms: must be at "
			      "least %lld ms",
			      (long long)(spec->snapshot_every_ns / NS_PER_MS),
			      (long long)(l->snapshot_min_ns / NS_PER_MS));
		return false;
	}
	if (spec->ttl_ns < 0)
		decide_refuse(x, -ERANGE, ERR_INVALID,
			      "ttl is negative: give a duration like 1h, or "
			      "none for no limit");
	return !decide_refused(x);
}

static bool good_name(struct decide *x, const char *name)
{
	if (!name[0] || point_name_valid(name))
		return true;
	decide_refuse(x, -EINVAL, ERR_INVALID,
		      "\"%.80s\" can't be a name: a letter, then letters, "
		      "digits, '.', '_' or '-', at most %d, and not 20 of "
		      "[a-z0-9], which is an id",
		      name, NAME_MAX_LEN);
	return false;
}

static bool good_spec(struct decide *x, const struct session_spec *spec)
{
	const struct limits *l = x->f->limits;

	return in_range(x, "memory in MiB", spec->memory_mib, l->memory_min_mib,
			l->memory_max_mib) &&
	       in_range(x, "number of vCPUs", spec->vcpus, 1, l->vcpus_max) &&
	       in_range(x, "disk in MiB", spec->disk_mib, l->disk_min_mib,
			l->disk_max_mib) &&
	       good_times(x, spec);
}

static bool room_for(struct decide *x, uint32_t more)
{
	uint32_t max = x->f->limits->sessions_max;

	if (x->f->sessions <= max && more <= max - x->f->sessions)
		return true;
	decide_refuse(x, -EDQUOT, ERR_LIMIT,
		      "%u more sessions are over the limit of %u (there are "
		      "%u): remove some with `cryo rm`",
		      more, max, x->f->sessions);
	return false;
}

static bool good_id(struct decide *x, const char *id)
{
	if (id_valid(id))
		return true;
	decide_refuse(x, -EINVAL, ERR_INVALID,
		      "\"%.40s\" can't be the id of a session: %d of [a-z0-9], "
		      "the first a letter",
		      id, ID_LEN);
	return false;
}

static bool creatable(struct decide *x)
{
	const struct command *c = x->c;

	if (x->s)
		decide_refuse(x, -EEXIST, ERR_CONFLICT,
			      "session %s exists already", c->session);
	else if (!x->f->have_template)
		decide_refuse(x, -ENOENT, ERR_NOT_FOUND,
			      "no template \"%s\": `cryo template ls` lists "
			      "them, `cryo template build` makes one",
			      c->spec.template);
	else if (good_name(x, c->name) && x->f->name_taken)
		decide_refuse(x, -EEXIST, ERR_CONFLICT,
			      "there is a session named \"%s\" already: "
			      "choose another name or remove it",
			      c->name);
	return !decide_refused(x) && good_id(x, c->session) &&
	       good_spec(x, &c->spec) && room_for(x, 1);
}

/* session.created from a row that has been filled in. */
static void put_created(struct decide *x, const struct session *s)
{
	json_t *data =
		decide_event_on(x, EVENT_SESSION_CREATED, s->id, s->tenant);
	json_t *op = json_object();

	json_put_str(data, "name", s->name[0] ? s->name : NULL);
	json_put_str(data, "parent", s->parent[0] ? s->parent : NULL);
	json_put_bool(data, "park", s->park);
	json_put_str(data, "park_key", s->park_key[0] ? s->park_key : NULL);
	json_put_str(data, "waits_on", s->waits_on[0] ? s->waits_on : NULL);
	json_object_set_new(data, "spec", json_object());
	fields_encode(json_object_get(data, "spec"), &session_spec_fields,
		      &s->spec);
	fields_encode(op, &session_op_fields, &s->op);
	json_object_set_new(data, "operation", op);
	if (!s->base.id[0])
		return;
	json_object_set_new(data, "base", json_object());
	fields_encode(json_object_get(data, "base"), &point_fields, &s->base);
}

static void accept_for(struct decide *x, const struct session *s)
{
	json_t *data =
		decide_event_on(x, EVENT_OPERATION_ACCEPTED, s->id, s->tenant);
	json_t *ids = json_array();

	json_put_str(data, "operation", s->op.id);
	json_put_str(data, "kind", operation_kind_words[s->op.kind]);
	json_put_str(data, "step", operation_step_words[s->op.step]);
	json_array_append_new(ids, json_string(s->id));
	json_object_set_new(data, "sessions", ids);
	if (!s->park)
		decide_put_idem(x, data);
}

/* The first create of a template in this shape: boot once, then park. */
static void build_park(struct decide *x, const struct session_spec *spec)
{
	const struct command *c = x->c;
	struct session p = { .park = true, .spec = *spec };

	base_strcpy(p.id, sizeof(p.id), c->park);
	base_strcpy(p.op.id, sizeof(p.op.id), c->park_op);
	p.op.kind = OPERATION_PARK;
	p.op.step = STEP_BOOT;
	p.spec.snapshot_every_ns = 0;
	p.spec.ttl_ns = 0;
	p.spec.keep = KEEP_DURABLE;
	session_park_key(p.park_key, &p.spec, x->f->limits);
	put_created(x, &p);
	accept_for(x, &p);
	decide_start(x, &p, p.op.id, 1, NULL);
}

void decide_create(struct decide *x)
{
	const struct command *c = x->c;
	const struct facts *f = x->f;
	struct session s = { .spec = c->spec };

	if (!creatable(x))
		return;
	base_strcpy(s.id, sizeof(s.id), c->session);
	base_strcpy(s.tenant, sizeof(s.tenant), c->tenant);
	base_strcpy(s.name, sizeof(s.name), c->name);
	base_strcpy(s.op.id, sizeof(s.op.id), c->operation);
	base_strcpy(s.spec.template_digest, sizeof(s.spec.template_digest),
		    f->template_digest);
	s.op.kind = OPERATION_CREATE;
	s.op.step = STEP_WAIT_BASE;
	if (f->park == PARK_NONE)
		build_park(x, &s.spec);
	if (f->park == PARK_READY) {
		s.op.step = STEP_RESTORE;
		s.base = f->point;
		decide_start(x, &s, s.op.id, 1, &s.base);
	} else {
		base_strcpy(s.waits_on, sizeof(s.waits_on),
			    f->park == PARK_NONE ? c->park_op : f->park_op);
	}
	put_created(x, &s);
	accept_for(x, &s);
	base_strcpy(x->d->operation, sizeof(x->d->operation), c->operation);
}

/* --- fork ---------------------------------------------------------------- */

static bool good_children(struct decide *x)
{
	const struct command *c = x->c;

	if (c->nr_children < 1 || c->nr_children > FORK_MAX) {
		decide_refuse(x, -ERANGE, ERR_INVALID,
			      "can't make %d forks at once: 1 to %d",
			      c->nr_children, FORK_MAX);
		return false;
	}
	for (int i = 0; i < c->nr_children; i++)
		if (!good_name(x, c->children[i].name) ||
		    !good_id(x, c->children[i].id))
			return false;
	if (x->f->child_id_taken)
		decide_refuse(x, -EEXIST, ERR_CONFLICT,
			      "session %s exists already",
			      c->children[x->f->child_taken - 1].id);
	else if (x->f->child_taken)
		decide_refuse(x, -EEXIST, ERR_CONFLICT,
			      "there is a session named \"%s\" already: "
			      "choose another name or remove it",
			      c->children[x->f->child_taken - 1].name);
	return !decide_refused(x) && good_times(x, &c->spec) &&
	       room_for(x, (uint32_t)c->nr_children);
}

static json_t *children_ids(const struct command *c)
{
	json_t *ids = json_array();

	for (int i = 0; i < c->nr_children; i++)
		json_array_append_new(ids, json_string(c->children[i].id));
	return ids;
}

static void put_child(struct decide *x, const struct command_child *child,
		      const struct point *base)
{
	const struct command *c = x->c;
	struct session s = { .spec = x->s->spec };

	base_strcpy(s.id, sizeof(s.id), child->id);
	base_strcpy(s.name, sizeof(s.name), child->name);
	base_strcpy(s.tenant, sizeof(s.tenant), x->s->tenant);
	base_strcpy(s.parent, sizeof(s.parent), x->s->id);
	base_strcpy(s.op.id, sizeof(s.op.id), c->operation);
	s.op.kind = OPERATION_FORK;
	if (c->spec.ttl_ns)
		s.spec.ttl_ns = c->spec.ttl_ns;
	if (c->spec.snapshot_every_ns && s.spec.keep == KEEP_DURABLE)
		s.spec.snapshot_every_ns = c->spec.snapshot_every_ns;
	s.op.forensic = c->forensic;
	s.op.step = base ? STEP_RESTORE : STEP_WAIT_BASE;
	if (base) {
		s.base = *base;
		decide_start(x, &s, s.op.id, 1, base);
	} else {
		base_strcpy(s.waits_on, sizeof(s.waits_on), c->operation);
	}
	put_created(x, &s);
}

/* From a point that is there, or (NULL) from one of the present. */
static void fork_from(struct decide *x, const struct point *p)
{
	const struct command *c = x->c;
	json_t *data =
		decide_accept(x, OPERATION_FORK, p ? STEP_NONE : STEP_CAPTURE);

	json_object_set_new(data, "sessions", children_ids(c));
	if (p) {
		data = decide_event(x, EVENT_SESSION_FORKED);
		json_object_set_new(data, "children", children_ids(c));
		json_put_str(data, "point", p->id);
		json_put_str(data, "operation", c->operation);
		base_strcpy(x->d->point, sizeof(x->d->point), p->id);
	} else {
		decide_capture(x, OPERATION_FORK, c->operation, "");
	}
	for (int i = 0; i < c->nr_children; i++)
		put_child(x, &c->children[i], p);
}

static bool own_point(struct decide *x)
{
	const struct session *s = x->s;
	const struct point *p = &x->f->point;

	if (x->f->have_point &&
	    (!strcmp(p->session, s->id) || !strcmp(p->id, s->base.id))) {
		if (x->f->unfit)
			decide_refuse(x, -EINVAL, ERR_MISMATCH, "%s",
				      x->f->unfit_why.msg);
		return !x->f->unfit;
	}
	decide_refuse(x, -ENOENT, ERR_NOT_FOUND,
		      "session %s has no point %s: `cryo snapshots %s` lists "
		      "them",
		      s->id, x->c->point[0] ? x->c->point : "yet", s->id);
	return false;
}

void decide_fork(struct decide *x)
{
	const struct session *s = x->s;
	bool at = x->c->point[0];

	if (!visible(x) || !staying(x))
		return;
	if (s->state == SESSION_CREATING || (!at && s->op.id[0])) {
		decide_busy(x);
		return;
	}
	if (!good_children(x))
		return;
	if (!at && (s->state == SESSION_RUNNING || s->state == SESSION_PAUSED))
		fork_from(x, NULL);
	else if (own_point(x))
		fork_from(x, &x->f->point);
}

/* --- pause, continue, suspend, snapshot ---------------------------------- */

void decide_pause(struct decide *x)
{
	if (!ready(x))
		return;
	if (x->s->state == SESSION_PAUSED) {
		already(x, OPERATION_PAUSE, "");
	} else if (x->s->state == SESSION_RUNNING) {
		struct effect *fx = decide_effect(x, EFFECT_STOP);

		base_strcpy(fx->operation, sizeof(fx->operation),
			    x->c->operation);
		decide_accept(x, OPERATION_PAUSE, STEP_STOP);
	} else {
		wrong_state(x, "pause it");
	}
}

static void continue_it(struct decide *x)
{
	struct effect *fx = decide_effect(x, EFFECT_CONT);

	base_strcpy(fx->operation, sizeof(fx->operation), x->c->operation);
	decide_accept(x, OPERATION_CONTINUE, STEP_CONT);
}

void decide_continue(struct decide *x)
{
	if (!ready(x))
		return;
	if (x->s->state == SESSION_RUNNING)
		already(x, OPERATION_CONTINUE, "");
	else if (x->s->state == SESSION_PAUSED)
		continue_it(x);
	else
		wrong_state(x, "continue it");
}

static void suspend_it(struct decide *x)
{
	decide_accept(x, OPERATION_SUSPEND, STEP_CAPTURE);
	decide_capture(x, OPERATION_SUSPEND, x->c->operation, "");
}

void decide_suspend(struct decide *x)
{
	const struct session *s = x->s;

	if (!ready(x))
		return;
	if (s->state == SESSION_SUSPENDED)
		already(x, OPERATION_SUSPEND, s->head.id);
	else if (s->state == SESSION_RUNNING || s->state == SESSION_PAUSED)
		suspend_it(x);
	else
		wrong_state(x, "suspend it");
}

static bool good_point_name(struct decide *x)
{
	const char *name = x->c->name;

	if (!good_name(x, name))
		return false;
	if (!strncmp(name, "before-rewind-", 14))
		decide_refuse(x, -EINVAL, ERR_INVALID,
			      "names that begin with \"before-rewind-\" are "
			      "given by rewind: choose another");
	else if (x->f->name_taken)
		decide_refuse(x, -EEXIST, ERR_CONFLICT,
			      "session %s has a point named \"%s\" already: "
			      "choose another name",
			      x->s->id, name);
	return !decide_refused(x);
}

/* The present of a suspended session is a point already: name it. */
static void name_present(struct decide *x)
{
	const struct point *p = &x->f->point;

	if (x->c->name[0] && !strcmp(p->session, x->s->id)) {
		json_t *data = decide_event(x, EVENT_SNAPSHOT_NAMED);

		json_put_str(data, "point", p->id);
		json_put_str(data, "name", x->c->name);
	}
	already(x, OPERATION_SNAPSHOT, p->id);
}

void decide_snapshot(struct decide *x)
{
	const struct session *s = x->s;

	if (!ready(x) || !good_point_name(x))
		return;
	if (s->state == SESSION_RUNNING || s->state == SESSION_PAUSED) {
		json_t *data = decide_accept(x, OPERATION_SNAPSHOT, STEP_CAPTURE);

		json_put_str(data, "name", x->c->name);
		decide_capture(x, OPERATION_SNAPSHOT, x->c->operation,
			       x->c->name);
	} else if (s->state == SESSION_SUSPENDED && x->f->have_point) {
		name_present(x);
	} else {
		wrong_state(x, "take a point of it");
	}
}

/* --- resume, rewind ------------------------------------------------------ */

static void go_back(struct decide *x, const struct point *p)
{
	const struct session *s = x->s;
	uint64_t epoch = s->epoch + 1;
	struct point_ref to = point_ref_of(p);
	json_t *data = decide_accept(x, OPERATION_REWIND, STEP_RESTORE);
	struct effect *fx;

	decide_put_ref(data, "target", &to);
	json_put_bool(data, "forensic", x->c->forensic);
	data = decide_event(x, EVENT_SESSION_REWINDING);
	json_put_int(data, "epoch", (int64_t)epoch);
	decide_put_ref(data, "point", &to);
	decide_put_ref(data, "left", &s->head);
	json_put_str(data, "operation", x->c->operation);
	fx = decide_start(x, s, x->c->operation, epoch, p);
	fx->forensic = x->c->forensic;
	base_strcpy(x->d->point, sizeof(x->d->point), p->id);
}

static void resume_from(struct decide *x, const struct point *p)
{
	const struct session *s = x->s;
	uint64_t epoch = s->epoch + 1;
	struct point_ref from = point_ref_of(p);
	json_t *data = decide_accept(x, OPERATION_RESUME, STEP_RESTORE);
	struct effect *fx;

	json_put_bool(data, "forensic", x->c->forensic);
	data = decide_event(x, EVENT_SESSION_RESUMING);
	json_put_int(data, "epoch", (int64_t)epoch);
	decide_put_ref(data, "point", &from);
	json_put_str(data, "operation", x->c->operation);
	fx = decide_start(x, s, x->c->operation, epoch, p);
	fx->forensic = x->c->forensic;
	base_strcpy(x->d->point, sizeof(x->d->point), p->id);
}

void decide_resume(struct decide *x)
{
	const struct session *s = x->s;
	bool at = x->c->point[0];

	if (!ready(x))
		return;
	if (at && (s->state == SESSION_RUNNING || s->state == SESSION_PAUSED))
		decide_refuse(x, -EPERM, ERR_CONFLICT,
			      "session %s is %s: `cryo rewind %s --at` takes "
			      "it back in time",
			      s->id, session_state_word(s->state), s->id);
	else if (s->state == SESSION_RUNNING)
		already(x, OPERATION_RESUME, "");
	else if (s->state == SESSION_PAUSED)
		continue_it(x);
	else if (!s->head.id[0])
		decide_refuse(x, -ENOENT, ERR_CONFLICT,
			      "session %s has no point to resume from: all "
			      "that is left is `cryo rm %s`",
			      s->id, s->id);
	else if (own_point(x) && at)
		go_back(x, &x->f->point);
	else if (!decide_refused(x))
		resume_from(x, &x->f->point);
}

/* The present is made a point first, so that nothing is lost. */
static void leave_present(struct decide *x, const struct point *p)
{
	struct point_ref to = point_ref_of(p);
	char name[NAME_MAX_LEN + 1];
	json_t *data;
	int n = snprintf(name, sizeof(name), "before-rewind-%llu",
			 (unsigned long long)x->s->rewinds + 1);

	POST(n > 0 && (size_t)n < sizeof(name));
	data = decide_accept(x, OPERATION_REWIND, STEP_CAPTURE);
	decide_put_ref(data, "target", &to);
	json_put_str(data, "name", name);
	json_put_bool(data, "forensic", x->c->forensic);
	decide_capture(x, OPERATION_REWIND, x->c->operation, name);
	base_strcpy(x->d->point, sizeof(x->d->point), p->id);
}

void decide_rewind(struct decide *x)
{
	const struct session *s = x->s;

	if (!ready(x))
		return;
	if (x->c->undo && !s->undo.id[0]) {
		decide_refuse(x, -ENOENT, ERR_CONFLICT,
			      "session %s was never rewound: there is nothing "
			      "to undo",
			      s->id);
		return;
	}
	if (!own_point(x))
		return;
	if (s->state == SESSION_RUNNING || s->state == SESSION_PAUSED)
		leave_present(x, &x->f->point);
	else
		go_back(x, &x->f->point);
}

/* --- destroy, ttl -------------------------------------------------------- */

static void destroy_it(struct decide *x)
{
	const struct session *s = x->s;
	json_t *data = decide_event(x, EVENT_SESSION_STOPPING);

	json_put_str(data, "operation", x->c->operation);
	if (s->op.id[0])
		json_put_str(data, "ended", s->op.id);
	decide_accept(x, OPERATION_DESTROY, STEP_KILL);
	decide_fail_operation(x, ERR_GONE, "the session was destroyed");
	decide_kill(x, x->c->operation, s->epoch);
}

void decide_destroy(struct decide *x)
{
	const struct session *s = x->s;

	if (!visible(x))
		return;
	if (s->state != SESSION_STOPPING) {
		destroy_it(x);
	} else if (s->op.id[0]) {
		base_strcpy(x->d->operation, sizeof(x->d->operation), s->op.id);
	} else {
		/* an earlier clean-up failed: it can be repeated */
		decide_accept(x, OPERATION_DESTROY, STEP_KILL);
		decide_kill(x, x->c->operation, s->epoch);
	}
}

void decide_ttl(struct decide *x)
{
	const struct session *s = x->s;
	const struct command *c = x->c;
	json_t *data;

	if (!s || s->state != SESSION_RUNNING ||
	    session_ttl_left(s, c->mono_ns, c->boot_id) > 0)
		return;
	if (s->op.id[0]) {
		decide_busy(x);
		return;
	}
	data = decide_event(x, EVENT_LIMIT_TTL);
	json_put_ns(data, "ttl_ns", s->spec.ttl_ns);
	json_put_str(data, "then",
		     s->spec.keep == KEEP_NONE ? "destroy" : "suspend");
	if (s->spec.keep == KEEP_NONE)
		destroy_it(x);
	else
		suspend_it(x);
}
