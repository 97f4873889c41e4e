/*
 * The messages between cryod and a cryo-vm: what is sent arrives, with its
 * descriptors; whatever else may come from the other end is refused, and its
 * descriptors are closed.
 */
#include "core/wire.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tests/fds.h"
#include "tests/tap.h"

static int pair[2]; /* 0: cryod, 1: cryo-vm */
static struct wire_buf room;

static void open_pair(void)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       0, pair) < 0)
		bail("socketpair");
}

static void close_pair(void)
{
	close(pair[0]);
	close(pair[1]);
}

/* Sends bytes as they are, with n descriptors of ours. */
static void send_raw(int fd, const void *p, size_t len, int n)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(32 * sizeof(int))];
	} control = { .buf = { 0 } };
	union {
		const void *in;
		void *out;
	} u = { .in = p };
	struct iovec iov = { .iov_base = u.out, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n) {
		struct cmsghdr *c = &control.align;

		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		for (int i = 0; i < n; i++)
			memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int),
			       &(int){ STDOUT_FILENO }, sizeof(int));
	}
	if (sendmsg(fd, &m, 0) < 0)
		bail("sendmsg");
}

/* --- what the documents say ---------------------------------------------- */

/*
 * A PAUSE with call number 7, byte by byte as docs/adr/0081 has it: 32 bytes
 * of header, no body.
 */
static void test_bytes(void)
{
	static const uint8_t want[32] = {
		'C', 'R', 'Y', 'O', /* magic */
		1,   0, /* version */
		6,   0, /* type */
		0,   0,	  0,   0, /* flags */
		0,   0,	  0,   0, /* status */
		7,   0,	  0,   0,   0, 0, 0, 0, /* call */
	};
	uint8_t got[64];

	open_pair();
	is_int(wire_send(pair[0], WIRE_PAUSE, 7, false, 0, NULL, 0, NULL, 0,
			 NULL, 0),
	       0, "a request without a body is sent");
	is_int(recv(pair[1], got, sizeof(got), 0), 32, "as 32 bytes");
	is_mem(got, want, 32, "that are those of the document");
	close_pair();
	is_str(wire_type_name(WIRE_PACK_OPEN), "PACK_OPEN", "types have names");
	is_str(wire_type_name(WIRE_NR), "?", "and others have none");
}

static void test_descriptors(void)
{
	struct wire_pack_id q = { .id = { 1, 2, 3 } };
	struct wire_pack p = { .id = { 1, 2, 3 }, .key = { 9 } }, back;
	int before, file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), got;
	struct wire_msg m;
	struct err e;

	open_pair();
	before = fds_count();
	wire_send(pair[1], WIRE_PACK_OPEN, 5, false, 0, &q, sizeof(q), NULL, 0,
		  NULL, 0);
	is_int(wire_recv(pair[0], false, &room, &m, &e), 0, "PACK_OPEN arrives");
	ok(m.type == WIRE_PACK_OPEN && !m.reply && m.call == 5 && !m.nr_fds,
	   "as it was sent");
	is_mem(m.body, &q, sizeof(q), "with its body");
	wire_msg_done(&m);

	wire_send(pair[0], WIRE_PACK_OPEN, 5, true, 0, &p, sizeof(p), NULL, 0,
		  &file, 1);
	is_int(wire_recv(pair[1], true, &room, &m, &e), 0, "so does its reply");
	ok(m.reply && m.nr_fds == 1 && wire_body(&m, &back, sizeof(back)) == 0 &&
		   !memcmp(&back, &p, sizeof(p)),
	   "with body and descriptor");
	got = wire_take_fd(&m, 0);
	ok(got != file && fds_same(got, file), "which is the file's");
	ok(fcntl(got, F_GETFD) & FD_CLOEXEC, "and close-on-exec");
	is_int(wire_body(&m, &back, m.len + 1), -EPROTO,
	       "more than the body is not copied");
	wire_msg_done(&m);
	is_int(fds_count(), before + 1, "what was taken stays open");
	close(got);

	wire_send(pair[0], WIRE_PACK_OPEN, 6, true, 0, &p, sizeof(p), NULL, 0,
		  &file, 1);
	wire_recv(pair[1], true, &room, &m, &e);
	wire_msg_done(&m);
	is_int(fds_count(), before, "what nobody took is closed");
	close(file);
	close_pair();
}

