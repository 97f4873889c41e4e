/*
 * The vectors of ADR 0020 (made with Python's hashlib, hmac and
 * cryptography), the inverse laws, and what must be refused.
 */
#include "store/evrecord.h"

#include "tests/unit/store_help.h"

#define SESSION "abcdefghij0123456789"
#define TENANT "t0000000000000000000"

static const char tag_key_hex[] =
	"04832d4ff376b0406d83ac762b634b862730732429a3f3f4cbf18bf35335f95f";

struct vector {
	struct evrecord_scope scope;
	const char *body, *commit, *public, *hash, *key, *head, *box, *sha;
	uint8_t salt;
};

static const struct vector vectors[] = {
	{
		.scope = { EVRECORD_NODE, "" },
		.salt = 0x11,
		.body = "{\"actor\":\"system\",\"data\":{},\"schema\":1,"
			"\"type\":\"vector.one\"}",
		.commit = "4f14627a265721e59f7b837b62dc77659629cdb569fe5ec5db5"
			  "606d3caf50ee0",
		.public = "{\"boot_id\":\"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf\","
			  "\"commitment\":\"4f14627a265721e59f7b837b62dc77659629"
			  "cdb569fe5ec5db5606d3caf50ee0\","
			  "\"mono_ns\":\"5000000000\","
			  "\"scope\":\"13cd929ed3a1b1ec312561e8005fc446\","
			  "\"seq\":\"1\",\"v\":1,"
			  "\"wall_ns\":\"1767225600000000001\"}",
		.hash = "c13328a06e7a03e46fc2ce052d4ba2800aa01d2c6e4f944e2f13"
			"efda0ab0b9a8",
		.key = "747cd1d718118ed2b41c8b14855d82ce4c6d7bf46de438a36d0e4"
		       "43828ebaf35",
		.head = "63657672010000000000f0007700000000000000000000000000"
			"000000000000000000002376f29b",
		.box = "2121212121212121212121218526e5413945887bd4a7f7fb4abc8"
		       "1f660033b83661de26af6b1bc6c0f09ba9b606c8e087d4f221442"
		       "0e87e940e615b995099b128a8fca18c88d0e830f2b1f2b4e73b05"
		       "7f62ec1fa9341dc111bb3f71a8220af284c8a18a26aa048852e4d"
		       "24f360710e6a5d9d41234e42e3",
		.sha = "4680b7c1602c37673fde763383d7dbcaf51073d99bc845515e10c"
		       "924c8ea49d1",
	},
	{
		.scope = { EVRECORD_SESSION, SESSION },
		.salt = 0x12,
		.body = "{\"actor\":\"local:0\",\"data\":{\"n\":7},"
			"\"schema\":1,\"session\":\"" SESSION "\","
			"\"tenant\":\"" TENANT "\",\"type\":\"vector.two\"}",
		.commit = "bdf36d45edefbf59bc4f0ec1e584ccd01809e836caa2107415b"
			  "2be3516baceff",
		.public = "{\"boot_id\":\"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf\","
			  "\"commitment\":\"bdf36d45edefbf59bc4f0ec1e584ccd01809"
			  "e836caa2107415b2be3516baceff\","
			  "\"mono_ns\":\"5000000001\","
			  "\"scope\":\"89d95dd46fda700e7335d140e6b07bde\","
			  "\"seq\":\"2\",\"v\":1,"
			  "\"wall_ns\":\"1767225600000000002\"}",
		.hash = "caab3bdb4006663554f41cdf11885efc90067ef46caa27f0b251"
			"284f6bae1547",
		.key = "88a324a25f5bb80f762307ee107e532fb0aec56fd204f164f1e99"
		       "0eb973c6450",
		.head = "63657672010000000214f000be0000006162636465666768696a"
			"30313233343536373839c5f85f28",
		.box = "22222222222222222222222299ee2c00f7927801e6b94ca26803b"
		       "66f6e4b829e2fecede45a6a034088782e7eb171e6889631d5b93c"
		       "44ab83068d289b7a7a32bc5f8e2a576218fe27334c097f9186607"
		       "e6d6291b8039616498819f98b2a8447b63d7c6c6b14a2be58dc19"
		       "d18504292c50791fed59488aefdac404e12ea99e1760ac6de0c61"
		       "8b0091ea81115b9791d9d6d103b76d01053d276beac5059465290"
		       "0bb2602a55c224905484a2632fcee892300fc82a832c69c0a8be2"
		       "5e2c19895",
		.sha = "addd2ab5359e182ae9594b4ab8abfafdaa3b2a7f5f6e696c042ee"
		       "933b9205f97",
	},
};

