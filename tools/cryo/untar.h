/*
 * untar: takes a tar stream from a guest apart, below one folder. Every byte
 * is hostile: nothing is written outside the folder, through a link, or with
 * set-id bits; devices are left out.
 */
#ifndef TOOLS_CRYO_UNTAR_H
#define TOOLS_CRYO_UNTAR_H

#include "core/buf.h"
#include "core/err.h"

#define UNTAR_PATH_MAX 4096
#define UNTAR_META_MAX (64u << 10)

struct untar {
	int dir_fd; /* the folder; caller's */
	uint64_t max_bytes; /* of all files together */
	/* results */
	unsigned files, dirs, links, skipped;
	uint64_t bytes;
	bool ended; /* the archive's end was seen */
	/* private */
	uint8_t head[512];
	size_t have; /* bytes of the head */
	uint64_t left, pad; /* of the member at hand */
	int fd; /* where its bytes go, or -1 */
	bool meta; /* its bytes are a long name */
	struct buf name; /* long name for the next member */
};

void untar_init(struct untar *u, int dir_fd, uint64_t max_bytes);
void untar_done(struct untar *u);

/* Feeds bytes, in pieces of any size. INVALID, TOO_LARGE, or errors of I/O. */
int untar_put(struct untar *u, const void *p, size_t len, struct err *e);

/* After the last byte: INVALID if the archive was cut off. */
int untar_end(const struct untar *u, struct err *e);

#endif
