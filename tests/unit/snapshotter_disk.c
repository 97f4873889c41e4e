/*
 * The disk's content and capture protocol, called directly: where a block
 * comes from, what counts as a change, that a frozen block keeps its content
 * whoever comes first, and what happens when staging or space runs out.
 */
#include "snapshotter/disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/tap.h"

#define NR 64u

/* A base point that maps chosen blocks to pages of one byte. */
struct world {
	struct disk *disk;
	int overlay; /* a second descriptor on the overlay, to look inside */
	uint8_t mapped[NR]; /* 0: not mapped, else the fill byte */
	int base_error;
	sem_t *hold; /* maps_base and read_base wait here if set */
	sem_t *held;
	unsigned stalls;
	struct err why;
};

static void world_hold(struct world *w)
{
	if (w->hold) {
		sem_post(w->held);
		sem_wait(w->hold);
	}
}

static int world_read(void *ctx, uint32_t block, void *page)
{
	struct world *w = ctx;

	world_hold(w);
	if (w->base_error)
		return w->base_error;
	if (!w->mapped[block])
		return 1;
	memset(page, w->mapped[block], DISK_BLOCK);
	return 0;
}

static bool world_maps(void *ctx, uint32_t block)
{
	struct world *w = ctx;

	world_hold(w);
	return w->mapped[block];
}

static void world_stalled(void *ctx, const struct err *e)
{
	struct world *w = ctx;

	w->stalls++;
	w->why = *e;
}

static const struct disk_ops ops_full = { world_read, world_maps, world_stalled };
static const struct disk_ops ops_blind = { world_read, NULL, world_stalled };
static const struct disk_ops ops_fresh = { NULL, NULL, world_stalled };

/*
 * Template: blocks 0..3 'T', 4..7 a hole, 8 'U', then 100 bytes of 'V' in
 * block 9, where the file ends.
 */
static int template_make(void)
{
	int fd = memfd_create("template", 0);
	uint8_t page[DISK_BLOCK];

	memset(page, 'T', sizeof(page));
	for (int i = 0; i < 4; i++)
		if (base_pwrite_all(fd, page, DISK_BLOCK, (uint64_t)i << 12))
			bail("template");
	memset(page, 'U', sizeof(page));
	if (base_pwrite_all(fd, page, DISK_BLOCK, 8 << 12))
		bail("template");
	memset(page, 'V', sizeof(page));
	if (base_pwrite_all(fd, page, 100, 9 << 12))
		bail("template");
	return fd;
}

static void world_init(struct world *w, const struct disk_ops *ops,
		       uint32_t staging)
{
	struct disk_config c = { .nr_blocks = NR,
				 .staging_blocks = staging,
				 .template_fd = template_make(),
				 .overlay_fd = memfd_create("overlay", 0),
				 .ops = ops,
				 .ctx = w };
	struct err e;

	memset(w, 0, sizeof(*w));
	w->overlay = dup(c.overlay_fd);
	if (disk_new(&w->disk, &c, &e))
		bail("disk_new: %s", e.msg);
}

static void world_done(struct world *w)
{
	disk_free(w->disk);
	close(w->overlay);
}

static int put(struct world *w, uint32_t block, uint32_t nr, int fill)
{
	uint8_t pages[16 * DISK_BLOCK];
	struct err e;

	memset(pages, fill, sizeof(pages));
	return disk_write(w->disk, block, nr, pages, &e);
}

static int zero(struct world *w, uint32_t block, uint32_t nr)
{
	struct err e;

	return disk_zero(w->disk, block, nr, &e);
}

static bool filled(const uint8_t *page, size_t len, int fill)
{
	for (size_t i = 0; i < len; i++)
		if (page[i] != fill)
			return false;
	return true;
}

/* The byte that fills the block, -1 if mixed, -2 on error. */
static int get(struct world *w, uint32_t block)
{
	uint8_t page[DISK_BLOCK];
	struct err e;

	if (disk_read(w->disk, block, 1, page, &e))
		return -2;
	return filled(page, DISK_BLOCK, page[0]) ? page[0] : -1;
}

