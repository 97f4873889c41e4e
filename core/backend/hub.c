/*
 * hub: see hub.h. An answer is sent at once or, when the socket is full,
 * waits in its link's list until there is room: who answers (the engine, the
 * hub itself) never waits for a cryo-vm that does not read. That list is
 * bounded, since a cryo-vm may leave only HUB_OPEN_MAX requests unanswered.
 *
 * Invariants: 1. one thread, the loop's, receives; sending is a packet each
 * and needs no order between threads. 2. A call is in its link's list from
 * before it is sent until its caller has taken the answer. 3. After down()
 * no request of the link is delivered, and every call on it ends at once.
 * 4. A link is in the hub's list, with the hub's reference, while it is up.
 */
#include "core/backend/hub.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/backend/loop.h"
#include "core/log.h"

#define HUB_OPEN_MAX 512 /* 256 exits at once, and a few more */

struct hub_wait {
	struct hub_wait *next;
	uint64_t call;
	enum wire_type type;
	bool done;
	int status;
	struct hub_reply reply;
};

/* An answer that waits for room in the socket. */
struct hub_out {
	struct hub_out *next;
	enum wire_type type;
	uint64_t call;
	int status;
	int fds[WIRE_FDS_MAX], nr_fds; /* owned */
	size_t len;
	uint8_t body[];
};

struct hub_link {
	struct hub_link *next; /* of the hub */
	struct hub *hub;
	int refs; /* atomic */
	int fd;
	struct loop_watch watch;
	char session[ID_LEN + 1];
	_Atomic uint32_t epoch;
	uint32_t slot;
	void *tag;
	bool up;
	uint64_t calls;
	struct hub_wait *waits;
	uint32_t open; /* requests of the cryo-vm without an answer */
	struct hub_out *out, **last_out;
};

