/*
 * packer: what is stored and what is not, what an abort leaves, and the rule
 * that a pack that failed is never written again.
 */
#include "snapshotter/packout.h"
#include "tests/rig.h"

#define MEMORY 40000u
#define DISK 300u

static void test_dropped(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result res;

	rig_begin(r);
	rig_page(r, PAGE_MEMORY, 0, 0);
	rig_page(r, PAGE_MEMORY, 1, 11);
	rig_page(r, PAGE_MEMORY, 2, 11);
	rig_page(r, PAGE_DISK, 2, 11);
	rig_page(r, PAGE_DISK, 3, 0);
	rig_page(r, PAGE_DISK, 4, 12);
	res = rig_finish(r);
	is_int(res.seen, 6, "seen");
	is_int(res.stored, 2, "content is stored once");
	is_int(res.duplicate, 2, "in memory and on disk");
	is_int(res.zero, 1, "a zero block is a change, a zero page is none");
	is_int(res.changed[PAGE_MEMORY], 2, "changed pages");
	is_int(res.changed[PAGE_DISK], 3, "changed blocks");
	ok(res.keyframe && res.depth == 0, "the first point is a keyframe");

	rig_begin(r);
	rig_page(r, PAGE_MEMORY, 1, 11);
	rig_page(r, PAGE_DISK, 3, 0);
	rig_page(r, PAGE_MEMORY, 9, 0);
	rig_page(r, PAGE_MEMORY, 7, 12);
	rig_page(r, PAGE_MEMORY, 2, 0);
	res = rig_finish(r);
	is_int(res.seen, 5, "seen again");
	is_int(res.stored, 0, "nothing new is stored");
	is_int(res.duplicate, 1, "a page is what a block was");
	is_int(res.zero, 1, "a page became zero");
	is_int(res.changed[PAGE_MEMORY], 2, "what was the same is no change");
	is_int(res.changed[PAGE_DISK], 0, "of the disk nothing");
	ok(!res.keyframe && res.depth == 1, "a delta");
	ok(res.bytes < 3000, "a small point is small: %llu bytes",
	   (unsigned long long)res.bytes);
	ok(rig_is(r, &res, PAGE_MEMORY, 7, 12) &&
		   rig_is(r, &res, PAGE_MEMORY, 2, 0) &&
		   rig_is(r, &res, PAGE_DISK, 3, 0) &&
		   rig_is(r, &res, PAGE_DISK, 2, 11),
	   "and it is what was captured");
	rig_free(r);
}

static void test_twice(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result a, b;

	a = rig_point(r, PAGE_MEMORY, 5, 50);
	rig_begin(r);
	rig_page(r, PAGE_MEMORY, 5, 51);
	rig_page(r, PAGE_MEMORY, 6, 60);
	rig_page(r, PAGE_MEMORY, 5, 52);
	rig_page(r, PAGE_MEMORY, 6, 0);
	b = rig_finish(r);
	is_int(b.changed[PAGE_MEMORY], 1, "a page given twice counts once");
	ok(rig_is(r, &b, PAGE_MEMORY, 5, 52), "the later content counts");
	ok(rig_is(r, &b, PAGE_MEMORY, 6, 0), "a page that came back to zero");
	ok(rig_is(r, &a, PAGE_MEMORY, 5, 50), "the point before is untouched");
	rig_begin(r);
	b = rig_finish(r);
	is_int(b.seen, 0, "a capture of nothing");
	ok(rig_is(r, &b, PAGE_MEMORY, 5, 52), "is the same state");
	rig_free(r);
}

static bool same_image(const struct image *a, const struct digest_sum *sum,
		       const struct image_page *page)
{
	return !memcmp(a->sum, sum, sizeof(a->sum)) &&
	       !memcmp(a->map[PAGE_MEMORY].page, page, 8 * sizeof(*page));
}

static void test_abort(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct digest_sum sum[PAGE_KINDS];
	struct image_page page[8];
	struct packer_result a, b;

	rig_begin(r);
	for (uint32_t i = 0; i < 6; i++)
		rig_page(r, PAGE_MEMORY, i, 100 + i);
	a = rig_finish(r);
	memcpy(sum, r->img->sum, sizeof(sum));
	memcpy(page, r->img->map[PAGE_MEMORY].page, sizeof(page));
	rig_begin(r);
	for (uint32_t i = 0; i < 8; i++)
		rig_page(r, PAGE_MEMORY, i, i % 3 ? 200 + i : 0);
	rig_page(r, PAGE_MEMORY, 0, 300);
	rig_page(r, PAGE_DISK, 0, 300);
	ok(!same_image(r->img, sum, page), "an open capture moves the image");
	packer_abort(r->packer);
	ok(same_image(r->img, sum, page), "abort moves it back");
	is_int(image_disk_loc(r->img, 0), LOC_BASE, "the disk, too");
	packer_abort(r->packer);
	ok(same_image(r->img, sum, page), "abort of nothing does nothing");
	is_str(r->img->point.id[0] ? "at a point" : "", "at a point", "there");

	b = rig_point(r, PAGE_MEMORY, 7, 201);
	is_int(b.stored, 1, "what was aborted is not found as a duplicate");
	is_int(b.depth, a.depth + 1, "the next point follows the last");
	ok(rig_is(r, &b, PAGE_MEMORY, 7, 201) &&
		   rig_is(r, &b, PAGE_MEMORY, 0, 100) &&
		   rig_is(r, &b, PAGE_MEMORY, 6, 0),
	   "with the pages of before");
	rig_free(r);
}

