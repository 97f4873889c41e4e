/*
 * The law of the disk, under a seeded generator: whatever a guest does
 * through the NBD server while captures run, commit and abort,
 *   - a read gives what was written last,
 *   - the committed image, made of frozen blocks alone on top of the start,
 *     equals the disk as it was at that capture's freeze,
 *   - no block is handed out twice in one capture.
 * The guest is a thread of its own; "QMP stop" is a lock that it holds during
 * each request. Pages carry (block, version) in each 16 bytes, so that a torn
 * or misplaced page can't pass.
 */
#include "snapshotter/disk_nbd.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "tests/unit/snapshotter_disk_client.h"

#define NR 256u
#define SIZE (NR * 4096u)
#define CAPTURES 150

struct world {
	struct disk *disk;
	struct disk_nbd *nbd;
	int fd;
	uint64_t seed; /* the guest's */
	pthread_mutex_t vm; /* held: the guest is in a request */
	bool stop;
	uint64_t requests, wrong;
	uint8_t base_mapped[NR];
	uint64_t version;
	uint8_t model[SIZE];
};

static struct world w;
static uint8_t frozen[SIZE], image[SIZE], pending[SIZE];

static void page_fill(uint8_t *page, uint32_t block, uint64_t version)
{
	for (int i = 0; i < 4096; i += 16) {
		put_u64(page + i, (uint64_t)block << 32 | (uint32_t)i);
		put_u64(page + i + 8, version);
	}
}

static int base_read(void *ctx, uint32_t block, void *page)
{
	(void)ctx;
	if (!w.base_mapped[block])
		return 1;
	page_fill(page, block, 1);
	return 0;
}

static bool base_maps(void *ctx, uint32_t block)
{
	(void)ctx;
	return w.base_mapped[block];
}

static const struct disk_ops ops = { base_read, base_maps, NULL };

/* --- the guest ------------------------------------------------------------ */

static void guest_write(uint32_t block, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		page_fill(w.model + (block + i) * 4096ul, block + i, ++w.version);
	w.wrong += client_write(w.fd, block * 4096ul, nr * 4096,
				w.model + block * 4096ul) != 0;
}

static void guest_zero(uint32_t block, uint32_t nr, bool trim)
{
	memset(w.model + block * 4096ul, 0, nr * 4096ul);
	w.wrong += client_call(w.fd, 0, trim ? 4 : 6, block * 4096ul,
			       nr * 4096) != 0;
}

static void guest_read(uint32_t block, uint32_t nr)
{
	static uint8_t got[SIZE];

	w.wrong += client_read(w.fd, block * 4096ul, nr * 4096, got) != 0;
	w.wrong += memcmp(got, w.model + block * 4096ul, nr * 4096ul) != 0;
}

static void guest_request(void)
{
	uint64_t r = tap_rand(&w.seed);
	uint32_t nr = r & 7 ? 1 + (uint32_t)(r >> 8) % 4
			    : 1 + (uint32_t)(r >> 8) % 100;
	uint32_t block = (uint32_t)(r >> 32) % (NR - nr + 1);

	switch (r >> 4 & 7) {
	case 0:
		guest_zero(block, nr, true);
		break;
	case 1:
		guest_zero(block, nr, false);
		break;
	case 2:
		guest_read(block, nr);
		break;
	default:
		guest_write(block, nr);
	}
	w.requests++;
}

static void *guest_main(void *arg)
{
	bool stop = false;

	(void)arg;
	while (!stop) {
		pthread_mutex_lock(&w.vm);
		stop = w.stop;
		if (!stop)
			guest_request();
		pthread_mutex_unlock(&w.vm);
		sched_yield();
	}
	return NULL;
}

/* --- the capture ---------------------------------------------------------- */

struct tally {
	unsigned commits, aborts, twice, differ;
};

/* The guest goes on until some requests more; so captures overlap with it. */
static void let_run(uint64_t requests)
{
	struct timespec t = { .tv_nsec = 50000 };
	uint64_t until = UINT64_MAX, now;

	do {
		pthread_mutex_lock(&w.vm);
		now = w.requests;
		pthread_mutex_unlock(&w.vm);
		if (until == UINT64_MAX)
			until = now + requests;
		if (now < until)
			nanosleep(&t, NULL);
	} while (now < until);
}

