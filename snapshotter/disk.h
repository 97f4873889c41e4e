/*
 * disk: the block device of one running sandbox, as the snapshotter sees it:
 * content, what changed since the last capture, and a frozen view of it that
 * is read behind the running guest. The guest reaches it through disk_nbd.
 *
 * Two threads at most use one disk: the guest's (disk_nbd's; the functions
 * below marked GUEST) and the capture's (marked CAPTURE). disk_stats() may be
 * called from any thread.
 */
#ifndef SNAPSHOTTER_DISK_H
#define SNAPSHOTTER_DISK_H

#include "core/base.h"
#include "core/err.h"

#define DISK_BLOCK CRYO_PAGE
#define DISK_BLOCKS_MAX (16u << 18) /* 16 GiB */
#define DISK_STAGING_DEFAULT (64u << 8) /* blocks: 64 MiB */

struct disk;

struct disk_ops {
	/*
	 * Content of a block in the point that this sandbox started from.
	 * 0: page filled; 1: the point doesn't map it, the template's holds;
	 * -errno. Called from both threads, possibly at once, with no lock
	 * held. NULL: a fresh boot, nothing is mapped.
	 */
	int (*read_base)(void *ctx, uint32_t block, void *ret_page);
	/*
	 * Whether read_base would answer 0, without reading. Lets a trim of
	 * what is zero already stay clean. NULL: any block may be mapped.
	 */
	bool (*maps_base)(void *ctx, uint32_t block);
	/*
	 * A request of the guest failed for want of space or by an I/O error;
	 * the machine stops (werror=stop, rerror=stop) and goes on at `cont`.
	 * From the guest's thread, no lock held; must not block. May be NULL.
	 */
	void (*stalled)(void *ctx, const struct err *e);
};

struct disk_config {
	uint32_t nr_blocks; /* of 4 KiB; 1..DISK_BLOCKS_MAX */
	uint32_t staging_blocks; /* 0: DISK_STAGING_DEFAULT */
	int template_fd; /* image file, read with pread; -1: all zeros */
	int overlay_fd; /* an empty file of this sandbox alone, read-write */
	const struct disk_ops *ops; /* kept by reference */
	void *ctx;
};

/*
 * Takes over both descriptors (also when it fails), truncates the overlay
 * and draws its key, which lives in this process alone.
 */
int disk_new(struct disk **ret, const struct disk_config *c, struct err *e);
void disk_free(struct disk *d); /* after disk_nbd_free(); NULL is fine */

uint32_t disk_nr_blocks(const struct disk *d);

/*
 * GUEST. Whole blocks inside the disk (the caller has checked). A failure
 * fills e and was told to ops->stalled; what was written of the range is
 * then undefined, as on any disk, and stays dirty. -ENOSPC, -EIO,
 * -ESHUTDOWN after disk_cancel().
 */
int disk_read(struct disk *d, uint32_t block, uint32_t nr, void *ret,
	      struct err *e);
int disk_write(struct disk *d, uint32_t block, uint32_t nr, const void *p,
	       struct err *e);
int disk_zero(struct disk *d, uint32_t block, uint32_t nr, struct err *e);

/*
 * CAPTURE, in this order: freeze, next until 0, then commit; abort at any
 * time after freeze.
 *
 * disk_freeze(): what changed since the last freeze becomes the frozen set;
 * returns its size in blocks. The VM is stopped (QMP `stop` has answered);
 * a request that is under way all the same is waited for.
 */
uint32_t disk_freeze(struct disk *d);

/*
 * One block of the frozen set with its content as of the freeze, and lets go
 * of it. Returns 1, 0 when none is left, -errno (the block stays frozen).
 * Mostly ascending, but in any order: blocks that the guest overwrote go
 * first when staging fills. The caller must go on to the end or abort without
 * waiting for the guest: a guest that overwrites more than staging holds
 * waits for these calls (so no QMP `stop` in between).
 */
int disk_frozen_next(struct disk *d, uint32_t *ret_block, void *ret_page,
		     struct err *e);
void disk_commit(struct disk *d); /* every frozen block was taken */
void disk_abort(struct disk *d); /* the whole frozen set is dirty again */

/* CAPTURE, VM stopped: content now; for the check mode. */
int disk_read_current(struct disk *d, uint32_t block, void *ret_page,
		      struct err *e);

/* Any thread: a guest's request that waits for staging fails from now on. */
void disk_cancel(struct disk *d);

struct disk_stats {
	uint64_t reads, writes, zeroes; /* requests */
	uint64_t read_blocks, write_blocks, zero_blocks;
	uint64_t copies; /* frozen blocks copied before a write */
	uint64_t waits; /* times the guest waited for the capture */
	uint64_t wait_ns; /* and how long, in all */
	uint64_t errors; /* requests that failed */
	uint32_t dirty; /* blocks changed since the last freeze */
	uint32_t frozen; /* of the open capture, not yet taken */
	uint32_t overlay; /* blocks held in the overlay */
};

void disk_stats(struct disk *d, struct disk_stats *ret);

#endif