/* Frames of a pack, by numbers that its owner's key opens. */
static uint64_t frames_of(struct rig *r, unsigned int pack)
{
	struct pack_scan found;

	if (pack_scan(r->packs.p[pack].fd, r->packs.p[pack].key, NULL, NULL,
		      &found, &r->e) < 0)
		bail("scan: %s", r->e.msg);
	return found.frames;
}

static void test_nonce_once(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result a, b, res;
	uint64_t frames;

	a = rig_point(r, PAGE_MEMORY, 1, 1);
	is_int(r->packs.nr, 1, "one pack");
	frames = frames_of(r, 0);
	rig_begin(r);
	rig_page(r, PAGE_MEMORY, 2, 2);
	r->disk.fail_sync_in = 1;
	is_int(packer_finish(r->packer, NULL, 0, NULL, 0, &res, &r->e), -EIO,
	       "a sync fails");
	ok(strstr(r->e.msg, "sync pack") && r->e.code == ERR_INTERNAL, "%s",
	   r->e.msg);
	packer_abort(r->packer);
	b = rig_point(r, PAGE_MEMORY, 3, 3);
	is_int(r->packs.nr, 2, "the pack that failed is closed for ever");
	ok(memcmp(a.at.id, b.at.id, PACK_ID_LEN), "another is in work");
	is_int(frames_of(r, 0), frames, "nothing was added to the first");

	rig_begin(r);
	r->disk.fail_write_in = 1;
	rig_page(r, PAGE_MEMORY, 2, 4);
	is_int(packer_finish(r->packer, NULL, 0, NULL, 0, &res, &r->e), -ENOSPC,
	       "a write fails");
	ok(r->e.code == ERR_NO_SPACE, "no space is told apart: %s", r->e.msg);
	packer_abort(r->packer);
	res = rig_point(r, PAGE_MEMORY, 4, 4);
	is_int(r->packs.nr, 3, "again another pack");
	ok(rig_is(r, &a, PAGE_MEMORY, 1, 1) && rig_is(r, &b, PAGE_MEMORY, 3, 3) &&
		   rig_is(r, &res, PAGE_MEMORY, 4, 4),
	   "every finished point is whole");
	rig_stop(r);
	rig_resume(r, &b);
	res = rig_point(r, PAGE_MEMORY, 5, 5);
	is_int(r->packs.nr, 4, "another process starts another pack");
	is_int(res.depth, b.depth + 1, "and goes on from its point");
	ok(rig_is(r, &res, PAGE_MEMORY, 4, 0), "not from a later one");
	rig_free(r);
}

static int same_pack(void *ctx, uint8_t *id, uint8_t *key, int *fd, struct err *e)
{
	struct packs *ps = ctx;

	if (ps->nr == 0)
		return packs_next(ctx, id, key, fd, e);
	memcpy(id, ps->p[0].id, PACK_ID_LEN);
	memcpy(key, ps->p[0].key, CRYPT_KEY_LEN);
	*fd = fcntl(ps->p[0].fd, F_DUPFD_CLOEXEC, 0);
	return 0;
}

static void test_supplier(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result res;
	struct packer_config c = {
		.io = &r->disk.io,
		.clock = &r->clock.clock,
		.next_pack = same_pack,
		.ctx = &r->packs,
		.ps = r->ps,
		.img = r->img,
	};

	r->packs.refuse_next = true;
	is_int(rig_begin(r), 0, "begin asks for no pack");
	is_int(rig_page(r, PAGE_MEMORY, 1, 1), -ENOSPC, "a page does");
	ok(strstr(r->e.msg, "get a new pack"), "%s", r->e.msg);
	packer_abort(r->packer);
	r->packs.refuse_next = false;
	res = rig_point(r, PAGE_MEMORY, 1, 1);
	ok(rig_is(r, &res, PAGE_MEMORY, 1, 1), "works when there is one");

	packer_free(r->packer);
	r->packer = packer_new(&c);
	rig_begin(r);
	is_int(rig_page(r, PAGE_MEMORY, 2, 2), -EEXIST,
	       "an old pack given as new is refused: %s", r->e.msg);
	packer_abort(r->packer);
	rig_free(r);
}

