/*
 * manifest: encodes and decodes points. FORMAT: ADR 0031. Entry lists, pack
 * tables and map chunks are in manifest_map.c.
 *
 * A decoder fills a local manifest field by field from a cursor that fails
 * for good at the first byte that is missing, then checks what a writer must
 * have kept. The result is handed over only if all of it was right.
 *
 * Invariants:
 *  1. decode(encode(m)) = m.
 *  2. A decoded manifest is safe to use without another look: sizes within
 *     limits, every place in its pack table, lists sorted and in range.
 *  3. Memory that a decoder takes is bounded by the bytes it was given.
 *
 * No state outlives a call.
 */
#include "store/manifest.h"

#include "store/manifest_map.h"

#define VERSION 1u

enum {
	FLAG_KEYFRAME = 1,
	FLAG_PARENT = 2,
	FLAG_MEMORY_SUM = 4,
	FLAG_DISK_SUM = 8,
	FLAGS_ALL = 15,
};

uint32_t manifest_pages(const struct manifest *m, enum page_kind kind)
{
	return kind == PAGE_MEMORY ? m->rest.memory_pages : m->rest.disk_pages;
}

uint32_t manifest_nr_chunks(uint32_t pages)
{
	return (pages + MANIFEST_CHUNK_PAGES - 1) / MANIFEST_CHUNK_PAGES;
}

void manifest_done(struct manifest *m)
{
	free(m->exec);
	manifest_packs_done(&m->packs);
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		free(m->map[k].entries);
		free(m->map[k].chunks);
	}
	*m = (struct manifest){ 0 };
}

static struct manifest_scope delta_scope(const struct manifest *m,
					 enum page_kind kind)
{
	return (struct manifest_scope){
		.first = 0,
		.end = manifest_pages(m, kind),
		.nr_packs = m->packs.nr,
		.base = true,
		.zero = kind == PAGE_DISK,
	};
}

/* --- encode --------------------------------------------------------------- */

static void put_ref(struct buf *b, uint64_t loc)
{
	if (!loc_is_stored(loc)) {
		buf_put_varint(b, 0);
		return;
	}
	buf_put_varint(b, (uint64_t)loc_pack(loc) + 1);
	buf_put_varint(b, loc_offset(loc) / LOC_UNIT);
}

static void put_head(struct buf *b, const struct manifest *m)
{
	unsigned int flags = 0;

	flags |= m->keyframe ? FLAG_KEYFRAME : 0u;
	flags |= m->has_parent ? FLAG_PARENT : 0u;
	flags |= m->has_sum[PAGE_MEMORY] ? FLAG_MEMORY_SUM : 0u;
	flags |= m->has_sum[PAGE_DISK] ? FLAG_DISK_SUM : 0u;
	buf_put_u16(b, VERSION);
	buf_put_u16(b, (uint16_t)flags);
	buf_put_u8(b, m->kind);
	buf_put_u8(b, 0);
	buf_put_u16(b, (uint16_t)m->packs.nr);
	buf_put(b, m->point, ID_LEN);
	buf_put(b, m->session, ID_LEN);
	buf_put_u64(b, m->epoch);
	buf_put_u64(b, (uint64_t)m->time_ns);
	buf_put_u32(b, m->depth);
	buf_put_u32(b, m->rest.memory_pages);
	buf_put_u32(b, m->rest.disk_pages);
	buf_put(b, m->rest.compat, CRYPT_HASH_LEN);
	buf_put(b, m->rest.device, CRYPT_HASH_LEN);
	buf_put(b, m->root, CRYPT_HASH_LEN);
}

static void put_refs(struct buf *b, const struct manifest *m)
{
	if (m->has_parent) {
		buf_put(b, m->parent_point, ID_LEN);
		put_ref(b, m->parent);
	}
	if (!m->keyframe)
		put_ref(b, m->base);
	put_ref(b, m->device);
	if (loc_is_stored(m->device))
		buf_put_varint(b, m->device_len);
}

