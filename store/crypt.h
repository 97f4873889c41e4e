/*
 * crypt: the one place that calls OpenSSL. SHA-256 (FIPS 180-4), HMAC (RFC
 * 2104), HKDF (RFC 5869), AES-256-GCM (SP 800-38D), AES-256-XTS (IEEE 1619),
 * AES-256-CTR as a stream. Contexts hold fetched algorithms and key
 * schedules; one context serves one thread at a time. A primitive that fails
 * for lack of memory or a broken library panics; only opening (a forged or
 * torn input) is an answer: -EBADMSG.
 */
#ifndef STORE_CRYPT_H
#define STORE_CRYPT_H

#include "core/base.h"

#define CRYPT_HASH_LEN 32
#define CRYPT_KEY_LEN 32
#define CRYPT_TAG_LEN 16
#define CRYPT_NONCE_LEN 12

/* Whole-message hash; safe from any thread (a context per thread inside). */
void crypt_sha256(uint8_t ret[CRYPT_HASH_LEN], const void *p, size_t len);

/* Incremental hash. */
struct crypt_hash;
struct crypt_hash *crypt_hash_new(void);
void crypt_hash_free(struct crypt_hash *h);
void crypt_hash_init(struct crypt_hash *h);
void crypt_hash_put(struct crypt_hash *h, const void *p, size_t len);
void crypt_hash_end(struct crypt_hash *h, uint8_t ret[CRYPT_HASH_LEN]);

void crypt_hmac_sha256(uint8_t ret[CRYPT_HASH_LEN], const void *key,
		       size_t key_len, const void *p, size_t len);

/* HKDF-SHA-256 with an empty salt; `info` is "label" || extra bytes. */
void crypt_hkdf(uint8_t *ret, size_t ret_len, const uint8_t key[CRYPT_KEY_LEN],
		const char *label, const void *extra, size_t extra_len);

/*
 * AES-256-GCM under one key. seal: out gets len bytes, tag apart; the caller
 * never repeats a nonce under one key. open: -EBADMSG, and out is wiped.
 * in == out is allowed.
 */
struct crypt_aead;
struct crypt_aead *crypt_aead_new(const uint8_t key[CRYPT_KEY_LEN]);
void crypt_aead_free(struct crypt_aead *a); /* wipes; NULL is fine */
void crypt_aead_seal(struct crypt_aead *a, const uint8_t nonce[CRYPT_NONCE_LEN],
		     const void *ad, size_t ad_len, const void *in, size_t len,
		     void *out, uint8_t tag[CRYPT_TAG_LEN]);
int crypt_aead_open(struct crypt_aead *a, const uint8_t nonce[CRYPT_NONCE_LEN],
		    const void *ad, size_t ad_len, const void *in, size_t len,
		    const uint8_t tag[CRYPT_TAG_LEN], void *out);

/*
 * One-shot box for small things at rest (wrapped keys, event bodies, rows):
 * random nonce || ciphertext || tag = len + CRYPT_BOX_EXTRA bytes.
 */
#define CRYPT_BOX_EXTRA (CRYPT_NONCE_LEN + CRYPT_TAG_LEN)
void crypt_box_seal(const uint8_t key[CRYPT_KEY_LEN], const void *ad,
		    size_t ad_len, const void *in, size_t len, uint8_t *out);
int crypt_box_open(const uint8_t key[CRYPT_KEY_LEN], const void *ad,
		   size_t ad_len, const uint8_t *in, size_t len, void *out);

/* AES-256-XTS over 4 KiB blocks; the tweak is the block number. */
#define CRYPT_XTS_KEY_LEN 64
struct crypt_xts;
struct crypt_xts *crypt_xts_new(const uint8_t key[CRYPT_XTS_KEY_LEN]);
void crypt_xts_free(struct crypt_xts *x);
void crypt_xts_encrypt(struct crypt_xts *x, uint64_t block, const void *in,
		       void *out);
void crypt_xts_decrypt(struct crypt_xts *x, uint64_t block, const void *in,
		       void *out);

/*
 * Expands a 32-byte seed to a key stream: AES-256-CTR of zeros, IV zero.
 * The expansion of the state digest (digest.h); fast on every AES-NI core.
 */
struct crypt_stream;
struct crypt_stream *crypt_stream_new(void);
void crypt_stream_free(struct crypt_stream *s);
void crypt_stream_expand(struct crypt_stream *s,
			 const uint8_t seed[CRYPT_KEY_LEN], void *out,
			 size_t len);

uint32_t crypt_crc32c(const void *p, size_t len); /* Castagnoli, RFC 3720 */

#endif
