/*
 * disk_overlay: the blocks that a sandbox wrote, in a sparse file that only
 * ever holds ciphertext (AES-256-XTS, tweak = block number). The key is drawn
 * at _new and lives in this process's memory alone: when the process ends,
 * the file is noise. Which blocks are there is the caller's knowledge.
 */
#ifndef SNAPSHOTTER_DISK_OVERLAY_H
#define SNAPSHOTTER_DISK_OVERLAY_H

#include "core/base.h"
#include "core/err.h"

/* Cipher contexts: one per thread that uses the overlay at the same time. */
enum overlay_lane { OVERLAY_GUEST, OVERLAY_CAPTURE, OVERLAY_LANES };

#define OVERLAY_RUN_MAX 256u /* blocks that one call may move */

struct overlay;

/* Takes fd over (also on failure), empties it and sizes it; -errno. */
int overlay_new(struct overlay **ret, int fd, uint32_t nr_blocks, struct err *e);
void overlay_free(struct overlay *o); /* wipes the key; NULL is fine */

/* At most OVERLAY_RUN_MAX blocks that were written before. -errno, -EIO. */
int overlay_read(struct overlay *o, enum overlay_lane lane, uint32_t block,
		 uint32_t nr, void *ret, struct err *e);

/* Guest's lane. At most OVERLAY_RUN_MAX blocks; -ENOSPC, -EIO, ... */
int overlay_write(struct overlay *o, uint32_t block, uint32_t nr, const void *p,
		  struct err *e);

/* Room for blocks that were not written before, and `leave` bytes? -ENOSPC. */
int overlay_room(const struct overlay *o, uint32_t block, uint64_t leave,
		 struct err *e);

/* Gives the file system its space back if it can; content is undefined. */
void overlay_punch(struct overlay *o, uint32_t block, uint32_t nr);

#endif