static void put_sums(struct buf *b, const struct manifest *m)
{
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		if (!m->has_sum[k])
			continue;
		digest_sum_encode(buf_reserve(b, DIGEST_SUM_LEN), &m->sum[k]);
		b->len += DIGEST_SUM_LEN;
	}
}

static void put_map(struct buf *b, const struct manifest *m, enum page_kind kind)
{
	const struct manifest_map *map = &m->map[kind];
	struct manifest_scope scope = delta_scope(m, kind);

	if (!m->keyframe) {
		manifest_put_entries(b, map->entries, map->nr_entries, &scope);
		return;
	}
	PRE(map->nr_chunks == manifest_nr_chunks(manifest_pages(m, kind)));
	buf_put_varint(b, map->nr_chunks);
	for (uint32_t i = 0; i < map->nr_chunks; i++)
		put_ref(b, map->chunks[i]);
}

/* What a writer must keep and a reader must find; NULL or what is wrong. */
static const char *unsound(const struct manifest *m)
{
	if (m->rest.memory_pages > PAGE_MEMORY_MAX ||
	    m->rest.disk_pages > PAGE_DISK_MAX)
		return "it has too many pages";
	if (!id_valid(m->point) || !id_valid(m->session))
		return "it names no point or no session";
	if (m->has_parent &&
	    (!id_valid(m->parent_point) || !loc_is_stored(m->parent)))
		return "its parent has no name or place";
	if (m->keyframe && !(m->has_sum[PAGE_MEMORY] && m->has_sum[PAGE_DISK]))
		return "it is a keyframe without sums";
	if (m->keyframe != (m->depth == 0) || m->depth > MANIFEST_DEPTH_MAX)
		return "its depth is impossible";
	if (!m->keyframe && !(m->has_parent && loc_is_stored(m->base)))
		return "it is a delta on nothing";
	if (m->device_len > FRAME_PLAIN_MAX ||
	    loc_is_stored(m->device) != (m->device_len > 0))
		return "the length of its device state is impossible";
	if (m->exec_len > MANIFEST_EXEC_MAX)
		return "its exec states are too long";
	return NULL;
}

int manifest_encode(struct buf *b, const struct manifest *m)
{
	size_t before = b->len;

	PRE(!unsound(m));
	put_head(b, m);
	manifest_put_packs(b, &m->packs);
	put_refs(b, m);
	put_sums(b, m);
	buf_put_varint(b, m->exec_len);
	if (m->exec_len)
		buf_put(b, m->exec, m->exec_len);
	put_map(b, m, PAGE_MEMORY);
	put_map(b, m, PAGE_DISK);
	return b->len - before <= FRAME_META_MAX ? 0 : -E2BIG;
}

/* --- decode --------------------------------------------------------------- */

/* false: not a place in this manifest's table. */
static bool get_ref(struct cur *c, const struct manifest *m, uint64_t *ret)
{
	uint64_t pack = cur_get_varint(c), unit;

	*ret = LOC_BASE;
	if (pack == 0)
		return !c->failed;
	unit = cur_get_varint(c);
	if (pack > m->packs.nr || unit < PACK_HEAD_LEN / LOC_UNIT ||
	    unit > UINT32_MAX)
		return false;
	*ret = loc_make((uint32_t)(pack - 1), unit * LOC_UNIT, 0);
	return true;
}

