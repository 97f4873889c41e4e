/*
 * ring: io.h on io_uring; the one place that includes liburing.
 */
#ifndef SNAPSHOTTER_RING_H
#define SNAPSHOTTER_RING_H

#include "core/err.h"
#include "snapshotter/io.h"

/*
 * *ret is owned by the caller, freed by io_free(). -ENOSYS, -EPERM, -EACCES:
 * this kernel or sandbox has no io_uring; use io_plain_new().
 */
int ring_new(struct io **ret, struct err *e);

/* io_uring where there is one, else blocking calls. Never NULL. */
struct io *ring_or_plain_new(void);

#endif
