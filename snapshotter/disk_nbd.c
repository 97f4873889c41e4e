/*
 * disk_nbd: the NBD server between one VMM and one disk.
 *
 * One thread, one connection, one request at a time: receive, do, answer.
 * Fixed newstyle negotiation with the options EXPORT_NAME, ABORT, LIST, INFO
 * and GO (all others: unsupported), then simple replies. All numbers on the
 * wire are big-endian. Blocks are 4096 bytes and the client must have asked
 * for that information before GO lets it in.
 *
 * FLUSH and FUA are answered at once: what the guest wrote is only as durable
 * as the next committed point (see the ADR on the disk).
 *
 * The peer is the VMM, which a guest may have taken over:
 *  1. No length of the peer's is used before it was compared with a constant;
 *     memory is allocated once, before the first byte is read.
 *  2. A request outside the disk, unaligned, empty, or with unknown flags is
 *     answered with an error and touches nothing.
 *  3. Where the stream can't be followed any more (wrong magic, a write that
 *     is longer than what we announced) the connection ends.
 *  4. Negotiation ends after a fixed number of options.
 *
 * A crash leaves nothing behind: the connection holds no state that matters.
 */
#include "snapshotter/disk_nbd.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MAGIC_INIT 0x4e42444d41474943ull /* "NBDMAGIC" */
#define MAGIC_OPTION 0x49484156454f5054ull /* "IHAVEOPT" */
#define MAGIC_OPTION_REPLY 0x0003e889045565a9ull
#define MAGIC_REQUEST 0x25609513u
#define MAGIC_REPLY 0x67446698u

enum handshake_flag { SRV_FIXED_NEWSTYLE = 1, SRV_NO_ZEROES = 2 };

enum nbd_option {
	OPT_EXPORT_NAME = 1,
	OPT_ABORT = 2,
	OPT_LIST = 3,
	OPT_INFO = 6,
	OPT_GO = 7,
};

enum nbd_option_reply {
	REP_ACK = 1,
	REP_SERVER = 2,
	REP_INFO = 3,
	REP_ERR_UNSUP = 1u << 31 | 1,
	REP_ERR_INVALID = 1u << 31 | 3,
	REP_ERR_UNKNOWN = 1u << 31 | 6,
	REP_ERR_BLOCK_SIZE_REQD = 1u << 31 | 8,
	REP_ERR_TOO_BIG = 1u << 31 | 9,
};

enum nbd_info { INFO_EXPORT = 0, INFO_BLOCK_SIZE = 3 };

/* HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES */
#define EXPORT_FLAGS (1u | 1u << 2 | 1u << 3 | 1u << 5 | 1u << 6)

enum nbd_command {
	CMD_READ = 0,
	CMD_WRITE = 1,
	CMD_DISC = 2,
	CMD_FLUSH = 3,
	CMD_TRIM = 4,
	CMD_WRITE_ZEROES = 6,
	CMD_NR,
};

enum nbd_command_flag { FLAG_FUA = 1, FLAG_NO_HOLE = 2 };

enum nbd_error {
	NBD_OK = 0,
	NBD_EIO = 5,
	NBD_EINVAL = 22,
	NBD_ENOSPC = 28,
	NBD_ESHUTDOWN = 108,
};

#define OPTIONS_MAX 64u /* options of one negotiation */
#define OPTION_LEN_MAX 8192u /* a name of 4096 bytes and then some */
#define OPTION_SKIP_MAX 65536u /* longer ones end the connection */
#define REQUEST_LEN 28u
#define REPLY_LEN 16u
#define EXPORT_NAME "disk" /* the default export "" is the same */

static_assert(OPTION_SKIP_MAX <= DISK_NBD_PAYLOAD_MAX, "skips use payload");

/* How a step of the connection ended, beside -errno. */
enum { GO_ON = 0, GOODBYE = 1, TRANSMIT = 2 };

struct nbd {
	struct disk *disk;
	const struct disk_nbd_io *io;
	uint64_t size; /* bytes */
	bool no_zeroes; /* the client wants EXPORT_NAME's reply short */
	uint8_t *payload; /* DISK_NBD_PAYLOAD_MAX */
};

