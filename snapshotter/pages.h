/*
 * pages: looking at pages of 4 KiB: is it zero, which are.
 */
#ifndef SNAPSHOTTER_PAGES_H
#define SNAPSHOTTER_PAGES_H

#include "core/base.h"

extern const uint8_t pages_zero[CRYO_PAGE];

/* Is this page (8-byte aligned) all zeros? About 10 GB/s if it is. */
bool pages_is_zero(const void *page);

/*
 * Calls fn(ctx, index, page) for the data of a memory file mapped at `base`,
 * page by page, holes skipped (SEEK_DATA): looking at a hole through a
 * mapping would fill it. 0, what fn returned if not 0, or -errno.
 */
int pages_each(int fd, const uint8_t *base, uint32_t nr_pages,
	       int (*fn)(void *ctx, uint32_t index, const uint8_t *page),
	       void *ctx);

/* A bitmap over pages, for callers that count in them. */
static inline bool pages_bit(const uint64_t *map, uint32_t i)
{
	return map[i / 64] >> (i % 64) & 1;
}

static inline void pages_bit_set(uint64_t *map, uint32_t i)
{
	map[i / 64] |= (uint64_t)1 << (i % 64);
}

static inline void pages_bit_clear(uint64_t *map, uint32_t i)
{
	map[i / 64] &= ~((uint64_t)1 << (i % 64));
}

#endif
