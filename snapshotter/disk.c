/*
 * disk: content and change of one sandbox's block device.
 *
 * Content of a block, first match:
 *   present  the overlay holds it: written since this sandbox started
 *   zero     trimmed or written as zeros since then
 *   else     the base point's (ops->read_base), else the template image's,
 *            else zeros beyond the image's end
 *
 * Changes are counted in bitmaps, one bit per block. A write sets dirty, then
 * writes, then sets presence, then is answered: whatever breaks off in
 * between, a block that may have changed is dirty.
 *
 * A capture freezes with the VM stopped: dirty becomes the epoch, which is
 * also the set that is still to be read (frozen). The guest goes on. Whoever
 * comes first to a frozen block reads its old content: the capture, straight
 * into its page; or the guest that is about to overwrite it, into staging.
 * Either takes the block out of frozen. Staging is a fixed stack of pages;
 * the capture empties it first once it is more than half full. If it is full,
 * the guest waits until the capture has taken a page or the very block.
 *
 * Why this can't deadlock: the guest's thread waits only while an epoch is
 * open, for the capture's thread; the capture's thread waits for the guest's
 * only in disk_freeze(), when no epoch is open, and in disk_frozen_next()
 * never. So one of the two always runs, provided that the capture goes on to
 * the end or aborts (disk.h says so), or the owner calls disk_cancel().
 *
 * Invariants:
 *  1. present and zero exclude each other; only the guest's thread changes
 *     them, under the lock (so it may read them without).
 *  2. frozen is a subset of epoch; a block of the epoch was taken, or is
 *     frozen, or is staged, exactly one of them.
 *  3. The guest changes the overlay at a block only when it is neither frozen
 *     nor being read; it can't become so before the change ends, because
 *     freezing waits for the request (busy).
 *  4. No lock is held while a file or a callback is at work.
 *
 * A crash loses the overlay with its key; the session goes back to its last
 * committed point. That is also why FLUSH has nothing to do.
 */
#include "snapshotter/disk.h"

#include <pthread.h>
#include <sys/mman.h>

#include "core/clock.h"
#include "snapshotter/disk_base.h"
#include "snapshotter/disk_overlay.h"
#include "store/datadir.h"

#define NO_BLOCK UINT32_MAX
#define DISK_SMALL 2048u /* blocks written: 8 MiB */
#define ZERO_RUN 4096u /* blocks of a trim done under one claim */

enum source { FROM_BASE, FROM_OVERLAY, FROM_ZERO };

struct disk {
	uint32_t nr_blocks;
	struct disk_base base;
	struct overlay *overlay;
	const struct disk_ops *ops;
	void *ctx;
	uint8_t *scratch; /* guest's thread: old content on its way to staging */

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t moved; /* something that the other may wait for */
	uint64_t *present, *zero, *dirty, *epoch, *frozen;
	bool open; /* between freeze and commit or abort */
	bool busy; /* a change by the guest is under way */
	bool cancelled; /* waits of the guest fail */
	uint32_t reading; /* taken by the capture, not yet read */
	uint32_t cursor; /* no frozen block lies below */
	uint32_t nr_staged, staging_blocks;
	uint32_t *staged_block;
	uint8_t *staging;
	struct disk_stats stats;
};

/* --- bitmaps -------------------------------------------------------------- */

static size_t bits_words(uint32_t nr)
{
	return ((size_t)nr + 63) / 64;
}

static bool bits_test(const uint64_t *bits, uint32_t b)
{
	return bits[b / 64] >> (b % 64) & 1;
}

/* Both return by how much the number of set bits changed: 0 or 1. */
static uint32_t bits_set(uint64_t *bits, uint32_t b)
{
	uint32_t was = bits_test(bits, b);

	bits[b / 64] |= 1ull << (b % 64);
	return !was;
}

static uint32_t bits_clear(uint64_t *bits, uint32_t b)
{
	uint32_t was = bits_test(bits, b);

	bits[b / 64] &= ~(1ull << (b % 64));
	return was;
}

