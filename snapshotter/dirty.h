/*
 * dirty: which pages of guest RAM were written, as a transaction.
 *
 *   arm -> { begin -> scan, scan, ... -> commit | abort }*
 *
 * A scan reports pages written since the one before and protects them anew,
 * before anybody reads them: a page written while it is read is reported
 * again. Commit forgets the epoch's pages: they are durable. Abort gives
 * them back to the next epoch. When a scan fails half-way the set is no
 * longer known: the epoch can only be aborted, and the next one reports
 * every page ("compare everything"), which the packer reduces by hash.
 *
 * Bitmaps: u64 words, bit p % 64 of word p / 64 is page p; dirty_words() of
 * them. One thread uses a tracker at a time.
 */
#ifndef SNAPSHOTTER_DIRTY_H
#define SNAPSHOTTER_DIRTY_H

#include "snapshotter/guestmem.h"

enum dirty_method {
	DIRTY_UFFD, /* userfaultfd WP_ASYNC + PAGEMAP_SCAN (Linux 6.7) */
	DIRTY_COMPARE, /* reads every page that could differ and asks */
};

/*
 * For DIRTY_COMPARE: does `page` with these bytes differ from what the last
 * committed point has? 1 yes, 0 no, -errno.
 */
typedef int (*dirty_differs_fn)(void *ctx, uint32_t page, const void *bytes);

struct dirty_conf {
	enum dirty_method method;
	int uffd; /* DIRTY_UFFD: from the VMM's preload; else -1 */
	int pagemap_fd; /* /proc/PID/pagemap of the VMM */
	const struct guestmem *mem; /* borrowed until dirty_free() */
	dirty_differs_fn differs; /* DIRTY_COMPARE */
	void *ctx;
};

struct dirty;

/*
 * Takes uffd and pagemap_fd on success. -EOPNOTSUPP: this host can't do the
 * method (then use DIRTY_COMPARE; the descriptors are still the caller's).
 */
int dirty_open(struct dirty **ret, const struct dirty_conf *c, struct err *e);
void dirty_free(struct dirty *d);

/*
 * Starts tracking: what is in RAM now is the base. Before the VM's first
 * `cont` and before device state is loaded.
 */
int dirty_arm(struct dirty *d, struct err *e);

const char *dirty_method_name(const struct dirty *d); /* "uffd", "compare" */
size_t dirty_words(const struct dirty *d);

/*
 * Are live passes worth it? False for DIRTY_COMPARE: each scan reports all
 * that differs from the last commit, so repeating it doesn't shrink the set.
 */
bool dirty_is_incremental(const struct dirty *d);

/* True when the next epoch will report every page. */
bool dirty_is_unknown(const struct dirty *d);

void dirty_begin(struct dirty *d);

/*
 * ORs the pages written since the last scan (in the first scan of an epoch
 * also those given back by an abort) into `bits`. Returns how many bits this
 * scan reported, or -errno.
 */
int64_t dirty_scan(struct dirty *d, uint64_t *bits, struct err *e);

/* All pages that the open epoch has reported so far. */
const uint64_t *dirty_epoch_set(const struct dirty *d);

void dirty_commit(struct dirty *d);
void dirty_abort(struct dirty *d);

/* The caller found the set untrustworthy: the next epoch reports all. */
void dirty_forget(struct dirty *d);

#endif
