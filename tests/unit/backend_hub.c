/*
 * The daemon's links to its cryo-vms: calls and their answers, requests and
 * theirs, links that end in the middle of each, and cryo-vms that misbehave.
 * The test's own thread plays cryo-vm; calls are made by others.
 */
#include "core/backend/hub.h"

#include <pthread.h>
#include <sys/socket.h>

#include "tests/fds.h"
#include "tests/tap.h"

#define SESSION "s0000000000000000001"

static struct {
	_Atomic int requests, downs;
	_Atomic bool answer_now;
	struct hub_link *down_link;
	pthread_mutex_t lock;
	uint64_t calls[2048]; /* of requests kept for later */
	enum wire_type type;
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void on_request(void *ctx, struct hub_link *k, struct wire_msg *m)
{
	(void)ctx;
	pthread_mutex_lock(&seen.lock);
	seen.type = m->type;
	if (seen.requests < 2048)
		seen.calls[seen.requests] = m->call;
	seen.requests++;
	pthread_mutex_unlock(&seen.lock);
	if (seen.answer_now)
		hub_answer(k, m->type, m->call, 0, NULL, 0, NULL, 0);
}

static void on_down(void *ctx, struct hub_link *k)
{
	(void)ctx;
	seen.down_link = k;
	seen.downs++;
}

static const struct hub_ops ops = { .request = on_request, .down = on_down };

static struct hub *hub;
static struct hub_link *link_of_test;
static int vm; /* the other end */

static void begin(void)
{
	struct err e;
	int p[2];

	seen.requests = seen.downs = 0;
	seen.answer_now = true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0 ||
	    fcntl(p[0], F_SETFL, O_NONBLOCK) < 0 ||
	    hub_new(&hub, &ops, NULL, &e) < 0)
		bail("no hub");
	link_of_test = hub_add(hub, p[0], SESSION, 3, 7, &seen);
	vm = p[1];
}

static void end(void)
{
	hub_unref(link_of_test);
	hub_free(hub);
	if (vm >= 0)
		close(vm);
}

/* --- a call in a thread of its own --------------------------------------- */

struct call {
	pthread_t thread;
	enum wire_type type;
	int timeout_ms, r;
	size_t want;
	struct hub_reply reply;
	struct err e;
	_Atomic bool done;
};

static void *call_main(void *ctx)
{
	struct call *c = ctx;
	struct wire_load q = { .offset = 77 };
	bool load = c->type == WIRE_LOAD;

	c->r = hub_call(link_of_test, c->type, load ? &q : NULL,
			load ? sizeof(q) : 0, NULL, 0, NULL, 0, c->timeout_ms,
			c->want, &c->reply, &c->e);
	c->done = true;
	return NULL;
}

static void call_start(struct call *c, enum wire_type t, size_t want)
{
	*c = (struct call){ .type = t, .timeout_ms = 30000, .want = want };
	if (pthread_create(&c->thread, NULL, call_main, c))
		bail("thread");
}

static void call_end(struct call *c)
{
	pthread_join(c->thread, NULL);
}

/* The next message at cryo-vm's end. */
static void vm_take(struct wire_msg *m)
{
	static struct wire_buf room;
	struct err e;

	if (wire_recv(vm, true, &room, m, &e) < 0)
		bail("cryo-vm got nothing");
}

static void vm_ask(enum wire_type t, uint64_t call)
{
	if (wire_send(vm, t, call, false, 0, NULL, 0, NULL, 0, NULL, 0) < 0)
		bail("cryo-vm can't send");
}

/* --- calls --------------------------------------------------------------- */

