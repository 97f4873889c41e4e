/*
 * evrecord: one event as the log stores it: a header with the key's scope,
 * the link of the chain, the public part, and the sealed box that holds
 * salt and body. Pure. Format: docs/adr/0020-event-log-format.md.
 */
#ifndef STORE_EVRECORD_H
#define STORE_EVRECORD_H

#include "core/buf.h"
#include "core/event.h"
#include "store/chain.h"
#include "store/crypt.h"

/* HKDF of a scope's key gives its body key, of the node's the tag key. */
#define EVRECORD_BODY_LABEL "cryo-event-body-v1"
#define EVRECORD_TAG_LABEL "cryo-scope-v1"

#define EVRECORD_HEAD_LEN 72
#define EVRECORD_BODY_MAX (EVENT_DATA_MAX + 4096u)
#define EVRECORD_LEN_MAX                                          \
	(EVRECORD_HEAD_LEN + CHAIN_PUBLIC_MAX + CRYPT_BOX_EXTRA + \
	 CHAIN_SALT_LEN + EVRECORD_BODY_MAX)

/* Whose key seals the body. */
enum evrecord_kind {
	EVRECORD_NODE = 0,
	EVRECORD_TENANT = 1,
	EVRECORD_SESSION = 2,
};

struct evrecord_scope {
	enum evrecord_kind kind;
	char id[ID_LEN + 1]; /* "" for the node */
};

/* A decoded record; pointers borrow from the bytes that were decoded. */
struct evrecord {
	struct evrecord_scope scope;
	struct chain_public pub;
	const uint8_t *hash; /* CHAIN_HASH_LEN */
	const uint8_t *public; /* encoded public part */
	size_t public_len;
	const uint8_t *box;
	size_t box_len;
};

/*
 * Appends the record of `ev` (seq is set) to `b` and gives its hash. `key`
 * is the scope's body key, `tag_key` the node's tag key; `salt` is fresh
 * randomness, or a given value in tests. -EINVAL, -E2BIG with `e` for an event
 * that can't be encoded.
 */
int evrecord_encode(struct buf *b, const struct event *ev,
		    const struct evrecord_scope *scope,
		    const uint8_t key[CRYPT_KEY_LEN],
		    const uint8_t tag_key[CRYPT_KEY_LEN],
		    const uint8_t salt[CHAIN_SALT_LEN],
		    const uint8_t prev[CHAIN_HASH_LEN],
		    uint8_t ret_hash[CHAIN_HASH_LEN], struct err *e);

/*
 * Parses a record without any key. -EBADMSG for a broken one,
 * -EPROTONOSUPPORT for a newer version; `e` says which part.
 */
int evrecord_decode(struct evrecord *ret, const void *p, size_t len,
		    struct err *e);

/*
 * Opens the box with the scope's body key, checks the commitment and
 * appends the body to `ret_body`. -EBADMSG: wrong key, or forged.
 */
int evrecord_open(const struct evrecord *r, const uint8_t key[CRYPT_KEY_LEN],
		  struct buf *ret_body, struct err *e);

/*
 * HMAC of seq and scope under the node's tag key, first 16 bytes; in the
 * public part, so that nobody without the key can move an event to another
 * scope, for instance to one whose key is destroyed.
 */
void evrecord_scope_tag(uint8_t ret[CHAIN_SCOPE_LEN],
			const uint8_t tag_key[CRYPT_KEY_LEN], uint64_t seq,
			const struct evrecord_scope *scope);

#endif
