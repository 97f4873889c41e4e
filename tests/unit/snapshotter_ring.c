/*
 * ring, io, append: both engines behind one seam do the same, errors come as
 * results, and a stream of appends is the file, byte by byte.
 */
#include "snapshotter/append.h"
#include "snapshotter/ring.h"
#include "tests/packs.h"

#include <signal.h>
#include <sys/resource.h>

static void finish(struct io *io, struct io_op *op)
{
	while (op->busy)
		io_wait(io);
}

static void test_writes(struct io *io, const char *name)
{
	static uint8_t p[IO_DEPTH][3000], back[IO_DEPTH * 3000];
	struct io_op op[IO_DEPTH] = { 0 };
	int fd = memfd_create("f", MFD_CLOEXEC);
	bool good = true;

	for (size_t i = 0; i < IO_DEPTH; i++) {
		memset(p[i], (int)i + 1, sizeof(p[i]));
		op[i] = (struct io_op){ .kind = IO_WRITE,
					.fd = fd,
					.p = p[i],
					.len = sizeof(p[i]),
					.off = (IO_DEPTH - 1 - i) * 3000 };
		io_submit(io, &op[i]);
	}
	for (size_t i = 0; i < IO_DEPTH; i++) {
		finish(io, &op[i]);
		good &= op[i].result == 0 && op[i].done == sizeof(p[i]);
	}
	ok(good, "%s: as many writes at once as it says", name);
	is_int(io_read(io, fd, back, sizeof(back) + 0, 0), sizeof(back),
	       "%s: reads", name);
	for (size_t i = 0; i < sizeof(back); i++)
		good &= back[i] == IO_DEPTH - i / 3000;
	ok(good, "%s: each at its offset", name);
	is_int(io_read(io, fd, back, 100, sizeof(back) - 40), 40,
	       "%s: a read is short at the end only", name);
	op[0] = (struct io_op){ .kind = IO_SYNC, .fd = fd };
	io_submit(io, &op[0]);
	finish(io, &op[0]);
	is_int(op[0].result, 0, "%s: sync", name);
	io_wait(io);
	ok(true, "%s: waiting for nothing returns", name);
	close(fd);
}

static void test_errors(struct io *io, const char *name)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct io_op op = {
		.kind = IO_WRITE, .fd = fd, .p = (const uint8_t *)"x", .len = 1
	};

	io_submit(io, &op);
	finish(io, &op);
	is_int(op.result, -EBADF, "%s: a file that can't be written", name);
	op = (struct io_op){ .kind = IO_SYNC, .fd = 9999 };
	io_submit(io, &op);
	finish(io, &op);
	is_int(op.result, -EBADF, "%s: a sync of nothing", name);
	is_int(io_read(io, 9999, &op, 1, 0), -EBADF, "%s: a read of nothing",
	       name);
	close(fd);
}

/* A file may grow to 5000 bytes: the write is short, then refused. */
static void test_short(struct io *io, const char *name)
{
	static uint8_t p[8192];
	struct rlimit old, now;
	char path[] = "/tmp/cryo-ring-XXXXXX";
	int fd = mkstemp(path);
	struct io_op op = { .kind = IO_WRITE, .fd = fd, .p = p, .len = sizeof(p) };

	unlink(path);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	now = (struct rlimit){ 5000, old.rlim_max };
	setrlimit(RLIMIT_FSIZE, &now);
	io_submit(io, &op);
	finish(io, &op);
	setrlimit(RLIMIT_FSIZE, &old);
	is_int(op.result, -EFBIG, "%s: a short write is an error", name);
	is_int(lseek(fd, 0, SEEK_END), 5000, "%s: after what fitted", name);
	close(fd);
}

/* Random pieces; the file is their concatenation. */
static void test_append(struct io *io, const char *name, uint64_t *seed)
{
	size_t total = (size_t)11 << 20, at = 0;
	uint8_t *want = base_alloc(total), *got = base_alloc(total);
	struct append *a = append_new(io);
	int fd = memfd_create("f", MFD_CLOEXEC);
	bool good = true;

	for (size_t i = 0; i < total; i++)
		want[i] = (uint8_t)(tap_rand(seed) >> 13);
	append_start(a, fd);
	while (at < total) {
		uint64_t r = tap_rand(seed);
		size_t n = MIN(total - at, r % 50 ? r % 9000 : r % (3u << 20));

		good &= append_pos(a) == at && append_put(a, want + at, n) == 0;
		at += n;
		if (r % 40 == 7)
			good &= append_sync(a) == 0;
	}
	ok(good, "%s: appends", name);
	is_int(append_sync(a), 0, "%s: the last sync", name);
	is_int(base_pread_all(fd, got, total, 0), 0, "%s: all is there", name);
	is_mem(got, want, total, "%s: in order", name);
	is_int(lseek(fd, 0, SEEK_END), total, "%s: and no more", name);
	append_free(a);
	close(fd);
	free(want);
	free(got);
}

static void test_append_policy(void)
{
	static struct packs_disk d = { .io.ops = &packs_disk_ops };
	static uint8_t piece[1 << 20];
	struct append *a = append_new(&d.io);
	int fd = memfd_create("f", MFD_CLOEXEC);
	int other = memfd_create("g", MFD_CLOEXEC);
	uint64_t seed = 1;

	append_start(a, fd);
	for (int i = 0; i < 9; i++)
		append_put(a, piece, sizeof(piece));
	is_int(d.writes, 9, "a write per full buffer");
	is_int(d.syncs, 2, "a sync every 4 MiB, before anybody asks");
	is_int(append_sync(a), 0, "and one at the end");
	is_int(d.syncs, 3, "that is really made");

	d.fail_write_in = 1;
	append_put(a, piece, 10);
	is_int(d.writes, 9, "a buffer that isn't full waits");
	is_int(append_sync(a), -ENOSPC, "a failed write fails the sync");
	is_int(d.syncs, 3, "which is not even tried");
	is_int(append_put(a, piece, 10), -ENOSPC, "the error sticks");
	is_int(append_sync(a), -ENOSPC, "to all that follows");
	append_start(a, other);
	is_int(append_put(a, piece, 10), 0, "but not to another file");
	is_int(append_pos(a), 10, "which starts at its beginning");
	d.fail_sync_in = 1;
	is_int(append_sync(a), -EIO, "a failed sync");
	is_int(append_sync(a), -EIO, "is not tried again: it would lie");
	is_int(d.syncs, 4, "indeed");
	append_free(a);
	append_free(NULL);
	packs_crash(&d, &seed);
	close(fd);
	close(other);
}

int main(void)
{
	uint64_t seed = tap_seed();
	struct io *plain = io_plain_new(), *ring;
	struct err e;

	test_writes(plain, "plain");
	test_errors(plain, "plain");
	test_short(plain, "plain");
	test_append(plain, "plain", &seed);
	io_free(plain);
	if (ring_new(&ring, &e) < 0) {
		ok(true, "no io_uring here # SKIP %s", e.msg);
	} else {
		test_writes(ring, "ring");
		test_errors(ring, "ring");
		test_short(ring, "ring");
		test_append(ring, "ring", &seed);
		io_free(ring);
	}
	ring = ring_or_plain_new();
	ok(ring, "one of them always");
	io_free(ring);
	io_free(NULL);
	test_append_policy();
	return tap_done();
}
