/*
 * frame: the vectors of ADR 0030, round trips over every type and size, and
 * refusal of every single-bit change, every cut and every other place.
 */
#include "store/frame.h"
#include "tests/hex.h"

static const char device_text[] = "cryo device state, not compressed";
static const char device_hex[] =
	"46524d4502010000000000002100000031000000b297fdc0e2120cafb02dd47d"
	"80a049a0a744bbd06348d571c268721664ae964a5bccfdd4fa9cc11994711249"
	"b35c34e2030172eded00000000000000";
static const char page_hex[] =
	"46524d450100010001000000001000009c000000374c3cdc6a182418202b71a0"
	"94f68773dc213264dbd86f35f97425fc1d6bf2acf9edcdfcd6ada0cf2d15ca87"
	"5250bbe4bae2e05153af4b024cdf2a378553e5f03fd4b69a2d0539863b2f96fe"
	"0d88692f68b2a7352b72c82bb9bc119145643213aa9bbb2483aa5e13e3b41581"
	"d95fb66aafff5eba5afba41f6f4015ac4cc21627c868ff86ac7a76bcc504a3b7"
	"510111c3e128f204ae5ef28c9ee906d84c9e0af1000000000000000000000000";

static struct frame_key key;
static struct zst *z;

static void make_key(struct frame_key *k, uint8_t first)
{
	uint8_t data_key[32], id[PACK_ID_LEN], pack_key[32];

	for (size_t i = 0; i < sizeof(data_key); i++)
		data_key[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof(id); i++)
		id[i] = (uint8_t)(first + i);
	pack_key_derive(pack_key, data_key, id);
	frame_key_init(k, id, pack_key);
}

static void test_vectors(void)
{
	uint8_t raw[512], plain[FRAME_DATA_MAX], text[64] = { 0 };
	struct frame f = { .type = FRAME_DEVICE, .plain_len = 33 };
	size_t n;
	bool good = true;

	memcpy(text, device_text, 33);
	n = frame_seal(&key, z, 64, &f, text, raw);
	is_int(n, sizeof(device_hex) / 2, "size of the sealed vector");
	ok(hex_same(raw, device_hex), "sealed as in the ADR");
	is_int(f.flags, FRAME_STORED, "33 bytes don't compress");
	is_int(f.sealed_len, 49, "sealed length");

	n = hex_read(raw, sizeof(raw), page_hex);
	is_int(frame_open(&key, z, 160, raw, n, &f, plain, sizeof(plain)), 0,
	       "opens the page frame of the ADR");
	is_int(f.type, FRAME_PAGES, "type");
	is_int(f.pages, 1, "pages");
	is_int(f.number, 1, "number");
	is_int(frame_size(&f), n, "size");
	for (size_t i = 0; i < CRYO_PAGE; i++)
		good &= plain[i] == i / 64;
	ok(good, "its content");
	n = hex_read(raw, sizeof(raw), page_hex);
	is_int(frame_open(&key, z, 176, raw, n, &f, plain, sizeof(plain)),
	       -EBADMSG, "not at another offset");
	n = hex_read(raw, sizeof(raw), page_hex);
	is_int(frame_open(&key, z, 160, raw, n, &f, plain, CRYO_PAGE - 1),
	       -EBADMSG, "not into too little room");
}

static void test_other_pack(void)
{
	uint8_t raw[512], plain[FRAME_DATA_MAX];
	struct frame_key other;
	struct frame f;
	size_t n = hex_read(raw, sizeof(raw), page_hex);

	make_key(&other, 0xa1);
	is_int(frame_open(&other, z, 160, raw, n, &f, plain, sizeof(plain)),
	       -EBADMSG, "not in another pack");
	frame_key_done(&other);
	/* the same key in a pack of another name: the name alone refuses */
	n = hex_read(raw, sizeof(raw), page_hex);
	key.pack[0] ^= 1;
	is_int(frame_open(&key, z, 160, raw, n, &f, plain, sizeof(plain)),
	       -EBADMSG, "not under another pack's name");
	key.pack[0] ^= 1;
}

static void test_damage(void)
{
	uint8_t whole[512], raw[512], plain[FRAME_DATA_MAX];
	size_t n = hex_read(whole, sizeof(whole), page_hex);
	size_t end = FRAME_HEAD_LEN + 0x9c, opened = 0;
	struct frame f = { .number = 77 };

	for (size_t bit = 0; bit < 8 * end; bit++) {
		memcpy(raw, whole, n);
		raw[bit / 8] ^= (uint8_t)(1 << (bit % 8));
		opened += frame_open(&key, z, 160, raw, n, &f, plain,
				     sizeof(plain)) != -EBADMSG;
	}
	is_int(opened, 0, "every changed bit is refused");
	for (size_t len = 0; len < end; len++) {
		memcpy(raw, whole, n);
		opened += frame_open(&key, z, 160, raw, len, &f, plain,
				     sizeof(plain)) != -EBADMSG;
	}
	is_int(opened, 0, "every cut is refused");
	is_int(f.number, 77, "nothing is given out on failure");
}

