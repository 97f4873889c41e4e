/*
 * fake: a driver of simulated sandboxes; see fake.h.
 *
 * How it works: start() only queues; fake_run() carries out what is due. It
 * keeps the rules of backend.h: order per session, exactly one outcome each,
 * idempotence by (session, epoch, operation), KILL and PURGE cut short what
 * is queued before them.
 *
 * Invariants
 *  1. A session has at most one guest alive.
 *  2. A point, once captured, never changes and is restored exactly.
 *  3. Same calls, same results: ids of points come from a counter.
 */
#include "core/backend/fake.h"

#include <stdio.h>

struct fake_point {
	char id[ID_LEN + 1];
	char session[ID_LEN + 1];
	char operation[ID_LEN + 1];
	uint64_t epoch;
	uint64_t counter;
	int nr_execs;
	struct fake_exec execs[FAKE_EXECS];
	struct point made;
	struct fake_point *next;
};

struct fake_session {
	char id[ID_LEN + 1];
	struct fake_guest g;
	int64_t newest_ns;
	bool purged;
	struct fake_session *next;
};

struct fake_due {
	struct effect *fx;
	int64_t at_ns;
	struct fake_due *next;
};

struct fake_fault {
	int times;
	enum err_code code;
	char why[128];
};

struct fake {
	const struct clock *clock;
	int64_t delay_ns;
	struct backend backend;
	struct outcome_sink sink;
	bool misfit;
	struct fake_session *sessions;
	struct fake_point *points;
	struct fake_due *due;
	struct fake_fault faults[EFFECT_NR];
	int counts[EFFECT_NR];
	uint64_t ids;
};

static void fake_start(void *ctx, struct effect *fx);

static int fake_fits(void *ctx, UNUSED const struct session_spec *spec,
		     const struct point *p, struct err *e)
{
	const struct fake *f = ctx;

	return f->misfit ? err_set(e, -EINVAL, ERR_MISMATCH,
				   "point %s is of another machine", p->id)
			 : 0;
}

void fake_misfit(struct fake *f, bool misfit)
{
	f->misfit = misfit;
}

static int fake_probe(UNUSED void *ctx, UNUSED struct err *e)
{
	return 0;
}

struct fake *fake_new(const struct clock *clock, int64_t delay_ns)
{
	struct fake *f = base_alloc(sizeof(*f));

	f->clock = clock;
	f->delay_ns = delay_ns;
	f->backend = (struct backend){
		.name = "fake",
		.ctx = f,
		.caps = { .rolling = true,
			  .memory = true,
			  .disk = true,
			  .fork_cow = true },
		.probe = fake_probe,
		.start = fake_start,
		.fits = fake_fits,
	};
	return f;
}

void fake_forget(struct fake *f)
{
	while (f->due) {
		struct fake_due *d = f->due;

		f->due = d->next;
		effect_free(d->fx);
		free(d);
	}
}

void fake_free(struct fake *f)
{
	if (!f)
		return;
	fake_forget(f);
	while (f->sessions) {
		struct fake_session *s = f->sessions;

		f->sessions = s->next;
		free(s);
	}
	while (f->points) {
		struct fake_point *p = f->points;

		f->points = p->next;
		free(p);
	}
	free(f);
}

const struct backend *fake_backend(struct fake *f)
{
	return &f->backend;
}

void fake_set_sink(struct fake *f, struct outcome_sink sink)
{
	f->sink = sink;
}

/* --- queue --------------------------------------------------------------- */

/* KILL and PURGE end what was not yet begun for their session. */
static void cut_short(struct fake *f, const struct effect *by)
{
	struct fake_due **at = &f->due;

	while (*at) {
		struct fake_due *d = *at;

		if (strcmp(d->fx->session, by->session) ||
		    d->fx->epoch > by->epoch || d->fx->kind == EFFECT_KILL ||
		    d->fx->kind == EFFECT_PURGE) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		effect_free(d->fx);
		free(d);
	}
}

static void fake_start(void *ctx, struct effect *fx)
{
	struct fake *f = ctx;
	struct fake_due *d = base_alloc(sizeof(*d)), **at = &f->due;

	if (fx->kind == EFFECT_KILL || fx->kind == EFFECT_PURGE)
		cut_short(f, fx);
	d->fx = fx;
	d->at_ns = clock_mono(f->clock) + f->delay_ns;
	while (*at)
		at = &(*at)->next;
	*at = d;
}