static void test_tail_and_errors(void)
{
	static uint8_t big[WIRE_BODY_MAX - sizeof(struct wire_stdin)];
	struct wire_stdin q = { .tag = "a0000000000000000000", .offset = 11 };
	struct wire_msg m;
	struct err e;

	memset(big, 0xa5, sizeof(big));
	open_pair();
	is_int(wire_send(pair[0], WIRE_STDIN, 1, false, 0, &q, sizeof(q), big,
			 sizeof(big), NULL, 0),
	       0, "the largest message is sent");
	is_int(wire_recv(pair[1], true, &room, &m, &e), 0, "and taken");
	ok(m.len == WIRE_BODY_MAX && !memcmp(m.body, &q, sizeof(q)) &&
		   !memcmp(m.body + sizeof(q), big, sizeof(big)),
	   "whole: fixed part, then tail");
	wire_send(pair[1], WIRE_STDIN, 1, true, -EPIPE, "closed", 6, NULL, 0,
		  NULL, 0);
	wire_recv(pair[0], false, &room, &m, &e);
	ok(m.reply && m.status == -EPIPE && m.len == 6 &&
		   !memcmp(m.body, "closed", 6),
	   "an error travels with its text");
	is_int(wire_recv(pair[0], false, &room, &m, &e), -EAGAIN,
	       "an empty socket is -EAGAIN");
	close(pair[1]);
	is_int(wire_recv(pair[0], false, &room, &m, &e), -EPIPE,
	       "the end is -EPIPE");
	is_int(wire_send(pair[0], WIRE_PAUSE, 1, false, 0, NULL, 0, NULL, 0,
			 NULL, 0),
	       -EPIPE, "nothing is sent to nobody, and no signal comes");
	close(pair[0]);
}

static void test_full_socket(void)
{
	struct wire_output note = { .out_end = 1 };
	int sent = 0, r = 0;

	open_pair();
	while (r == 0 && sent < 100000) {
		r = wire_send_now(pair[1], WIRE_OUTPUT, 0, false, 0, &note,
				  sizeof(note), NULL, 0, NULL, 0);
		sent += r == 0;
	}
	is_int(r, -EAGAIN, "a full socket is -EAGAIN (after %d notes)", sent);
	close_pair();
}

/* --- what is refused ----------------------------------------------------- */

struct bad {
	const char *what, *why; /* why: in the error */
	bool to_daemon;
	int fds;
	size_t len; /* of the packet */
	struct wire_hdr h;
};

#define HDR(t, ...)                                           \
	{                                                     \
		.magic = WIRE_MAGIC, .version = WIRE_VERSION, \
		.type = WIRE_##t, .call = 1, __VA_ARGS__      \
	}
#define LEN(n) (sizeof(struct wire_hdr) + (n))

static const struct bad bads[] = {
	{ "a short header", "not a message", true, 1, 31, HDR(TOKEN) },
	{ "another magic",
	  "not a message",
	  true,
	  0,
	  LEN(0),
	  { .magic = 0x4f595242, .version = 1, .type = WIRE_TOKEN } },
	{ "another version",
	  "version",
	  true,
	  0,
	  LEN(0),
	  { .magic = WIRE_MAGIC, .version = 2, .type = WIRE_TOKEN } },
	{ "type 0", "unknown type", true, 0, LEN(0), HDR(NONE) },
	{ "type past the table", "unknown type", true, 1, LEN(0), HDR(NR) },
	{ "an unknown flag", "flags", true, 0, LEN(0), HDR(TOKEN, .flags = 2) },
	{ "a reserved field", "flags", true, 0, LEN(0),
	  HDR(TOKEN, .reserved = 1) },
	{ "a length over the packet's", "length", true, 0, LEN(0),
	  HDR(TOKEN, .len = 1) },
	{ "a length under it", "length", true, 0, LEN(1), HDR(TOKEN) },
	{ "a body too long", "body size", true, 0, LEN(1), HDR(TOKEN, .len = 1) },
	{ "a body too short", "body size", true, 0, LEN(15),
	  HDR(PACK_OPEN, .len = 15) },
	{ "a tail where none may be", "body size", true, 0, LEN(17),
	  HDR(PACK_OPEN, .len = 17) },
	{ "a request of the daemon, to it", "direction", true, 0, LEN(0),
	  HDR(PAUSE) },
	{ "a request of cryo-vm, to it", "direction", false, 0, LEN(0),
	  HDR(TOKEN) },
	{ "a reply to a request of its own", "direction", true, 0, LEN(0),
	  HDR(TOKEN, .flags = WIRE_REPLY) },
	{ "a descriptor too many", "descriptors", true, 1, LEN(0), HDR(TOKEN) },
	{ "a descriptor too few", "descriptors", false, 1,
	  LEN(sizeof(struct wire_setup)),
	  HDR(SETUP, .len = sizeof(struct wire_setup)) },
	{ "more descriptors than any message has", "truncated", true, 30,
	  LEN(0), HDR(TOKEN) },
	{ "one more than the largest may have", "truncated", false,
	  WIRE_START_FDS + 1, LEN(sizeof(struct wire_start)),
	  HDR(START, .len = sizeof(struct wire_start)) },
	{ "descriptors with an error", "descriptors", true, 3, LEN(0),
	  HDR(LOAD, .flags = WIRE_REPLY, .status = -5) },
	{ "an answer to LOAD without its image", "descriptors", true, 0, LEN(0),
	  HDR(LOAD, .flags = WIRE_REPLY) },
	{ "a positive status, which is neither", "status", true, 0, LEN(0),
	  HDR(LOAD, .flags = WIRE_REPLY, .status = 1) },
	{ "an absurd status", "status", true, 0, LEN(0),
	  HDR(PAUSE, .flags = WIRE_REPLY, .status = INT32_MIN) },
	{ "a request with a status", "status", true, 0, LEN(0),
	  HDR(TOKEN, .status = -1) },
};

