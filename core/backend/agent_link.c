/*
 * agent_link: the host's end of the agent's channel.
 *
 * What is to be sent is appended to one queue of encoded frames and written
 * as the socket takes it. What comes is decoded by agent_proto and goes to
 * the caller's callbacks, or, if it is a reply, to the call with its id. Ids
 * count up from a random number, so replies meant for an earlier link (before
 * a restore) are told apart: they match no call and are dropped, as are
 * replies that come after their deadline.
 *
 * Invariants:
 *  1. A call is in `calls` from agent_link_call() until its one answer; its
 *     slot is free before its callback runs.
 *  2. Nothing but the HELLO with our nonce is accepted after a reset (the
 *     decoder sees to it), so `up` means that the agent answered this reset.
 *  3. Once broken: fd is -1, no call is left, nothing is sent any more.
 *  4. The queue is bounded by AGENT_LINK_QUEUE_MAX, what one agent_link_ready()
 *     reads and writes by TURN: a chatty agent can't hold up the loop.
 *
 * A crash of this process loses the queue and the calls. The agent keeps what
 * was not acknowledged; the next link resets the stream and finds it there.
 */
#include "core/backend/agent_link.h"

#include "core/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define TURN (256u << 10)

struct call {
	uint64_t id; /* 0: free */
	enum agent_type type;
	int64_t deadline;
	agent_link_fn fn;
	void *ctx;
};

struct renewal {
	bool active;
	unsigned waiting; /* orders without an answer yet */
	int64_t since;
	struct agent_link_renewed r;
	agent_link_renewed_fn fn;
	void *ctx;
};

