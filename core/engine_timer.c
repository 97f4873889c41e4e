/*
 * engine_timer: when a session's running time is over, and when an operation
 * takes too long. Timers live in memory and follow the committed rows; on
 * start they are made anew from the rows. Few and looked at rarely: a plain
 * list. Monotonic time only: a step of the wall clock ends nothing early.
 */
#include "core/engine_internal.h"

static struct timer *find(struct engine *en, enum timer_kind kind, const char *id)
{
	for (int i = 0; i < en->nr_timers; i++)
		if (en->timers[i].kind == kind && !strcmp(en->timers[i].id, id))
			return &en->timers[i];
	return NULL;
}

void engine_timer_set(struct engine *en, enum timer_kind kind, const char *id,
		      int64_t at_ns)
{
	struct timer *t = find(en, kind, id);

	if (!t && en->nr_timers == en->cap_timers) {
		en->cap_timers = en->cap_timers ? 2 * en->cap_timers : 16;
		en->timers = base_realloc(
			en->timers, (size_t)en->cap_timers * sizeof(*en->timers));
	}
	if (!t)
		t = &en->timers[en->nr_timers++];
	*t = (struct timer){ .kind = kind, .at_ns = at_ns };
	base_strcpy(t->id, sizeof(t->id), id);
}

void engine_timer_drop(struct engine *en, enum timer_kind kind, const char *id)
{
	struct timer *t = find(en, kind, id);

	if (t)
		*t = en->timers[--en->nr_timers];
}

/* One that is over keeps its timer: a suspend that fails, say because the
 * disk is full, is tried again in a minute and not at once. */
void engine_timer_of_session(struct engine *en, const struct session *s)
{
	int64_t now = clock_mono(en->conf.clock);
	int64_t left = session_ttl_left(s, now, en->conf.boot_id);

	if (s->state != SESSION_RUNNING || left == INT64_MAX)
		engine_timer_drop(en, TIMER_TTL, s->id);
	else if (left > 0 || !find(en, TIMER_TTL, s->id))
		engine_timer_set(en, TIMER_TTL, s->id, now + MAX(left, 0));
}

void engine_timers_follow(struct engine *en, const struct job *j)
{
	int64_t now = clock_mono(en->conf.clock);

	for (int i = 0; i < j->d.nr_events; i++) {
		const struct event *ev = &j->d.events[i];
		const char *id = json_string_value(
			json_object_get(ev->data, "operation"));

		if (ev->type == EVENT_OPERATION_ACCEPTED)
			engine_timer_set(en, TIMER_OVERDUE, id,
					 now + en->conf.overdue_ns);
		else if (ev->type == EVENT_OPERATION_DONE ||
			 ev->type == EVENT_OPERATION_FAILED)
			engine_timer_drop(en, TIMER_OVERDUE, id);
		else if (ev->type == EVENT_SESSION_DESTROYED)
			engine_timer_drop(en, TIMER_TTL, ev->session);
	}
	if (j->have_after)
		engine_timer_of_session(en, &j->after);
}

static void overdue(struct engine *en, const char *operation, const char *session)
{
	struct command *c = command_new(COMMAND_OVERDUE);

	base_strcpy(c->session, sizeof(c->session), session);
	base_strcpy(c->operation, sizeof(c->operation), operation);
	engine_push(en, c);
}

/* All sessions that the operation may hold: asked one, and made ones. */
static void fire_overdue(struct engine *en, const char *id)
{
	struct operation op;
	struct err e;
	json_t *v;
	size_t i;

	if (en->conf.store->begin(en->conf.store->ctx, &e))
		return; /* tried again with the next timer */
	if (!rows_operation(&en->rows, id, &op, &e)) {
		if (!json_array_size(op.sessions) || op.kind == OPERATION_FORK)
			overdue(en, id, op.session);
		json_array_foreach(op.sessions, i, v)
			overdue(en, id, json_string_value(v));
		operation_done(&op);
	}
	en->conf.store->abort(en->conf.store->ctx);
}

static void fire(struct engine *en, const struct timer *t)
{
	struct command *c;

	if (t->kind == TIMER_OVERDUE) {
		fire_overdue(en, t->id);
		return;
	}
	c = command_new(COMMAND_TTL);
	base_strcpy(c->session, sizeof(c->session), t->id);
	engine_push(en, c);
}

void engine_timers_fire(struct engine *en)
{
	int64_t now = clock_mono(en->conf.clock);

	for (int i = 0; i < en->nr_timers; i++) {
		struct timer t = en->timers[i];

		if (t.at_ns > now)
			continue;
		/* again in a minute, should this one be refused */
		en->timers[i].at_ns = now + 60 * NS_PER_S;
		fire(en, &t);
	}
}

int64_t engine_timers_next(const struct engine *en)
{
	int64_t next = INT64_MAX;

	for (int i = 0; i < en->nr_timers; i++)
		next = MIN(next, en->timers[i].at_ns);
	return next;
}
