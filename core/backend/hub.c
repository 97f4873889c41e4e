/*
 * hub: see hub.h.
 *
 * Invariants: 1. one thread, the loop's, receives; sending is a packet each
 * and needs no order between threads. 2. A call is in its link's list from
 * before it is sent until its caller has taken the answer. 3. After down()
 * no request of the link is delivered, and every call on it ends at once.
 */
#include "core/backend/hub.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/backend/loop.h"
#include "core/log.h"

struct hub_wait {
	struct hub_wait *next;
	uint64_t call;
	enum wire_type type;
	bool done;
	int status;
	struct hub_reply reply;
};

struct hub_link {
	struct hub *hub;
	int refs; /* atomic */
	int fd;
	struct loop_watch watch;
	char session[ID_LEN + 1];
	uint32_t epoch, slot;
	void *tag;
	bool up;
	uint64_t calls;
	struct hub_wait *waits;
};

struct hub {
	struct loop *loop;
	pthread_t thread;
	const struct hub_ops *ops;
	void *ctx;
	pthread_mutex_t lock; /* links' up, calls, waits */
	pthread_cond_t answered;
	struct wire_buf buf;
};

const char *hub_session(const struct hub_link *k)
{
	return k->session;
}

uint32_t hub_epoch(const struct hub_link *k)
{
	return k->epoch;
}

void hub_set_epoch(struct hub_link *k, uint32_t epoch)
{
	k->epoch = epoch;
}

uint32_t hub_slot(const struct hub_link *k)
{
	return k->slot;
}

void *hub_tag(const struct hub_link *k)
{
	return k->tag;
}

bool hub_is_up(struct hub_link *k)
{
	bool up;

	pthread_mutex_lock(&k->hub->lock);
	up = k->up;
	pthread_mutex_unlock(&k->hub->lock);
	return up;
}

struct hub_link *hub_ref(struct hub_link *k)
{
	__atomic_add_fetch(&k->refs, 1, __ATOMIC_RELAXED);
	return k;
}

