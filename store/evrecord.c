/*
 * evrecord: encodes, parses and opens the records of the log.
 *
 * Three steps for a reader, each usable alone: decode (no key: shape and
 * header checksum), chain_hash (no key: the link), open (scope's key: the
 * body, checked against the commitment). So a verifier goes as far as the
 * keys it has, and a destroyed key is no error of the first two.
 *
 * Invariants:
 *  1. What decode accepts, encode could have made: unknown flags, bytes after
 *     the box and non-zero padding are refused.
 *  2. No length in a record is used before it is bounded by what is there.
 *  3. A body leaves open() only if it is the one that was committed to.
 */
#include "store/evrecord.h"

#define RECORD_VERSION 1
#define AD_LEN (8 + CHAIN_HASH_LEN)

static const char record_magic[4] = { 'c', 'e', 'v', 'r' };

/* Offsets in the header. */
enum {
	AT_VERSION = 4,
	AT_FLAGS = 6,
	AT_KIND = 8,
	AT_ID_LEN = 9,
	AT_PUBLIC_LEN = 10,
	AT_BOX_LEN = 12,
	AT_ID = 16,
	AT_CRC = 36,
	AT_HASH = 40,
};
static_assert(AT_ID + ID_LEN == AT_CRC, "the id fills its field");
static_assert(AT_HASH + CHAIN_HASH_LEN == EVRECORD_HEAD_LEN, "hash is last");

void evrecord_scope_tag(uint8_t ret[CHAIN_SCOPE_LEN],
			const uint8_t tag_key[CRYPT_KEY_LEN], uint64_t seq,
			const struct evrecord_scope *scope)
{
	uint8_t in[8 + 1 + ID_LEN], mac[CRYPT_HASH_LEN];
	size_t id_len = strlen(scope->id);

	PRE(id_len <= ID_LEN);
	put_u64(in, seq);
	in[8] = (uint8_t)scope->kind;
	memcpy(in + 9, scope->id, id_len);
	crypt_hmac_sha256(mac, tag_key, CRYPT_KEY_LEN, in, 9 + id_len);
	memcpy(ret, mac, CHAIN_SCOPE_LEN);
}

static void put_ad(uint8_t ad[AD_LEN], const struct chain_public *pub)
{
	put_u64(ad, pub->seq);
	memcpy(ad + 8, pub->commitment, CHAIN_HASH_LEN);
}

static void put_head(uint8_t h[EVRECORD_HEAD_LEN],
		     const struct evrecord_scope *scope, size_t public_len,
		     size_t box_len, const uint8_t hash[CHAIN_HASH_LEN])
{
	size_t id_len = strlen(scope->id);

	memset(h, 0, EVRECORD_HEAD_LEN);
	memcpy(h, record_magic, sizeof(record_magic));
	put_u16(h + AT_VERSION, RECORD_VERSION);
	h[AT_KIND] = (uint8_t)scope->kind;
	h[AT_ID_LEN] = (uint8_t)id_len;
	put_u16(h + AT_PUBLIC_LEN, (uint16_t)public_len);
	put_u32(h + AT_BOX_LEN, (uint32_t)box_len);
	memcpy(h + AT_ID, scope->id, id_len);
	put_u32(h + AT_CRC, crypt_crc32c(h, AT_CRC));
	memcpy(h + AT_HASH, hash, CHAIN_HASH_LEN);
}

/* salt || body, and what the public part says of the event. */
static int make_plain(struct buf *plain, struct chain_public *pub,
		      const struct event *ev,
		      const uint8_t salt[CHAIN_SALT_LEN], struct err *e)
{
	int r;

	buf_put(plain, salt, CHAIN_SALT_LEN);
	r = event_body_encode(plain, ev, e);
	if (r)
		return err_wrap(e, r, "event %llu", (unsigned long long)ev->seq);
	if (plain->len - CHAIN_SALT_LEN > EVRECORD_BODY_MAX)
		return err_set(e, -E2BIG, ERR_TOO_LARGE,
			       "event %llu (%s): body of %zu bytes, at most %u",
			       (unsigned long long)ev->seq, ev->type_name,
			       plain->len - CHAIN_SALT_LEN, EVRECORD_BODY_MAX);
	pub->seq = ev->seq;
	pub->wall_ns = ev->wall_ns;
	pub->mono_ns = ev->mono_ns;
	memcpy(pub->boot_id, ev->boot_id, sizeof(pub->boot_id));
	chain_commit(pub->commitment, salt, plain->p + CHAIN_SALT_LEN,
		     plain->len - CHAIN_SALT_LEN);
	return 0;
}

