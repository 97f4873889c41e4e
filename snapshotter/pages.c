/*
 * pages: the zero test and the walk over a memory file's data.
 *
 * The test takes 64 bytes a step and leaves at the first that are not zero:
 * most pages of a guest are decided by their first line of cache.
 *
 * Invariant: a hole is never read through the mapping, which would fill it.
 */
#include "snapshotter/pages.h"

const uint8_t pages_zero[CRYO_PAGE];

bool pages_is_zero(const void *page)
{
	const uint64_t *w = page;

	for (size_t i = 0; i < CRYO_PAGE / sizeof(*w); i += 8) {
		if (w[i] | w[i + 1] | w[i + 2] | w[i + 3] | w[i + 4] |
		    w[i + 5] | w[i + 6] | w[i + 7])
			return false;
	}
	return true;
}

/* Next run of data at or after page `from`: 1, 0 at the end, -errno. */
static int next_run(int fd, uint32_t from, uint32_t nr_pages,
		    uint32_t *ret_start, uint32_t *ret_end)
{
	off_t start = lseek(fd, (off_t)from * CRYO_PAGE, SEEK_DATA), end;

	if (start < 0)
		return errno == ENXIO ? 0 : -errno;
	end = lseek(fd, start, SEEK_HOLE);
	if (end < 0)
		return -errno;
	*ret_start = (uint32_t)(start / CRYO_PAGE);
	*ret_end = (uint32_t)MIN((end + CRYO_PAGE - 1) / CRYO_PAGE,
				 (off_t)nr_pages);
	return *ret_start < nr_pages;
}

int pages_each(int fd, const uint8_t *base, uint32_t nr_pages,
	       int (*fn)(void *ctx, uint32_t index, const uint8_t *page),
	       void *ctx)
{
	uint32_t start = 0, end = 0;
	int r;

	while ((r = next_run(fd, end, nr_pages, &start, &end)) == 1) {
		for (uint32_t i = start; i < end; i++) {
			r = fn(ctx, i, base + (size_t)i * CRYO_PAGE);
			if (r)
				return r;
		}
	}
	return r;
}
