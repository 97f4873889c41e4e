/*
 * A cryo-vm's end of its socket, against a daemon that this test plays: one
 * that goes, comes back, and is somebody else, in the middle of everything.
 * The link has no end of its own, so one link sees all of it.
 */
#include "tools/vm/link.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/fds.h"
#include "tests/unit/store_help.h"

static struct loop *loop;
static struct link *link_of_vm;
static pthread_t loop_thread;
static char path[PATH_MAX];

static struct {
	_Atomic int requests, ups, downs;
	_Atomic bool reply;
	struct link_from last; /* of the last request */
} seen;

static void on_request(void *ctx, struct wire_msg *m)
{
	(void)ctx;
	seen.last = link_from(link_of_vm, m);
	if (m->type == WIRE_HELLO)
		link_greet(link_of_vm, seen.last,
			   &(struct wire_status){ .epoch = 4 },
			   sizeof(struct wire_status), "tail", 4);
	else if (seen.reply)
		link_reply(link_of_vm, seen.last, NULL, 0, NULL, 0, NULL, 0);
	seen.requests++;
}

static void on_up(void *ctx)
{
	(void)ctx;
	seen.ups++;
}

static void on_down(void *ctx)
{
	(void)ctx;
	seen.downs++;
}

static const struct link_ops ops = { .request = on_request,
				     .up = on_up,
				     .down = on_down };

static void *loop_main(void *ctx)
{
	loop_run(ctx);
	return NULL;
}

static int unix_socket(bool listening)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	base_strcpy(a.sun_path, sizeof(a.sun_path), path);
	if (listening) {
		if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
		    listen(fd, 8) < 0 || chmod(path, 0666) < 0)
			bail("listen");
		fcntl(fd, F_SETFL, O_NONBLOCK);
	} else if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		bail("connect");
	}
	return fd;
}

static void begin(void)
{
	struct err e;

	base_strcpy(path, sizeof(path), help_path("vm.sock"));
	seen.reply = true;
	if (loop_new(&loop, &e) < 0 ||
	    link_new(&link_of_vm, loop, unix_socket(true), getuid(), &ops, NULL,
		     &e) < 0 ||
	    pthread_create(&loop_thread, NULL, loop_main, loop))
		bail("no link");
}

/* --- the daemon ---------------------------------------------------------- */

static void d_take(int d, struct wire_msg *m)
{
	static struct wire_buf room;
	struct err e;
	int r = wire_recv(d, false, &room, m, &e);

	if (r < 0)
		bail("the daemon got nothing (%d)", r);
}

static void d_ask(int d, enum wire_type t, uint64_t call)
{
	struct wire_hello h = { 0 };
	bool hello = t == WIRE_HELLO;

	if (wire_send(d, t, call, false, 0, hello ? &h : NULL,
		      hello ? sizeof(h) : 0, NULL, 0, NULL, 0) < 0)
		bail("the daemon can't ask");
}

/* A daemon that has said HELLO; its number of the answer is 1. */
static int d_open(void)
{
	int d = unix_socket(false);
	struct wire_msg m;

	d_ask(d, WIRE_HELLO, 1);
	d_take(d, &m);
	if (m.type != WIRE_HELLO || !m.reply)
		bail("no answer to HELLO");
	return d;
}

/* Goes, and the link knows it. */
static void d_close(int d)
{
	int downs = seen.downs;

	close(d);
	if (!wait_for(seen.downs == downs + 1))
		bail("the link is not down");
}

/* --- a question in a thread of its own ----------------------------------- */

struct ask {
	pthread_t thread;
	int timeout_ms, r, fd;
	struct wire_pack pack;
	struct err e;
	_Atomic bool done;
};

static void *ask_main(void *ctx)
{
	struct ask *a = ctx;
	struct wire_pack_id id = { .id = { 1 } };

	a->fd = -1;
	a->r = link_ask(link_of_vm, WIRE_PACK_OPEN, &id, sizeof(id), &a->pack,
			sizeof(a->pack), &a->fd, 1, a->timeout_ms, &a->e);
	a->done = true;
	return NULL;
}

static void ask_start(struct ask *a, int timeout_ms)
{
	*a = (struct ask){ .timeout_ms = timeout_ms };
	if (pthread_create(&a->thread, NULL, ask_main, a))
		bail("thread");
}

static void d_give_pack(int d, uint64_t call, uint8_t mark)
{
	struct wire_pack p = { .id = { 1 }, .key = { mark } };
	int fd = fds_memfd(1, 0);

	wire_send(d, WIRE_PACK_OPEN, call, true, 0, &p, sizeof(p), NULL, 0, &fd,
		  1);
	close(fd);
}