static void unhex(uint8_t *ret, const char *hex)
{
	SCOPED(buf_done) struct buf b = { 0 };

	help_hex(&b, hex);
	memcpy(ret, b.p, b.len);
}

static struct event vector_event(size_t i)
{
	struct event ev = help_event(i ? "vector.two" : "vector.one",
				     i ? TENANT : "", i ? SESSION : "", 7);

	ev.seq = i + 1;
	ev.wall_ns = 1767225600000000001 + (int64_t)i;
	ev.mono_ns = 5000000000 + (int64_t)i;
	base_strcpy(ev.actor, sizeof(ev.actor), i ? "local:0" : "system");
	if (!i)
		json_object_clear(ev.data);
	return ev;
}

static void test_vector(size_t i, uint8_t hash[CHAIN_HASH_LEN])
{
	const struct vector *v = &vectors[i];
	struct event ev = vector_event(i);
	uint8_t key[32], tag[32], salt[32], sha[32], prev[32];
	SCOPED(buf_done) struct buf rec = { 0 }, given = { 0 }, body = { 0 };
	struct evrecord r;
	struct err e = { 0 };

	unhex(key, v->key);
	unhex(tag, tag_key_hex);
	memset(salt, v->salt, sizeof(salt));
	memcpy(prev, hash, sizeof(prev));
	is_int(evrecord_encode(&rec, &ev, &v->scope, key, tag, salt, prev, hash,
			       &e),
	       0, "vector %zu encodes", i + 1);
	ok(help_is_hex(hash, 32, v->hash), "its hash is the vector's");
	ok(help_is_hex(rec.p, 40, v->head), "its header is the vector's");
	is_int(evrecord_decode(&r, rec.p, rec.len, &e), 0, "it decodes");
	ok(r.public_len == strlen(v->public) &&
		   !memcmp(r.public, v->public, r.public_len),
	   "its public part is the vector's");
	ok(help_is_hex(r.pub.commitment, 32, v->commit),
	   "its commitment is the vector's");
	is_int(evrecord_open(&r, key, &body, &e), 0, "its box opens");
	is_str(buf_cstr(&body), v->body, "its body is the vector's");

	/* The vector's own bytes, put together here, not by the encoder. */
	help_hex(&given, v->head);
	help_hex(&given, v->hash);
	buf_put_str(&given, v->public);
	help_hex(&given, v->box);
	crypt_sha256(sha, given.p, given.len);
	ok(help_is_hex(sha, 32, v->sha), "the whole record is the vector's");
	buf_reset(&body);
	is_int(evrecord_decode(&r, given.p, given.len, &e), 0,
	       "the vector decodes");
	is_int(evrecord_open(&r, key, &body, &e), 0, "the vector opens");
	is_str(buf_cstr(&body), v->body, "to its body");
	is_int(r.scope.kind, v->scope.kind, "in its scope");
	is_str(r.scope.id, v->scope.id, "of its id");
	event_done(&ev);
}

/* A record that is right but for what `change` did to it. */
static void make(struct buf *rec)
{
	struct event ev = vector_event(1);
	uint8_t key[32], tag[32], salt[32] = { 1 }, hash[32];

	unhex(key, vectors[1].key);
	unhex(tag, tag_key_hex);
	evrecord_encode(rec, &ev, &vectors[1].scope, key, tag, salt,
			chain_genesis, hash, NULL);
	event_done(&ev);
}

static void fix_crc(struct buf *rec)
{
	put_u32(rec->p + 36, crypt_crc32c(rec->p, 36));
}

static int decode_changed(size_t at, uint8_t value, bool fix, int grow)
{
	SCOPED(buf_done) struct buf rec = { 0 };
	struct evrecord r;
	struct err e = { 0 };

	make(&rec);
	rec.p[at] = value;
	if (fix)
		fix_crc(&rec);
	if (grow > 0)
		buf_put_u8(&rec, 0);
	return evrecord_decode(&r, rec.p, grow < 0 ? rec.len - 1 : rec.len, &e);
}