struct agent_link {
	int fd;
	const struct agent_link_ops *ops;
	void *ctx;
	bool up, in_callback, resetting;
	uint64_t next_id;
	struct agent_dec dec;
	struct buf out;
	size_t out_at;
	struct call calls[AGENT_LINK_CALLS_MAX];
	unsigned nr_calls;
	struct renewal renewal;
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

struct agent_link *agent_link_new(int fd, const struct agent_link_ops *ops,
				  void *ctx)
{
	struct agent_link *l = base_alloc(sizeof(*l));
	int flags = fcntl(fd, F_GETFL);

	PRE(flags >= 0);
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	l->fd = fd;
	l->ops = ops;
	l->ctx = ctx;
	base_random(&l->next_id, sizeof(l->next_id));
	l->next_id |= 1; /* never 0 for the next 2^63 or so */
	agent_dec_init(&l->dec, AGENT_HOST);
	return l;
}

/* --- calls ---------------------------------------------------------------- */

static void call_answer(struct agent_link *l, struct call *c, int ret,
			const struct agent_msg *m, const struct err *e)
{
	struct call done = *c;

	*c = (struct call){ 0 };
	l->nr_calls--;
	l->in_callback = true;
	done.fn(done.ctx, ret, m, e);
	l->in_callback = false;
}

/* Ends every call that is open now; those made meanwhile are left alone. */
static void calls_end(struct agent_link *l, int ret, const struct err *e)
{
	uint64_t last = l->next_id;

	for (unsigned i = 0; i < AGENT_LINK_CALLS_MAX; i++) {
		struct call *c = &l->calls[i];

		if (c->id && (int64_t)(c->id - last) < 0)
			call_answer(l, c, ret, NULL, e);
	}
}

static struct call *call_find(struct agent_link *l, uint64_t id)
{
	for (unsigned i = 0; i < AGENT_LINK_CALLS_MAX; i++)
		if (l->calls[i].id == id)
			return &l->calls[i];
	return NULL;
}

static uint64_t fresh_id(struct agent_link *l)
{
	if (!l->next_id)
		l->next_id++;
	return l->next_id++;
}

static void link_break(struct agent_link *l, const struct err *e)
{
	close(l->fd);
	l->fd = -1;
	l->up = false;
	buf_done(&l->out);
	l->out_at = 0;
	calls_end(l, -EPIPE, e);
	if (!l->ops->broken)
		return;
	l->in_callback = true;
	l->ops->broken(l->ctx, e);
	l->in_callback = false;
}

void agent_link_free(struct agent_link *l)
{
	struct err e;

	if (!l)
		return;
	PRE(!l->in_callback);
	err_set(&e, -EPIPE, ERR_GONE, "the link to the agent was closed");
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	calls_end(l, -EPIPE, &e);
	buf_done(&l->out);
	agent_dec_done(&l->dec);
	free(l);
}

int agent_link_fd(const struct agent_link *l)
{
	return l->fd;
}

bool agent_link_up(const struct agent_link *l)
{
	return l->up;
}

size_t agent_link_queued(const struct agent_link *l)
{
	return l->out.len - l->out_at;
}

uint32_t agent_link_events(const struct agent_link *l)
{
	return EPOLLIN | (agent_link_queued(l) ? (uint32_t)EPOLLOUT : 0);
}

/* --- sending -------------------------------------------------------------- */

/* One frame behind the queue; its id is in `m` already. */
static int queue(struct agent_link *l, const struct agent_msg *m, struct err *e)
{
	const char *name = agent_type_name(m->type);
	int r;

	if (l->fd < 0)
		return err_set(e, -EPIPE, ERR_GONE,
			       "%s: the link to the agent is broken", name);
	if (l->resetting ||
	    agent_link_queued(l) + AGENT_FRAME_MAX > AGENT_LINK_QUEUE_MAX)
		return err_set(e, -EAGAIN, ERR_BUSY,
			       "%s: the agent's queue is full; retry when it "
			       "has read what waits",
			       name);
	if (l->out_at && l->out_at == l->out.len) {
		buf_reset(&l->out);
		l->out_at = 0;
	}
	r = agent_msg_encode(&l->out, m);
	if (r == -E2BIG)
		return err_set(e, r, ERR_TOO_LARGE,
			       "%s: over %u bytes of arguments", name,
			       AGENT_BODY_MAX);
	if (r)
		return err_set(e, r, ERR_INVALID,
			       "%s: a name, path, number or piece of data is "
			       "out of its bounds",
			       name);
	return 0;
}

int agent_link_call(struct agent_link *l, const struct agent_msg *m,
		    int timeout_ms, agent_link_fn fn, void *ctx, struct err *e)
{
	struct agent_msg copy = *m;
	struct call *c = call_find(l, 0);
	int r;

	PRE(IMPLIES(fn, timeout_ms > 0));
	if (fn && !c)
		return err_set(e, -EAGAIN, ERR_BUSY,
			       "%s: %u requests wait for the agent's answer",
			       agent_type_name(m->type), AGENT_LINK_CALLS_MAX);
	copy.id = fresh_id(l);
	r = queue(l, &copy, e);
	if (r || !fn)
		return r;
	PRE(c);
	*c = (struct call){ copy.id, m->type, now_ns() + timeout_ms * NS_PER_MS,
			    fn, ctx };
	l->nr_calls++;
	return 0;
}

int agent_link_reset(struct agent_link *l, bool clean, int timeout_ms,
		     agent_link_fn fn, void *ctx, struct err *e)
{
	struct agent_msg m = { .type = AGENT_RESET,
			       .reset = { AGENT_VERSION, AGENT_VERSION } };
	struct err why;

	PRE(!l->in_callback);
	if (l->fd < 0)
		return err_set(e, -EPIPE, ERR_GONE,
			       "the link to the agent is broken");
	l->up = false;
	buf_reset(&l->out);
	l->out_at = 0;
	err_set(&why, -ECONNRESET, ERR_GONE, "the agent's stream was reset");
	l->resetting = true;
	calls_end(l, -ECONNRESET, &why);
	l->resetting = false;
	if (!clean) {
		memset(buf_reserve(&l->out, AGENT_PAD_LEN), 0, AGENT_PAD_LEN);
		l->out.len += AGENT_PAD_LEN;
	}
	agent_dec_resync(&l->dec, l->next_id ? l->next_id : 1);
	return agent_link_call(l, &m, timeout_ms, fn, ctx, e);
}

/* --- what comes ------------------------------------------------------------ */

static int word_of(uint32_t error)
{
	switch (error) {
	case ENOENT:
	case ESRCH:
		return ERR_NOT_FOUND;
	case EACCES:
	case EPERM:
		return ERR_FORBIDDEN;
	case EEXIST:
	case EBUSY:
		return ERR_CONFLICT;
	case ENOSPC:
	case EDQUOT:
		return ERR_NO_SPACE;
	case EAGAIN:
		return ERR_LIMIT;
	default:
		return ERR_INVALID;
	}
}

/* Guest's text, for people: what could move a terminal is blanked. */
static void clean_text(char *ret, size_t len, const char *s)
{
	size_t i = 0;

	for (; s[i] && i + 1 < len; i++)
		ret[i] = s[i] >= ' ' && s[i] < 0x7f ? s[i] : '?';
	ret[i] = '\0';
}

static bool on_reply(struct agent_link *l, const struct agent_msg *m)
{
	struct call *c = m->id ? call_find(l, m->id) : NULL;
	char what[200];
	struct err e;

	if (!c)
		return true; /* too late, or of an earlier link */
	if (m->type == AGENT_FAILED) {
		clean_text(what, sizeof(what), m->failed.what);
		err_set(&e, -1, (enum err_code)word_of(m->failed.error),
			"in the guest: %s", what);
		call_answer(l, c, -(int)m->failed.error, NULL, &e);
		return true;
	}
	if (m->type != (c->type | AGENT_REPLY))
		return false;
	if (m->type == AGENT_HELLO && m->hello.version != AGENT_VERSION)
		return false; /* not what RESET has offered */
	if (m->type == AGENT_HELLO)
		l->up = true;
	call_answer(l, c, 0, m, NULL);
	return true;
}

static void note(struct agent_link *l, const struct agent_msg *m)
{
	l->in_callback = true;
	if (m->type == AGENT_OUT)
		l->ops->out(l->ctx, &m->out);
	else if (m->type == AGENT_EXITED)
		l->ops->exited(l->ctx, &m->exited);
	else if (m->type == AGENT_STDIN_ACK)
		l->ops->stdin_ack(l->ctx, &m->stdin_ack);
	else
		NEVER("the decoder knows no other note");
	l->in_callback = false;
}

/* False once the link is broken. */
static bool deliver(struct agent_link *l)
{
	struct agent_msg m;
	struct err e;
	int r;

	while ((r = agent_dec_next(&l->dec, &m)) > 0) {
		bool good = true;

		if (m.type & AGENT_REPLY)
			good = on_reply(l, &m);
		else
			note(l, &m);
		if (!good) {
			r = -EPROTO;
			break;
		}
	}
	if (!r)
		return true;
	err_set(&e, -EPROTO, ERR_CORRUPT,
		"the guest's agent broke its protocol; the session can be "
		"resumed from its last point");
	link_break(l, &e);
	return false;
}

static bool read_some(struct agent_link *l)
{
	size_t done = 0;
	struct err e;

	while (done < TURN) {
		size_t room;
		void *p = agent_dec_room(&l->dec, &room);
		ssize_t n = recv(l->fd, p, room, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n <= 0) {
			err_set(&e, -EPIPE, ERR_GONE,
				"the machine closed the agent's channel%s%s",
				n ? ": " : "", n ? strerror(errno) : "");
			link_break(l, &e);
			return false;
		}
		agent_dec_fed(&l->dec, (size_t)n);
		done += (size_t)n;
		if (!deliver(l))
			return false;
	}
	return true;
}

static void write_some(struct agent_link *l)
{
	size_t done = 0;

	while (done < TURN && agent_link_queued(l)) {
		ssize_t n = send(l->fd, l->out.p + l->out_at,
				 MIN(agent_link_queued(l), TURN - done),
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* full; an end is seen by reading */
		l->out_at += (size_t)n;
		done += (size_t)n;
	}
	/* keep the queue's memory from growing by what was sent already */
	if (l->out_at > AGENT_LINK_QUEUE_MAX / 2) {
		l->out.len -= l->out_at;
		memmove(l->out.p, l->out.p + l->out_at, l->out.len);
		l->out_at = 0;
	}
}

void agent_link_ready(struct agent_link *l, uint32_t revents)
{
	PRE(!l->in_callback);
	if (l->fd >= 0 && revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
		read_some(l);
	if (l->fd >= 0)
		write_some(l);
}

int64_t agent_link_deadline(const struct agent_link *l)
{
	int64_t first = INT64_MAX;

	for (unsigned i = 0; i < AGENT_LINK_CALLS_MAX && l->nr_calls; i++)
		if (l->calls[i].id)
			first = MIN(first, l->calls[i].deadline);
	return first;
}

void agent_link_tick(struct agent_link *l)
{
	int64_t now = now_ns();
	struct err e;

	PRE(!l->in_callback);
	for (unsigned i = 0; i < AGENT_LINK_CALLS_MAX; i++) {
		struct call *c = &l->calls[i];

		if (!c->id || c->deadline > now)
			continue;
		err_set(&e, -ETIMEDOUT, ERR_TIMEOUT,
			"%s: the guest's agent did not answer in time",
			agent_type_name(c->type));
		call_answer(l, c, -ETIMEDOUT, NULL, &e);
	}
}

/* --- shaped requests -------------------------------------------------------- */

static uint32_t list_make(struct buf *raw, const char *const *list,
			  struct agent_strs *ret)
{
	uint32_t nr = 0;

	for (; list && list[nr] && nr <= AGENT_ARGS_MAX &&
	       raw->len <= AGENT_BODY_MAX;
	     nr++)
		agent_strs_add(raw, list[nr]);
	*ret = (struct agent_strs){ nr, { raw->p, (uint32_t)raw->len } };
	return nr;
}

int agent_link_exec(struct agent_link *l, const char *tag, uint32_t flags,
		    const char *user, const char *cwd, const char *const *argv,
		    const char *const *env, int timeout_ms, agent_link_fn fn,
		    void *ctx, struct err *e)
{
	struct buf args SCOPED(buf_done) = { 0 };
	struct buf vars SCOPED(buf_done) = { 0 };
	struct agent_msg m = { .type = AGENT_EXEC_START,
			       .exec_start = { .tag = tag,
					       .flags = flags,
					       .user = user,
					       .cwd = cwd } };

	list_make(&args, argv, &m.exec_start.argv);
	list_make(&vars, env, &m.exec_start.env);
	return agent_link_call(l, &m, timeout_ms, fn, ctx, e);
}

int agent_link_stdin(struct agent_link *l, const char *tag, uint64_t offset,
		     const void *p, size_t len, bool eof, struct err *e)
{
	struct agent_msg m = { .type = AGENT_STDIN,
			       .stdin_data = { .tag = tag,
					       .offset = offset,
					       .eof = eof,
					       .data = { p, (uint32_t)len } } };

	PRE(len <= AGENT_DATA_MAX);
	return agent_link_call(l, &m, 0, NULL, NULL, e);
}

int agent_link_out_ack(struct agent_link *l, const char *tag,
		       enum agent_stream stream, uint64_t offset, struct err *e)
{
	struct agent_msg m = { .type = AGENT_OUT_ACK,
			       .out_ack = { .tag = tag,
					    .stream = (uint8_t)stream,
					    .offset = offset } };

	return agent_link_call(l, &m, 0, NULL, NULL, e);
}

int agent_link_exit_ack(struct agent_link *l, const char *tag, struct err *e)
{
	struct agent_msg m = { .type = AGENT_EXIT_ACK, .exit_ack = { tag } };

	return agent_link_call(l, &m, 0, NULL, NULL, e);
}

int agent_link_signal(struct agent_link *l, const char *tag, int signal,
		      int timeout_ms, agent_link_fn fn, void *ctx, struct err *e)
{
	struct agent_msg m = { .type = AGENT_SIGNAL,
			       .signal = { .tag = tag,
					   .signal = (uint32_t)signal } };

	return agent_link_call(l, &m, timeout_ms, fn, ctx, e);
}

int agent_link_quiesce(struct agent_link *l, uint32_t flags, int deadline_ms,
		       int hold_ms, int timeout_ms, agent_link_fn fn, void *ctx,
		       struct err *e)
{
	struct agent_msg m = { .type = AGENT_QUIESCE,
			       .quiesce = { flags, (uint32_t)deadline_ms,
					    (uint32_t)hold_ms } };

	return agent_link_call(l, &m, timeout_ms, fn, ctx, e);
}

int agent_link_unquiesce(struct agent_link *l, int timeout_ms, agent_link_fn fn,
			 void *ctx, struct err *e)
{
	struct agent_msg m = { .type = AGENT_UNQUIESCE };

	return agent_link_call(l, &m, timeout_ms, fn, ctx, e);
}

int agent_link_settime(struct agent_link *l, int64_t wall_ns, uint32_t flags,
		       int timeout_ms, agent_link_fn fn, void *ctx, struct err *e)
{
	struct agent_msg m = { .type = AGENT_SETTIME,
			       .settime = { (uint64_t)wall_ns, flags } };

	return agent_link_call(l, &m, timeout_ms, fn, ctx, e);
}

/* --- renewal ----------------------------------------------------------------- */

/* One of the orders has ended. */
static void renewed_one(struct agent_link *l, int ret, const struct err *e)
{
	struct renewal *w = &l->renewal;

	if (ret && !w->r.ret) {
		w->r.ret = ret;
		w->r.err = *e;
	}
	if (--w->waiting || !w->active)
		return;
	w->active = false;
	w->r.us = (now_ns() - w->since) / 1000;
	w->fn(w->ctx, &w->r);
}

static void on_settime(void *ctx, int ret, const struct agent_msg *m,
		       const struct err *e)
{
	struct agent_link *l = ctx;
	struct agent_link_renewed *r = &l->renewal.r;

	if (m) {
		r->renewed |= AGENT_RENEWED_CLOCK;
		r->clock_jump_ns = m->settime_done.jump_ns;
		r->clock_stepped = m->settime_done.stepped;
	}
	renewed_one(l, ret, e);
}

static void on_reseed(void *ctx, int ret, const struct agent_msg *m,
		      const struct err *e)
{
	struct agent_link *l = ctx;

	if (m) {
		l->renewal.r.renewed |= AGENT_RENEWED_RNG;
		l->renewal.r.seed_bits = m->reseed_done.bits;
	}
	renewed_one(l, ret, e);
}

static void on_generation(void *ctx, int ret, const struct agent_msg *m,
			  const struct err *e)
{
	static const struct {
		uint32_t done, renewed;
	} map[] = { { AGENT_DONE_FILE, AGENT_RENEWED_GENERATION },
		    { AGENT_DONE_HOSTNAME, AGENT_RENEWED_HOSTNAME },
		    { AGENT_DONE_MACHINE_ID, AGENT_RENEWED_MACHINE_ID },
		    { AGENT_DONE_HOOKS, AGENT_RENEWED_HOOKS } };
	struct agent_link *l = ctx;

	for (size_t i = 0; m && i < ARRAY_LEN(map); i++)
		if (m->generation_done.done & map[i].done)
			l->renewal.r.renewed |= map[i].renewed;
	renewed_one(l, ret, e);
}

/* The last order: user processes get on with the new clock and numbers. */
static void on_unquiesce(void *ctx, int ret, const struct agent_msg *m,
			 const struct err *e)
{
	(void)m;
	renewed_one(ctx, ret, e);
}

int agent_link_renew(struct agent_link *l, const struct agent_link_renew *r,
		     int timeout_ms, agent_link_renewed_fn fn, void *ctx,
		     struct err *e)
{
	struct agent_msg seed = { .type = AGENT_RESEED,
				  .reseed = { { r->seed, sizeof(r->seed) } } };
	struct agent_msg generation = { .type = AGENT_GENERATION,
					.generation = r->generation };
	struct renewal *w = &l->renewal;
	int n;

	if (w->active)
		return err_set(e, -EBUSY, ERR_BUSY,
			       "a renewal of this guest is under way");
	*w = (struct renewal){
		.waiting = 4, .since = now_ns(), .fn = fn, .ctx = ctx
	};
	n = agent_link_settime(l, r->wall_ns, AGENT_TIME_STEP, timeout_ms,
			       on_settime, l, e);
	if (n)
		return n;
	w->active = true;
	/* from here on a failure is an answer: others are on their way */
	n = agent_link_call(l, &seed, timeout_ms, on_reseed, l, e);
	if (n)
		renewed_one(l, n, e);
	n = agent_link_call(l, &generation, timeout_ms, on_generation, l, e);
	if (n)
		renewed_one(l, n, e);
	n = agent_link_unquiesce(l, timeout_ms, on_unquiesce, l, e);
	if (n)
		renewed_one(l, n, e);
	return 0;
}
