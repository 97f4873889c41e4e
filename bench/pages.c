/*
 * pages: how fast pages become a durable point and come back.
 *
 * Memory of 256 MiB made to look like a guest's: 40 % zero, 10 % duplicates,
 * the rest compressible to about 40 %. Packs are real files where TMPDIR says
 * (/var/tmp), written through io_uring and synced. In the same run, on the
 * same bytes: the floor, which is to copy them once, and the peer, zstd
 * level 1 over the non-zero pages 16 KiB at a time, in memory, no disk.
 *
 *   pages          a table       JSON=1 pages   one object a line
 *   MIB=64 pages   another size  N=5 pages      samples a case
 */
#include "snapshotter/packer.h"
#include "snapshotter/pages.h"
#include "snapshotter/restore.h"
#include "snapshotter/ring.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#define RUNS_MAX 100
#define DELTA_PAGES 2000u /* a busy guest's minute */
#define IDLE_PAGES 44u

static uint8_t *ram, *copy;
static uint32_t nr_pages = 65536;
static unsigned int runs = 7;
static uint64_t seed = 1;
static struct err e;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "bench pages: %s: %s\n", what, e.msg);
	exit(1);
}

static uint64_t next_random(void)
{
	uint64_t z = (seed += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 29);
}

/* --- results -------------------------------------------------------------- */

struct series {
	const char *name;
	double ms[RUNS_MAX];
	unsigned int n;
	double mib; /* handled by one run */
};

static double now_ms(void)
{
	return (double)clock_mono(&clock_real) / 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Nearest rank: the smallest sample that so many percent don't exceed. */
static double rank(const struct series *s, unsigned int percent)
{
	return s->ms[(s->n * percent + 99) / 100 - 1];
}

static void keep_samples(const struct series *s, FILE *raw)
{
	for (unsigned int i = 0; raw && i < s->n; i++)
		fprintf(raw, "%s %.3f\n", s->name, s->ms[i]);
}

static void show(struct series *s, const struct series *to, FILE *raw)
{
	const char *json = getenv("JSON");
	double ratio;

	keep_samples(s, raw);
	qsort(s->ms, s->n, sizeof(s->ms[0]), by_value);
	ratio = rank(s, 50) / rank(to, 50);
	if (json && json[0] == '1')
		printf("{\"bench\":\"pages\",\"case\":\"%s\",\"unit\":\"ms\","
		       "\"n\":%u,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,"
		       "\"max\":%.3f,\"ratio\":%.3f,\"peer\":\"%s\"}\n",
		       s->name, s->n, rank(s, 50), rank(s, 90), rank(s, 99),
		       s->ms[s->n - 1], ratio, to->name);
	else
		printf("%-20s %4u %9.2f %9.2f %9.2f %9.2f  ms  %6.2f x %-7s "
		       "%6.0f MiB/s\n",
		       s->name, s->n, rank(s, 50), rank(s, 90), rank(s, 99),
		       s->ms[s->n - 1], ratio, to->name,
		       s->mib * 1000 / rank(s, 50));
}

/* --- data ----------------------------------------------------------------- */

/* Words of a small vocabulary between random ones. */
static void fill_page(uint64_t *w)
{
	for (size_t i = 0; i < CRYO_PAGE / 8; i++) {
		uint64_t r = next_random();

		w[i] = r % 10 < 3 ? r : (r >> 8) % 200 * 0x0001000100010001;
	}
}

static void fill_ram(void)
{
	for (uint32_t i = 0; i < nr_pages; i++) {
		uint8_t *page = ram + (size_t)i * CRYO_PAGE;
		uint64_t r = next_random() % 10;

		if (r < 4)
			memset(page, 0, CRYO_PAGE);
		else if (r < 5 && i > 100)
			memcpy(page, page - 100 * CRYO_PAGE, CRYO_PAGE);
		else
			fill_page((uint64_t *)(void *)page);
	}
}

/* --- one session over real files ------------------------------------------ */

#define PACKS_MAX 256

struct session {
	struct io *io;
	struct packset *ps;
	struct image *img;
	struct packer *packer;
	unsigned int nr;
	struct {
		uint8_t id[PACK_ID_LEN], key[CRYPT_KEY_LEN];
		int fd;
	} pack[PACKS_MAX];
};

static int next_pack(void *ctx, uint8_t *id, uint8_t *key, int *fd,
		     struct err *err)
{
	const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp";
	struct session *s = ctx;
	int made = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (made < 0 || s->nr == PACKS_MAX)
		return err_sys(err, errno, "make a pack in %s", dir);
	base_random(id, PACK_ID_LEN);
	base_random(key, CRYPT_KEY_LEN);
	memcpy(s->pack[s->nr].id, id, PACK_ID_LEN);
	memcpy(s->pack[s->nr].key, key, CRYPT_KEY_LEN);
	s->pack[s->nr++].fd = made;
	*fd = fcntl(made, F_DUPFD_CLOEXEC, 0);
	return 0;
}

static int supply(void *ctx, const uint8_t *id, int *fd, uint8_t *key,
		  struct err *err)
{
	struct session *s = ctx;

	for (unsigned int i = 0; i < s->nr; i++) {
		if (memcmp(s->pack[i].id, id, PACK_ID_LEN) != 0)
			continue;
		memcpy(key, s->pack[i].key, CRYPT_KEY_LEN);
		*fd = fcntl(s->pack[i].fd, F_DUPFD_CLOEXEC, 0);
		return 0;
	}
	return err_set(err, -ENOENT, ERR_NOT_FOUND, "no such pack");
}

static void session_start(struct session *s)
{
	struct packer_config c = { .clock = &clock_real,
				   .next_pack = next_pack,
				   .ctx = s };

	s->nr = 0;
	c.io = s->io = ring_or_plain_new();
	c.ps = s->ps = packset_new(s->io, supply, s);
	c.img = s->img = image_new(nr_pages, 0);
	s->packer = packer_new(&c);
}

static void session_stop(struct session *s)
{
	packer_free(s->packer);
	image_free(s->img);
	packset_free(s->ps);
	io_free(s->io);
	for (unsigned int i = 0; i < s->nr; i++)
		close(s->pack[i].fd);
}

/* Captures the pages of a list, or all. */
static struct packer_result capture(struct session *s, const uint32_t *page,
				    uint32_t nr)
{
	static uint8_t device[21 << 10];
	struct packer_point pt = { .epoch = 1 };
	struct packer_result res;
	struct id id;

	id_new(&id);
	memcpy(pt.id, id.s, sizeof(pt.id));
	memcpy(pt.session, id.s, sizeof(pt.session));
	if (packer_begin(s->packer, &pt, &e))
		die("begin");
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t at = page ? page[i] : i;

		if (packer_page(s->packer, PAGE_MEMORY, at,
				ram + (size_t)at * CRYO_PAGE, &e))
			die("page");
	}
	if (packer_finish(s->packer, device, sizeof(device), NULL, 0, &res, &e))
		die("finish");
	return res;
}

