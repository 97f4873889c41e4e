/*
 * manifest: what a point is: who and when, its parent, its device state, its
 * digest, and where its pages are: a delta on its parent, or (a keyframe)
 * references to map chunks of 16,384 pages, of which only changed ones are
 * new. FORMAT: docs/adr/0031-manifest.md.
 *
 * Packs are named by a table in each manifest and chunk; the pack part of
 * every loc in here is an index into that table.
 */
#ifndef STORE_MANIFEST_H
#define STORE_MANIFEST_H

#include "core/buf.h"
#include "core/err.h"
#include "core/id.h"
#include "store/digest.h"
#include "store/frame.h"

#define MANIFEST_CHUNK_PAGES 16384u
#define MANIFEST_DEPTH_MAX 59u /* deltas behind a keyframe: 60 in a chain */
#define MANIFEST_EXEC_MAX (64u << 10)
#define MANIFEST_DELTA_MAX 32768u /* entries; a larger change: a keyframe */
#define MANIFEST_PACKS_MAX 16384u /* a chunk has no more pages */

struct manifest_entry {
	uint32_t index;
	uint64_t loc; /* LOC_BASE: back to the base (delta only) */
};

/* Where pages of one kind are. A keyframe uses chunks, a delta entries. */
struct manifest_map {
	uint32_t nr_entries, nr_chunks;
	struct manifest_entry *entries; /* by index, ascending */
	uint64_t *chunks; /* a loc with slot 0, or LOC_BASE: nothing mapped */
};

/* Pack ids by index. Owned; zeroed: empty. */
struct manifest_packs {
	uint32_t nr, cap;
	uint8_t (*id)[PACK_ID_LEN];
};

struct manifest {
	char point[ID_LEN + 1], session[ID_LEN + 1];
	uint8_t kind; /* the writer's; not looked at here */
	uint64_t epoch;
	int64_t time_ns;
	bool keyframe, has_parent, has_sum[PAGE_KINDS];
	uint32_t depth; /* deltas since the keyframe; 0: is one */
	char parent_point[ID_LEN + 1];
	uint64_t parent; /* loc of its manifest, if has_parent */
	uint64_t base; /* loc of its keyframe's manifest, unless keyframe */
	uint64_t device; /* loc of the device frame; LOC_BASE: none */
	uint32_t device_len; /* bytes */
	struct digest_rest rest; /* device hash, compatibility key, sizes */
	uint8_t root[CRYPT_HASH_LEN];
	struct digest_sum sum[PAGE_KINDS]; /* if has_sum; else the parent's */
	uint8_t *exec; /* opaque states of execs; owned */
	uint32_t exec_len;
	struct manifest_packs packs;
	struct manifest_map map[PAGE_KINDS];
};

/* Pages of a kind: sizes are in the digest's rest. */
uint32_t manifest_pages(const struct manifest *m, enum page_kind kind);
uint32_t manifest_nr_chunks(uint32_t pages);

/* The place of a stored loc of this table, with its pack's id. */
void manifest_ref(const struct manifest_packs *packs, uint64_t loc,
		  struct pack_ref *ret);

/* A zeroed struct is empty; done frees what it owns and zeroes it. */
void manifest_done(struct manifest *m);
void manifest_packs_done(struct manifest_packs *p);

/* Index of `id`, added if new. -ENOSPC: the table is full. */
int manifest_packs_add(struct manifest_packs *p, const uint8_t id[PACK_ID_LEN],
		       uint32_t *ret_index);

/* Appends the plain bytes; -E2BIG if over FRAME_META_MAX. */
int manifest_encode(struct buf *b, const struct manifest *m);

/* Foreign bytes: -EBADMSG and why. The caller owns *ret only on success. */
int manifest_decode(struct manifest *ret, const void *p, size_t len,
		    struct err *e);

/* One piece of a keyframe's map; index counts from the first page of all. */
struct manifest_chunk {
	enum page_kind kind;
	uint32_t number; /* pages number * 16,384 ... */
	struct manifest_packs packs;
	uint32_t nr_entries;
	struct manifest_entry *entries; /* mapped pages only, ascending */
};

void manifest_chunk_done(struct manifest_chunk *c);
int manifest_chunk_encode(struct buf *b, const struct manifest_chunk *c);
int manifest_chunk_decode(struct manifest_chunk *ret, const void *p, size_t len,
			  struct err *e);

#endif
