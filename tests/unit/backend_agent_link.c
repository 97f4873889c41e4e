/*
 * The host's link against an agent played by this test, frame by frame:
 * answers, lateness, resets, lies.
 */
#include "core/backend/agent_link.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define TAG "a0123456789bcdefghij"

struct peer {
	struct agent_link *l;
	int fd; /* the agent's end */
	struct agent_dec dec;
	int outs, exits, acks, broken;
	struct err err;
	int answers, ret;
	enum agent_type got;
	struct agent_link_renewed renewed;
	int renewals;
};

static void on_out(void *ctx, const struct agent_out *o)
{
	struct peer *p = ctx;

	p->outs += (int)o->data.len;
}

static void on_exited(void *ctx, const struct agent_exited *x)
{
	struct peer *p = ctx;

	p->exits += (int)x->code;
}

static void on_stdin_ack(void *ctx, const struct agent_stdin_ack *a)
{
	struct peer *p = ctx;

	p->acks += (int)a->offset;
}

static void on_broken(void *ctx, const struct err *e)
{
	struct peer *p = ctx;

	p->broken++;
	p->err = *e;
}

static void on_answer(void *ctx, int ret, const struct agent_msg *m,
		      const struct err *e)
{
	struct peer *p = ctx;

	p->answers++;
	p->ret = ret;
	p->got = m ? m->type : 0;
	if (e)
		p->err = *e;
}

static void on_renewed(void *ctx, const struct agent_link_renewed *r)
{
	struct peer *p = ctx;

	p->renewals++;
	p->renewed = *r;
}

static const struct agent_link_ops ops = { on_out, on_exited, on_stdin_ack,
					   on_broken };

static void open_peer(struct peer *p)
{
	int s[2];

	memset(p, 0, sizeof(*p));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		bail("socketpair");
	p->fd = s[1];
	fcntl(p->fd, F_SETFL, O_NONBLOCK);
	agent_dec_init(&p->dec, AGENT_GUEST);
	p->l = agent_link_new(s[0], &ops, p);
}

static void close_peer(struct peer *p)
{
	agent_link_free(p->l);
	agent_dec_done(&p->dec);
	close(p->fd);
}

/* The next request that the link has sent; false if there is none. */
static bool request(struct peer *p, struct agent_msg *m)
{
	for (int i = 0; i < 100; i++) {
		size_t room;
		void *to;
		ssize_t n;

		agent_link_ready(p->l, EPOLLOUT);
		while (agent_dec_next(&p->dec, m) == 1)
			return true;
		to = agent_dec_room(&p->dec, &room);
		n = read(p->fd, to, room);
		if (n <= 0)
			return false;
		agent_dec_fed(&p->dec, (size_t)n);
	}
	return false;
}

static void say(struct peer *p, const struct agent_msg *m)
{
	struct buf b SCOPED(buf_done) = { 0 };

	if (agent_msg_encode(&b, m) || base_write_all(p->fd, b.p, b.len))
		bail("the agent's part");
	agent_link_ready(p->l, EPOLLIN);
}

static void say_hello(struct peer *p, uint64_t nonce)
{
	static const uint8_t boot[16];
	struct agent_msg m = { .type = AGENT_HELLO, .id = nonce };

	m.hello = (struct agent_hello){ .version = 1,
					.boot_id = { boot, 16 },
					.nr_cpus = 1 };
	say(p, &m);
}

/* Opens, resets and answers. */
static void start(struct peer *p)
{
	struct agent_msg m;
	struct err e;

	open_peer(p);
	if (agent_link_reset(p->l, true, 1000, on_answer, p, &e) ||
	    !request(p, &m))
		bail("reset");
	say_hello(p, m.id);
	if (p->answers != 1 || !agent_link_up(p->l))
		bail("no HELLO");
	p->answers = 0;
}

