/*
 * images: hot images: points that were materialised and may be started from
 * again at once. Each is three sealed memfds and the list of packs it uses.
 * Kept by least recent use under a limit of RAM; one load per point at a time.
 * Who may start from a point is decided before anybody asks here.
 *
 * An image is what one cryo-vm said that the point is, so it is shared inside
 * the tenant whose sandbox made it and nowhere else, also if the point (a
 * template's) is everybody's. Any thread.
 */
#ifndef CORE_BACKEND_IMAGES_H
#define CORE_BACKEND_IMAGES_H

#include "core/wire.h"

struct images;

struct image_hot {
	int fds[WIRE_IMAGE_FDS];
	uint8_t (*packs)[16];
	uint32_t nr_packs;
	uint64_t bytes; /* of RAM that the three occupy */
};

struct image_key {
	const char *tenant; /* of the session that starts */
	const char *session; /* whose point it is */
	const char *point;
};

struct images *images_new(uint64_t max_bytes);
void images_free(struct images *m);

/*
 * 0: there it is; *ret is the caller's copy (image_hot_done). 1: it is not;
 * the caller must load it and call images_put() or images_give_up(); others
 * who ask meanwhile wait here.
 */
int images_get(struct images *m, const struct image_key *k,
	       struct image_hot *ret);
/*
 * Takes over `hot`; *ret (may be NULL) gets a copy, with descriptors -1 when
 * the process has none left.
 */
void images_put(struct images *m, const struct image_key *k,
		struct image_hot *hot, struct image_hot *ret);
void images_give_up(struct images *m, const struct image_key *k);
/* Drops all points of a session: it is destroyed. */
void images_forget(struct images *m, const char *session);

void image_hot_done(struct image_hot *h);

#endif
