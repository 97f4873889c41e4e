/*
 * restore_pages: the bulk of a restore.
 *
 * The places of all pages are sorted, which is file order, and cut into
 * units of at most a megabyte of one pack without large gaps. Threads take
 * units from a counter; each unit is one read, and each frame in it is opened
 * once, whatever number of pages refer to it, and wherever they belong.
 *
 * Pages go out by pwrite, not through a mapping: the kernel then takes a
 * fresh page without zeroing it first and without a fault.
 *
 * Invariants:
 *  1. A page is written and hashed only from an authentic frame.
 *  2. Threads share nothing that they write but the counter and the first
 *     error: each page belongs to one unit, each sum to one thread.
 *  3. After an error no thread begins another unit.
 *
 * A crash leaves a memory file that nobody has seen.
 */
#include "snapshotter/restore_pages.h"

#include <pthread.h>
#include <stdatomic.h>

#define UNIT_LEN (1u << 20) /* of a pack, from first to last frame */
#define GAP_LEN (64u << 10) /* more between two frames: another read */

struct want {
	uint64_t loc;
	uint32_t index;
};

struct job {
	struct image *img;
	struct packset *ps;
	enum page_kind kind;
	int out_fd;
	struct want *want; /* sorted by loc */
	size_t nr;
	size_t *unit; /* first want of each; unit[nr_units] = nr */
	size_t nr_units;
	atomic_size_t next;
	atomic_bool failed;
	pthread_mutex_t lock; /* of the three below */
	struct digest_sum sum;
	struct err err;
	int result;
};

/* One thread's tools. */
struct worker {
	struct job *job;
	struct packset_reader *reader;
	struct digest *digest;
	struct digest_sum sum;
	uint8_t *raw;
	uint8_t plain[FRAME_DATA_MAX];
	pthread_t thread;
};

static int by_loc(const void *a, const void *b)
{
	const struct want *x = a, *y = b;

	return x->loc < y->loc ? -1 : x->loc > y->loc;
}

/* --- what to read --------------------------------------------------------- */

static void list_chunk(struct job *j, const struct image_map *m, uint32_t c,
		       struct digest *d)
{
	uint32_t first = c * MANIFEST_CHUNK_PAGES;
	uint32_t end = MIN(first + MANIFEST_CHUNK_PAGES, m->nr_pages);

	for (uint32_t i = first; i < end; i++) {
		uint64_t loc = m->page[i].loc;

		if (loc_is_stored(loc))
			j->want[j->nr++] = (struct want){ loc, i };
		else if (loc == LOC_ZERO)
			digest_add(d, &j->sum, j->kind, i, digest_zero_page);
	}
}

/* All stored pages, sorted; zeroed blocks are counted at once. */
static void list_wanted(struct job *j)
{
	const struct image_map *m = &j->img->map[j->kind];
	struct digest *d = digest_new();
	size_t mapped = 0;

	for (uint32_t c = 0; c < m->nr_chunks; c++)
		mapped += m->chunk[c].mapped;
	j->want = base_alloc(mapped * sizeof(*j->want));
	for (uint32_t c = 0; c < m->nr_chunks; c++) {
		if (m->chunk[c].mapped)
			list_chunk(j, m, c, d);
	}
	digest_free(d);
	POST(j->nr <= mapped);
	qsort(j->want, j->nr, sizeof(*j->want), by_loc);
}

/* Does this page need a read of its own, after those since `first`? */
static bool starts_unit(const struct want *first, const struct want *last,
			const struct want *w)
{
	return loc_pack(w->loc) != loc_pack(last->loc) ||
	       loc_offset(w->loc) - loc_offset(first->loc) > UNIT_LEN ||
	       loc_offset(w->loc) - loc_offset(last->loc) > GAP_LEN;
}

static void cut_units(struct job *j)
{
	j->unit = base_alloc((j->nr + 1) * sizeof(*j->unit));
	for (size_t i = 0, first = 0; i < j->nr; i++) {
		if (i > 0 &&
		    !starts_unit(&j->want[first], &j->want[i - 1], &j->want[i]))
			continue;
		first = i;
		j->unit[j->nr_units++] = i;
	}
	j->unit[j->nr_units] = j->nr;
}

/* --- reading -------------------------------------------------------------- */

static int write_out(struct worker *w, const struct want *want,
		     const uint8_t *page, struct err *e)
{
	int r;

	if (w->job->out_fd < 0)
		return 0;
	r = base_pwrite_all(w->job->out_fd, page, CRYO_PAGE,
			    (uint64_t)want->index * CRYO_PAGE);
	return r < 0 ? err_sys(e, -r, "write page %u of the restored memory",
			       want->index)
		     : 0;
}