static uint32_t dirty(struct world *w)
{
	struct disk_stats s;

	disk_stats(w->disk, &s);
	return s.dirty;
}

/* Drains the frozen set into fills[NR] (-1: not in the set); its size. */
static int drain(struct world *w, int *fills)
{
	uint8_t page[DISK_BLOCK];
	uint32_t block;
	struct err e;
	int nr = 0, r;

	for (uint32_t i = 0; i < NR; i++)
		fills[i] = -1;
	while ((r = disk_frozen_next(w->disk, &block, page, &e)) == 1) {
		if (fills[block] != -1)
			return -1000; /* handed out twice */
		fills[block] = filled(page, DISK_BLOCK, page[0]) ? page[0] : -2;
		nr++;
	}
	return r ? r : nr;
}

static void test_content(void)
{
	uint8_t pages[11 * DISK_BLOCK], *p = pages;
	struct world w;
	struct err e;

	world_init(&w, &ops_full, 0);
	w.mapped[2] = 'B';
	w.mapped[5] = 'C';
	ok(!disk_read(w.disk, 0, 11, pages, &e), "read across all sources");
	ok(filled(p, 2 * 4096, 'T'), "template's blocks");
	ok(filled(p + 2 * 4096, 4096, 'B'), "the point's block covers it");
	ok(filled(p + 3 * 4096, 4096, 'T'), "and only that one");
	ok(filled(p + 4 * 4096, 4096, 0), "the template's hole is zero");
	ok(filled(p + 5 * 4096, 4096, 'C'), "the point's block in a hole");
	ok(filled(p + 8 * 4096, 4096, 'U'), "template after the hole");
	ok(filled(p + 9 * 4096, 100, 'V'), "the template's last bytes");
	ok(filled(p + 9 * 4096 + 100, 2 * 4096 - 100, 0), "zeros beyond it");
	is_int(dirty(&w), 0, "reading changes nothing");

	is_int(put(&w, 1, 2, 'w'), 0, "write over template and point");
	is_int(get(&w, 1), 'w', "reads back");
	is_int(get(&w, 2), 'w', "reads back over the point's block");
	is_int(get(&w, 3), 'T', "its neighbour is untouched");
	is_int(zero(&w, 2, 1), 0, "trim what was written");
	is_int(get(&w, 2), 0, "a trimmed block is zero, not the point's");
	is_int(put(&w, 2, 1, 'x'), 0, "write it again");
	is_int(get(&w, 2), 'x', "and read it");
	ok(!disk_read_current(w.disk, 2, pages, &e) && pages[7] == 'x',
	   "the check mode reads the same");
	world_done(&w);
}

static void test_freeze(void)
{
	struct world w;
	int f[NR];

	world_init(&w, &ops_fresh, 0);
	is_int(disk_freeze(w.disk), 0, "nothing written, nothing frozen");
	is_int(drain(&w, f), 0, "nothing to take");
	disk_commit(w.disk);
	put(&w, 10, 4, 'a');
	put(&w, 20, 1, 'b');
	put(&w, 20, 1, 'c');
	is_int(disk_freeze(w.disk), 5, "each changed block counts once");
	is_int(dirty(&w), 0, "after the freeze all is clean");

	put(&w, 11, 2, 'd'); /* frozen */
	zero(&w, 20, 1); /* frozen */
	put(&w, 30, 1, 'e'); /* not frozen */
	is_int(get(&w, 11), 'd', "the guest sees its own write");
	is_int(get(&w, 20), 0, "and its own trim");
	is_int(drain(&w, f), 5, "the frozen set is as it was");
	ok(f[10] == 'a' && f[11] == 'a' && f[12] == 'a' && f[13] == 'a',
	   "with the content as of the freeze");
	is_int(f[20], 'c', "also where the guest trimmed");
	is_int(f[30], -1, "what came later is not in it");
	disk_commit(w.disk);
	is_int(disk_freeze(w.disk), 4, "the next one holds the later changes");
	is_int(drain(&w, f), 4, "and hands them out");
	ok(f[11] == 'd' && f[12] == 'd' && f[20] == 0 && f[30] == 'e',
	   "with their content");
	disk_commit(w.disk);
	put(&w, 50, 1, 'f');
	is_int(disk_freeze(w.disk), 1, "nothing of older captures comes back");
	is_int(drain(&w, f), 1, "taken");
	is_int(f[50], 'f', "the only change");
	disk_commit(w.disk);
	world_done(&w);
}