/* Got it: right key, a descriptor. */
static bool ask_ends(struct ask *a, uint8_t mark)
{
	bool good;

	pthread_join(a->thread, NULL);
	good = a->r == 0 && a->pack.key[0] == mark && a->fd >= 0;
	base_close_p(&a->fd);
	return good;
}

/* --- tests --------------------------------------------------------------- */

static void test_requests(void)
{
	struct wire_output note = { .out_end = 1 };
	struct wire_msg m;
	int d;

	link_note(link_of_vm, WIRE_OUTPUT, &note, sizeof(note));
	d = unix_socket(false);
	ok(!link_is_up(link_of_vm), "a connection alone is not enough");
	d_ask(d, WIRE_PAUSE, 8);
	d_take(d, &m);
	is_int(m.call, 8, "requests are answered before HELLO, too");
	d_ask(d, WIRE_HELLO, 9);
	d_take(d, &m);
	ok(m.reply && m.type == WIRE_HELLO && m.call == 9 &&
		   m.len == sizeof(struct wire_status) + 4,
	   "HELLO is answered, with its tail");
	ok(wait_for(seen.ups == 1), "and opens the link");
	link_note(link_of_vm, WIRE_OUTPUT, &note, sizeof(note));
	d_take(d, &m);
	ok(m.type == WIRE_OUTPUT && m.call == 0 && !m.reply,
	   "notes go out while it is open, and only then");
	d_ask(d, WIRE_HELLO, 10);
	d_take(d, &m);
	ok(m.call == 10 && seen.ups == 1, "a second HELLO opens nothing");
	d_close(d);
	is_int(seen.downs, 1, "its end is told");
}

static void test_answer_to_the_old(void)
{
	int d = d_open(), old = seen.requests, d2;
	struct link_from from;
	struct wire_msg m;
	struct err e;

	seen.reply = false;
	d_ask(d, WIRE_PAUSE, 5);
	wait_for(seen.requests == old + 1);
	from = seen.last;
	ok(link_is_from(link_of_vm, from), "who asked is there");
	seen.reply = true;
	d2 = d_open(); /* the new daemon, before the old one's end is seen */
	ok(!link_is_from(link_of_vm, from), "and then another is");
	err_set(&e, -EIO, ERR_INTERNAL, "late");
	link_reply_err(link_of_vm, from, -EIO, &e);
	link_reply(link_of_vm, from, NULL, 0, NULL, 0, NULL, 0);
	d_ask(d2, WIRE_CONT, 5);
	d_take(d2, &m);
	ok(m.type == WIRE_CONT, "an answer to the old one does not go to it");
	is_int(recv(d, (char[8]){ 0 }, 8, 0), 0, "the old connection is closed");
	close(d);
	d_close(d2);
}

static void test_ask(void)
{
	int d = d_open(), before = fds_count();
	struct wire_msg m;
	struct ask a;

	ask_start(&a, 30000);
	d_take(d, &m);
	ok(m.type == WIRE_PACK_OPEN && m.call && !m.reply &&
		   m.len == sizeof(struct wire_pack_id),
	   "a question comes to the daemon");
	d_give_pack(d, m.call + 1000, 9); /* to nobody */
	d_give_pack(d, m.call, 7);
	ok(ask_ends(&a, 7), "and its answer to who asked");

	ask_start(&a, 30000);
	d_take(d, &m);
	wire_send(d, WIRE_PACK_OPEN, m.call, true, -ENOENT, "no right", 8, NULL,
		  0, NULL, 0);
	pthread_join(a.thread, NULL);
	is_int(a.r, -ENOENT, "a refusal is one");
	is_str(a.e.msg, "no right", "with its text");

	ask_start(&a, 30000);
	d_take(d, &m);
	{
		int fd = fds_memfd(1, 0);

		wire_send(d, WIRE_PACK_OPEN, m.call, true, 0, "short", 5, NULL,
			  0, &fd, 1);
		close(fd);
	}
	pthread_join(a.thread, NULL);
	is_int(a.r, -EPROTO, "an answer that is too short is refused");
	is_int(fds_count(), before, "its descriptor is closed");

	ask_start(&a, 50);
	pthread_join(a.thread, NULL);
	is_int(a.r, -ETIMEDOUT, "no answer within the time");
	d_take(d, &m);
	d_give_pack(d, m.call, 3);
	d_ask(d, WIRE_PAUSE, 77);
	d_take(d, &m);
	is_int(fds_count(), before, "one that comes later is dropped");
	d_close(d);
}

