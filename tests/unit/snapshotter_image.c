/*
 * image and dedupe: counts, what packs a point needs, the table passed on in
 * a sealed file, and look-ups by content that never lie.
 */
#include "snapshotter/dedupe.h"
#include "tests/rig.h"

#define MEMORY 20001u /* a table that ends inside a page of its own */
#define DISK 50000u

static void test_counts(void)
{
	struct image *img = image_new(MEMORY, DISK);
	struct image_page p = { .loc = loc_make(7, 64, 1) };

	is_int(img->map[PAGE_MEMORY].nr_chunks, 2, "chunks of memory");
	is_int(img->map[PAGE_DISK].nr_chunks, 4, "chunks of the disk");
	image_set(img, PAGE_MEMORY, 16384, &p);
	image_set(img, PAGE_MEMORY, 3, &p);
	is_int(img->refs[7], 2, "pages in pack 7");
	is_int(img->map[PAGE_MEMORY].chunk[1].mapped, 1, "mapped in chunk 1");
	ok(img->map[PAGE_MEMORY].chunk[1].dirty, "which is dirty");
	ok(!img->map[PAGE_DISK].chunk[0].dirty, "others are not");
	p.loc = loc_make(300, 64, 1);
	image_set(img, PAGE_MEMORY, 3, &p);
	is_int(img->refs[7], 1, "one left pack 7");
	is_int(img->refs[300], 1, "for pack 300");
	p.loc = LOC_BASE;
	image_set(img, PAGE_MEMORY, 3, &p);
	is_int(img->refs[300], 0, "and is gone");
	is_int(img->map[PAGE_MEMORY].chunk[0].mapped, 0, "nothing mapped");
	p.loc = LOC_ZERO;
	image_set(img, PAGE_DISK, DISK - 1, &p);
	is_int(img->map[PAGE_DISK].chunk[3].mapped, 1, "zeros are mapped");
	is_int(image_disk_loc(img, DISK - 1), LOC_ZERO, "as such");
	is_int(image_disk_loc(img, 0), LOC_BASE, "the template's block");
	image_free(img);
	image_free(NULL);
}

static bool same_tables(const struct image *a, const struct image *b)
{
	bool good = !memcmp(a->sum, b->sum, sizeof(a->sum)) &&
		    !memcmp(&a->point, &b->point, sizeof(a->point)) &&
		    !memcmp(a->chain, b->chain, sizeof(a->chain));

	for (size_t k = 0; k < PAGE_KINDS; k++) {
		const struct image_map *x = &a->map[k], *y = &b->map[k];

		good &= x->nr_pages == y->nr_pages &&
			!memcmp(x->page, y->page, x->nr_pages * sizeof(*x->page));
		for (uint32_t c = 0; c < x->nr_chunks; c++)
			good &= x->chunk[c].loc == y->chunk[c].loc &&
				x->chunk[c].dirty == y->chunk[c].dirty &&
				x->chunk[c].mapped == y->chunk[c].mapped;
	}
	return good;
}

static void capture_some(struct rig *r)
{
	rig_begin(r);
	for (uint32_t i = 0; i < 300; i++) {
		rig_page(r, PAGE_MEMORY, i * 66, i % 9 ? 1 + i : 0);
		rig_page(r, PAGE_DISK, i * 166, i % 9 ? 1 + 2 * i : 0);
	}
	rig_page(r, PAGE_MEMORY, MEMORY - 1, 5);
	rig_page(r, PAGE_DISK, DISK - 1, 5);
	rig_finish(r);
	packer_close_pack(r->packer);
	rig_point(r, PAGE_MEMORY, 8, 88);
}

static void test_pass_on(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packset *ps = packset_new(&r->disk.io, packs_supply, &r->packs);
	struct packset *used = packset_new(&r->disk.io, packs_supply, &r->packs);
	struct image *img, *twin;
	struct packer_result res;
	uint8_t before[32], after[32], other[PACK_ID_LEN] = { 5 };
	uint32_t index;
	int fd;

	capture_some(r);
	is_int(image_export(r->img, r->ps, &fd, &r->e), 0, "export");
	is_int(image_import(&img, fd, ps, &r->e), 0, "import");
	ok(same_tables(r->img, img), "every field of the table");
	is_int(packset_count(ps), packset_count(r->ps), "and the packs");
	packset_id(ps, 1, before);
	packset_id(r->ps, 1, after);
	is_mem(before, after, PACK_ID_LEN, "by the same numbers");
	ok(write(fd, "x", 1) < 0, "the file can't be written");
	packset_index(used, other, &index, &r->e);
	is_int(image_import(&twin, fd, used, &r->e), -EBADMSG,
	       "not into a set with other packs: %s", r->e.msg);

	rig_stop(r);
	rig_process(r, ps, img);
	res = rig_point(r, PAGE_MEMORY, 0, 1234);
	ok(rig_is(r, &res, PAGE_MEMORY, 0, 1234) &&
		   rig_is(r, &res, PAGE_MEMORY, 8, 88) &&
		   rig_is(r, &res, PAGE_DISK, DISK - 1, 5),
	   "a session goes on from it");
	is_int(image_import(&twin, fd,
			    (packset_free(used),
			     used = packset_new(&r->disk.io, packs_supply,
						&r->packs)),
			    &r->e),
	       0, "and another from the same file");
	ok(twin->map[PAGE_MEMORY].page[0].loc == LOC_BASE,
	   "which doesn't see the first one's pages");
	image_free(twin);
	packset_free(used);
	close(fd);
	rig_free(r);
}

