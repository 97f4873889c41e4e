/*
 * The event loop keeps what its header promises: no event after unwatch, also
 * in the round that had it already; timers in order and once; what other
 * threads give it runs on its own thread, in order, and is never lost.
 */
#include "core/backend/loop.h"

#include <pthread.h>
#include <sys/epoll.h>

#include "tests/fds.h"
#include "tests/tap.h"

static struct loop *loop;
static pthread_t owner;

static struct loop *fresh(void)
{
	struct err e;

	if (loop_new(&loop, &e) < 0)
		bail("%s", e.msg);
	owner = pthread_self();
	return loop;
}

/* --- descriptors --------------------------------------------------------- */

struct side {
	struct loop_watch watch;
	struct side *other;
	int pipe[2], nr;
};

static void side_open(struct side *s, struct side *other)
{
	if (pipe2(s->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		bail("pipe");
	s->other = other;
	s->nr = 0;
}

static void side_close(struct side *s)
{
	close(s->pipe[0]);
	close(s->pipe[1]);
}

/* Whoever comes first ends the watch of the other, which is readable too. */
static void side_rival(void *ctx, uint32_t events)
{
	struct side *s = ctx;

	s->nr++;
	if (!(events & EPOLLIN))
		bail("no EPOLLIN");
	loop_unwatch(loop, &s->other->watch);
	loop_unwatch(loop, &s->watch);
	loop_stop(loop);
}

static void test_unwatch_in_round(void)
{
	struct side a, b;

	fresh();
	side_open(&a, &b);
	side_open(&b, &a);
	loop_watch(loop, &a.watch, a.pipe[0], EPOLLIN, side_rival, &a);
	loop_watch(loop, &b.watch, b.pipe[0], EPOLLIN, side_rival, &b);
	is_int(write(a.pipe[1], "x", 1) + write(b.pipe[1], "x", 1), 2,
	       "two descriptors become readable in one round");
	loop_run(loop);
	is_int(a.nr + b.nr, 1, "the second one's event is not delivered");
	is_int(a.watch.fd, -1, "an ended watch says so");
	loop_unwatch(loop, &a.watch); /* again: nothing happens */
	loop_free(loop);
	side_close(&a);
	side_close(&b);
}

static void side_count(void *ctx, uint32_t events)
{
	struct side *s = ctx;
	char c;

	s->nr++;
	if (events & EPOLLOUT) {
		loop_rewatch(loop, &s->watch, 0);
		loop_stop(loop);
	} else if (read(s->watch.fd, &c, 1) != 1 || s->nr == 3) {
		loop_stop(loop);
	}
}

static void test_level_and_rewatch(void)
{
	struct side a;

	fresh();
	side_open(&a, NULL);
	loop_watch(loop, &a.watch, a.pipe[0], EPOLLIN, side_count, &a);
	is_int(write(a.pipe[1], "abc", 3), 3, "three bytes wait");
	loop_run(loop);
	is_int(a.nr, 3, "and are told of until they are read");
	loop_unwatch(loop, &a.watch);
	loop_free(loop);

	fresh();
	a.nr = 0;
	loop_watch(loop, &a.watch, a.pipe[1], 0, side_count, &a);
	loop_rewatch(loop, &a.watch, EPOLLOUT);
	loop_run(loop);
	is_int(a.nr, 1, "a changed watch is told of what it asks for now");
	loop_free(loop);
	side_close(&a);
}

/* --- timers -------------------------------------------------------------- */

struct tick {
	struct loop_timer timer;
	char name;
	struct tick *ends; /* disarmed when this fires */
	int again; /* times to arm itself anew */
};

static char order[64];
static int nr_order;

static void tick_fire(void *ctx)
{
	struct tick *t = ctx;

	order[nr_order++] = t->name;
	if (t->timer.at_ns)
		bail("a timer that fires is armed");
	if (t->ends)
		loop_disarm(loop, &t->ends->timer);
	if (t->again-- > 0)
		loop_arm(loop, &t->timer, 0, tick_fire, t);
	if (t->name == 'z')
		loop_stop(loop);
}

static void tick_arm(struct tick *t, int64_t ms)
{
	loop_arm(loop, &t->timer, ms * 1000000, tick_fire, t);
}

static void test_timers(void)
{
	struct tick a = { .name = 'a' }, b = { .name = 'b' },
		    c = { .name = 'c' }, d = { .name = 'd', .again = 2 },
		    z = { .name = 'z' };
	int64_t since = fds_now_ns();

	fresh();
	nr_order = 0;
	a.ends = &c;
	tick_arm(&z, 30);
	tick_arm(&c, 20);
	tick_arm(&b, 1);
	tick_arm(&a, 10);
	tick_arm(&b, 15); /* moved behind a */
	tick_arm(&d, -5); /* at once */
	loop_run(loop);
	order[nr_order] = 0;
	is_str(order, "dddabz", "timers fire in order; c was disarmed by a");
	ok(fds_now_ns() - since >= 30 * 1000000, "and not before their time");
	loop_disarm(loop, &z.timer); /* it isn't armed: nothing happens */
	is_int(z.timer.at_ns, 0, "a timer that has fired is not armed");
	loop_free(loop);
}

/* --- other threads ------------------------------------------------------- */

#define POSTS 2000

static int slots[POSTS + 1], posted[POSTS + 1], nr_posted, calls;

static void note_post(void *ctx)
{
	if (!pthread_equal(pthread_self(), owner))
		bail("not on the loop's thread");
	posted[nr_posted++] = (int)((int *)ctx - slots);
}

static void note_call(void *ctx)
{
	if (!pthread_equal(pthread_self(), owner))
		bail("not on the loop's thread");
	*(int *)ctx = ++calls;
}

static void *giver(void *ctx)
{
	int *failed = ctx;

	for (int i = 0; i < POSTS; i++) {
		int nr = 0;

		loop_post(loop, note_post, &slots[i]);
		if (i % 100)
			continue;
		loop_call(loop, note_call, &nr);
		*failed += nr != i / 100 + 1;
	}
	/* posted before the stop, so done before the loop ends */
	loop_post(loop, note_post, &slots[POSTS]);
	loop_stop(loop);
	return NULL;
}

static void test_threads(void)
{
	pthread_t t;
	int failed = 0, wrong = 0;

	fresh();
	nr_posted = calls = 0;
	if (pthread_create(&t, NULL, giver, &failed))
		bail("thread");
	loop_run(loop);
	pthread_join(t, NULL);
	is_int(failed, 0, "loop_call() returns when its work is done");
	is_int(nr_posted, POSTS + 1, "nothing posted before the stop is lost");
	for (int i = 0; i <= POSTS; i++)
		wrong += posted[i] != i;
	is_int(wrong, 0, "and it runs in order");
	loop_free(loop);
}

static void stop_now(void *ctx)
{
	loop_stop(ctx);
}

static void test_never_run(void)
{
	fresh();
	loop_post(loop, stop_now, loop);
	loop_post(loop, stop_now, loop);
	loop_free(loop); /* what was posted is forgotten, not leaked */
	ok(true, "a loop that never ran can be freed");
}

int main(void)
{
	int before = fds_count();

	test_unwatch_in_round();
	test_level_and_rewatch();
	test_timers();
	test_threads();
	test_never_run();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
