/*
 * dirty: the transaction over a tracker.
 *
 * `carry` holds what an aborted epoch gave back; `epoch` what the open one
 * has reported; a scan goes through `scan` first, so that it can be counted.
 *
 *            begin                 commit: epoch := 0
 *   CLOSED ---------> OPEN ------------------------------> CLOSED
 *                      |           abort: carry |= epoch
 *                      +---------------------------------> CLOSED
 *   a failed scan in OPEN: unknown := true, only abort is left
 *
 *  1. A page once reported by the tracker is in `carry` or `epoch` until a
 *     commit: it can't get lost.
 *  2. While `unknown` a scan reports every page; only the commit of an epoch
 *     that scanned everything clears it.
 *
 * Nothing survives a crash, and nothing has to: the VMM dies with us, and
 * the next epoch of the session starts on a whole image.
 */
#include "snapshotter/dirty.h"

#include "snapshotter/dirty_compare.h"
#include "snapshotter/dirty_uffd.h"

struct dirty {
	struct dirty_conf c;
	size_t words;
	bool armed, open, failed;
	bool unknown; /* the set is not known: report every page */
	bool took_all; /* the open epoch has reported every page */
	uint64_t *carry, *epoch, *scan, *candidates;
};

static void free_sets(struct dirty *d)
{
	free(d->carry);
	free(d->epoch);
	free(d->scan);
	free(d->candidates);
	free(d);
}

int dirty_open(struct dirty **ret, const struct dirty_conf *c, struct err *e)
{
	struct dirty *d;
	int r = 0;

	PRE(c->mem && c->pagemap_fd >= 0);
	PRE(IMPLIES(c->method == DIRTY_UFFD, c->uffd >= 0));
	PRE(IMPLIES(c->method == DIRTY_COMPARE, c->differs));
	if (c->method == DIRTY_UFFD)
		r = dirty_uffd_init(c->uffd, e);
	if (r == 0 && c->method == DIRTY_UFFD)
		r = dirty_uffd_register(c->uffd, c->mem, e);
	if (r < 0)
		return r;
	d = base_alloc(sizeof(*d));
	d->c = *c;
	d->words = (guestmem_pages(c->mem) + 63) / 64;
	d->carry = base_alloc(d->words * sizeof(uint64_t));
	d->epoch = base_alloc(d->words * sizeof(uint64_t));
	d->scan = base_alloc(d->words * sizeof(uint64_t));
	d->candidates = base_alloc(d->words * sizeof(uint64_t));
	*ret = d;
	return 0;
}

void dirty_free(struct dirty *d)
{
	if (!d)
		return;
	base_close_p(&d->c.uffd);
	close(d->c.pagemap_fd);
	free_sets(d);
}

const char *dirty_method_name(const struct dirty *d)
{
	return d->c.method == DIRTY_UFFD ? "uffd" : "compare";
}

size_t dirty_words(const struct dirty *d)
{
	return d->words;
}

bool dirty_is_incremental(const struct dirty *d)
{
	return d->c.method == DIRTY_UFFD;
}

bool dirty_is_unknown(const struct dirty *d)
{
	return d->unknown;
}

/* What the tracker says, into d->scan. */
static int track(struct dirty *d, struct err *e)
{
	int r;

	memset(d->scan, 0, d->words * sizeof(uint64_t));
	if (d->c.method == DIRTY_UFFD)
		return dirty_uffd_scan(d->c.pagemap_fd, d->c.mem, d->scan, e);
	r = dirty_compare_candidates(d->c.pagemap_fd, d->c.mem, d->candidates, e);
	if (r < 0 || d->unknown || !d->armed)
		return r;
	return dirty_compare_scan(d->c.mem, d->candidates, d->scan,
				  d->c.differs, d->c.ctx, e);
}

int dirty_arm(struct dirty *d, struct err *e)
{
	int r;

	PRE(!d->armed);
	r = track(d, e); /* everything is new to the first scan: the base */
	if (r < 0)
		return err_wrap(e, r, "arming of the dirty tracker");
	memset(d->scan, 0, d->words * sizeof(uint64_t));
	d->armed = true;
	return 0;
}

void dirty_begin(struct dirty *d)
{
	PRE(d->armed && !d->open);
	memcpy(d->epoch, d->carry, d->words * sizeof(uint64_t));
	d->open = true;
	d->failed = false;
	d->took_all = false;
}

static void set_all(uint64_t *bits, uint32_t pages)
{
	memset(bits, 0xff, pages / 64 * sizeof(uint64_t));
	if (pages % 64)
		bits[pages / 64] = (1ull << (pages % 64)) - 1;
}

/*
 * The pages given back join the first scan: they were protected long ago,
 * and the tracker alone wouldn't name them again.
 */
static void merge_carry(struct dirty *d)
{
	for (size_t i = 0; i < d->words; i++) {
		d->scan[i] |= d->carry[i];
		d->carry[i] = 0;
	}
}

int64_t dirty_scan(struct dirty *d, uint64_t *bits, struct err *e)
{
	int64_t nr = 0;
	int r;

	PRE(d->open && !d->failed);
	r = track(d, e);
	if (r < 0) {
		d->failed = d->unknown = true;
		return r;
	}
	if (d->unknown && !(d->took_all && dirty_is_incremental(d))) {
		set_all(d->scan, guestmem_pages(d->c.mem));
		d->took_all = true;
	}
	merge_carry(d);
	for (size_t i = 0; i < d->words; i++) {
		nr += __builtin_popcountll(d->scan[i]);
		bits[i] |= d->scan[i];
		d->epoch[i] |= d->scan[i];
	}
	return nr;
}

const uint64_t *dirty_epoch_set(const struct dirty *d)
{
	return d->epoch;
}

void dirty_commit(struct dirty *d)
{
	PRE(d->open && !d->failed);
	if (d->took_all)
		d->unknown = false;
	memset(d->epoch, 0, d->words * sizeof(uint64_t));
	d->open = false;
}

void dirty_abort(struct dirty *d)
{
	PRE(d->open);
	for (size_t i = 0; i < d->words; i++)
		d->carry[i] |= d->epoch[i];
	memset(d->epoch, 0, d->words * sizeof(uint64_t));
	d->open = false;
}

void dirty_forget(struct dirty *d)
{
	d->unknown = true;
	d->took_all = false;
}
