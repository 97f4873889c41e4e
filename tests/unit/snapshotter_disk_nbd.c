/*
 * The NBD server as its peer sees it: the exact bytes of the negotiation,
 * each command, each refusal of the protocol's text, and abuse.
 */
#include "snapshotter/disk_nbd.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "tests/unit/snapshotter_disk_client.h"

#define NR 1024u /* blocks: 4 MiB */
#define SIZE (NR * 4096u)

enum { READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES };
enum { EINVAL_NBD = 22, ENOSPC_NBD = 28 };

static const struct disk_ops ops = { NULL, NULL, NULL };

struct world {
	struct disk *disk;
	struct disk_nbd *nbd;
	int fd;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool closed, goodbye;
	struct err why;
};

static void on_closed(void *ctx, const struct err *e)
{
	struct world *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->closed = true;
	w->goodbye = !e;
	if (e)
		w->why = *e;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void world_init(struct world *w)
{
	struct disk_config c = { .nr_blocks = NR,
				 .template_fd = -1,
				 .overlay_fd = memfd_create("overlay", 0),
				 .ops = &ops };
	struct err e;
	int sv[2];

	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	/* non-blocking on purpose: the server must not depend on it */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv))
		bail("socketpair");
	if (disk_new(&w->disk, &c, &e) ||
	    disk_nbd_new(&w->nbd, w->disk, sv[1], on_closed, w, &e))
		bail("%s", e.msg);
	w->fd = sv[0];
	if (fcntl(w->fd, F_SETFL, 0))
		bail("fcntl");
}

/* Waits for the server's end: true for a goodbye. */
static bool world_end(struct world *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->closed)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return w->goodbye;
}

static void world_done(struct world *w)
{
	close(w->fd);
	disk_nbd_free(w->nbd);
	disk_free(w->disk);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
}

static void world_go(struct world *w)
{
	world_init(w);
	client_hello(w->fd);
	client_go(w->fd);
}

/* The bytes of GO, written out by hand. */
static void test_go(void)
{
	static const uint8_t ask[] = {
		'I', 'H', 'A', 'V', 'E', 'O', 'P', 'T', /* magic */
		0,   0,	  0,   7, /* GO */
		0,   0,	  0,   12, /* length */
		0,   0,	  0,   4,   'd', 'i', 's', 'k', /* name */
		0,   1,	  0,   3, /* one wanted: block sizes */
	};
	static const uint8_t answer[] = {
		0, 3,	 0xe8, 0x89, 4,	   0x55, 0x65, 0xa9, 0,	   0,	 0,
		7, 0,	 0,    0,    3,	   0,	 0,    0,    12, /* INFO, 12 bytes */
		0, 0, /* export */
		0, 0,	 0,    0,    0,	   0x40, 0,    0, /* 4 MiB */
		0, 0x6d, /* flags, flush, FUA, trim, write zeroes */
		0, 3,	 0xe8, 0x89, 4,	   0x55, 0x65, 0xa9, 0,	   0,	 0,
		7, 0,	 0,    0,    3,	   0,	 0,    0,    14, /* INFO, 14 bytes */
		0, 3, /* block sizes */
		0, 0,	 0x10, 0,    0,	   0,	 0x10, 0,    0,	   0x10, 0,
		0, 0,	 3,    0xe8, 0x89, 4,	 0x55, 0x65, 0xa9, 0,	 0,
		0, 7,	 0,    0,    0,	   1,	 0,    0,    0,	   0, /* ACK */
	};
	uint8_t got[sizeof(answer)];
	struct world w;

	world_init(&w);
	client_hello(w.fd);
	client_send(w.fd, ask, sizeof(ask));
	client_recv(w.fd, got, sizeof(got));
	is_mem(got, answer, sizeof(answer), "GO: export, block sizes, ACK");
	is_int(client_call(w.fd, 0, FLUSH, 0, 0), 0, "and then it transmits");
	client_request(w.fd, 0, DISC, 1, 0, 0);
	ok(client_closed(w.fd), "DISC ends it without a reply");
	ok(world_end(&w), "as a goodbye");
	world_done(&w);
}

