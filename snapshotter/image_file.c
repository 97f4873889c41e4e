/*
 * image_file: an image as a sealed memfd, from one of our processes to
 * another on this machine.
 *
 *   header | pack ids | chunks | refs | page table (at a multiple of 4096)
 *
 * In host byte order with the sizes of our own structs: it never outlives
 * the boot, and a build with other structs refuses it by the header.
 *
 * Invariants:
 *  1. Only a memfd sealed against write, shrink and grow is taken: what was
 *     checked can't change, and a private mapping of it can't fault.
 *  2. Pages of the table that are all zero are holes.
 *
 * A crash frees it with the last descriptor.
 */
#include "snapshotter/image.h"

#include "snapshotter/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct head {
	char magic[16];
	uint32_t head_len, page_len, chunk_len;
	uint32_t nr_pages[PAGE_KINDS];
	uint32_t nr_packs, nr_refs;
	struct image_point point;
	uint64_t chain[MANIFEST_DEPTH_MAX + 1];
	struct digest_sum sum[PAGE_KINDS];
};

static const char magic[16] = "cryo image 1";

/* Where the parts lie, from the numbers in the header. */
struct layout {
	uint64_t packs, chunks[PAGE_KINDS], refs, table, end;
};

static struct layout lay_out(const struct head *h)
{
	struct layout l = { .packs = sizeof(*h) };
	uint64_t at = l.packs + (uint64_t)h->nr_packs * PACK_ID_LEN;

	for (size_t k = 0; k < PAGE_KINDS; k++) {
		l.chunks[k] = at;
		at += (uint64_t)manifest_nr_chunks(h->nr_pages[k]) * h->chunk_len;
	}
	l.refs = at;
	at += (uint64_t)h->nr_refs * sizeof(uint32_t);
	l.table = (at + CRYO_PAGE - 1) / CRYO_PAGE * CRYO_PAGE;
	at = l.table +
	     ((uint64_t)h->nr_pages[PAGE_MEMORY] + h->nr_pages[PAGE_DISK]) *
		     h->page_len;
	l.end = MAX(at, l.table + CRYO_PAGE);
	return l;
}

static struct head make_head(const struct image *img, struct packset *ps)
{
	struct head h = {
		.head_len = sizeof(h),
		.page_len = sizeof(struct image_page),
		.chunk_len = sizeof(struct image_chunk),
		.nr_packs = packset_count(ps),
		.nr_refs = img->nr_refs,
		.point = img->point,
	};

	memcpy(h.magic, magic, sizeof(magic));
	memcpy(h.chain, img->chain, sizeof(h.chain));
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		h.nr_pages[k] = img->map[k].nr_pages;
		h.sum[k] = img->sum[k];
	}
	return h;
}

static int put_packs(int fd, const struct layout *l, uint32_t nr,
		     struct packset *ps)
{
	SCOPED_FREE uint8_t *ids = base_alloc((size_t)nr * PACK_ID_LEN);

	for (uint32_t i = 0; i < nr; i++)
		packset_id(ps, i, ids + (size_t)i * PACK_ID_LEN);
	return base_pwrite_all(fd, ids, (size_t)nr * PACK_ID_LEN, l->packs);
}

/* A run of the table, without what is all zero. */
static int put_run(int fd, const struct layout *l, const struct image *img,
		   const struct image_page *from, size_t len)
{
	const uint8_t *p = (const uint8_t *)from;
	uint64_t to = l->table + (uint64_t)(p - (const uint8_t *)img->mem);
	int r = 0;

	for (size_t at = 0; at < len && r == 0; at += CRYO_PAGE) {
		size_t n = MIN(len - at, (size_t)CRYO_PAGE);

		if (n < CRYO_PAGE || !pages_is_zero(p + at))
			r = base_pwrite_all(fd, p + at, n, to + at);
	}
	return r;
}

/* Chunks with no page mapped are all zero and are not even looked at. */
static int put_table(int fd, const struct layout *l, const struct image *img)
{
	int r = 0;

	for (size_t k = 0; k < PAGE_KINDS; k++) {
		const struct image_map *m = &img->map[k];

		for (uint32_t c = 0; c < m->nr_chunks && r == 0; c++) {
			uint32_t first = c * MANIFEST_CHUNK_PAGES;
			uint32_t nr =
				MIN(MANIFEST_CHUNK_PAGES, m->nr_pages - first);

			if (m->chunk[c].mapped)
				r = put_run(fd, l, img, &m->page[first],
					    nr * sizeof(*m->page));
		}
	}
	return r;
}

static int write_all(int fd, const struct image *img, struct packset *ps)
{
	struct head h = make_head(img, ps);
	struct layout l = lay_out(&h);
	int r;

	r = ftruncate(fd, (off_t)l.end) < 0 ? -errno : 0;
	if (r == 0)
		r = base_pwrite_all(fd, &h, sizeof(h), 0);
	if (r == 0)
		r = put_packs(fd, &l, h.nr_packs, ps);
	for (size_t k = 0; k < PAGE_KINDS && r == 0; k++)
		r = base_pwrite_all(fd, img->map[k].chunk,
				    img->map[k].nr_chunks *
					    sizeof(struct image_chunk),
				    l.chunks[k]);
	if (r == 0)
		r = base_pwrite_all(fd, img->refs,
				    img->nr_refs * sizeof(uint32_t), l.refs);
	if (r == 0)
		r = put_table(fd, &l, img);
	if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		r = -errno;
	return r;
}