static void test_refusals(void)
{
	struct evrecord r;
	struct err e = { 0 };

	is_int(decode_changed(0, 'c', true, 0), 0, "unchanged: fine");
	is_int(decode_changed(0, 'x', true, 0), -EBADMSG, "no magic");
	is_int(decode_changed(4, 2, true, 0), -EPROTONOSUPPORT, "version 2");
	is_int(decode_changed(6, 1, true, 0), -EPROTONOSUPPORT, "a flag");
	is_int(decode_changed(4, 2, false, 0), -EBADMSG, "bad checksum");
	is_int(decode_changed(8, 3, true, 0), -EBADMSG, "kind 3");
	is_int(decode_changed(8, 0, true, 0), -EBADMSG, "node with an id");
	is_int(decode_changed(9, 0, true, 0), -EBADMSG, "session without id");
	is_int(decode_changed(9, 19, true, 0), -EBADMSG, "id too long for 19");
	is_int(decode_changed(9, 21, true, 0), -EBADMSG, "id of 21");
	is_int(decode_changed(20, 0, true, 0), -EBADMSG, "NUL in the id");
	is_int(decode_changed(10, 0xf1, true, 0), -EBADMSG, "public longer");
	is_int(decode_changed(11, 0xff, true, 0), -EBADMSG, "public huge");
	is_int(decode_changed(15, 0xff, true, 0), -EBADMSG, "box huge");
	is_int(decode_changed(12, 0, true, 0), -EBADMSG, "box too short");
	is_int(decode_changed(0, 'c', true, 1), -EBADMSG, "a byte after it");
	is_int(decode_changed(0, 'c', true, -1), -EBADMSG, "a byte short");
	is_int(decode_changed(72, '[', true, 0), -EBADMSG, "public no JSON");
	is_int(evrecord_decode(&r, "", 0, &e), -EBADMSG, "empty");
	ok(strstr(e.msg, "record of an event"), "says what is broken: %s", e.msg);
}

/* Each bit of box, seq or commitment changed: it does not open. */
static void test_forgeries(void)
{
	SCOPED(buf_done) struct buf rec = { 0 }, body = { 0 };
	struct evrecord r;
	uint8_t key[32];
	int opened = 0;

	make(&rec);
	unhex(key, vectors[1].key);
	for (size_t at = EVRECORD_HEAD_LEN + 240; at < rec.len; at++) {
		rec.p[at] ^= 0x40;
		if (evrecord_decode(&r, rec.p, rec.len, NULL) ||
		    evrecord_open(&r, key, &body, NULL) != -EBADMSG)
			opened++;
		rec.p[at] ^= 0x40;
	}
	is_int(opened, 0, "no changed box opens");
	is_int(evrecord_decode(&r, rec.p, rec.len, NULL), 0, "unchanged");
	r.pub.seq++;
	is_int(evrecord_open(&r, key, &body, NULL), -EBADMSG, "another seq");
	r.pub.seq--;
	r.pub.commitment[5] ^= 1;
	is_int(evrecord_open(&r, key, &body, NULL), -EBADMSG,
	       "another commitment");
	r.pub.commitment[5] ^= 1;
	key[0] ^= 1;
	is_int(evrecord_open(&r, key, &body, NULL), -EBADMSG, "another key");
	key[0] ^= 1;
	is_int(body.len, 0, "and nothing came out");
	is_int(evrecord_open(&r, key, &body, NULL), 0, "as it was: opens");
}

/* A box under the right key whose body is not the one committed to. */
static void test_commitment(void)
{
	SCOPED(buf_done) struct buf rec = { 0 }, body = { 0 };
	uint8_t key[32], ad[40], plain[32 + 2] = { 0 };
	struct evrecord r;
	uint8_t box[sizeof(plain) + CRYPT_BOX_EXTRA];

	make(&rec);
	unhex(key, vectors[1].key);
	evrecord_decode(&r, rec.p, rec.len, NULL);
	put_u64(ad, r.pub.seq);
	memcpy(ad + 8, r.pub.commitment, 32);
	memcpy(plain + 32, "{}", 2);
	crypt_box_seal(key, ad, sizeof(ad), plain, sizeof(plain), box);
	r.box = box;
	r.box_len = sizeof(box);
	is_int(evrecord_open(&r, key, &body, NULL), -EBADMSG,
	       "a body other than committed to is refused");
}

static void refuse_public(const char *text, int want, const char *why)
{
	struct chain_public pub;
	struct err e = { 0 };

	is_int(chain_public_decode(&pub, text, strlen(text), &e), want,
	       "public part: %s", why);
}

