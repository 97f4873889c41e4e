/*
 * Any bytes as a frame. As they are, the cipher refuses them; so they are
 * also sealed as the payload of a frame with a header of their own choice:
 * what somebody with the key could have written. Nothing may be written past
 * the room given, whatever the header or zstd's frame say.
 */
#include "store/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define ROOM (3 * CRYO_PAGE) /* less than a header may claim */

static void seal_as_payload(struct frame_key *k, uint8_t *raw, const uint8_t *p,
			    size_t len)
{
	uint8_t nonce[CRYPT_NONCE_LEN] = { 0 }, ad[PACK_ID_LEN + 8 + 24] = { 0 };
	struct frame f = {
		.type = (enum frame_type)(1 + p[0] % 4),
		.flags = p[1] & FRAME_STORED,
		.pages = p[0] % 4 ? 0 : 1 + p[2] % 4,
		.sealed_len = (uint32_t)len - 4 + CRYPT_TAG_LEN,
	};

	f.plain_len = f.pages ? f.pages * CRYO_PAGE
			      : 1 + get_u16(p + 2) % (2 * CRYO_PAGE);
	if (f.flags)
		f.plain_len = f.sealed_len - CRYPT_TAG_LEN, f.pages = 0;
	if (f.flags && f.type == FRAME_PAGES)
		f.type = FRAME_DEVICE;
	if (f.sealed_len - CRYPT_TAG_LEN >= f.plain_len && !f.flags)
		return;
	frame_head_encode(raw, &f);
	put_u64(ad + PACK_ID_LEN, 64);
	memcpy(ad + PACK_ID_LEN + 8, raw, FRAME_HEAD_LEN);
	crypt_aead_seal(k->aead, nonce, ad, sizeof(ad), p + 4, len - 4,
			raw + FRAME_HEAD_LEN, raw + FRAME_HEAD_LEN + len - 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static const uint8_t id[PACK_ID_LEN], key[CRYPT_KEY_LEN];
	static struct frame_key k;
	static struct zst *z;
	uint8_t *raw, *plain;
	struct frame f;

	if (len < 5 || len > 2 * CRYO_PAGE)
		return 0;
	if (!z) {
		z = zst_new(1);
		frame_key_init(&k, id, key);
	}
	raw = base_alloc(FRAME_HEAD_LEN + len + CRYPT_TAG_LEN);
	plain = base_alloc(ROOM);
	memcpy(raw, p, len);
	frame_open(&k, z, 64, raw, len, &f, plain, ROOM);
	seal_as_payload(&k, raw, p, len);
	if (!frame_open(&k, z, 64, raw, FRAME_HEAD_LEN + len + CRYPT_TAG_LEN,
			&f, plain, ROOM))
		POST(f.plain_len <= ROOM);
	free(raw);
	free(plain);
	return 0;
}
