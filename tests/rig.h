/*
 * rig: one session of the snapshotter over packs that are memory files, for
 * tests that want to capture something in a line.
 */
#ifndef TESTS_RIG_H
#define TESTS_RIG_H

#include "snapshotter/packer.h"
#include "snapshotter/restore.h"
#include "tests/packs.h"

struct rig {
	struct packs_disk disk;
	struct packs packs;
	struct clock_virtual clock;
	struct packset *ps;
	struct image *img;
	struct packer *packer;
	struct err e;
};

/* A process that goes on with an image (owned from then on). */
__attribute__((unused)) static void rig_process(struct rig *r, struct packset *ps,
						struct image *img)
{
	struct packer_config c = {
		.io = &r->disk.io,
		.ps = ps,
		.img = img,
		.clock = &r->clock.clock,
		.next_pack = packs_next,
		.ctx = &r->packs,
	};

	r->ps = ps;
	r->img = img;
	r->packer = packer_new(&c);
}

__attribute__((unused)) static struct rig *rig_new(uint32_t memory_pages,
						   uint32_t disk_pages)
{
	struct rig *r = base_alloc(sizeof(*r));

	r->disk.io.ops = &packs_disk_ops;
	clock_virtual_init(&r->clock, 1767225600 * NS_PER_S);
	rig_process(r, packset_new(&r->disk.io, packs_supply, &r->packs),
		    image_new(memory_pages, disk_pages));
	return r;
}

/* The process ends; what was not synced is gone. */
__attribute__((unused)) static void rig_stop(struct rig *r)
{
	uint64_t seed = 5;

	packer_free(r->packer);
	image_free(r->img);
	packset_free(r->ps);
	packs_crash(&r->disk, &seed);
	r->ps = NULL;
}

__attribute__((unused)) static void rig_free(struct rig *r)
{
	if (r->ps)
		rig_stop(r);
	packs_done(&r->packs);
	free(r);
}

__attribute__((unused)) static int rig_begin(struct rig *r)
{
	struct packer_point pt = { .epoch = 2, .time_ns = 77, .kind = 3 };
	struct id id;

	id_new(&id);
	memcpy(pt.id, id.s, sizeof(pt.id));
	memset(pt.session, 's', ID_LEN);
	pt.compat[0] = 9;
	return packer_begin(r->packer, &pt, &r->e);
}

/* Page `index` is number `n` of packs_page(). */
__attribute__((unused)) static int rig_page(struct rig *r, enum page_kind kind,
					    uint32_t index, uint32_t n)
{
	_Alignas(8) uint8_t page[CRYO_PAGE];

	packs_page(page, n);
	return packer_page(r->packer, kind, index, page, &r->e);
}

__attribute__((unused)) static struct packer_result rig_finish(struct rig *r)
{
	struct packer_result res = { 0 };

	if (packer_finish(r->packer, "dev", 3, "ex", 2, &res, &r->e) < 0)
		bail("finish: %s", r->e.msg);
	return res;
}

/* A point where one page is as told. */
__attribute__((unused)) static struct packer_result
rig_point(struct rig *r, enum page_kind kind, uint32_t index, uint32_t n)
{
	if (rig_begin(r) < 0 || rig_page(r, kind, index, n) < 0)
		bail("capture: %s", r->e.msg);
	return rig_finish(r);
}

/* The process goes on at a point that another finished. */
__attribute__((unused)) static void rig_resume(struct rig *r,
					       const struct packer_result *at)
{
	struct packset *ps = packset_new(&r->disk.io, packs_supply, &r->packs);
	struct restore *re;

	if (restore_open(&re, ps, &at->at, at->root, &r->e) < 0 ||
	    restore_memory(re, -1, 1, &r->e) < 0)
		bail("resume: %s", r->e.msg);
	rig_process(r, ps, restore_take_image(re));
	restore_free(re);
}

/* Page `index` at a point: is it number `n`? Reads memory and disk alike. */
__attribute__((unused)) static bool rig_is(struct rig *r,
					   const struct packer_result *at,
					   enum page_kind kind, uint32_t index,
					   uint32_t n)
{
	_Alignas(8) uint8_t want[CRYO_PAGE], got[CRYO_PAGE] = { 0 };
	struct packset *ps = packset_new(&r->disk.io, packs_supply, &r->packs);
	struct packset_reader *rd = packset_reader_new(ps);
	struct restore *re;
	struct image *img;
	uint64_t loc;
	bool good;

	packs_page(want, n);
	if (restore_open(&re, ps, &at->at, at->root, &r->e) < 0)
		bail("open: %s", r->e.msg);
	if (restore_check_point(re, 2, &r->e) < 0)
		bail("check: %s", r->e.msg);
	img = restore_take_image(re);
	loc = img->map[kind].page[index].loc;
	good = !loc_is_stored(loc) || packset_read_page(rd, loc, got, &r->e) == 0;
	good &= !memcmp(want, got, CRYO_PAGE);
	image_free(img);
	restore_free(re);
	packset_reader_free(rd);
	packset_free(ps);
	return good;
}

#endif
