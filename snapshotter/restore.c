/*
 * restore: from a manifest's place to a point's state.
 *
 * Open walks from the point's manifest back to its keyframe. The newest word
 * on a page counts: manifests are applied from new to old, and a bitmap
 * remembers which pages are decided, so one manifest is held at a time. Then
 * the keyframe's chunks fill in what is left.
 *
 * What is checked, and against what:
 *  - each frame, by its tag, against its pack and place;
 *  - each manifest, against the child that named it (point id, depth, sizes);
 *  - the root, made from sums, device hash, compatibility key and sizes of the
 *    manifest, against the manifest's and the caller's (the log's);
 *  - memory and disk, page by page, against the sums; device state, by hash.
 *
 * Invariants:
 *  1. A restore that answers 0 gives the state that the root names.
 *  2. The chain is at most 60 manifests, whatever the packs say.
 *  3. Nothing is written but the memory file and the image.
 *
 * A crash leaves nothing behind.
 */
#include "snapshotter/restore.h"

#include "snapshotter/pages.h"
#include "snapshotter/restore_pages.h"

#include <sys/stat.h>

struct restore {
	struct packset *ps;
	struct packset_reader *reader;
	struct manifest m; /* the point's own; its lists are dropped */
	struct image *img;
	uint64_t device; /* loc in the packset */
	bool has_sum[PAGE_KINDS];
	uint64_t *decided[PAGE_KINDS]; /* bitmaps; while the maps are read */
};

static int corrupt(struct restore *r, uint64_t loc, struct err *e, const char *why)
{
	char where[PACKSET_WHERE_LEN];

	return err_set(e, -EBADMSG, ERR_CORRUPT, "%s: %s",
		       packset_where(r->ps, loc, where), why);
}

/* --- maps ----------------------------------------------------------------- */

/* Indexes in the packset for those in a manifest's or chunk's own table. */
static int translate(struct restore *r, const struct manifest_packs *packs,
		     uint32_t **ret, struct err *e)
{
	uint32_t *to = base_alloc(packs->nr * sizeof(*to));

	for (uint32_t i = 0; i < packs->nr; i++) {
		int n = packset_index(r->ps, packs->id[i], &to[i], e);

		if (n < 0) {
			free(to);
			return n;
		}
	}
	*ret = to;
	return 0;
}

static uint64_t here(const uint32_t *to, uint64_t loc)
{
	if (!loc_is_stored(loc))
		return loc;
	return loc_make(to[loc_pack(loc)], loc_offset(loc), loc_slot(loc));
}

/* Pages that no newer manifest decided. */
static void apply(struct restore *r, enum page_kind kind, const uint32_t *to,
		  const struct manifest_entry *en, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		struct image_page page = { .loc = here(to, en[i].loc) };

		if (pages_bit(r->decided[kind], en[i].index))
			continue;
		pages_bit_set(r->decided[kind], en[i].index);
		if (page.loc == LOC_ZERO)
			memcpy(page.hash, digest_zero_page, DIGEST_HASH_LEN);
		image_set(r->img, kind, en[i].index, &page);
	}
}

static int apply_chunk(struct restore *r, enum page_kind kind, uint32_t number,
		       uint64_t loc, struct err *e)
{
	struct image_map *map = &r->img->map[kind];
	bool dirty = map->chunk[number].dirty; /* by deltas since */
	SCOPED(manifest_chunk_done) struct manifest_chunk c = { 0 };
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED_FREE uint32_t *to = NULL;
	int n;

	n = packset_read_meta(r->reader, loc, FRAME_MAPCHUNK, &b, e);
	if (n == 0)
		n = manifest_chunk_decode(&c, b.p, b.len, e);
	if (n == 0)
		n = translate(r, &c.packs, &to, e);
	if (n < 0)
		return n;
	if (c.kind != kind || c.number != number ||
	    (c.nr_entries && c.entries[c.nr_entries - 1].index >= map->nr_pages))
		return corrupt(r, loc, e, "this map chunk is of another map");
	apply(r, kind, to, c.entries, c.nr_entries);
	map->chunk[number].loc = loc;
	map->chunk[number].dirty = dirty;
	return 0;
}

static int apply_keyframe(struct restore *r, const struct manifest *m,
			  const uint32_t *to, struct err *e)
{
	for (enum page_kind k = 0; k < PAGE_KINDS; k++) {
		for (uint32_t i = 0; i < m->map[k].nr_chunks; i++) {
			uint64_t loc = here(to, m->map[k].chunks[i]);
			int n;

			if (loc == LOC_BASE)
				continue;
			n = apply_chunk(r, k, i, loc, e);
			if (n < 0)
				return n;
		}
	}
	return 0;
}