static void test_copies(void)
{
	struct disk_stats s;
	struct world w;
	int f[NR];

	world_init(&w, &ops_fresh, 0);
	put(&w, 0, 8, 'a');
	disk_freeze(w.disk);
	put(&w, 4, 2, 'b');
	put(&w, 4, 2, 'c'); /* already safe: no second copy */
	put(&w, 40, 2, 'd');
	disk_stats(w.disk, &s);
	is_int(s.copies, 2, "one copy per frozen block, none for others");
	is_int(s.frozen, 6, "copied blocks are no longer frozen");
	is_int(drain(&w, f), 8, "yet handed out");
	put(&w, 0, 8, 'e');
	disk_stats(w.disk, &s);
	is_int(s.copies, 2, "what was taken needs no copy");
	ok(f[0] == 'a' && f[4] == 'a' && f[5] == 'a', "old content");
	disk_commit(w.disk);
	disk_stats(w.disk, &s);
	is_int(s.overlay, 10, "blocks in the overlay");
	is_int(s.writes, 5, "write requests");
	is_int(s.write_blocks, 22, "blocks written");
	world_done(&w);
}

static void test_abort(void)
{
	uint8_t page[DISK_BLOCK];
	struct world w;
	uint32_t block;
	struct err e;
	int f[NR];

	world_init(&w, &ops_fresh, 0);
	put(&w, 0, 6, 'a');
	disk_freeze(w.disk);
	is_int(disk_frozen_next(w.disk, &block, page, &e), 1, "take one");
	is_int(block, 0, "the first");
	put(&w, 3, 1, 'b'); /* leaves a page in staging */
	put(&w, 9, 1, 'c');
	disk_abort(w.disk);
	is_int(dirty(&w), 7, "all of the epoch is dirty again, and the new");
	is_int(disk_freeze(w.disk), 7, "so the next capture is whole");
	is_int(drain(&w, f), 7, "every one is handed out");
	ok(f[0] == 'a' && f[3] == 'b' && f[5] == 'a' && f[9] == 'c',
	   "content as of the second freeze");
	disk_commit(w.disk);
	is_int(dirty(&w), 0, "clean after the commit");
	world_done(&w);
}

static void test_zero(void)
{
	struct disk_stats s;
	struct stat before, after;
	struct world w;
	int f[NR];

	world_init(&w, &ops_full, 0);
	w.mapped[6] = 'B';
	zero(&w, 4, 1);
	zero(&w, 9 + 1, NR - 10);
	is_int(dirty(&w), 0, "trimming a hole and the space beyond: clean");
	zero(&w, 4, 4);
	is_int(dirty(&w), 1, "of four blocks only the point's changed");
	is_int(get(&w, 6), 0, "and reads as zero");
	zero(&w, 6, 1);
	zero(&w, 8, 2);
	is_int(dirty(&w), 3, "the template's blocks changed");
	put(&w, 32, 16, 'w');
	fstat(w.overlay, &before);
	zero(&w, 32, 16);
	fstat(w.overlay, &after);
	is_int(before.st_blocks - after.st_blocks, 16 * 8,
	       "trimmed blocks leave the overlay file");
	disk_stats(w.disk, &s);
	is_int(s.overlay, 0, "and its count");
	is_int(disk_freeze(w.disk), 19, "frozen");
	is_int(drain(&w, f), 19, "taken");
	ok(f[6] == 0 && f[8] == 0 && f[9] == 0 && f[47] == 0, "as zeros");
	disk_commit(w.disk);
	world_done(&w);

	world_init(&w, &ops_blind, 0);
	zero(&w, 20, 1);
	is_int(dirty(&w), 1, "where the map is unknown a trim is a change");
	zero(&w, 20, 1);
	disk_freeze(w.disk);
	drain(&w, f);
	disk_commit(w.disk);
	zero(&w, 20, 1);
	is_int(dirty(&w), 0, "but only once");
	world_done(&w);
}

