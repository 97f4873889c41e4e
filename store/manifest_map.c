/*
 * manifest_map: pack tables, entry lists and map chunks. FORMAT: ADR 0031.
 *
 * Pages lie in the pack in the order they were captured, which is mostly by
 * index: so an entry is coded by how its place differs from the one before,
 * and most take two bytes before compression.
 *
 * Invariants:
 *  1. A decoded list ascends strictly, lies inside its scope, and every place
 *     in it names a pack of the table.
 *  2. A count is believed only as far as the bytes that are left could hold
 *     it: memory is bounded by the input.
 */
#include "store/manifest_map.h"

#define VERSION 1u

/* Low two bits of an entry's code. */
enum { CODE_SPECIAL, CODE_NEXT, CODE_NEAR, CODE_FAR };

#define UNIT_MAX UINT32_MAX /* offset / 16 */

void manifest_ref(const struct manifest_packs *packs, uint64_t loc,
		  struct pack_ref *ret)
{
	PRE(loc_is_stored(loc) && loc_pack(loc) < packs->nr);
	memcpy(ret->id, packs->id[loc_pack(loc)], PACK_ID_LEN);
	ret->offset = loc_offset(loc);
}

/* --- pack tables ---------------------------------------------------------- */

void manifest_packs_done(struct manifest_packs *p)
{
	free(p->id);
	*p = (struct manifest_packs){ 0 };
}

static void packs_grow(struct manifest_packs *p, uint32_t cap)
{
	if (cap <= p->cap)
		return;
	p->id = base_realloc(p->id, (size_t)cap * PACK_ID_LEN);
	p->cap = cap;
}

int manifest_packs_add(struct manifest_packs *p, const uint8_t id[PACK_ID_LEN],
		       uint32_t *ret_index)
{
	for (uint32_t i = 0; i < p->nr; i++) {
		if (!memcmp(p->id[i], id, PACK_ID_LEN)) {
			*ret_index = i;
			return 0;
		}
	}
	if (p->nr == MANIFEST_PACKS_MAX)
		return -ENOSPC;
	if (p->nr == p->cap)
		packs_grow(p, MAX(8u, 2 * p->cap));
	memcpy(p->id[p->nr], id, PACK_ID_LEN);
	*ret_index = p->nr++;
	return 0;
}

void manifest_put_packs(struct buf *b, const struct manifest_packs *p)
{
	if (p->nr)
		buf_put(b, p->id, (size_t)p->nr * PACK_ID_LEN);
}

bool manifest_get_packs(struct cur *c, uint32_t nr, struct manifest_packs *ret)
{
	if (nr > MANIFEST_PACKS_MAX || cur_left(c) < (size_t)nr * PACK_ID_LEN)
		return false;
	packs_grow(ret, nr);
	ret->nr = nr;
	return nr == 0 || cur_get_copy(c, ret->id, (size_t)nr * PACK_ID_LEN);
}

/* --- entry lists ---------------------------------------------------------- */

static uint64_t zigzag(int64_t v)
{
	return v < 0 ? ((uint64_t) - (v + 1) << 1) + 1 : (uint64_t)v << 1;
}

static int64_t unzigzag(uint64_t z)
{
	return z & 1 ? -(int64_t)(z >> 1) - 1 : (int64_t)(z >> 1);
}

static uint64_t loc_unit(uint64_t loc)
{
	return loc_offset(loc) / LOC_UNIT;
}

static void put_place(struct buf *b, uint64_t loc, uint64_t last)
{
	unsigned int slot = loc_slot(loc);
	int64_t move = (int64_t)loc_unit(loc) - (int64_t)loc_unit(last);

	if (loc_pack(loc) != loc_pack(last)) {
		buf_put_varint(b, (uint64_t)loc_pack(loc) << 2 | CODE_FAR);
		buf_put_varint(b, loc_unit(loc) << 2 | slot);
	} else if (move == 0 && slot == loc_slot(last) + 1) {
		buf_put_varint(b, CODE_NEXT);
	} else {
		buf_put_varint(b, (zigzag(move) << 2 | slot) << 2 | CODE_NEAR);
	}
}

void manifest_put_entries(struct buf *b, const struct manifest_entry *entries,
			  uint32_t nr, const struct manifest_scope *scope)
{
	uint64_t last = 0;
	uint32_t next = scope->first; /* smallest index that may come */

	buf_put_varint(b, nr);
	for (uint32_t i = 0; i < nr; i++) {
		const struct manifest_entry *en = &entries[i];

		PRE(en->index >= next && en->index < scope->end);
		buf_put_varint(b, en->index - next);
		next = en->index + 1;
		if (!loc_is_stored(en->loc)) {
			PRE(en->loc == LOC_ZERO ? scope->zero : scope->base);
			buf_put_varint(b, en->loc << 2 | CODE_SPECIAL);
			continue;
		}
		PRE(loc_pack(en->loc) < scope->nr_packs);
		put_place(b, en->loc, last);
		last = en->loc;
	}
}

static bool get_far(struct cur *c, uint64_t pack, uint32_t nr_packs, uint64_t *loc)
{
	uint64_t v = cur_get_varint(c);

	if (pack >= nr_packs || v >> 2 > UNIT_MAX)
		return false;
	*loc = loc_make((uint32_t)pack, (v >> 2) * LOC_UNIT,
			(unsigned int)(v & 3));
	return true;
}