static void test_export_name(void)
{
	static const uint8_t zeroes_flags[4] = { 0, 0, 0, 1 };
	uint8_t reply[134], zeros[124] = { 0 };
	struct world w;

	world_init(&w);
	client_hello(w.fd);
	client_option(w.fd, 1, "disk", 4);
	client_recv(w.fd, reply, 10);
	is_mem(reply, "\0\0\0\0\0\x40\0\0\0\x6d", 10, "EXPORT_NAME: size, flags");
	is_int(client_call(w.fd, 0, FLUSH, 0, 0), 0, "and no zeroes after it");
	world_done(&w);

	world_init(&w);
	client_recv(w.fd, reply, 18);
	client_send(w.fd, zeroes_flags, 4);
	client_option(w.fd, 1, "", 0);
	client_recv(w.fd, reply, 134);
	is_mem(reply + 10, zeros, 124, "124 zeroes for a client that wants them");
	is_int(client_call(w.fd, 0, FLUSH, 0, 0), 0, "then it transmits");
	world_done(&w);

	world_init(&w);
	client_hello(w.fd);
	client_option(w.fd, 1, "other", 5);
	ok(client_closed(w.fd), "another name ends the connection");
	ok(!world_end(&w) && strstr(w.why.msg, "name"), "because: %s", w.why.msg);
	world_done(&w);
}

static uint32_t option(struct world *w, uint32_t opt, const void *data,
		       uint32_t len)
{
	uint8_t buf[128];

	client_option(w->fd, opt, data, len);
	return client_option_reply(w->fd, opt, buf, NULL);
}

static void test_options(void)
{
	static uint8_t big[8193];
	const uint32_t err = 1u << 31;
	struct world w;
	uint8_t buf[128];
	uint32_t len;

	world_init(&w);
	client_hello(w.fd);
	is_int(option(&w, 8, "", 0), err | 1, "structured replies: unsupported");
	is_int(option(&w, 5, "", 0), err | 1, "TLS: unsupported");
	is_int(option(&w, 0xffffffff, "xyz", 3), err | 1, "unknown option");
	is_int(option(&w, 7, "", 0), err | 3, "GO without data: invalid");
	is_int(option(&w, 7, "\xff\xff\xff\xff\0\0", 6), err | 3,
	       "a name longer than the option: invalid");
	is_int(option(&w, 7, "\0\0\0\0\0\2\0\3", 8), err | 3,
	       "fewer wishes than announced: invalid");
	is_int(option(&w, 7, "\0\0\0\0\0\1\0\3\0", 9), err | 3,
	       "bytes left over: invalid");
	is_int(option(&w, 6, "\0\0\0\1x\0\0", 7), err | 6, "unknown export");
	is_int(option(&w, 7, "\0\0\0\0\0\0", 6), err | 8,
	       "GO by a client that ignores block sizes is refused");
	is_int(option(&w, 7, big, sizeof(big)), err | 9, "oversize option");
	is_int(option(&w, 3, "x", 1), err | 3, "LIST with data: invalid");
	client_option(w.fd, 3, "", 0);
	is_int(client_option_reply(w.fd, 3, buf, &len), 2, "LIST: an export");
	ok(len == 8 && !memcmp(buf, "\0\0\0\4disk", 8), "its name");
	is_int(client_option_reply(w.fd, 3, buf, NULL), 1, "and ACK");
	client_option(w.fd, 6, "\0\0\0\0\0\1\0\3", 8);
	is_int(client_option_reply(w.fd, 6, buf, NULL), 3, "INFO: the export");
	is_int(client_option_reply(w.fd, 6, buf, NULL), 3, "block sizes");
	is_int(client_option_reply(w.fd, 6, buf, NULL), 1, "ACK");
	is_int(option(&w, 2, "", 0), 1, "still negotiating: ABORT gets an ACK");
	ok(client_closed(w.fd) && world_end(&w), "and a goodbye");
	world_done(&w);
}

