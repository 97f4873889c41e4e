/*
 * ring: writes and syncs through io_uring, so that sealing the next frames
 * and writing the last ones overlap with one thread and no locks.
 *
 * Invariants:
 *  1. At most IO_DEPTH operations are in flight: the submission queue never
 *     overflows, and neither does the completion queue (twice its size).
 *  2. An op is done once: short writes are continued in here, interrupted
 *     ones repeated, so that a caller sees all bytes or an error.
 *  3. A failed sync is reported once and never repeated.
 *
 * A crash leaves what the kernel had taken; the pack in work is never
 * appended to again, so nobody asks which.
 */
#include "snapshotter/ring.h"

#include <liburing.h>

struct ring {
	struct io io; /* first */
	struct io_uring uring;
	unsigned int in_flight;
};

static struct ring *ring_of(struct io *io)
{
	return CONTAINER_OF(io, struct ring, io);
}

/* Queues what is left of an op; the kernel takes it at once. */
static void start(struct ring *r, struct io_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
	int n;

	PRE(sqe);
	if (op->kind == IO_SYNC)
		io_uring_prep_fsync(sqe, op->fd, IORING_FSYNC_DATASYNC);
	else
		io_uring_prep_write(sqe, op->fd, op->p + op->done,
				    (unsigned int)(op->len - op->done),
				    op->off + op->done);
	io_uring_sqe_set_data(sqe, op);
	do {
		n = io_uring_submit(&r->uring);
	} while (n == -EINTR || n == -EAGAIN);
	if (n < 0)
		NEVER("io_uring refuses a submission");
}

static void ring_submit(struct io *io, struct io_op *op)
{
	struct ring *r = ring_of(io);

	PRE(!op->busy && r->in_flight < IO_DEPTH);
	PRE(op->kind == IO_SYNC || (op->len > 0 && op->len <= INT32_MAX));
	op->busy = true;
	op->done = 0;
	r->in_flight++;
	start(r, op);
}

/* What the kernel says about an op: done, or some of it must go on. */
static void complete(struct ring *r, struct io_op *op, int res)
{
	if (op->kind == IO_WRITE && res > 0) {
		op->done += (size_t)res;
		if (op->done < op->len) {
			start(r, op);
			return;
		}
	}
	if (op->kind == IO_WRITE && (res == -EINTR || res == -EAGAIN)) {
		start(r, op);
		return;
	}
	if (op->kind == IO_WRITE && res == 0)
		res = -EIO; /* a write that makes no progress */
	op->result = res < 0 ? res : 0;
	op->busy = false;
	r->in_flight--;
}

static void ring_wait(struct io *io)
{
	struct ring *r = ring_of(io);
	unsigned int before = r->in_flight;
	struct io_uring_cqe *cqe;

	while (before && r->in_flight == before) {
		int n = io_uring_wait_cqe(&r->uring, &cqe);

		if (n == -EINTR)
			continue;
		if (n < 0)
			NEVER("io_uring loses completions");
		do {
			struct io_op *op = io_uring_cqe_get_data(cqe);
			int res = cqe->res;

			io_uring_cqe_seen(&r->uring, cqe);
			complete(r, op, res);
		} while (io_uring_peek_cqe(&r->uring, &cqe) == 0);
	}
}

static ssize_t ring_read(struct io *io UNUSED, int fd, void *p, size_t len,
			 uint64_t off)
{
	return io_pread(fd, p, len, off); /* readers are many, the ring's one */
}

static void ring_free(struct io *io)
{
	struct ring *r = ring_of(io);

	while (r->in_flight)
		ring_wait(io);
	io_uring_queue_exit(&r->uring);
	free(r);
}

static const struct io_ops ring_ops = {
	.submit = ring_submit,
	.wait = ring_wait,
	.read = ring_read,
	.free = ring_free,
};

int ring_new(struct io **ret, struct err *e)
{
	struct ring *r = base_alloc(sizeof(*r));
	int n = io_uring_queue_init(IO_DEPTH, &r->uring, 0);

	if (n < 0) {
		free(r);
		return err_sys(e, -n,
			       "set up io_uring (it may be switched off: see "
			       "sysctl kernel.io_uring_disabled)");
	}
	r->io.ops = &ring_ops;
	*ret = &r->io;
	return 0;
}

struct io *ring_or_plain_new(void)
{
	struct io *io;
	struct err e;

	return ring_new(&io, &e) == 0 ? io : io_plain_new();
}
