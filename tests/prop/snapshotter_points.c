/*
 * points: the law of the snapshotter. A model (a number per page) and the
 * real packer, packs and restore go through the same random history: captures
 * with pages given twice, given unchanged and given back; aborts; failed
 * writes and syncs; packs that fill up in the middle; restarts, forks, images
 * passed between processes; power cuts on a disk that forgets what was not
 * synced. After each step some point ever finished is restored in full and
 * must be the model of its moment, and its root must be the one made from
 * the model's pages alone.
 */
#include "snapshotter/packer.h"
#include "snapshotter/restore.h"
#include "tests/packs.h"

#include <sys/stat.h>

#define MEMORY_PAGES 16500u /* a second chunk with few pages */
#define DISK_PAGES 33000u
#define HOT 60u /* pages that are changed often, spread over all chunks */
#define POINTS_MAX 600

/* Of a disk block: the template's. Of the model's numbers, 0 is zeros. */
#define FROM_TEMPLATE UINT32_MAX

struct model {
	uint32_t memory[MEMORY_PAGES], disk[DISK_PAGES];
};

struct point {
	struct model *m;
	struct packer_result res;
	char id[ID_LEN + 1];
	uint8_t device[64];
	size_t device_len;
};

static struct {
	uint64_t seed;
	struct packs packs;
	struct packs_disk disk;
	struct clock_virtual clock;
	struct model now; /* of the running session */
	struct packset *ps;
	struct image *img;
	struct packer *packer;
	struct point point[POINTS_MAX];
	unsigned int nr_points;
	unsigned int aborted, failed, forks, passed, keyframes, deepest;
} w;

static struct err e;

static uint32_t pick(uint32_t n)
{
	return (uint32_t)(tap_rand(&w.seed) % n);
}

static void check(bool good, const char *what)
{
	if (!good) {
		ok(false, "%s (points %u): %s", what, w.nr_points, e.msg);
		bail("the rest would mean nothing");
	}
}

/* --- the running session -------------------------------------------------- */

static void start(struct packset *ps, struct image *img)
{
	struct packer_config c = {
		.io = &w.disk.io,
		.ps = ps,
		.img = img,
		.clock = &w.clock.clock,
		.next_pack = packs_next,
		.ctx = &w.packs,
		.rotate_len = 30000 + pick(60000),
	};

	w.ps = ps;
	w.img = img;
	w.packer = packer_new(&c);
}

static void stop(void)
{
	packer_free(w.packer);
	image_free(w.img);
	packset_free(w.ps);
}

static void fresh(void)
{
	memset(w.now.memory, 0, sizeof(w.now.memory));
	memset(w.now.disk, 0xff, sizeof(w.now.disk));
	start(packset_new(&w.disk.io, packs_supply, &w.packs),
	      image_new(MEMORY_PAGES, DISK_PAGES));
}

/* Continues at a point, with what is on the disk only. */
static void resume(const struct point *p)
{
	struct packset *ps = packset_new(&w.disk.io, packs_supply, &w.packs);
	struct restore *r;

	check(!restore_open(&r, ps, &p->res.at, p->res.root, &e), "reopen");
	check(!restore_memory(r, -1, 1, &e), "reopen memory");
	start(ps, restore_take_image(r));
	restore_free(r);
	w.now = *p->m;
}

/* --- captures ------------------------------------------------------------- */

static uint32_t new_value(void)
{
	switch (pick(6)) {
	case 0:
		return 0;
	case 1: /* what some page has already */
		return w.now.memory[pick(HOT) * 271 % MEMORY_PAGES];
	case 2:
		return 1 + pick(40);
	default:
		return 1 + pick(1u << 30);
	}
}

static int give(enum page_kind kind, uint32_t index, uint32_t value)
{
	_Alignas(8) uint8_t page[CRYO_PAGE];

	packs_page(page, value);
	return packer_page(w.packer, kind, index, page, &e);
}

static int change_some(struct model *m)
{
	unsigned int n = pick(25);
	int r = 0;

	for (unsigned int i = 0; i < n && r == 0; i++) {
		enum page_kind kind = pick(2) ? PAGE_DISK : PAGE_MEMORY;
		uint32_t at = pick(HOT) * (kind ? 547 : 271) %
			      (kind ? DISK_PAGES : MEMORY_PAGES);
		uint32_t *cell = kind ? &m->disk[at] : &m->memory[at];

		if (pick(5) == 0 && *cell != FROM_TEMPLATE) {
			r = give(kind, at, *cell); /* dirty, yet the same */
			continue;
		}
		if (pick(5) == 0)
			r = give(kind, at, new_value()); /* a live pass */
		*cell = new_value();
		if (r == 0)
			r = give(kind, at, *cell);
	}
	return r;
}

