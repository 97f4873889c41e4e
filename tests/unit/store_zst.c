/*
 * zst: laws over seeded inputs, a frame made by the zstd command, and bounds
 * that hold whatever the input claims.
 */
#include "store/zst.h"
#include "tests/tap.h"

/* "cryo page data, " x 4 without the last two, from `zstd -1 --no-check` */
static const uint8_t from_cli[] = {
	0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x3e, 0xbd, 0x00, 0x00, 0x80, 0x63,
	0x72, 0x79, 0x6f, 0x20, 0x70, 0x61, 0x67, 0x65, 0x20, 0x64, 0x61,
	0x74, 0x61, 0x2c, 0x20, 0x01, 0x00, 0x1e, 0x73, 0x2e, 0x01,
};
static const char plain[] = "cryo page data, cryo page data, "
			    "cryo page data, cryo page data";
#define PLAIN_LEN (sizeof(plain) - 1)

static void test_foreign(struct zst *z)
{
	char out[128];

	memset(out, '#', sizeof(out));
	is_int(zst_decompress(z, from_cli, sizeof(from_cli), out, PLAIN_LEN), 0,
	       "reads what the zstd command wrote");
	is_mem(out, plain, PLAIN_LEN, "and it is the text");
	is_int(out[PLAIN_LEN], '#', "no byte beyond");
	is_int(zst_decompress(z, from_cli, sizeof(from_cli), out, PLAIN_LEN - 1),
	       -EBADMSG, "more than wanted is refused");
	is_int(zst_decompress(z, from_cli, sizeof(from_cli), out, PLAIN_LEN + 1),
	       -EBADMSG, "less than wanted is refused");
	for (size_t n = 0; n < sizeof(from_cli); n++) {
		if (zst_decompress(z, from_cli, n, out, PLAIN_LEN) != -EBADMSG)
			ok(false, "a prefix of %zu bytes was accepted", n);
	}
	is_int(zst_decompress(z, from_cli, sizeof(from_cli), out, PLAIN_LEN), 0,
	       "every prefix is refused and the context lives on");
}

/* Runs of repeated bytes of random length: compressible to a degree. */
static void fill(uint8_t *p, size_t len, uint64_t *seed)
{
	size_t i = 0;

	while (i < len) {
		uint64_t r = tap_rand(seed);
		size_t run = 1 + (r >> 8) % 40;

		for (; run && i < len; run--)
			p[i++] = (uint8_t)r;
	}
}

static void test_laws(struct zst *z)
{
	enum { MAX_LEN = 70000 };
	uint64_t seed = tap_seed();
	uint8_t *in = base_alloc(MAX_LEN), *back = base_alloc(MAX_LEN);
	uint8_t *out = base_alloc(zst_bound(MAX_LEN));
	bool same = true, tight = true;

	for (int i = 0; i < 200; i++) {
		size_t len = tap_rand(&seed) % MAX_LEN;
		ssize_t n;

		fill(in, len, &seed);
		n = zst_compress(z, in, len, out, zst_bound(len));
		same &= n > 0 && !zst_decompress(z, out, (size_t)n, back, len) &&
			!memcmp(in, back, len);
		tight &= n > 0 &&
			 zst_compress(z, in, len, out, (size_t)n - 1) == -ENOSPC;
	}
	ok(same, "decompress(compress(x)) = x");
	ok(tight, "one byte too little room is -ENOSPC");
	for (size_t i = 0; i < 4096; i++)
		in[i] = (uint8_t)tap_rand(&seed);
	is_int(zst_compress(z, in, 4096, out, 4095), -ENOSPC,
	       "noise does not shrink");
	free(in);
	free(back);
	free(out);
}

int main(void)
{
	struct zst *z = zst_new(1);

	test_foreign(z);
	test_laws(z);
	zst_free(z);
	zst_free(NULL);
	return tap_done();
}
