/*
 * loop: one thread's event loop: descriptors (epoll), one-shot timers, and
 * work posted from other threads. Level-triggered. Everything but
 * loop_post(), loop_call() and loop_stop() is for the loop's own thread.
 */
#ifndef CORE_BACKEND_LOOP_H
#define CORE_BACKEND_LOOP_H

#include "core/err.h"

struct loop;

typedef void (*loop_fd_fn)(void *ctx, uint32_t events); /* EPOLLIN ... */
typedef void (*loop_fn)(void *ctx);

int loop_new(struct loop **ret, struct err *e);
void loop_free(struct loop *l);

/* Runs until loop_stop(); what was posted before that is done. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l); /* any thread */

struct loop_watch {
	int fd; /* not owned; -1: not watched */
	loop_fd_fn fn;
	void *ctx;
};

/*
 * Starts, changes or ends the watch of a descriptor. The watch is embedded in
 * its owner and must live until loop_unwatch(), which is safe from inside any
 * callback: no event of it is delivered afterwards.
 */
void loop_watch(struct loop *l, struct loop_watch *w, int fd, uint32_t events,
		loop_fd_fn fn, void *ctx);
void loop_rewatch(struct loop *l, struct loop_watch *w, uint32_t events);
void loop_unwatch(struct loop *l, struct loop_watch *w);

struct loop_timer {
	struct loop_timer *next;
	int64_t at_ns; /* CLOCK_MONOTONIC; 0: not armed */
	loop_fn fn;
	void *ctx;
};

/* Fires once, `in_ns` from now; arming again moves it. Embedded as above. */
void loop_arm(struct loop *l, struct loop_timer *t, int64_t in_ns, loop_fn fn,
	      void *ctx);
void loop_disarm(struct loop *l, struct loop_timer *t);

/* Any other thread: runs fn(ctx) on the loop's thread, in order of posting. */
void loop_post(struct loop *l, loop_fn fn, void *ctx);
/* The same, and returns when it has run. */
void loop_call(struct loop *l, loop_fn fn, void *ctx);

int64_t loop_now_ns(void); /* CLOCK_MONOTONIC */

#endif
