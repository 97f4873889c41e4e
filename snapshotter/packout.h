/*
 * packout: the pack in work: frames go in, places come out; a new pack is
 * asked for when there is none, or the old one is full or old.
 *
 * One thread. After an error the pack in work is closed for ever; what was
 * synced before stays good.
 */
#ifndef SNAPSHOTTER_PACKOUT_H
#define SNAPSHOTTER_PACKOUT_H

#include "snapshotter/packer.h"

struct packout;

/* Borrows what the config names. */
struct packout *packout_new(const struct packer_config *c);
void packout_free(struct packout *po); /* closes the pack in work */
void packout_close(struct packout *po);

/* Closes a pack that is too old to begin a capture in. */
void packout_begin(struct packout *po);

/* Where the next frame will be; opens a pack if it must. */
int packout_next(struct packout *po, uint64_t *ret_loc, struct err *e);

/*
 * Seals and appends one frame; f as for frame_seal(), without the number.
 * Lands at packout_next(), if nothing was put in between.
 */
int packout_put(struct packout *po, struct frame *f, const void *plain,
		uint64_t *ret_loc, struct err *e);

/* Returns once all frames so far are durable, in every pack they went to. */
int packout_sync(struct packout *po, struct err *e);

uint64_t packout_bytes(const struct packout *po); /* written, ever */

#endif
