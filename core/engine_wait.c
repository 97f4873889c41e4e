/*
 * engine_wait: for threads that wait for the engine: a reply, an operation's
 * end, the next event. Waits are on the monotonic clock and always bounded.
 *
 * A call and its reply may part: whoever comes last frees the call.
 */
#include "core/engine_internal.h"

#define BEGUN_NS (10 * NS_PER_S) /* a batch that has begun is waited for */

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* Under the lock; false when the time is over. */
static bool wait_news(struct engine *en, int64_t until_ns)
{
	struct timespec t = { until_ns / NS_PER_S, until_ns % NS_PER_S };

	return !pthread_cond_timedwait(&en->news, &en->lock, &t);
}

struct call_ctx {
	struct engine *en;
	struct call *call;
};

static void call_done(void *ctx, const struct reply *r)
{
	struct call_ctx *k = ctx;
	bool abandoned;

	pthread_mutex_lock(&k->en->lock);
	abandoned = k->call->abandoned;
	k->call->reply = *r;
	k->call->finished = true;
	pthread_cond_broadcast(&k->en->news);
	pthread_mutex_unlock(&k->en->lock);
	if (abandoned)
		free(k->call);
	free(k);
}

static bool unlink_from(struct command **list, struct command **last,
			struct command *c)
{
	struct command *before = NULL;

	for (struct command **at = list; *at; at = &(*at)->next) {
		if (*at == c) {
			*at = c->next;
			if (*last == c)
				*last = before;
			return true;
		}
		before = *at;
	}
	return false;
}

/* Takes back a command that no batch has taken yet. */
static bool take_back(struct engine *en, struct command *c)
{
	return unlink_from(&en->first, &en->last, c) ||
	       unlink_from(&en->held, &en->held_last, c);
}

/* Under the lock. True: the reply is there. */
static bool await_reply(struct engine *en, struct call *call, struct command *c,
			int64_t until_ns, bool *ret_back)
{
	while (!call->finished && wait_news(en, until_ns))
		;
	if (call->finished)
		return true;
	*ret_back = take_back(en, c);
	if (*ret_back)
		return false;
	until_ns = now_ns() + BEGUN_NS;
	while (!call->finished && wait_news(en, until_ns))
		;
	return call->finished;
}

static int too_late(struct engine *en, struct command *c, bool back,
		    struct call_ctx *k, struct err *e)
{
	if (!back)
		return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
			       "no answer in time: the request has begun and "
			       "may still come true; look before you repeat "
			       "it");
	err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
		"%s %s: not begun in time, because the session was busy; "
		"nothing was changed, try again",
		command_word(c->kind), c->session);
	c->done = NULL;
	engine_answer_err(en, c, -ETIMEDOUT, e);
	free(k->call);
	free(k);
	return -ETIMEDOUT;
}

int engine_call(struct engine *en, struct command *c, int64_t timeout_ms,
		struct reply *ret, struct err *e)
{
	int64_t until = now_ns() + MAX(timeout_ms, 0) * NS_PER_MS;
	struct call_ctx *k = base_alloc(sizeof(*k));
	struct call *call = base_alloc(sizeof(*call));
	bool finished, back = false;

	PRE(!c->done);
	k->en = en;
	k->call = call;
	c->done = call_done;
	c->done_ctx = k;
	engine_submit(en, c);
	pthread_mutex_lock(&en->lock);
	finished = await_reply(en, call, c, until, &back);
	if (!finished && !back)
		call->abandoned = true;
	pthread_mutex_unlock(&en->lock);
	if (!finished)
		return too_late(en, c, back, k, e);
	*ret = call->reply;
	free(call);
	if (ret->rc)
		*e = ret->err;
	return ret->rc;
}

uint64_t engine_wait_seq(struct engine *en, uint64_t after, int64_t timeout_ms)
{
	int64_t until = now_ns() + MAX(timeout_ms, 0) * NS_PER_MS;
	uint64_t seq;

	pthread_mutex_lock(&en->lock);
	while (en->last_seq <= after && !en->stop && wait_news(en, until))
		;
	seq = en->last_seq;
	pthread_mutex_unlock(&en->lock);
	return seq;
}

static int read_operation(struct engine *en, const char *id,
			  struct operation *ret, struct err *e)
{
	const struct view_port *v = en->conf.views;
	struct reader r = { .ops = v->ops };
	int rc = v->open(v->ctx, &r.view, e);

	if (rc)
		return rc;
	rc = id_valid(id) ? rows_operation(&r, id, ret, e) : -ENOENT;
	v->close(r.view);
	if (rc == -ENOENT)
		return err_set(e, rc, ERR_NOT_FOUND, "no operation %s", id);
	return rc;
}

int engine_wait_operation(struct engine *en, const char *id, int64_t timeout_ms,
			  struct operation *ret, struct err *e)
{
	int64_t until = now_ns() + MAX(timeout_ms, 0) * NS_PER_MS;

	PRE(en->conf.views);
	for (;;) {
		uint64_t seen = engine_wait_seq(en, 0, 0);
		int rc = read_operation(en, id, ret, e);
		int64_t left = until - now_ns();

		if (rc || ret->state != OPERATION_OPEN || left <= 0)
			return rc;
		operation_done(ret);
		engine_wait_seq(en, seen, left / NS_PER_MS + 1);
	}
}