struct writer {
	struct world *w;
	uint32_t block, nr;
	int fill, result;
	pthread_t thread;
};

static void *writer_main(void *arg)
{
	struct writer *x = arg;

	if (x->fill)
		x->result = put(x->w, x->block, x->nr, x->fill);
	else
		x->result = zero(x->w, x->block, x->nr);
	return NULL;
}

static void writer_start(struct writer *x)
{
	if (pthread_create(&x->thread, NULL, writer_main, x))
		bail("thread");
}

/* Until the guest's thread has waited `n` times; false after 10 s. */
static bool waited(struct world *w, uint64_t n)
{
	struct timespec ms = { .tv_nsec = 1000000 };
	struct disk_stats s;

	for (int i = 0; i < 10000; i++) {
		disk_stats(w->disk, &s);
		if (s.waits >= n)
			return true;
		nanosleep(&ms, NULL);
	}
	return false;
}

static void test_staging_full(void)
{
	struct writer x;
	struct disk_stats s;
	struct world w;
	int f[NR], old = 0;

	world_init(&w, &ops_fresh, 2);
	put(&w, 0, 16, 'a');
	disk_freeze(w.disk);
	x = (struct writer){ .w = &w, .block = 0, .nr = 16, .fill = 'b' };
	writer_start(&x);
	ok(waited(&w, 1), "with two pages of staging the writer waits");
	disk_stats(w.disk, &s);
	is_int(s.copies, 2, "after two copies");
	is_int(drain(&w, f), 16, "the capture gets all");
	for (int i = 0; i < 16; i++)
		old += f[i] == 'a';
	is_int(old, 16, "all as of the freeze");
	pthread_join(x.thread, NULL);
	is_int(x.result, 0, "and the writer went on");
	is_int(get(&w, 15), 'b', "to the end");
	disk_commit(w.disk);

	disk_freeze(w.disk);
	x.fill = 'c';
	writer_start(&x);
	ok(waited(&w, s.waits + 1), "it waits again");
	disk_abort(w.disk);
	pthread_join(x.thread, NULL);
	is_int(x.result, 0, "an abort lets it go on too");

	disk_freeze(w.disk);
	disk_stats(w.disk, &s);
	x.fill = 'd';
	writer_start(&x);
	ok(waited(&w, s.waits + 1), "and again");
	disk_cancel(w.disk);
	pthread_join(x.thread, NULL);
	is_int(x.result, -ESHUTDOWN, "a cancelled wait fails the write");
	disk_abort(w.disk);
	world_done(&w);
}

static void *freeze_main(void *arg)
{
	struct world *w = arg;

	return (void *)(uintptr_t)disk_freeze(w->disk);
}

/* A trim that is under way while freezing belongs to what is frozen. */
static void test_freeze_waits(void)
{
	sem_t hold, held;
	struct writer x;
	struct world w;
	pthread_t freezer;
	void *nr;

	sem_init(&hold, 0, 0);
	sem_init(&held, 0, 0);
	world_init(&w, &ops_full, 0);
	w.mapped[0] = w.mapped[1] = 'B';
	w.hold = &hold;
	w.held = &held;
	x = (struct writer){ .w = &w, .block = 0, .nr = 2 };
	writer_start(&x);
	sem_wait(&held); /* in the middle of the first block */
	if (pthread_create(&freezer, NULL, freeze_main, &w))
		bail("thread");
	sem_post(&hold);
	sem_wait(&held); /* the second; a freeze must not have slipped in */
	is_int(dirty(&w), 1, "half a trim is not frozen");
	sem_post(&hold);
	pthread_join(freezer, &nr);
	pthread_join(x.thread, NULL);
	is_int((uintptr_t)nr, 2, "the freeze holds the whole trim");
	disk_abort(w.disk);
	world_done(&w);
	sem_destroy(&hold);
	sem_destroy(&held);
}

