/*
 * Any bytes as a packet between cryod and a cryo-vm, in both directions, with
 * as many descriptors as the last byte says. Taken or refused: no descriptor
 * may be left, and what is taken agrees with its header.
 */
#include "core/wire.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/uio.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void send_raw(int fd, const uint8_t *p, size_t len, int nr)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(16 * sizeof(int))];
	} control = { .buf = { 0 } };
	union {
		const void *in;
		void *out;
	} u = { .in = p };
	struct iovec iov = { .iov_base = u.out, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c = &control.align;
	size_t size = (size_t)nr * sizeof(int);

	if (nr) {
		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(size);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(size);
		memset(CMSG_DATA(c), 0, size); /* descriptor 0, n times */
	}
	if (sendmsg(fd, &m, MSG_DONTWAIT) < 0)
		POST(errno == EMSGSIZE);
}

static void receive(int fd, bool from_daemon, struct wire_buf *room)
{
	struct wire_msg m;
	struct wire_setup s;
	static volatile unsigned sum;
	struct err e;
	int r = wire_recv(fd, from_daemon, room, &m, &e);

	if (r < 0) {
		POST(r == -EPROTO || r == -EAGAIN || r == -EPIPE);
		return;
	}
	POST(m.type > WIRE_NONE && m.type < WIRE_NR);
	POST(m.len <= WIRE_BODY_MAX && m.nr_fds <= WIRE_FDS_MAX);
	POST(m.status <= 0 && IMPLIES(!m.reply, m.status == 0));
	for (size_t i = 0; i < m.len; i++)
		sum += m.body[i]; /* readable to its end */
	if (wire_body(&m, &s, sizeof(s)) == 0) {
		WIRE_TEXT(s.session);
		POST(strlen(s.session) <= ID_LEN);
	}
	wire_msg_done(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static int pair[2] = { -1, -1 };
	static struct wire_buf *room;
	int before;

	if (len < 1)
		return 0;
	if (pair[0] < 0) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0,
			       pair) < 0)
			NEVER("no sockets");
		room = base_alloc(sizeof(*room));
	}
	before = count_fds();
	send_raw(pair[0], p, len - 1, p[len - 1] % 16);
	receive(pair[1], true, room);
	send_raw(pair[1], p, len - 1, p[len - 1] % 16);
	receive(pair[0], false, room);
	POST(count_fds() == before);
	return 0;
}
