/*
 * rowbox: seals rows on their way into the database and opens them on their
 * way out.
 *
 * A sealed row is: u8 version, u32 generation, nonce, ciphertext, tag. The
 * generation chooses the key (derived from the row key), so that the random
 * nonces of one key stay far below 2^32; readers keep the few generations
 * that they met last.
 *
 * Invariants:
 *  1. Additional data = table name, NUL, key: a row moved to another key or
 *     table does not open.
 *  2. A scan holds no pointer into the database while the callback runs; it
 *     finds its place again by key, so the callback may write.
 *
 * A crash leaves nothing: what is sealed is in a transaction or nowhere.
 */
#include "store/rowbox.h"

#define ROW_VERSION 1
#define ROW_HEAD 5
#define AD_MAX (32 + 1 + ROW_KEY_MAX)

static const char *const table_names[] = {
#define X(name, word) [TABLE_##name] = word,
	TABLES(X)
#undef X
};
static_assert(ARRAY_LEN(table_names) == TABLE_NR, "a name per table");

const char *rowbox_table_name(enum table t)
{
	PRE((unsigned)t < TABLE_NR);
	return table_names[t];
}

void rowbox_init(struct rowbox *r, const uint8_t key[CRYPT_KEY_LEN],
		 uint32_t generation)
{
	*r = (struct rowbox){ .generation = generation };
	memcpy(r->key, key, CRYPT_KEY_LEN);
}

void rowbox_done(struct rowbox *r)
{
	for (size_t i = 0; i < ARRAY_LEN(r->cache); i++)
		crypt_aead_free(r->cache[i].aead);
	base_wipe(r, sizeof(*r));
}

static struct crypt_aead *aead_of(struct rowbox *r, uint32_t generation)
{
	uint8_t label_extra[4], key[CRYPT_KEY_LEN];
	unsigned at;

	for (size_t i = 0; i < ARRAY_LEN(r->cache); i++)
		if (r->cache[i].aead && r->cache[i].generation == generation)
			return r->cache[i].aead;
	at = r->next++ % ARRAY_LEN(r->cache);
	put_u32(label_extra, generation);
	crypt_hkdf(key, sizeof(key), r->key, "cryo-row-generation-v1",
		   label_extra, sizeof(label_extra));
	crypt_aead_free(r->cache[at].aead);
	r->cache[at].aead = crypt_aead_new(key);
	r->cache[at].generation = generation;
	base_wipe(key, sizeof(key));
	return r->cache[at].aead;
}

static size_t put_ad(uint8_t ad[AD_MAX], enum table t, const void *key,
		     size_t key_len)
{
	const char *name = rowbox_table_name(t);
	size_t name_len = strlen(name) + 1; /* with its NUL */

	PRE(key_len > 0 && key_len <= ROW_KEY_MAX);
	PRE(name_len + key_len <= AD_MAX);
	memcpy(ad, name, name_len);
	memcpy(ad + name_len, key, key_len);
	return name_len + key_len;
}

void rowbox_seal(struct rowbox *r, enum table t, const void *key,
		 size_t key_len, const void *value, size_t len, struct buf *ret)
{
	size_t total = ROW_HEAD + CRYPT_BOX_EXTRA + len;
	uint8_t *out = buf_reserve(ret, total);
	uint8_t *nonce = out + ROW_HEAD, *body = nonce + CRYPT_NONCE_LEN;
	uint8_t ad[AD_MAX];

	PRE(len <= ROWBOX_VALUE_MAX);
	out[0] = ROW_VERSION;
	put_u32(out + 1, r->generation);
	base_random(nonce, CRYPT_NONCE_LEN);
	crypt_aead_seal(aead_of(r, r->generation), nonce, ad,
			put_ad(ad, t, key, key_len), value, len, body,
			body + len);
	r->sealed++;
	ret->len += total;
}

int rowbox_open(struct rowbox *r, enum table t, const void *key, size_t key_len,
		const void *sealed, size_t len, struct buf *ret)
{
	const uint8_t *in = sealed;
	const uint8_t *nonce = in + ROW_HEAD, *body = nonce + CRYPT_NONCE_LEN;
	uint8_t ad[AD_MAX];
	size_t value_len;
	void *out;
	int e;

	if (len < ROW_HEAD + CRYPT_BOX_EXTRA || in[0] != ROW_VERSION ||
	    len > ROW_HEAD + CRYPT_BOX_EXTRA + ROWBOX_VALUE_MAX)
		return -EBADMSG;
	value_len = len - ROW_HEAD - CRYPT_BOX_EXTRA;
	out = buf_reserve(ret, value_len);
	e = crypt_aead_open(aead_of(r, get_u32(in + 1)), nonce, ad,
			    put_ad(ad, t, key, key_len), body, value_len,
			    body + value_len, out);
	if (!e)
		ret->len += value_len;
	return e;
}

static int open_row(struct rowbox *r, enum table t, const void *key,
		    size_t key_len, const void *sealed, size_t len,
		    struct buf *ret, struct err *e)
{
	int n = rowbox_open(r, t, key, key_len, sealed, len, ret);

	if (!n)
		return 0;
	return err_set(e, n, ERR_CORRUPT,
		       "a row of table %s does not open under this node's key: "
		       "changed from outside, or another provider key; run "
		       "cryo verify",
		       rowbox_table_name(t));
}