static void test_call(void)
{
	int fds[WIRE_IMAGE_FDS], before = fds_count();
	struct wire_loaded l = { .us = 5, .memory_pages = 9 };
	struct wire_load q;
	struct wire_msg m;
	struct call c;

	begin();
	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		fds[i] = fds_memfd(4096, 0);
	call_start(&c, WIRE_LOAD, sizeof(l));
	vm_take(&m);
	wire_body(&m, &q, sizeof(q));
	ok(m.type == WIRE_LOAD && !m.reply && m.call && q.offset == 77,
	   "cryo-vm gets the request");
	wire_send(vm, WIRE_LOAD, m.call, true, 0, &l, sizeof(l), "tail", 4, fds,
		  WIRE_IMAGE_FDS);
	call_end(&c);
	is_int(c.r, 0, "the caller gets the answer");
	ok(c.reply.len == sizeof(l) + 4 && !memcmp(c.reply.body, &l, sizeof(l)),
	   "with its body and tail");
	ok(c.reply.nr_fds == 3 && fds_same(c.reply.fds[2], fds[2]),
	   "and its descriptors");
	hub_reply_done(&c.reply);
	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		close(fds[i]);
	ok(hub_epoch(link_of_test) == 3 && hub_slot(link_of_test) == 7 &&
		   hub_tag(link_of_test) == &seen &&
		   !strcmp(hub_session(link_of_test), SESSION),
	   "a link knows whose it is");
	end();
	is_int(fds_count(), before, "nothing is left open");
}

static void test_refusals(void)
{
	struct wire_msg m;
	struct call c;

	begin();
	call_start(&c, WIRE_PAUSE, 0);
	vm_take(&m);
	wire_send(vm, WIRE_PAUSE, m.call, true, -EINVAL, "not running", 11,
		  NULL, 0, NULL, 0);
	call_end(&c);
	is_int(c.r, -EINVAL, "a refusal is the call's result");
	is_str(c.e.msg, "not running", "with its text");

	call_start(&c, WIRE_PAUSE, sizeof(struct wire_status));
	vm_take(&m);
	wire_send(vm, m.type, m.call, true, 0, "abc", 3, NULL, 0, NULL, 0);
	call_end(&c);
	is_int(c.r, -EPROTO, "an answer that is too short is refused");
	end();
}

/* Answers may come in any order, and twice; each caller gets its own. */
static void test_many(void)
{
	struct call c[8];
	uint64_t number[8];
	struct wire_msg m;
	int good = 0;

	begin();
	for (int i = 0; i < 8; i++)
		call_start(&c[i], WIRE_PAUSE, 0);
	for (int i = 0; i < 8; i++) {
		vm_take(&m);
		number[i] = m.call;
	}
	wire_send(vm, WIRE_PAUSE, 999999, true, 0, NULL, 0, NULL, 0, NULL, 0);
	wire_send(vm, WIRE_CONT, number[0], true, 0, NULL, 0, NULL, 0, NULL, 0);
	for (int i = 7; i >= 0; i--)
		for (int twice = 0; twice < 2; twice++)
			wire_send(vm, WIRE_PAUSE, number[i], true,
				  i % 2 ? -EBUSY : 0, NULL, 0, NULL, 0, NULL, 0);
	for (int i = 0; i < 8; i++) {
		call_end(&c[i]);
		good += c[i].r == 0;
		hub_reply_done(&c[i].reply);
	}
	is_int(good, 4, "eight calls at once get eight answers");
	ok(hub_is_up(link_of_test), "answers to nobody are ignored");
	end();
}

static void test_late_answer(void)
{
	int fds[WIRE_IMAGE_FDS], before;
	struct wire_loaded l = { 0 };
	struct wire_msg m;
	struct call c = { .type = WIRE_LOAD, .timeout_ms = 20 };

	begin();
	before = fds_count();
	call_main(&c);
	is_int(c.r, -ETIMEDOUT, "no answer: the call ends by its deadline");
	ok(strstr(c.e.msg, "LOAD") && strstr(c.e.msg, SESSION),
	   "the error says what was asked of whom: %s", c.e.msg);
	vm_take(&m);
	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		fds[i] = fds_memfd(4096, 0);
	wire_send(vm, WIRE_LOAD, m.call, true, 0, &l, sizeof(l), NULL, 0, fds,
		  WIRE_IMAGE_FDS);
	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		close(fds[i]);
	vm_ask(WIRE_TOKEN, 1);
	vm_take(&m); /* the hub has seen both now */
	is_int(fds_count(), before, "an answer that is late is closed");
	end();
}

