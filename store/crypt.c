/*
 * crypt: thin, total wrappers over OpenSSL 3's EVP interface.
 *
 * Algorithms are fetched once per process and kept for its life; contexts
 * hold a key schedule, so that the cost of a small operation is the
 * operation. In OpenSSL 3 a fetch costs more than hashing a page.
 *
 * Invariants:
 *  1. A primitive that can't do its work ends the process. The only answers
 *     are those of an opening: authentic, or -EBADMSG with the output wiped.
 *  2. Nothing here chooses a nonce except crypt_box_seal(), whose nonces are
 *     96 random bits: one key seals far fewer than 2^32 boxes.
 *  3. Keys live only in OpenSSL's contexts, which wipe them when freed.
 *
 * A crash leaves nothing behind: no state outlives the process.
 */
#include "store/crypt.h"

#include <limits.h>
#include <pthread.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>

/* Fetched once; immutable afterwards, so shared by all threads. */
static struct {
	EVP_MD *sha256;
	EVP_CIPHER *gcm, *xts, *ctr;
	pthread_key_t hash_ctx; /* this thread's context of crypt_sha256() */
} lib;
static pthread_once_t lib_once = PTHREAD_ONCE_INIT;

static void must(bool good, const char *what)
{
	if (!good)
		base_panic("crypto library", what, __FILE__, __LINE__);
}

static void lib_free_ctx(void *ctx)
{
	EVP_MD_CTX_free(ctx);
}

static void lib_fetch(void)
{
	lib.sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	lib.gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
	lib.xts = EVP_CIPHER_fetch(NULL, "AES-256-XTS", NULL);
	lib.ctr = EVP_CIPHER_fetch(NULL, "AES-256-CTR", NULL);
	must(lib.sha256 && lib.gcm && lib.xts && lib.ctr, "fetch algorithms");
	must(!pthread_key_create(&lib.hash_ctx, lib_free_ctx), "thread key");
}

static void lib_init(void)
{
	must(!pthread_once(&lib_once, lib_fetch), "initialise");
}

/* OpenSSL counts in int. */
static int ilen(size_t len)
{
	PRE(len <= INT_MAX);
	return (int)len;
}

/* --- hashes --------------------------------------------------------------- */

static EVP_MD_CTX *hash_ctx_of_thread(void)
{
	EVP_MD_CTX *ctx;

	lib_init();
	ctx = pthread_getspecific(lib.hash_ctx);
	if (ctx)
		return ctx;
	ctx = EVP_MD_CTX_new();
	must(ctx, "hash context");
	must(!pthread_setspecific(lib.hash_ctx, ctx), "hash context");
	return ctx;
}

static void hash_whole(EVP_MD_CTX *ctx, uint8_t *ret, const void *p, size_t len)
{
	must(EVP_DigestInit_ex2(ctx, lib.sha256, NULL) == 1 &&
		     EVP_DigestUpdate(ctx, p, len) == 1 &&
		     EVP_DigestFinal_ex(ctx, ret, NULL) == 1,
	     "SHA-256");
}

void crypt_sha256(uint8_t ret[CRYPT_HASH_LEN], const void *p, size_t len)
{
	hash_whole(hash_ctx_of_thread(), ret, p, len);
}

struct crypt_hash {
	EVP_MD_CTX *ctx;
};

struct crypt_hash *crypt_hash_new(void)
{
	struct crypt_hash *h = base_alloc(sizeof(*h));

	lib_init();
	h->ctx = EVP_MD_CTX_new();
	must(h->ctx, "hash context");
	crypt_hash_init(h);
	return h;
}

void crypt_hash_free(struct crypt_hash *h)
{
	if (!h)
		return;
	EVP_MD_CTX_free(h->ctx);
	free(h);
}

void crypt_hash_init(struct crypt_hash *h)
{
	must(EVP_DigestInit_ex2(h->ctx, lib.sha256, NULL) == 1, "SHA-256");
}

void crypt_hash_put(struct crypt_hash *h, const void *p, size_t len)
{
	must(EVP_DigestUpdate(h->ctx, p, len) == 1, "SHA-256");
}

void crypt_hash_end(struct crypt_hash *h, uint8_t ret[CRYPT_HASH_LEN])
{
	must(EVP_DigestFinal_ex(h->ctx, ret, NULL) == 1, "SHA-256");
}

void crypt_hmac_sha256(uint8_t ret[CRYPT_HASH_LEN], const void *key,
		       size_t key_len, const void *p, size_t len)
{
	unsigned int n = 0;

	must(HMAC(EVP_sha256(), key, ilen(key_len), p, len, ret, &n) &&
		     n == CRYPT_HASH_LEN,
	     "HMAC");
}