static void test_reset(void)
{
	struct agent_msg m, ping = { .type = AGENT_PING };
	struct peer p;
	struct err e;
	uint64_t nonce;
	char junk[300];

	open_peer(&p);
	is_int(agent_link_events(p.l), EPOLLIN, "nothing to write yet");
	is_int(agent_link_reset(p.l, false, 1000, on_answer, &p, &e), 0, "reset");
	is_int(agent_link_queued(p.l),
	       AGENT_PAD_LEN + AGENT_HEADER_LEN + 4 + AGENT_TRAILER_LEN,
	       "padding and a frame wait");
	is_int(agent_link_events(p.l), EPOLLIN | EPOLLOUT, "to be written");
	ok(request(&p, &m) && m.type == AGENT_RESET, "RESET arrives");
	nonce = m.id;
	ok(nonce != 0, "with a nonce");
	memset(junk, 0xf5, sizeof(junk));
	is_int(write(p.fd, junk, sizeof(junk)), sizeof(junk), "old bytes");
	say_hello(&p, nonce + 1);
	is_int(p.answers, 0, "another's HELLO is no answer");
	say_hello(&p, nonce);
	is_int(p.answers, 1, "ours is");
	ok(agent_link_up(p.l), "and the link is up");
	agent_link_call(p.l, &ping, 1000, on_answer, &p, &e);
	is_int(agent_link_reset(p.l, true, 1000, on_answer, &p, &e), 0,
	       "reset again");
	is_int(p.answers, 2, "ends the open call");
	is_int(p.ret, -ECONNRESET, "with ECONNRESET");
	ok(!agent_link_up(p.l), "and the link is down");
	ok(request(&p, &m) && m.type == AGENT_RESET && m.id != nonce,
	   "the PING was dropped, the nonce is new");
	close_peer(&p);
	is_int(p.answers, 3, "free ends the last call");
	is_int(p.ret, -EPIPE, "with EPIPE");
	is_int(p.broken, 0, "which is no breakage");
}

static void test_answers(void)
{
	struct agent_msg m, ping = { .type = AGENT_PING };
	struct peer p;
	struct err e;

	start(&p);
	is_int(agent_link_call(p.l, &ping, 1000, on_answer, &p, &e), 0, "PING");
	request(&p, &m);
	is_int(m.type, AGENT_PING, "arrives");
	m = (struct agent_msg){ .type = AGENT_PONG, .id = m.id + 1 };
	say(&p, &m);
	is_int(p.answers, 0, "an unknown id is passed over");
	m.id--;
	say(&p, &m);
	is_int(p.answers, 1, "ours is answered");
	is_int(p.got, AGENT_PONG, "by PONG");
	say(&p, &m);
	is_int(p.answers, 1, "once");
	agent_link_call(p.l, &ping, 1000, on_answer, &p, &e);
	request(&p, &m);
	m = (struct agent_msg){ .type = AGENT_FAILED, .id = m.id };
	m.failed = (struct agent_failed){ ENOENT, "not\033[2Jhere" };
	say(&p, &m);
	is_int(p.ret, -ENOENT, "FAILED gives its errno");
	is_str(p.err.msg, "in the guest: not?[2Jhere",
	       "and its text, with nothing for a terminal");
	is_int(p.err.code, ERR_NOT_FOUND, "and a word");
	close_peer(&p);
}

static void test_late(void)
{
	struct timespec t = { .tv_nsec = 30000000 };
	struct agent_msg m, ping = { .type = AGENT_PING };
	struct peer p;
	struct err e;
	int64_t at;

	start(&p);
	is_int(agent_link_deadline(p.l), INT64_MAX, "no deadline");
	agent_link_call(p.l, &ping, 20, on_answer, &p, &e);
	at = agent_link_deadline(p.l);
	agent_link_call(p.l, &ping, 5000, on_answer, &p, &e);
	ok(at != INT64_MAX && agent_link_deadline(p.l) == at,
	   "the earliest counts");
	agent_link_tick(p.l);
	is_int(p.answers, 0, "not yet");
	nanosleep(&t, NULL);
	agent_link_tick(p.l);
	is_int(p.answers, 1, "now");
	is_int(p.ret, -ETIMEDOUT, "ETIMEDOUT");
	request(&p, &m);
	m.type = AGENT_PONG;
	m.pong = (struct agent_pong){ 0 };
	say(&p, &m);
	is_int(p.answers, 1, "its late reply is dropped");
	is_int(p.broken, 0, "and does no harm");
	close_peer(&p);
}

