/*
 * packer: turns the changed pages of one moment into a durable point: drops
 * what is zero or as before, stores what is new once, and writes the
 * manifest. One thread; blocks on the disk; runs behind the guest.
 *
 *   begin -> page* -> finish     the image is at the new point
 *                  -> abort      the image is as before begin
 *
 * After an error from page or finish only abort is legal; the pack in work is
 * closed for ever and the next capture starts a new one.
 */
#ifndef SNAPSHOTTER_PACKER_H
#define SNAPSHOTTER_PACKER_H

#include "core/clock.h"
#include "snapshotter/image.h"

/*
 * A new, empty pack: a random id, its key, a writable descriptor of an empty
 * file whose name is durable (owned by the packer from then on).
 */
typedef int (*packer_next_pack_fn)(void *ctx, uint8_t ret_id[PACK_ID_LEN],
				   uint8_t ret_key[CRYPT_KEY_LEN], int *ret_fd,
				   struct err *e);

struct packer_config {
	struct io *io;
	struct packset *ps; /* for what blocks held before a restore */
	struct image *img; /* nobody else writes it while a packer lives */
	const struct clock *clock; /* ages of packs; their created time */
	packer_next_pack_fn next_pack;
	void *ctx;
	uint64_t rotate_len; /* 0: PACK_ROTATE_LEN */
};

/* Who and when the point is. */
struct packer_point {
	char id[ID_LEN + 1], session[ID_LEN + 1];
	uint64_t epoch;
	int64_t time_ns;
	uint8_t kind;
	uint8_t compat[CRYPT_HASH_LEN];
};

struct packer_result {
	struct pack_ref at; /* the manifest: what a restore starts from */
	uint8_t root[CRYPT_HASH_LEN];
	uint8_t device_hash[CRYPT_HASH_LEN];
	bool keyframe;
	uint32_t depth;
	uint32_t seen; /* packer_page() calls */
	uint32_t changed[PAGE_KINDS]; /* pages that differ from the parent */
	uint32_t zero, duplicate, stored; /* of those changed: how */
	uint64_t bytes; /* written to packs, all frames */
};

struct packer;
struct packer *packer_new(const struct packer_config *c);

/* Closes the pack in work; an open capture is aborted. */
void packer_free(struct packer *p);

/* No pack is asked for until there is something to write. */
int packer_begin(struct packer *p, const struct packer_point *point,
		 struct err *e);

/*
 * When the moment was: known only once the VM stands, after live passes have
 * given pages already. Before packer_finish().
 */
void packer_set_time(struct packer *p, int64_t time_ns);

/*
 * The page's content at the moment of the point; borrowed for the call, 8-byte
 * aligned. Given twice, the later one counts. Pages not given are unchanged.
 */
int packer_page(struct packer *p, enum page_kind kind, uint32_t index,
		const void *page, struct err *e);

/*
 * Device state (at most FRAME_PLAIN_MAX, may be empty), opaque exec states (at
 * most MANIFEST_EXEC_MAX). Returns once all of it is durable in the packs.
 */
int packer_finish(struct packer *p, const void *device, size_t device_len,
		  const void *exec, size_t exec_len, struct packer_result *ret,
		  struct err *e);

void packer_abort(struct packer *p); /* no capture open: does nothing */

/* Closes the pack in work: the next capture starts a new one. */
void packer_close_pack(struct packer *p);

#endif