/* Takes at most `limit` blocks into pending; whether the set is drained. */
static bool take(uint32_t limit, uint64_t *seed, struct tally *t)
{
	static bool seen[NR];
	struct timespec pause = { .tv_nsec = 20000 };
	uint8_t page[4096];
	uint32_t block;
	struct err e;
	int r = 1;

	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; r == 1 && i < limit; i++) {
		r = disk_frozen_next(w.disk, &block, page, &e);
		if (r < 0)
			bail("disk_frozen_next: %s", e.msg);
		if (!r)
			break;
		t->twice += seen[block];
		seen[block] = true;
		memcpy(pending + block * 4096ul, page, 4096);
		/* never waits for the guest, which may wait for us */
		if (!(tap_rand(seed) & 15))
			nanosleep(&pause, NULL);
	}
	return !r;
}

static void capture(uint64_t *seed, struct tally *t)
{
	uint32_t limit = tap_rand(seed) & 3 ? UINT32_MAX
					    : (uint32_t)tap_rand(seed) % 16;

	pthread_mutex_lock(&w.vm);
	memcpy(frozen, w.model, SIZE);
	memcpy(pending, image, SIZE);
	disk_freeze(w.disk);
	pthread_mutex_unlock(&w.vm);
	if (!take(limit, seed, t)) {
		disk_abort(w.disk);
		t->aborts++;
		return;
	}
	disk_commit(w.disk);
	t->commits++;
	memcpy(image, pending, SIZE);
	t->differ += memcmp(image, frozen, SIZE) != 0;
}

static int template_make(void)
{
	int fd = memfd_create("template", 0);
	uint8_t page[4096];

	for (uint32_t b = 0; b < NR / 2; b++) {
		if (b % 8 > 4)
			continue; /* holes */
		page_fill(page, b, 0);
		if (base_pwrite_all(fd, page, 4096, b * 4096ul))
			bail("template");
		memcpy(w.model + b * 4096ul, page, 4096);
	}
	for (uint32_t b = 0; b < NR; b += 7) {
		w.base_mapped[b] = 1;
		page_fill(w.model + b * 4096ul, b, 1);
	}
	return fd;
}

static void world_init(uint64_t *seed, uint32_t staging)
{
	struct disk_config c = { .nr_blocks = NR,
				 .staging_blocks = staging,
				 .overlay_fd = memfd_create("overlay", 0),
				 .ops = &ops };
	struct err e;
	int sv[2];

	memset(&w, 0, sizeof(w));
	w.seed = tap_rand(seed);
	w.version = 1;
	pthread_mutex_init(&w.vm, NULL);
	c.template_fd = template_make();
	memcpy(image, w.model, SIZE);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) || disk_new(&w.disk, &c, &e) ||
	    disk_nbd_new(&w.nbd, w.disk, sv[1], NULL, NULL, &e))
		bail("start");
	w.fd = sv[0];
	client_hello(w.fd);
	client_go(w.fd);
}

/* What the check mode sees must be the model too. */
static bool check_current(void)
{
	uint8_t page[4096];
	struct err e;

	for (uint32_t b = 0; b < NR; b++)
		if (disk_read_current(w.disk, b, page, &e) ||
		    memcmp(page, w.model + b * 4096ul, 4096))
			return false;
	return true;
}

static void test_law(uint64_t *seed, uint32_t staging)
{
	struct tally t = { 0 };
	struct disk_stats s;
	pthread_t guest;

	world_init(seed, staging);
	if (pthread_create(&guest, NULL, guest_main, NULL))
		bail("thread");
	for (int i = 0; i < CAPTURES; i++) {
		capture(seed, &t);
		let_run(tap_rand(seed) % 8);
	}
	pthread_mutex_lock(&w.vm);
	w.stop = true;
	pthread_mutex_unlock(&w.vm);
	pthread_join(guest, NULL);
	capture(seed, &t);
	disk_stats(w.disk, &s);
	printf("# staging %u: %" PRIu64 " requests, %u commits, %u aborts, "
	       "%" PRIu64 " copies, %" PRIu64 " waits\n",
	       staging, w.requests, t.commits, t.aborts, s.copies, s.waits);
	is_int(w.wrong, 0, "staging %u: each read gives the last write", staging);
	is_int(t.differ, 0, "each committed image is the disk at its freeze");
	is_int(t.twice, 0, "no block is handed out twice");
	ok(check_current(), "the check mode agrees");
	ok(t.commits > CAPTURES / 4 && t.aborts > CAPTURES / 20 && s.copies,
	   "commits, aborts and copies all happened");
	close(w.fd);
	disk_nbd_free(w.nbd);
	disk_free(w.disk);
	pthread_mutex_destroy(&w.vm);
}

int main(void)
{
	uint64_t seed = tap_seed();

	test_law(&seed, 1);
	test_law(&seed, 8);
	test_law(&seed, 0);
	return tap_done();
}
