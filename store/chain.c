/*
 * chain: the public part of an event and the hashes over it.
 *
 * The public part is a fixed shape, so it is printed by hand and its decoder
 * accepts exactly what the printer makes: it reads the fields, prints them
 * again and compares bytes. There is then one text per value, and no room
 * for two parsers to see two things in it.
 *
 * Invariants:
 *  1. decode(encode(x)) = x, and encode(decode(t)) = t for each accepted t.
 *  2. Nothing here reads a clock, a key or a file.
 */
#include "store/chain.h"

#include "core/json.h"
#include "store/crypt.h"

static_assert(CHAIN_HASH_LEN == CRYPT_HASH_LEN, "SHA-256 both");

static const char chain_label[] = "cryo-event-v1\n";

const uint8_t chain_genesis[CHAIN_HASH_LEN];

static void put_hex(struct buf *b, const uint8_t *p, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	char *out = buf_reserve(b, 2 * len);

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	b->len += 2 * len;
}

void chain_public_encode(struct buf *b, const struct chain_public *pub)
{
	size_t start = b->len;

	buf_put_str(b, "{\"boot_id\":\"");
	put_hex(b, pub->boot_id, sizeof(pub->boot_id));
	buf_put_str(b, "\",\"commitment\":\"");
	put_hex(b, pub->commitment, sizeof(pub->commitment));
	buf_printf(b, "\",\"mono_ns\":\"%lld\",\"scope\":\"",
		   (long long)pub->mono_ns);
	put_hex(b, pub->scope, sizeof(pub->scope));
	buf_printf(b, "\",\"seq\":\"%llu\",\"v\":%d,\"wall_ns\":\"%lld\"}",
		   (unsigned long long)pub->seq, CHAIN_VERSION,
		   (long long)pub->wall_ns);
	POST(b->len - start <= CHAIN_PUBLIC_MAX);
}

/* A decimal u64; the re-encoding refuses every other spelling of it. */
static int get_seq(const json_t *o, uint64_t *ret, struct err *e)
{
	const char *s;
	char *end;
	int r = json_get_str(o, "seq", &s, e);

	if (r)
		return r;
	errno = 0;
	*ret = strtoull(s, &end, 10);
	if (errno || !*s || *end)
		return err_set(e, -EINVAL, ERR_CORRUPT,
			       "\"seq\" is not a number: \"%.24s\"", s);
	return 0;
}

static int get_fields(struct chain_public *ret, const json_t *o, struct err *e)
{
	int r = json_get_hex(o, "boot_id", ret->boot_id, sizeof(ret->boot_id), e);

	if (!r)
		r = json_get_hex(o, "commitment", ret->commitment,
				 sizeof(ret->commitment), e);
	if (!r)
		r = json_get_ns(o, "mono_ns", &ret->mono_ns, e);
	if (!r)
		r = json_get_hex(o, "scope", ret->scope, sizeof(ret->scope), e);
	if (!r)
		r = get_seq(o, &ret->seq, e);
	if (!r)
		r = json_get_ns(o, "wall_ns", &ret->wall_ns, e);
	return r;
}

/* All reasons for which a public part is no public part read alike. */
static int broken(struct err *e)
{
	err_wrap(e, -EBADMSG, "public part of an event");
	if (e)
		e->code = ERR_CORRUPT;
	return -EBADMSG;
}

int chain_public_decode(struct chain_public *ret, const void *p, size_t len,
			struct err *e)
{
	SCOPED_JSON json_t *o = NULL;
	SCOPED(buf_done) struct buf again = { 0 };
	struct chain_public pub = { 0 };
	int64_t version;

	if (len > CHAIN_PUBLIC_MAX)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "public part of an event: %zu bytes, at most %d",
			       len, CHAIN_PUBLIC_MAX);
	if (json_parse(&o, p, len, e) ||
	    json_get_int(o, "v", 0, INT32_MAX, &version, e))
		return broken(e);
	if (version != CHAIN_VERSION)
		return err_set(e, -EPROTONOSUPPORT, ERR_CORRUPT,
			       "public part of an event: version %lld, this "
			       "program knows %d; use a newer cryo",
			       (long long)version, CHAIN_VERSION);
	if (get_fields(&pub, o, e))
		return broken(e);
	chain_public_encode(&again, &pub);
	if (again.len != len || memcmp(again.p, p, len) != 0)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "public part of an event: not canonical");
	*ret = pub;
	return 0;
}

void chain_commit(uint8_t ret[CHAIN_HASH_LEN], const uint8_t salt[CHAIN_SALT_LEN],
		  const void *body, size_t len)
{
	crypt_hmac_sha256(ret, salt, CHAIN_SALT_LEN, body, len);
}

void chain_hash(uint8_t ret[CHAIN_HASH_LEN], const uint8_t prev[CHAIN_HASH_LEN],
		const void *pub, size_t len)
{
	uint8_t in[sizeof(chain_label) - 1 + CHAIN_HASH_LEN + CHAIN_PUBLIC_MAX];
	size_t at = sizeof(chain_label) - 1;

	PRE(len <= CHAIN_PUBLIC_MAX);
	memcpy(in, chain_label, at);
	memcpy(in + at, prev, CHAIN_HASH_LEN);
	memcpy(in + at + CHAIN_HASH_LEN, pub, len);
	crypt_sha256(ret, in, at + CHAIN_HASH_LEN + len);
}
