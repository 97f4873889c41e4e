/*
 * dedupe: from a page's hash to a place where a page of the session's current
 * image with that content is stored. Of this session only, so nobody can
 * probe what another has.
 */
#ifndef SNAPSHOTTER_DEDUPE_H
#define SNAPSHOTTER_DEDUPE_H

#include "snapshotter/image.h"

struct dedupe;

/* Borrows the image. Its pages are taken in at the first use. */
struct dedupe *dedupe_new(const struct image *img);
void dedupe_free(struct dedupe *d);

/* A stored place of that content, or LOC_BASE if none is known. */
uint64_t dedupe_find(struct dedupe *d, const uint8_t h[DIGEST_HASH_LEN]);

/* The image has this page now: stored, hash known. */
void dedupe_add(struct dedupe *d, enum page_kind kind, uint32_t index);

#endif
