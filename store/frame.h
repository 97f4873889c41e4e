/*
 * frame: the unit of a pack: a clear header and a sealed, compressed payload.
 * FORMAT: docs/adr/0030-pack-and-frame.md. Sealed with AES-256-GCM under the
 * pack's key; nonce = frame number; additional data = pack id, file offset,
 * header. So a frame opens only in its pack, at its place, as it is.
 */
#ifndef STORE_FRAME_H
#define STORE_FRAME_H

#include "store/pack.h"
#include "store/zst.h"

#define FRAME_HEAD_LEN 24u
#define FRAME_PAGES_MAX 4u /* pages in a data frame */
#define FRAME_DATA_MAX (FRAME_PAGES_MAX * CRYO_PAGE)
#define FRAME_META_MAX (1u << 20) /* plain bytes of manifest, map chunk */
#define FRAME_PLAIN_MAX (4u << 20) /* plain bytes of device state: the limit */

enum frame_type {
	FRAME_PAGES = 1, /* 1..4 pages, one after the other */
	FRAME_DEVICE = 2, /* a VM's device state, opaque */
	FRAME_MANIFEST = 3, /* a point (manifest.h) */
	FRAME_MAPCHUNK = 4, /* where 16,384 pages are (manifest.h) */
};

#define FRAME_STORED 0x01u /* payload is not compressed; other bits: refused */

struct frame {
	enum frame_type type;
	uint8_t flags;
	uint16_t pages; /* of a FRAME_PAGES, else 0 */
	uint32_t number; /* 0, 1, 2 ... in its pack */
	uint32_t plain_len;
	uint32_t sealed_len; /* with the tag */
};

/* Bytes in the file, up to the next frame. */
size_t frame_size(const struct frame *f);

/* Most bytes in the file for so many plain bytes. */
size_t frame_bound(size_t plain_len);

/* Most plain bytes for a type; 0: no such type. */
size_t frame_plain_max(enum frame_type type);

void frame_head_encode(uint8_t ret[FRAME_HEAD_LEN], const struct frame *f);

/* -EBADMSG unless every field is what an encoder could have written. */
int frame_head_decode(struct frame *ret, const uint8_t in[FRAME_HEAD_LEN]);

/* A pack's key, ready to work: one per pack and thread. */
struct frame_key {
	uint8_t pack[PACK_ID_LEN];
	struct crypt_aead *aead;
};

void frame_key_init(struct frame_key *k, const uint8_t pack[PACK_ID_LEN],
		    const uint8_t key[CRYPT_KEY_LEN]);
void frame_key_done(struct frame_key *k);

/*
 * Compresses and seals `plain` for file position `offset`. In: f's type,
 * pages, number and plain_len; the rest is filled in. `out` has room for
 * frame_bound(plain_len); returns frame_size(f) bytes written, padded with
 * zeros. The caller never seals two payloads with one number under one key.
 */
size_t frame_seal(struct frame_key *k, struct zst *z, uint64_t offset,
		  struct frame *f, const void *plain, uint8_t *out);

/*
 * Opens the frame that starts at `raw` (`len` bytes are there; it may be
 * more than the frame) and was read at `offset`. `raw` is overwritten. Up to
 * `room` plain bytes go to `plain`. -EBADMSG: not a frame, cut off, forged,
 * of another place or pack, or larger than `room`.
 */
int frame_open(struct frame_key *k, struct zst *z, uint64_t offset, uint8_t *raw,
	       size_t len, struct frame *ret, void *plain, size_t room);

#endif