static void test_rotation(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result res;

	rig_point(r, PAGE_MEMORY, 1, 1);
	clock_virtual_advance(&r->clock, 3599 * NS_PER_S);
	rig_point(r, PAGE_MEMORY, 1, 2);
	is_int(r->packs.nr, 1, "a pack serves for an hour");
	clock_virtual_advance(&r->clock, NS_PER_S);
	res = rig_point(r, PAGE_MEMORY, 1, 3);
	is_int(r->packs.nr, 2, "and no longer");
	packer_close_pack(r->packer);
	rig_point(r, PAGE_MEMORY, 1, 4);
	is_int(r->packs.nr, 3, "close ends one early");
	ok(rig_is(r, &res, PAGE_MEMORY, 1, 3), "points span packs");
	rig_free(r);
}

static void test_full(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_config c = {
		.io = &r->disk.io,
		.clock = &r->clock.clock,
		.next_pack = packs_next,
		.ctx = &r->packs,
		.ps = r->ps,
		.img = r->img,
		.rotate_len = 50000,
	};
	struct packer_result res;
	bool good = true;

	packer_free(r->packer);
	r->packer = packer_new(&c);
	rig_begin(r);
	for (uint32_t i = 0; i < 60; i++)
		rig_page(r, PAGE_MEMORY, i, 3 * i + 3); /* noise */
	res = rig_finish(r);
	is_int(r->packs.nr, 4, "one capture through several packs");
	for (unsigned int i = 0; i < r->packs.nr; i++)
		good &= lseek(r->packs.p[i].fd, 0, SEEK_END) <
			(off_t)(50000 + frame_bound(FRAME_DATA_MAX));
	ok(good, "none starts a frame past its limit");
	for (uint32_t i = 0; i < 60; i += 7)
		good &= rig_is(r, &res, PAGE_MEMORY, i, 3 * i + 3);
	ok(good, "and every page comes back");
	rig_free(r);
}

static void test_limits(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_point nobody = { 0 };
	struct packer_result res;
	uint8_t *big = base_alloc(FRAME_PLAIN_MAX + 1);

	is_int(packer_begin(r->packer, &nobody, &r->e), -EINVAL,
	       "a point has a name");
	rig_begin(r);
	is_int(packer_finish(r->packer, big, FRAME_PLAIN_MAX + 1, NULL, 0, &res,
			     &r->e),
	       -E2BIG, "device state that is too long: %s", r->e.msg);
	packer_abort(r->packer);
	rig_begin(r);
	is_int(packer_finish(r->packer, NULL, 0, big, MANIFEST_EXEC_MAX + 1,
			     &res, &r->e),
	       -E2BIG, "exec states that are too long");
	packer_abort(r->packer);
	rig_begin(r);
	is_int(packer_finish(r->packer, big, FRAME_PLAIN_MAX, big,
			     MANIFEST_EXEC_MAX, &res, &r->e),
	       0, "the longest of both");
	ok(rig_is(r, &res, PAGE_MEMORY, 0, 0), "come back");
	free(big);

	rig_begin(r);
	for (uint32_t i = 0; i < MANIFEST_DELTA_MAX; i++)
		rig_page(r, PAGE_MEMORY, i, 1 + i % 5);
	res = rig_finish(r);
	ok(!res.keyframe, "32,768 changes are a delta");
	is_int(res.changed[PAGE_MEMORY], MANIFEST_DELTA_MAX, "all of them");
	rig_begin(r);
	for (uint32_t i = 0; i <= MANIFEST_DELTA_MAX; i++)
		rig_page(r, PAGE_MEMORY, i, 2 + i % 5);
	res = rig_finish(r);
	ok(res.keyframe, "one more are a keyframe");
	is_int(res.stored, 1, "of which one content is new");
	ok(rig_is(r, &res, PAGE_MEMORY, MANIFEST_DELTA_MAX, 2 + 32768 % 5),
	   "and it is right");
	rig_free(r);
}

/* When a capture begins, the moment it will be of is still to come. */
static void test_time(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result res;
	struct restore *re;

	rig_begin(r);
	packer_set_time(r->packer, 1767225601000000007);
	res = rig_finish(r);
	if (restore_open(&re, r->ps, &res.at, res.root, &r->e) < 0)
		bail("open: %s", r->e.msg);
	is_int(restore_manifest(re)->time_ns, 1767225601000000007,
	       "the time of a point is that of its moment");
	restore_free(re);
	rig_free(r);
}

int main(void)
{
	test_dropped();
	test_twice();
	test_abort();
	test_nonce_once();
	test_supplier();
	test_rotation();
	test_full();
	test_limits();
	test_time();
	packer_free(NULL);
	packout_free(NULL);
	return tap_done();
}
