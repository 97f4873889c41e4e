/*
 * packer: pages of one moment in, a durable point out.
 *
 * Every page that differs from the image goes into the image at once, so that
 * pages of one capture find each other; what was there before is kept in an
 * undo list, which is also the list of what changed. Finish writes what is
 * open, the device state, the manifest, and syncs; then the image's point
 * moves on. Abort plays the list backwards.
 *
 *            begin             finish: durable
 *     idle --------> open ------------------------> idle (next point)
 *                    |  ^ page
 *                    |  | error: only abort is legal
 *                    +------> abort -----------> idle (same point)
 *
 * Invariants:
 *  1. Between captures the image is exactly what its point's manifest says.
 *  2. Every place in the image is in a frame that is sealed or in work. A
 *     finished point refers to durable frames only: one sync covers all.
 *  3. The sums are those of the image, always.
 *  4. A page is in the undo list once, with what it was at begin.
 *
 * A crash at any moment leaves frames that no event names, and the last
 * acknowledged point whole: nothing that it refers to is ever overwritten.
 */
#include "snapshotter/packer.h"

#include "snapshotter/dedupe.h"
#include "snapshotter/pages.h"
#include "snapshotter/pointmap.h"

enum state { IDLE, OPEN, FAILED };

struct undo {
	struct pointmap_page at;
	struct image_page was;
};

struct packer {
	struct packer_config c;
	enum state state;
	struct packout *out;
	struct packset_reader *reader;
	struct digest *digest;
	struct dedupe *dedupe;
	struct packer_point point;
	struct packer_result done; /* counters of the capture */
	uint64_t bytes_before;

	uint8_t plain[FRAME_DATA_MAX]; /* the frame in work */
	uint16_t nr_plain; /* its pages */
	uint64_t plain_loc;

	struct undo *undo;
	size_t nr_undo, cap_undo;
	uint64_t *touched[PAGE_KINDS]; /* bitmaps: in the undo list */
	struct digest_sum sum_before[PAGE_KINDS];
};

struct packer *packer_new(const struct packer_config *c)
{
	struct packer *p = base_alloc(sizeof(*p));

	p->c = *c;
	p->out = packout_new(c);
	p->reader = packset_reader_new(c->ps);
	p->digest = digest_new();
	p->dedupe = dedupe_new(c->img);
	for (size_t k = 0; k < PAGE_KINDS; k++)
		p->touched[k] = base_alloc((c->img->map[k].nr_pages + 63) / 64 *
					   sizeof(uint64_t));
	return p;
}

void packer_free(struct packer *p)
{
	if (!p)
		return;
	packer_abort(p);
	packout_free(p->out);
	packset_reader_free(p->reader);
	digest_free(p->digest);
	dedupe_free(p->dedupe);
	for (size_t k = 0; k < PAGE_KINDS; k++)
		free(p->touched[k]);
	free(p->undo);
	base_wipe(p->plain, sizeof(p->plain));
	free(p);
}

int packer_begin(struct packer *p, const struct packer_point *point,
		 struct err *e)
{
	PRE(p->state == IDLE);
	if (!id_valid(point->id) || !id_valid(point->session))
		return err_set(e, -EINVAL, ERR_INTERNAL,
			       "a capture begins without the ids of its point "
			       "and session");
	p->point = *point;
	p->done = (struct packer_result){ 0 };
	p->bytes_before = packout_bytes(p->out);
	memcpy(p->sum_before, p->c.img->sum, sizeof(p->sum_before));
	packout_begin(p->out);
	p->state = OPEN;
	return 0;
}

void packer_set_time(struct packer *p, int64_t time_ns)
{
	PRE(p->state != IDLE);
	p->point.time_ns = time_ns;
}

/* --- pages ---------------------------------------------------------------- */

/* Ends the frame in work. */
static int seal_pages(struct packer *p, struct err *e)
{
	struct frame f = {
		.type = FRAME_PAGES,
		.pages = p->nr_plain,
		.plain_len = p->nr_plain * CRYO_PAGE,
	};
	uint64_t loc;
	int r;

	if (!p->nr_plain)
		return 0;
	p->nr_plain = 0;
	r = packout_put(p->out, &f, p->plain, &loc, e);
	if (r < 0)
		return r;
	POST(loc == p->plain_loc);
	return 0;
}

/* Stores a page; its place is known before its frame is sealed. */
static int store(struct packer *p, const void *page, uint64_t *ret_loc,
		 struct err *e)
{
	int r = 0;

