/*
 * link: see link.h. Questions to the daemon wait in a list; each is answered
 * once. When the daemon goes, those of the loop's thread end with NULL, those
 * of other threads stay and are asked again: the daemon answers a repeated
 * question again, so nothing is lost and at worst an unused pack is left.
 *
 * Invariants: 1. one connection at a time; a new one replaces it. 2. Only the
 * daemon's uid (SO_PEERCRED) is listened to. 3. An answer goes to the
 * connection that asked or nowhere.
 */
#include "tools/vm/link.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/log.h"

struct question {
	struct question *next;
	enum wire_type type;
	uint64_t call;
	uint8_t fixed[512];
	size_t len;
	link_fn fn; /* asked by the loop's thread */
	void *ctx;
	/* asked by another thread, which waits and owns it */
	bool waits, done;
	int status;
	uint8_t body[128];
	size_t body_len;
	struct err err;
	int fds[WIRE_FDS_MAX], nr_fds;
};

struct link {
	struct loop *loop;
	int listen_fd, fd;
	uid_t owner;
	struct loop_watch listen_watch, watch;
	const struct link_ops *ops;
	void *ctx;
	bool up;
	uint64_t connection, calls;
	pthread_mutex_t lock; /* fd, up, connection, questions */
	pthread_cond_t answered;
	struct question *questions;
	struct wire_buf buf;
};

static void link_drop(struct link *k);

bool link_is_up(const struct link *k)
{
	return k->up;
}

struct link_from link_from(const struct link *k, const struct wire_msg *m)
{
	return (struct link_from){ .call = m->call,
				   .connection = k->connection,
				   .type = m->type };
}

bool link_is_from(const struct link *k, struct link_from f)
{
	return k->fd >= 0 && k->connection == f.connection;
}

static void link_send_reply(struct link *k, struct link_from to, int status,
			    const void *fixed, size_t len, const void *tail,
			    size_t tail_len, const int *fds, int nr_fds)
{
	int r = 0;

	pthread_mutex_lock(&k->lock);
	if (k->fd >= 0 && k->connection == to.connection)
		r = wire_send(k->fd, to.type, to.call, true, status, fixed, len,
			      tail, tail_len, fds, nr_fds);
	pthread_mutex_unlock(&k->lock);
	if (r < 0)
		log_warn("event=reply_lost type=%s error=%s",
			 wire_type_name(to.type), strerror(-r));
}

void link_reply(struct link *k, struct link_from to, const void *fixed,
		size_t len, const void *tail, size_t tail_len, const int *fds,
		int nr_fds)
{
	link_send_reply(k, to, 0, fixed, len, tail, tail_len, fds, nr_fds);
}

void link_reply_err(struct link *k, struct link_from to, int status,
		    const struct err *e)
{
	PRE(status < 0);
	link_send_reply(k, to, status, e->msg, strnlen(e->msg, sizeof(e->msg)),
			NULL, 0, NULL, 0);
}

void link_greet(struct link *k, struct link_from to, const void *fixed,
		size_t len, const void *tail, size_t tail_len)
{
	struct question *q;

	link_send_reply(k, to, 0, fixed, len, tail, tail_len, NULL, 0);
	if (k->connection != to.connection || k->fd < 0 || k->up)
		return;
	pthread_mutex_lock(&k->lock);
	k->up = true;
	for (q = k->questions; q; q = q->next)
		wire_send(k->fd, q->type, q->call, false, 0, q->fixed, q->len,
			  NULL, 0, NULL, 0);
	pthread_mutex_unlock(&k->lock);
	k->ops->up(k->ctx);
}

void link_note(struct link *k, enum wire_type type, const void *fixed, size_t len)
{
	pthread_mutex_lock(&k->lock);
	if (k->up)
		wire_send(k->fd, type, 0, false, 0, fixed, len, NULL, 0, NULL, 0);
	pthread_mutex_unlock(&k->lock);
}

/* With the lock held. */
static void link_put_question(struct link *k, struct question *q,
			      enum wire_type type, const void *fixed, size_t len)
{
	PRE(len <= sizeof(q->fixed));
	q->type = type;
	q->len = len;
	if (len)
		memcpy(q->fixed, fixed, len);
	q->call = ++k->calls;
	q->next = k->questions;
	k->questions = q;
	if (k->up)
		wire_send(k->fd, type, q->call, false, 0, fixed, len, NULL, 0,
			  NULL, 0);
}

void link_ask_later(struct link *k, enum wire_type type, const void *fixed,
		    size_t len, link_fn fn, void *ctx)
{
	struct question *q;

	if (!k->up) {
		fn(ctx, NULL);
		return;
	}
	q = base_alloc(sizeof(*q));
	q->fn = fn;
	q->ctx = ctx;
	pthread_mutex_lock(&k->lock);
	link_put_question(k, q, type, fixed, len);
	pthread_mutex_unlock(&k->lock);
}

static void link_unlink(struct link *k, struct question *q)
{
	for (struct question **p = &k->questions; *p; p = &(*p)->next) {
		if (*p == q) {
			*p = q->next;
			return;
		}
	}
}

static struct timespec link_deadline(int timeout_ms)
{
	int64_t at = loop_now_ns() + timeout_ms * 1000000ll;

	return (struct timespec){ .tv_sec = at / 1000000000,
				  .tv_nsec = at % 1000000000 };
}

