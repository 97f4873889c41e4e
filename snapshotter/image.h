/*
 * image: what a session's pages are at this moment of its line: for each
 * page of memory and block of disk its content hash and where it is stored,
 * the sums, and the point that this is. The packer moves it on with every
 * capture; a restore makes it anew; a fork starts from a copy.
 *
 * One writer thread. image_disk_loc() may be called from any thread.
 */
#ifndef SNAPSHOTTER_IMAGE_H
#define SNAPSHOTTER_IMAGE_H

#include "snapshotter/packset.h"
#include "store/digest.h"
#include "store/manifest.h"

/*
 * 32 bytes a page. hash of zeros: unknown (a stored disk block that nobody
 * has read since the restore), or loc is LOC_BASE. loc's pack part is an
 * index into the packset.
 */
struct image_page {
	uint8_t hash[DIGEST_HASH_LEN];
	uint64_t loc;
};

/* Per 16,384 pages: the newest map chunk, if it still tells the truth. */
struct image_chunk {
	uint64_t loc; /* LOC_BASE: none stored */
	uint32_t mapped; /* pages whose loc is not LOC_BASE */
	bool dirty; /* changed since `loc` was written */
};

struct image_map {
	uint32_t nr_pages, nr_chunks;
	struct image_page *page;
	struct image_chunk *chunk;
};

/* The point that the image is at. */
struct image_point {
	bool has; /* false: nothing captured yet; the image is all base */
	char id[ID_LEN + 1];
	uint64_t loc, base; /* its manifest, its keyframe's manifest */
	uint64_t device; /* its device state; LOC_BASE: none */
	uint32_t depth; /* since the keyframe */
	uint8_t root[CRYPT_HASH_LEN];
};

struct image {
	struct image_map map[PAGE_KINDS];
	struct digest_sum sum[PAGE_KINDS];
	struct image_point point;
	uint32_t *refs; /* per pack index: pages stored there */
	uint32_t nr_refs;
	uint64_t chain[MANIFEST_DEPTH_MAX + 1]; /* [d]: manifest of depth d */
	void *mem; /* where the page tables are */
	size_t mem_len;
};

static inline uint32_t image_pages(const struct image *img, enum page_kind kind)
{
	return img->map[kind].nr_pages;
}

/* All base: empty memory, the template's disk. Sizes: at most page_max(). */
struct image *image_new(uint32_t memory_pages, uint32_t disk_pages);
void image_free(struct image *img);

/* Sets one page; keeps counts and chunk flags. */
void image_set(struct image *img, enum page_kind kind, uint32_t index,
	       const struct image_page *page);

/* Where a block is, LOC_BASE or LOC_ZERO; safe while the packer works. */
uint64_t image_disk_loc(const struct image *img, uint32_t block);

/*
 * The ids of all packs that a restore of the current point reads, 16 bytes
 * each, appended: pages, chunks, the manifest chain.
 */
void image_packs(const struct image *img, struct packset *ps, struct buf *ret);

/*
 * A copy in a new sealed memfd (no write, shrink, grow), with the packset's
 * table of ids: what another process needs to go on from here.
 */
int image_export(const struct image *img, struct packset *ps, int *ret_fd,
		 struct err *e);

/*
 * Goes on from what image_export() wrote; `fd` stays the caller's. The page
 * tables are a private mapping of it: forks share what they don't change.
 * `ps` must be empty: the packs get the indexes they had. -EBADMSG: not
 * sealed, or of another build.
 */
int image_import(struct image **ret, int fd, struct packset *ps, struct err *e);

#endif