struct hub {
	struct loop *loop;
	pthread_t thread;
	const struct hub_ops *ops;
	void *ctx;
	pthread_mutex_t lock; /* links, and their up, calls, waits, out */
	pthread_cond_t answered;
	struct hub_link *links;
	bool stopped;
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

static void hub_out_free(struct hub_out *o)
{
	for (int i = 0; i < o->nr_fds; i++)
		close(o->fds[i]);
	base_wipe(o->body, o->len);
	free(o);
}

void hub_unref(struct hub_link *k)
{
	if (!k || __atomic_sub_fetch(&k->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	while (k->out) {
		struct hub_out *o = k->out;

		k->out = o->next;
		hub_out_free(o);
	}
	close(k->fd);
	free(k);
}

void hub_reply_done(struct hub_reply *r)
{
	for (int i = 0; i < r->nr_fds; i++)
		if (r->fds[i] >= 0)
			close(r->fds[i]);
	if (r->body)
		base_wipe(r->body, r->len);
	free(r->body);
	*r = (struct hub_reply){ 0 };
}

/* With the lock held: takes the link out of the hub's list. */
static void hub_unlink(struct hub *h, struct hub_link *k)
{
	for (struct hub_link **p = &h->links; *p; p = &(*p)->next) {
		if (*p == k) {
			*p = k->next;
			return;
		}
	}
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
	hub_unlink(h, k);
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

/* Counts a request that wants an answer; false if there are too many. */
static bool hub_open(struct hub_link *k, const struct wire_msg *m)
{
	bool fits;

	if (!m->call)
		return true;
	pthread_mutex_lock(&k->hub->lock);
	fits = k->open < HUB_OPEN_MAX;
	k->open += fits;
	pthread_mutex_unlock(&k->hub->lock);
	if (!fits)
		log_warn("event=link_broken session=%s why=\"%d requests without an answer\"",
			 k->session, HUB_OPEN_MAX);
	return fits;
}

static void hub_flush(struct hub_link *k);

static void hub_ready(void *ctx, uint32_t events)
{
	struct hub_link *k = ctx;
	struct hub *h = k->hub;
	struct wire_msg m;
	struct err e;
	int r;

	if (events & EPOLLOUT)
		hub_flush(k);
	r = wire_recv(k->fd, false, &h->buf, &m, &e);
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
	else if (hub_open(k, &m))
		h->ops->request(h->ctx, k, &m);
	else
		hub_down(k);
	wire_msg_done(&m);
}

/* --- links ---------------------------------------------------------------------- */

static void hub_add_on_loop(void *ctx)
{
	struct hub_link *k = ctx;

	loop_watch(k->hub->loop, &k->watch, k->fd, EPOLLIN, hub_ready, k);
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
	k->last_out = &k->out;
	base_strcpy(k->session, sizeof(k->session), session);
	pthread_mutex_lock(&h->lock);
	if (h->stopped) {
		k->up = false;
		k->refs = 1;
	} else {
		k->next = h->links;
		h->links = k;
		loop_post(h->loop, hub_add_on_loop, k);
	}
	pthread_mutex_unlock(&h->lock);
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
static int hub_exchange(struct hub_link *k, struct hub_wait *w, const void *fixed,
			size_t len, const void *tail, size_t tail_len,
			const int *fds, int nr_fds, int timeout_ms)
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

/* --- answers ------------------------------------------------------------ */

/* On the loop's thread: sends what waits; watches for room if some stays. */
static void hub_flush(struct hub_link *k)
{
	bool up, left;
	int r = 0;

	pthread_mutex_lock(&k->hub->lock);
	while (r == 0 && k->up && k->out) {
		struct hub_out *o = k->out;

		r = wire_send_now(k->fd, o->type, o->call, true, o->status,
				  o->body, o->len, NULL, 0, o->fds, o->nr_fds);
		if (r < 0)
			break;
		k->out = o->next;
		if (!k->out)
			k->last_out = &k->out;
		hub_out_free(o);
	}
	up = k->up;
	left = k->out != NULL;
	pthread_mutex_unlock(&k->hub->lock);
	if (r < 0 && r != -EAGAIN)
		shutdown(k->fd, SHUT_RDWR);
	else if (up && k->watch.fn)
		loop_rewatch(k->hub->loop, &k->watch,
			     EPOLLIN | (left ? (uint32_t)EPOLLOUT : 0));
}

static void hub_flush_later(void *ctx)
{
	hub_flush(ctx);
	hub_unref(ctx);
}

/* With the lock held: keeps a copy until there is room. */
static int hub_put_out(struct hub_link *k, enum wire_type type, uint64_t call,
		       int status, const void *fixed, size_t len,
		       const int *fds, int nr_fds)
{
	struct hub_out *o = base_alloc(sizeof(*o) + len);

	*o = (struct hub_out){
		.type = type, .call = call, .status = status, .len = len
	};
	if (len)
		memcpy(o->body, fixed, len);
	for (int i = 0; i < nr_fds; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (fd < 0) {
			hub_out_free(o);
			return -EMFILE;
		}
		o->fds[o->nr_fds++] = fd;
	}
	*k->last_out = o;
	k->last_out = &o->next;
	loop_post(k->hub->loop, hub_flush_later, hub_ref(k));
	return 0;
}

void hub_answer(struct hub_link *k, enum wire_type type, uint64_t call,
		int status, const void *fixed, size_t len, const int *fds,
		int nr_fds)
{
	int r = -EAGAIN;

	if (!call)
		return;
	pthread_mutex_lock(&k->hub->lock);
	if (!k->up || !k->open) {
		pthread_mutex_unlock(&k->hub->lock);
		return;
	}
	k->open--;
	if (!k->out)
		r = wire_send_now(k->fd, type, call, true, status, fixed, len,
				  NULL, 0, fds, nr_fds);
	if (r == -EAGAIN)
		r = hub_put_out(k, type, call, status, fixed, len, fds, nr_fds);
	pthread_mutex_unlock(&k->hub->lock);
	if (r < 0)
		shutdown(k->fd, SHUT_RDWR); /* down() follows */
}

/* --- the hub ----------------------------------------------------------------------- */

static void *hub_main(void *ctx)
{
	loop_run(((struct hub *)ctx)->loop);
	return NULL;
}

int hub_new(struct hub **ret, const struct hub_ops *ops, void *ctx, struct err *e)
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

void hub_stop(struct hub *h)
{
	struct hub_link *k;

	pthread_mutex_lock(&h->lock);
	if (h->stopped) {
		pthread_mutex_unlock(&h->lock);
		return;
	}
	h->stopped = true;
	k = STEAL(h->links);
	for (struct hub_link *i = k; i; i = i->next) {
		i->up = false;
		shutdown(i->fd, SHUT_RDWR);
	}
	pthread_cond_broadcast(&h->answered);
	pthread_mutex_unlock(&h->lock);
	/* what was posted for a link runs before the loop ends */
	loop_stop(h->loop);
	pthread_join(h->thread, NULL);
	while (k) {
		struct hub_link *next = k->next;

		hub_unref(k);
		k = next;
	}
}

void hub_free(struct hub *h)
{
	if (!h)
		return;
	hub_stop(h);
	loop_free(h->loop);
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->answered);
	free(h);
}