/*
 * RFC 5869, by hand on top of HMAC: OpenSSL's KDF object takes more code to
 * set up than the algorithm has steps.
 */
void crypt_hkdf(uint8_t *ret, size_t ret_len, const uint8_t key[CRYPT_KEY_LEN],
		const char *label, const void *extra, size_t extra_len)
{
	static const uint8_t no_salt[CRYPT_HASH_LEN];
	uint8_t prk[CRYPT_HASH_LEN], t[CRYPT_HASH_LEN], in[512];
	size_t label_len = strlen(label), info_len = label_len + extra_len;
	size_t had = 0; /* bytes of T(i - 1) in front of info; none for T(1) */

	PRE(ret_len <= 255 * CRYPT_HASH_LEN);
	PRE(info_len + CRYPT_HASH_LEN + 1 <= sizeof(in));
	crypt_hmac_sha256(prk, no_salt, sizeof(no_salt), key, CRYPT_KEY_LEN);
	for (uint8_t i = 1; ret_len; i++) {
		size_t n = MIN(ret_len, sizeof(t));

		memcpy(in, t, had);
		memcpy(in + had, label, label_len);
		if (extra_len)
			memcpy(in + had + label_len, extra, extra_len);
		in[had + info_len] = i;
		crypt_hmac_sha256(t, prk, sizeof(prk), in, had + info_len + 1);
		memcpy(ret, t, n);
		ret += n;
		ret_len -= n;
		had = sizeof(t);
	}
	base_wipe(prk, sizeof(prk));
	base_wipe(t, sizeof(t));
	base_wipe(in, sizeof(in));
}

/* --- AES-256-GCM ---------------------------------------------------------- */

/*
 * A context for each direction, since one that is turned around would have
 * to be given its key again.
 */
struct crypt_aead {
	EVP_CIPHER_CTX *seal, *open;
};

static EVP_CIPHER_CTX *cipher_new(const EVP_CIPHER *cipher, const uint8_t *key,
				  int enc)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

	must(ctx && EVP_CipherInit_ex2(ctx, cipher, key, NULL, enc, NULL) == 1,
	     "cipher context");
	return ctx;
}

struct crypt_aead *crypt_aead_new(const uint8_t key[CRYPT_KEY_LEN])
{
	struct crypt_aead *a = base_alloc(sizeof(*a));

	lib_init();
	a->seal = cipher_new(lib.gcm, key, 1);
	a->open = cipher_new(lib.gcm, key, 0);
	return a;
}

void crypt_aead_free(struct crypt_aead *a)
{
	if (!a)
		return;
	EVP_CIPHER_CTX_free(a->seal);
	EVP_CIPHER_CTX_free(a->open);
	free(a);
}

/* Starts a message: nonce, then what is authenticated but not hidden. */
static void aead_begin(EVP_CIPHER_CTX *ctx, const uint8_t *nonce,
		       const void *ad, size_t ad_len)
{
	int n;

	must(EVP_CipherInit_ex2(ctx, NULL, NULL, nonce, -1, NULL) == 1 &&
		     (!ad_len ||
		      EVP_CipherUpdate(ctx, NULL, &n, ad, ilen(ad_len)) == 1),
	     "AES-256-GCM");
}

void crypt_aead_seal(struct crypt_aead *a, const uint8_t nonce[CRYPT_NONCE_LEN],
		     const void *ad, size_t ad_len, const void *in, size_t len,
		     void *out, uint8_t tag[CRYPT_TAG_LEN])
{
	uint8_t none[16];
	int n = 0;

	aead_begin(a->seal, nonce, ad, ad_len);
	must((!len || EVP_CipherUpdate(a->seal, out, &n, in, ilen(len)) == 1) &&
		     EVP_CipherFinal_ex(a->seal, none, &n) == 1 && n == 0 &&
		     EVP_CIPHER_CTX_ctrl(a->seal, EVP_CTRL_AEAD_GET_TAG,
					 CRYPT_TAG_LEN, tag) == 1,
	     "AES-256-GCM seal");
}

int crypt_aead_open(struct crypt_aead *a, const uint8_t nonce[CRYPT_NONCE_LEN],
		    const void *ad, size_t ad_len, const void *in, size_t len,
		    const uint8_t tag[CRYPT_TAG_LEN], void *out)
{
	uint8_t none[16], expect[CRYPT_TAG_LEN];
	int n = 0;

	memcpy(expect, tag, sizeof(expect)); /* the library takes no const */
	aead_begin(a->open, nonce, ad, ad_len);
	must((!len || EVP_CipherUpdate(a->open, out, &n, in, ilen(len)) == 1) &&
		     EVP_CIPHER_CTX_ctrl(a->open, EVP_CTRL_AEAD_SET_TAG,
					 CRYPT_TAG_LEN, expect) == 1,
	     "AES-256-GCM open");
	if (EVP_CipherFinal_ex(a->open, none, &n) == 1)
		return 0;
	base_wipe(out, len);
	return -EBADMSG;
}