static void keep(const struct model *m, const struct packer_point *pt,
		 const struct packer_result *res, const uint8_t *device,
		 size_t device_len)
{
	struct point *p = &w.point[w.nr_points++];

	p->m = malloc(sizeof(*m));
	*p->m = *m;
	p->res = *res;
	memcpy(p->id, pt->id, sizeof(p->id));
	memcpy(p->device, device, device_len);
	p->device_len = device_len;
	w.keyframes += res->keyframe;
	w.deepest = MAX(w.deepest, res->depth);
}

static void capture(void)
{
	struct packer_point pt = { .epoch = 1, .compat = { 7 } };
	struct packer_result res;
	struct model *m = malloc(sizeof(*m));
	uint8_t device[64] = { (uint8_t)pick(256) };
	size_t device_len = pick(2) * 64;
	struct id id;
	int r;

	*m = w.now;
	id_new(&id);
	memcpy(pt.id, id.s, sizeof(pt.id));
	memset(pt.session, 's', ID_LEN);
	check(!packer_begin(w.packer, &pt, &e), "begin");
	r = change_some(m);
	if (r == 0 && pick(8) == 0) {
		w.aborted++;
		packer_abort(w.packer);
		free(m);
		return;
	}
	if (r == 0)
		r = packer_finish(w.packer, device, device_len, "x", 1, &res, &e);
	if (r < 0) {
		w.failed++;
		packer_abort(w.packer);
	} else {
		w.now = *m;
		keep(m, &pt, &res, device, device_len);
	}
	free(m);
}

/* --- restore equals model ------------------------------------------------- */

static void model_root(const struct point *p, uint8_t root[CRYPT_HASH_LEN])
{
	static struct digest_sum sum[PAGE_KINDS];
	_Alignas(8) uint8_t page[CRYO_PAGE], h[DIGEST_HASH_LEN];
	struct digest_rest rest = { .compat = { 7 },
				    .memory_pages = MEMORY_PAGES,
				    .disk_pages = DISK_PAGES };
	struct digest *d = digest_new();

	memset(sum, 0, sizeof(sum));
	for (uint32_t i = 0; i < MEMORY_PAGES; i++) {
		if (!p->m->memory[i])
			continue;
		packs_page(page, p->m->memory[i]);
		digest_page(h, page);
		digest_add(d, &sum[PAGE_MEMORY], PAGE_MEMORY, i, h);
	}
	for (uint32_t i = 0; i < DISK_PAGES; i++) {
		if (p->m->disk[i] == FROM_TEMPLATE)
			continue;
		packs_page(page, p->m->disk[i]);
		digest_page(h, page);
		digest_add(d, &sum[PAGE_DISK], PAGE_DISK, i, h);
	}
	digest_free(d);
	crypt_sha256(rest.device, p->device, p->device_len);
	digest_root(root, &sum[0], &sum[1], &rest);
}

static bool memory_is(const struct model *m, int ram)
{
	_Alignas(8) uint8_t want[CRYO_PAGE], got[CRYO_PAGE];
	uint32_t used = 0;
	struct stat st;

	for (uint32_t i = 0; i < MEMORY_PAGES; i++) {
		if (m->memory[i] == 0)
			continue;
		used++;
		packs_page(want, m->memory[i]);
		if (base_pread_all(ram, got, CRYO_PAGE, (uint64_t)i * CRYO_PAGE) ||
		    memcmp(want, got, CRYO_PAGE))
			return false;
	}
	/* no page besides: what is not counted is a hole, so zero */
	return !fstat(ram, &st) && (uint64_t)st.st_blocks == used * 8ull;
}

static bool disk_is(const struct model *m, const struct image *img,
		    struct packset *ps)
{
	_Alignas(8) uint8_t want[CRYO_PAGE], got[CRYO_PAGE];
	struct packset_reader *rd = packset_reader_new(ps);
	bool good = true;

	for (uint32_t i = 0; i < DISK_PAGES && good; i++) {
		uint64_t loc = image_disk_loc(img, i);

		if (m->disk[i] == FROM_TEMPLATE || m->disk[i] == 0) {
			good = loc == (m->disk[i] ? LOC_BASE : LOC_ZERO);
			continue;
		}
		packs_page(want, m->disk[i]);
		good = loc_is_stored(loc) &&
		       !packset_read_page(rd, loc, got, &e) &&
		       !memcmp(want, got, CRYO_PAGE);
	}
	packset_reader_free(rd);
	return good;
}