/* First set bit at or after `b`; there is one. */
static uint32_t bits_next(const uint64_t *bits, size_t words, uint32_t b)
{
	size_t w = b / 64;
	uint64_t v = bits[w] & ~0ull << (b % 64);

	while (!v) {
		PRE(w + 1 < words);
		v = bits[++w];
	}
	return (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(v);
}

/* --- making and freeing --------------------------------------------------- */

/*
 * Touched only as far as a capture needs it; guest bytes stay out of dumps.
 */
static uint8_t *staging_map(uint32_t blocks)
{
	size_t len = (size_t)blocks * DISK_BLOCK;
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		base_panic("memory", "map the disk's staging", __FILE__,
			   __LINE__);
	(void)madvise(p, len, MADV_DONTDUMP);
	return p;
}

static void disk_alloc(struct disk *d, uint32_t staging_blocks)
{
	size_t words = bits_words(d->nr_blocks);

	d->present = base_alloc(words * 8);
	d->zero = base_alloc(words * 8);
	d->dirty = base_alloc(words * 8);
	d->epoch = base_alloc(words * 8);
	d->frozen = base_alloc(words * 8);
	d->scratch = base_alloc(DISK_BLOCK);
	d->reading = NO_BLOCK;
	d->staging_blocks = staging_blocks ? staging_blocks
					   : DISK_STAGING_DEFAULT;
	d->staged_block = base_alloc(d->staging_blocks * sizeof(uint32_t));
	d->staging = staging_map(d->staging_blocks);
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->moved, NULL);
}

int disk_new(struct disk **ret, const struct disk_config *c, struct err *e)
{
	struct overlay *overlay;
	struct disk_base base;
	struct disk *d;
	int r;

	PRE(c->nr_blocks && c->nr_blocks <= DISK_BLOCKS_MAX && c->ops);
	r = disk_base_init(&base, c->template_fd, c->ops, c->ctx, e);
	if (r) {
		close(c->overlay_fd);
		return r;
	}
	r = overlay_new(&overlay, c->overlay_fd, c->nr_blocks, e);
	if (r) {
		disk_base_done(&base);
		return r;
	}
	d = base_alloc(sizeof(*d));
	d->nr_blocks = c->nr_blocks;
	d->base = base;
	d->overlay = overlay;
	d->ops = c->ops;
	d->ctx = c->ctx;
	disk_alloc(d, c->staging_blocks);
	*ret = d;
	return 0;
}

void disk_free(struct disk *d)
{
	if (!d)
		return;
	overlay_free(d->overlay);
	disk_base_done(&d->base);
	munmap(d->staging, (size_t)d->staging_blocks * DISK_BLOCK);
	pthread_cond_destroy(&d->moved);
	pthread_mutex_destroy(&d->lock);
	free(d->staged_block);
	base_wipe(d->scratch, DISK_BLOCK);
	free(d->scratch);
	free(d->frozen);
	free(d->epoch);
	free(d->dirty);
	free(d->zero);
	free(d->present);
	free(d);
}

uint32_t disk_nr_blocks(const struct disk *d)
{
	return d->nr_blocks;
}

static void pre_range(const struct disk *d, uint32_t block, uint32_t nr)
{
	PRE(nr && block < d->nr_blocks && nr <= d->nr_blocks - block);
}

/* --- content -------------------------------------------------------------- */

/* Under the lock, or in the guest's thread. */
static enum source source_of(const struct disk *d, uint32_t b)
{
	bool present = bits_test(d->present, b), zero = bits_test(d->zero, b);

	PRE(!(present && zero));
	return present ? FROM_OVERLAY : zero ? FROM_ZERO : FROM_BASE;
}

static int block_read(const struct disk *d, enum overlay_lane lane,
		      enum source from, uint32_t b, uint8_t *page, struct err *e)
{
	switch (from) {
	case FROM_OVERLAY:
		return overlay_read(d->overlay, lane, b, 1, page, e);
	case FROM_ZERO:
		memset(page, 0, DISK_BLOCK);
		return 0;
	case FROM_BASE:
		return disk_base_read(&d->base, b, page, e);
	}
	NEVER("source of a block");
}

/* Guest's thread. True only if it is sure. */
static bool block_is_zero(struct disk *d, uint32_t b)
{
	enum source from = source_of(d, b);

	if (from != FROM_BASE)
		return from == FROM_ZERO;
	return disk_base_is_zero(&d->base, b);
}

/* --- the guest's side ----------------------------------------------------- */

/*
 * What a failed request is answered, and the news for the owner. The guest
 * tries again after `cont`, so nothing but the answer is lost.
 */