/* --- ends ---------------------------------------------------------------- */

static void test_down_in_call(void)
{
	struct wire_msg m;
	struct call c[2];

	begin();
	call_start(&c[0], WIRE_PAUSE, 0);
	call_start(&c[1], WIRE_LOAD, 0);
	vm_take(&m);
	vm_take(&m);
	close(vm);
	vm = -1;
	call_end(&c[0]);
	call_end(&c[1]);
	ok(c[0].r == -EPIPE && c[1].r == -EPIPE, "cryo-vm ends: so do its calls");
	ok(c[0].e.code == ERR_BUSY, "as trouble that may pass");
	ok(wait_for(seen.downs == 1) && seen.down_link == link_of_test,
	   "the end is told once");
	ok(!hub_is_up(link_of_test), "the link is down");
	c[0] = (struct call){ .type = WIRE_PAUSE, .timeout_ms = 1000 };
	call_main(&c[0]);
	is_int(c[0].r, -EPIPE, "later calls end at once");
	hub_answer(link_of_test, WIRE_TOKEN, 1, 0, NULL, 0, NULL, 0);
	hub_close(link_of_test);
	is_int(seen.downs, 1, "and an answer goes nowhere");
	end();
}

static void test_close(void)
{
	struct wire_msg m;
	struct call c;

	begin();
	call_start(&c, WIRE_PAUSE, 0);
	vm_take(&m);
	hub_close(link_of_test);
	call_end(&c);
	is_int(c.r, -EPIPE, "a link that we close ends its calls");
	ok(wait_for(seen.downs == 1), "and is told like any other end");
	end();
}

static void test_stop(void)
{
	int before = fds_count(), p[2];
	struct hub_link *late;
	struct wire_msg m;
	struct call c;
	struct err e;

	begin();
	call_start(&c, WIRE_LOAD, 0);
	vm_take(&m);
	hub_stop(hub);
	call_end(&c);
	is_int(c.r, -EPIPE, "a hub that stops ends calls under way");
	is_int(seen.downs, 0, "silently");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		bail("socketpair");
	late = hub_add(hub, p[0], SESSION, 4, 8, NULL);
	ok(!hub_is_up(late), "a link that comes later is down");
	is_int(hub_call(late, WIRE_PAUSE, NULL, 0, NULL, 0, NULL, 0, 1000, 0,
			NULL, &e),
	       -EPIPE, "and takes no call");
	hub_unref(late);
	close(p[1]);
	end();
	is_int(fds_count(), before, "nothing is left open");
}

/* --- requests ------------------------------------------------------------ */

static void test_requests(void)
{
	struct wire_output o = { .out_end = 5 };
	struct wire_msg m;

	begin();
	vm_ask(WIRE_TOKEN, 41);
	vm_take(&m);
	ok(m.reply && m.type == WIRE_TOKEN && m.call == 41 && m.status == 0,
	   "a request is answered under its number");
	seen.answer_now = false;
	vm_ask(WIRE_PACK_NEW, 42);
	ok(wait_for(seen.requests == 2), "a request may be answered later");
	hub_answer(link_of_test, WIRE_PACK_NEW, 42, -ENOSPC, "full", 4, NULL, 0);
	vm_take(&m);
	ok(m.status == -ENOSPC && m.len == 4, "also with an error");
	wire_send(vm, WIRE_OUTPUT, 0, false, 0, &o, sizeof(o), NULL, 0, NULL, 0);
	ok(wait_for(seen.requests == 3) && seen.type == WIRE_OUTPUT,
	   "notes come without a number");
	hub_answer(link_of_test, WIRE_OUTPUT, 0, 0, NULL, 0, NULL, 0);
	hub_answer(link_of_test, WIRE_TOKEN, 43, 0, NULL, 0, NULL, 0);
	vm_ask(WIRE_TOKEN, 44);
	wait_for(seen.requests == 4);
	hub_answer(link_of_test, WIRE_TOKEN, 44, 0, NULL, 0, NULL, 0);
	vm_take(&m);
	is_int(m.call, 44, "what nobody asked is not answered");
	end();
}

