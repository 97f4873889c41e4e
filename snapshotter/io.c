/*
 * io: the blocking implementation of the seam, and the read that every
 * implementation shares.
 *
 * Where io_uring is forbidden (a sandbox's seccomp, a sysctl) capture must
 * still work: an operation is then done before submit returns.
 *
 * Invariants:
 *  1. An op that is not busy has its result: 0 and all bytes, or -errno.
 *
 * A crash leaves what the kernel had: nothing is kept here.
 */
#include "snapshotter/io.h"

ssize_t io_pread(int fd, void *p, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (uint8_t *)p + done, len - done,
				  (off_t)(off + done));

		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	return (ssize_t)done;
}

static void plain_submit(struct io *io UNUSED, struct io_op *op)
{
	PRE(!op->busy);
	if (op->kind == IO_SYNC) {
		op->result = fdatasync(op->fd) < 0 ? -errno : 0;
		return;
	}
	op->result = base_pwrite_all(op->fd, op->p, op->len, op->off);
	op->done = op->result < 0 ? 0 : op->len;
}

static void plain_wait(struct io *io UNUSED)
{
}

static ssize_t plain_read(struct io *io UNUSED, int fd, void *p, size_t len,
			  uint64_t off)
{
	return io_pread(fd, p, len, off);
}

static void plain_free(struct io *io)
{
	free(io);
}

static const struct io_ops plain_ops = {
	.submit = plain_submit,
	.wait = plain_wait,
	.read = plain_read,
	.free = plain_free,
};

struct io *io_plain_new(void)
{
	struct io *io = base_alloc(sizeof(*io));

	io->ops = &plain_ops;
	return io;
}