static void verify(const struct point *p)
{
	struct packset *ps = packset_new(&w.disk.io, packs_supply, &w.packs);
	int ram = memfd_create("ram", MFD_CLOEXEC);
	SCOPED(buf_done) struct buf device = { 0 };
	uint8_t root[CRYPT_HASH_LEN];
	struct restore *r;
	struct image *img;

	model_root(p, root);
	check(!memcmp(root, p->res.root, sizeof(root)), "root of the model");
	check(!ftruncate(ram, (off_t)MEMORY_PAGES * CRYO_PAGE), "ftruncate");
	check(!restore_open(&r, ps, &p->res.at, root, &e), "open");
	check(!strcmp(restore_manifest(r)->point, p->id), "the right point");
	check(!restore_memory(r, ram, 1 + pick(3), &e), "memory");
	check(memory_is(p->m, ram), "memory is the model's");
	check(!restore_device(r, &device, &e), "device");
	check(device.len == p->device_len &&
		      (!device.len || !memcmp(device.p, p->device, device.len)),
	      "device is the model's");
	check(!restore_check_disk(r, 1 + pick(3), &e), "disk");
	img = restore_take_image(r);
	check(disk_is(p->m, img, ps), "disk is the model's");
	image_free(img);
	restore_free(r);
	packset_free(ps);
	close(ram);
}

/* The image says of its packs all that a restore needs, and no more. */
static void verify_packs(const struct point *p)
{
	struct packset *ps = packset_new(&w.disk.io, packs_supply, &w.packs);
	SCOPED(buf_done) struct buf ids = { 0 };
	unsigned int before = w.packs.supplied;
	struct restore *r;
	struct image *img;

	check(!restore_open(&r, ps, &p->res.at, p->res.root, &e), "open");
	check(!restore_check_point(r, 1, &e), "check");
	img = restore_take_image(r);
	image_packs(img, ps, &ids);
	check(ids.len / PACK_ID_LEN == w.packs.supplied - before,
	      "packs named are packs read");
	image_free(img);
	restore_free(r);
	packset_free(ps);
}

/* --- history -------------------------------------------------------------- */

/* The image goes to another process as a memory file. */
static void pass_image(void)
{
	struct packset *ps = packset_new(&w.disk.io, packs_supply, &w.packs);
	struct image *img;
	int fd;

	check(!image_export(w.img, w.ps, &fd, &e), "export");
	stop();
	check(!image_import(&img, fd, ps, &e), "import");
	close(fd);
	start(ps, img);
	w.passed++;
}

static void step(void)
{
	const struct point *any = w.nr_points ? &w.point[pick(w.nr_points)]
					      : NULL;

	switch (pick(40)) {
	case 0:
		w.disk.fail_write_in = 1 + (int)pick(3);
		break;
	case 1:
		w.disk.fail_sync_in = 1 + (int)pick(3);
		break;
	case 2: /* power cut: go on from the newest point of the line */
		if (!w.img->point.has)
			break;
		for (any = w.point; strcmp(any->id, w.img->point.id);)
			any++;
		stop();
		packs_crash(&w.disk, &w.seed);
		resume(any);
		break;
	case 3:
		if (any) {
			stop();
			resume(any);
			w.forks++;
		}
		break;
	case 4:
		pass_image();
		break;
	case 5:
		packer_close_pack(w.packer);
		break;
	case 6:
		clock_virtual_advance(&w.clock, 1800 * NS_PER_S);
		break;
	default:
		capture();
	}
}

int main(void)
{
	unsigned int steps =
		getenv("CRYO_STEPS")
			? (unsigned int)strtoul(getenv("CRYO_STEPS"), NULL, 0)
			: 400;

	w.seed = tap_seed();
	w.disk.io.ops = &packs_disk_ops;
	clock_virtual_init(&w.clock, 1767225600 * NS_PER_S);
	fresh();
	for (unsigned int i = 0; i < steps && w.nr_points < POINTS_MAX; i++) {
		step();
		if (w.nr_points && pick(4) == 0)
			verify(&w.point[pick(w.nr_points)]);
	}
	for (unsigned int i = 0; i < w.nr_points; i += 1 + w.nr_points / 40)
		verify(&w.point[i]);
	for (unsigned int i = 0; i < w.nr_points; i += 1 + w.nr_points / 10)
		verify_packs(&w.point[i]);
	ok(w.nr_points > steps / 2, "%u points, %u keyframes, deepest %u",
	   w.nr_points, w.keyframes, w.deepest);
	ok(w.aborted && w.failed && w.forks && w.passed,
	   "%u aborts, %u failures, %u forks, %u images passed", w.aborted,
	   w.failed, w.forks, w.passed);
	ok(w.packs.nr > 10, "%u packs", w.packs.nr);
	stop();
	packs_crash(&w.disk, &w.seed);
	packs_done(&w.packs);
	for (unsigned int i = 0; i < w.nr_points; i++)
		free(w.point[i].m);
	return tap_done();
}
