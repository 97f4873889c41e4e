/*
 * dirty_uffd: asks the kernel which pages of another process were written.
 *
 * The VMM's preload made the userfaultfd in its own address space and kept a
 * copy; this process registers RAM on it for asynchronous write protection:
 * the kernel lifts the protection at a write by itself, nobody has to
 * answer. PAGEMAP_SCAN reports the pages whose protection is gone and puts
 * it back, in one call, page by page atomically.
 *
 *  1. A page is protected anew before it is reported, and reported before
 *     it is read: no write falls between.
 *  2. A page that never was populated counts as written until its first
 *     scan (WP_UNPOPULATED puts a marker there).
 *  3. CHECK_WPASYNC: a registration that is gone is an error (EPERM), never
 *     "nothing was written".
 *
 * Blind spots, which the design avoids (no balloon, no vhost-user): discards
 * (MADV_DONTNEED, hole punches) and writes through other mappings. The
 * registration lives as long as one copy of the descriptor; our death leaves
 * the VMM's copy and nothing is lost.
 *
 * Source: Linux Documentation/admin-guide/mm/{userfaultfd,pagemap}.rst.
 */
#include "snapshotter/dirty_uffd.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

/* Linux 6.1 headers lack what 6.7 added. */
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1u << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1u << 15)
#endif
#ifndef PAGEMAP_SCAN
struct page_region {
	uint64_t start, end, categories;
};
struct pm_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages,
		category_inverted, category_mask, category_anyof_mask,
		return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_WRITTEN (1u << 1)
#define PM_SCAN_WP_MATCHING (1u << 0)
#define PM_SCAN_CHECK_WPASYNC (1u << 1)
#endif

#define FEATURES                                               \
	(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED | \
	 UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_PAGEFAULT_FLAG_WP)
#define REGIONS 512

int dirty_uffd_init(int uffd, struct err *e)
{
	struct uffdio_api api = { .api = UFFD_API, .features = FEATURES };

	if (ioctl(uffd, UFFDIO_API, &api) == 0)
		return 0;
	if (errno == EINVAL)
		return err_set(e, -EOPNOTSUPP, ERR_INTERNAL,
			       "this kernel's userfaultfd has no asynchronous "
			       "write protection (Linux 6.7 has)");
	return err_sys(e, errno, "UFFDIO_API");
}

int dirty_uffd_register(int uffd, const struct guestmem *mem, struct err *e)
{
	struct uffdio_register reg = {
		.range = { .start = guestmem_addr(mem),
			   .len = (uint64_t)guestmem_pages(mem) * CRYO_PAGE },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	if (ioctl(uffd, UFFDIO_REGISTER, &reg) < 0)
		return err_sys(e, errno, "UFFDIO_REGISTER of guest RAM");
	if (!(reg.ioctls & (1ull << _UFFDIO_WRITEPROTECT)))
		return err_set(e, -EOPNOTSUPP, ERR_INTERNAL,
			       "this kernel can't write-protect guest RAM");
	return 0;
}

static void set_range(uint64_t *bits, uint64_t first, uint64_t end)
{
	for (uint64_t p = first; p < end; p++)
		bits[p / 64] |= 1ull << (p % 64);
}

/*
 * The kernel is trusted, but its answer indexes an array: refuse what does
 * not lie in RAM.
 */
static int take_regions(const struct page_region *r, long nr, uint64_t base,
			uint64_t end, uint64_t *bits)
{
	for (long i = 0; i < nr; i++) {
		if (r[i].start < base || r[i].end > end || r[i].start >= r[i].end)
			return -ERANGE;
		set_range(bits, (r[i].start - base) / CRYO_PAGE,
			  (r[i].end - base) / CRYO_PAGE);
	}
	return 0;
}

int dirty_uffd_scan(int pagemap_fd, const struct guestmem *mem, uint64_t *bits,
		    struct err *e)
{
	uint64_t base = guestmem_addr(mem);
	uint64_t end = base + (uint64_t)guestmem_pages(mem) * CRYO_PAGE;
	struct page_region vec[REGIONS];
	struct pm_scan_arg a = {
		.size = sizeof(a),
		.flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
		.start = base,
		.end = end,
		.vec = (uintptr_t)vec,
		.vec_len = REGIONS,
		.category_mask = PAGE_IS_WRITTEN,
		.return_mask = PAGE_IS_WRITTEN,
	};

	while (a.start < end) {
		long nr = ioctl(pagemap_fd, PAGEMAP_SCAN, &a);

		if (nr < 0 && errno == ENOTTY)
			return err_set(e, -EOPNOTSUPP, ERR_INTERNAL,
				       "this kernel has no PAGEMAP_SCAN "
				       "(Linux 6.7 has)");
		if (nr < 0)
			return err_sys(e, errno, "PAGEMAP_SCAN of guest RAM");
		if (take_regions(vec, nr, base, end, bits) < 0 ||
		    a.walk_end <= a.start || a.walk_end > end)
			return err_set(e, -EIO, ERR_INTERNAL,
				       "PAGEMAP_SCAN answered outside of "
				       "guest RAM");
		a.start = a.walk_end;
	}
	return 0;
}