struct request {
	uint16_t flags, type;
	uint64_t handle, offset;
	uint32_t len;
};

/* --- bytes ---------------------------------------------------------------- */

static void put_be16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put_be32(uint8_t *p, uint32_t v)
{
	put_be16(p, (uint16_t)(v >> 16));
	put_be16(p + 2, (uint16_t)v);
}

static uint16_t get_be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)get_be16(p) << 16 | get_be16(p + 2);
}

static int nbd_recv(struct nbd *n, void *p, size_t len, struct err *e)
{
	int r = len ? n->io->recv(n->io->ctx, p, len) : 0;

	if (r)
		err_sys(e, -r, "disk server: receive from the VMM");
	return r;
}

static int nbd_send(struct nbd *n, const void *head, size_t head_len,
		    const void *body, size_t body_len, struct err *e)
{
	int r = n->io->send(n->io->ctx, head, head_len, body, body_len);

	if (r)
		err_sys(e, -r, "disk server: answer the VMM");
	return r;
}

/* --- negotiation ---------------------------------------------------------- */

static int option_reply(struct nbd *n, uint32_t option,
			enum nbd_option_reply type, const void *data,
			uint32_t len, struct err *e)
{
	uint8_t head[20];

	put_be64(head, MAGIC_OPTION_REPLY);
	put_be32(head + 8, option);
	put_be32(head + 12, type);
	put_be32(head + 16, len);
	return nbd_send(n, head, sizeof(head), data, len, e);
}

static bool name_known(const uint8_t *name, uint32_t len)
{
	return !len ||
	       (len == strlen(EXPORT_NAME) && !memcmp(name, EXPORT_NAME, len));
}

/* The one option whose failure has no reply: the connection ends. */
static int option_export_name(struct nbd *n, const uint8_t *name, uint32_t len,
			      struct err *e)
{
	uint8_t reply[10 + 124] = { 0 };
	int r;

	if (!name_known(name, len))
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "disk server: the VMM asked for an export of "
			       "another name than \"\" or \"" EXPORT_NAME "\"");
	put_be64(reply, n->size);
	put_be16(reply + 8, EXPORT_FLAGS);
	r = nbd_send(n, reply, n->no_zeroes ? 10 : sizeof(reply), NULL, 0, e);
	return r ? r : TRANSMIT;
}

static int send_infos(struct nbd *n, uint32_t option, struct err *e)
{
	uint8_t export[12], sizes[14];
	int r;

	put_be16(export, INFO_EXPORT);
	put_be64(export + 2, n->size);
	put_be16(export + 10, EXPORT_FLAGS);
	put_be16(sizes, INFO_BLOCK_SIZE);
	put_be32(sizes + 2, DISK_BLOCK);
	put_be32(sizes + 6, DISK_BLOCK);
	put_be32(sizes + 10, DISK_NBD_PAYLOAD_MAX);
	r = option_reply(n, option, REP_INFO, export, sizeof(export), e);
	if (!r)
		r = option_reply(n, option, REP_INFO, sizes, sizeof(sizes), e);
	if (!r)
		r = option_reply(n, option, REP_ACK, NULL, 0, e);
	return r;
}

/*
 * Data of INFO and GO: u32 name length, name, u16 count, u16 wanted[count].
 * The answer that is due, REP_ACK if all is well.
 */
static enum nbd_option_reply judge_info(const uint8_t *data, uint32_t len)
{
	uint32_t name_len, nr;
	bool sizes = false;

	if (len < 6)
		return REP_ERR_INVALID;
	name_len = get_be32(data);
	if (name_len > len - 6)
		return REP_ERR_INVALID;
	nr = get_be16(data + 4 + name_len);
	if (len != 6 + name_len + 2 * nr)
		return REP_ERR_INVALID;
	if (!name_known(data + 4, name_len))
		return REP_ERR_UNKNOWN;
	for (uint32_t i = 0; i < nr; i++)
		if (get_be16(data + 6 + name_len + 2 * i) == INFO_BLOCK_SIZE)
			sizes = true;
	return sizes ? REP_ACK : REP_ERR_BLOCK_SIZE_REQD;
}