static void limit_files(rlim_t len)
{
	struct rlimit l;

	getrlimit(RLIMIT_FSIZE, &l);
	l.rlim_cur = len;
	if (setrlimit(RLIMIT_FSIZE, &l))
		bail("setrlimit");
}

/* A limit on file sizes stands for a full file system. */
static void test_no_space(void)
{
	struct disk_stats s;
	struct world w;
	int f[NR];

	world_init(&w, &ops_fresh, 0);
	signal(SIGXFSZ, SIG_IGN);
	put(&w, 3, 1, 'a');
	limit_files(20 * DISK_BLOCK);
	is_int(put(&w, 30, 1, 'b'), -ENOSPC, "no room: -ENOSPC");
	is_int(w.stalls, 1, "the owner is told once");
	ok(strstr(w.why.msg, "block 30") && strstr(w.why.msg, "space"),
	   "which block, and what to do: %s", w.why.msg);
	is_int(get(&w, 30), 0, "the block reads as before");
	is_int(dirty(&w), 2, "and is dirty to be safe");
	is_int(put(&w, 3, 1, 'c'), 0, "where there is room writes go on");
	limit_files(RLIM_INFINITY);
	is_int(put(&w, 30, 1, 'b'), 0, "with room again it works");
	is_int(disk_freeze(w.disk), 2, "both are frozen");
	is_int(drain(&w, f), 2, "and taken");
	ok(f[3] == 'c' && f[30] == 'b', "with their content");
	disk_commit(w.disk);
	disk_stats(w.disk, &s);
	is_int(s.errors, 1, "one error counted");
	world_done(&w);
}

/* A frozen block that can't be read is neither lost nor overwritten. */
static void test_base_error(void)
{
	uint8_t page[DISK_BLOCK];
	struct world w;
	uint32_t block;
	struct err e;
	int f[NR];

	world_init(&w, &ops_full, 0);
	w.mapped[25] = 'B';
	w.base_error = -EBADMSG;
	is_int(get(&w, 25), -2, "a damaged pack fails the read");
	is_int(w.stalls, 1, "and the owner is told");
	w.base_error = 0;
	limit_files(20 * DISK_BLOCK);
	is_int(put(&w, 25, 1, 'x'), -ENOSPC, "dirty, but still the point's");
	limit_files(RLIM_INFINITY);
	is_int(disk_freeze(w.disk), 1, "frozen");
	w.base_error = -EBADMSG;
	is_int(disk_frozen_next(w.disk, &block, page, &e), -EBADMSG,
	       "the capture can't take it");
	ok(strstr(e.msg, "block 25") && strstr(e.msg, "verify"),
	   "and says so: %s", e.msg);
	is_int(put(&w, 25, 1, 'y'), -EIO, "the guest can't overwrite it");
	w.base_error = 0;
	is_int(put(&w, 25, 1, 'y'), 0, "until it was copied");
	is_int(drain(&w, f), 1, "it comes");
	is_int(f[25], 'B', "with its content as of the freeze");
	disk_commit(w.disk);
	world_done(&w);
}

struct taker {
	struct world *w;
	uint8_t page[DISK_BLOCK];
	int result;
};

static void *taker_main(void *arg)
{
	struct taker *t = arg;
	uint32_t block;
	struct err e;

	t->result = disk_frozen_next(t->w->disk, &block, t->page, &e);
	return NULL;
}