int64_t fake_next(const struct fake *f)
{
	return f->due ? f->due->at_ns : INT64_MAX;
}

/* --- sessions and points ------------------------------------------------- */

static struct fake_session *find(const struct fake *f, const char *id)
{
	for (struct fake_session *s = f->sessions; s; s = s->next)
		if (!strcmp(s->id, id))
			return s;
	return NULL;
}

static struct fake_session *session(struct fake *f, const char *id)
{
	struct fake_session *s = find(f, id);

	if (s)
		return s;
	s = base_alloc(sizeof(*s));
	base_strcpy(s->id, sizeof(s->id), id);
	s->next = f->sessions;
	return f->sessions = s;
}

static const struct fake_point *find_point(const struct fake *f, const char *id)
{
	for (struct fake_point *p = f->points; p; p = p->next)
		if (!strcmp(p->id, id))
			return p;
	return NULL;
}

static const struct fake_point *captured_before(const struct fake *f,
						const struct effect *fx)
{
	for (struct fake_point *p = f->points; p; p = p->next)
		if (fx->operation[0] && p->epoch == fx->epoch &&
		    !strcmp(p->session, fx->session) &&
		    !strcmp(p->operation, fx->operation))
			return p;
	return NULL;
}

/* --- outcomes ------------------------------------------------------------ */

static struct command *outcome(const struct effect *fx, enum command_kind kind)
{
	struct command *c = command_new(kind);

	base_strcpy(c->session, sizeof(c->session), fx->session);
	base_strcpy(c->operation, sizeof(c->operation), fx->operation);
	base_strcpy(c->actor, sizeof(c->actor), "driver:fake");
	c->epoch = fx->epoch;
	return c;
}

static void send(struct fake *f, struct command *c)
{
	PRE(f->sink.submit);
	f->sink.submit(f->sink.ctx, c);
}

static void put_hello(const struct fake_guest *g, int64_t now, struct command *c)
{
	struct exec_hello *h = command_hello(c, g->nr_execs);

	c->hello_ns = now;
	for (int i = 0; i < g->nr_execs; i++) {
		base_strcpy(h[i].tag, sizeof(h[i].tag), g->execs[i].tag);
		h[i].exited = g->execs[i].exited;
		h[i].out = g->execs[i].out;
	}
}

static void send_started(struct fake *f, const struct effect *fx,
			 const struct fake_guest *g)
{
	struct command *c = outcome(fx, COMMAND_STARTED);

	base_strcpy(c->backend, sizeof(c->backend), "fake");
	base_strcpy(c->accel, sizeof(c->accel), "none");
	c->us = 1;
	c->agent = true;
	put_hello(g, clock_wall(f->clock), c);
	send(f, c);
}

static void send_failed(struct fake *f, const struct effect *fx,
			enum err_code code, const char *why)
{
	bool capture = fx->kind == EFFECT_CAPTURE;
	struct command *c = outcome(fx, capture ? COMMAND_CAPTURE_SKIPPED
						: COMMAND_EFFECT_FAILED);

	c->effect = fx->kind;
	c->made.kind = fx->point_kind;
	base_strcpy(c->tag, sizeof(c->tag), fx->tag);
	err_set(&c->err, -EIO, code, "%s", why);
	send(f, c);
}

static void send_captured(struct fake *f, const struct effect *fx,
			  const struct fake_point *p)
{
	struct command *c = outcome(fx, COMMAND_CAPTURED);

	c->made = p->made;
	c->stay_stopped = fx->stay_stopped;
	send(f, c);
}

/* --- effects ------------------------------------------------------------- */

static void boot(struct fake *f, const struct effect *fx)
{
	struct fake_session *s = session(f, fx->session);

	if (!s->g.alive || s->g.epoch != fx->epoch) {
		s->g = (struct fake_guest){ .alive = true, .epoch = fx->epoch };
		s->newest_ns = fx->newest_ns;
	}
	send_started(f, fx, &s->g);
}

static void restore(struct fake *f, const struct effect *fx)
{
	struct fake_session *s = session(f, fx->session);
	const struct fake_point *p = find_point(f, fx->base.id);

	if (!p) {
		send_failed(f, fx, ERR_NOT_FOUND, "no such point");
		return;
	}
	if (!s->g.alive || s->g.epoch != fx->epoch) {
		s->g = (struct fake_guest){ .alive = true,
					    .epoch = fx->epoch,
					    .counter = p->counter,
					    .nr_execs = p->nr_execs };
		memcpy(s->g.execs, p->execs, sizeof(p->execs));
		s->newest_ns = fx->newest_ns;
	}
	send_started(f, fx, &s->g);
}