static int option_info(struct nbd *n, uint32_t option, const uint8_t *data,
		       uint32_t len, struct err *e)
{
	enum nbd_option_reply verdict = judge_info(data, len);
	int r;

	if (verdict != REP_ACK)
		return option_reply(n, option, verdict, NULL, 0, e);
	r = send_infos(n, option, e);
	return r ? r : option == OPT_GO ? TRANSMIT : GO_ON;
}

static int option_list(struct nbd *n, uint32_t len, struct err *e)
{
	uint8_t data[4 + sizeof(EXPORT_NAME) - 1];
	int r;

	if (len)
		return option_reply(n, OPT_LIST, REP_ERR_INVALID, NULL, 0, e);
	put_be32(data, sizeof(EXPORT_NAME) - 1);
	memcpy(data + 4, EXPORT_NAME, sizeof(EXPORT_NAME) - 1);
	r = option_reply(n, OPT_LIST, REP_SERVER, data, sizeof(data), e);
	return r ? r : option_reply(n, OPT_LIST, REP_ACK, NULL, 0, e);
}

static int option_serve(struct nbd *n, uint32_t option, uint32_t len,
			struct err *e)
{
	int r;

	if (len > OPTION_LEN_MAX)
		return option_reply(n, option, REP_ERR_TOO_BIG, NULL, 0, e);
	switch (option) {
	case OPT_EXPORT_NAME:
		return option_export_name(n, n->payload, len, e);
	case OPT_INFO:
	case OPT_GO:
		return option_info(n, option, n->payload, len, e);
	case OPT_LIST:
		return option_list(n, len, e);
	case OPT_ABORT:
		r = option_reply(n, option, REP_ACK, NULL, 0, e);
		return r ? r : GOODBYE;
	default:
		return option_reply(n, option, REP_ERR_UNSUP, NULL, 0, e);
	}
}

static int option_next(struct nbd *n, struct err *e)
{
	uint8_t head[16];
	uint32_t len;
	int r = nbd_recv(n, head, sizeof(head), e);

	if (r)
		return r == -EPIPE ? GOODBYE : r;
	len = get_be32(head + 12);
	if (get_be64(head) != MAGIC_OPTION || len > OPTION_SKIP_MAX)
		return err_set(e, -EPROTO, ERR_INVALID,
			       "disk server: the VMM sent no NBD option");
	r = nbd_recv(n, n->payload, len, e);
	return r ? r : option_serve(n, get_be32(head + 8), len, e);
}

static int negotiate(struct nbd *n, struct err *e)
{
	uint8_t hello[18], flags[4];
	int r;

	put_be64(hello, MAGIC_INIT);
	put_be64(hello + 8, MAGIC_OPTION);
	put_be16(hello + 16, SRV_FIXED_NEWSTYLE | SRV_NO_ZEROES);
	r = nbd_send(n, hello, sizeof(hello), NULL, 0, e);
	if (r)
		return r;
	r = nbd_recv(n, flags, sizeof(flags), e);
	if (r)
		return r == -EPIPE ? GOODBYE : r;
	if (get_be32(flags) & ~(uint32_t)(SRV_FIXED_NEWSTYLE | SRV_NO_ZEROES))
		return err_set(e, -EPROTO, ERR_INVALID,
			       "disk server: the VMM set unknown NBD flags");
	n->no_zeroes = get_be32(flags) & SRV_NO_ZEROES;
	for (uint32_t i = 0; i < OPTIONS_MAX; i++) {
		r = option_next(n, e);
		if (r != GO_ON)
			return r;
	}
	return err_set(e, -EPROTO, ERR_LIMIT,
		       "disk server: the VMM sent more than %u NBD options",
		       OPTIONS_MAX);
}

/* --- transmission --------------------------------------------------------- */

static int reply(struct nbd *n, const struct request *q, enum nbd_error error,
		 const void *data, uint32_t len, struct err *e)
{
	uint8_t head[REPLY_LEN];

	put_be32(head, MAGIC_REPLY);
	put_be32(head + 4, error);
	put_be64(head + 8, q->handle);
	return nbd_send(n, head, sizeof(head), data, len, e);
}