void crypt_box_seal(const uint8_t key[CRYPT_KEY_LEN], const void *ad,
		    size_t ad_len, const void *in, size_t len, uint8_t *out)
{
	struct crypt_aead *a = crypt_aead_new(key);

	base_random(out, CRYPT_NONCE_LEN);
	crypt_aead_seal(a, out, ad, ad_len, in, len, out + CRYPT_NONCE_LEN,
			out + CRYPT_NONCE_LEN + len);
	crypt_aead_free(a);
}

int crypt_box_open(const uint8_t key[CRYPT_KEY_LEN], const void *ad,
		   size_t ad_len, const uint8_t *in, size_t len, void *out)
{
	struct crypt_aead *a;
	int r;

	if (len < CRYPT_BOX_EXTRA)
		return -EBADMSG;
	len -= CRYPT_BOX_EXTRA;
	a = crypt_aead_new(key);
	r = crypt_aead_open(a, in, ad, ad_len, in + CRYPT_NONCE_LEN, len,
			    in + CRYPT_NONCE_LEN + len, out);
	crypt_aead_free(a);
	return r;
}

/* --- AES-256-XTS and AES-256-CTR ------------------------------------------ */

struct crypt_xts {
	EVP_CIPHER_CTX *enc, *dec;
};

struct crypt_xts *crypt_xts_new(const uint8_t key[CRYPT_XTS_KEY_LEN])
{
	struct crypt_xts *x = base_alloc(sizeof(*x));

	lib_init();
	x->enc = cipher_new(lib.xts, key, 1);
	x->dec = cipher_new(lib.xts, key, 0);
	return x;
}

void crypt_xts_free(struct crypt_xts *x)
{
	if (!x)
		return;
	EVP_CIPHER_CTX_free(x->enc);
	EVP_CIPHER_CTX_free(x->dec);
	free(x);
}

/* IEEE 1619: the tweak is the number of the data unit, little-endian. */
static void xts_block(EVP_CIPHER_CTX *ctx, uint64_t block, const void *in,
		      void *out)
{
	uint8_t tweak[16] = { 0 };
	int n = 0;

	put_u64(tweak, block);
	must(EVP_CipherInit_ex2(ctx, NULL, NULL, tweak, -1, NULL) == 1 &&
		     EVP_CipherUpdate(ctx, out, &n, in, CRYO_PAGE) == 1 &&
		     n == CRYO_PAGE,
	     "AES-256-XTS");
}

void crypt_xts_encrypt(struct crypt_xts *x, uint64_t block, const void *in,
		       void *out)
{
	xts_block(x->enc, block, in, out);
}

void crypt_xts_decrypt(struct crypt_xts *x, uint64_t block, const void *in,
		       void *out)
{
	xts_block(x->dec, block, in, out);
}

struct crypt_stream {
	EVP_CIPHER_CTX *ctx;
};

struct crypt_stream *crypt_stream_new(void)
{
	struct crypt_stream *s = base_alloc(sizeof(*s));

	lib_init();
	s->ctx = EVP_CIPHER_CTX_new();
	must(s->ctx && EVP_EncryptInit_ex2(s->ctx, lib.ctr, NULL, NULL, NULL),
	     "cipher context");
	return s;
}

void crypt_stream_free(struct crypt_stream *s)
{
	if (!s)
		return;
	EVP_CIPHER_CTX_free(s->ctx);
	free(s);
}

void crypt_stream_expand(struct crypt_stream *s,
			 const uint8_t seed[CRYPT_KEY_LEN], void *out, size_t len)
{
	static const uint8_t iv[16];
	int n = 0;

	memset(out, 0, len);
	must(EVP_EncryptInit_ex2(s->ctx, NULL, seed, iv, NULL) == 1 &&
		     EVP_EncryptUpdate(s->ctx, out, &n, out, ilen(len)) == 1,
	     "AES-256-CTR");
}

/* --- CRC32C --------------------------------------------------------------- */

/*
 * Four bits a step: it only ever sees headers of some forty bytes, where a
 * table that fits one cache line beats both a large table and a CPU probe.
 */
uint32_t crypt_crc32c(const void *p, size_t len)
{
	static const uint32_t table[16] = {
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
		0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
	};
	const uint8_t *b = p;
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len; i++) {
		crc ^= b[i];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}
