/*
 * io: the seam between what writes packs and the kernel. The real one is
 * ring.h (io_uring); io_plain makes blocking calls, where io_uring is
 * forbidden; tests put one here that fails, tears and forgets.
 *
 * A struct io serves one thread, except read(), which any thread may call.
 */
#ifndef SNAPSHOTTER_IO_H
#define SNAPSHOTTER_IO_H

#include "core/base.h"

enum io_kind { IO_WRITE, IO_SYNC };

/* One request; the caller's, untouched by him from submit until !busy. */
struct io_op {
	enum io_kind kind; /* IO_SYNC: fdatasync, of what is done already */
	int fd;
	const uint8_t *p;
	size_t len;
	uint64_t off;
	size_t done; /* bytes written so far; the engine's */
	int result; /* once done: 0, or -errno; never a short write */
	bool busy;
};

struct io;

struct io_ops {
	/* Starts op. Errors come as its result. Depth: at most IO_DEPTH busy. */
	void (*submit)(struct io *io, struct io_op *op);
	/* Returns once at least one busy op is done; none busy: at once. */
	void (*wait)(struct io *io);
	/* Blocking; bytes read, less than len only at the file's end. */
	ssize_t (*read)(struct io *io, int fd, void *p, size_t len, uint64_t off);
	void (*free)(struct io *io);
};

struct io {
	const struct io_ops *ops;
};

#define IO_DEPTH 16u

static inline void io_submit(struct io *io, struct io_op *op)
{
	io->ops->submit(io, op);
}

static inline void io_wait(struct io *io)
{
	io->ops->wait(io);
}

static inline ssize_t io_read(struct io *io, int fd, void *p, size_t len,
			      uint64_t off)
{
	return io->ops->read(io, fd, p, len, off);
}

static inline void io_free(struct io *io)
{
	if (io)
		io->ops->free(io);
}

/* pread until len or the end of the file; for implementations of read(). */
ssize_t io_pread(int fd, void *p, size_t len, uint64_t off);

/* Blocking calls. Never NULL. */
struct io *io_plain_new(void);

#endif