static void test_commands(void)
{
	static uint8_t in[1 << 20], out[1 << 20];
	uint64_t seed = tap_seed();
	struct disk_stats s;
	struct world w;

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)tap_rand(&seed);
	world_go(&w);
	is_int(client_write(w.fd, 8192, sizeof(in), in), 0, "write 1 MiB");
	is_int(client_read(w.fd, 8192, sizeof(out), out), 0, "read 1 MiB");
	is_mem(in, out, sizeof(in), "it is what was written");
	is_int(client_read(w.fd, SIZE - 4096, 4096, out), 0, "the last block");
	is_int(client_call(w.fd, 0, TRIM, 8192, 4096), 0, "trim");
	is_int(client_call(w.fd, 2, WRITE_ZEROES, 16384, 8192), 0,
	       "write zeroes, no hole");
	client_read(w.fd, 0, 32768, out);
	memset(in, 0, 4096);
	memset(in + 8192, 0, 8192);
	is_mem(out + 8192, in, 24576, "both read as zeros, the rest stays");
	is_int(client_call(w.fd, 0, WRITE_ZEROES, 0, SIZE), 0,
	       "zeroes may be longer than a payload");
	disk_stats(w.disk, &s);
	is_int(s.overlay, 0, "all is zero now");
	is_int(client_call(w.fd, 1, FLUSH, 0, 0), 0, "flush with FUA");
	is_int(client_call(w.fd, 1, TRIM, 0, 4096), 0, "trim with FUA");
	client_request(w.fd, 1, WRITE, 5, 0, 4096);
	client_send(w.fd, in, 4096);
	is_int(client_reply(w.fd, 5), 0, "write with FUA");
	world_done(&w);
}

static void test_refused(void)
{
	static uint8_t buf[1 << 20];
	struct disk_stats s;
	struct world w;
	int fd;

	world_go(&w);
	fd = w.fd;
	is_int(client_read(fd, SIZE, 4096, buf), EINVAL_NBD, "read past the end");
	is_int(client_read(fd, SIZE - 4096, 8192, buf), EINVAL_NBD,
	       "read across the end");
	is_int(client_read(fd, UINT64_MAX - 4095, 8192, buf), EINVAL_NBD,
	       "read where offset + length wraps");
	is_int(client_read(fd, 0, 0, buf), EINVAL_NBD, "read of nothing");
	is_int(client_read(fd, 512, 4096, buf), EINVAL_NBD, "unaligned offset");
	is_int(client_read(fd, 0, 512, buf), EINVAL_NBD, "unaligned length");
	is_int(client_read(fd, 0, (1 << 20) + 4096, buf), EINVAL_NBD,
	       "read of more than was offered");
	is_int(client_read(fd, 0, 0xfffff000, buf), EINVAL_NBD, "of 4 GiB");
	is_int(client_write(fd, SIZE, 4096, buf), ENOSPC_NBD,
	       "write past the end: its payload is read, nothing happens");
	is_int(client_write(fd, 512, 4096, buf), EINVAL_NBD, "unaligned write");
	is_int(client_write(fd, 0, 100, buf), EINVAL_NBD, "write of 100 bytes");
	is_int(client_write(fd, 0, 0, buf), EINVAL_NBD, "write of nothing");
	is_int(client_call(fd, 0, WRITE_ZEROES, SIZE - 4096, 8192), ENOSPC_NBD,
	       "zeroes across the end");
	is_int(client_call(fd, 0, TRIM, SIZE - 4096, 8192), EINVAL_NBD,
	       "trim across the end");
	is_int(client_call(fd, 0, TRIM, 0, 0xfffff000), EINVAL_NBD,
	       "trim of 4 GiB");
	is_int(client_call(fd, 0, FLUSH, 4096, 0), EINVAL_NBD,
	       "flush of a place");
	is_int(client_call(fd, 4, READ, 0, 4096), EINVAL_NBD,
	       "DF without structured replies");
	is_int(client_call(fd, 16, WRITE_ZEROES, 0, 4096), EINVAL_NBD,
	       "fast zero was not offered");
	is_int(client_call(fd, 0, CACHE, 0, 4096), EINVAL_NBD,
	       "cache was not offered");
	is_int(client_call(fd, 0, 7, 0, 4096), EINVAL_NBD, "nor block status");
	is_int(client_call(fd, 0, 0xffff, 0, 4096), EINVAL_NBD, "nor that");
	is_int(client_read(fd, 0, 4096, buf), 0, "and still in step");
	disk_stats(w.disk, &s);
	ok(!s.dirty && !s.writes && !s.zeroes && s.reads == 1,
	   "nothing of it reached the disk");
	world_done(&w);
}