static int guest_failed(struct disk *d, int r, struct err *e)
{
	pthread_mutex_lock(&d->lock);
	d->stats.errors++;
	pthread_mutex_unlock(&d->lock);
	if (r == -ESHUTDOWN)
		return r;
	if (d->ops->stalled)
		d->ops->stalled(d->ctx, e);
	return r == -ENOSPC || r == -EDQUOT || r == -EFBIG ? -ENOSPC : -EIO;
}

/* The longest run from `block` on that comes from one source. */
static uint32_t run_len(const struct disk *d, uint32_t block, uint32_t nr)
{
	enum source from = source_of(d, block);
	uint32_t n = 1;

	nr = MIN(nr, OVERLAY_RUN_MAX);
	while (n < nr && source_of(d, block + n) == from)
		n++;
	return n;
}

static int run_read(struct disk *d, uint32_t block, uint32_t nr, uint8_t *p,
		    struct err *e)
{
	enum source from = source_of(d, block);
	int r = 0;

	if (from == FROM_OVERLAY)
		return overlay_read(d->overlay, OVERLAY_GUEST, block, nr, p, e);
	for (uint32_t i = 0; i < nr && !r; i++, p += DISK_BLOCK)
		r = block_read(d, OVERLAY_GUEST, from, block + i, p, e);
	return r;
}

int disk_read(struct disk *d, uint32_t block, uint32_t nr, void *ret,
	      struct err *e)
{
	uint8_t *p = ret;
	int r = 0;

	pre_range(d, block, nr);
	pthread_mutex_lock(&d->lock);
	d->stats.reads++;
	d->stats.read_blocks += nr;
	pthread_mutex_unlock(&d->lock);
	while (nr && !r) {
		uint32_t n = run_len(d, block, nr);

		r = run_read(d, block, n, p, e);
		block += n;
		nr -= n;
		p += (size_t)n * DISK_BLOCK;
	}
	return r ? guest_failed(d, r, e) : 0;
}

static void change_begin(struct disk *d)
{
	pthread_mutex_lock(&d->lock);
	PRE(!d->busy);
	d->busy = true;
	pthread_mutex_unlock(&d->lock);
}

static void change_end(struct disk *d)
{
	pthread_mutex_lock(&d->lock);
	d->busy = false;
	pthread_cond_broadcast(&d->moved);
	pthread_mutex_unlock(&d->lock);
}

/* Lock held. Waits for the capture to move; -ESHUTDOWN when cancelled. */
static int guest_wait(struct disk *d, struct err *e)
{
	int64_t start = clock_mono(&clock_real);

	if (d->cancelled)
		return err_set(e, -ESHUTDOWN, ERR_BUSY,
			       "disk: the sandbox is going away");
	d->stats.waits++;
	pthread_cond_wait(&d->moved, &d->lock);
	d->stats.wait_ns += (uint64_t)(clock_mono(&clock_real) - start);
	return 0;
}

static void stage_push(struct disk *d, uint32_t b)
{
	PRE(d->nr_staged < d->staging_blocks);
	memcpy(d->staging + (size_t)d->nr_staged * DISK_BLOCK, d->scratch,
	       DISK_BLOCK);
	d->staged_block[d->nr_staged++] = b;
	d->stats.frozen -= bits_clear(d->frozen, b);
	d->stats.copies++;
}

/*
 * Lock held, dropped while reading. Afterwards the block's content as of the
 * freeze is safe with the capture or in staging, and the block may change.
 * The capture may take the block while the lock is away: then the copy is
 * not needed, and the capture must have finished reading.
 */
static int preserve(struct disk *d, uint32_t b, struct err *e)
{
	int r = 0;

	while (!r && (d->reading == b || bits_test(d->frozen, b))) {
		if (d->reading == b || d->nr_staged == d->staging_blocks) {
			r = guest_wait(d, e);
			continue;
		}
		pthread_mutex_unlock(&d->lock);
		r = block_read(d, OVERLAY_GUEST, source_of(d, b), b, d->scratch,
			       e);
		pthread_mutex_lock(&d->lock);
		if (!r && bits_test(d->frozen, b) &&
		    d->nr_staged < d->staging_blocks)
			stage_push(d, b);
	}
	return r;
}

