/*
 * pointmap: turns the image's table into manifests' maps. FORMAT: ADR 0031.
 *
 * Invariants:
 *  1. A manifest or chunk names in its table exactly the packs that it refers
 *     to.
 *  2. A chunk is written if and only if pages of it are mapped and it changed
 *     since the one that the image knows. The image itself is not touched.
 *
 * A crash leaves chunks that no durable manifest names: garbage.
 */
#include "snapshotter/pointmap.h"

void pointmap_table_init(struct pointmap_table *t, struct packset *ps,
			 struct manifest_packs *packs)
{
	t->ps = ps;
	t->packs = packs;
	t->nr = packset_count(ps);
	t->to = base_alloc(t->nr * sizeof(*t->to));
}

void pointmap_table_done(struct pointmap_table *t)
{
	free(t->to);
	*t = (struct pointmap_table){ 0 };
}

/* Packs may have been opened since the table was made. */
static void table_grow(struct pointmap_table *t, uint32_t index)
{
	uint32_t nr = packset_count(t->ps);

	PRE(index < nr);
	t->to = base_realloc(t->to, nr * sizeof(*t->to));
	memset(t->to + t->nr, 0, (nr - t->nr) * sizeof(*t->to));
	t->nr = nr;
}

int pointmap_loc(struct pointmap_table *t, uint64_t loc, uint64_t *ret,
		 struct err *e)
{
	uint32_t from = loc_pack(loc), to;

	if (!loc_is_stored(loc)) {
		*ret = loc;
		return 0;
	}
	if (from >= t->nr)
		table_grow(t, from);
	if (!t->to[from]) {
		uint8_t id[PACK_ID_LEN];
		int r;

		packset_id(t->ps, from, id);
		r = manifest_packs_add(t->packs, id, &to);
		if (r < 0)
			return err_set(e, r, ERR_LIMIT,
				       "one point refers to more than %u packs",
				       MANIFEST_PACKS_MAX);
		t->to[from] = to + 1;
	}
	*ret = loc_make(t->to[from] - 1, loc_offset(loc), loc_slot(loc));
	return 0;
}

int pointmap_delta(struct manifest *m, struct pointmap_table *t,
		   const struct image *img, const struct pointmap_page *page,
		   size_t nr, struct err *e)
{
	for (size_t k = 0; k < PAGE_KINDS; k++)
		m->map[k].entries =
			base_alloc(nr * sizeof(struct manifest_entry));
	for (size_t i = 0; i < nr; i++) {
		enum page_kind kind = page[i].kind;
		struct manifest_map *map = &m->map[kind];
		struct manifest_entry *en = &map->entries[map->nr_entries++];
		int r;

		en->index = page[i].index;
		r = pointmap_loc(t, img->map[kind].page[en->index].loc,
				 &en->loc, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int fill_chunk(struct manifest_chunk *c, struct pointmap_table *t,
		      const struct image_map *map, struct err *e)
{
	uint32_t first = c->number * MANIFEST_CHUNK_PAGES;
	uint32_t end = MIN(first + MANIFEST_CHUNK_PAGES, map->nr_pages);
	uint32_t mapped = map->chunk[c->number].mapped;

	c->entries = base_alloc(mapped * sizeof(*c->entries));
	for (uint32_t i = first; i < end; i++) {
		struct manifest_entry *en = &c->entries[c->nr_entries];
		int r;

		if (map->page[i].loc == LOC_BASE)
			continue;
		PRE(c->nr_entries < mapped);
		en->index = i;
		r = pointmap_loc(t, map->page[i].loc, &en->loc, e);
		if (r < 0)
			return r;
		c->nr_entries++;
	}
	POST(c->nr_entries == mapped);
	return 0;
}

static int write_chunk(const struct image_map *map, enum page_kind kind,
		       uint32_t number, struct packset *ps, struct packout *po,
		       uint64_t *ret_loc, struct err *e)
{
	SCOPED(manifest_chunk_done)
	struct manifest_chunk c = { .kind = kind, .number = number };
	SCOPED(pointmap_table_done) struct pointmap_table t;
	SCOPED(buf_done) struct buf b = { 0 };
	struct frame f = { .type = FRAME_MAPCHUNK };
	int r;

	pointmap_table_init(&t, ps, &c.packs);
	r = fill_chunk(&c, &t, map, e);
	if (r < 0)
		return r;
	if (manifest_chunk_encode(&b, &c) < 0)
		NEVER("16,384 pages don't fit a map chunk");
	f.plain_len = (uint32_t)b.len;
	return packout_put(po, &f, b.p, ret_loc, e);
}

static int keyframe_map(struct manifest *m, struct pointmap_table *t,
			const struct image *img, enum page_kind kind,
			struct packout *po, uint64_t *ret_chunk, struct err *e)
{
	const struct image_map *from = &img->map[kind];
	struct manifest_map *to = &m->map[kind];

	to->nr_chunks = from->nr_chunks;
	to->chunks = base_alloc(from->nr_chunks * sizeof(*to->chunks));
	for (uint32_t i = 0; i < from->nr_chunks; i++) {
		const struct image_chunk *c = &from->chunk[i];
		int r = 0;

		ret_chunk[i] = c->mapped ? c->loc : LOC_BASE;
		if (c->mapped && (c->dirty || c->loc == LOC_BASE))
			r = write_chunk(from, kind, i, t->ps, po, &ret_chunk[i],
					e);
		if (r == 0)
			r = pointmap_loc(t, ret_chunk[i], &to->chunks[i], e);
		if (r < 0)
			return r;
	}
	return 0;
}

int pointmap_keyframe(struct manifest *m, struct pointmap_table *t,
		      const struct image *img, struct packout *po,
		      uint64_t *ret_chunk, struct err *e)
{
	int r = keyframe_map(m, t, img, PAGE_MEMORY, po, ret_chunk, e);

	if (r < 0)
		return r;
	return keyframe_map(m, t, img, PAGE_DISK, po,
			    ret_chunk + img->map[PAGE_MEMORY].nr_chunks, e);
}
