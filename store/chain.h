/*
 * chain: what makes the event log tamper-evident: the public part of an
 * event, its commitment to the sealed body, and the hash that binds it to
 * everything before it. Pure; the format and its test vectors stand in
 * docs/adr/0020-event-log-format.md.
 *
 *   commitment = HMAC-SHA-256(salt, body)
 *   hash       = SHA-256("cryo-event-v1\n" || previous hash || public part)
 */
#ifndef STORE_CHAIN_H
#define STORE_CHAIN_H

#include "core/buf.h"
#include "core/err.h"

#define CHAIN_HASH_LEN 32
#define CHAIN_SALT_LEN 32
#define CHAIN_SCOPE_LEN 16
#define CHAIN_VERSION 1
#define CHAIN_PUBLIC_MAX 1024 /* bytes; a longer public part is corrupt */

/* The previous hash of event 1. */
extern const uint8_t chain_genesis[CHAIN_HASH_LEN];

/* What everybody may see of an event. */
struct chain_public {
	uint64_t seq;
	int64_t wall_ns;
	int64_t mono_ns;
	uint8_t boot_id[16];
	uint8_t commitment[CHAIN_HASH_LEN];
	uint8_t scope[CHAIN_SCOPE_LEN]; /* evrecord_scope_tag() */
};

/* Appends the canonical JSON of the public part to `b`. */
void chain_public_encode(struct buf *b, const struct chain_public *pub);

/*
 * The inverse; accepts exactly what encode makes, byte for byte, and answers
 * -EBADMSG to all else, with a reason in `e`. A version that this build does
 * not know is -EPROTONOSUPPORT.
 */
int chain_public_decode(struct chain_public *ret, const void *p, size_t len,
			struct err *e);

void chain_commit(uint8_t ret[CHAIN_HASH_LEN], const uint8_t salt[CHAIN_SALT_LEN],
		  const void *body, size_t len);

/* The link; `pub` is the encoded public part. `ret` may be `prev`. */
void chain_hash(uint8_t ret[CHAIN_HASH_LEN], const uint8_t prev[CHAIN_HASH_LEN],
		const void *pub, size_t len);

#endif
