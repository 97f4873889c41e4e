/*
 * crypt against published vectors (FIPS 180-4, RFC 4231, RFC 5869, NIST GCM,
 * RFC 3720) and vectors computed by Python's `cryptography` and the openssl
 * command.
 */
#include "store/crypt.h"
#include "tests/tap.h"

#include <pthread.h>

static void unhex(uint8_t *out, const char *hex)
{
	for (; hex[0] && hex[1]; hex += 2) {
		unsigned int v = 0;

		if (sscanf(hex, "%2x", &v) != 1)
			bail("bad hex in the test");
		*out++ = (uint8_t)v;
	}
}

static bool same_hex(const void *p, const char *hex)
{
	uint8_t want[128];

	unhex(want, hex);
	return !memcmp(p, want, strlen(hex) / 2);
}

static void count_up(uint8_t *p, size_t len, unsigned int step)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * step);
}

static void test_hash(void)
{
	struct crypt_hash *h = crypt_hash_new();
	uint8_t d[32], page[4096] = { 0 };

	crypt_sha256(d, "abc", 3);
	ok(same_hex(d, "ba7816bf8f01cfea414140de5dae2223"
		       "b00361a396177a9cb410ff61f20015ad"),
	   "SHA-256 of abc (FIPS 180-4)");
	crypt_sha256(d, page, sizeof(page));
	ok(same_hex(d, "ad7facb2586fc6e966c004d7d1d16b02"
		       "4f5805ff7cb47c7a85dabd8b48892ca7"),
	   "SHA-256 of the zero page");
	crypt_hash_put(h, "a", 1);
	crypt_hash_put(h, "bc", 2);
	crypt_hash_end(h, d);
	ok(same_hex(d, "ba7816bf8f01cfea"), "in pieces");
	crypt_hash_init(h);
	crypt_hash_end(h, d);
	ok(same_hex(d, "e3b0c44298fc1c149afbf4c8996fb924"), "reused, empty");
	crypt_hash_free(h);
	crypt_hash_free(NULL);

	crypt_hmac_sha256(d, "Jefe", 4, "what do ya want for nothing?", 28);
	ok(same_hex(d, "5bdcc146bf60754e6a042426089575c7"
		       "5a003f089d2739839dec58b964ec3843"),
	   "HMAC (RFC 4231, case 2)");
}

static void test_hkdf(void)
{
	uint8_t key[32], extra[16], out[80];

	count_up(key, sizeof(key), 1);
	count_up(extra, sizeof(extra), 1);
	crypt_hkdf(out, sizeof(out), key, "cryo-test", extra, sizeof(extra));
	ok(same_hex(out, "0cc0ed8fded98d118df26828ee1db229"
			 "ba90a4da55ed5ac6c87043492e69f7e8"
			 "07e81365375bbc841db4a31fdb7bd75f"
			 "26daa05dc548b7f8298ab53b7487c6d5"
			 "ba58cce752c9dc2340d6bc3e1076fcaa"),
	   "HKDF, three blocks");
	crypt_hkdf(out, 32, key, "cryo-test", extra, sizeof(extra));
	ok(same_hex(out, "0cc0ed8fded98d118df26828ee1db229"), "prefix");
	crypt_hkdf(out, 32, key, "cryo-tesu", extra, sizeof(extra));
	ok(!same_hex(out, "0cc0ed8fded98d118df26828ee1db229"),
	   "another label, another key");
}

static void test_aead(void)
{
	uint8_t key[32], nonce[12], out[16], tag[16], back[16];
	struct crypt_aead *a;

	count_up(key, sizeof(key), 1);
	count_up(nonce, sizeof(nonce), 1);
	a = crypt_aead_new(key);
	for (int round = 0; round < 2; round++) {
		crypt_aead_seal(a, nonce, "ad", 2, "hello, capture", 14, out,
				tag);
		ok(same_hex(out, "2f67ba77aac9e278ec31e3fec38c") &&
			   same_hex(tag, "e7f5aed01f9c4e3ac9c81bfe572761e3"),
		   "GCM seals as the reference, round %d", round);
	}
	is_int(crypt_aead_open(a, nonce, "ad", 2, out, 14, tag, back), 0,
	       "opens");
	is_mem(back, "hello, capture", 14, "what was sealed");
	is_int(crypt_aead_open(a, nonce, "aD", 2, out, 14, tag, back), -EBADMSG,
	       "other additional data");
	is_mem(back, "\0\0\0\0\0\0\0\0\0\0\0\0\0", 14, "output is wiped");
	out[3] ^= 1;
	is_int(crypt_aead_open(a, nonce, "ad", 2, out, 14, tag, back), -EBADMSG,
	       "one bit of the text");
	out[3] ^= 1;
	tag[15] ^= 0x80;
	is_int(crypt_aead_open(a, nonce, "ad", 2, out, 14, tag, back), -EBADMSG,
	       "one bit of the tag");
	tag[15] ^= 0x80;
	nonce[0]++;
	is_int(crypt_aead_open(a, nonce, "ad", 2, out, 14, tag, back), -EBADMSG,
	       "another nonce");
	nonce[0]--;
	is_int(crypt_aead_open(a, nonce, "ad", 2, out, 14, tag, out), 0,
	       "in place, after failures");
	is_mem(out, "hello, capture", 14, "in place");
	memset(nonce, 0, sizeof(nonce));
	crypt_aead_seal(a, nonce, "", 0, "", 0, out, tag);
	ok(same_hex(tag, "f05d76ae4ab99fe5a6f69b3148c2363d"), "empty message");
	crypt_aead_free(a);
	crypt_aead_free(NULL);
}

