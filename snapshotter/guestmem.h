/*
 * guestmem: reads guest RAM out of a VMM of another uid, through descriptors
 * that root opened (/proc/PID/mem and maps). Page i is at byte i * 4096 of
 * the RAM image. Needs no capability; works while the guest runs, too.
 */
#ifndef SNAPSHOTTER_GUESTMEM_H
#define SNAPSHOTTER_GUESTMEM_H

#include "core/base.h"
#include "core/err.h"

struct guestmem;

/*
 * Finds where the VMM maps `ram_fd` (the sealed memfd that it was started
 * on; the size is the memfd's). Call after QMP has greeted: RAM is mapped by
 * then. Takes mem_fd on success; borrows the other two for the call.
 * -ENOENT: no mapping covers the memfd.
 */
int guestmem_open(struct guestmem **ret, int mem_fd, int maps_fd, int ram_fd,
		  struct err *e);
void guestmem_free(struct guestmem *g);

uint64_t guestmem_addr(const struct guestmem *g); /* in the VMM */
uint32_t guestmem_pages(const struct guestmem *g); /* of guest RAM */

/* Pages first .. first + nr - 1 into dst (nr * 4096 bytes). Any thread. */
int guestmem_read(const struct guestmem *g, uint32_t first, uint32_t nr,
		  void *dst, struct err *e);

/*
 * Takes up to `max` pages whose bits are set, from *cursor (a page number)
 * on; their numbers go to ret_pages, their bytes to dst (max * 4096), both
 * ascending. Moves *cursor. Returns how many, 0 at the end, -errno. Runs of
 * neighbours are one read.
 */
int guestmem_gather(const struct guestmem *g, const uint64_t *bits,
		    uint32_t *cursor, uint32_t max, uint32_t *ret_pages,
		    void *dst, struct err *e);

#endif