static int import(struct rig *r, int fd)
{
	struct packset *ps = packset_new(&r->disk.io, packs_supply, &r->packs);
	struct image *img;
	int n = image_import(&img, fd, ps, &r->e);

	if (n == 0)
		image_free(img);
	packset_free(ps);
	return n;
}

/* A copy with `len` bytes, some changed, sealed or not. */
static int forge(int fd, off_t len, off_t at, const void *p, size_t n, bool seal)
{
	int to = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *b = base_alloc((size_t)len);

	base_pread_all(fd, b, (size_t)MIN(len, lseek(fd, 0, SEEK_END)), 0);
	memcpy(b + at, p, n);
	base_pwrite_all(to, b, (size_t)len, 0);
	free(b);
	if (seal)
		fcntl(to, F_ADD_SEALS,
		      F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK);
	return to;
}

static void test_forged(void)
{
	struct rig *r = rig_new(300, 300);
	off_t len;
	int fd, bad;

	rig_point(r, PAGE_MEMORY, 1, 1);
	image_export(r->img, r->ps, &fd, &r->e);
	len = lseek(fd, 0, SEEK_END);
	bad = forge(fd, len, 0, "", 0, true);
	is_int(import(r, bad), 0, "a faithful copy");
	close(bad);
	bad = forge(fd, len, 0, "", 0, false);
	is_int(import(r, bad), -EBADMSG, "not sealed: %s", r->e.msg);
	close(bad);
	bad = forge(fd, len, 11, "2", 1, true);
	is_int(import(r, bad), -EBADMSG, "another build: %s", r->e.msg);
	close(bad);
	bad = forge(fd, len - 1, 0, "", 0, true);
	is_int(import(r, bad), -EBADMSG, "cut off: %s", r->e.msg);
	close(bad);
	bad = forge(fd, len, 28, "\xff\xff\xff\xff", 4, true);
	is_int(import(r, bad), -EBADMSG, "too many pages: %s", r->e.msg);
	close(bad);
	bad = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fcntl(bad, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK);
	is_int(import(r, bad), -EBADMSG, "empty: %s", r->e.msg);
	close(bad);
	close(fd);
	rig_free(r);
}

/* --- dedupe --------------------------------------------------------------- */

static void hash_of(uint8_t h[DIGEST_HASH_LEN], uint32_t n)
{
	uint8_t d[CRYPT_HASH_LEN];

	crypt_sha256(d, &n, sizeof(n));
	memcpy(h, d, DIGEST_HASH_LEN);
}

static void set(struct image *img, uint32_t index, uint32_t n, uint32_t where)
{
	struct image_page p = { .loc = loc_make(0, 64 + 16 * where, 0) };

	hash_of(p.hash, n);
	image_set(img, PAGE_MEMORY, index, &p);
}

/*
 * Pages change content at random; a look-up is never wrong. It is blind when
 * the page that speaks for its twins was the one to change: here that is one
 * look-up in seven.
 */
static void test_dedupe(void)
{
	enum { PAGES = 3000, CONTENTS = 500 };
	struct image *img = image_new(PAGES, 10);
	struct dedupe *d = dedupe_new(img);
	uint64_t seed = tap_seed();
	uint32_t *now = base_alloc(PAGES * sizeof(*now));
	unsigned int wrong = 0, blind = 0, found = 0;

	for (uint32_t step = 0; step < 60000; step++) {
		uint32_t at = (uint32_t)(tap_rand(&seed) % PAGES);
		uint32_t n = 1 + (uint32_t)(tap_rand(&seed) % CONTENTS);
		uint8_t h[DIGEST_HASH_LEN];
		uint64_t loc;
		bool held = false;

		hash_of(h, n);
		loc = dedupe_find(d, h);
		/* content n is stored at 64 + 16 n: a hit says which it is */
		if (loc != LOC_BASE)
			wrong += loc != loc_make(0, 64 + 16 * n, 0), found++;
		for (uint32_t i = 0; step % 50 == 0 && i < PAGES; i++)
			held |= now[i] == n;
		blind += step % 50 == 0 && held && loc == LOC_BASE;
		set(img, at, n, n);
		now[at] = n;
		dedupe_add(d, PAGE_MEMORY, at);
	}
	is_int(wrong, 0, "a place found is one of that content");
	ok(found > 50000, "most are found: %u", found);
	ok(blind < 240, "few that are held are missed: %u of 1200", blind);
	free(now);
	dedupe_free(d);
	dedupe_free(NULL);
	image_free(img);
}

/* Many pages with one content must not make a chain of all of them. */
static void test_twins(void)
{
	enum { PAGES = 200000 };
	struct image *img = image_new(PAGES, 10);
	struct dedupe *d = dedupe_new(img);
	uint8_t h[DIGEST_HASH_LEN];
	clock_t start = clock();

	for (uint32_t i = 0; i < PAGES; i++)
		set(img, i, 7, 7);
	hash_of(h, 7);
	ok(dedupe_find(d, h) != LOC_BASE, "found among its twins");
	hash_of(h, 8);
	is_int(dedupe_find(d, h), LOC_BASE, "what is not there is not");
	ok(clock() - start < 10 * CLOCKS_PER_SEC,
	   "200,000 twins take no quadratic time");
	dedupe_free(d);
	image_free(img);
}

int main(void)
{
	test_counts();
	test_pass_on();
	test_forged();
	test_dedupe();
	test_twins();
	return tap_done();
}
