/*
 * dirty_uffd: the tracker by userfaultfd WP_ASYNC and PAGEMAP_SCAN.
 * Used by dirty.c alone; see dirty.h for the contract.
 */
#ifndef SNAPSHOTTER_DIRTY_UFFD_H
#define SNAPSHOTTER_DIRTY_UFFD_H

#include "snapshotter/guestmem.h"

/* Asks the kernel for the features; -EOPNOTSUPP if it has them not. */
int dirty_uffd_init(int uffd, struct err *e);

/* Registers all of RAM for write protection. */
int dirty_uffd_register(int uffd, const struct guestmem *mem, struct err *e);

/*
 * ORs pages written since the last scan into `bits` and protects them anew.
 * On an error pages may have been protected without being in `bits`.
 */
int dirty_uffd_scan(int pagemap_fd, const struct guestmem *mem, uint64_t *bits,
		    struct err *e);

#endif
