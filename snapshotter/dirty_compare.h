/*
 * dirty_compare: the tracker for hosts without userfaultfd's WP_ASYNC. Used
 * by dirty.c alone; see dirty.h for the contract.
 */
#ifndef SNAPSHOTTER_DIRTY_COMPARE_H
#define SNAPSHOTTER_DIRTY_COMPARE_H

#include "snapshotter/dirty.h"

/*
 * Adds to `candidates` the pages that the VMM has a private copy of: RAM is
 * a private mapping of a sealed memfd, so only these can differ from it.
 */
int dirty_compare_candidates(int pagemap_fd, const struct guestmem *mem,
			     uint64_t *candidates, struct err *e);

/* Sets in `bits` the candidates that `differs` says yes to. */
int dirty_compare_scan(const struct guestmem *mem, const uint64_t *candidates,
		       uint64_t *bits, dirty_differs_fn differs, void *ctx,
		       struct err *e);

#endif
