/*
 * Sealed rows: the vector of ADR 0020, what must not open, and scans against
 * a plain sorted array.
 */
#include "store/rowbox.h"

#include "tests/unit/store_help.h"

#define SESSION "abcdefghij0123456789"
#define ROWS_MAX 300

static void start(struct rowbox *r, uint32_t generation)
{
	SCOPED(buf_done) struct buf key = { 0 };

	help_hex(&key, "56de43615a32365dbbf9f3f3aff7a42bc4321eae9ae8312187865e"
		       "3e28e6d1ad");
	rowbox_init(r, key.p, generation);
}

static void test_vector(void)
{
	SCOPED(buf_done) struct buf sealed = { 0 }, out = { 0 };
	struct rowbox r;

	help_hex(&sealed, "0107000000313131313131313131313131d14fbf54957a4ca1"
			  "6dd0f949b9a7f9741a250d2938c7e27ea220eff8ca30a0be58"
			  "decf");
	start(&r, 1);
	is_int(rowbox_open(&r, TABLE_SESSIONS, SESSION, 20, sealed.p,
			   sealed.len, &out),
	       0, "the vector opens");
	is_str(buf_cstr(&out), "{\"state\":\"running\"}", "to its value");
	is_int(rowbox_open(&r, TABLE_EPOCHS, SESSION, 20, sealed.p, sealed.len,
			   &out),
	       -EBADMSG, "not in another table");
	is_int(rowbox_open(&r, TABLE_SESSIONS, SESSION, 19, sealed.p,
			   sealed.len, &out),
	       -EBADMSG, "not under another key");
	rowbox_done(&r);
}

static void test_seal(void)
{
	SCOPED(buf_done) struct buf a = { 0 }, b = { 0 }, out = { 0 };
	struct rowbox w, r;
	int opened = 0;

	start(&w, 9);
	start(&r, 0);
	rowbox_seal(&w, TABLE_META, "k", 1, "value", 5, &a);
	rowbox_seal(&w, TABLE_META, "k", 1, "value", 5, &b);
	is_int(a.len, 5 + 12 + 5 + 16, "38 bytes for 5");
	is_int(get_u32(a.p + 1), 9, "names its generation");
	ok(memcmp(a.p, b.p, a.len) != 0, "sealing twice gives two boxes");
	is_int(w.sealed, 2, "counts what it sealed");
	is_int(rowbox_open(&r, TABLE_META, "k", 1, a.p, a.len, &out), 0,
	       "a reader of another generation opens it");
	is_str(buf_cstr(&out), "value", "to the value");
	for (size_t i = 0; i < a.len; i++) {
		a.p[i] ^= 4;
		opened += !rowbox_open(&r, TABLE_META, "k", 1, a.p, a.len, &out);
		a.p[i] ^= 4;
	}
	is_int(opened, 0, "no byte can change");
	for (size_t len = 0; len < a.len; len++)
		opened += !rowbox_open(&r, TABLE_META, "k", 1, a.p, len, &out);
	is_int(opened, 0, "no shorter box opens");
	r.key[0] ^= 1;
	for (int i = 0; i < ROWBOX_CACHE; i++)
		crypt_aead_free(STEAL(r.cache[i].aead));
	is_int(rowbox_open(&r, TABLE_META, "k", 1, a.p, a.len, &out), -EBADMSG,
	       "another node's key opens nothing");
	rowbox_done(&w);
	rowbox_done(&r);
}

/* More generations than the cache has places, in no order. */
static void test_generations(void)
{
	struct buf sealed[3 * ROWBOX_CACHE] = { 0 };
	uint64_t seed = tap_seed();
	struct rowbox w, r;
	int bad = 0;

	for (uint32_t g = 0; g < ARRAY_LEN(sealed); g++) {
		start(&w, g);
		rowbox_seal(&w, TABLE_META, "k", 1, &g, sizeof(g), &sealed[g]);
		rowbox_done(&w);
	}
	start(&r, 0);
	for (int i = 0; i < 500; i++) {
		uint32_t g = (uint32_t)(tap_rand(&seed) % ARRAY_LEN(sealed));
		SCOPED(buf_done) struct buf out = { 0 };

		if (rowbox_open(&r, TABLE_META, "k", 1, sealed[g].p,
				sealed[g].len, &out) ||
		    memcmp(out.p, &g, sizeof(g)) != 0)
			bad++;
	}
	is_int(bad, 0, "rows of %zu generations open in any order",
	       ARRAY_LEN(sealed));
	rowbox_done(&r);
	for (size_t i = 0; i < ARRAY_LEN(sealed); i++)
		buf_done(&sealed[i]);
}