static void test_notes(void)
{
	struct peer p;
	struct agent_msg m = { .type = AGENT_OUT };

	start(&p);
	m.out = (struct agent_out){ TAG, 2, 5, { (const uint8_t *)"abc", 3 } };
	say(&p, &m);
	is_int(p.outs, 3, "OUT");
	m = (struct agent_msg){ .type = AGENT_EXITED };
	m.exited = (struct agent_exited){ TAG, 4, 0, 0, 0, 0, 0 };
	say(&p, &m);
	is_int(p.exits, 4, "EXITED");
	m = (struct agent_msg){ .type = AGENT_STDIN_ACK };
	m.stdin_ack = (struct agent_stdin_ack){ TAG, 9, 0 };
	say(&p, &m);
	is_int(p.acks, 9, "STDIN_ACK");
	close_peer(&p);
}

static void broken_by(const char *name, void (*how)(struct peer *p))
{
	struct agent_msg ping = { .type = AGENT_PING };
	struct peer p;
	struct err e;

	start(&p);
	agent_link_call(p.l, &ping, 1000, on_answer, &p, &e);
	how(&p);
	is_int(p.broken, 1, "%s breaks the link: %s", name, p.err.msg);
	is_int(p.answers, 1, "the open call is ended");
	is_int(p.ret, -EPIPE, "with EPIPE");
	is_int(agent_link_fd(p.l), -1, "nothing to watch any more");
	is_int(agent_link_call(p.l, &ping, 1000, on_answer, &p, &e), -EPIPE,
	       "calls are refused");
	agent_link_ready(p.l, EPOLLIN);
	is_int(p.broken, 1, "told once");
	close_peer(&p);
}

static void by_hangup(struct peer *p)
{
	shutdown(p->fd, SHUT_RDWR);
	agent_link_ready(p->l, EPOLLIN | EPOLLHUP);
}

static void by_junk(struct peer *p)
{
	static const char junk[64] = "this is no frame of the protocol at all";

	base_write_all(p->fd, junk, sizeof(junk));
	agent_link_ready(p->l, EPOLLIN);
}

/* A reply of another type than was asked for. */
static void by_wrong_type(struct peer *p)
{
	struct agent_msg m;

	request(p, &m);
	m = (struct agent_msg){ .type = AGENT_UNQUIESCED, .id = m.id };
	say(p, &m);
}

static void test_bounds(void)
{
	struct agent_msg ping = { .type = AGENT_PING };
	static const uint8_t data[AGENT_DATA_MAX];
	struct peer p;
	struct err e;
	int n = 0, r;

	start(&p);
	while (!(r = agent_link_call(p.l, &ping, 1000, on_answer, &p, &e)))
		n++;
	is_int(n, AGENT_LINK_CALLS_MAX, "so many calls wait");
	is_int(r, -EAGAIN, "then EAGAIN: %s", e.msg);
	while (!(r = agent_link_stdin(p.l, TAG, 0, data, sizeof(data), false, &e)))
		n++;
	is_int(r, -EAGAIN, "the queue is bounded too: %s", e.msg);
	ok(agent_link_queued(p.l) <= AGENT_LINK_QUEUE_MAX, "%zu bytes",
	   agent_link_queued(p.l));
	is_int(agent_link_signal(p.l, "no tag", 9, 0, NULL, NULL, &e), -EAGAIN,
	       "for all");
	close_peer(&p);
	start(&p);
	is_int(agent_link_signal(p.l, "no tag", 9, 1000, on_answer, &p, &e),
	       -EINVAL, "what can't be said is refused: %s", e.msg);
	is_int(p.answers, 0, "without an answer");
	close_peer(&p);
}

static struct agent_link_renew renewal(void)
{
	struct agent_link_renew r = { .wall_ns = 1234567890123456789 };

	memset(r.seed, 5, sizeof(r.seed));
	r.generation =
		(struct agent_generation){ 3, AGENT_GENERATION_FORK, "s", "host",
					   "0123456789abcdef0123456789abcdef" };
	return r;
}