/* --- cases ---------------------------------------------------------------- */

static void run_floor(struct series *s)
{
	for (s->n = 0; s->n < runs; s->n++) {
		double t = now_ms();

		memcpy(copy, ram, (size_t)nr_pages * CRYO_PAGE);
		s->ms[s->n] = now_ms() - t;
	}
}

static void run_peer(struct series *s, double *ret_ratio)
{
	uint8_t in[FRAME_DATA_MAX], *out = base_alloc(zst_bound(sizeof(in)));
	struct zst *z = zst_new(1);

	for (s->n = 0; s->n < runs; s->n++) {
		size_t len = 0, raw = 0, packed = 0;
		double t = now_ms();

		for (uint32_t i = 0; i < nr_pages; i++) {
			const uint8_t *p = ram + (size_t)i * CRYO_PAGE;

			if (pages_is_zero(p))
				continue;
			memcpy(in + len, p, CRYO_PAGE);
			len += CRYO_PAGE;
			if (len < sizeof(in))
				continue;
			packed += (size_t)zst_compress(z, in, len, out,
						       zst_bound(len));
			raw += len;
			len = 0;
		}
		s->ms[s->n] = now_ms() - t;
		*ret_ratio = (double)raw / (double)packed;
	}
	zst_free(z);
	free(out);
}

static struct packer_result run_keyframe(struct series *s)
{
	struct packer_result res = { 0 };

	for (s->n = 0; s->n < runs; s->n++) {
		struct session ses;
		double t;

		session_start(&ses);
		t = now_ms();
		res = capture(&ses, NULL, nr_pages);
		s->ms[s->n] = now_ms() - t;
		session_stop(&ses);
	}
	return res;
}

static void run_delta(struct session *ses, struct series *s, uint32_t nr)
{
	uint32_t *page = base_alloc(nr * sizeof(*page));

	for (s->n = 0; s->n < runs * 3 && s->n < RUNS_MAX; s->n++) {
		double t;

		for (uint32_t i = 0; i < nr; i++) {
			page[i] = (uint32_t)(next_random() % nr_pages);
			fill_page((uint64_t *)(void *)(ram + (size_t)page[i] *
								     CRYO_PAGE));
		}
		t = now_ms();
		capture(ses, page, nr);
		s->ms[s->n] = now_ms() - t;
	}
	free(page);
}