/* Sends bytes, then closes; how the server took it. */
static bool ends(const char *name, bool go, const void *p, size_t len,
		 const char *word)
{
	struct world w;
	bool good;

	world_init(&w);
	if (go) {
		client_hello(w.fd);
		client_go(w.fd);
	}
	client_send(w.fd, p, len);
	shutdown(w.fd, SHUT_WR);
	good = world_end(&w);
	if (word)
		ok(!good && strstr(w.why.msg, word), "%s: %s", name, w.why.msg);
	else
		ok(good, "%s: a goodbye", name);
	world_done(&w);
	return good;
}

static void test_broken(void)
{
	uint8_t many[4 + 65 * 16], write[28 + 100];

	ends("closed at once", false, "", 0, NULL);
	ends("closed after the flags", false, "\0\0\0\3", 4, NULL);
	ends("unknown flags", false, "\0\0\0\7", 4, "flags");
	ends("half an option", false, "\0\0\0\3IHAV", 8, "receive");
	ends("no option", false, "\0\0\0\3IHAVEOPS\0\0\0\3\0\0\0\0", 20,
	     "option");
	ends("an endless option", false,
	     "\0\0\0\3IHAVEOPT\0\0\0\3\xff\xff\xff\xff", 20, "option");
	ends("an option without its data", false,
	     "\0\0\0\3IHAVEOPT\0\0\0\3\0\0\0\x09", 20, "receive");
	be_put(many, 3, 4);
	for (int i = 0; i < 65; i++)
		memcpy(many + 4 + 16 * i, "IHAVEOPT\0\0\0\x63\0\0\0\0", 16);
	ends("endless haggling", false, many, sizeof(many), "more than 64");
	ends("closed between requests", true, "", 0, NULL);
	ends("half a request", true, "\x25\x60\x95\x13", 4, "receive");
	ends("no request", true, "GET / HTTP/1.1\r\nHost: localhost", 28 + 3,
	     "request");
	memset(write, 0, sizeof(write));
	be_put(write, 0x25609513, 4);
	be_put(write + 6, WRITE, 2);
	be_put(write + 24, 4096, 4);
	ends("a write that breaks off", true, write, sizeof(write), "receive");
	be_put(write + 24, (1 << 20) + 4096, 4);
	ends("a write longer than offered", true, write, sizeof(write),
	     "1052672");
}

/* A peer that never reads its answers must not keep us from ending. */
static void test_deaf_peer(void)
{
	struct world w;

	world_go(&w);
	for (int i = 0; i < 64; i++)
		client_request(w.fd, 0, READ, 1, 0, 1 << 20);
	disk_nbd_free(w.nbd);
	w.nbd = NULL;
	ok(w.closed && !w.goodbye, "a server that can't send is ended");
	world_done(&w);
}

int main(void)
{
	test_go();
	test_export_name();
	test_options();
	test_commands();
	test_refused();
	test_broken();
	test_deaf_peer();
	return tap_done();
}
