/*
 * disk_base: what lies below a disk's overlay and never changes while the
 * sandbox runs: the point that it started from, and below that the template's
 * image, followed by zeros.
 */
#ifndef SNAPSHOTTER_DISK_BASE_H
#define SNAPSHOTTER_DISK_BASE_H

#include "snapshotter/disk.h"

struct disk_base {
	int template_fd; /* -1: all zeros */
	uint64_t template_len;
	uint64_t hole_start, hole_end; /* last hole seen; guest's thread */
	const struct disk_ops *ops;
	void *ctx;
};

/* Takes template_fd over, also on failure. */
int disk_base_init(struct disk_base *b, int template_fd,
		   const struct disk_ops *ops, void *ctx, struct err *e);
void disk_base_done(struct disk_base *b);

/* Any thread. -errno; fills a whole page. */
int disk_base_read(const struct disk_base *b, uint32_t block, void *ret_page,
		   struct err *e);

/* Guest's thread. True only if sure, and without reading content. */
bool disk_base_is_zero(struct disk_base *b, uint32_t block);

#endif