/* Whether the request may be done at all; reads and writes fit the buffer. */
static enum nbd_error judge(const struct nbd *n, const struct request *q)
{
	static const uint16_t flags[CMD_NR] = {
		[CMD_READ] = FLAG_FUA,
		[CMD_WRITE] = FLAG_FUA,
		[CMD_FLUSH] = FLAG_FUA,
		[CMD_TRIM] = FLAG_FUA,
		[CMD_WRITE_ZEROES] = FLAG_FUA | FLAG_NO_HOLE,
	};
	bool grows = q->type == CMD_WRITE || q->type == CMD_WRITE_ZEROES;

	if (q->flags & ~flags[q->type])
		return NBD_EINVAL;
	if (q->type == CMD_FLUSH)
		return q->offset || q->len ? NBD_EINVAL : NBD_OK;
	if (!q->len || q->len % DISK_BLOCK || q->offset % DISK_BLOCK)
		return NBD_EINVAL;
	if (q->type == CMD_READ && q->len > DISK_NBD_PAYLOAD_MAX)
		return NBD_EINVAL;
	if (q->offset > n->size || q->len > n->size - q->offset)
		return grows ? NBD_ENOSPC : NBD_EINVAL;
	return NBD_OK;
}

static enum nbd_error error_of(int r)
{
	switch (r) {
	case 0:
		return NBD_OK;
	case -ENOSPC:
		return NBD_ENOSPC;
	case -ESHUTDOWN:
		return NBD_ESHUTDOWN;
	default:
		return NBD_EIO;
	}
}

/* The disk has told its owner why; the VMM learns only that it failed. */
static enum nbd_error request_do(struct nbd *n, const struct request *q)
{
	uint32_t block = (uint32_t)(q->offset / DISK_BLOCK);
	uint32_t nr = q->len / DISK_BLOCK;
	struct err e;

	switch ((enum nbd_command)q->type) {
	case CMD_READ:
		return error_of(disk_read(n->disk, block, nr, n->payload, &e));
	case CMD_WRITE:
		return error_of(disk_write(n->disk, block, nr, n->payload, &e));
	case CMD_TRIM:
	case CMD_WRITE_ZEROES:
		return error_of(disk_zero(n->disk, block, nr, &e));
	case CMD_FLUSH:
		return NBD_OK;
	case CMD_DISC:
	case CMD_NR:
		break;
	}
	NEVER("a command that request_next() lets through");
}

static bool command_known(uint16_t type)
{
	return type <= CMD_TRIM || type == CMD_WRITE_ZEROES;
}

static int request_recv(struct nbd *n, struct request *ret, struct err *e)
{
	uint8_t head[REQUEST_LEN];
	int r = nbd_recv(n, head, sizeof(head), e);

	if (r)
		return r == -EPIPE ? GOODBYE : r;
	if (get_be32(head) != MAGIC_REQUEST)
		return err_set(e, -EPROTO, ERR_INVALID,
			       "disk server: the VMM sent no NBD request");
	ret->flags = get_be16(head + 4);
	ret->type = get_be16(head + 6);
	ret->handle = get_be64(head + 8);
	ret->offset = get_be64(head + 16);
	ret->len = get_be32(head + 24);
	if (ret->type != CMD_WRITE)
		return GO_ON;
	if (ret->len > DISK_NBD_PAYLOAD_MAX)
		return err_set(e, -EMSGSIZE, ERR_TOO_LARGE,
			       "disk server: the VMM writes %u bytes at once; "
			       "at most %u were offered",
			       ret->len, DISK_NBD_PAYLOAD_MAX);
	return nbd_recv(n, n->payload, ret->len, e);
}

static int request_next(struct nbd *n, struct err *e)
{
	struct request q = { 0 };
	enum nbd_error error;
	int r = request_recv(n, &q, e);

	if (r)
		return r;
	if (q.type == CMD_DISC)
		return GOODBYE;
	if (!command_known(q.type))
		return reply(n, &q, NBD_EINVAL, NULL, 0, e);
	error = judge(n, &q);
	if (!error)
		error = request_do(n, &q);
	if (q.type == CMD_READ && !error)
		return reply(n, &q, NBD_OK, n->payload, q.len, e);
	return reply(n, &q, error, NULL, 0, e);
}

