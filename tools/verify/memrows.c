/*
 * memrows: a treap (a binary search tree that is a heap by random priority,
 * Seidel and Aragon 1996) over (table, key).
 *
 * Invariants:
 *  1. In-order is the order of (table, bytes of the key); parents have a
 *     priority not below their children's.
 *  2. A scan keeps no pointer to a node while the callback runs: it finds its
 *     place again by key, so the callback may put and del.
 */
#include "tools/verify/memrows.h"

struct node {
	struct node *left, *right;
	uint64_t priority;
	uint8_t *value;
	size_t len;
	size_t key_len;
	uint8_t key[]; /* the table, then the row's key */
};

struct memrows {
	struct node *root;
	uint64_t random; /* xorshift64: shape only, never order */
};

/* A key in its table. */
struct full_key {
	uint8_t p[1 + ROW_KEY_MAX];
	size_t len;
};

static void key_set(struct full_key *k, enum table t, const void *key, size_t len)
{
	PRE(len <= ROW_KEY_MAX);
	k->p[0] = (uint8_t)t;
	if (len)
		memcpy(k->p + 1, key, len);
	k->len = len + 1;
}

static int compare(const struct full_key *a, const struct node *n)
{
	int c = memcmp(a->p, n->key, MIN(a->len, n->key_len));

	return c ? c : (a->len > n->key_len) - (a->len < n->key_len);
}

struct memrows *memrows_new(void)
{
	struct memrows *m = base_alloc(sizeof(*m));

	m->random = 0x9e3779b97f4a7c15u;
	return m;
}

static void node_free(struct node *n)
{
	if (!n)
		return;
	node_free(n->left);
	node_free(n->right);
	free(n->value);
	free(n);
}

void memrows_free(struct memrows *m)
{
	if (!m)
		return;
	node_free(m->root);
	free(m);
}

static uint64_t next_random(struct memrows *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return m->random;
}

static struct node *find(const struct memrows *m, const struct full_key *k)
{
	struct node *n = m->root;

	while (n) {
		int c = compare(k, n);

		if (!c)
			return n;
		n = c < 0 ? n->left : n->right;
	}
	return NULL;
}

/* All below key to *ret_left, all above to *ret_right. */
static void split(struct node *n, const struct full_key *k,
		  struct node **ret_left, struct node **ret_right)
{
	while (n) {
		if (compare(k, n) < 0) {
			*ret_right = n;
			ret_right = &n->left;
			n = n->left;
		} else {
			*ret_left = n;
			ret_left = &n->right;
			n = n->right;
		}
	}
	*ret_left = *ret_right = NULL;
}

static struct node *merge(struct node *left, struct node *right)
{
	struct node *root = NULL, **at = &root;

	while (left && right) {
		if (left->priority >= right->priority) {
			*at = left;
			at = &left->right;
			left = left->right;
		} else {
			*at = right;
			at = &right->left;
			right = right->left;
		}
	}
	*at = left ? left : right;
	return root;
}

static void set_value(struct node *n, const void *value, size_t len)
{
	free(n->value);
	n->value = base_alloc(len ? len : 1);
	if (len)
		memcpy(n->value, value, len);
	n->len = len;
}

static void insert(struct memrows *m, const struct full_key *k,
		   const void *value, size_t len)
{
	struct node *n = base_alloc(sizeof(*n) + k->len);
	struct node **at = &m->root;

	memcpy(n->key, k->p, k->len);
	n->key_len = k->len;
	n->priority = next_random(m);
	set_value(n, value, len);
	while (*at && (*at)->priority >= n->priority)
		at = compare(k, *at) < 0 ? &(*at)->left : &(*at)->right;
	split(*at, k, &n->left, &n->right);
	*at = n;
}

static int port_put(void *ctx, enum table t, const void *key, size_t key_len,
		    const void *value, size_t len, struct err *e UNUSED)
{
	struct memrows *m = ctx;
	struct full_key k;
	struct node *n;

	key_set(&k, t, key, key_len);
	n = find(m, &k);
	if (n)
		set_value(n, value, len);
	else
		insert(m, &k, value, len);
	return 0;
}

