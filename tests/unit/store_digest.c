/*
 * digest: the vectors of ADR 0032 and the laws of a commutative group.
 */
#include "store/digest.h"
#include "tests/hex.h"

static struct digest *d;
static uint8_t ones[CRYO_PAGE], zeros[CRYO_PAGE], page[CRYO_PAGE];

static void add(struct digest_sum *s, enum page_kind kind, uint32_t index,
		const void *p)
{
	uint8_t h[DIGEST_HASH_LEN];

	digest_page(h, p);
	digest_add(d, s, kind, index, h);
}

static bool sum_is(const struct digest_sum *s, const char *sha_hex)
{
	uint8_t b[DIGEST_SUM_LEN], h[CRYPT_HASH_LEN];

	digest_sum_encode(b, s);
	crypt_sha256(h, b, sizeof(b));
	return hex_same(h, sha_hex);
}

static void test_vectors(void)
{
	static struct digest_sum memory, disk, empty, back;
	struct digest_rest rest = { .memory_pages = 131072, .disk_pages = 40000 };
	uint8_t h[DIGEST_HASH_LEN], b[DIGEST_SUM_LEN], root[CRYPT_HASH_LEN];

	digest_page(h, page);
	ok(hex_same(h, "f9676d1cdef19c19f1881aa8bc216a95711eec1b230a0247"),
	   "hash of a page");
	digest_page(h, zeros);
	is_mem(h, digest_zero_page, DIGEST_HASH_LEN, "hash of the zero page");
	add(&memory, PAGE_MEMORY, 0, ones);
	digest_sum_encode(b, &memory);
	ok(hex_same(b, "f483d3686d7347632d47e3f8df1b37a8"), "one element");
	add(&memory, PAGE_MEMORY, 70000, page);
	digest_sum_encode(b, &memory);
	ok(hex_same(b, "034cd80548700838aeaacaa060b1b70e"), "two elements");
	ok(sum_is(&memory, "96f04aea5e4582e57c2fb72922eac983"
			   "3d43b0e1a6c0cad61c1c96e74c4870b7"),
	   "all of the memory's sum");
	add(&disk, PAGE_DISK, 9, zeros);
	add(&disk, PAGE_DISK, 0, ones);
	ok(sum_is(&disk, "29890ce5fd118e1ebd09eefa54388fc5"
			 "76254b4f9a8aa7ee422168d6d2bf2557"),
	   "the disk's sum, a block of zeros counts");
	digest_sum_decode(&back, b);
	is_mem(&back, &memory, sizeof(back), "decode(encode(sum))");

	crypt_sha256(rest.device, "cryo device state, not compressed", 33);
	memset(rest.compat, 0x11, sizeof(rest.compat));
	digest_root(root, &memory, &disk, &rest);
	ok(hex_same(root, "4ff35208265d323a4b45bd166f141692"
			  "072cb7557692f60834ea718d38f69281"),
	   "root");
	rest = (struct digest_rest){ .memory_pages = 65536 };
	crypt_sha256(rest.device, "", 0);
	digest_root(root, &empty, &empty, &rest);
	ok(hex_same(root, "cb1437cd230e0d0831391dc7f0404726"
			  "c2608e0b08d5f62139b72fbd5454c860"),
	   "root of nothing");
}

static void test_group(void)
{
	static struct digest_sum all, one, two, zero;
	uint64_t seed = tap_seed();
	uint8_t h[40][DIGEST_HASH_LEN];
	bool gone;

	for (size_t i = 0; i < 40; i++) {
		for (size_t k = 0; k < DIGEST_HASH_LEN; k++)
			h[i][k] = (uint8_t)tap_rand(&seed);
		digest_add(d, &all, PAGE_MEMORY, (uint32_t)i, h[i]);
		digest_add(d, i % 3 ? &one : &two, PAGE_MEMORY, (uint32_t)i,
			   h[i]);
	}
	digest_sum_merge(&two, &one);
	is_mem(&two, &all, sizeof(all), "parts merge to the whole");
	for (size_t i = 40; i-- > 1;)
		digest_sub(d, &all, PAGE_MEMORY, (uint32_t)i, h[i]);
	digest_add(d, &zero, PAGE_MEMORY, 0, h[0]);
	is_mem(&all, &zero, sizeof(all), "what is taken out is gone");
	digest_sub(d, &all, PAGE_MEMORY, 0, h[0]);
	memset(&zero, 0, sizeof(zero));
	gone = !memcmp(&all, &zero, sizeof(all));
	ok(gone, "an empty set has the empty sum");
}

static void test_distinct(void)
{
	static struct digest_sum s[4];

	add(&s[0], PAGE_MEMORY, 1, ones);
	add(&s[1], PAGE_DISK, 1, ones);
	add(&s[2], PAGE_MEMORY, 2, ones);
	add(&s[3], PAGE_MEMORY, 1, page);
	for (size_t i = 0; i < 4; i++) {
		for (size_t k = 0; k < i; k++)
			ok(memcmp(&s[i], &s[k], sizeof(s[0])),
			   "kind, index and content tell %zu from %zu", i, k);
	}
}

static void test_root_binds(void)
{
	static struct digest_sum a, b;
	struct digest_rest rest = { .memory_pages = 1, .disk_pages = 2 }, r;
	uint8_t first[CRYPT_HASH_LEN], other[CRYPT_HASH_LEN];

	add(&b, PAGE_MEMORY, 0, ones);
	digest_root(first, &a, &b, &rest);
	digest_root(other, &b, &a, &rest);
	ok(memcmp(first, other, 32), "memory is not disk");
	r = rest, r.device[31] = 1;
	digest_root(other, &a, &b, &r);
	ok(memcmp(first, other, 32), "device state");
	r = rest, r.compat[0] = 1;
	digest_root(other, &a, &b, &r);
	ok(memcmp(first, other, 32), "compatibility key");
	r = rest, r.memory_pages = 2, r.disk_pages = 1;
	digest_root(other, &a, &b, &r);
	ok(memcmp(first, other, 32), "sizes");
}

int main(void)
{
	d = digest_new();
	memset(ones, 0xff, sizeof(ones));
	for (size_t i = 0; i < sizeof(page); i++)
		page[i] = (uint8_t)(i / 64);
	test_vectors();
	test_group();
	test_distinct();
	test_root_binds();
	digest_free(d);
	digest_free(NULL);
	return tap_done();
}
