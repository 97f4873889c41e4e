/*
 * frame: encodes, seals, opens and refuses frames. FORMAT: ADR 0030.
 *
 * Invariants:
 *  1. What frame_open() gives out was sealed under this pack's key, at this
 *     offset, under this header: all three are in the additional data.
 *  2. A payload is never longer than its plain bytes: noise is stored.
 *  3. No length of a header is used before the header's CRC and the limits
 *     of its type were checked.
 *
 * No state outlives a call, so a crash leaves nothing behind here; what a
 * torn frame means is the pack's matter.
 */
#include "store/frame.h"

static const uint8_t magic[4] = { 'F', 'R', 'M', 'E' };

#define HEAD_CRC_AT 20u
#define AD_LEN (PACK_ID_LEN + 8u + FRAME_HEAD_LEN)

static size_t align_up(size_t n)
{
	return (n + LOC_UNIT - 1) / LOC_UNIT * LOC_UNIT;
}

size_t frame_size(const struct frame *f)
{
	return align_up(FRAME_HEAD_LEN + (size_t)f->sealed_len);
}

size_t frame_bound(size_t plain_len)
{
	return align_up(FRAME_HEAD_LEN + plain_len + CRYPT_TAG_LEN);
}

size_t frame_plain_max(enum frame_type type)
{
	switch (type) {
	case FRAME_PAGES:
		return FRAME_DATA_MAX;
	case FRAME_DEVICE:
		return FRAME_PLAIN_MAX;
	case FRAME_MANIFEST:
	case FRAME_MAPCHUNK:
		return FRAME_META_MAX;
	}
	return 0;
}

/* What holds of every header, written or read. */
static bool frame_is_sound(const struct frame *f)
{
	uint32_t payload = f->sealed_len - CRYPT_TAG_LEN;

	if (f->flags & (uint8_t)~FRAME_STORED)
		return false;
	if (f->plain_len == 0 || f->plain_len > frame_plain_max(f->type))
		return false;
	if (f->type == FRAME_PAGES) {
		if (f->pages < 1 || f->pages > FRAME_PAGES_MAX ||
		    f->plain_len != f->pages * CRYO_PAGE)
			return false;
	} else if (f->pages != 0) {
		return false;
	}
	if (f->sealed_len <= CRYPT_TAG_LEN)
		return false;
	return f->flags & FRAME_STORED ? payload == f->plain_len
				       : payload < f->plain_len;
}

void frame_head_encode(uint8_t ret[FRAME_HEAD_LEN], const struct frame *f)
{
	PRE(frame_is_sound(f));
	memcpy(ret, magic, sizeof(magic));
	ret[4] = (uint8_t)f->type;
	ret[5] = f->flags;
	put_u16(ret + 6, f->pages);
	put_u32(ret + 8, f->number);
	put_u32(ret + 12, f->plain_len);
	put_u32(ret + 16, f->sealed_len);
	put_u32(ret + HEAD_CRC_AT, crypt_crc32c(ret, HEAD_CRC_AT));
}

int frame_head_decode(struct frame *ret, const uint8_t in[FRAME_HEAD_LEN])
{
	struct frame f;

	if (memcmp(in, magic, sizeof(magic)) ||
	    get_u32(in + HEAD_CRC_AT) != crypt_crc32c(in, HEAD_CRC_AT))
		return -EBADMSG;
	f = (struct frame){
		.type = (enum frame_type)in[4],
		.flags = in[5],
		.pages = get_u16(in + 6),
		.number = get_u32(in + 8),
		.plain_len = get_u32(in + 12),
		.sealed_len = get_u32(in + 16),
	};
	if (!frame_is_sound(&f))
		return -EBADMSG;
	*ret = f;
	return 0;
}

void frame_key_init(struct frame_key *k, const uint8_t pack[PACK_ID_LEN],
		    const uint8_t key[CRYPT_KEY_LEN])
{
	memcpy(k->pack, pack, PACK_ID_LEN);
	k->aead = crypt_aead_new(key);
}

void frame_key_done(struct frame_key *k)
{
	crypt_aead_free(k->aead);
	k->aead = NULL;
}

static void make_nonce(uint8_t ret[CRYPT_NONCE_LEN], const struct frame *f)
{
	memset(ret, 0, CRYPT_NONCE_LEN);
	put_u32(ret, f->number);
}

static void make_ad(uint8_t ret[AD_LEN], const struct frame_key *k,
		    uint64_t offset, const uint8_t head[FRAME_HEAD_LEN])
{
	memcpy(ret, k->pack, PACK_ID_LEN);
	put_u64(ret + PACK_ID_LEN, offset);
	memcpy(ret + PACK_ID_LEN + 8, head, FRAME_HEAD_LEN);
}

size_t frame_seal(struct frame_key *k, struct zst *z, uint64_t offset,
		  struct frame *f, const void *plain, uint8_t *out)
{
	uint8_t nonce[CRYPT_NONCE_LEN], ad[AD_LEN];
	uint8_t *body = out + FRAME_HEAD_LEN;
	const void *payload = body;
	ssize_t n;
	size_t end;

	PRE(offset % LOC_UNIT == 0 && f->plain_len > 0);
	n = zst_compress(z, plain, f->plain_len, body, f->plain_len - 1);
	f->flags = n < 0 ? FRAME_STORED : 0;
	if (n < 0) {
		n = (ssize_t)f->plain_len;
		payload = plain;
	}
	f->sealed_len = (uint32_t)n + CRYPT_TAG_LEN;
	frame_head_encode(out, f);
	make_nonce(nonce, f);
	make_ad(ad, k, offset, out);
	crypt_aead_seal(k->aead, nonce, ad, sizeof(ad), payload, (size_t)n,
			body, body + n);
	end = FRAME_HEAD_LEN + f->sealed_len;
	memset(out + end, 0, frame_size(f) - end);
	return frame_size(f);
}

int frame_open(struct frame_key *k, struct zst *z, uint64_t offset, uint8_t *raw,
	       size_t len, struct frame *ret, void *plain, size_t room)
{
	uint8_t nonce[CRYPT_NONCE_LEN], ad[AD_LEN];
	uint8_t *body = raw + FRAME_HEAD_LEN;
	struct frame f;
	size_t n;
	int r;

	if (len < FRAME_HEAD_LEN)
		return -EBADMSG;
	r = frame_head_decode(&f, raw);
	if (r < 0)
		return r;
	if (f.sealed_len > len - FRAME_HEAD_LEN || f.plain_len > room)
		return -EBADMSG;
	n = f.sealed_len - CRYPT_TAG_LEN;
	make_nonce(nonce, &f);
	make_ad(ad, k, offset, raw);
	r = crypt_aead_open(k->aead, nonce, ad, sizeof(ad), body, n, body + n,
			    body);
	if (r < 0)
		return r;
	if (f.flags & FRAME_STORED)
		memcpy(plain, body, n);
	else
		r = zst_decompress(z, body, n, plain, f.plain_len);
	if (r == 0)
		*ret = f;
	return r;
}