static const char *get_head(struct cur *c, struct manifest *m)
{
	unsigned int flags;
	uint32_t nr_packs;

	if (cur_get_u16(c) != VERSION)
		return "its version is not 1";
	flags = cur_get_u16(c);
	if (flags & ~(unsigned int)FLAGS_ALL)
		return "it has flags that this build does not know";
	m->keyframe = flags & FLAG_KEYFRAME;
	m->has_parent = flags & FLAG_PARENT;
	m->has_sum[PAGE_MEMORY] = flags & FLAG_MEMORY_SUM;
	m->has_sum[PAGE_DISK] = flags & FLAG_DISK_SUM;
	m->kind = cur_get_u8(c);
	if (cur_get_u8(c) != 0)
		return "a reserved byte is in use";
	nr_packs = cur_get_u16(c);
	cur_get_copy(c, m->point, ID_LEN);
	cur_get_copy(c, m->session, ID_LEN);
	m->epoch = cur_get_u64(c);
	m->time_ns = (int64_t)cur_get_u64(c);
	m->depth = cur_get_u32(c);
	m->rest.memory_pages = cur_get_u32(c);
	m->rest.disk_pages = cur_get_u32(c);
	cur_get_copy(c, m->rest.compat, CRYPT_HASH_LEN);
	cur_get_copy(c, m->rest.device, CRYPT_HASH_LEN);
	cur_get_copy(c, m->root, CRYPT_HASH_LEN);
	return manifest_get_packs(c, nr_packs, &m->packs)
		       ? NULL
		       : "its pack table is too long";
}

static const char *get_refs(struct cur *c, struct manifest *m)
{
	uint64_t len = 0;
	bool good = true;

	if (m->has_parent) {
		cur_get_copy(c, m->parent_point, ID_LEN);
		good &= get_ref(c, m, &m->parent);
	}
	if (!m->keyframe)
		good &= get_ref(c, m, &m->base);
	good &= get_ref(c, m, &m->device);
	if (loc_is_stored(m->device))
		len = cur_get_varint(c);
	if (!good || len > FRAME_PLAIN_MAX)
		return "a reference leads nowhere";
	m->device_len = (uint32_t)len;
	return NULL;
}

static const char *get_sums_and_exec(struct cur *c, struct manifest *m)
{
	const uint8_t *p;
	uint64_t len;

	for (size_t k = 0; k < PAGE_KINDS; k++) {
		p = m->has_sum[k] ? cur_get(c, DIGEST_SUM_LEN) : NULL;
		if (p)
			digest_sum_decode(&m->sum[k], p);
	}
	len = cur_get_varint(c);
	if (len > MANIFEST_EXEC_MAX || len > cur_left(c))
		return "its exec states are too long";
	m->exec_len = (uint32_t)len;
	m->exec = base_alloc(len);
	cur_get_copy(c, m->exec, len);
	return NULL;
}

static const char *get_chunks(struct cur *c, struct manifest *m,
			      enum page_kind kind)
{
	uint32_t want = manifest_nr_chunks(manifest_pages(m, kind));
	struct manifest_map *map = &m->map[kind];

	if (cur_get_varint(c) != want)
		return "its number of map chunks is wrong";
	map->nr_chunks = want;
	map->chunks = base_alloc(want * sizeof(*map->chunks));
	for (uint32_t i = 0; i < want; i++) {
		if (!get_ref(c, m, &map->chunks[i]))
			return "a map chunk leads nowhere";
	}
	return NULL;
}

static const char *get_map(struct cur *c, struct manifest *m, enum page_kind kind)
{
	struct manifest_scope scope = delta_scope(m, kind);
	struct manifest_map *map = &m->map[kind];

	if (m->keyframe)
		return get_chunks(c, m, kind);
	return manifest_get_entries(c, &scope, &map->entries, &map->nr_entries)
		       ? NULL
		       : "an entry of its map is out of range";
}

static const char *decode(struct manifest *m, struct cur *c)
{
	const char *why = get_head(c, m);

	why = why ? why : get_refs(c, m);
	why = why ? why : get_sums_and_exec(c, m);
	why = why ? why : unsound(m);
	why = why ? why : get_map(c, m, PAGE_MEMORY);
	why = why ? why : get_map(c, m, PAGE_DISK);
	if (why)
		return why;
	return cur_done(c) ? NULL : "its end is not where it should be";
}

int manifest_decode(struct manifest *ret, const void *p, size_t len,
		    struct err *e)
{
	struct cur c = cur_init(p, len);
	struct manifest m = { 0 };
	const char *why = decode(&m, &c);

	if (!why) {
		*ret = m;
		return 0;
	}
	manifest_done(&m);
	return err_set(e, -EBADMSG, ERR_CORRUPT, "manifest refused: %s", why);
}
