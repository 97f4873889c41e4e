/*
 * digest: LtHash16 over pages and the root of a point. FORMAT: ADR 0032.
 *
 * An element costs one SHA-256 block (the seed) and 2 KiB of AES-CTR; adding
 * it is 1024 lane additions, which the compiler turns into 128 of SSE2.
 *
 * Invariants:
 *  1. digest_sub() undoes digest_add() exactly, in any order: lanes are a
 *     group, so no history is in a sum.
 *  2. Bytes are little-endian whatever the host is; lanes are host numbers.
 *
 * No state outlives the process.
 */
#include "store/digest.h"

#define SEED_LABEL "cryo-lthash-v1"
#define SEED_LABEL_LEN (sizeof(SEED_LABEL) - 1)
#define ROOT_LABEL "cryo-state-v1"

const uint8_t digest_zero_page[DIGEST_HASH_LEN] = {
	0xad, 0x7f, 0xac, 0xb2, 0x58, 0x6f, 0xc6, 0xe9, 0x66, 0xc0, 0x04, 0xd7,
	0xd1, 0xd1, 0x6b, 0x02, 0x4f, 0x58, 0x05, 0xff, 0x7c, 0xb4, 0x7c, 0x7a,
};

struct digest {
	struct crypt_stream *stream;
	struct digest_sum element;
};

void digest_page(uint8_t ret[DIGEST_HASH_LEN], const void *page)
{
	uint8_t h[CRYPT_HASH_LEN];

	crypt_sha256(h, page, CRYO_PAGE);
	memcpy(ret, h, DIGEST_HASH_LEN);
}

struct digest *digest_new(void)
{
	struct digest *d = base_alloc(sizeof(*d));

	d->stream = crypt_stream_new();
	return d;
}

void digest_free(struct digest *d)
{
	if (!d)
		return;
	crypt_stream_free(d->stream);
	free(d);
}

/* Byte order of the stream is the format's; lanes are in the host's. */
static void to_host(struct digest_sum *sum)
{
	if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
		return;
	for (size_t i = 0; i < DIGEST_LANES; i++)
		sum->lane[i] = get_u16(&sum->lane[i]);
}

/* restrict: else the compiler does not dare to use vectors */
static void sum_add(struct digest_sum *restrict sum,
		    const struct digest_sum *restrict other)
{
	for (size_t i = 0; i < DIGEST_LANES; i++)
		sum->lane[i] = (uint16_t)(sum->lane[i] + other->lane[i]);
}

static void sum_sub(struct digest_sum *restrict sum,
		    const struct digest_sum *restrict other)
{
	for (size_t i = 0; i < DIGEST_LANES; i++)
		sum->lane[i] = (uint16_t)(sum->lane[i] - other->lane[i]);
}

static void expand(struct digest *d, enum page_kind kind, uint32_t index,
		   const uint8_t *h)
{
	uint8_t in[SEED_LABEL_LEN + 5 + DIGEST_HASH_LEN];
	uint8_t seed[CRYPT_HASH_LEN];

	memcpy(in, SEED_LABEL, SEED_LABEL_LEN);
	in[SEED_LABEL_LEN] = (uint8_t)kind;
	put_u32(in + SEED_LABEL_LEN + 1, index);
	memcpy(in + SEED_LABEL_LEN + 5, h, DIGEST_HASH_LEN);
	crypt_sha256(seed, in, sizeof(in));
	crypt_stream_expand(d->stream, seed, d->element.lane, DIGEST_SUM_LEN);
	to_host(&d->element);
}

void digest_add(struct digest *d, struct digest_sum *sum, enum page_kind kind,
		uint32_t index, const uint8_t h[DIGEST_HASH_LEN])
{
	expand(d, kind, index, h);
	sum_add(sum, &d->element);
}

void digest_sub(struct digest *d, struct digest_sum *sum, enum page_kind kind,
		uint32_t index, const uint8_t h[DIGEST_HASH_LEN])
{
	expand(d, kind, index, h);
	sum_sub(sum, &d->element);
}

void digest_sum_merge(struct digest_sum *sum, const struct digest_sum *other)
{
	sum_add(sum, other);
}

void digest_sum_encode(uint8_t ret[DIGEST_SUM_LEN], const struct digest_sum *sum)
{
	for (size_t i = 0; i < DIGEST_LANES; i++)
		put_u16(ret + 2 * i, sum->lane[i]);
}

void digest_sum_decode(struct digest_sum *ret, const uint8_t in[DIGEST_SUM_LEN])
{
	for (size_t i = 0; i < DIGEST_LANES; i++)
		ret->lane[i] = get_u16(in + 2 * i);
}

void digest_root(uint8_t ret[CRYPT_HASH_LEN], const struct digest_sum *memory,
		 const struct digest_sum *disk, const struct digest_rest *rest)
{
	struct crypt_hash *h = crypt_hash_new();
	uint8_t sum[DIGEST_SUM_LEN], sizes[8];

	crypt_hash_put(h, ROOT_LABEL, sizeof(ROOT_LABEL) - 1);
	digest_sum_encode(sum, memory);
	crypt_hash_put(h, sum, sizeof(sum));
	digest_sum_encode(sum, disk);
	crypt_hash_put(h, sum, sizeof(sum));
	crypt_hash_put(h, rest->device, CRYPT_HASH_LEN);
	crypt_hash_put(h, rest->compat, CRYPT_HASH_LEN);
	put_u32(sizes, rest->memory_pages);
	put_u32(sizes + 4, rest->disk_pages);
	crypt_hash_put(h, sizes, sizeof(sizes));
	crypt_hash_end(h, ret);
	crypt_hash_free(h);
}
