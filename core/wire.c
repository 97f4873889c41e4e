/*
 * wire: see wire.h. Everything that crosses between `cryod` and a `cryo-vm`
 * passes through wire_recv(), the one decoder of these bytes.
 *
 * Invariants: 1. a message is looked at only after its header, size,
 * direction and descriptor count agree with the table. 2. Descriptors that
 * came with a refused message are closed. 3. A packet is sent whole or not.
 */
#include "core/wire.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/clock.h"

#define WIRE_SEND_TIMEOUT_NS (5 * NS_PER_S)

struct wire_rule {
	const char *name;
	bool daemon_asks, tail;
	size_t fixed;
	int fds, reply_fds;
};

#define WIRE_D true
#define WIRE_V false

static const struct wire_rule wire_rules[WIRE_NR] = {
#define X(n, dir, size, has_tail, nr, reply_nr)   \
	[WIRE_##n] = { .name = #n,                \
		       .daemon_asks = WIRE_##dir, \
		       .tail = has_tail,          \
		       .fixed = size,             \
		       .fds = nr,                 \
		       .reply_fds = reply_nr },
	WIRE_TYPES(X)
#undef X
};

const char *wire_type_name(enum wire_type t)
{
	return t > WIRE_NONE && t < WIRE_NR ? wire_rules[t].name : "?";
}

static int wire_send_wait(int fd, int64_t until)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int64_t left = until - clock_mono(&clock_real);
	int r = left > 0 ? poll(&p, 1, (int)(left / NS_PER_MS) + 1) : 0;

	if (r < 0)
		return errno == EINTR ? 0 : -errno;
	return r == 0 ? -ETIMEDOUT : 0;
}

/* Puts the descriptors beside the message; `control` is the room for them. */
static void wire_put_fds(struct msghdr *m, void *control, const int *fds,
			 int nr_fds)
{
	size_t len = (size_t)nr_fds * sizeof(int);
	struct cmsghdr *c;

	m->msg_control = control;
	m->msg_controllen = CMSG_SPACE(len);
	c = CMSG_FIRSTHDR(m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), fds, len);
}

int wire_send_now(int fd, enum wire_type type, uint64_t call, bool reply,
		  int status, const void *fixed, size_t fixed_len,
		  const void *tail, size_t tail_len, const int *fds, int nr_fds)
{
	struct wire_hdr h = {
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = (uint16_t)type,
		.flags = reply ? WIRE_REPLY : 0,
		.status = status,
		.call = call,
		.len = (uint32_t)(fixed_len + tail_len),
	};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
	} control = { .buf = { 0 } };
	union {
		const void *in;
		void *out;
	} f = { .in = fixed }, t = { .in = tail };
	struct iovec iov[3] = {
		{ .iov_base = &h, .iov_len = sizeof(h) },
		{ .iov_base = f.out, .iov_len = fixed_len },
		{ .iov_base = t.out, .iov_len = tail_len },
	};
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 3 };
	ssize_t n;

	PRE(fixed_len + tail_len <= WIRE_BODY_MAX);
	PRE(nr_fds >= 0 && nr_fds <= WIRE_FDS_MAX);
	PRE(reply || status == 0);
	PRE(status <= 0);
	if (nr_fds > 0)
		wire_put_fds(&m, control.buf, fds, nr_fds);
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int wire_send(int fd, enum wire_type type, uint64_t call, bool reply,
	      int status, const void *fixed, size_t fixed_len, const void *tail,
	      size_t tail_len, const int *fds, int nr_fds)
{
	int64_t until = clock_mono(&clock_real) + WIRE_SEND_TIMEOUT_NS;

	for (;;) {
		int r = wire_send_now(fd, type, call, reply, status, fixed,
				      fixed_len, tail, tail_len, fds, nr_fds);

		if (r != -EAGAIN)
			return r;
		r = wire_send_wait(fd, until);
		if (r < 0)
			return r;
	}
}

