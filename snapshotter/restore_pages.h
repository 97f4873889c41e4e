/*
 * restore_pages: reads all stored pages of one kind of an image, with several
 * threads, each frame once. Used by restore.c only.
 */
#ifndef SNAPSHOTTER_RESTORE_PAGES_H
#define SNAPSHOTTER_RESTORE_PAGES_H

#include "snapshotter/image.h"

#define RESTORE_THREADS_MAX 16u

/*
 * Fills in the hashes of all stored pages of `kind`; writes their content at
 * index * 4096 of out_fd, unless that is -1; adds the elements of all pages
 * that count up in *ret_sum.
 */
int restore_pages(struct image *img, struct packset *ps, enum page_kind kind,
		  int out_fd, unsigned int threads, struct digest_sum *ret_sum,
		  struct err *e);

#endif