int rowbox_get(struct rowbox *r, struct lmdb_txn *txn, enum table t,
	       const void *key, size_t key_len, struct buf *ret, struct err *e)
{
	const void *sealed;
	size_t len;
	int n;

	PRE(key_len > 0 && key_len <= ROW_KEY_MAX);
	n = lmdb_txn_get(txn, t, key, key_len, &sealed, &len, e);
	return n ? n : open_row(r, t, key, key_len, sealed, len, ret, e);
}

int rowbox_put(struct rowbox *r, struct lmdb_txn *txn, enum table t,
	       const void *key, size_t key_len, const void *value, size_t len,
	       struct err *e)
{
	SCOPED(buf_done) struct buf sealed = { 0 };

	if (!key_len || key_len > ROW_KEY_MAX || len > ROWBOX_VALUE_MAX)
		return err_set(e, -E2BIG, ERR_TOO_LARGE,
			       "row of table %s: key of %zu bytes (1..%d), "
			       "value of %zu (at most %u)",
			       rowbox_table_name(t), key_len, ROW_KEY_MAX, len,
			       ROWBOX_VALUE_MAX);
	rowbox_seal(r, t, key, key_len, value, len, &sealed);
	return lmdb_txn_put(txn, t, key, key_len, sealed.p, sealed.len, e);
}

int rowbox_del(struct rowbox *r UNUSED, struct lmdb_txn *txn, enum table t,
	       const void *key, size_t key_len, struct err *e)
{
	PRE(key_len > 0 && key_len <= ROW_KEY_MAX);
	return lmdb_txn_del(txn, t, key, key_len, e);
}

/* --- scans ---------------------------------------------------------------- */

/* A place to seek to; len 0 is the very end (reverse) or begin of a table. */
struct place {
	uint8_t key[ROW_KEY_MAX];
	size_t len;
};

static void place_set(struct place *p, const void *key, size_t len)
{
	PRE(len <= ROW_KEY_MAX);
	if (len)
		memcpy(p->key, key, len);
	p->len = len;
}

static int compare(const void *a, size_t a_len, const void *b, size_t b_len)
{
	int c = memcmp(a, b, MIN(a_len, b_len));

	return c ? c : (a_len > b_len) - (a_len < b_len);
}

/* The first key behind all that start with prefix; len 0: there is none. */
static void place_behind(struct place *p, const void *prefix, size_t len)
{
	place_set(p, prefix, len);
	while (p->len && p->key[p->len - 1] == 0xff)
		p->len--;
	if (p->len)
		p->key[p->len - 1]++;
}

static int row_after(struct lmdb_cur *c, const struct place *p, bool inclusive,
		     struct lmdb_row *ret, struct err *e)
{
	int r;

	if (!p->len)
		return lmdb_cur_move(c, LMDB_FIRST, ret, e);
	r = lmdb_cur_seek(c, p->key, p->len, ret, e);
	if (!r && !inclusive && !compare(ret->key, ret->key_len, p->key, p->len))
		r = lmdb_cur_move(c, LMDB_NEXT, ret, e);
	return r;
}

static int row_before(struct lmdb_cur *c, const struct place *p, bool inclusive,
		      struct lmdb_row *ret, struct err *e)
{
	int r = -ENOENT;

	if (p->len)
		r = lmdb_cur_seek(c, p->key, p->len, ret, e);
	if (r == -ENOENT)
		return lmdb_cur_move(c, LMDB_LAST, ret, e);
	if (r || (inclusive && !compare(ret->key, ret->key_len, p->key, p->len)))
		return r;
	return lmdb_cur_move(c, LMDB_PREV, ret, e);
}

/* Where a scan starts; true if the row at the place itself counts. */
static bool scan_start(struct place *p, const void *prefix, size_t prefix_len,
		       const void *from, size_t from_len, bool reverse)
{
	struct place bound;

	if (!reverse) {
		place_set(p, prefix, prefix_len);
		if (from && compare(from, from_len, prefix, prefix_len) > 0)
			place_set(p, from, from_len);
		return true;
	}
	place_behind(&bound, prefix, prefix_len);
	if (from &&
	    (!bound.len || compare(from, from_len, bound.key, bound.len) < 0)) {
		place_set(p, from, from_len);
		return true;
	}
	*p = bound;
	return false;
}

int rowbox_scan(struct rowbox *r, struct lmdb_txn *txn, enum table t,
		const void *prefix, size_t prefix_len, const void *from,
		size_t from_len, bool reverse, row_fn fn, void *ctx,
		struct err *e)
{
	SCOPED(lmdb_cur_close_p) struct lmdb_cur *c = NULL;
	SCOPED(buf_done) struct buf value = { 0 };
	struct lmdb_row row;
	struct place at;
	bool inclusive;
	int n;

	PRE(prefix_len <= ROW_KEY_MAX);
	from = from_len ? from : NULL;
	n = lmdb_cur_open(&c, txn, t, e);
	if (n)
		return n;
	inclusive = scan_start(&at, prefix, prefix_len, from, from_len, reverse);
	for (;; inclusive = false) {
		n = reverse ? row_before(c, &at, inclusive, &row, e)
			    : row_after(c, &at, inclusive, &row, e);
		if (n)
			return n == -ENOENT ? 0 : n;
		if (row.key_len < prefix_len || row.key_len > ROW_KEY_MAX ||
		    (prefix_len && memcmp(row.key, prefix, prefix_len) != 0))
			return 0;
		place_set(&at, row.key, row.key_len);
		buf_reset(&value);
		n = open_row(r, t, at.key, at.len, row.value, row.len, &value, e);
		if (!n)
			n = fn(ctx, at.key, at.len, value.p, value.len);
		if (n)
			return n < 0 ? n : 0;
	}
}
