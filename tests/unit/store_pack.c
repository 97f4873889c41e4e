/*
 * pack: the vectors of ADR 0030, refusal of bad headers, and scans of whole,
 * torn at every byte, damaged and twice written packs.
 */
#include "store/frame.h"
#include "store/pack.h"
#include "tests/hex.h"

#include <sys/mman.h>

static const char head_hex[] =
	"4352594f5041434b0100000000000000a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
	"15cd55f551728618000000000000000000000000000000000000000079caa3b4";

static uint8_t pack_id[PACK_ID_LEN], pack_key[CRYPT_KEY_LEN];

static void test_key_and_name(void)
{
	uint8_t data_key[32];
	char path[PACK_PATH_LEN], nick[PACK_NICK_LEN];

	for (size_t i = 0; i < 32; i++)
		data_key[i] = (uint8_t)i;
	for (size_t i = 0; i < PACK_ID_LEN; i++)
		pack_id[i] = (uint8_t)(0xa0 + i);
	pack_key_derive(pack_key, data_key, pack_id);
	ok(hex_same(pack_key, "d8b8b9b4bbe2c413426ef6d1759319fd"
			      "cdee66556270d4c604954e92af58eaea"),
	   "key of a pack");
	pack_path(path, pack_id);
	is_str(path, "a0/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf.pack", "its path");
	pack_nick(nick, pack_id);
	is_str(nick, "a0a1a2a3", "its name in messages");
}

static int decode_changed(size_t at, uint8_t to, bool fix_crc)
{
	uint8_t h[PACK_HEAD_LEN];
	struct pack_head head;
	struct err e;

	hex_read(h, sizeof(h), head_hex);
	h[at] = to;
	if (fix_crc)
		put_u32(h + 60, crypt_crc32c(h, 60));
	return pack_head_decode(&head, h, &e);
}

static void test_head(void)
{
	struct pack_head head = { .created_ns = 1767225600123456789 }, back;
	uint8_t h[PACK_HEAD_LEN];
	struct err e;

	memcpy(head.id, pack_id, PACK_ID_LEN);
	pack_head_encode(h, &head);
	ok(hex_same(h, head_hex), "header as in the ADR");
	is_int(pack_head_decode(&back, h, &e), 0, "decodes");
	is_mem(back.id, pack_id, PACK_ID_LEN, "its id");
	is_int(back.created_ns, head.created_ns, "its time");
	is_int(decode_changed(0, 'c', true), -EBADMSG, "another magic");
	is_int(decode_changed(20, 0, false), -EBADMSG, "a changed byte");
	is_int(decode_changed(8, 2, true), -EBADMSG, "a later version");
	is_int(decode_changed(11, 1, true), -EBADMSG, "an unknown flag");
	is_int(decode_changed(15, 1, true), -EBADMSG, "reserved bytes, early");
	is_int(decode_changed(59, 1, true), -EBADMSG, "reserved bytes, late");
}

static void test_loc(void)
{
	uint64_t a = loc_make(3, 4096, 2);

	is_int(loc_pack(a), 3, "pack of a loc");
	is_int(loc_offset(a), 4096, "offset of a loc");
	is_int(loc_slot(a), 2, "slot of a loc");
	a = loc_make(LOC_PACK_MAX, 0xffffffffull * 16, 3);
	is_int(loc_pack(a), LOC_PACK_MAX, "largest pack");
	is_int(loc_offset(a), 0xffffffffull * 16, "largest offset");
	is_int(loc_slot(a), 3, "largest slot");
	ok(loc_make(1, 64, 0) > loc_make(0, 1 << 30, 3) &&
		   loc_make(1, 80, 0) > loc_make(1, 64, 3),
	   "locs sort by pack, offset, slot");
	ok(!loc_is_stored(LOC_BASE) && !loc_is_stored(LOC_ZERO) &&
		   loc_is_stored(loc_make(0, PACK_HEAD_LEN, 0)),
	   "no place is a special value");
}