/* --- scans ---------------------------------------------------------------- */

struct row {
	uint8_t key[6];
	size_t len;
};

struct model {
	struct row rows[ROWS_MAX];
	size_t nr;
};

static int row_compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int c = memcmp(x->key, y->key, MIN(x->len, y->len));

	return c ? c : (x->len > y->len) - (x->len < y->len);
}

/* Short keys over few bytes, 0x00 and 0xff among them. */
static struct row random_row(uint64_t *seed, size_t min)
{
	static const uint8_t bytes[] = { 0x00, 'a', 'b', 0xfe, 0xff };
	struct row row = { .len = min + tap_rand(seed) % (6 - min + 1) };

	for (size_t i = 0; i < row.len; i++)
		row.key[i] = bytes[tap_rand(seed) % sizeof(bytes)];
	return row;
}

static size_t model_add(struct model *m, const struct row *row)
{
	for (size_t i = 0; i < m->nr; i++)
		if (!row_compare(&m->rows[i], row))
			return m->nr;
	m->rows[m->nr++] = *row;
	return m->nr;
}

struct got {
	struct row rows[ROWS_MAX];
	size_t nr, stop;
	int bad;
};

static int collect(void *ctx, const void *key, size_t key_len,
		   const void *value, size_t len)
{
	struct got *g = ctx;
	struct row *row = &g->rows[g->nr++];

	row->len = key_len;
	memcpy(row->key, key, key_len);
	/* each value is its own key */
	g->bad += len != key_len || memcmp(value, key, len) != 0;
	return g->nr == g->stop;
}

/* What the scan should give, by going through all of the model. */
static size_t expect(const struct model *m, const struct row *prefix,
		     const struct row *from, bool reverse, struct row *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < m->nr; i++) {
		const struct row *row = &m->rows[reverse ? m->nr - 1 - i : i];
		int c = from ? row_compare(row, from) : 0;

		if (row->len < prefix->len ||
		    memcmp(row->key, prefix->key, prefix->len) != 0 ||
		    (reverse ? c > 0 : c < 0))
			continue;
		ret[n++] = *row;
	}
	return n;
}

static bool same(const struct row *a, size_t a_nr, const struct row *b,
		 size_t b_nr)
{
	if (a_nr != b_nr)
		return false;
	for (size_t i = 0; i < a_nr; i++)
		if (row_compare(&a[i], &b[i]))
			return false;
	return true;
}

static struct lmdb_env *open_env(void)
{
	struct lmdb_table tables[TABLE_NR] = { 0 };
	const struct lmdb_options o = { 0 };
	struct lmdb_env *env;
	struct err e = { 0 };

	for (int t = 0; t < TABLE_NR; t++)
		tables[t].name = rowbox_table_name((enum table)t);
	if (lmdb_env_open(&env, help_tmp(), tables, TABLE_NR, &o, &e))
		bail("%s", e.msg);
	return env;
}

static void fill(struct rowbox *r, struct lmdb_txn *txn, struct model *m,
		 uint64_t *seed)
{
	for (int i = 0; i < ROWS_MAX; i++) {
		struct row row = random_row(seed, 1);

		model_add(m, &row);
		if (rowbox_put(r, txn, TABLE_POINTS, row.key, row.len, row.key,
			       row.len, NULL))
			bail("put");
	}
	qsort(m->rows, m->nr, sizeof(m->rows[0]), row_compare);
}

static void test_scans(struct rowbox *r, struct lmdb_txn *txn,
		       const struct model *m, uint64_t *seed)
{
	static struct got got;
	static struct row want[ROWS_MAX];
	int bad = 0, values = 0, n = 4000;

	for (int i = 0; i < n; i++) {
		struct row prefix = random_row(seed, 0);
		struct row from = random_row(seed, 1);
		bool reverse = i & 1, has_from = i & 2;
		size_t nr;

		prefix.len %= 4;
		nr = expect(m, &prefix, has_from ? &from : NULL, reverse, want);
		got.nr = got.stop = 0;
		if (i & 4 && nr > 2)
			nr = got.stop = nr / 2;
		if (rowbox_scan(r, txn, TABLE_POINTS, prefix.key, prefix.len,
				has_from ? from.key : NULL, from.len, reverse,
				collect, &got, NULL))
			bad++;
		bad += !same(got.rows, got.nr, want, nr);
		values += got.bad;
	}
	is_int(bad, 0, "%d scans give what the model gives", n);
	is_int(values, 0, "with the right values");
}

struct eraser {
	struct rowbox *r;
	struct lmdb_txn *txn;
	size_t seen;
};