	if (!p->nr_plain)
		r = packout_next(p->out, &p->plain_loc, e);
	if (r < 0)
		return r;
	memcpy(p->plain + p->nr_plain * CRYO_PAGE, page, CRYO_PAGE);
	*ret_loc = p->plain_loc + p->nr_plain++;
	return p->nr_plain == FRAME_PAGES_MAX ? seal_pages(p, e) : 0;
}

static bool hash_is_known(const struct image_page *page)
{
	static const uint8_t unknown[DIGEST_HASH_LEN];

	return memcmp(page->hash, unknown, DIGEST_HASH_LEN) != 0;
}

/* What is in the image for this page, with its hash, read if it must be. */
static int look_up(struct packer *p, enum page_kind kind, uint32_t index,
		   struct image_page *ret, struct err *e)
{
	uint8_t page[CRYO_PAGE];
	int r;

	*ret = p->c.img->map[kind].page[index];
	if (!loc_is_stored(ret->loc) || hash_is_known(ret))
		return 0;
	r = packset_read_page(p->reader, ret->loc, page, e);
	if (r < 0)
		return err_wrap(e, r, "what %s %u held before",
				kind == PAGE_DISK ? "block" : "page", index);
	digest_page(ret->hash, page);
	memcpy(p->c.img->map[kind].page[index].hash, ret->hash, DIGEST_HASH_LEN);
	return 0;
}

/* Hash and, if it needs no storing, place of new content. */
static void classify(enum page_kind kind, const void *page, struct image_page *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (!pages_is_zero(page)) {
		digest_page(ret->hash, page);
	} else if (kind == PAGE_DISK) {
		memcpy(ret->hash, digest_zero_page, DIGEST_HASH_LEN);
		ret->loc = LOC_ZERO;
	}
}

static bool same_page(const struct image_page *was, const struct image_page *now)
{
	bool was_base = was->loc == LOC_BASE;
	bool now_base = now->loc == LOC_BASE && !hash_is_known(now);

	return was_base == now_base &&
	       !memcmp(was->hash, now->hash, DIGEST_HASH_LEN);
}

static void remember(struct packer *p, enum page_kind kind, uint32_t index,
		     const struct image_page *was)
{
	if (pages_bit(p->touched[kind], index))
		return;
	if (p->nr_undo == p->cap_undo) {
		p->cap_undo = MAX((size_t)1024, 2 * p->cap_undo);
		p->undo = base_realloc(p->undo, p->cap_undo * sizeof(*p->undo));
	}
	pages_bit_set(p->touched[kind], index);
	p->undo[p->nr_undo++] = (struct undo){ { kind, index }, *was };
}

/* Puts a page in the image, with all that hangs on it. */
static void change(struct packer *p, enum page_kind kind, uint32_t index,
		   const struct image_page *was, const struct image_page *now)
{
	struct digest_sum *sum = &p->c.img->sum[kind];

	remember(p, kind, index, was);
	if (was->loc != LOC_BASE)
		digest_sub(p->digest, sum, kind, index, was->hash);
	if (now->loc != LOC_BASE)
		digest_add(p->digest, sum, kind, index, now->hash);
	image_set(p->c.img, kind, index, now);
}

static int add_page(struct packer *p, enum page_kind kind, uint32_t index,
		    const void *page, struct err *e)
{
	struct image_page was, now;
	int r = look_up(p, kind, index, &was, e);

	if (r < 0)
		return r;
	classify(kind, page, &now);
	if (same_page(&was, &now))
		return 0;
	if (!hash_is_known(&now) || now.loc == LOC_ZERO) {
		p->done.zero++;
		change(p, kind, index, &was, &now);
		return 0;
	}
	now.loc = dedupe_find(p->dedupe, now.hash);
	if (now.loc != LOC_BASE) {
		p->done.duplicate++;
	} else {
		p->done.stored++;
		r = store(p, page, &now.loc, e);
		if (r < 0)
			return r;
	}
	change(p, kind, index, &was, &now);
	dedupe_add(p->dedupe, kind, index);
	return 0;
}

int packer_page(struct packer *p, enum page_kind kind, uint32_t index,
		const void *page, struct err *e)
{
	int r;

	PRE(p->state == OPEN);
	PRE(index < image_pages(p->c.img, kind));
	PRE((uintptr_t)page % 8 == 0);
	p->done.seen++;
	r = add_page(p, kind, index, page, e);
	if (r < 0)
		p->state = FAILED;
	return r;
}