/* A pack of frames numbered 0 .. nr-1; offset of frame i in at[i]. */
static int make_pack(unsigned int nr, uint64_t *at, uint32_t skip_number)
{
	struct pack_head head = { .created_ns = 5 };
	uint8_t h[PACK_HEAD_LEN], text[600], raw[1024];
	struct frame_key k;
	struct zst *z = zst_new(1);
	int fd = memfd_create("pack", 0);

	memcpy(head.id, pack_id, PACK_ID_LEN);
	pack_head_encode(h, &head);
	frame_key_init(&k, pack_id, pack_key);
	at[0] = PACK_HEAD_LEN;
	base_pwrite_all(fd, h, sizeof(h), 0);
	for (uint32_t i = 0; i < nr; i++) {
		struct frame f = { .type = FRAME_DEVICE,
				   .number = i + (i >= skip_number),
				   .plain_len = 100 + 97 * i };
		size_t n;

		memset(text, (int)('a' + i), sizeof(text));
		n = frame_seal(&k, z, at[i], &f, text, raw);
		base_pwrite_all(fd, raw, n, at[i]);
		at[i + 1] = at[i] + n;
	}
	frame_key_done(&k);
	zst_free(z);
	return fd;
}

struct seen {
	unsigned int nr, stop_at;
	bool good;
	uint64_t *at;
};

static int on_frame(void *ctx, const struct frame *f, uint64_t offset,
		    const void *plain)
{
	struct seen *s = ctx;
	const uint8_t *p = plain;

	s->good &= f->number == s->nr && offset == s->at[s->nr] &&
		   f->plain_len == 100 + 97 * s->nr && p[0] == 'a' + s->nr &&
		   p[f->plain_len - 1] == 'a' + s->nr;
	s->nr++;
	return s->nr == s->stop_at ? 42 : 0;
}

static void test_scan(void)
{
	uint64_t at[8];
	int fd = make_pack(5, at, 99);
	struct seen s = { .good = true, .at = at };
	struct pack_scan found;
	struct err e;

	is_int(pack_scan(fd, pack_key, on_frame, &s, &found, &e), 0, "scans");
	ok(s.good && s.nr == 5, "every frame, in order, with its bytes");
	is_int(found.frames, 5, "count");
	is_int(found.end, at[5], "end");
	is_int(found.size, at[5], "size");
	is_int(found.head.created_ns, 5, "header");
	s = (struct seen){ .good = true, .at = at, .stop_at = 3 };
	is_int(pack_scan(fd, pack_key, on_frame, &s, &found, &e), 42,
	       "the callback stops it");
	is_int(s.nr, 3, "there");
	close(fd);
}

static void test_torn(void)
{
	uint64_t at[8];
	int fd = make_pack(3, at, 99);
	struct pack_scan found;
	struct err e;
	bool good = true;

	for (uint64_t len = at[3]; len-- > PACK_HEAD_LEN;) {
		unsigned int whole = 0;

		if (ftruncate(fd, (off_t)len) < 0)
			bail("ftruncate");
		while (at[whole + 1] <= len)
			whole++;
		good &= !pack_scan(fd, pack_key, NULL, NULL, &found, &e) &&
			found.frames == whole && found.end == at[whole] &&
			found.size == len;
	}
	ok(good, "cut at any byte: the whole frames before it remain");
	if (ftruncate(fd, PACK_HEAD_LEN - 1) < 0)
		bail("ftruncate");
	is_int(pack_scan(fd, pack_key, NULL, NULL, &found, &e), -EBADMSG,
	       "cut in the header");
	close(fd);
}

static void test_damaged(void)
{
	uint64_t at[8];
	int fd = make_pack(3, at, 99);
	struct pack_scan found;
	uint8_t wrong[CRYPT_KEY_LEN] = { 0 };
	struct err e;

	base_pwrite_all(fd, "\1", 1, at[1] + FRAME_HEAD_LEN + 2);
	is_int(pack_scan(fd, pack_key, NULL, NULL, &found, &e), 0, "damage");
	is_int(found.end, at[1], "ends the scan before it");
	ok(found.end < found.size, "and is told by the size");
	is_int(pack_scan(fd, wrong, NULL, NULL, &found, &e), 0, "wrong key");
	is_int(found.frames, 0, "opens nothing");
	close(fd);
	fd = make_pack(3, at, 1);
	is_int(pack_scan(fd, pack_key, NULL, NULL, &found, &e), -EBADMSG,
	       "a number left out is no torn tail");
	ok(strstr(e.msg, "frame 2 where frame 1"), "and says so: %s", e.msg);
	close(fd);
}

int main(void)
{
	test_key_and_name();
	test_head();
	test_loc();
	test_scan();
	test_torn();
	test_damaged();
	return tap_done();
}