static void run_restore(struct session *ses, struct series *s,
			unsigned int threads)
{
	struct packer_result at = capture(ses, NULL, 0);

	for (s->n = 0; s->n < runs; s->n++) {
		int fd = memfd_create("ram", MFD_CLOEXEC);
		struct packset *ps = packset_new(ses->io, supply, ses);
		double t = now_ms();
		struct restore *r;

		if (fd < 0 || ftruncate(fd, (off_t)nr_pages * CRYO_PAGE) < 0)
			die("memory file");
		if (restore_open(&r, ps, &at.at, at.root, &e) ||
		    restore_memory(r, fd, threads, &e))
			die("restore");
		s->ms[s->n] = now_ms() - t;
		restore_free(r);
		packset_free(ps);
		close(fd);
	}
}

static void run_table(struct session *ses, struct series *out, struct series *in)
{
	for (out->n = 0; out->n < runs; out->n++) {
		struct packset *ps = packset_new(ses->io, supply, ses);
		double t = now_ms();
		struct image *img;
		int fd;

		if (image_export(ses->img, ses->ps, &fd, &e))
			die("export");
		out->ms[out->n] = now_ms() - t;
		t = now_ms();
		if (image_import(&img, fd, ps, &e))
			die("import");
		in->ms[out->n] = now_ms() - t;
		image_free(img);
		packset_free(ps);
		close(fd);
	}
	in->n = out->n;
}

static uint32_t from_env(const char *name, uint32_t otherwise)
{
	const char *s = getenv(name);

	return s ? (uint32_t)strtoul(s, NULL, 0) : otherwise;
}

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no memory");
	return p;
}

enum { FLOOR, PEER, KEY, ONE, TWO, BUSY, IDLE, OUT, IN, NR };

static void print_all(const struct packer_result *key, double packed,
		      struct series *all)
{
	const char *json = getenv("JSON");
	FILE *raw = fopen("bench/results/pages.raw", "w");

	if (!json || json[0] != '1')
		printf("pages: %u MiB, of which zstd -1 makes 1/%.2f; the "
		       "keyframe stored %u pages, found %u twice, wrote %.1f "
		       "MiB\n%-20s %4s %9s %9s %9s %9s\n",
		       nr_pages / 256, packed, key->stored, key->duplicate,
		       (double)key->bytes / 1048576, "case", "n", "p50", "p90",
		       "p99", "max");
	for (int i = 0; i < NR; i++)
		show(&all[i], &all[i == KEY ? PEER : FLOOR], raw);
	if (raw)
		fclose(raw);
}

int main(void)
{
	double mib = MIN(MAX(from_env("MIB", 256), 1u), 4096u), packed = 0;
	struct series all[NR] = {
		[FLOOR] = { .name = "memcpy", .mib = mib },
		[PEER] = { .name = "zstd-1", .mib = mib },
		[KEY] = { .name = "keyframe", .mib = mib },
		[ONE] = { .name = "restore-1-thread", .mib = mib },
		[TWO] = { .name = "restore-2-threads", .mib = mib },
		[BUSY] = { .name = "delta-2000-pages", .mib = 7.8125 },
		[IDLE] = { .name = "delta-44-pages", .mib = 0.171875 },
		[OUT] = { .name = "table-export", .mib = mib / 128 },
		[IN] = { .name = "table-import", .mib = mib / 128 },
	};
	struct packer_result key;
	struct session ses;

	nr_pages = (uint32_t)mib * 256;
	runs = MIN(MAX(from_env("N", 7), 1u), (uint32_t)RUNS_MAX);
	ram = map((size_t)nr_pages * CRYO_PAGE);
	copy = map((size_t)nr_pages * CRYO_PAGE);
	fill_ram();
	memcpy(copy, ram, (size_t)nr_pages * CRYO_PAGE); /* faults it in */
	run_floor(&all[FLOOR]);
	run_peer(&all[PEER], &packed);
	key = run_keyframe(&all[KEY]);
	session_start(&ses);
	capture(&ses, NULL, nr_pages);
	run_restore(&ses, &all[ONE], 1);
	run_restore(&ses, &all[TWO], 2);
	run_table(&ses, &all[OUT], &all[IN]);
	run_delta(&ses, &all[IDLE], IDLE_PAGES);
	run_delta(&ses, &all[BUSY], DELTA_PAGES);
	session_stop(&ses);
	print_all(&key, packed, all);
	return 0;
}