static struct fake_point *make_point(struct fake *f, struct fake_session *s,
				     enum point_kind kind)
{
	struct fake_point *p = base_alloc(sizeof(*p));

	snprintf(p->id, sizeof(p->id), "p%019llu", (unsigned long long)++f->ids);
	base_strcpy(p->session, sizeof(p->session), s->id);
	p->epoch = s->g.epoch;
	p->counter = s->g.counter;
	p->nr_execs = s->g.nr_execs;
	memcpy(p->execs, s->g.execs, sizeof(p->execs));
	base_strcpy(p->made.id, sizeof(p->made.id), p->id);
	p->made.kind = kind;
	p->made.time_ns = MAX(clock_wall(f->clock), s->newest_ns + 1);
	p->made.memory_pages = 1;
	p->made.stored_bytes = 4096;
	p->made.root[0] = (uint8_t)p->counter;
	put_u64(p->made.pack, f->ids);
	s->newest_ns = p->made.time_ns;
	p->next = f->points;
	return f->points = p;
}

static void capture(struct fake *f, const struct effect *fx)
{
	struct fake_session *s = session(f, fx->session);
	const struct fake_point *p = captured_before(f, fx);

	if (!p && (!s->g.alive || s->g.epoch != fx->epoch)) {
		send_failed(f, fx, ERR_GONE, "there is no sandbox");
		return;
	}
	if (!p) {
		struct fake_point *made = make_point(f, s, fx->point_kind);

		base_strcpy(made->operation, sizeof(made->operation),
			    fx->operation);
		s->g.stopped = s->g.stopped || fx->stay_stopped;
		p = made;
	}
	send_captured(f, fx, p);
}

static void set_stopped(struct fake *f, const struct effect *fx)
{
	struct fake_session *s = session(f, fx->session);
	bool stop = fx->kind == EFFECT_STOP;

	if (!s->g.alive || s->g.epoch != fx->epoch) {
		send_failed(f, fx, ERR_GONE, "there is no sandbox");
		return;
	}
	s->g.stopped = stop;
	send(f, outcome(fx, stop ? COMMAND_PAUSED : COMMAND_CONTINUED));
}

static void end_guest(struct fake *f, const struct effect *fx)
{
	struct fake_session *s = session(f, fx->session);

	if (s->g.epoch <= fx->epoch)
		s->g.alive = false;
	if (fx->kind == EFFECT_PURGE)
		s->purged = true;
	send(f, outcome(fx, fx->kind == EFFECT_KILL ? COMMAND_KILLED
						    : COMMAND_PURGED));
}

static void exec(struct fake *f, const struct effect *fx)
{
	struct fake_session *s = session(f, fx->session);
	struct fake_guest *g = &s->g;

	if (!g->alive || g->nr_execs == FAKE_EXECS) {
		send_failed(f, fx, ERR_LIMIT, "no room for another exec");
		return;
	}
	for (int i = 0; i < g->nr_execs; i++)
		if (!strcmp(g->execs[i].tag, fx->tag))
			return;
	g->execs[g->nr_execs] = (struct fake_exec){ .exited = false };
	base_strcpy(g->execs[g->nr_execs++].tag, ID_LEN + 1, fx->tag);
}

static void exit_exec(struct fake *f, struct fake_session *s, const char *tag,
		      int code, int signal)
{
	struct effect who = { .epoch = s->g.epoch };
	struct command *c;

	for (int i = 0; i < s->g.nr_execs; i++)
		if (!strcmp(s->g.execs[i].tag, tag)) {
			s->g.nr_execs--;
			memmove(&s->g.execs[i], &s->g.execs[i + 1],
				(size_t)(s->g.nr_execs - i) *
					sizeof(s->g.execs[0]));
			break;
		}
	base_strcpy(who.session, sizeof(who.session), s->id);
	c = outcome(&who, COMMAND_EXEC_EXITED);
	base_strcpy(c->tag, sizeof(c->tag), tag);
	c->code = code;
	c->signal = signal;
	send(f, c);
}