/* While the capture reads a block, a write to it waits; others don't. */
static void test_reading(void)
{
	struct taker t = { 0 };
	sem_t hold, held;
	struct writer x;
	struct world w;
	pthread_t taker;

	sem_init(&hold, 0, 0);
	sem_init(&held, 0, 0);
	world_init(&w, &ops_full, 0);
	w.mapped[25] = 'B';
	limit_files(20 * DISK_BLOCK);
	put(&w, 25, 1, 'x'); /* fails: dirty, content still the point's */
	limit_files(RLIM_INFINITY);
	disk_freeze(w.disk);
	w.hold = &hold;
	w.held = &held;
	t.w = &w;
	if (pthread_create(&taker, NULL, taker_main, &t))
		bail("thread");
	sem_wait(&held); /* the capture is reading block 25 */
	is_int(put(&w, 24, 1, 'z'), 0, "a write beside it goes through");
	x = (struct writer){ .w = &w, .block = 25, .nr = 1, .fill = 'y' };
	writer_start(&x);
	ok(waited(&w, 1), "a write to the block being read waits");
	sem_post(&hold);
	pthread_join(taker, NULL);
	pthread_join(x.thread, NULL);
	ok(t.result == 1 && t.page[0] == 'B', "the capture got the old block");
	is_int(x.result, 0, "then the write went on");
	w.hold = NULL;
	is_int(get(&w, 25), 'y', "and is there");
	disk_commit(w.disk);
	world_done(&w);
	sem_destroy(&hold);
	sem_destroy(&held);
}

static bool file_has(int fd, const char *marker)
{
	static uint8_t bytes[NR * DISK_BLOCK];

	if (base_pread_all(fd, bytes, sizeof(bytes), 0))
		bail("read the overlay");
	return memmem(bytes, sizeof(bytes), marker, strlen(marker));
}

static void test_sealed(void)
{
	static const char marker[] = "attack at dawn, says the guest";
	uint8_t page[DISK_BLOCK] = { 0 }, a[DISK_BLOCK], b[DISK_BLOCK];
	struct world v, w;
	struct err e;

	world_init(&v, &ops_fresh, 0);
	world_init(&w, &ops_fresh, 0);
	memcpy(page + 1000, marker, sizeof(marker));
	for (uint32_t i = 0; i < 4; i++) {
		disk_write(v.disk, 7 + i, 1, page, &e);
		disk_write(w.disk, 7 + i, 1, page, &e);
	}
	ok(!file_has(v.overlay, marker), "no plaintext in the overlay");
	ok(!base_pread_all(v.overlay, a, sizeof(a), 7 * 4096) &&
		   !filled(a, sizeof(a), 0),
	   "though the block is there");
	ok(!base_pread_all(v.overlay, b, sizeof(b), 8 * 4096) &&
		   memcmp(a, b, sizeof(a)),
	   "equal blocks differ by their number");
	ok(!base_pread_all(w.overlay, b, sizeof(b), 7 * 4096) &&
		   memcmp(a, b, sizeof(a)),
	   "and by their overlay's key");
	ok(!disk_read(v.disk, 9, 1, a, &e) && !memcmp(a, page, sizeof(a)),
	   "while the guest reads what it wrote");
	world_done(&v);
	world_done(&w);
}

static void test_refusals(void)
{
	struct disk_config c = { .nr_blocks = NR, .ops = &ops_fresh };
	struct disk *d;
	struct err e;
	int p[2];

	if (pipe(p))
		bail("pipe");
	c.template_fd = -1;
	c.overlay_fd = p[1];
	ok(disk_new(&d, &c, &e) < 0 && strstr(e.msg, "overlay"),
	   "an overlay that is no file is refused: %s", e.msg);
	is_int(fcntl(p[1], F_GETFD), -1, "and its descriptor is closed");
	c.template_fd = p[0];
	c.overlay_fd = memfd_create("overlay", 0);
	is_int(disk_new(&d, &c, &e), -EINVAL, "so is a template: %s", e.msg);
	ok(fcntl(p[0], F_GETFD) < 0 && fcntl(c.overlay_fd, F_GETFD) < 0,
	   "and both are closed");
}

int main(void)
{
	test_content();
	test_freeze();
	test_copies();
	test_abort();
	test_zero();
	test_staging_full();
	test_freeze_waits();
	test_no_space();
	test_base_error();
	test_reading();
	test_sealed();
	test_refusals();
	return tap_done();
}
