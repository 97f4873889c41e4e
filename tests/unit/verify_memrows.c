/*
 * Rows in memory against a plain array: random puts, deletes and scans over
 * two tables, and scans that delete as they go.
 */
#include "tests/unit/store_help.h"
#include "tools/verify/memrows.h"

#define ROWS 200

struct row {
	bool there;
	uint8_t table;
	uint8_t key[4];
	size_t len;
	uint32_t value;
};

static struct row model[ROWS];
static struct store_port port;

static int compare(const struct row *a, const void *key, size_t len)
{
	int c = memcmp(a->key, key, MIN(a->len, len));

	return c ? c : (a->len > len) - (a->len < len);
}

static int by_key(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->table != y->table ? x->table - y->table
				    : compare(x, y->key, y->len);
}

/* All rows there may be: distinct keys with 0x00 and 0xff in them, sorted. */
static void make_keys(uint64_t *seed)
{
	static const uint8_t bytes[] = { 0x00, 'a', 0xfe, 0xff };
	size_t nr = 0;

	while (nr < ROWS) {
		struct row *r = &model[nr];

		*r = (struct row){ .table = tap_rand(seed) % 2 };
		r->len = 1 + tap_rand(seed) % sizeof(r->key);
		for (size_t i = 0; i < r->len; i++)
			r->key[i] = bytes[tap_rand(seed) % sizeof(bytes)];
		for (size_t i = 0; i <= nr; i++) {
			if (i == nr) {
				nr++;
				break;
			}
			if (!by_key(&model[i], r))
				break;
		}
	}
	qsort(model, ROWS, sizeof(model[0]), by_key);
}

static void change(uint64_t *seed)
{
	struct row *r = &model[tap_rand(seed) % ROWS];

	r->there = tap_rand(seed) % 3 > 0;
	r->value = (uint32_t)tap_rand(seed);
	if (r->there)
		port.put(port.ctx, r->table, r->key, r->len, &r->value,
			 sizeof(r->value), NULL);
	else
		port.del(port.ctx, r->table, r->key, r->len, NULL);
}

static int check_gets(void)
{
	int bad = 0;

	for (size_t i = 0; i < ROWS; i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		const struct row *r = &model[i];
		int got = port.ops->get(port.ctx, r->table, r->key, r->len, &b,
					NULL);

		bad += got != (r->there ? 0 : -ENOENT);
		bad += r->there && (b.len != sizeof(r->value) ||
				    memcmp(b.p, &r->value, b.len) != 0);
	}
	return bad;
}

struct walk {
	const struct row *want[ROWS];
	size_t nr, at;
	uint8_t table;
	bool erase;
	int bad;
};

static int see(void *ctx, const void *key, size_t key_len, const void *value,
	       size_t len)
{
	struct walk *w = ctx;
	const struct row *r;

	if (w->at >= w->nr) {
		w->bad++;
		return 1;
	}
	r = w->want[w->at++];
	w->bad += compare(r, key, key_len) != 0 || len != sizeof(r->value) ||
		  memcmp(value, &r->value, len) != 0;
	return w->erase ? port.del(port.ctx, w->table, key, key_len, NULL) : 0;
}

static void expect(struct walk *w, const uint8_t *prefix, size_t prefix_len,
		   const uint8_t *from, size_t from_len, bool reverse)
{
	w->nr = w->at = 0;
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &model[reverse ? ROWS - 1 - i : i];
		int c = from_len ? compare(r, from, from_len) : 0;

		if (r->there && r->table == w->table && r->len >= prefix_len &&
		    !memcmp(r->key, prefix, prefix_len) &&
		    (reverse ? c <= 0 : c >= 0))
			w->want[w->nr++] = r;
	}
}

static int check_scan(uint64_t *seed)
{
	const struct row *a = &model[tap_rand(seed) % ROWS];
	const struct row *b = &model[tap_rand(seed) % ROWS];
	size_t prefix_len = tap_rand(seed) % (a->len + 1);
	size_t from_len = tap_rand(seed) % 2 ? b->len : 0;
	bool reverse = tap_rand(seed) % 2;
	struct walk w = { .table = tap_rand(seed) % 2 };

	expect(&w, a->key, prefix_len, b->key, from_len, reverse);
	port.ops->scan(port.ctx, w.table, a->key, prefix_len, b->key, from_len,
		       reverse, see, &w, NULL);
	return w.bad + (w.at != w.nr);
}

static void check_erase(bool reverse)
{
	struct walk w = { .table = 1, .erase = true };
	struct walk none = { .table = 1 };

	expect(&w, (const uint8_t *)"", 0, NULL, 0, reverse);
	port.ops->scan(port.ctx, 1, "", 0, NULL, 0, reverse, see, &w, NULL);
	ok(!w.bad && w.at == w.nr && w.nr > 0,
	   "a scan that deletes sees all %zu rows", w.nr);
	port.ops->scan(port.ctx, 1, "", 0, NULL, 0, false, see, &none, NULL);
	is_int(none.bad, 0, "and leaves none");
	for (size_t i = 0; i < ROWS; i++)
		model[i].there &= model[i].table != 1;
}

int main(void)
{
	uint64_t seed = tap_seed();
	struct memrows *m = memrows_new();
	int gets = 0, scans = 0;

	memrows_port(m, &port);
	make_keys(&seed);
	for (int i = 0; i < 5000; i++) {
		change(&seed);
		scans += check_scan(&seed);
		if (i % 100 == 0)
			gets += check_gets();
	}
	is_int(gets, 0, "every row is what was put last");
	is_int(scans, 0, "5000 scans give what the model gives");
	check_erase(false);
	for (int i = 0; i < 500; i++)
		change(&seed);
	check_erase(true);
	is_int(check_gets(), 0, "the other table is untouched");
	memrows_free(m);
	memrows_free(NULL);
	return tap_done();
}