/* --- finish --------------------------------------------------------------- */

static int write_device(struct packer *p, struct manifest *m,
			struct pointmap_table *t, const void *device,
			size_t len, uint64_t *ret_loc, struct err *e)
{
	struct frame f = { .type = FRAME_DEVICE, .plain_len = (uint32_t)len };
	int r;

	*ret_loc = LOC_BASE;
	crypt_sha256(m->rest.device, device, len);
	m->device_len = (uint32_t)len;
	if (!len)
		return 0;
	r = packout_put(p->out, &f, device, ret_loc, e);
	return r < 0 ? r : pointmap_loc(t, *ret_loc, &m->device, e);
}

/* Parent, keyframe and depth; whether to make a keyframe. */
static int set_place(struct packer *p, struct manifest *m,
		     struct pointmap_table *t, struct err *e)
{
	const struct image_point *at = &p->c.img->point;
	int r = 0;

	m->has_parent = at->has;
	m->keyframe = !at->has || at->depth == MANIFEST_DEPTH_MAX ||
		      p->nr_undo > MANIFEST_DELTA_MAX;
	if (at->has) {
		memcpy(m->parent_point, at->id, sizeof(m->parent_point));
		r = pointmap_loc(t, at->loc, &m->parent, e);
	}
	if (r == 0 && !m->keyframe) {
		m->depth = at->depth + 1;
		r = pointmap_loc(t, at->base, &m->base, e);
	}
	return r;
}

static void set_digest(struct packer *p, struct manifest *m)
{
	const struct image *img = p->c.img;

	m->rest.memory_pages = image_pages(img, PAGE_MEMORY);
	m->rest.disk_pages = image_pages(img, PAGE_DISK);
	memcpy(m->rest.compat, p->point.compat, CRYPT_HASH_LEN);
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		m->sum[k] = img->sum[k];
		m->has_sum[k] = m->keyframe ||
				memcmp(&img->sum[k], &p->sum_before[k],
				       sizeof(img->sum[k])) != 0;
	}
	digest_root(m->root, &m->sum[PAGE_MEMORY], &m->sum[PAGE_DISK], &m->rest);
}

static int by_page(const void *a, const void *b)
{
	const struct pointmap_page *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* The touched pages that did end up different, sorted; counts them. */
static size_t list_changed(struct packer *p, struct pointmap_page *ret)
{
	size_t nr = 0;

	for (size_t i = 0; i < p->nr_undo; i++) {
		const struct undo *u = &p->undo[i];
		const struct image_page *now =
			&p->c.img->map[u->at.kind].page[u->at.index];

		if (now->loc == u->was.loc)
			continue;
		p->done.changed[u->at.kind]++;
		ret[nr++] = u->at;
	}
	qsort(ret, nr, sizeof(*ret), by_page);
	return nr;
}

static int write_map(struct packer *p, struct manifest *m,
		     struct pointmap_table *t, uint64_t *ret_chunk, struct err *e)
{
	SCOPED_FREE struct pointmap_page *page =
		base_alloc(p->nr_undo * sizeof(*page));
	size_t nr = list_changed(p, page);

	if (m->keyframe)
		return pointmap_keyframe(m, t, p->c.img, p->out, ret_chunk, e);
	return pointmap_delta(m, t, p->c.img, page, nr, e);
}

static int write_manifest(struct packer *p, const struct manifest *m,
			  uint64_t *ret_loc, struct err *e)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct frame f = { .type = FRAME_MANIFEST };
	int r = manifest_encode(&b, m);

	if (r < 0)
		return err_set(e, r, ERR_LIMIT,
			       "the manifest of point %s is %zu bytes long, "
			       "more than %u",
			       m->point, b.len, FRAME_META_MAX);
	f.plain_len = (uint32_t)b.len;
	return packout_put(p->out, &f, b.p, ret_loc, e);
}

/* The new places of a point, until it is durable. */
struct places {
	uint64_t manifest, device;
	uint64_t *chunk; /* of memory, then of disk; keyframes only */
};

