/*
 * pointmap: the map of a new point: what its manifest says about where pages
 * are, as a delta or as a keyframe's chunks.
 */
#ifndef SNAPSHOTTER_POINTMAP_H
#define SNAPSHOTTER_POINTMAP_H

#include "snapshotter/packout.h"

/*
 * From indexes of the packset to those of one manifest's or chunk's own
 * table, which it fills.
 */
struct pointmap_table {
	struct packset *ps;
	struct manifest_packs *packs; /* borrowed */
	uint32_t *to; /* packset index -> table index + 1; owned */
	uint32_t nr;
};

void pointmap_table_init(struct pointmap_table *t, struct packset *ps,
			 struct manifest_packs *packs);
void pointmap_table_done(struct pointmap_table *t);

/* Specials stay as they are. -ENOSPC: too many packs in one table. */
int pointmap_loc(struct pointmap_table *t, uint64_t loc, uint64_t *ret,
		 struct err *e);

/* A page that the capture touched: ascending and once each. */
struct pointmap_page {
	enum page_kind kind;
	uint32_t index;
};

/* Entries of the touched pages, as the image has them, into m->map. */
int pointmap_delta(struct manifest *m, struct pointmap_table *t,
		   const struct image *img, const struct pointmap_page *page,
		   size_t nr, struct err *e);

/*
 * Writes a chunk for each part of the image that has changed since its last
 * chunk, and names all of them in m->map. The new places go to ret_chunk[]
 * (one per chunk of memory, then of disk), for the image once the point is
 * durable.
 */
int pointmap_keyframe(struct manifest *m, struct pointmap_table *t,
		      const struct image *img, struct packout *po,
		      uint64_t *ret_chunk, struct err *e);

#endif
