/*
 * loop: see loop.h. Timers are a sorted list: a process has a handful.
 *
 * Invariants: 1. callbacks run on the loop's thread only, never nested.
 * 2. After loop_unwatch() no event of that watch is delivered, also none
 * that the kernel had already reported in the same round. 3. Posted work
 * runs in order and is not lost between loop_run() rounds.
 */
#include "core/backend/loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#define LOOP_ROUND 32

struct loop_job {
	struct loop_job *next;
	loop_fn fn;
	void *ctx;
	bool *done; /* loop_call: set and signalled */
};

struct loop {
	int epoll_fd, event_fd;
	bool stop;
	struct loop_timer *timers;
	struct epoll_event round[LOOP_ROUND];
	int nr_round, at_round;
	pthread_mutex_t lock;
	pthread_cond_t called;
	struct loop_job *first, **last;
};

int64_t loop_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int loop_new(struct loop **ret, struct err *e)
{
	struct loop *l = base_alloc(sizeof(*l));
	struct epoll_event ev = { .events = EPOLLIN };

	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->last = &l->first;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->called, NULL);
	if (l->epoll_fd < 0 || l->event_fd < 0 ||
	    epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->event_fd, &ev) < 0) {
		int en = errno;

		loop_free(l);
		return err_sys(e, en, "make an event loop");
	}
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	while (l->first) {
		struct loop_job *j = l->first;

		l->first = j->next;
		free(j);
	}
	if (l->epoll_fd >= 0)
		close(l->epoll_fd);
	if (l->event_fd >= 0)
		close(l->event_fd);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->called);
	free(l);
}

void loop_watch(struct loop *l, struct loop_watch *w, int fd, uint32_t events,
		loop_fd_fn fn, void *ctx)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	PRE(fd >= 0);
	*w = (struct loop_watch){ .fd = fd, .fn = fn, .ctx = ctx };
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		NEVER("epoll refuses a descriptor");
}

void loop_rewatch(struct loop *l, struct loop_watch *w, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev) < 0)
		NEVER("epoll refuses a change");
}

void loop_unwatch(struct loop *l, struct loop_watch *w)
{
	if (w->fd < 0 || !w->fn)
		return;
	epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	w->fd = -1;
	w->fn = NULL;
	for (int i = l->at_round; i < l->nr_round; i++)
		if (l->round[i].data.ptr == w)
			l->round[i].data.ptr = NULL, l->round[i].events = 0;
}

void loop_arm(struct loop *l, struct loop_timer *t, int64_t in_ns, loop_fn fn,
	      void *ctx)
{
	struct loop_timer **p = &l->timers;

	loop_disarm(l, t);
	t->at_ns = loop_now_ns() + MAX(in_ns, 0);
	t->fn = fn;
	t->ctx = ctx;
	while (*p && (*p)->at_ns <= t->at_ns)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
}

void loop_disarm(struct loop *l, struct loop_timer *t)
{
	for (struct loop_timer **p = &l->timers; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	t->at_ns = 0;
}

static void loop_enqueue(struct loop *l, loop_fn fn, void *ctx, bool *done)
{
	struct loop_job *j = base_alloc(sizeof(*j));
	uint64_t one = 1;

	*j = (struct loop_job){ .fn = fn, .ctx = ctx, .done = done };
	*l->last = j;
	l->last = &j->next;
	/* cannot fail but for a counter that is full, and then it is awake */
	if (write(l->event_fd, &one, sizeof(one)) < 0)
		POST(errno == EAGAIN);
}

void loop_post(struct loop *l, loop_fn fn, void *ctx)
{
	pthread_mutex_lock(&l->lock);
	loop_enqueue(l, fn, ctx, NULL);
	pthread_mutex_unlock(&l->lock);
}

void loop_call(struct loop *l, loop_fn fn, void *ctx)
{
	bool done = false;

	pthread_mutex_lock(&l->lock);
	loop_enqueue(l, fn, ctx, &done);
	while (!done)
		pthread_cond_wait(&l->called, &l->lock);
	pthread_mutex_unlock(&l->lock);
}

void loop_stop(struct loop *l)
{
	uint64_t one = 1;

	__atomic_store_n(&l->stop, true, __ATOMIC_RELEASE);
	if (write(l->event_fd, &one, sizeof(one)) < 0)
		POST(errno == EAGAIN);
}

static void loop_run_jobs(struct loop *l)
{
	uint64_t n;

	if (read(l->event_fd, &n, sizeof(n)) < 0)
		POST(errno == EAGAIN || errno == EINTR);
	pthread_mutex_lock(&l->lock);
	while (l->first) {
		struct loop_job *j = l->first;

		l->first = j->next;
		if (!l->first)
			l->last = &l->first;
		pthread_mutex_unlock(&l->lock);
		j->fn(j->ctx);
		pthread_mutex_lock(&l->lock);
		if (j->done) {
			*j->done = true;
			pthread_cond_broadcast(&l->called);
		}
		free(j);
	}
	pthread_mutex_unlock(&l->lock);
}

static void loop_run_timers(struct loop *l)
{
	int64_t now = loop_now_ns();

	while (l->timers && l->timers->at_ns <= now) {
		struct loop_timer *t = l->timers;

		l->timers = t->next;
		t->at_ns = 0;
		t->fn(t->ctx);
	}
}

static int loop_wait_ms(const struct loop *l)
{
	int64_t left;

	if (!l->timers)
		return -1;
	left = l->timers->at_ns - loop_now_ns();
	if (left <= 0)
		return 0;
	return (int)MIN((left + 999999) / 1000000, 60000);
}

void loop_run(struct loop *l)
{
	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
		int n = epoll_wait(l->epoll_fd, l->round, LOOP_ROUND,
				   loop_wait_ms(l));

		l->nr_round = MAX(n, 0);
		for (l->at_round = 0; l->at_round < l->nr_round;) {
			struct epoll_event ev = l->round[l->at_round++];
			struct loop_watch *w = ev.data.ptr;

			if (w && w->fn)
				w->fn(w->ctx, ev.events);
		}
		l->nr_round = 0;
		loop_run_timers(l);
		loop_run_jobs(l);
	}
	loop_run_jobs(l);
}