static int port_del(void *ctx, enum table t, const void *key, size_t key_len,
		    struct err *e UNUSED)
{
	struct memrows *m = ctx;
	struct node **at = &m->root, *n;
	struct full_key k;
	int c;

	key_set(&k, t, key, key_len);
	while (*at && (c = compare(&k, *at)))
		at = c < 0 ? &(*at)->left : &(*at)->right;
	n = *at;
	if (!n)
		return 0;
	*at = merge(n->left, n->right);
	free(n->value);
	free(n);
	return 0;
}

static int port_get(void *view, enum table t, const void *key, size_t key_len,
		    struct buf *ret, struct err *e UNUSED)
{
	const struct node *n;
	struct full_key k;

	key_set(&k, t, key, key_len);
	n = find(view, &k);
	if (!n)
		return -ENOENT;
	buf_put(ret, n->value, n->len);
	return 0;
}

/* The next row above (below, when down) k, or at it if inclusive. */
static const struct node *next(const struct memrows *m, const struct full_key *k,
			       bool inclusive, bool down)
{
	const struct node *n = m->root, *best = NULL;

	while (n) {
		int c = compare(k, n);
		bool fits = down ? c > 0 : c < 0;

		if (!c && inclusive)
			return n;
		if (fits)
			best = n;
		/* Towards k; from k itself, on to the side that is asked. */
		if (down)
			n = fits ? n->right : n->left;
		else
			n = fits ? n->left : n->right;
	}
	return best;
}

/* The first key behind all of the table that start with prefix. */
static void key_behind(struct full_key *k, enum table t, const void *prefix,
		       size_t len)
{
	key_set(k, t, prefix, len);
	while (k->p[k->len - 1] == 0xff)
		k->len--; /* ends at the table's own byte, which is small */
	k->p[k->len - 1]++;
}

static bool start(struct full_key *at, enum table t, const void *prefix,
		  size_t prefix_len, const void *from, size_t from_len,
		  bool reverse)
{
	struct full_key bound;
	int c;

	if (reverse)
		key_behind(&bound, t, prefix, prefix_len);
	else
		key_set(&bound, t, prefix, prefix_len);
	*at = bound;
	if (!from_len)
		return !reverse;
	key_set(at, t, from, from_len);
	c = memcmp(at->p, bound.p, MIN(at->len, bound.len));
	if (!c)
		c = (at->len > bound.len) - (at->len < bound.len);
	if (reverse ? c < 0 : c > 0)
		return true;
	*at = bound;
	return !reverse;
}

static int port_scan(void *view, enum table t, const void *prefix,
		     size_t prefix_len, const void *from, size_t from_len,
		     bool reverse, row_fn fn, void *ctx, struct err *e UNUSED)
{
	SCOPED(buf_done) struct buf value = { 0 };
	struct full_key at;
	const struct node *n;
	bool inclusive;
	int r;

	inclusive = start(&at, t, prefix, prefix_len, from, from_len, reverse);
	for (;; inclusive = false) {
		n = next(view, &at, inclusive, reverse);
		if (!n || n->key[0] != (uint8_t)t || n->key_len - 1 < prefix_len ||
		    (prefix_len && memcmp(n->key + 1, prefix, prefix_len) != 0))
			return 0;
		key_set(&at, t, n->key + 1, n->key_len - 1);
		buf_reset(&value);
		buf_put(&value, n->value, n->len);
		r = fn(ctx, at.p + 1, at.len - 1, value.p, value.len);
		if (r)
			return r < 0 ? r : 0;
	}
}

void memrows_port(struct memrows *m, struct store_port *ret)
{
	static const struct view_ops ops = {
		.get = port_get,
		.scan = port_scan,
	};

	*ret = (struct store_port){
		.ctx = m,
		.ops = &ops,
		.put = port_put,
		.del = port_del,
	};
}