static void test_box(void)
{
	uint8_t key[32], box[5 + CRYPT_BOX_EXTRA], box2[sizeof(box)], out[5];

	count_up(key, sizeof(key), 3);
	crypt_box_seal(key, "k", 1, "bytes", 5, box);
	crypt_box_seal(key, "k", 1, "bytes", 5, box2);
	ok(memcmp(box, box2, sizeof(box)) != 0, "boxes never repeat");
	is_int(crypt_box_open(key, "k", 1, box, sizeof(box), out), 0, "opens");
	is_mem(out, "bytes", 5, "what was in it");
	is_int(crypt_box_open(key, "l", 1, box, sizeof(box), out), -EBADMSG,
	       "other additional data");
	is_int(crypt_box_open(key, "k", 1, box, CRYPT_BOX_EXTRA - 1, out),
	       -EBADMSG, "too short to be a box");
	for (size_t i = 0; i < sizeof(box); i++) {
		box[i] ^= 0x10;
		if (crypt_box_open(key, "k", 1, box, sizeof(box), out) != -EBADMSG)
			ok(false, "byte %zu changed and still opened", i);
		box[i] ^= 0x10;
	}
	is_int(crypt_box_open(key, "k", 1, box, sizeof(box), out), 0,
	       "every byte is authenticated");
}

static void test_xts(void)
{
	uint8_t key[64], in[4096], out[4096], d[32];
	struct crypt_xts *x;

	count_up(key, sizeof(key), 1);
	count_up(in, sizeof(in), 7);
	x = crypt_xts_new(key);
	crypt_xts_encrypt(x, 0, in, out);
	crypt_sha256(d, out, sizeof(out));
	ok(same_hex(d, "a5e38d1bf6ebb1b66e096f216711d38c"
		       "90ccd3bfe50d205032336fddf71d4883"),
	   "XTS of block 0");
	crypt_xts_encrypt(x, 0x0102030405, in, out);
	crypt_sha256(d, out, sizeof(out));
	ok(same_hex(d, "07212c44cca92891468eaa7e443798b9"
		       "a4978f01411ae44a2572ee038436c0e8"),
	   "XTS of a block beyond 32 bits");
	crypt_xts_decrypt(x, 0x0102030405, out, out);
	is_mem(out, in, sizeof(in), "XTS back, in place");
	crypt_xts_free(x);
	crypt_xts_free(NULL);
}

static void test_stream(void)
{
	uint8_t seed[32], out[2048], d[32];
	struct crypt_stream *s = crypt_stream_new();

	for (unsigned int step = 0; step < 3; step++) {
		count_up(seed, sizeof(seed), step % 2 ? 1 : 5);
		memset(out, 0xaa, sizeof(out));
		crypt_stream_expand(s, seed, out, sizeof(out));
		crypt_sha256(d, out, sizeof(out));
		is_int(same_hex(d, "7bb5efb323a159a0310e83b87286e596"
				   "d177ce0b7d0d594f08ea6dc3f9c9d3c2"),
		       step % 2, "stream %u is its seed's alone", step);
	}
	crypt_stream_free(s);
	crypt_stream_free(NULL);
}

static void test_crc(void)
{
	uint8_t b[32];

	is_int(crypt_crc32c("123456789", 9), 0xe3069283, "CRC32C check value");
	memset(b, 0, sizeof(b));
	is_int(crypt_crc32c(b, 32), 0x8a9136aa, "32 zeros (RFC 3720)");
	memset(b, 0xff, sizeof(b));
	is_int(crypt_crc32c(b, 32), 0x62a8ab43, "32 ones (RFC 3720)");
	count_up(b, sizeof(b), 1);
	is_int(crypt_crc32c(b, 32), 0x46dd794e, "counting (RFC 3720)");
	is_int(crypt_crc32c(b, 0), 0, "nothing");
}

static void *hash_many(void *bad)
{
	uint8_t d[32], in[64];

	for (int i = 0; i < 2000; i++) {
		count_up(in, sizeof(in), 7);
		crypt_sha256(d, "abc", 3);
		if (!same_hex(d, "ba7816bf8f01cfea414140de5dae2223"))
			*(bool *)bad = true;
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t t[4];
	bool bad[4] = { false };

	for (size_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, hash_many, &bad[i]);
	for (size_t i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ok(!bad[0] && !bad[1] && !bad[2] && !bad[3], "hash from four threads");
}

int main(void)
{
	test_hash();
	test_hkdf();
	test_aead();
	test_box();
	test_xts();
	test_stream();
	test_crc();
	test_threads();
	return tap_done();
}