/* Preserves the block if it is frozen and marks it dirty. */
static int claim(struct disk *d, uint32_t b, struct err *e)
{
	int r;

	pthread_mutex_lock(&d->lock);
	r = preserve(d, b, e);
	if (!r)
		d->stats.dirty += bits_set(d->dirty, b);
	pthread_mutex_unlock(&d->lock);
	return r;
}

static void written(struct disk *d, uint32_t block, uint32_t nr)
{
	pthread_mutex_lock(&d->lock);
	for (uint32_t b = block; b < block + nr; b++) {
		bits_clear(d->zero, b);
		d->stats.overlay += bits_set(d->present, b);
	}
	pthread_mutex_unlock(&d->lock);
}

static void zeroed(struct disk *d, uint32_t block, uint32_t nr)
{
	pthread_mutex_lock(&d->lock);
	for (uint32_t b = block; b < block + nr; b++) {
		d->stats.overlay -= bits_clear(d->present, b);
		bits_set(d->zero, b);
	}
	pthread_mutex_unlock(&d->lock);
}

/*
 * What is rewritten needs no space; the rest must leave the log's alone. A
 * guest that has written little is not stopped for one that writes much.
 */
static int write_room(struct disk *d, uint32_t block, uint32_t nr, struct err *e)
{
	bool small = d->stats.overlay + nr <= DISK_SMALL;

	for (uint32_t i = 0; i < nr; i++)
		if (source_of(d, block + i) != FROM_OVERLAY)
			return overlay_room(d->overlay, block + i,
					    small ? DATADIR_LEAVE_OUTPUT
						  : DATADIR_LEAVE_BULK,
					    e);
	return 0;
}

static int write_run(struct disk *d, uint32_t block, uint32_t nr,
		     const uint8_t *p, struct err *e)
{
	int r = write_room(d, block, nr, e);

	if (r)
		return r;
	change_begin(d);
	for (uint32_t i = 0; i < nr && !r; i++)
		r = claim(d, block + i, e);
	if (!r)
		r = overlay_write(d->overlay, block, nr, p, e);
	if (!r)
		written(d, block, nr);
	change_end(d);
	return r;
}

int disk_write(struct disk *d, uint32_t block, uint32_t nr, const void *p,
	       struct err *e)
{
	const uint8_t *in = p;
	int r = 0;

	pre_range(d, block, nr);
	pthread_mutex_lock(&d->lock);
	d->stats.writes++;
	d->stats.write_blocks += nr;
	pthread_mutex_unlock(&d->lock);
	while (nr && !r) {
		uint32_t n = MIN(nr, OVERLAY_RUN_MAX);

		r = write_run(d, block, n, in, e);
		block += n;
		nr -= n;
		in += (size_t)n * DISK_BLOCK;
	}
	return r ? guest_failed(d, r, e) : 0;
}

/*
 * Presence goes before the hole is punched: the capture must not read from
 * the overlay what is about to vanish there.
 */
static int zero_run(struct disk *d, uint32_t block, uint32_t nr, struct err *e)
{
	bool changed = false;
	int r = 0;

	change_begin(d);
	for (uint32_t b = block; b < block + nr && !r; b++) {
		if (block_is_zero(d, b))
			continue;
		changed = true;
		r = claim(d, b, e);
	}
	if (!r && changed) {
		zeroed(d, block, nr);
		overlay_punch(d->overlay, block, nr);
	}
	change_end(d);
	return r;
}

int disk_zero(struct disk *d, uint32_t block, uint32_t nr, struct err *e)
{
	int r = 0;

	pre_range(d, block, nr);
	pthread_mutex_lock(&d->lock);
	d->stats.zeroes++;
	d->stats.zero_blocks += nr;
	pthread_mutex_unlock(&d->lock);
	while (nr && !r) {
		uint32_t n = MIN(nr, ZERO_RUN);

		r = zero_run(d, block, n, e);
		block += n;
		nr -= n;
	}
	return r ? guest_failed(d, r, e) : 0;
}

void disk_cancel(struct disk *d)
{
	pthread_mutex_lock(&d->lock);
	d->cancelled = true;
	pthread_cond_broadcast(&d->moved);
	pthread_mutex_unlock(&d->lock);
}

/* --- the capture's side --------------------------------------------------- */