/* --- the chain ------------------------------------------------------------ */

/* The image starts from the point's own manifest. */
static void begin(struct restore *r, const struct manifest *m, uint64_t loc,
		  const uint32_t *to)
{
	struct image_point *at;

	r->img = image_new(m->rest.memory_pages, m->rest.disk_pages);
	for (size_t k = 0; k < PAGE_KINDS; k++)
		r->decided[k] = base_alloc((r->img->map[k].nr_pages + 63) / 64 *
					   sizeof(uint64_t));
	at = &r->img->point;
	at->has = true;
	memcpy(at->id, m->point, sizeof(at->id));
	at->loc = loc;
	at->base = m->keyframe ? loc : here(to, m->base);
	at->device = r->device = here(to, m->device);
	at->depth = m->depth;
	memcpy(at->root, m->root, CRYPT_HASH_LEN);
}

/* Keeps of the point's own manifest what is asked for later. */
static void keep(struct restore *r, struct manifest *m)
{
	r->m = *m;
	*m = (struct manifest){ 0 };
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		free(r->m.map[k].entries);
		free(r->m.map[k].chunks);
		r->m.map[k] = (struct manifest_map){ 0 };
	}
}

static void take_sums(struct restore *r, const struct manifest *m)
{
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		if (r->has_sum[k] || !m->has_sum[k])
			continue;
		r->img->sum[k] = m->sum[k];
		r->has_sum[k] = true;
	}
}

/* What a child says of its parent. */
struct expect {
	bool any; /* false: the point itself, of which nothing is known */
	char point[ID_LEN + 1];
	uint32_t depth;
};

static int check_link(struct restore *r, const struct manifest *m,
		      const struct expect *x, uint64_t loc, struct err *e)
{
	if (!x->any)
		return 0;
	if (strcmp(m->point, x->point) != 0 || m->depth != x->depth)
		return corrupt(r, loc, e,
			       "another point is where the parent should be");
	if (m->rest.memory_pages != image_pages(r->img, PAGE_MEMORY) ||
	    m->rest.disk_pages != image_pages(r->img, PAGE_DISK))
		return corrupt(r, loc, e,
			       "the parent has another size than its child");
	if ((m->depth == 0) != (loc == r->img->point.base))
		return corrupt(r, loc, e,
			       "the keyframe is not where its "
			       "children say");
	return 0;
}

static int apply_manifest(struct restore *r, const struct manifest *m,
			  const uint32_t *to, struct err *e)
{
	take_sums(r, m);
	if (m->keyframe)
		return apply_keyframe(r, m, to, e);
	for (enum page_kind k = 0; k < PAGE_KINDS; k++)
		apply(r, k, to, m->map[k].entries, m->map[k].nr_entries);
	return 0;
}

/* One manifest; *loc and *x move on to its parent. 1: it is the keyframe. */
static int step(struct restore *r, uint64_t *loc, struct expect *x, struct err *e)
{
	SCOPED(manifest_done) struct manifest m = { 0 };
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED_FREE uint32_t *to = NULL;
	int n;

	n = packset_read_meta(r->reader, *loc, FRAME_MANIFEST, &b, e);
	if (n == 0)
		n = manifest_decode(&m, b.p, b.len, e);
	if (n == 0)
		n = translate(r, &m.packs, &to, e);
	if (n < 0)
		return n;
	if (!x->any)
		begin(r, &m, *loc, to);
	n = check_link(r, &m, x, *loc, e);
	if (n == 0)
		n = apply_manifest(r, &m, to, e);
	if (n < 0)
		return n;
	r->img->chain[m.depth] = *loc;
	n = m.keyframe;
	*loc = here(to, m.parent);
	memcpy(x->point, m.parent_point, sizeof(x->point));
	x->depth = m.depth - 1;
	if (!x->any)
		keep(r, &m);
	x->any = true;
	return n;
}

static int walk(struct restore *r, uint64_t loc, struct err *e)
{
	struct expect x = { 0 };
	int n;

	/* depth is at most 59 and goes down by one: this ends */
	do {
		n = step(r, &loc, &x, e);
	} while (n == 0);
	return n < 0 ? n : 0;
}

/* The manifest binds its own root, and the log's is the same. */
static int check_root(struct restore *r, const uint8_t *root, uint64_t loc,
		      struct err *e)
{
	uint8_t made[CRYPT_HASH_LEN];

