/*
 * pages: every byte counts in the zero test; holes are not looked at.
 */
#include "snapshotter/pages.h"
#include "tests/tap.h"

#include <sys/mman.h>
#include <sys/stat.h>

static void test_zero(void)
{
	_Alignas(8) uint8_t page[CRYO_PAGE] = { 0 };
	int wrong = 0;

	ok(pages_is_zero(page), "zeros are zero");
	ok(pages_is_zero(pages_zero), "the zero page is");
	for (size_t bit = 0; bit < 8 * sizeof(page); bit++) {
		page[bit / 8] = (uint8_t)(1 << (bit % 8));
		wrong += pages_is_zero(page);
		page[bit / 8] = 0;
	}
	is_int(wrong, 0, "any bit makes a page not zero");
}

struct seen {
	uint32_t index[8];
	unsigned int nr, stop_at;
	bool good;
};

static int see(void *ctx, uint32_t index, const uint8_t *page)
{
	struct seen *s = ctx;

	if (s->nr == 8)
		return -E2BIG;
	s->good &= page[0] == (uint8_t)index;
	s->index[s->nr++] = index;
	return s->nr == s->stop_at ? 9 : 0;
}

static void test_each(void)
{
	int fd = memfd_create("ram", MFD_CLOEXEC);
	struct seen s = { .good = true };
	struct stat st;
	uint8_t *base, b;

	if (ftruncate(fd, 100 * CRYO_PAGE) < 0)
		bail("ftruncate");
	base = mmap(NULL, 100 * CRYO_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
		    fd, 0);
	is_int(pages_each(fd, base, 100, see, &s), 0, "an empty file");
	is_int(s.nr, 0, "has no page");
	for (uint32_t i = 0; i < 3; i++) {
		b = (uint8_t)(i ? 70 + i : 3);
		base_pwrite_all(fd, &b, 1, (uint64_t)b * CRYO_PAGE);
	}
	b = 99;
	base_pwrite_all(fd, &b, 1, 99 * CRYO_PAGE);
	is_int(pages_each(fd, base, 100, see, &s), 0, "some data");
	ok(s.nr == 4 && s.index[0] == 3 && s.index[1] == 71 &&
		   s.index[2] == 72 && s.index[3] == 99 && s.good,
	   "only pages with data, in order");
	s = (struct seen){ .good = true, .stop_at = 2 };
	is_int(pages_each(fd, base, 100, see, &s), 9, "stops when told");
	s = (struct seen){ .good = true };
	is_int(pages_each(fd, base, 72, see, &s), 0, "fewer pages than file");
	is_int(s.nr, 2, "the rest is left alone");
	fstat(fd, &st);
	is_int(st.st_blocks, 4 * 8, "no hole was filled by looking");
	munmap(base, 100 * CRYO_PAGE);
	close(fd);
	is_int(pages_each(9999, base, 1, see, &s), -EBADF, "no file");
}

static void test_bits(void)
{
	uint64_t map[3] = { 0 };

	pages_bit_set(map, 64);
	pages_bit_set(map, 127);
	ok(!map[0] && map[1] == 0x8000000000000001u && !map[2], "set");
	ok(pages_bit(map, 64) && pages_bit(map, 127) && !pages_bit(map, 65),
	   "get");
	pages_bit_clear(map, 127);
	ok(map[1] == 1, "clear");
}

int main(void)
{
	test_zero();
	test_each();
	test_bits();
	return tap_done();
}