/* The daemon is away, comes, goes before it answers, comes again. */
static void test_ask_over_restarts(void)
{
	struct wire_msg m;
	uint64_t call;
	struct ask a, b;
	int d;

	ask_start(&a, -1);
	d = unix_socket(false);
	d_ask(d, WIRE_PAUSE, 2);
	d_take(d, &m);
	ok(m.reply, "a daemon that has not said HELLO is not asked");
	d_ask(d, WIRE_HELLO, 3);
	d_take(d, &m);
	ok(m.reply && m.call == 3, "HELLO is answered first");
	d_take(d, &m);
	ok(m.type == WIRE_PACK_OPEN && !m.reply, "then it is asked");
	call = m.call;
	d_close(d);
	ask_start(&b, 30000);
	d = d_open();
	for (int i = 0; i < 2; i++) {
		d_take(d, &m);
		d_give_pack(d, m.call, m.call == call ? 5 : 6);
	}
	ok(ask_ends(&a, 5), "the next one is asked again, under the same number");
	ok(ask_ends(&b, 6), "together with what is new");
	ask_start(&a, 30);
	d_take(d, &m);
	d_close(d);
	pthread_join(a.thread, NULL);
	is_int(a.r, -ETIMEDOUT, "but not for longer than it may take");
}

/* --- questions of the loop ----------------------------------------------- */

static struct {
	_Atomic int nr, nulls, status;
} later;

static void on_answer(void *ctx, struct wire_msg *m)
{
	(void)ctx;
	if (m)
		later.status = m->status;
	else
		later.nulls++;
	later.nr++;
}

static void ask_later(void *ctx)
{
	(void)ctx;
	link_ask_later(link_of_vm, WIRE_TOKEN, NULL, 0, on_answer, NULL);
}

static void test_ask_later(void)
{
	struct wire_msg m;
	int d;

	loop_call(loop, ask_later, NULL);
	ok(later.nr == 1 && later.nulls == 1, "no daemon: an end at once");
	d = d_open();
	loop_call(loop, ask_later, NULL);
	loop_call(loop, ask_later, NULL);
	d_take(d, &m);
	wire_send(d, WIRE_TOKEN, m.call, true, -ENOSPC, NULL, 0, NULL, 0, NULL,
		  0);
	ok(wait_for(later.nr == 2) && later.status == -ENOSPC,
	   "an answer comes back");
	d_take(d, &m);
	d_close(d);
	ok(wait_for(later.nr == 3) && later.nulls == 2,
	   "a daemon that goes ends the questions of the loop");
	d = d_open();
	d_ask(d, WIRE_PAUSE, 6);
	d_take(d, &m);
	ok(m.reply, "and they are not asked again");
	d_close(d);
}

/* --- who is let in ------------------------------------------------------- */

static void test_broken(void)
{
	int d = d_open(), downs = seen.downs;

	if (send(d, "rubbish", 7, 0) != 7)
		bail("send");
	ok(wait_for(seen.downs == downs + 1), "rubbish ends the connection");
	close(d);
	d = d_open();
	if (send(d, "", 0, 0) != 0)
		bail("send");
	ok(wait_for(seen.downs == downs + 2), "so does an empty packet");
	close(d);
}

static void test_stranger(void)
{
	int d = d_open(), status;
	struct wire_msg m;
	pid_t pid;

	if (getuid() != 0) {
		ok(true, "another user # SKIP needs root");
		d_close(d);
		return;
	}
	chmod(help_tmp(), 0755);
	pid = fork();
	if (pid == 0) {
		int fd;

		if (setgid(65534) || setuid(65534))
			_exit(2);
		fd = unix_socket(false);
		_exit(recv(fd, (char[8]){ 0 }, 8, 0) != 0);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "another user is hung up on");
	d_ask(d, WIRE_PAUSE, 4);
	d_take(d, &m);
	is_int(m.call, 4, "and the daemon's connection stays");
	d_close(d);
}

int main(void)
{
	int before;

	begin();
	before = fds_count();
	test_requests();
	test_answer_to_the_old();
	test_ask();
	test_ask_over_restarts();
	test_ask_later();
	test_broken();
	test_stranger();
	is_int(fds_count(), before, "no connection is left open");
	loop_stop(loop);
	pthread_join(loop_thread, NULL);
	loop_free(loop);
	return tap_done();
}