/* A header as an encoder with a bug or malice would make it. */
static int decode_fields(uint8_t type, uint8_t flags, uint16_t pages,
			 uint32_t plain_len, uint32_t sealed_len)
{
	uint8_t h[FRAME_HEAD_LEN] = { 'F', 'R', 'M', 'E', type, flags };
	struct frame f;

	put_u16(h + 6, pages);
	put_u32(h + 12, plain_len);
	put_u32(h + 16, sealed_len);
	put_u32(h + 20, crypt_crc32c(h, 20));
	return frame_head_decode(&f, h);
}

static void test_heads(void)
{
	static const struct {
		const char *what;
		uint8_t type, flags;
		uint16_t pages;
		uint32_t plain, sealed;
		int want;
	} c[] = {
		{ "four pages", 1, 0, 4, 16384, 5000, 0 },
		{ "four pages, stored", 1, 1, 4, 16384, 16400, 0 },
		{ "no type", 0, 0, 0, 100, 50, -EBADMSG },
		{ "a type to come", 5, 0, 0, 100, 50, -EBADMSG },
		{ "a flag to come", 1, 2, 4, 16384, 5000, -EBADMSG },
		{ "no pages", 1, 0, 0, 4096, 50, -EBADMSG },
		{ "five pages", 1, 0, 5, 20480, 5000, -EBADMSG },
		{ "length is not pages", 1, 0, 2, 4096, 50, -EBADMSG },
		{ "pages of a manifest", 3, 0, 1, 4096, 50, -EBADMSG },
		{ "manifest at its limit", 3, 0, 0, 1 << 20, 50, 0 },
		{ "manifest over it", 3, 0, 0, (1 << 20) + 1, 50, -EBADMSG },
		{ "device at its limit", 2, 0, 0, 4 << 20, 50, 0 },
		{ "device over it", 2, 0, 0, (4 << 20) + 1, 50, -EBADMSG },
		{ "empty", 2, 1, 0, 0, 16, -EBADMSG },
		{ "no payload", 2, 0, 0, 100, 16, -EBADMSG },
		{ "less than a tag", 2, 0, 0, 100, 15, -EBADMSG },
		{ "no sealed bytes", 2, 0, 0, 100, 0, -EBADMSG },
		{ "stored, shorter", 2, 1, 0, 100, 115, -EBADMSG },
		{ "compressed to more", 2, 0, 0, 100, 116, -EBADMSG },
		{ "sealed without end", 2, 0, 0, 100, UINT32_MAX, -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		is_int(decode_fields(c[i].type, c[i].flags, c[i].pages,
				     c[i].plain, c[i].sealed),
		       c[i].want, "header: %s", c[i].what);
}

static void test_laws(void)
{
	uint64_t seed = tap_seed(), offset = 64;
	uint8_t *in = base_alloc(FRAME_PLAIN_MAX);
	uint8_t *out = base_alloc(FRAME_PLAIN_MAX);
	uint8_t *raw = base_alloc(frame_bound(FRAME_PLAIN_MAX) + 1);
	bool same = true, bounded = true;

	for (uint32_t i = 0; i < 120; i++) {
		enum frame_type type = (enum frame_type)(1 + i % 4);
		struct frame f = { .type = type, .number = i }, g;
		size_t n, noise;

		f.pages = type == FRAME_PAGES ? 1 + (i / 4) % 4 : 0;
		f.plain_len = f.pages ? f.pages * CRYO_PAGE
				      : 1 + (uint32_t)(tap_rand(&seed) % 90000);
		noise = tap_rand(&seed) % (f.plain_len + 1);
		memset(in, (int)i, f.plain_len);
		for (size_t k = 0; k < noise; k++)
			in[k] = (uint8_t)tap_rand(&seed);
		raw[frame_bound(f.plain_len)] = 0x5a;
		n = frame_seal(&key, z, offset, &f, in, raw);
		bounded &= n % 16 == 0 && n <= frame_bound(f.plain_len) &&
			   raw[frame_bound(f.plain_len)] == 0x5a;
		same &= !frame_open(&key, z, offset, raw, n, &g, out,
				    FRAME_PLAIN_MAX) &&
			!memcmp(in, out, f.plain_len) && g.type == f.type &&
			g.number == i && g.plain_len == f.plain_len;
		offset += n;
	}
	ok(same, "open(seal(x)) = x");
	ok(bounded, "a frame is never longer than its bound");
	free(in);
	free(out);
	free(raw);
}

int main(void)
{
	make_key(&key, 0xa0);
	z = zst_new(1);
	test_vectors();
	test_other_pack();
	test_damage();
	test_heads();
	test_laws();
	is_int(frame_bound(FRAME_DATA_MAX), 16432, "the longest data frame");
	frame_key_done(&key);
	zst_free(z);
	return tap_done();
}