static void test_broken(void)
{
	begin();
	if (send(vm, "rubbish", 7, 0) != 7)
		bail("send");
	ok(wait_for(seen.downs == 1),
	   "who does not speak the protocol is cut off");
	is_int(seen.requests, 0, "and nothing of it is delivered");
	end();
}

/*
 * cryo-vm asks and does not read. Each answer carries 512 bytes of text, so
 * that the socket fills long before the limit of open requests.
 */
static void test_deaf(void)
{
	char text[512];
	int64_t since;
	struct wire_msg m;
	int wrong = 0, before;

	begin();
	before = fds_count();
	seen.answer_now = false;
	memset(text, 't', sizeof(text));
	for (uint64_t i = 1; i <= 400; i++)
		vm_ask(WIRE_PACK_NEW, i);
	ok(wait_for(seen.requests == 400), "400 requests are taken");
	since = fds_now_ns();
	for (uint64_t i = 1; i <= 400; i++) {
		int fd = fds_memfd(4096, 0);

		if (i % 2)
			hub_answer(link_of_test, WIRE_PACK_NEW, i, 0, text,
				   sizeof(text), &fd, 1);
		else
			hub_answer(link_of_test, WIRE_PACK_NEW, i, -EIO, text,
				   sizeof(text), NULL, 0);
		close(fd);
	}
	ok(fds_now_ns() - since < 2000000000ll,
	   "whoever answers does not wait for a reader");
	for (uint64_t i = 1; i <= 400; i++) {
		vm_take(&m);
		wrong += m.call != i || m.len != sizeof(text) ||
			 m.nr_fds != (int)(i % 2);
		wire_msg_done(&m);
	}
	is_int(wrong, 0, "once it reads it gets all of them, in order");
	ok(wait_for(fds_count() == before), "and no descriptor stays");
	end();
}

static void test_flood(void)
{
	int sent = 0;

	begin();
	seen.answer_now = false;
	while (sent < 600 && wire_send(vm, WIRE_TOKEN, (uint64_t)sent + 1,
				       false, 0, NULL, 0, NULL, 0, NULL, 0) == 0)
		sent++;
	ok(wait_for(seen.downs == 1), "more than 512 open requests are too many");
	is_int(seen.requests, 512, "so many were delivered");
	end();
}

/* Answers wait in the link when cryo-vm ends: all is let go. */
static void test_deaf_end(void)
{
	int before = fds_count();
	char text[1024] = { 1 };

	begin();
	seen.answer_now = false;
	for (uint64_t i = 1; i <= 400; i++)
		vm_ask(WIRE_PACK_NEW, i);
	wait_for(seen.requests == 400);
	for (uint64_t i = 1; i <= 400; i++) {
		int fd = fds_memfd(4096, 0);

		hub_answer(link_of_test, WIRE_PACK_NEW, i, 0, text,
			   sizeof(text), &fd, 1);
		close(fd);
	}
	close(vm);
	vm = -1;
	ok(wait_for(seen.downs == 1), "a deaf cryo-vm ends");
	end();
	is_int(fds_count(), before, "and what waited for it is let go");
}

int main(void)
{
	int before = fds_count();

	test_call();
	test_refusals();
	test_many();
	test_late_answer();
	test_down_in_call();
	test_close();
	test_stop();
	test_requests();
	test_broken();
	test_deaf();
	test_flood();
	test_deaf_end();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