static void test_refused(void)
{
	static uint8_t raw[sizeof(struct wire_hdr) + WIRE_BODY_MAX + 1];
	int before;

	open_pair();
	for (size_t i = 0; i < ARRAY_LEN(bads); i++) {
		const struct bad *b = &bads[i];
		int from = b->to_daemon ? 1 : 0, r;
		struct wire_msg m;
		struct err e = { 0 };

		before = fds_count();
		memset(raw, 0, sizeof(raw));
		memcpy(raw, &b->h, sizeof(b->h));
		send_raw(pair[from], raw, b->len, b->fds);
		r = wire_recv(pair[!from], !b->to_daemon, &room, &m, &e);
		ok(r == -EPROTO && strstr(e.msg, b->why) && fds_count() == before,
		   "refused: %s (%s)", b->what, e.msg);
	}
	before = fds_count();
	send_raw(pair[1], raw, 0, 5);
	is_int(wire_recv(pair[0], false, &room, &(struct wire_msg){ 0 },
			 &(struct err){ 0 }),
	       -EPIPE, "an empty packet is like the end");
	is_int(fds_count(), before, "also one with descriptors");
	memset(raw, 0, sizeof(raw));
	memcpy(raw, &(struct wire_hdr)HDR(STDIN, .len = WIRE_BODY_MAX + 1),
	       sizeof(struct wire_hdr));
	send_raw(pair[0], raw, sizeof(raw), 0);
	is_int(wire_recv(pair[1], true, &room, &(struct wire_msg){ 0 },
			 &(struct err){ 0 }),
	       -EPROTO, "refused: a packet that does not fit");
	close_pair();
}

/* Any packet is taken or refused, and no descriptor is left behind. */
static void test_law(void)
{
	uint64_t seed = tap_seed();
	int before, taken = 0;

	open_pair();
	before = fds_count();
	for (int i = 0; i < 20000; i++) {
		struct wire_hdr h = HDR(TOKEN);
		uint8_t raw[256] = { 0 };
		size_t len = tap_rand(&seed) % 200;
		bool to_daemon = tap_rand(&seed) & 1;
		struct wire_msg m;
		struct err e;

		h.type = (uint16_t)(tap_rand(&seed) % (WIRE_NR + 1));
		h.flags = (uint32_t)(tap_rand(&seed) % 3);
		h.len = (uint32_t)len;
		h.status = (int32_t)(tap_rand(&seed) % 3) - 1;
		memcpy(raw, &h, sizeof(h));
		send_raw(pair[to_daemon], raw, sizeof(h) + len,
			 (int)(tap_rand(&seed) % 4));
		if (wire_recv(pair[!to_daemon], !to_daemon, &room, &m, &e) < 0)
			continue;
		taken++;
		if (m.len != len || m.type != h.type || m.status != h.status)
			bail("packet %d was changed", i);
		wire_msg_done(&m);
	}
	is_int(fds_count(), before, "no descriptor is left after 20000 packets");
	ok(taken > 100, "%d of them were right", taken);
	close_pair();
}

static void test_text(void)
{
	char good[8] = "seven77", bad[8];

	memset(bad, 'x', sizeof(bad));
	ok(WIRE_TEXT(good) && !strcmp(good, "seven77"), "text that ends is kept");
	ok(!WIRE_TEXT(bad) && !strcmp(bad, "xxxxxxx"),
	   "text that doesn't is cut");
}

int main(void)
{
	int before = fds_count();

	test_bytes();
	test_descriptors();
	test_tail_and_errors();
	test_full_socket();
	test_refused();
	test_law();
	test_text();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
