/*
 * agent: see agent.h. The agent link is the loop's; the worker's calls are
 * carried out there, their ends come back through one condition variable.
 *
 * Invariants: 1. every function of agent_link runs on the loop's thread.
 * 2. A wait of the worker ends by the link's own deadline, at the latest.
 */
#include "tools/vm/agent.h"

#include <pthread.h>
#include <time.h>

#include "core/log.h"
#include "tools/vm/execs.h"

#define RELEASE_TIMEOUT_MS 10000
#define HOLD_MS 200

struct agent {
	struct loop *loop;
	struct agent_link *link;
	struct execs *execs;
	struct loop_watch watch;
	struct loop_timer timer;
	uint32_t watching;

	pthread_mutex_t lock; /* the rest */
	pthread_cond_t changed;
	bool hello, renewed, broken;
	bool quiesced, quiesce_ended;
	struct agent_link_renewed renew;
	struct err err;
};

static void agent_poke_later(void *ctx);

/* Follows the link's wish for events and its nearest deadline. */
static void agent_rearm(struct agent *a)
{
	uint32_t want = agent_link_events(a->link);
	int64_t at = agent_link_deadline(a->link);

	if (agent_link_fd(a->link) < 0) {
		loop_unwatch(a->loop, &a->watch);
	} else if (want != a->watching) {
		a->watching = want;
		loop_rewatch(a->loop, &a->watch, want);
	}
	if (at == INT64_MAX)
		loop_disarm(a->loop, &a->timer);
	else
		loop_arm(a->loop, &a->timer, at - loop_now_ns(),
			 agent_poke_later, a);
}

