/*
 * engine: the only writer. This file has its life, its queue and its thread;
 * a batch is in engine_batch.c, timers in engine_timer.c, the comparison
 * with the living in engine_recover.c, waiting for it in engine_wait.c.
 *
 * How it works: any thread puts commands at the end of a list; the engine's
 * thread takes up to batch_max from its head. Client commands are counted
 * and refused over queue_max; outcomes are bounded by the effects that caused
 * them and always taken. A command whose session is busy is held until the
 * session is free, and then goes first.
 *
 * Invariants
 *  1. Each command is answered exactly once, also when the engine ends.
 *  2. Commands of one session are decided in the order of submission, but
 *     for those that don't need the session's slot.
 *  3. Only the engine's thread uses the store port.
 *
 * A crash: what was only queued was never acknowledged.
 */
#include "core/engine_internal.h"
#include "core/log.h"

static void cond_init(pthread_cond_t *c)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(c, &a);
	pthread_condattr_destroy(&a);
}

struct engine *engine_new(const struct engine_conf *conf)
{
	struct engine *en = base_alloc(sizeof(*en));

	PRE(conf->store && conf->clock && conf->backend);
	en->conf = *conf;
	en->rows = reader_of(conf->store);
	if (!en->conf.queue_max)
		en->conf.queue_max = 1024;
	if (!en->conf.batch_max)
		en->conf.batch_max = 64;
	if (!en->conf.deferred_max)
		en->conf.deferred_max = 8;
	if (!en->conf.overdue_ns)
		en->conf.overdue_ns = 15 * 60 * NS_PER_S;
	if (!en->conf.new_id)
		en->conf.new_id = id_new;
	en->jobs = base_alloc(en->conf.batch_max * sizeof(*en->jobs));
	pthread_mutex_init(&en->lock, NULL);
	cond_init(&en->work);
	cond_init(&en->news);
	return en;
}

/* --- queue --------------------------------------------------------------- */

static void append_locked(struct engine *en, struct command *c)
{
	c->next = NULL;
	if (en->first)
		en->last->next = c;
	else
		en->first = c;
	en->last = c;
	pthread_cond_signal(&en->work);
}

void engine_push(struct engine *en, struct command *c)
{
	pthread_mutex_lock(&en->lock);
	append_locked(en, c);
	pthread_mutex_unlock(&en->lock);
}

void engine_push_front(struct engine *en, struct command *c)
{
	pthread_mutex_lock(&en->lock);
	c->next = en->first;
	en->first = c;
	if (!c->next)
		en->last = c;
	pthread_mutex_unlock(&en->lock);
}

void engine_answer(struct engine *en, struct command *c, const struct reply *r)
{
	if (command_is_client(c->kind)) {
		pthread_mutex_lock(&en->lock);
		en->clients--;
		pthread_mutex_unlock(&en->lock);
	}
	if (c->done)
		c->done(c->done_ctx, r);
	command_free(c);
}

void engine_answer_err(struct engine *en, struct command *c, int rc,
		       const struct err *e)
{
	struct reply r = { .rc = rc, .err = *e };

	engine_answer(en, c, &r);
}

void engine_submit(struct engine *en, struct command *c)
{
	bool client = command_is_client(c->kind), full, stop;
	struct reply r = { .rc = 0 };

	pthread_mutex_lock(&en->lock);
	stop = en->stop;
	full = client && en->clients >= en->conf.queue_max;
	if (!full && !stop) {
		en->clients += client;
		append_locked(en, c);
	}
	pthread_mutex_unlock(&en->lock);
	if (!full && !stop)
		return;
	r.rc = err_set(&r.err, -EBUSY, ERR_BUSY, "%s",
		       stop ? "the daemon is stopping: try again when it "
			      "has started"
			    : "too many requests wait already: try again in "
			      "a moment");
	if (c->done)
		c->done(c->done_ctx, &r);
	command_free(c);
}

static void sink_submit(void *ctx, struct command *c)
{
	engine_submit(ctx, c);
}

struct outcome_sink engine_sink(struct engine *en)
{
	return (struct outcome_sink){ .ctx = en, .submit = sink_submit };
}

/* --- thread -------------------------------------------------------------- */

static int take(struct engine *en)
{
	uint32_t max = en->singly ? 1 : en->conf.batch_max;
	uint32_t nr = 0;

	pthread_mutex_lock(&en->lock);
	while (nr < max && en->first) {
		en->jobs[nr].c = en->first;
		en->first = en->first->next;
		en->jobs[nr++].c->next = NULL;
	}
	pthread_mutex_unlock(&en->lock);
	if (nr && en->singly)
		en->singly--;
	return (int)nr;
}

int engine_step(struct engine *en)
{
	int nr;

	if (clock_mono(en->conf.clock) < en->retry_ns)
		return 0;
	engine_timers_fire(en);
	nr = take(en);
	if (nr)
		engine_batch(en, nr);
	return nr;
}

/* Waits for work; false when it is time to end. */
static bool await(struct engine *en)
{
	int64_t now = clock_mono(en->conf.clock);
	int64_t next = MIN(engine_timers_next(en), now + 3600 * NS_PER_S);
	struct timespec t;
	bool go_on;

	pthread_mutex_lock(&en->lock);
	if (en->retry_ns > now)
		next = MIN(next, en->retry_ns);
	clock_gettime(CLOCK_MONOTONIC, &t);
	next = t.tv_sec * NS_PER_S + t.tv_nsec + MAX(next - now, 0);
	t = (struct timespec){ next / NS_PER_S, next % NS_PER_S };
	while (!en->stop && (!en->first || en->retry_ns > now))
		if (pthread_cond_timedwait(&en->work, &en->lock, &t))
			break;
	go_on = !en->stop;
	pthread_mutex_unlock(&en->lock);
	return go_on;
}

static void *thread_main(void *arg)
{
	struct engine *en = arg;

	while (await(en))
		engine_step(en);
	return NULL;
}

int engine_run(struct engine *en, struct err *e)
{
	int r = pthread_create(&en->thread, NULL, thread_main, en);

	if (r)
		return err_sys(e, r, "starting the engine's thread");
	en->has_thread = true;
	return 0;
}

static void answer_list(struct engine *en, struct command *c)
{
	while (c) {
		struct command *next = c->next;
		struct err e;

		err_set(&e, -EIO, ERR_BUSY,
			"the daemon is stopping: try again "
			"when it has started");
		engine_answer_err(en, c, -EBUSY, &e);
		c = next;
	}
}

void engine_free(struct engine *en)
{
	if (!en)
		return;
	pthread_mutex_lock(&en->lock);
	en->stop = true;
	pthread_cond_broadcast(&en->work);
	pthread_cond_broadcast(&en->news);
	pthread_mutex_unlock(&en->lock);
	if (en->has_thread)
		pthread_join(en->thread, NULL);
	answer_list(en, STEAL(en->first));
	answer_list(en, STEAL(en->held));
	pthread_cond_destroy(&en->work);
	pthread_cond_destroy(&en->news);
	pthread_mutex_destroy(&en->lock);
	free(en->jobs);
	free(en->timers);
	free(en);
}
