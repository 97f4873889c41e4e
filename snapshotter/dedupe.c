/*
 * dedupe: an open-addressed table of page numbers, keyed by page hash.
 *
 * A slot holds a page number and 32 bits of the hash that the page had when
 * it was added; the truth is in the image. So nothing is ever removed: a
 * page that changed leaves a stale slot, which a look-up passes over (the
 * image's hash differs) and an add may take. When the table is two thirds
 * full it is built anew from the image.
 *
 * Where a hash falls is mixed with a random number, so that a guest can't
 * choose pages that fall together.
 *
 * Invariants:
 *  1. What dedupe_find() answers is the place of a page of the image whose
 *     whole hash is the one asked for.
 *  2. Free slots always exist: probing ends.
 *
 * A miss is harmless (the page is stored again), so a stale or lost slot is.
 */
#include "snapshotter/dedupe.h"

#define EMPTY UINT32_MAX
#define KIND_SHIFT 31

struct slot {
	uint32_t page; /* kind << 31 | index, or EMPTY */
	uint32_t tag;
};

struct dedupe {
	const struct image *img;
	struct slot *slot;
	uint32_t mask; /* length - 1; 0: not built */
	uint32_t used;
	uint64_t mix;
};

struct dedupe *dedupe_new(const struct image *img)
{
	struct dedupe *d = base_alloc(sizeof(*d));

	d->img = img;
	base_random(&d->mix, sizeof(d->mix));
	d->mix |= 1;
	return d;
}

void dedupe_free(struct dedupe *d)
{
	if (!d)
		return;
	free(d->slot);
	free(d);
}

static const struct image_page *page_of(const struct dedupe *d, uint32_t page)
{
	const struct image_map *m = &d->img->map[page >> KIND_SHIFT];

	return &m->page[page & ((1u << KIND_SHIFT) - 1)];
}

static uint32_t tag_of(const uint8_t *h)
{
	return get_u32(h + 8);
}

static uint32_t start_of(const struct dedupe *d, const uint8_t *h)
{
	return (uint32_t)((get_u64(h) * d->mix) >> 32) & d->mask;
}

/* Stored, with a hash that is known. */
static bool is_usable(const struct image_page *p)
{
	static const uint8_t unknown[DIGEST_HASH_LEN];

	return loc_is_stored(p->loc) &&
	       memcmp(p->hash, unknown, DIGEST_HASH_LEN) != 0;
}

/* Slot `i` holds a page that still has what it was added for. */
static bool is_alive(const struct dedupe *d, const struct slot *s)
{
	return s->tag == tag_of(page_of(d, s->page)->hash);
}

/*
 * One page speaks for all its twins: the one added last, since in a capture
 * that is a page which has been dealt with, so it will not change soon.
 */
static void insert(struct dedupe *d, uint32_t page)
{
	const uint8_t *h = page_of(d, page)->hash;
	uint32_t i = start_of(d, h);
	struct slot *s;

	for (;; i = (i + 1) & d->mask) {
		s = &d->slot[i];
		if (s->page == EMPTY || !is_alive(d, s) ||
		    !memcmp(page_of(d, s->page)->hash, h, DIGEST_HASH_LEN))
			break;
	}
	d->used += s->page == EMPTY;
	s->page = page;
	s->tag = tag_of(h);
}

static uint32_t count_usable(const struct image *img)
{
	uint32_t nr = 0;

	for (size_t k = 0; k < PAGE_KINDS; k++) {
		for (uint32_t c = 0; c < img->map[k].nr_chunks; c++)
			nr += img->map[k].chunk[c].mapped;
	}
	return nr;
}

static void insert_chunk(struct dedupe *d, size_t kind, uint32_t chunk)
{
	const struct image_map *m = &d->img->map[kind];
	uint32_t first = chunk * MANIFEST_CHUNK_PAGES;
	uint32_t end = MIN(first + MANIFEST_CHUNK_PAGES, m->nr_pages);

	if (!m->chunk[chunk].mapped)
		return; /* most of a disk: its table is not touched */
	for (uint32_t i = first; i < end; i++) {
		if (is_usable(&m->page[i]))
			insert(d, (uint32_t)kind << KIND_SHIFT | i);
	}
}

static void rebuild(struct dedupe *d)
{
	uint32_t len = 1024;

	while (len / 4 < count_usable(d->img))
		len *= 2; /* a quarter to a half full */
	free(d->slot);
	d->slot = base_alloc(len * sizeof(*d->slot));
	for (uint32_t i = 0; i < len; i++)
		d->slot[i].page = EMPTY;
	d->mask = len - 1;
	d->used = 0;
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		for (uint32_t c = 0; c < d->img->map[k].nr_chunks; c++)
			insert_chunk(d, k, c);
	}
}

uint64_t dedupe_find(struct dedupe *d, const uint8_t h[DIGEST_HASH_LEN])
{
	if (!d->mask)
		rebuild(d);
	for (uint32_t i = start_of(d, h);; i = (i + 1) & d->mask) {
		const struct slot *s = &d->slot[i];
		const struct image_page *p;

		if (s->page == EMPTY)
			return LOC_BASE;
		if (s->tag != tag_of(h))
			continue;
		p = page_of(d, s->page);
		if (loc_is_stored(p->loc) && !memcmp(p->hash, h, DIGEST_HASH_LEN))
			return p->loc;
	}
}

void dedupe_add(struct dedupe *d, enum page_kind kind, uint32_t index)
{
	PRE(is_usable(&d->img->map[kind].page[index]));
	if (d->mask && d->used < d->mask / 3 * 2)
		insert(d, (uint32_t)kind << KIND_SHIFT | index);
	else
		rebuild(d); /* takes this page in, too */
}
