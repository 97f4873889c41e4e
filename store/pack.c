/*
 * pack: the header of a pack, its key and name, and a scan that needs
 * nothing but the file. FORMAT: ADR 0030.
 *
 * A writer that dies leaves a pack whose tail is cut off anywhere: in the
 * header, in a frame, in a run of zeros that the file system never filled. A
 * scan stops there. Everything that an event names lies before that point,
 * for it was synced before the event was written.
 *
 * Invariants:
 *  1. A scan gives out authentic frames only, numbered 0, 1, 2 ...
 *  2. A scan reads and allocates a bounded amount, whatever the file holds.
 */
#include "store/pack.h"

#include "store/frame.h"

#include <stdio.h>
#include <sys/stat.h>

static const uint8_t magic[8] = { 'C', 'R', 'Y', 'O', 'P', 'A', 'C', 'K' };

#define VERSION 1u
#define HEAD_CRC_AT 60u

void pack_key_derive(uint8_t ret[CRYPT_KEY_LEN],
		     const uint8_t data_key[CRYPT_KEY_LEN],
		     const uint8_t id[PACK_ID_LEN])
{
	crypt_hkdf(ret, CRYPT_KEY_LEN, data_key, "cryo-pack-v1", id, PACK_ID_LEN);
}

static char *put_hex(char *out, const uint8_t *p, size_t len)
{
	static const char digit[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		*out++ = digit[p[i] >> 4];
		*out++ = digit[p[i] & 15];
	}
	*out = 0;
	return out;
}

void pack_path(char ret[PACK_PATH_LEN], const uint8_t id[PACK_ID_LEN])
{
	char *p = put_hex(ret, id, 1);

	*p++ = '/';
	p = put_hex(p, id, PACK_ID_LEN);
	memcpy(p, ".pack", sizeof(".pack"));
}

void pack_nick(char ret[PACK_NICK_LEN], const uint8_t id[PACK_ID_LEN])
{
	put_hex(ret, id, (PACK_NICK_LEN - 1) / 2);
}

void pack_head_encode(uint8_t ret[PACK_HEAD_LEN], const struct pack_head *h)
{
	memset(ret, 0, PACK_HEAD_LEN);
	memcpy(ret, magic, sizeof(magic));
	put_u16(ret + 8, VERSION);
	memcpy(ret + 16, h->id, PACK_ID_LEN);
	put_u64(ret + 32, (uint64_t)h->created_ns);
	put_u32(ret + HEAD_CRC_AT, crypt_crc32c(ret, HEAD_CRC_AT));
}

static bool all_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (p[i])
			return false;
	}
	return true;
}

int pack_head_decode(struct pack_head *ret, const uint8_t in[PACK_HEAD_LEN],
		     struct err *e)
{
	if (memcmp(in, magic, sizeof(magic)))
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "not a pack: it does not start with CRYOPACK");
	if (get_u32(in + HEAD_CRC_AT) != crypt_crc32c(in, HEAD_CRC_AT))
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "the header of the pack is damaged (checksum)");
	if (get_u16(in + 8) != VERSION || get_u16(in + 10) != 0)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "pack version %u, flags 0x%x: this build reads "
			       "version %u without flags; use the build that "
			       "wrote it, or a newer one",
			       get_u16(in + 8), get_u16(in + 10), VERSION);
	if (!all_zero(in + 12, 4) || !all_zero(in + 40, 20))
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "reserved bytes of the pack header are in use; "
			       "a newer build may have written it");
	memcpy(ret->id, in + 16, PACK_ID_LEN);
	ret->created_ns = (int64_t)get_u64(in + 32);
	return 0;
}

/* The state of a scan: one buffer for raw, one for plain bytes. */
struct scan {
	int fd;
	struct frame_key key;
	struct zst *z;
	uint8_t *raw, *plain;
	struct pack_scan *found;
};

/*
 * The frame at found->end: 1 and it is open, 0 if there is none, or -errno if
 * the file can't be read.
 */
static int scan_frame(struct scan *s, struct frame *ret, struct err *e)
{
	uint64_t at = s->found->end, left = s->found->size - at;
	struct frame f;
	int r;

	if (left < FRAME_HEAD_LEN)
		return 0;
	r = base_pread_all(s->fd, s->raw, FRAME_HEAD_LEN, at);
	if (r < 0)
		return err_sys(e, -r, "read a pack");
	if (frame_head_decode(&f, s->raw) < 0 || left < frame_size(&f))
		return 0;
	r = base_pread_all(s->fd, s->raw + FRAME_HEAD_LEN,
			   frame_size(&f) - FRAME_HEAD_LEN, at + FRAME_HEAD_LEN);
	if (r < 0)
		return err_sys(e, -r, "read a pack");
	return frame_open(&s->key, s->z, at, s->raw, frame_size(&f), ret,
			  s->plain, FRAME_PLAIN_MAX) == 0;
}

static int scan_frames(struct scan *s, pack_frame_fn fn, void *ctx, struct err *e)
{
	struct pack_scan *found = s->found;
	struct frame f = { 0 };
	int r;

	while ((r = scan_frame(s, &f, e)) == 1) {
		if (f.number != found->frames)
			return err_set(e, -EBADMSG, ERR_CORRUPT,
				       "frame %u where frame %llu should be: "
				       "two writers had this pack",
				       f.number,
				       (unsigned long long)found->frames);
		r = fn ? fn(ctx, &f, found->end, s->plain) : 0;
		if (r)
			return r;
		found->frames++;
		found->end += frame_size(&f);
	}
	return r;
}

static int scan_head(int fd, struct pack_scan *found, struct err *e)
{
	uint8_t head[PACK_HEAD_LEN];
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "look at a pack");
	found->size = (uint64_t)st.st_size;
	if (found->size < PACK_HEAD_LEN)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "a pack of %llu bytes has no whole header; "
			       "its writer died before it stored anything",
			       (unsigned long long)found->size);
	r = base_pread_all(fd, head, sizeof(head), 0);
	if (r < 0)
		return err_sys(e, -r, "read a pack");
	found->end = PACK_HEAD_LEN;
	return pack_head_decode(&found->head, head, e);
}

int pack_scan(int fd, const uint8_t key[CRYPT_KEY_LEN], pack_frame_fn fn,
	      void *ctx, struct pack_scan *ret, struct err *e)
{
	struct scan s = { .fd = fd, .found = ret };
	int r;

	*ret = (struct pack_scan){ 0 };
	r = scan_head(fd, ret, e);
	if (r < 0)
		return r;
	frame_key_init(&s.key, ret->head.id, key);
	s.z = zst_new(1);
	s.raw = base_alloc(frame_bound(FRAME_PLAIN_MAX));
	s.plain = base_alloc(FRAME_PLAIN_MAX);
	r = scan_frames(&s, fn, ctx, e);
	base_wipe(s.plain, FRAME_PLAIN_MAX);
	free(s.plain);
	free(s.raw);
	zst_free(s.z);
	frame_key_done(&s.key);
	return r;
}