static void carry_out(struct fake *f, const struct effect *fx)
{
	switch (fx->kind) {
	case EFFECT_BOOT:
		boot(f, fx);
		return;
	case EFFECT_RESTORE:
		restore(f, fx);
		return;
	case EFFECT_STOP:
	case EFFECT_CONT:
		set_stopped(f, fx);
		return;
	case EFFECT_CAPTURE:
		capture(f, fx);
		return;
	case EFFECT_KILL:
	case EFFECT_PURGE:
		end_guest(f, fx);
		return;
	case EFFECT_EXEC_START:
		exec(f, fx);
		return;
	case EFFECT_EXEC_SIGNAL:
		exit_exec(f, session(f, fx->session), fx->tag, 128 + fx->signal,
			  fx->signal);
		return;
	case EFFECT_NR:
		break;
	}
	NEVER("unknown effect");
}

int fake_run(struct fake *f)
{
	int nr = 0;

	while (f->due && f->due->at_ns <= clock_mono(f->clock)) {
		struct fake_due *d = f->due;
		struct fake_fault *fault = &f->faults[d->fx->kind];

		f->due = d->next;
		f->counts[d->fx->kind]++;
		if (fault->times > 0) {
			fault->times--;
			send_failed(f, d->fx, fault->code, fault->why);
		} else {
			carry_out(f, d->fx);
		}
		effect_free(d->fx);
		free(d);
		nr++;
	}
	return nr;
}

/* --- what tests do ------------------------------------------------------- */

void fake_fail(struct fake *f, enum effect_kind kind, int times,
	       enum err_code code, const char *why)
{
	f->faults[kind] = (struct fake_fault){ .times = times, .code = code };
	base_strcpy(f->faults[kind].why, sizeof(f->faults[kind].why), why);
}

bool fake_guest_step(struct fake *f, const char *id, uint64_t n)
{
	struct fake_session *s = find(f, id);

	if (!s || !s->g.alive || s->g.stopped)
		return false;
	s->g.counter += n;
	for (int i = 0; i < s->g.nr_execs; i++)
		s->g.execs[i].out += n;
	return true;
}

bool fake_guest(const struct fake *f, const char *id, struct fake_guest *ret)
{
	const struct fake_session *s = find(f, id);

	if (s)
		*ret = s->g;
	return s;
}

void fake_die(struct fake *f, const char *id, const char *why)
{
	struct fake_session *s = find(f, id);
	struct effect who = { .epoch = 0 };
	struct command *c;

	if (!s || !s->g.alive)
		return;
	s->g.alive = false;
	base_strcpy(who.session, sizeof(who.session), id);
	who.epoch = s->g.epoch;
	c = outcome(&who, COMMAND_DIED);
	err_set(&c->err, -EIO, ERR_GONE, "%s", why);
	send(f, c);
}

void fake_roll(struct fake *f, const char *id)
{
	struct fake_session *s = find(f, id);
	struct effect who = { .epoch = 0 };

	if (!s || !s->g.alive || s->g.stopped)
		return;
	base_strcpy(who.session, sizeof(who.session), id);
	who.epoch = s->g.epoch;
	send_captured(f, &who, make_point(f, s, POINT_ROLLING));
}

void fake_exit(struct fake *f, const char *id, const char *tag, int code)
{
	struct fake_session *s = find(f, id);

	if (s && s->g.alive)
		exit_exec(f, s, tag, code, 0);
}

struct backend_live *fake_live(const struct fake *f, int *ret_nr)
{
	struct backend_live *list;
	int nr = 0, i = 0;

	for (struct fake_session *s = f->sessions; s; s = s->next)
		nr += s->g.alive;
	list = base_alloc(sizeof(*list) * (size_t)MAX(nr, 1));
	for (struct fake_session *s = f->sessions; s; s = s->next) {
		struct command *c;
		struct backend_live *l = &list[i];

		if (!s->g.alive)
			continue;
		c = command_new(COMMAND_EXEC_HELLO);
		put_hello(&s->g, clock_wall(f->clock), c);
		base_strcpy(l->session, sizeof(l->session), s->id);
		l->epoch = s->g.epoch;
		l->stopped = s->g.stopped;
		l->hello_known = true;
		l->hello_ns = c->hello_ns;
		l->nr_hello = c->nr_hello;
		l->hello = STEAL(c->hello);
		command_free(c);
		i++;
	}
	*ret_nr = nr;
	return list;
}

void fake_live_free(struct backend_live *live, int nr)
{
	for (int i = 0; i < nr; i++)
		free(live[i].hello);
	free(live);
}

int fake_count(const struct fake *f, enum effect_kind kind)
{
	return f->counts[kind];
}

bool fake_purged(const struct fake *f, const char *id)
{
	const struct fake_session *s = find(f, id);

	return s && s->purged && !s->g.alive;
}
