/*
 * digest: what a point's state is, in 32 bytes, kept up to date in time
 * proportional to what changed. FORMAT: docs/adr/0032-state-digest.md.
 *
 * A sum is a lattice multiset hash (LtHash: Bellare and Micciancio 1997;
 * Lewi, Kim, Maykov, Weis 2019): 1024 lanes of 16 bits; every page adds an
 * element drawn from its kind, index and content; leaving, it subtracts it.
 * Memory: pages that are not all zero. Disk: blocks that differ by record
 * from the template (mapped), zero or not.
 */
#ifndef STORE_DIGEST_H
#define STORE_DIGEST_H

#include "store/crypt.h"
#include "store/pack.h"

#define DIGEST_LANES 1024
#define DIGEST_SUM_LEN (2 * DIGEST_LANES)
#define DIGEST_HASH_LEN 24 /* of a page: SHA-256, cut */

/* Lanes in host order; digest_sum_encode() for bytes. Zeroed: the empty sum */
struct digest_sum {
	uint16_t lane[DIGEST_LANES];
} __attribute__((aligned(16)));

/* First 24 bytes of SHA-256 of a page; any thread. */
void digest_page(uint8_t ret[DIGEST_HASH_LEN], const void *page);

/* SHA-256 of 4096 zeros, first 24 bytes. */
extern const uint8_t digest_zero_page[DIGEST_HASH_LEN];

/* A worker: contexts and room; one thread at a time. */
struct digest;
struct digest *digest_new(void);
void digest_free(struct digest *d);

/* The page (kind, index) with content hash h comes into, goes out of `sum`. */
void digest_add(struct digest *d, struct digest_sum *sum, enum page_kind kind,
		uint32_t index, const uint8_t h[DIGEST_HASH_LEN]);
void digest_sub(struct digest *d, struct digest_sum *sum, enum page_kind kind,
		uint32_t index, const uint8_t h[DIGEST_HASH_LEN]);

/* sum += other: parts of one point that threads worked out apart. */
void digest_sum_merge(struct digest_sum *sum, const struct digest_sum *other);

/* 1024 x u16, little-endian. */
void digest_sum_encode(uint8_t ret[DIGEST_SUM_LEN], const struct digest_sum *sum);
void digest_sum_decode(struct digest_sum *ret, const uint8_t in[DIGEST_SUM_LEN]);

/* All that a root binds besides the sums. */
struct digest_rest {
	uint8_t device[CRYPT_HASH_LEN]; /* SHA-256 of the device state */
	uint8_t compat[CRYPT_HASH_LEN]; /* compatibility key */
	uint32_t memory_pages, disk_pages;
};

/* SHA-256("cryo-state-v1" || memory sum || disk sum || rest) */
void digest_root(uint8_t ret[CRYPT_HASH_LEN], const struct digest_sum *memory,
		 const struct digest_sum *disk, const struct digest_rest *rest);

#endif