int evrecord_encode(struct buf *b, const struct event *ev,
		    const struct evrecord_scope *scope,
		    const uint8_t key[CRYPT_KEY_LEN],
		    const uint8_t tag_key[CRYPT_KEY_LEN],
		    const uint8_t salt[CHAIN_SALT_LEN],
		    const uint8_t prev[CHAIN_HASH_LEN],
		    uint8_t ret_hash[CHAIN_HASH_LEN], struct err *e)
{
	SCOPED(buf_done) struct buf plain = { 0 };
	SCOPED(buf_done) struct buf text = { 0 };
	struct chain_public pub = { 0 };
	uint8_t hash[CHAIN_HASH_LEN], ad[AD_LEN];
	size_t box_len;
	int r;

	PRE(ev->seq > 0);
	PRE((scope->kind == EVRECORD_NODE) == !scope->id[0]);
	r = make_plain(&plain, &pub, ev, salt, e);
	if (r)
		return r;
	evrecord_scope_tag(pub.scope, tag_key, pub.seq, scope);
	chain_public_encode(&text, &pub);
	chain_hash(hash, prev, text.p, text.len);

	box_len = plain.len + CRYPT_BOX_EXTRA;
	put_head(buf_reserve(b, EVRECORD_HEAD_LEN), scope, text.len, box_len,
		 hash);
	b->len += EVRECORD_HEAD_LEN;
	buf_put(b, text.p, text.len);
	put_ad(ad, &pub);
	crypt_box_seal(key, ad, sizeof(ad), plain.p, plain.len,
		       buf_reserve(b, box_len));
	b->len += box_len;
	memcpy(ret_hash, hash, CHAIN_HASH_LEN);
	return 0;
}

static int broken(struct err *e, const char *what)
{
	return err_set(e, -EBADMSG, ERR_CORRUPT, "record of an event: %s", what);
}

static int decode_scope(struct evrecord_scope *ret, const uint8_t *h,
			struct err *e)
{
	size_t id_len = h[AT_ID_LEN];

	if (h[AT_KIND] > EVRECORD_SESSION || id_len > ID_LEN ||
	    (h[AT_KIND] == EVRECORD_NODE) != !id_len)
		return broken(e, "no such key scope");
	ret->kind = (enum evrecord_kind)h[AT_KIND];
	memset(ret->id, 0, sizeof(ret->id));
	memcpy(ret->id, h + AT_ID, id_len);
	if (strlen(ret->id) != id_len)
		return broken(e, "NUL in the scope's id");
	for (size_t i = id_len; i < ID_LEN; i++)
		if (h[AT_ID + i])
			return broken(e, "bytes after the scope's id");
	return 0;
}

static int decode_head(struct evrecord *ret, const uint8_t *h, size_t len,
		       struct err *e)
{
	if (len < EVRECORD_HEAD_LEN || len > EVRECORD_LEN_MAX)
		return broken(e, "impossible length");
	if (memcmp(h, record_magic, sizeof(record_magic)) != 0)
		return broken(e, "no magic");
	if (crypt_crc32c(h, AT_CRC) != get_u32(h + AT_CRC))
		return broken(e, "header checksum differs");
	if (get_u16(h + AT_VERSION) != RECORD_VERSION || get_u16(h + AT_FLAGS))
		return err_set(e, -EPROTONOSUPPORT, ERR_CORRUPT,
			       "record of an event: version %u flags %x, this "
			       "program knows version %d; use a newer cryo",
			       get_u16(h + AT_VERSION), get_u16(h + AT_FLAGS),
			       RECORD_VERSION);
	ret->public_len = get_u16(h + AT_PUBLIC_LEN);
	ret->box_len = get_u32(h + AT_BOX_LEN);
	if (ret->public_len > CHAIN_PUBLIC_MAX ||
	    ret->box_len < CRYPT_BOX_EXTRA + CHAIN_SALT_LEN ||
	    len - EVRECORD_HEAD_LEN != ret->public_len + ret->box_len)
		return broken(e, "lengths do not add up");
	return decode_scope(&ret->scope, h, e);
}

int evrecord_decode(struct evrecord *ret, const void *p, size_t len,
		    struct err *e)
{
	const uint8_t *h = p;
	struct evrecord rec = { 0 };
	int r = decode_head(&rec, h, len, e);

	if (r)
		return r;
	rec.hash = h + AT_HASH;
	rec.public = h + EVRECORD_HEAD_LEN;
	rec.box = rec.public + rec.public_len;
	r = chain_public_decode(&rec.pub, rec.public, rec.public_len, e);
	if (r)
		return r;
	*ret = rec;
	return 0;
}

int evrecord_open(const struct evrecord *r, const uint8_t key[CRYPT_KEY_LEN],
		  struct buf *ret_body, struct err *e)
{
	SCOPED(buf_done) struct buf plain = { 0 };
	uint8_t ad[AD_LEN], commitment[CHAIN_HASH_LEN];
	size_t len = r->box_len - CRYPT_BOX_EXTRA;

	put_ad(ad, &r->pub);
	if (crypt_box_open(key, ad, sizeof(ad), r->box, r->box_len,
			   buf_reserve(&plain, len)))
		return broken(e, "the key of its scope does not open it");
	plain.len = len;
	chain_commit(commitment, plain.p, plain.p + CHAIN_SALT_LEN,
		     len - CHAIN_SALT_LEN);
	if (memcmp(commitment, r->pub.commitment, CHAIN_HASH_LEN) != 0)
		return broken(e, "body is not the one committed to");
	buf_put(ret_body, plain.p + CHAIN_SALT_LEN, len - CHAIN_SALT_LEN);
	return 0;
}