static int write_point(struct packer *p, struct manifest *m, const void *device,
		       size_t device_len, struct places *ret, struct err *e)
{
	SCOPED(pointmap_table_done) struct pointmap_table t;
	int r;

	pointmap_table_init(&t, p->c.ps, &m->packs);
	memcpy(m->point, p->point.id, sizeof(m->point));
	memcpy(m->session, p->point.session, sizeof(m->session));
	m->epoch = p->point.epoch;
	m->time_ns = p->point.time_ns;
	m->kind = p->point.kind;
	r = seal_pages(p, e);
	if (r == 0)
		r = write_device(p, m, &t, device, device_len, &ret->device, e);
	if (r == 0)
		r = set_place(p, m, &t, e);
	if (r < 0)
		return r;
	set_digest(p, m);
	r = write_map(p, m, &t, ret->chunk, e);
	if (r == 0)
		r = write_manifest(p, m, &ret->manifest, e);
	return r < 0 ? r : packout_sync(p->out, e);
}

/* Forgets the capture's bookkeeping; the image is as it should be. */
static void clear(struct packer *p)
{
	for (size_t i = 0; i < p->nr_undo; i++)
		pages_bit_clear(p->touched[p->undo[i].at.kind],
				p->undo[i].at.index);
	p->nr_undo = 0;
	p->nr_plain = 0;
	p->state = IDLE;
}

/* The point is durable: the image is at it. */
static void move_on(struct packer *p, const struct manifest *m,
		    const struct places *pl)
{
	struct image *img = p->c.img;
	const uint64_t *chunk = pl->chunk;

	for (size_t k = 0; k < PAGE_KINDS && m->keyframe; k++) {
		for (uint32_t i = 0; i < img->map[k].nr_chunks; i++) {
			img->map[k].chunk[i].loc = *chunk++;
			img->map[k].chunk[i].dirty = false;
		}
	}
	img->point.has = true;
	memcpy(img->point.id, m->point, sizeof(img->point.id));
	memcpy(img->point.root, m->root, CRYPT_HASH_LEN);
	img->point.loc = pl->manifest;
	img->point.device = pl->device;
	img->point.depth = m->depth;
	if (m->keyframe)
		img->point.base = pl->manifest;
	img->chain[m->depth] = pl->manifest;
	clear(p);
}

static void report(struct packer *p, const struct manifest *m,
		   const struct places *pl, struct packer_result *ret)
{
	*ret = p->done;
	packset_id(p->c.ps, loc_pack(pl->manifest), ret->at.id);
	ret->at.offset = loc_offset(pl->manifest);
	memcpy(ret->root, m->root, CRYPT_HASH_LEN);
	memcpy(ret->device_hash, m->rest.device, CRYPT_HASH_LEN);
	ret->keyframe = m->keyframe;
	ret->depth = m->depth;
	ret->bytes = packout_bytes(p->out) - p->bytes_before;
}

int packer_finish(struct packer *p, const void *device, size_t device_len,
		  const void *exec, size_t exec_len, struct packer_result *ret,
		  struct err *e)
{
	const struct image *img = p->c.img;
	uint32_t nr_chunks =
		img->map[PAGE_MEMORY].nr_chunks + img->map[PAGE_DISK].nr_chunks;
	SCOPED_FREE uint64_t *chunk = base_alloc(nr_chunks * sizeof(*chunk));
	SCOPED(manifest_done) struct manifest m = { 0 };
	struct places pl = { .chunk = chunk };
	int r;

	PRE(p->state == OPEN);
	p->state = FAILED; /* until it worked */
	if (device_len > FRAME_PLAIN_MAX || exec_len > MANIFEST_EXEC_MAX)
		return err_set(e, -E2BIG, ERR_TOO_LARGE,
			       "device state of %zu bytes (at most %u) or exec "
			       "states of %zu (at most %u) are too long",
			       device_len, FRAME_PLAIN_MAX, exec_len,
			       MANIFEST_EXEC_MAX);
	m.exec = base_alloc(exec_len);
	m.exec_len = (uint32_t)exec_len;
	if (exec_len)
		memcpy(m.exec, exec, exec_len);
	r = write_point(p, &m, device, device_len, &pl, e);
	if (r < 0)
		return r;
	report(p, &m, &pl, ret);
	move_on(p, &m, &pl);
	return 0;
}

void packer_abort(struct packer *p)
{
	struct image *img = p->c.img;

	if (p->state == IDLE)
		return;
	for (size_t i = p->nr_undo; i-- > 0;)
		image_set(img, p->undo[i].at.kind, p->undo[i].at.index,
			  &p->undo[i].was);
	memcpy(img->sum, p->sum_before, sizeof(img->sum));
	clear(p);
}

void packer_close_pack(struct packer *p)
{
	PRE(p->state == IDLE);
	packout_close(p->out);
}
