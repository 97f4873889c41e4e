/*
 * dirty_compare: finds changed pages by looking at them.
 *
 * Guest RAM is a private mapping of a sealed memfd. A write gives the VMM a
 * copy of its own (an anonymous page), and pagemap tells such pages from
 * those of the file. Only they can differ from the file, so only they are
 * read and compared; on a young fork that is a small part of RAM.
 *
 *  1. Candidates only grow: a page whose copy was given back (it equals the
 *     file again, which is a change) is still looked at.
 *  2. Swapped-out pages are candidates, too.
 *
 * Source: Linux Documentation/admin-guide/mm/pagemap.rst.
 */
#include "snapshotter/dirty_compare.h"

#include "core/buf.h"

#define ENTRIES 4096
#define BATCH 256

#define PM_FILE (1ull << 61) /* page of a file or shared memory */
#define PM_SWAP (1ull << 62)
#define PM_PRESENT (1ull << 63)

static bool is_private(uint64_t entry)
{
	return (entry & PM_SWAP) || ((entry & PM_PRESENT) && !(entry & PM_FILE));
}

int dirty_compare_candidates(int pagemap_fd, const struct guestmem *mem,
			     uint64_t *candidates, struct err *e)
{
	uint64_t at = guestmem_addr(mem) / CRYO_PAGE * sizeof(uint64_t);
	uint32_t pages = guestmem_pages(mem), nr;
	uint64_t entries[ENTRIES];

	for (uint32_t p = 0; p < pages; p += nr) {
		int r;

		nr = MIN(pages - p, (uint32_t)ENTRIES);
		r = base_pread_all(pagemap_fd, entries, nr * sizeof(entries[0]),
				   at + p * sizeof(entries[0]));
		if (r < 0)
			return err_sys(e, -r, "read of the VMM's pagemap");
		for (uint32_t i = 0; i < nr; i++)
			if (is_private(entries[i]))
				candidates[(p + i) / 64] |= 1ull
							    << ((p + i) % 64);
	}
	return 0;
}

int dirty_compare_scan(const struct guestmem *mem, const uint64_t *candidates,
		       uint64_t *bits, dirty_differs_fn differs, void *ctx,
		       struct err *e)
{
	SCOPED_FREE uint8_t *bytes = base_alloc((size_t)BATCH * CRYO_PAGE);
	uint32_t pages[BATCH], cursor = 0;
	int nr;

	while ((nr = guestmem_gather(mem, candidates, &cursor, BATCH, pages,
				     bytes, e)) > 0) {
		for (int i = 0; i < nr; i++) {
			int r = differs(ctx, pages[i],
					bytes + (size_t)i * CRYO_PAGE);

			if (r < 0)
				return err_sys(e, -r, "compare of page %u",
					       pages[i]);
			if (r > 0)
				bits[pages[i] / 64] |= 1ull << (pages[i] % 64);
		}
	}
	return nr;
}
