/*
 * pack: a file of sealed frames that one process life writes, front to back,
 * and nobody ever appends to again. FORMAT: docs/adr/0030-pack-and-frame.md.
 *
 *   offset 0  header, 64 bytes, clear
 *   offset 64 frames (frame.h), each at a multiple of 16, to the end
 *
 * Also here, since pages live in packs: the kinds of page, and `loc`, where a
 * page's bytes are.
 */
#ifndef STORE_PACK_H
#define STORE_PACK_H

#include "core/base.h"
#include "core/err.h"
#include "store/crypt.h"

#define PACK_ID_LEN 16
#define PACK_HEAD_LEN 64u
#define PACK_ROTATE_LEN (256u << 20) /* no frame starts past this */
#define PACK_ROTATE_S 3600 /* no capture starts in an older one */
#define PACK_PATH_LEN 41 /* "ab/abcd...ef.pack" and NUL */

/* The two things a point has pages of. Values are in the formats. */
enum page_kind { PAGE_MEMORY = 0, PAGE_DISK = 1 };
#define PAGE_KINDS 2
#define PAGE_MEMORY_MAX (1u << 20) /* pages: 4 GiB */
#define PAGE_DISK_MAX (1u << 22) /* blocks: 16 GiB */

/* Largest count of pages of a kind. */
static inline uint32_t page_max(enum page_kind kind)
{
	return kind == PAGE_MEMORY ? PAGE_MEMORY_MAX : PAGE_DISK_MAX;
}

struct pack_head {
	uint8_t id[PACK_ID_LEN];
	int64_t created_ns; /* wall clock */
};

/* A frame's place: which pack, at which byte. */
struct pack_ref {
	uint8_t id[PACK_ID_LEN];
	uint64_t offset;
};

/*
 * loc: where a page's bytes are: bits 0-1 slot in the frame, 2-33 the
 * frame's offset / 16, 34-49 an index into somebody's table of packs.
 * Sorting locs sorts by pack, then file order. Two values are no place:
 */
#define LOC_BASE 0u /* as the base: zeros (memory), the template's (disk) */
#define LOC_ZERO 1u /* disk only: zeros, whatever the template has */
#define LOC_PACK_MAX 0xffffu
#define LOC_UNIT 16u

static inline uint64_t loc_make(uint32_t pack, uint64_t offset, unsigned int slot)
{
	return (uint64_t)pack << 34 | offset / LOC_UNIT << 2 | slot;
}

static inline uint32_t loc_pack(uint64_t loc)
{
	return (uint32_t)(loc >> 34);
}

static inline uint64_t loc_offset(uint64_t loc)
{
	return (loc >> 2 & 0xffffffffu) * LOC_UNIT;
}

static inline unsigned int loc_slot(uint64_t loc)
{
	return (unsigned int)(loc & 3);
}

static inline bool loc_is_stored(uint64_t loc)
{
	return loc > LOC_ZERO;
}

/* The key of a pack: HKDF(session data key, "cryo-pack-v1" || pack id). */
void pack_key_derive(uint8_t ret[CRYPT_KEY_LEN],
		     const uint8_t data_key[CRYPT_KEY_LEN],
		     const uint8_t id[PACK_ID_LEN]);

/* Where a pack lives below the packs' folder: "ab/" 32 hex digits ".pack". */
void pack_path(char ret[PACK_PATH_LEN], const uint8_t id[PACK_ID_LEN]);

/* The first 8 digits of a pack's name, for messages. */
#define PACK_NICK_LEN 9
void pack_nick(char ret[PACK_NICK_LEN], const uint8_t id[PACK_ID_LEN]);

void pack_head_encode(uint8_t ret[PACK_HEAD_LEN], const struct pack_head *h);

/* -EBADMSG: torn, foreign, or of a version or flag this build lacks. */
int pack_head_decode(struct pack_head *ret, const uint8_t in[PACK_HEAD_LEN],
		     struct err *e);

/* What a scan of a whole pack found. */
struct pack_scan {
	struct pack_head head;
	uint64_t frames;
	uint64_t end; /* first byte that is no whole, authentic frame */
	uint64_t size; /* of the file; > end: the tail is torn */
};

struct frame;

/* Called per frame in file order; `plain` is borrowed. 0 goes on, else stop. */
typedef int (*pack_frame_fn)(void *ctx, const struct frame *f, uint64_t offset,
			     const void *plain);

/*
 * Reads a pack from its first byte without any index, opening every frame.
 * A tail that is cut off or garbage ends the scan and is no error (a writer
 * died); frame numbers that don't count up are (-EBADMSG). `fn` may be NULL;
 * what it returns, if not 0, is returned.
 */
int pack_scan(int fd, const uint8_t key[CRYPT_KEY_LEN], pack_frame_fn fn,
	      void *ctx, struct pack_scan *ret, struct err *e);

#endif