int disk_nbd_serve(struct disk *d, const struct disk_nbd_io *io, struct err *e)
{
	SCOPED_FREE uint8_t *payload = base_alloc(DISK_NBD_PAYLOAD_MAX);
	struct nbd n = {
		.disk = d,
		.io = io,
		.size = (uint64_t)disk_nr_blocks(d) * DISK_BLOCK,
		.payload = payload,
	};
	int r = negotiate(&n, e);

	if (r == TRANSMIT)
		do {
			r = request_next(&n, e);
		} while (r == GO_ON);
	base_wipe(payload, DISK_NBD_PAYLOAD_MAX);
	return r == GOODBYE ? 0 : r;
}

/* --- the thread and its socket -------------------------------------------- */

struct disk_nbd {
	struct disk *disk;
	int fd;
	pthread_t thread;
	struct disk_nbd_io io;
	disk_nbd_closed_fn closed;
	void *ctx;
};

static int socket_recv(void *ctx, void *p, size_t len)
{
	const struct disk_nbd *n = ctx;
	uint8_t *at = p;
	size_t got = 0;

	while (got < len) {
		ssize_t k = recv(n->fd, at + got, len - got, MSG_WAITALL);

		if (k > 0)
			got += (size_t)k;
		else if (!k)
			return got ? -ECONNRESET : -EPIPE;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

/* Drops `len` sent bytes from the front of the vector. */
static void iov_advance(struct msghdr *m, size_t len)
{
	while (m->msg_iovlen && len >= m->msg_iov->iov_len) {
		len -= m->msg_iov->iov_len;
		m->msg_iov++;
		m->msg_iovlen--;
	}
	if (m->msg_iovlen) {
		m->msg_iov->iov_base = (uint8_t *)m->msg_iov->iov_base + len;
		m->msg_iov->iov_len -= len;
	}
}

static int socket_send(void *ctx, const void *head, size_t head_len,
		       const void *body, size_t body_len)
{
	const struct disk_nbd *n = ctx;
	union {
		const void *in;
		void *out;
	} h = { head }, b = { body }; /* iovec has no const */
	struct iovec iov[2] = { { h.out, head_len }, { b.out, body_len } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

	while (m.msg_iovlen) {
		ssize_t k = sendmsg(n->fd, &m, MSG_NOSIGNAL);

		if (k < 0 && errno != EINTR)
			return -errno;
		if (k >= 0)
			iov_advance(&m, (size_t)k);
	}
	return 0;
}

static void *thread_main(void *arg)
{
	struct disk_nbd *n = arg;
	struct err e;
	int r = disk_nbd_serve(n->disk, &n->io, &e);

	shutdown(n->fd, SHUT_RDWR);
	if (n->closed)
		n->closed(n->ctx, r ? &e : NULL);
	return NULL;
}

/* Signals are the business of the process's main thread. */
static int thread_start(struct disk_nbd *n)
{
	sigset_t all, old;
	int en;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	en = pthread_create(&n->thread, NULL, thread_main, n);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return en;
}

int disk_nbd_new(struct disk_nbd **ret, struct disk *d, int fd,
		 disk_nbd_closed_fn closed, void *ctx, struct err *e)
{
	SCOPED_FD int sock = fd;
	int flags = fcntl(sock, F_GETFL), en;
	struct disk_nbd *n;

	if (flags < 0 || fcntl(sock, F_SETFL, flags & ~O_NONBLOCK))
		return err_sys(e, errno, "disk server: prepare its socket");
	n = base_alloc(sizeof(*n));
	n->disk = d;
	n->fd = sock;
	n->io = (struct disk_nbd_io){ socket_recv, socket_send, n };
	n->closed = closed;
	n->ctx = ctx;
	en = thread_start(n);
	if (en) {
		free(n);
		return err_sys(e, en, "disk server: start its thread");
	}
	base_steal_fd(&sock);
	*ret = n;
	return 0;
}

void disk_nbd_free(struct disk_nbd *n)
{
	if (!n)
		return;
	disk_cancel(n->disk);
	shutdown(n->fd, SHUT_RDWR);
	pthread_join(n->thread, NULL);
	close(n->fd);
	free(n);
}
