/*
 * transcript: what one exec wrote in one epoch, sealed, appended by the
 * `cryo-vm` that got the descriptor and read by `cryod` for its clients.
 *
 * FORMAT (little-endian; ADR 0080). Header, 64 bytes:
 *   0 magic "CRYT"  4 u16 version 1  6 u16 flags 0  8 u32 epoch
 *   12 tag[20]  32 u64 out_from  40 u64 err_from  48 u64 0  56 u32 0
 *   60 u32 CRC32C of bytes 0..59
 * then records, each 24 bytes of header, ciphertext, 16 bytes of tag:
 *   0 u32 number  4 u8 stream (1 out, 2 err)  5 u8 flags 0  6 u16 0
 *   8 u64 offset in the stream  16 u32 len (1..65536)  20 u32 CRC32C of 0..19
 * Sealed with AES-256-GCM: key = HKDF(session data key, "cryo-transcript-v1",
 * exec id || epoch), nonce = number (64-bit, zero-extended), additional data =
 * file header || record header. Numbers strictly increase and are never used
 * twice, also after a failed write. The records of a stream follow each other
 * without holes, from out_from or err_from on. A torn tail is the end.
 */
#ifndef STORE_TRANSCRIPT_H
#define STORE_TRANSCRIPT_H

#include "core/err.h"
#include "core/id.h"

#define TRANSCRIPT_HEADER_LEN 64
#define TRANSCRIPT_RECORD_MAX (64u << 10)
#define TRANSCRIPT_LIMIT (64ull << 20) /* of output per exec and epoch */

enum transcript_stream { TRANSCRIPT_OUT = 1, TRANSCRIPT_ERR = 2 };

struct transcript_info {
	char tag[ID_LEN + 1];
	uint32_t epoch;
	uint64_t out_from, err_from; /* this epoch's first byte of each */
};

/* Writer: one thread. Owns fd (also on failure): empty and O_APPEND. */
struct transcript;
int transcript_create(struct transcript **ret, int fd, const uint8_t key[32],
		      const struct transcript_info *info, struct err *e);
void transcript_free(struct transcript *t);

/*
 * Appends output that starts where the stream ends; a part already there is
 * skipped, a hole is -EINVAL. Past TRANSCRIPT_LIMIT bytes are counted and
 * dropped: 1 is returned from then on. -ENOSPC, -EIO: what could be stored is
 * (see transcript_end()); the same bytes may come again.
 */
int transcript_append(struct transcript *t, enum transcript_stream stream,
		      uint64_t offset, const void *p, size_t len);
uint64_t transcript_end(const struct transcript *t, enum transcript_stream s);
int transcript_sync(struct transcript *t); /* fdatasync */

/*
 * Reader: one thread; follows a file that grows. Owns fd. -ENODATA without
 * touching e: the writer has not come to its header yet.
 */
struct transcript_reader;
int transcript_reader_open(struct transcript_reader **ret, int fd,
			   const uint8_t key[32], struct err *e);
void transcript_reader_free(struct transcript_reader *r);
const struct transcript_info *
transcript_reader_info(const struct transcript_reader *r);

struct transcript_piece {
	enum transcript_stream stream;
	uint64_t offset;
	const uint8_t *p; /* until the next call */
	size_t len;
};

/*
 * Next record in file order: 0, or 1 at the end so far, or -EBADMSG: the
 * record there is damaged, or not the next of its stream.
 */
int transcript_reader_next(struct transcript_reader *r,
			   struct transcript_piece *ret, struct err *e);

#endif