	for (size_t k = 0; k < PAGE_KINDS; k++)
		r->m.sum[k] = r->img->sum[k];
	digest_root(made, &r->m.sum[PAGE_MEMORY], &r->m.sum[PAGE_DISK],
		    &r->m.rest);
	if (memcmp(made, r->m.root, CRYPT_HASH_LEN) != 0)
		return corrupt(r, loc, e, "the manifest contradicts its root");
	if (root && memcmp(made, root, CRYPT_HASH_LEN) != 0)
		return corrupt(r, loc, e,
			       "the point there is not the one in the log");
	return 0;
}

static void drop_bitmaps(struct restore *r)
{
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		free(r->decided[k]);
		r->decided[k] = NULL;
	}
}

int restore_open(struct restore **ret, struct packset *ps,
		 const struct pack_ref *at, const uint8_t *root, struct err *e)
{
	struct restore *r = base_alloc(sizeof(*r));
	uint32_t index;
	uint64_t loc;
	int n;

	r->ps = ps;
	r->reader = packset_reader_new(ps);
	n = packset_index(ps, at->id, &index, e);
	loc = loc_make(n < 0 ? 0 : index, at->offset, 0);
	if (n == 0 &&
	    (at->offset < PACK_HEAD_LEN || loc_offset(loc) != at->offset))
		n = err_set(e, -EBADMSG, ERR_CORRUPT,
			    "no manifest can be at %llu of a pack",
			    (unsigned long long)at->offset);
	if (n == 0)
		n = walk(r, loc, e);
	if (n == 0)
		n = check_root(r, root, loc, e);
	if (n < 0) {
		restore_free(r);
		return err_wrap(e, n, "read the map of a point");
	}
	drop_bitmaps(r);
	*ret = r;
	return 0;
}

void restore_free(struct restore *r)
{
	if (!r)
		return;
	drop_bitmaps(r);
	packset_reader_free(r->reader);
	manifest_done(&r->m);
	image_free(r->img);
	free(r);
}

const struct manifest *restore_manifest(const struct restore *r)
{
	return &r->m;
}

struct image *restore_take_image(struct restore *r)
{
	PRE(r->img);
	return STEAL(r->img);
}

/* --- content -------------------------------------------------------------- */

int restore_device(struct restore *r, struct buf *ret, struct err *e)
{
	uint8_t hash[CRYPT_HASH_LEN];

	buf_reset(ret);
	if (loc_is_stored(r->device)) {
		int n = packset_read_meta(r->reader, r->device, FRAME_DEVICE,
					  ret, e);

		if (n < 0)
			return n;
	}
	crypt_sha256(hash, ret->p, ret->len);
	if (ret->len == r->m.device_len &&
	    !memcmp(hash, r->m.rest.device, CRYPT_HASH_LEN))
		return 0;
	return err_set(e, -EBADMSG, ERR_CORRUPT,
		       "the device state of point %s is not the one that its "
		       "root names",
		       r->m.point);
}

static int check_pages(struct restore *r, enum page_kind kind, int out_fd,
		       unsigned int threads, struct err *e)
{
	struct digest_sum sum;
	int n;

	PRE(r->img);
	n = restore_pages(r->img, r->ps, kind, out_fd, threads, &sum, e);
	if (n < 0)
		return err_wrap(e, n, "restore point %s", r->m.point);
	if (!memcmp(&sum, &r->m.sum[kind], sizeof(sum)))
		return 0;
	return err_set(e, -EBADMSG, ERR_CORRUPT,
		       "the %s of point %s is not what its root names: every "
		       "frame is authentic, so its map is wrong; use another "
		       "point",
		       kind == PAGE_DISK ? "disk" : "memory", r->m.point);
}

int restore_memory(struct restore *r, int ram_fd, unsigned int threads,
		   struct err *e)
{
	uint64_t want = (uint64_t)r->m.rest.memory_pages * CRYO_PAGE;
	struct stat st;

	if (ram_fd >= 0 && fstat(ram_fd, &st) < 0)
		return err_sys(e, errno, "look at the memory file");
	if (ram_fd >= 0 && (uint64_t)st.st_size != want)
		return err_set(e, -EINVAL, ERR_INTERNAL,
			       "point %s has %llu bytes of memory and the "
			       "file for it has %llu",
			       r->m.point, (unsigned long long)want,
			       (unsigned long long)st.st_size);
	return check_pages(r, PAGE_MEMORY, ram_fd, threads, e);
}

int restore_check_disk(struct restore *r, unsigned int threads, struct err *e)
{
	return check_pages(r, PAGE_DISK, -1, threads, e);
}

int restore_check_point(struct restore *r, unsigned int threads, struct err *e)
{
	SCOPED(buf_done) struct buf device = { 0 };
	int n = restore_device(r, &device, e);

	if (n == 0)
		n = restore_memory(r, -1, threads, e);
	if (n == 0)
		n = restore_check_disk(r, threads, e);
	return n;
}
