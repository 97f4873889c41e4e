/*
 * restore: a point back from its packs: the manifest chain to the keyframe,
 * the maps, memory into a memfd with every page checked, the image to go on
 * from. Time depends on what the point holds, not on its age or its depth.
 */
#ifndef SNAPSHOTTER_RESTORE_H
#define SNAPSHOTTER_RESTORE_H

#include "snapshotter/image.h"

struct restore;

/*
 * Reads the chain (at most 60 manifests) and the maps. `root` (32 bytes) is
 * what the log says the point is, or NULL to trust the manifest's. -EBADMSG:
 * damaged or not that point; the error names pack and place.
 */
int restore_open(struct restore **ret, struct packset *ps,
		 const struct pack_ref *at, const uint8_t *root, struct err *e);
void restore_free(struct restore *r);

/* The point's own manifest (sums resolved); borrowed. */
const struct manifest *restore_manifest(const struct restore *r);

/* The device state replaces *ret; its hash is checked. */
int restore_device(struct restore *r, struct buf *ret, struct err *e);

/*
 * Fills `ram_fd` (an empty memfd, already as large as the memory) with
 * `threads` threads (1..16); zero pages stay holes; -1: checks only. Each
 * page is hashed into the image, the memory's sum and the point's root are
 * compared. -EBADMSG: nothing of ram_fd may be used.
 */
int restore_memory(struct restore *r, int ram_fd, unsigned int threads,
		   struct err *e);

/* Reads every stored disk block, fills in its hash, checks the disk's sum. */
int restore_check_disk(struct restore *r, unsigned int threads, struct err *e);

/* Everything that the root binds, reading all of it; writes nothing. */
int restore_check_point(struct restore *r, unsigned int threads, struct err *e);

/*
 * The image at this point, the caller's from now on. Disk hashes are unknown
 * unless the disk was checked; memory hashes need restore_memory() before.
 */
struct image *restore_take_image(struct restore *r);

#endif