/* False if there were more than a message may have; those are closed. */
static bool wire_collect_fds(struct msghdr *m, struct wire_msg *msg)
{
	bool fit = true;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (msg->nr_fds < WIRE_FDS_MAX) {
				msg->fds[msg->nr_fds++] = fd;
			} else {
				close(fd);
				fit = false;
			}
		}
	}
	return fit;
}

/* What the table says of this message; NULL or the complaint. */
static const char *wire_complaint(const struct wire_hdr *h, size_t got,
				  bool from_daemon, int nr_fds)
{
	const struct wire_rule *r;
	bool reply = h->flags & WIRE_REPLY;

	if (got < sizeof(*h) || h->magic != WIRE_MAGIC)
		return "not a message of cryo";
	if (h->version != WIRE_VERSION)
		return "another version of the protocol";
	if (h->type <= WIRE_NONE || h->type >= WIRE_NR || h->reserved ||
	    (h->flags & ~WIRE_REPLY))
		return "unknown type or flags";
	if (h->len != got - sizeof(*h) || h->len > WIRE_BODY_MAX)
		return "wrong length";
	r = &wire_rules[h->type];
	if (reply != (r->daemon_asks != from_daemon))
		return "wrong direction";
	if (reply ? h->status > 0 || h->status < -4095 : h->status != 0)
		return "wrong status";
	if (reply)
		return nr_fds == (h->status ? 0 : r->reply_fds)
			       ? NULL
			       : "wrong number of descriptors";
	if (nr_fds != r->fds)
		return "wrong number of descriptors";
	if (h->len < r->fixed || (!r->tail && h->len != r->fixed))
		return "wrong body size";
	return NULL;
}

int wire_recv(int fd, bool from_daemon, struct wire_buf *b,
	      struct wire_msg *ret_msg, struct err *e)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(2 * WIRE_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = b->bytes, .iov_len = sizeof(b->bytes) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	struct wire_msg msg = { 0 };
	struct wire_hdr h = { 0 };
	const char *bad;
	ssize_t n;

	do
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	for (int i = 0; i < WIRE_FDS_MAX; i++)
		msg.fds[i] = -1;
	if (!wire_collect_fds(&m, &msg))
		m.msg_flags |= MSG_CTRUNC;
	if (n == 0) { /* the end, or an empty packet, with descriptors or not */
		wire_msg_done(&msg);
		return -EPIPE;
	}
	memcpy(&h, b->bytes, MIN((size_t)n, sizeof(h)));
	bad = m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)
		      ? "truncated"
		      : wire_complaint(&h, (size_t)n, from_daemon, msg.nr_fds);
	if (bad) {
		wire_msg_done(&msg);
		return err_set(e, -EPROTO, ERR_INVALID,
			       "message from %s refused: %s (type %u)",
			       from_daemon ? "cryod" : "cryo-vm", bad, h.type);
	}
	msg.type = h.type;
	msg.reply = h.flags & WIRE_REPLY;
	msg.status = h.status;
	msg.call = h.call;
	msg.body = b->bytes + sizeof(h);
	msg.len = h.len;
	*ret_msg = msg;
	return 0;
}

void wire_msg_done(struct wire_msg *m)
{
	for (int i = 0; i < m->nr_fds; i++)
		if (m->fds[i] >= 0)
			close(m->fds[i]);
	m->nr_fds = 0;
}

int wire_take_fd(struct wire_msg *m, int i)
{
	PRE(i >= 0 && i < m->nr_fds);
	return base_steal_fd(&m->fds[i]);
}

int wire_body(const struct wire_msg *m, void *ret, size_t len)
{
	if (m->len < len)
		return -EPROTO;
	memcpy(ret, m->body, len);
	return 0;
}

bool wire_text(char *s, size_t len)
{
	bool ended = memchr(s, 0, len) != NULL;

	s[len - 1] = 0;
	return ended;
}