static void test_renew(void)
{
	struct agent_link_renew r = renewal();
	struct agent_msg m[4], a;
	struct peer p;
	struct err e;

	start(&p);
	is_int(agent_link_renew(p.l, &r, 1000, on_renewed, &p, &e), 0, "renew");
	is_int(agent_link_renew(p.l, &r, 1000, on_renewed, &p, &e), -EBUSY,
	       "one at a time");
	for (int i = 0; i < 4; i++) {
		if (!request(&p, &m[i]))
			bail("four orders");
		if (m[i].type == AGENT_SETTIME)
			is_int(m[i].settime.wall_ns, 1234567890123456789,
			       "the time");
		if (m[i].type == AGENT_RESEED)
			is_mem(m[i].reseed.seed.p, r.seed, 64, "the seed");
	}
	ok(m[0].type == AGENT_SETTIME && m[1].type == AGENT_RESEED &&
		   m[2].type == AGENT_GENERATION && m[3].type == AGENT_UNQUIESCE,
	   "in this order");
	a = (struct agent_msg){ .type = AGENT_SETTIME_DONE, .id = m[0].id };
	a.settime_done = (struct agent_settime_done){ -7, 1 };
	say(&p, &a);
	a = (struct agent_msg){ .type = AGENT_RESEED_DONE, .id = m[1].id };
	a.reseed_done.bits = 512;
	say(&p, &a);
	a = (struct agent_msg){ .type = AGENT_GENERATION_DONE, .id = m[2].id };
	a.generation_done.done = AGENT_DONE_FILE | AGENT_DONE_MACHINE_ID;
	say(&p, &a);
	is_int(p.renewals, 0, "not before the last");
	a = (struct agent_msg){ .type = AGENT_UNQUIESCED, .id = m[3].id };
	say(&p, &a);
	is_int(p.renewals, 1, "then told once");
	is_int(p.renewed.ret, 0, "good");
	is_int(p.renewed.renewed,
	       AGENT_RENEWED_CLOCK | AGENT_RENEWED_RNG |
		       AGENT_RENEWED_GENERATION | AGENT_RENEWED_MACHINE_ID,
	       "what was renewed, no more");
	is_int(p.renewed.clock_jump_ns, -7, "the jump");
	is_int(p.renewed.seed_bits, 512, "the bits");
	ok(p.renewed.us >= 0 && p.renewed.us < 60000000, "the time it took");
	close_peer(&p);
}

static void test_renew_failed(void)
{
	struct agent_link_renew r = renewal();
	struct agent_msg m[4], a;
	struct peer p;
	struct err e;

	start(&p);
	agent_link_renew(p.l, &r, 1000, on_renewed, &p, &e);
	for (int i = 0; i < 4; i++)
		if (!request(&p, &m[i]))
			bail("four orders");
	a = (struct agent_msg){ .type = AGENT_SETTIME_DONE, .id = m[0].id };
	say(&p, &a);
	a = (struct agent_msg){ .type = AGENT_FAILED, .id = m[1].id };
	a.failed = (struct agent_failed){ EPERM, "no" };
	say(&p, &a);
	is_int(p.renewals, 0, "others are awaited");
	close_peer(&p); /* the rest never comes */
	is_int(p.renewals, 1, "told at the end");
	is_int(p.renewed.ret, -EPERM, "with the first failure");
	is_str(p.renewed.err.msg, "in the guest: no", "and its words");
	is_int(p.renewed.renewed, AGENT_RENEWED_CLOCK, "only the clock");
	start(&p);
	r.generation.machine_id = "longer than thirty-two characters";
	is_int(agent_link_renew(p.l, &r, 1000, on_renewed, &p, &e), 0,
	       "a bad order among good ones");
	close_peer(&p);
	is_int(p.renewed.ret, -EINVAL, "is a failure of the renewal");
}

int main(void)
{
	test_reset();
	test_answers();
	test_late();
	test_notes();
	broken_by("a hang-up", by_hangup);
	broken_by("junk", by_junk);
	broken_by("a reply of another type", by_wrong_type);
	test_bounds();
	test_renew();
	test_renew_failed();
	return tap_done();
}
