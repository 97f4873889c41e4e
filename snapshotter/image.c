/*
 * image: the table of a session's current pages.
 *
 * 32 bytes a page in one lazily filled mapping: a fresh session's table
 * costs nothing, and neither does the part of a disk that nobody wrote. Per
 * 16,384 pages a counter tells which parts need not be looked at.
 *
 * Invariants:
 *  1. refs[p] is the number of pages whose place is in pack p, chunk[c].mapped
 *     that of pages of c that are not at the base.
 *  2. A chunk that isn't dirty has a loc that tells the truth, or no pages.
 *  3. A page of unknown hash is a stored disk block, never memory that was
 *     restored.
 *
 * Lives in memory; after a crash a restore makes it anew from the packs.
 */
#include "snapshotter/image.h"

#include <sys/mman.h>

static void init_map(struct image_map *m, uint32_t nr_pages, void *table)
{
	m->nr_pages = nr_pages;
	m->nr_chunks = manifest_nr_chunks(nr_pages);
	m->page = table;
	m->chunk = base_alloc(m->nr_chunks * sizeof(*m->chunk));
}

struct image *image_new(uint32_t memory_pages, uint32_t disk_pages)
{
	struct image *img = base_alloc(sizeof(*img));
	size_t memory_len = memory_pages * sizeof(struct image_page);

	PRE(memory_pages <= PAGE_MEMORY_MAX && disk_pages <= PAGE_DISK_MAX);
	img->mem_len = MAX(memory_len + disk_pages * sizeof(struct image_page),
			   (size_t)CRYO_PAGE);
	img->mem = mmap(NULL, img->mem_len, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (img->mem == MAP_FAILED)
		NEVER("no memory for a table of pages");
	init_map(&img->map[PAGE_MEMORY], memory_pages, img->mem);
	init_map(&img->map[PAGE_DISK], disk_pages,
		 (uint8_t *)img->mem + memory_len);
	return img;
}

void image_free(struct image *img)
{
	if (!img)
		return;
	if (img->mem)
		munmap(img->mem, img->mem_len);
	free(img->map[PAGE_MEMORY].chunk);
	free(img->map[PAGE_DISK].chunk);
	free(img->refs);
	free(img);
}

static uint32_t *ref_of(struct image *img, uint64_t loc)
{
	uint32_t pack = loc_pack(loc);

	PRE(pack <= LOC_PACK_MAX);
	if (pack >= img->nr_refs) {
		uint32_t nr = MAX(pack + 1, 2 * img->nr_refs);

		img->refs = base_realloc(img->refs, nr * sizeof(*img->refs));
		memset(img->refs + img->nr_refs, 0,
		       (nr - img->nr_refs) * sizeof(*img->refs));
		img->nr_refs = nr;
	}
	return &img->refs[pack];
}

void image_set(struct image *img, enum page_kind kind, uint32_t index,
	       const struct image_page *page)
{
	struct image_map *m = &img->map[kind];
	struct image_page *p = &m->page[index];
	struct image_chunk *c = &m->chunk[index / MANIFEST_CHUNK_PAGES];

	PRE(index < m->nr_pages);
	PRE(kind == PAGE_DISK || page->loc != LOC_ZERO);
	if (loc_is_stored(p->loc))
		--*ref_of(img, p->loc);
	if (loc_is_stored(page->loc))
		++*ref_of(img, page->loc);
	c->mapped -= p->loc != LOC_BASE;
	c->mapped += page->loc != LOC_BASE;
	c->dirty = true;
	memcpy(p->hash, page->hash, DIGEST_HASH_LEN);
	__atomic_store_n(&p->loc, page->loc, __ATOMIC_RELEASE);
}

uint64_t image_disk_loc(const struct image *img, uint32_t block)
{
	PRE(block < img->map[PAGE_DISK].nr_pages);
	return __atomic_load_n(&img->map[PAGE_DISK].page[block].loc,
			       __ATOMIC_ACQUIRE);
}

static void mark(uint8_t *used, uint64_t loc)
{
	if (loc_is_stored(loc))
		used[loc_pack(loc)] = 1;
}

void image_packs(const struct image *img, struct packset *ps, struct buf *ret)
{
	uint32_t nr = packset_count(ps);
	SCOPED_FREE uint8_t *used = base_alloc(nr);
	uint8_t id[PACK_ID_LEN];

	for (uint32_t i = 0; i < MIN(nr, img->nr_refs); i++)
		used[i] = img->refs[i] > 0;
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		for (uint32_t c = 0; c < img->map[k].nr_chunks; c++)
			mark(used, img->map[k].chunk[c].loc);
	}
	for (uint32_t d = 0; img->point.has && d <= img->point.depth; d++)
		mark(used, img->chain[d]);
	mark(used, img->point.device);
	for (uint32_t i = 0; i < nr; i++) {
		if (!used[i])
			continue;
		packset_id(ps, i, id);
		buf_put(ret, id, PACK_ID_LEN);
	}
}