uint32_t disk_freeze(struct disk *d)
{
	size_t len = bits_words(d->nr_blocks) * 8;
	uint64_t *dirty;
	uint32_t nr;

	pthread_mutex_lock(&d->lock);
	PRE(!d->open);
	while (d->busy)
		pthread_cond_wait(&d->moved, &d->lock);
	PRE(!d->nr_staged && !d->stats.frozen);
	dirty = d->dirty;
	d->dirty = d->epoch;
	d->epoch = dirty;
	memset(d->dirty, 0, len);
	memcpy(d->frozen, d->epoch, len);
	nr = d->stats.dirty;
	d->stats.dirty = 0;
	d->stats.frozen = nr;
	d->cursor = 0;
	d->open = true;
	pthread_mutex_unlock(&d->lock);
	return nr;
}

/* Lock held. */
static uint32_t stage_pop(struct disk *d, void *ret_page)
{
	d->nr_staged--;
	memcpy(ret_page, d->staging + (size_t)d->nr_staged * DISK_BLOCK,
	       DISK_BLOCK);
	pthread_cond_broadcast(&d->moved);
	return d->staged_block[d->nr_staged];
}

/* Lock held, dropped while reading. */
static int frozen_take(struct disk *d, uint32_t *ret_block, void *ret_page,
		       struct err *e)
{
	uint32_t b = bits_next(d->frozen, bits_words(d->nr_blocks), d->cursor);
	enum source from = source_of(d, b);
	int r;

	d->stats.frozen -= bits_clear(d->frozen, b);
	d->cursor = b;
	d->reading = b;
	pthread_mutex_unlock(&d->lock);
	r = block_read(d, OVERLAY_CAPTURE, from, b, ret_page, e);
	pthread_mutex_lock(&d->lock);
	d->reading = NO_BLOCK;
	if (r)
		d->stats.frozen += bits_set(d->frozen, b);
	else
		*ret_block = b;
	pthread_cond_broadcast(&d->moved);
	return r;
}

int disk_frozen_next(struct disk *d, uint32_t *ret_block, void *ret_page,
		     struct err *e)
{
	int r = 1;

	pthread_mutex_lock(&d->lock);
	PRE(d->open);
	if (d->nr_staged &&
	    (d->nr_staged > d->staging_blocks / 2 || !d->stats.frozen)) {
		*ret_block = stage_pop(d, ret_page);
	} else if (d->stats.frozen) {
		r = frozen_take(d, ret_block, ret_page, e);
		r = r ? r : 1;
	} else {
		r = 0;
	}
	pthread_mutex_unlock(&d->lock);
	return r;
}

/* Lock held. */
static void epoch_close(struct disk *d)
{
	d->nr_staged = 0;
	d->stats.frozen = 0;
	d->open = false;
	pthread_cond_broadcast(&d->moved);
}

/*
 * Gives staging's memory back, and the guest's bytes in it. Without the lock:
 * nobody touches staging until this thread freezes again.
 */
static void staging_release(struct disk *d)
{
	if (madvise(d->staging, (size_t)d->staging_blocks * DISK_BLOCK,
		    MADV_DONTNEED))
		NEVER("staging can't be given back");
}

void disk_commit(struct disk *d)
{
	pthread_mutex_lock(&d->lock);
	PRE(d->open && !d->stats.frozen && !d->nr_staged);
	epoch_close(d);
	pthread_mutex_unlock(&d->lock);
	staging_release(d);
}

void disk_abort(struct disk *d)
{
	size_t words = bits_words(d->nr_blocks);
	uint32_t nr = 0;

	pthread_mutex_lock(&d->lock);
	PRE(d->open);
	for (size_t i = 0; i < words; i++) {
		d->dirty[i] |= d->epoch[i];
		d->frozen[i] = 0;
		nr += (uint32_t)__builtin_popcountll(d->dirty[i]);
	}
	d->stats.dirty = nr;
	epoch_close(d);
	pthread_mutex_unlock(&d->lock);
	staging_release(d);
}

int disk_read_current(struct disk *d, uint32_t block, void *ret_page,
		      struct err *e)
{
	enum source from;

	pre_range(d, block, 1);
	pthread_mutex_lock(&d->lock);
	from = source_of(d, block);
	pthread_mutex_unlock(&d->lock);
	return block_read(d, OVERLAY_CAPTURE, from, block, ret_page, e);
}

void disk_stats(struct disk *d, struct disk_stats *ret)
{
	pthread_mutex_lock(&d->lock);
	*ret = d->stats;
	pthread_mutex_unlock(&d->lock);
}
