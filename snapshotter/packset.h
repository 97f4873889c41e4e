/*
 * packset: the packs that this process may read, by small index. A pack is
 * asked for when it is first needed (its descriptor and key come from another
 * process) and stays open. Never opens a path.
 *
 * A packset may be used from any thread; a reader from one at a time.
 */
#ifndef SNAPSHOTTER_PACKSET_H
#define SNAPSHOTTER_PACKSET_H

#include "core/buf.h"
#include "core/err.h"
#include "snapshotter/io.h"
#include "store/frame.h"

/*
 * Gives a readable descriptor (owned by the packset from then on) and the
 * pack's key. Called from any thread, one call at a time.
 */
typedef int (*packset_supply_fn)(void *ctx, const uint8_t id[PACK_ID_LEN],
				 int *ret_fd, uint8_t ret_key[CRYPT_KEY_LEN],
				 struct err *e);

struct packset;

/* `io` is used for read() only and outlives the packset. */
struct packset *packset_new(struct io *io, packset_supply_fn supply, void *ctx);
void packset_free(struct packset *ps); /* closes, wipes keys; after readers */

/* The pack's index, given now if it has none. -ENOSPC: table full. */
int packset_index(struct packset *ps, const uint8_t id[PACK_ID_LEN],
		  uint32_t *ret_index, struct err *e);
void packset_id(struct packset *ps, uint32_t index, uint8_t ret[PACK_ID_LEN]);
uint32_t packset_count(struct packset *ps);

/* Hands a pack over before anybody asks. `fd` is owned on success. */
int packset_put(struct packset *ps, const uint8_t id[PACK_ID_LEN], int fd,
		const uint8_t key[CRYPT_KEY_LEN], struct err *e);

/*
 * Has the pack open from now on, so that reading it doesn't depend any more on
 * who supplies packs being there. Errors are those of the supplier.
 */
int packset_open(struct packset *ps, uint32_t index, struct err *e);

/* Reads raw bytes; short only at the end of the file. Opens the pack. */
int packset_pread(struct packset *ps, uint32_t index, void *p, size_t len,
		  uint64_t off, size_t *ret_len, struct err *e);

/* Per-thread half: key schedules, a decoder, a cache of data frames. */
struct packset_reader;
struct packset_reader *packset_reader_new(struct packset *ps);
void packset_reader_free(struct packset_reader *r);

/* One page of 4 KiB from where it is stored: one read, or the cache. */
int packset_read_page(struct packset_reader *r, uint64_t loc, void *page,
		      struct err *e);

/* A whole frame of another type than pages; its plain bytes replace *ret. */
int packset_read_meta(struct packset_reader *r, uint64_t loc,
		      enum frame_type type, struct buf *ret, struct err *e);

/*
 * Opens a frame out of bytes that the caller read (`raw` is at loc's offset
 * and is overwritten). Must be of type FRAME_PAGES; `plain` has FRAME_DATA_MAX.
 */
int packset_open_raw(struct packset_reader *r, uint64_t loc, uint8_t *raw,
		     size_t len, struct frame *ret, void *plain, struct err *e);

/* For messages: "pack 1a2b3c4d at 4096". */
#define PACKSET_WHERE_LEN 48
const char *packset_where(struct packset *ps, uint64_t loc,
			  char buf[PACKSET_WHERE_LEN]);

#endif
