/*
 * disk_nbd: serves a disk to the VMM over one connected socket, as an NBD
 * server with fixed newstyle negotiation and simple replies (the NBD protocol,
 * https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md). The
 * peer is hostile: see the numbered invariants in disk_nbd.c.
 *
 * QEMU's side: -blockdev driver=nbd,node-name=d0,server.type=fd,server.str=N
 * (export "" or "disk").
 */
#ifndef SNAPSHOTTER_DISK_NBD_H
#define SNAPSHOTTER_DISK_NBD_H

#include "snapshotter/disk.h"

#define DISK_NBD_PAYLOAD_MAX (1u << 20) /* bytes of one read or write */

/*
 * Where the bytes come from and go to; a seam for tests. Both move all of
 * `len` or fail: 0 or -errno; recv says -EPIPE if the peer is gone before the
 * first byte, and something else if it goes in the middle.
 */
struct disk_nbd_io {
	int (*recv)(void *ctx, void *p, size_t len);
	int (*send)(void *ctx, const void *head, size_t head_len,
		    const void *body, size_t body_len);
	void *ctx;
};

/*
 * Runs one connection to its end in the calling thread, which becomes the
 * disk's guest thread. 0: the peer said goodbye (ABORT, DISC, or closed
 * between two messages); -errno and e: it broke off or broke the protocol.
 */
int disk_nbd_serve(struct disk *d, const struct disk_nbd_io *io, struct err *e);

/* Called from the server's thread as its last act; e is NULL for a goodbye. */
typedef void (*disk_nbd_closed_fn)(void *ctx, const struct err *e);

/*
 * Starts a thread that serves `fd` (taken over, also on failure), all signals
 * blocked. The disk must outlive it. `closed` may be NULL.
 */
struct disk_nbd;
int disk_nbd_new(struct disk_nbd **ret, struct disk *d, int fd,
		 disk_nbd_closed_fn closed, void *ctx, struct err *e);

/*
 * Breaks the connection, cancels the disk's waits, joins the thread. Not from
 * the thread itself. NULL is fine.
 */
void disk_nbd_free(struct disk_nbd *n);

#endif