int image_export(const struct image *img, struct packset *ps, int *ret_fd,
		 struct err *e)
{
	SCOPED_FD int fd =
		memfd_create("cryo-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return err_sys(e, errno, "make a memory file for an image");
	r = write_all(fd, img, ps);
	if (r < 0)
		return err_sys(e, -r, "write the table of an image's pages");
	*ret_fd = base_steal_fd(&fd);
	return 0;
}

/* --- import --------------------------------------------------------------- */

static int refuse(struct err *e, const char *why)
{
	return err_set(e, -EBADMSG, ERR_CORRUPT,
		       "the table of an image's pages is refused: %s; restore "
		       "the point from its packs instead",
		       why);
}

static int get_head(int fd, struct head *h, struct layout *l, struct err *e)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 ||
	    (seals & (SEALS & ~F_SEAL_SEAL)) != (SEALS & ~F_SEAL_SEAL))
		return refuse(e, "it is not sealed");
	if (fstat(fd, &st) < 0 || base_pread_all(fd, h, sizeof(*h), 0) < 0)
		return refuse(e, "it can't be read");
	if (memcmp(h->magic, magic, sizeof(magic)) || h->head_len != sizeof(*h) ||
	    h->page_len != sizeof(struct image_page) ||
	    h->chunk_len != sizeof(struct image_chunk))
		return refuse(e, "another build of cryo wrote it");
	if (h->nr_pages[PAGE_MEMORY] > PAGE_MEMORY_MAX ||
	    h->nr_pages[PAGE_DISK] > PAGE_DISK_MAX ||
	    h->nr_packs > LOC_PACK_MAX + 1 || h->nr_refs > 2 * LOC_PACK_MAX ||
	    h->point.depth > MANIFEST_DEPTH_MAX)
		return refuse(e, "a number in it is too large");
	*l = lay_out(h);
	if ((uint64_t)st.st_size != l->end)
		return refuse(e, "its size is wrong");
	return 0;
}

static int get_packs(int fd, const struct head *h, const struct layout *l,
		     struct packset *ps, struct err *e)
{
	for (uint32_t i = 0; i < h->nr_packs; i++) {
		uint8_t id[PACK_ID_LEN];
		uint32_t index;
		int r;

		if (base_pread_all(fd, id, sizeof(id),
				   l->packs + (uint64_t)i * PACK_ID_LEN) < 0)
			return refuse(e, "its packs can't be read");
		r = packset_index(ps, id, &index, e);
		if (r < 0)
			return r;
		if (index != i)
			return refuse(e, "packs were in use before it");
	}
	return 0;
}

/* Private mapping of the tables; chunks and refs are copied. */
static int get_tables(int fd, const struct head *h, const struct layout *l,
		      struct image *img, struct err *e)
{
	uint64_t at = 0;

	img->mem_len = l->end - l->table;
	img->mem = mmap(NULL, img->mem_len, PROT_READ | PROT_WRITE, MAP_PRIVATE,
			fd, (off_t)l->table);
	if (img->mem == MAP_FAILED)
		return err_sys(e, errno, "map the table of an image's pages");
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		struct image_map *m = &img->map[k];

		m->nr_pages = h->nr_pages[k];
		m->nr_chunks = manifest_nr_chunks(m->nr_pages);
		m->page = (void *)((uint8_t *)img->mem + at);
		at += m->nr_pages * sizeof(*m->page);
		m->chunk = base_alloc(m->nr_chunks * sizeof(*m->chunk));
		if (base_pread_all(fd, m->chunk, m->nr_chunks * sizeof(*m->chunk),
				   l->chunks[k]) < 0)
			return refuse(e, "its chunks can't be read");
	}
	img->nr_refs = h->nr_refs;
	img->refs = base_alloc(h->nr_refs * sizeof(*img->refs));
	if (base_pread_all(fd, img->refs, h->nr_refs * sizeof(*img->refs),
			   l->refs) < 0)
		return refuse(e, "its counts can't be read");
	return 0;
}

int image_import(struct image **ret, int fd, struct packset *ps, struct err *e)
{
	struct image *img;
	struct layout l = { 0 };
	struct head h;
	int r = get_head(fd, &h, &l, e);

	if (r == 0)
		r = get_packs(fd, &h, &l, ps, e);
	if (r < 0)
		return r;
	img = base_alloc(sizeof(*img));
	img->point = h.point;
	memcpy(img->chain, h.chain, sizeof(img->chain));
	for (size_t k = 0; k < PAGE_KINDS; k++)
		img->sum[k] = h.sum[k];
	r = get_tables(fd, &h, &l, img, e);
	if (r < 0) {
		if (img->mem == MAP_FAILED)
			img->mem = NULL, img->mem_len = 0;
		image_free(img);
		return r;
	}
	*ret = img;
	return 0;
}