static void agent_hello(void *ctx, int ret, const struct agent_msg *m,
			const struct err *e)
{
	struct agent *a = ctx;

	if (ret == 0)
		execs_hello(a->execs, &m->hello);
	pthread_mutex_lock(&a->lock);
	if (ret == 0) {
		a->hello = true;
	} else if (ret != -ECONNRESET) {
		a->broken = true;
		a->err = *e;
	}
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void agent_poke(struct agent *a)
{
	struct err e;

	if (!a)
		return;
	agent_link_tick(a->link);
	if (execs_wants_reset(a->execs) && agent_link_fd(a->link) >= 0 &&
	    agent_link_up(a->link))
		agent_link_reset(a->link, false, RELEASE_TIMEOUT_MS,
				 agent_hello, a, &e);
	agent_link_ready(a->link, 0);
	agent_rearm(a);
}

static void agent_poke_later(void *ctx)
{
	agent_poke(ctx);
}

static void agent_readable(void *ctx, uint32_t events)
{
	struct agent *a = ctx;

	agent_link_ready(a->link, events);
	agent_poke(a);
}

static void agent_on_out(void *ctx, const struct agent_out *o)
{
	execs_out(((struct agent *)ctx)->execs, o);
}

static void agent_on_exited(void *ctx, const struct agent_exited *x)
{
	execs_exited(((struct agent *)ctx)->execs, x);
}

static void agent_on_stdin_ack(void *ctx, const struct agent_stdin_ack *k)
{
	execs_stdin_ack(((struct agent *)ctx)->execs, k);
}

static void agent_on_broken(void *ctx, const struct err *e)
{
	struct agent *a = ctx;

	log_warn("event=agent_broken why=\"%s\"", e->msg);
	pthread_mutex_lock(&a->lock);
	a->broken = true;
	a->err = *e;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

static const struct agent_link_ops agent_ops = {
	.out = agent_on_out,
	.exited = agent_on_exited,
	.stdin_ack = agent_on_stdin_ack,
	.broken = agent_on_broken,
};

struct agent_new_call {
	struct agent *a;
	int fd;
};

static void agent_new_on_loop(void *ctx)
{
	struct agent_new_call *c = ctx;
	struct agent *a = c->a;

	a->link = agent_link_new(c->fd, &agent_ops, a);
	a->watching = agent_link_events(a->link);
	loop_watch(a->loop, &a->watch, c->fd, a->watching, agent_readable, a);
	execs_set_agent(a->execs, a->link, agent_poke_later, a);
}

struct agent *agent_new(struct loop *l, int fd, struct execs *x)
{
	struct agent *a = base_alloc(sizeof(*a));
	struct agent_new_call c = { .a = a, .fd = fd };
	pthread_condattr_t attr;

	a->loop = l;
	a->execs = x;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->changed, &attr);
	pthread_condattr_destroy(&attr);
	loop_call(l, agent_new_on_loop, &c);
	return a;
}

struct agent_link *agent_get_link(struct agent *a)
{
	return a ? a->link : NULL;
}

/* --- start ------------------------------------------------------------------ */

static void agent_ignore(void *ctx UNUSED, int ret UNUSED,
			 const struct agent_msg *m UNUSED,
			 const struct err *e UNUSED)
{
}

struct prepare_call {
	struct agent *a;
	const struct wire_start *start;
	const char *session;
	bool clean;
	int ret;
	struct err *e;
};

static void agent_on_renewed(void *ctx, const struct agent_link_renewed *r)
{
	struct agent *a = ctx;

	pthread_mutex_lock(&a->lock);
	a->renew = *r;
	a->renewed = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

static void agent_prepare_on_loop(void *ctx)
{
	struct prepare_call *c = ctx;
	const struct wire_start *s = c->start;
	struct agent_link_renew renew = { 0 };
	struct timespec now;

	c->ret = agent_link_reset(c->a->link, c->clean, AGENT_UP_MS,
				  agent_hello, c->a, c->e);
	if (c->ret == 0 && !(s->flags & WIRE_START_BOOT)) {
		clock_gettime(CLOCK_REALTIME, &now);
		renew.wall_ns = now.tv_sec * 1000000000ll + now.tv_nsec;
		base_random(renew.seed, sizeof(renew.seed));
		renew.generation = (struct agent_generation){
			.number = s->generation,
			.flags = s->flags & WIRE_START_FORK ? AGENT_GENERATION_FORK
							    : 0,
			.session = c->session,
			.hostname = s->hostname,
			.machine_id = s->machine_id,
		};
		c->ret = agent_link_renew(c->a->link, &renew, AGENT_UP_MS,
					  agent_on_renewed, c->a, c->e);
		base_wipe(renew.seed, sizeof(renew.seed));
	}
	agent_poke(c->a);
}

int agent_prepare(struct agent *a, const struct wire_start *start,
		  const char *session, bool clean, struct err *e)
{
	struct prepare_call c = {
		.a = a, .start = start, .session = session, .clean = clean, .e = e
	};

	a->renewed = start->flags & WIRE_START_BOOT;
	loop_call(a->loop, agent_prepare_on_loop, &c);
	return c.ret;
}

static struct timespec agent_until(int timeout_ms)
{
	int64_t at = loop_now_ns() + timeout_ms * 1000000ll;

	return (struct timespec){ .tv_sec = at / 1000000000,
				  .tv_nsec = at % 1000000000 };
}

static uint32_t agent_renewed_flags(uint32_t r)
{
	return (r & AGENT_RENEWED_CLOCK ? WIRE_RENEWED_CLOCK : 0) |
	       (r & AGENT_RENEWED_RNG ? WIRE_RENEWED_RNG : 0) |
	       (r & AGENT_RENEWED_MACHINE_ID ? WIRE_RENEWED_IDENTITY : 0) |
	       (r & AGENT_RENEWED_HOOKS ? WIRE_RENEWED_HOOKS : 0);
}

int agent_wait_up(struct agent *a, int timeout_ms, struct wire_started *ret,
		  struct err *e)
{
	struct timespec until = agent_until(timeout_ms);
	int r = 0;

	pthread_mutex_lock(&a->lock);
	while (!a->broken && !(a->hello && a->renewed) && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&a->changed, &a->lock, &until);
	if (a->hello && a->renewed && a->renew.ret == 0) {
		ret->renewed = agent_renewed_flags(a->renew.renewed);
		ret->clock_jump_ns = a->renew.clock_jump_ns;
		ret->renew_us = a->renew.us;
		r = 0;
	} else if (a->hello && a->renewed) {
		r = err_set(e, a->renew.ret, ERR_INTERNAL,
			    "guest did not renew itself: %s", a->renew.err.msg);
	} else if (a->broken) {
		r = err_set(e, -EPIPE, ERR_INTERNAL, "guest agent: %s",
			    a->err.msg);
	} else {
		r = err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
			    "guest agent silent for %d ms", timeout_ms);
	}
	pthread_mutex_unlock(&a->lock);
	return r;
}

/* --- captures ----------------------------------------------------------------- */

static void agent_on_quiesced(void *ctx, int ret,
			      const struct agent_msg *m UNUSED,
			      const struct err *e UNUSED)
{
	struct agent *a = ctx;

	pthread_mutex_lock(&a->lock);
	a->quiesced = ret == 0;
	a->quiesce_ended = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

struct quiesce_call {
	struct agent *a;
	int deadline_ms, ret;
};

static void agent_quiesce_on_loop(void *ctx)
{
	struct quiesce_call *c = ctx;
	struct err e;

	execs_sync(c->a->execs);
	c->ret = agent_link_quiesce(c->a->link, AGENT_QUIESCE_HOLD,
				    c->deadline_ms, HOLD_MS, c->deadline_ms,
				    agent_on_quiesced, c->a, &e);
	agent_poke(c->a);
}

int agent_quiesce(struct agent *a, int deadline_ms)
{
	struct quiesce_call c = { .a = a, .deadline_ms = deadline_ms };
	struct timespec until = agent_until(deadline_ms + 100);
	int r = 0;

	a->quiesce_ended = false;
	loop_call(a->loop, agent_quiesce_on_loop, &c);
	if (c.ret < 0)
		return c.ret;
	pthread_mutex_lock(&a->lock);
	while (!a->quiesce_ended && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&a->changed, &a->lock, &until);
	r = a->quiesce_ended && a->quiesced ? 0 : -ETIMEDOUT;
	pthread_mutex_unlock(&a->lock);
	return r;
}

static void agent_release_on_loop(void *ctx)
{
	struct agent *a = ctx;
	struct timespec now;
	struct err e;

	clock_gettime(CLOCK_REALTIME, &now);
	agent_link_settime(a->link, now.tv_sec * 1000000000ll + now.tv_nsec, 0,
			   RELEASE_TIMEOUT_MS, agent_ignore, NULL, &e);
	agent_link_unquiesce(a->link, RELEASE_TIMEOUT_MS, agent_ignore, NULL, &e);
	agent_poke(a);
}

void agent_release(struct agent *a)
{
	loop_post(a->loop, agent_release_on_loop, a);
}
