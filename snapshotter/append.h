/*
 * append: bytes to the end of one file through a few large buffers that are
 * written behind the caller's back, up to 8 x 1 MiB in flight, synced every
 * 4 MiB so that no flush of anybody on this disk waits for long.
 *
 * One thread. The first failure sticks until the next append_start().
 */
#ifndef SNAPSHOTTER_APPEND_H
#define SNAPSHOTTER_APPEND_H

#include "snapshotter/io.h"

#define APPEND_BUF_LEN (1u << 20)
#define APPEND_BUFS 8u
#define APPEND_SYNC_LEN (4u << 20)

struct append;
struct append *append_new(struct io *io);
void append_free(struct append *a); /* waits for what is in flight */

/* Starts on an empty file, borrowed; what an older file had must be synced
 * or abandoned: it is waited for and forgotten. */
void append_start(struct append *a, int fd);

uint64_t append_pos(const struct append *a); /* where the next byte goes */
int append_put(struct append *a, const void *p, size_t len);
int append_sync(struct append *a); /* all that was put is durable: 0 */

#endif
