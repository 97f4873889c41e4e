/*
 * vm_link: the keeper's end of its socket, with a scripted daemon. Questions
 * of threads are answered once and leave nothing behind; a daemon that goes
 * and comes back is asked again; strangers are not listened to.
 */
#include "tests/fds.h"
#include "tests/tap.h"
#include "tools/vm/link.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define QUESTIONS 4000

struct world {
	struct loop *loop;
	struct link *link;
	struct sockaddr_un addr;
	socklen_t addr_len;
	pthread_t thread;
	int ups, downs; /* on the loop */
};

static void world_request(void *ctx, struct wire_msg *m)
{
	struct world *w = ctx;
	struct wire_status s = { 0 };

	if (m->type == WIRE_HELLO)
		link_greet(w->link, link_from(w->link, m), &s, sizeof(s), NULL,
			   0);
}

static void world_up(void *ctx)
{
	((struct world *)ctx)->ups++;
}

static void world_down(void *ctx)
{
	((struct world *)ctx)->downs++;
}

static const struct link_ops world_ops = { world_request, world_up, world_down };

static void *world_loop(void *ctx)
{
	loop_run(((struct world *)ctx)->loop);
	return NULL;
}

static void world_open(struct world *w, uid_t owner)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);
	struct err e = { 0 };

	memset(w, 0, sizeof(*w));
	w->addr.sun_family = AF_UNIX;
	w->addr_len = sizeof(w->addr);
	/* a name of the kernel's choice, nowhere in a file system */
	if (fd < 0 || bind(fd, (void *)&w->addr, sizeof(sa_family_t)) < 0 ||
	    getsockname(fd, (void *)&w->addr, &w->addr_len) < 0 ||
	    listen(fd, 4) < 0 || loop_new(&w->loop, &e) < 0 ||
	    link_new(&w->link, w->loop, fd, owner, &world_ops, w, &e) < 0)
		bail("link: %s", e.msg);
	pthread_create(&w->thread, NULL, world_loop, w);
}

static void world_close(struct world *w)
{
	loop_stop(w->loop);
	pthread_join(w->thread, NULL);
}

/* --- the daemon ----------------------------------------------------------- */

static struct wire_buf buf;

static int daemon_connect(struct world *w)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (void *)&w->addr, w->addr_len) < 0)
		bail("connect: %m");
	return fd;
}

/* Says hello and takes the answer. */
static void daemon_hello(int fd)
{
	struct wire_hello hello = { 0 };
	struct wire_msg m;
	struct err e;

	wire_send(fd, WIRE_HELLO, 1, false, 0, &hello, sizeof(hello), NULL, 0,
		  NULL, 0);
	if (wire_recv(fd, false, &buf, &m, &e) < 0 || m.type != WIRE_HELLO)
		bail("no answer to HELLO");
	wire_msg_done(&m);
}

static uint64_t daemon_take(int fd, enum wire_type want)
{
	struct wire_msg m;
	struct err e;
	uint64_t call;

	if (wire_recv(fd, false, &buf, &m, &e) < 0 || m.type != want || m.reply)
		bail("no question");
	call = m.call;
	wire_msg_done(&m);
	return call;
}

static void daemon_grant(int fd, uint64_t call)
{
	wire_send(fd, WIRE_TOKEN, call, true, 0, NULL, 0, NULL, 0, NULL, 0);
}

/* --- tests ---------------------------------------------------------------- */

/* What a thread's next calls do to the stack that its question was on. */
__attribute__((noinline)) static int scribble(int byte)
{
	volatile uint8_t p[2048];

	for (size_t i = 0; i < sizeof(p); i++)
		p[i] = (uint8_t)byte;
	return p[17];
}

struct asker {
	struct world *w;
	int nr, answered;
};

static void *ask_many(void *ctx)
{
	struct asker *a = ctx;
	struct err e;

	for (int i = 0; i < a->nr; i++) {
		a->answered += link_ask(a->w->link, WIRE_TOKEN, NULL, 0, NULL,
					0, NULL, 0, 60000, &e) == 0;
		scribble(i % 2 ? 0 : 0x41);
	}
	return NULL;
}

/*
 * The asking thread goes on the moment its answer is there, while the loop's
 * thread is still in the middle of giving it.
 */
static void test_answers(void)
{
	struct world w;
	struct asker a[3];
	pthread_t t[3];
	int fd, answered = 0;

	world_open(&w, getuid());
	fd = daemon_connect(&w);
	daemon_hello(fd);
	for (int i = 0; i < 3; i++) {
		a[i] = (struct asker){ .w = &w, .nr = QUESTIONS };
		pthread_create(&t[i], NULL, ask_many, &a[i]);
	}
	for (int i = 0; i < 3 * QUESTIONS; i++)
		daemon_grant(fd, daemon_take(fd, WIRE_TOKEN));
	for (int i = 0; i < 3; i++) {
		pthread_join(t[i], NULL);
		answered += a[i].answered;
	}
	is_int(answered, 3 * QUESTIONS, "each question of a thread is answered");
	close(fd);
	world_close(&w);
}

static void test_comes_back(void)
{
	struct world w;
	struct asker a = { .w = &w, .nr = 1 };
	uint64_t call;
	pthread_t t;
	int fd;

	world_open(&w, getuid());
	pthread_create(&t, NULL, ask_many, &a);
	fd = daemon_connect(&w);
	daemon_hello(fd);
	call = daemon_take(fd, WIRE_TOKEN);
	ok(call, "a question from before its time is asked at hello");
	close(fd);
	fd = daemon_connect(&w);
	daemon_hello(fd);
	is_int(daemon_take(fd, WIRE_TOKEN), call,
	       "the next daemon is asked it too");
	daemon_grant(fd, call);
	pthread_join(t, NULL);
	is_int(a.answered, 1, "and its answer counts");
	close(fd);
	world_close(&w);
	is_int(w.ups, 2, "up twice");
	is_int(w.downs >= 1, 1, "and down in between");
}

static void test_times_out(void)
{
	struct world w;
	struct err e = { 0 };
	int64_t since;

	world_open(&w, getuid());
	since = fds_now_ns();
	is_int(link_ask(w.link, WIRE_TOKEN, NULL, 0, NULL, 0, NULL, 0, 50, &e),
	       -ETIMEDOUT, "nobody there: %s", e.msg);
	ok(fds_now_ns() - since >= 50 * 1000000ll, "after the time given");
	world_close(&w);
}

static void test_strangers(void)
{
	struct world w;
	uint8_t byte;
	int fd;

	world_open(&w, getuid() + 1);
	fd = daemon_connect(&w);
	is_int(recv(fd, &byte, 1, 0), 0, "another user's connection is closed");
	close(fd);
	world_close(&w);
	is_int(w.ups, 0, "and never was up");
}

int main(void)
{
	test_answers();
	test_comes_back();
	test_times_out();
	test_strangers();
	return tap_done();
}