static void test_public(void)
{
	static const char z64[] = "00000000000000000000000000000000"
				  "00000000000000000000000000000000";
	char text[600];

#define PUBLIC(boot, seq, v, wall, end)                           \
	snprintf(text, sizeof(text),                              \
		 "{\"boot_id\":\"%s\",\"commitment\":\"%s\","     \
		 "\"mono_ns\":\"0\",\"scope\":\"%.32s\","         \
		 "\"seq\":\"%s\",\"v\":%s,\"wall_ns\":\"%s\"}%s", \
		 boot, z64, z64, seq, v, wall, end)
	PUBLIC(z64 + 32, "1", "1", "-5", "");
	refuse_public(text, 0, "fine");
	PUBLIC(z64 + 32, "18446744073709551615", "1", "0", "");
	refuse_public(text, 0, "the largest seq");
	PUBLIC(z64 + 32, "18446744073709551616", "1", "0", "");
	refuse_public(text, -EBADMSG, "one more");
	PUBLIC(z64 + 32, "01", "1", "0", "");
	refuse_public(text, -EBADMSG, "leading zero");
	PUBLIC(z64 + 32, "-1", "1", "0", "");
	refuse_public(text, -EBADMSG, "negative seq");
	PUBLIC(z64 + 32, "1", "2", "0", "");
	refuse_public(text, -EPROTONOSUPPORT, "version 2");
	PUBLIC(z64 + 32, "1", "1", "0", " ");
	refuse_public(text, -EBADMSG, "a space");
	PUBLIC("A0000000000000000000000000000000", "1", "1", "0", "");
	refuse_public(text, -EBADMSG, "capital hex");
	PUBLIC("00", "1", "1", "0", "");
	refuse_public(text, -EBADMSG, "short boot id");
	PUBLIC(z64 + 32, "1", "1", "0\",\"x\":\"", "");
	refuse_public(text, -EBADMSG, "a member more");
	refuse_public("{\"v\":1}", -EBADMSG, "members missing");
	refuse_public("", -EBADMSG, "empty");
#undef PUBLIC
}

static void test_law(void)
{
	uint64_t seed = tap_seed();
	int bad = 0;

	for (int i = 0; i < 2000; i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		struct chain_public in = { 0 }, out = { 0 };

		in.seq = tap_rand(&seed) >> (tap_rand(&seed) % 64);
		in.wall_ns = (int64_t)tap_rand(&seed);
		in.mono_ns = (int64_t)(tap_rand(&seed) >> (tap_rand(&seed) % 64));
		for (size_t k = 0; k < 32; k++)
			in.commitment[k] = (uint8_t)tap_rand(&seed);
		in.scope[3] = in.boot_id[7] = (uint8_t)tap_rand(&seed);
		chain_public_encode(&b, &in);
		if (chain_public_decode(&out, b.p, b.len, NULL) ||
		    memcmp(&in, &out, sizeof(in)) != 0)
			bad++;
	}
	is_int(bad, 0, "decode(encode(x)) = x for 2000 public parts");
}

static void test_scope_tag(void)
{
	static const struct evrecord_scope session = { EVRECORD_SESSION, SESSION };
	static const struct evrecord_scope tenant = { EVRECORD_TENANT, SESSION };
	uint8_t tag[32], a[CHAIN_SCOPE_LEN], b[CHAIN_SCOPE_LEN];

	unhex(tag, tag_key_hex);
	evrecord_scope_tag(a, tag, 2, &session);
	ok(help_is_hex(a, sizeof(a), "89d95dd46fda700e7335d140e6b07bde"),
	   "scope tag of the vector");
	evrecord_scope_tag(b, tag, 2, &tenant);
	ok(memcmp(a, b, sizeof(a)) != 0, "another kind, another tag");
	evrecord_scope_tag(b, tag, 3, &session);
	ok(memcmp(a, b, sizeof(a)) != 0, "another seq, another tag");
}

static void test_too_large(void)
{
	SCOPED(buf_done) struct buf rec = { 0 }, text = { 0 };
	struct event ev = vector_event(1);
	uint8_t key[32] = { 0 }, hash[32];
	struct err e = { 0 };

	memset(buf_reserve(&text, EVENT_DATA_MAX + 9000), 'a',
	       EVENT_DATA_MAX + 9000);
	text.len = EVENT_DATA_MAX + 9000;
	json_put_str(ev.data, "s", buf_cstr(&text));
	ok(evrecord_encode(&rec, &ev, &vectors[1].scope, key, key, key,
			   chain_genesis, hash, &e) < 0,
	   "an event over the limit is refused: %.60s", e.msg);
	is_int(rec.len, 0, "and nothing is written");
	event_done(&ev);
}

int main(void)
{
	uint8_t hash[CHAIN_HASH_LEN] = { 0 };

	ok(!memcmp(chain_genesis, hash, sizeof(hash)), "genesis is zeros");
	for (size_t i = 0; i < ARRAY_LEN(vectors); i++)
		test_vector(i, hash);
	test_scope_tag();
	test_refusals();
	test_forgeries();
	test_commitment();
	test_public();
	test_law();
	test_too_large();
	return tap_done();
}