int link_ask(struct link *k, enum wire_type type, const void *fixed, size_t len,
	     void *ret_body, size_t body_len, int *ret_fds, int nr_fds,
	     int timeout_ms, struct err *e)
{
	struct question q = { .waits = true };
	struct timespec until = link_deadline(MAX(timeout_ms, 0));
	int r = 0;

	PRE(body_len <= sizeof(q.body));
	pthread_mutex_lock(&k->lock);
	link_put_question(k, &q, type, fixed, len);
	while (!q.done && r != ETIMEDOUT)
		r = timeout_ms < 0 ? pthread_cond_wait(&k->answered, &k->lock)
				   : pthread_cond_timedwait(&k->answered,
							    &k->lock, &until);
	link_unlink(k, &q);
	pthread_mutex_unlock(&k->lock);
	if (!q.done)
		return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
			       "no answer from cryod to %s within %d ms",
			       wire_type_name(type), timeout_ms);
	if (q.status == 0 && (q.body_len < body_len || q.nr_fds != nr_fds))
		q.status = err_set(&q.err, -EPROTO, ERR_INTERNAL,
				   "short answer from cryod to %s",
				   wire_type_name(type));
	if (q.status < 0) {
		*e = q.err;
		for (int i = 0; i < q.nr_fds; i++)
			close(q.fds[i]);
		return q.status;
	}
	if (body_len)
		memcpy(ret_body, q.body, body_len);
	for (int i = 0; i < nr_fds; i++)
		ret_fds[i] = q.fds[i];
	return 0;
}

static void link_fill_answer(struct question *q, struct wire_msg *m)
{
	q->status = MIN(m->status, 0);
	if (q->status < 0) {
		int len = (int)MIN(m->len, sizeof(q->err.msg) - 1);

		err_set(&q->err, q->status, ERR_INTERNAL, "%.*s", len,
			(const char *)m->body);
	} else {
		q->body_len = MIN(m->len, sizeof(q->body));
		memcpy(q->body, m->body, q->body_len);
		q->nr_fds = m->nr_fds;
		for (int i = 0; i < m->nr_fds; i++)
			q->fds[i] = wire_take_fd(m, i);
	}
	q->done = true;
}

/*
 * A question that a thread waits with lies on that thread's stack: it is gone
 * as soon as the lock is let go.
 */
static void link_answer(struct link *k, struct wire_msg *m)
{
	struct question *q, *mine = NULL;

	pthread_mutex_lock(&k->lock);
	for (q = k->questions; q; q = q->next)
		if (q->call == m->call && q->type == m->type && !q->done)
			break;
	if (q && q->waits) {
		link_fill_answer(q, m);
		pthread_cond_broadcast(&k->answered);
	} else if (q) {
		link_unlink(k, q);
		mine = q;
	}
	pthread_mutex_unlock(&k->lock);
	if (mine) {
		mine->fn(mine->ctx, m);
		free(mine);
	}
}

static void link_readable(void *ctx, uint32_t events UNUSED)
{
	struct link *k = ctx;
	struct wire_msg m;
	struct err e;
	int r = wire_recv(k->fd, true, &k->buf, &m, &e);

	if (r == -EAGAIN)
		return;
	if (r == -EPROTO)
		log_warn("event=link_refused why=\"%s\"", e.msg);
	if (r < 0) {
		link_drop(k);
		return;
	}
	if (m.reply)
		link_answer(k, &m);
	else
		k->ops->request(k->ctx, &m);
	wire_msg_done(&m);
}

/* Ends the connection and the questions of the loop's own thread. */
static void link_drop(struct link *k)
{
	struct question *mine = NULL, **p = &k->questions;
	bool was_up;

	if (k->fd < 0)
		return;
	loop_unwatch(k->loop, &k->watch);
	pthread_mutex_lock(&k->lock);
	close(base_steal_fd(&k->fd));
	was_up = k->up;
	k->up = false;
	while (*p) {
		struct question *q = *p;

		if (q->waits) {
			p = &q->next;
			continue;
		}
		*p = q->next;
		q->next = mine;
		mine = q;
	}
	pthread_mutex_unlock(&k->lock);
	while (mine) {
		struct question *q = mine;

		mine = q->next;
		q->fn(q->ctx, NULL);
		free(q);
	}
	if (was_up)
		k->ops->down(k->ctx);
}

static void link_accept(void *ctx, uint32_t events UNUSED)
{
	struct link *k = ctx;
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);
	int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
	    peer.uid != k->owner) {
		log_warn("event=link_refused uid=%u", peer.uid);
		close(fd);
		return;
	}
	link_drop(k);
	pthread_mutex_lock(&k->lock);
	k->fd = fd;
	k->connection++;
	pthread_mutex_unlock(&k->lock);
	loop_watch(k->loop, &k->watch, fd, EPOLLIN, link_readable, k);
}

int link_new(struct link **ret, struct loop *l, int listen_fd, uid_t owner,
	     const struct link_ops *ops, void *ctx, struct err *e)
{
	struct link *k = base_alloc(sizeof(*k));
	pthread_condattr_t attr;

	k->loop = l;
	k->listen_fd = listen_fd;
	k->fd = -1;
	k->owner = owner;
	k->ops = ops;
	k->ctx = ctx;
	pthread_mutex_init(&k->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&k->answered, &attr);
	pthread_condattr_destroy(&attr);
	if (listen_fd < 0) {
		free(k);
		return err_set(e, -EBADF, ERR_INTERNAL, "no listening socket");
	}
	loop_watch(l, &k->listen_watch, listen_fd, EPOLLIN, link_accept, k);
	*ret = k;
	return 0;
}