/* Deletes the row it is at and puts one in another table. */
static int erase(void *ctx, const void *key, size_t key_len, const void *value,
		 size_t len)
{
	struct eraser *x = ctx;

	x->seen++;
	if (rowbox_put(x->r, x->txn, TABLE_META, key, key_len, value, len, NULL))
		return -EIO;
	return rowbox_del(x->r, x->txn, TABLE_POINTS, key, key_len, NULL);
}

static int fail_at_once(void *ctx UNUSED, const void *key UNUSED,
			size_t key_len UNUSED, const void *value UNUSED,
			size_t len UNUSED)
{
	return -ELOOP;
}

static void test_writing_scan(struct rowbox *r, struct lmdb_txn *txn,
			      const struct model *m, bool reverse)
{
	static struct got got;
	struct eraser x = { .r = r, .txn = txn };

	is_int(rowbox_scan(r, txn, TABLE_POINTS, "", 0, NULL, 0, reverse,
			   fail_at_once, NULL, NULL),
	       -ELOOP, "the callback's error comes out");
	is_int(rowbox_scan(r, txn, TABLE_POINTS, "", 0, NULL, 0, reverse, erase,
			   &x, NULL),
	       0, "a scan that deletes as it goes");
	is_int(x.seen, m->nr, "sees each row once");
	is_int(lmdb_txn_count(txn, TABLE_POINTS), 0, "and leaves none");
	got.nr = got.stop = 0;
	rowbox_scan(r, txn, TABLE_META, "", 0, NULL, 0, false, collect, &got,
		    NULL);
	ok(same(got.rows, got.nr, m->rows, m->nr), "all moved over");
}

static void test_limits(struct rowbox *r, struct lmdb_txn *txn)
{
	SCOPED(buf_done) struct buf big = { 0 }, out = { 0 };
	static const uint8_t key[ROW_KEY_MAX + 1] = { 1 };
	struct err e = { 0 };

	memset(buf_reserve(&big, ROWBOX_VALUE_MAX + 1), 1, ROWBOX_VALUE_MAX + 1);
	is_int(rowbox_put(r, txn, TABLE_META, key, ROW_KEY_MAX + 1, "", 0, &e),
	       -E2BIG, "key too long: %s", e.msg);
	is_int(rowbox_put(r, txn, TABLE_META, key, 0, "", 0, &e), -E2BIG,
	       "no key");
	is_int(rowbox_put(r, txn, TABLE_META, key, 1, big.p,
			  ROWBOX_VALUE_MAX + 1, &e),
	       -E2BIG, "value too long");
	is_int(rowbox_put(r, txn, TABLE_META, key, ROW_KEY_MAX, big.p,
			  ROWBOX_VALUE_MAX, &e),
	       0, "the largest of both");
	is_int(rowbox_get(r, txn, TABLE_META, key, ROW_KEY_MAX, &out, &e), 0,
	       "comes back");
	ok(out.len == ROWBOX_VALUE_MAX && !memcmp(out.p, big.p, out.len),
	   "as it was");
	e.code = ERR_NR;
	is_int(rowbox_get(r, txn, TABLE_META, "no", 2, &out, &e), -ENOENT,
	       "no such row");
	is_int(e.code, ERR_NR, "with e untouched");
	lmdb_txn_put(txn, TABLE_META, "raw", 3, "raw", 3, &e);
	is_int(rowbox_get(r, txn, TABLE_META, "raw", 3, &out, &e), -EBADMSG,
	       "a row that nobody sealed");
	ok(e.code == ERR_CORRUPT && strstr(e.msg, "table meta"),
	   "is corrupt: %s", e.msg);
}

int main(void)
{
	static struct model m;
	uint64_t seed = tap_seed();
	struct lmdb_env *env;
	struct lmdb_txn *txn;
	struct rowbox r;

	is_str(rowbox_table_name(TABLE_SESSIONS), "sessions", "a table's name");
	test_vector();
	test_seal();
	test_generations();
	env = open_env();
	start(&r, 1);
	lmdb_txn_begin(&txn, env, true, NULL);
	fill(&r, txn, &m, &seed);
	test_scans(&r, txn, &m, &seed);
	test_limits(&r, txn);
	lmdb_txn_abort(txn);
	for (int reverse = 0; reverse < 2; reverse++) {
		memset(&m, 0, sizeof(m));
		lmdb_txn_begin(&txn, env, true, NULL);
		fill(&r, txn, &m, &seed);
		test_writing_scan(&r, txn, &m, reverse);
		lmdb_txn_abort(txn);
	}
	rowbox_done(&r);
	lmdb_env_close(env);
	return tap_done();
}