static bool get_near(uint64_t v, uint32_t nr_packs, uint64_t *loc)
{
	uint64_t z = v >> 2;
	int64_t unit;

	if (loc_pack(*loc) >= nr_packs || z > 2 * (uint64_t)UNIT_MAX + 1)
		return false;
	unit = (int64_t)loc_unit(*loc) + unzigzag(z);
	if (unit < 0 || unit > (int64_t)UNIT_MAX)
		return false;
	*loc = loc_make(loc_pack(*loc), (uint64_t)unit * LOC_UNIT,
			(unsigned int)(v & 3));
	return true;
}

/* Moves *last to the next place that has one; *ret may be a special. */
static bool get_place(struct cur *c, const struct manifest_scope *scope,
		      uint64_t *last, uint64_t *ret)
{
	uint64_t v = cur_get_varint(c), arg = v >> 2;
	bool good = false;

	switch (v & 3) {
	case CODE_SPECIAL:
		*ret = arg;
		return (arg == LOC_BASE && scope->base) ||
		       (arg == LOC_ZERO && scope->zero);
	case CODE_NEXT:
		good = arg == 0 && loc_is_stored(*last) &&
		       loc_slot(*last) < FRAME_PAGES_MAX - 1;
		if (good)
			++*last;
		break;
	case CODE_NEAR:
		good = get_near(arg, scope->nr_packs, last);
		break;
	case CODE_FAR:
		good = get_far(c, arg, scope->nr_packs, last);
		break;
	}
	*ret = *last;
	return good && loc_offset(*last) >= PACK_HEAD_LEN;
}

bool manifest_get_entries(struct cur *c, const struct manifest_scope *scope,
			  struct manifest_entry **ret, uint32_t *ret_nr)
{
	uint64_t nr = cur_get_varint(c), next = scope->first, last = 0;
	struct manifest_entry *en;

	if (nr > cur_left(c) / 2 || nr > scope->end - scope->first)
		return false;
	en = *ret = base_alloc((size_t)nr * sizeof(*en));
	*ret_nr = (uint32_t)nr;
	for (uint64_t i = 0; i < nr; i++, en++) {
		uint64_t gap = cur_get_varint(c);

		if (gap >= scope->end - next)
			return false;
		en->index = (uint32_t)(next + gap);
		next += gap + 1;
		if (!get_place(c, scope, &last, &en->loc) || c->failed)
			return false;
	}
	return true;
}

/* --- map chunks ----------------------------------------------------------- */

static struct manifest_scope chunk_scope(const struct manifest_chunk *c)
{
	uint32_t first = c->number * MANIFEST_CHUNK_PAGES;

	return (struct manifest_scope){
		.first = first,
		.end = first + MANIFEST_CHUNK_PAGES,
		.nr_packs = c->packs.nr,
		.zero = c->kind == PAGE_DISK,
	};
}

void manifest_chunk_done(struct manifest_chunk *c)
{
	manifest_packs_done(&c->packs);
	free(c->entries);
	*c = (struct manifest_chunk){ 0 };
}

int manifest_chunk_encode(struct buf *b, const struct manifest_chunk *c)
{
	struct manifest_scope scope = chunk_scope(c);
	size_t before = b->len;

	PRE(c->number < page_max(c->kind) / MANIFEST_CHUNK_PAGES);
	buf_put_u16(b, VERSION);
	buf_put_u8(b, (uint8_t)c->kind);
	buf_put_u8(b, 0);
	buf_put_u32(b, c->number);
	buf_put_u16(b, (uint16_t)c->packs.nr);
	manifest_put_packs(b, &c->packs);
	manifest_put_entries(b, c->entries, c->nr_entries, &scope);
	return b->len - before <= FRAME_META_MAX ? 0 : -E2BIG;
}

static const char *chunk_decode(struct manifest_chunk *ch, struct cur *c)
{
	struct manifest_scope scope;
	uint8_t kind;
	uint32_t nr_packs;

	if (cur_get_u16(c) != VERSION)
		return "its version is not 1";
	kind = cur_get_u8(c);
	if (cur_get_u8(c) != 0 || kind >= PAGE_KINDS)
		return "it maps no known kind of page";
	ch->kind = (enum page_kind)kind;
	ch->number = cur_get_u32(c);
	nr_packs = cur_get_u16(c);
	if (ch->number >= page_max(ch->kind) / MANIFEST_CHUNK_PAGES)
		return "its number is too large";
	if (!manifest_get_packs(c, nr_packs, &ch->packs))
		return "its pack table is too long";
	scope = chunk_scope(ch);
	if (!manifest_get_entries(c, &scope, &ch->entries, &ch->nr_entries))
		return "an entry is out of range";
	return cur_done(c) ? NULL : "its end is not where it should be";
}

int manifest_chunk_decode(struct manifest_chunk *ret, const void *p, size_t len,
			  struct err *e)
{
	struct manifest_chunk ch = { 0 };
	struct cur c = cur_init(p, len);
	const char *why = chunk_decode(&ch, &c);

	if (!why) {
		*ret = ch;
		return 0;
	}
	manifest_chunk_done(&ch);
	return err_set(e, -EBADMSG, ERR_CORRUPT, "map chunk refused: %s", why);
}