void hub_unref(struct hub_link *k)
{
	if (!k || __atomic_sub_fetch(&k->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	close(k->fd);
	free(k);
}

void hub_reply_done(struct hub_reply *r)
{
	for (int i = 0; i < r->nr_fds; i++)
		if (r->fds[i] >= 0)
			close(r->fds[i]);
	free(r->body);
	*r = (struct hub_reply){ 0 };
}

/* --- receiving ---------------------------------------------------------------- */

static void hub_down(struct hub_link *k)
{
	struct hub *h = k->hub;
	bool was_up;

	loop_unwatch(h->loop, &k->watch);
	pthread_mutex_lock(&h->lock);
	was_up = k->up;
	k->up = false;
	pthread_cond_broadcast(&h->answered);
	pthread_mutex_unlock(&h->lock);
	if (!was_up)
		return;
	shutdown(k->fd, SHUT_RDWR);
	h->ops->down(h->ctx, k);
	hub_unref(k);
}

static void hub_deliver(struct hub_link *k, struct wire_msg *m)
{
	struct hub *h = k->hub;
	struct hub_wait *w;

	pthread_mutex_lock(&h->lock);
	for (w = k->waits; w; w = w->next)
		if (w->call == m->call && w->type == m->type && !w->done)
			break;
	if (w) {
		w->status = MIN(m->status, 0);
		w->reply.len = m->len;
		w->reply.body = base_alloc(m->len + 1);
		memcpy(w->reply.body, m->body, m->len);
		w->reply.nr_fds = m->nr_fds;
		for (int i = 0; i < m->nr_fds; i++)
			w->reply.fds[i] = wire_take_fd(m, i);
		w->done = true;
		pthread_cond_broadcast(&h->answered);
	}
	pthread_mutex_unlock(&h->lock);
}

static void hub_readable(void *ctx, uint32_t events UNUSED)
{
	struct hub_link *k = ctx;
	struct hub *h = k->hub;
	struct wire_msg m;
	struct err e;
	int r = wire_recv(k->fd, false, &h->buf, &m, &e);

	if (r == -EAGAIN)
		return;
	if (r == -EPROTO)
		log_warn("event=link_broken session=%s why=\"%s\"", k->session,
			 e.msg);
	if (r < 0) {
		hub_down(k);
		return;
	}
	if (m.reply)
		hub_deliver(k, &m);
	else
		h->ops->request(h->ctx, k, &m);
	wire_msg_done(&m);
}

/* --- links ---------------------------------------------------------------------- */

static void hub_add_on_loop(void *ctx)
{
	struct hub_link *k = ctx;

	loop_watch(k->hub->loop, &k->watch, k->fd, EPOLLIN, hub_readable, k);
}

struct hub_link *hub_add(struct hub *h, int fd, const char *session,
			 uint32_t epoch, uint32_t slot, void *tag)
{
	struct hub_link *k = base_alloc(sizeof(*k));

	*k = (struct hub_link){ .hub = h,
				.refs = 2,
				.fd = fd,
				.epoch = epoch,
				.slot = slot,
				.tag = tag,
				.up = true };
	base_strcpy(k->session, sizeof(k->session), session);
	loop_call(h->loop, hub_add_on_loop, k);
	return k;
}

void hub_close(struct hub_link *k)
{
	shutdown(k->fd, SHUT_RDWR); /* the hub's thread sees the end */
}

static struct timespec hub_until(int timeout_ms)
{
	int64_t at = loop_now_ns() + timeout_ms * 1000000ll;

	return (struct timespec){ .tv_sec = at / 1000000000,
				  .tv_nsec = at % 1000000000 };
}

/* With the lock held: sends, then waits for the answer or the end. */
static int hub_exchange(struct hub_link *k, struct hub_wait *w,
			const void *fixed, size_t len, const void *tail,
			size_t tail_len, const int *fds, int nr_fds,
			int timeout_ms)
{
	struct hub *h = k->hub;
	struct timespec until = hub_until(timeout_ms);
	int r = 0;

	if (!k->up)
		return -EPIPE;
	w->call = ++k->calls;
	w->next = k->waits;
	k->waits = w;
	pthread_mutex_unlock(&h->lock);
	r = wire_send(k->fd, w->type, w->call, false, 0, fixed, len, tail,
		      tail_len, fds, nr_fds);
	pthread_mutex_lock(&h->lock);
	while (r == 0 && !w->done && k->up)
		r = -pthread_cond_timedwait(&h->answered, &h->lock, &until);
	for (struct hub_wait **p = &k->waits; *p; p = &(*p)->next) {
		if (*p == w) {
			*p = w->next;
			break;
		}
	}
	if (w->done)
		return 0;
	return r == -ETIMEDOUT ? r : -EPIPE;
}

int hub_call(struct hub_link *k, enum wire_type type, const void *fixed,
	     size_t len, const void *tail, size_t tail_len, const int *fds,
	     int nr_fds, int timeout_ms, size_t want, struct hub_reply *ret,
	     struct err *e)
{
	struct hub_wait w = { .type = type };
	int r;

	pthread_mutex_lock(&k->hub->lock);
	r = hub_exchange(k, &w, fixed, len, tail, tail_len, fds, nr_fds,
			 timeout_ms);
	pthread_mutex_unlock(&k->hub->lock);
	if (r == -ETIMEDOUT)
		err_set(e, r, ERR_TIMEOUT,
			"sandbox of session %s did not answer %s within %d ms",
			k->session, wire_type_name(type), timeout_ms);
	else if (r < 0)
		err_set(e, r, ERR_BUSY, "sandbox of session %s is gone",
			k->session);
	else if (w.status < 0)
		r = err_set(e, w.status, ERR_CONFLICT, "%.*s",
			    (int)MIN(w.reply.len, 200),
			    (const char *)w.reply.body);
	else if (w.reply.len < want)
		r = err_set(e, -EPROTO, ERR_INTERNAL,
			    "short answer to %s from session %s",
			    wire_type_name(type), k->session);
	if (r == 0 && ret)
		*ret = w.reply;
	else
		hub_reply_done(&w.reply);
	return r;
}

void hub_answer(struct hub_link *k, enum wire_type type, uint64_t call,
		int status, const void *fixed, size_t len, const int *fds,
		int nr_fds)
{
	if (call)
		wire_send(k->fd, type, call, true, status, fixed, len, NULL, 0,
			  fds, nr_fds);
}

/* --- the hub ----------------------------------------------------------------------- */

static void *hub_main(void *ctx)
{
	loop_run(((struct hub *)ctx)->loop);
	return NULL;
}

int hub_new(struct hub **ret, const struct hub_ops *ops, void *ctx,
	    struct err *e)
{
	struct hub *h = base_alloc(sizeof(*h));
	pthread_condattr_t attr;
	sigset_t all, old;
	int r = loop_new(&h->loop, e);

	if (r < 0) {
		free(h);
		return r;
	}
	h->ops = ops;
	h->ctx = ctx;
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->answered, &attr);
	pthread_condattr_destroy(&attr);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&h->thread, NULL, hub_main, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0) {
		loop_free(h->loop);
		free(h);
		return err_sys(e, r, "start the hub's thread");
	}
	*ret = h;
	return 0;
}

void hub_free(struct hub *h)
{
	if (!h)
		return;
	loop_stop(h->loop);
	pthread_join(h->thread, NULL);
	loop_free(h->loop);
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->answered);
	free(h);
}