/* Wants first..end-1 are all in the frame that is open in w->plain. */
static int take_frame(struct worker *w, const struct want *first,
		      const struct want *end, unsigned int pages, struct err *e)
{
	uint8_t h[DIGEST_HASH_LEN];
	unsigned int hashed = FRAME_PAGES_MAX; /* slot that h is of */
	char where[PACKSET_WHERE_LEN];

	for (const struct want *i = first; i < end; i++) {
		unsigned int slot = loc_slot(i->loc);
		const uint8_t *page = w->plain + (size_t)slot * CRYO_PAGE;
		int r;

		if (slot >= pages)
			return err_set(e, -EBADMSG, ERR_CORRUPT,
				       "%s: the frame has %u pages, and page "
				       "%u is said to be number %u of it",
				       packset_where(w->job->ps, i->loc, where),
				       pages, i->index, slot + 1);
		if (hashed != slot)
			digest_page(h, page);
		hashed = slot;
		digest_add(w->digest, &w->sum, w->job->kind, i->index, h);
		memcpy(w->job->img->map[w->job->kind].page[i->index].hash, h,
		       sizeof(h));
		r = write_out(w, i, page, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_unit(struct worker *w, size_t unit, struct err *e)
{
	const struct want *i = &w->job->want[w->job->unit[unit]];
	const struct want *end = &w->job->want[w->job->unit[unit + 1]];
	uint64_t base = loc_offset(i->loc), at;
	size_t want =
		loc_offset(end[-1].loc) - base + frame_bound(FRAME_DATA_MAX);
	size_t len;
	int r;

	r = packset_pread(w->job->ps, loc_pack(i->loc), w->raw, want, base,
			  &len, e);
	while (r == 0 && i < end) {
		const struct want *first = i;
		struct frame f;

		while (i < end && i->loc >> 2 == first->loc >> 2)
			i++;
		at = MIN(loc_offset(first->loc) - base, len);
		r = packset_open_raw(w->reader, first->loc, w->raw + at,
				     len - at, &f, w->plain, e);
		if (r == 0)
			r = take_frame(w, first, i, f.pages, e);
		if (r < 0)
			r = err_wrap(e, r, "%s %u",
				     w->job->kind == PAGE_DISK ? "block" : "page",
				     first->index);
	}
	return r;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct job *j = w->job;
	struct err e;
	size_t unit;
	int r = 0;

	while (r == 0 && !atomic_load(&j->failed) &&
	       (unit = atomic_fetch_add(&j->next, 1)) < j->nr_units)
		r = take_unit(w, unit, &e);
	pthread_mutex_lock(&j->lock);
	if (r < 0 && j->result == 0) {
		j->result = r;
		j->err = e;
		atomic_store(&j->failed, true);
	}
	digest_sum_merge(&j->sum, &w->sum);
	pthread_mutex_unlock(&j->lock);
	return NULL;
}

static struct worker *worker_new(struct job *j)
{
	struct worker *w = base_alloc(sizeof(*w));

	w->job = j;
	w->reader = packset_reader_new(j->ps);
	w->digest = digest_new();
	w->raw = base_alloc(UNIT_LEN + frame_bound(FRAME_DATA_MAX));
	return w;
}

static void worker_free(struct worker *w)
{
	packset_reader_free(w->reader);
	digest_free(w->digest);
	free(w->raw);
	base_wipe(w->plain, sizeof(w->plain));
	free(w);
}

/* The caller's thread is one of them; fewer, if the system has no more. */
static void work_with(struct job *j, unsigned int threads)
{
	struct worker *w[RESTORE_THREADS_MAX];
	unsigned int nr = 0;

	for (; nr < threads; nr++) {
		w[nr] = worker_new(j);
		if (nr == 0)
			continue;
		if (pthread_create(&w[nr]->thread, NULL, work, w[nr])) {
			worker_free(w[nr]);
			break;
		}
	}
	work(w[0]);
	worker_free(w[0]);
	for (unsigned int i = 1; i < nr; i++) {
		pthread_join(w[i]->thread, NULL);
		worker_free(w[i]);
	}
}

int restore_pages(struct image *img, struct packset *ps, enum page_kind kind,
		  int out_fd, unsigned int threads, struct digest_sum *ret_sum,
		  struct err *e)
{
	struct job j = { .img = img, .ps = ps, .kind = kind, .out_fd = out_fd };

	PRE(threads >= 1 && threads <= RESTORE_THREADS_MAX);
	pthread_mutex_init(&j.lock, NULL);
	list_wanted(&j);
	cut_units(&j);
	work_with(&j, MIN(threads, MAX(1u, (unsigned int)j.nr_units)));
	pthread_mutex_destroy(&j.lock);
	free(j.want);
	free(j.unit);
	if (j.result < 0) {
		*e = j.err;
		return j.result;
	}
	*ret_sum = j.sum;
	return 0;
}
