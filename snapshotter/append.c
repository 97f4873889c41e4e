/*
 * append: a queue of large buffers between a producer and a file.
 *
 * The producer fills one buffer; full ones are on their way to the kernel.
 * Only when all are busy does it wait, which is the back-pressure. Every 4
 * MiB a sync is started and not waited for: a device flush drains what
 * everybody wrote, so a large backlog here would be a long commit elsewhere.
 *
 * Invariants:
 *  1. Bytes reach the file at the offsets at which they were put.
 *  2. append_sync() answers 0 only if every write since append_start()
 *     succeeded and a sync begun after the last of them did.
 *  3. The first error is the answer to every call after it.
 *
 * A crash leaves some of the buffers in the file, in any order, perhaps with
 * holes between them: what was not synced is never named by an event.
 */
#include "snapshotter/append.h"

#include "store/datadir.h"

struct slot {
	struct io_op op;
	uint8_t *buf;
	bool started; /* its result has not been looked at */
};

struct append {
	struct io *io;
	int fd;
	int error;
	uint64_t pos; /* of the next byte put */
	size_t fill; /* bytes in slot[at], not yet started */
	unsigned int at;
	uint64_t unsynced; /* bytes started since the last sync was */
	struct io_op sync;
	bool sync_started;
	struct slot slot[APPEND_BUFS];
	uint8_t *mem;
};

static_assert(APPEND_BUFS + 1 <= IO_DEPTH, "every buffer and one sync");

struct append *append_new(struct io *io)
{
	struct append *a = base_alloc(sizeof(*a));

	a->io = io;
	a->fd = -1;
	a->mem = base_alloc(APPEND_BUFS * (size_t)APPEND_BUF_LEN);
	for (size_t i = 0; i < APPEND_BUFS; i++)
		a->slot[i].buf = a->mem + i * APPEND_BUF_LEN;
	return a;
}

static void take_result(struct append *a, const struct io_op *op, bool *started)
{
	if (!*started || op->busy)
		return;
	*started = false;
	if (op->result < 0 && !a->error)
		a->error = op->result;
}

static void collect(struct append *a)
{
	for (size_t i = 0; i < APPEND_BUFS; i++)
		take_result(a, &a->slot[i].op, &a->slot[i].started);
	take_result(a, &a->sync, &a->sync_started);
}

static bool any_started(const struct append *a)
{
	for (size_t i = 0; i < APPEND_BUFS; i++) {
		if (a->slot[i].started)
			return true;
	}
	return a->sync_started;
}

static void wait_all(struct append *a)
{
	collect(a);
	while (any_started(a)) {
		io_wait(a->io);
		collect(a);
	}
}

void append_free(struct append *a)
{
	if (!a)
		return;
	wait_all(a);
	free(a->mem);
	free(a);
}

void append_start(struct append *a, int fd)
{
	wait_all(a);
	a->fd = fd;
	a->error = 0;
	a->pos = a->unsynced = 0;
	a->fill = a->at = 0;
}

uint64_t append_pos(const struct append *a)
{
	return a->pos;
}

static void start_sync(struct append *a)
{
	a->sync = (struct io_op){ .kind = IO_SYNC, .fd = a->fd };
	a->sync_started = true;
	a->unsynced = 0;
	io_submit(a->io, &a->sync);
}

/* Sends the buffer in work on its way. */
static void flush(struct append *a)
{
	struct slot *s = &a->slot[a->at];

	if (!a->fill)
		return;
	a->error = datadir_room(a->fd, DATADIR_LEAVE_BULK);
	if (a->error)
		return;
	s->op = (struct io_op){
		.kind = IO_WRITE,
		.fd = a->fd,
		.p = s->buf,
		.len = a->fill,
		.off = a->pos - a->fill,
	};
	s->started = true;
	a->unsynced += a->fill;
	a->fill = 0;
	io_submit(a->io, &s->op);
	if (a->unsynced >= APPEND_SYNC_LEN && !a->sync_started)
		start_sync(a);
}

/* Makes slot[at] one that is free; the lowest, to touch little memory. */
static void next_slot(struct append *a)
{
	collect(a);
	for (;;) {
		for (a->at = 0; a->at < APPEND_BUFS; a->at++) {
			if (!a->slot[a->at].started)
				return;
		}
		io_wait(a->io);
		collect(a);
	}
}

int append_put(struct append *a, const void *p, size_t len)
{
	const uint8_t *b = p;

	PRE(a->fd >= 0);
	while (len && !a->error) {
		size_t n;

		if (!a->fill)
			next_slot(a);
		n = MIN(len, APPEND_BUF_LEN - a->fill);
		memcpy(a->slot[a->at].buf + a->fill, b, n);
		a->fill += n;
		a->pos += n;
		b += n;
		len -= n;
		if (a->fill == APPEND_BUF_LEN)
			flush(a);
	}
	return a->error;
}

int append_sync(struct append *a)
{
	PRE(a->fd >= 0);
	if (!a->error)
		flush(a);
	wait_all(a);
	if (a->error)
		return a->error;
	start_sync(a);
	wait_all(a);
	return a->error;
}
