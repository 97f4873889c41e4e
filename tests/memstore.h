/*
 * memstore: the store's ports in memory, for tests. Rows of all tables lie
 * in one sorted array of shared, immutable rows, so that a copy of a whole
 * store (a transaction's way back, a view, a node of a search) is cheap.
 * Events are kept as their encoded bodies, as the log would.
 *
 * Faults: fail_in (the n-th write from now fails with NO_SPACE), and
 * fail_commit. Included by test programs; everything is static.
 */
#ifndef TESTS_MEMSTORE_H
#define TESTS_MEMSTORE_H

#include "core/ports.h"
#include "core/project.h"

#include <pthread.h>
#include <stdio.h>

#define MEM_UNUSED __attribute__((unused))

struct mem_row {
	int refs;
	uint8_t table;
	size_t key_len, len;
	uint8_t bytes[]; /* key, then value */
};

struct mem_event {
	int refs;
	struct event ev; /* the public part; no data */
	struct buf body;
};

struct mem_rows {
	struct mem_row **row;
	size_t nr, cap;
	struct mem_event **event;
	size_t nr_events, cap_events;
};

struct memstore {
	struct mem_rows now, before; /* before: at begin, if changed */
	bool in_txn, changed;
	int fail_in; /* > 0: so many writes until one fails */
	bool fail_commit;
	int full_commits; /* so many commits fail for want of space */
	int commits;
	pthread_mutex_t lock; /* around refs and `shown` */
	struct mem_rows shown; /* what views see: the last commit */
	struct store_port port;
	struct view_port views;
};

/* --- rows ---------------------------------------------------------------- */

static void mem_rows_done(struct mem_rows *r)
{
	for (size_t i = 0; i < r->nr; i++)
		if (!--r->row[i]->refs)
			free(r->row[i]);
	for (size_t i = 0; i < r->nr_events; i++)
		if (!--r->event[i]->refs) {
			buf_done(&r->event[i]->body);
			free(r->event[i]);
		}
	free(r->row);
	free(r->event);
	memset(r, 0, sizeof(*r));
}

static void mem_rows_copy(struct mem_rows *dst, const struct mem_rows *src)
{
	*dst = *src;
	dst->cap = src->nr;
	dst->cap_events = src->nr_events;
	dst->row = base_alloc((src->nr + 1) * sizeof(*dst->row));
	dst->event = base_alloc((src->nr_events + 1) * sizeof(*dst->event));
	for (size_t i = 0; i < src->nr; i++) {
		dst->row[i] = src->row[i];
		dst->row[i]->refs++;
	}
	for (size_t i = 0; i < src->nr_events; i++) {
		dst->event[i] = src->event[i];
		dst->event[i]->refs++;
	}
}

static int mem_cmp(const struct mem_row *r, enum table t, const void *key,
		   size_t len)
{
	size_t n = MIN(r->key_len, len);
	int c = (int)r->table - (int)t;

	if (!c && n)
		c = memcmp(r->bytes, key, n);
	return c ? c : (r->key_len > len) - (r->key_len < len);
}

/* Index of the first row not less than the key. */
static size_t mem_lower(const struct mem_rows *r, enum table t, const void *key,
			size_t len)
{
	size_t lo = 0, hi = r->nr;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (mem_cmp(r->row[mid], t, key, len) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool mem_is(const struct mem_rows *r, size_t i, enum table t,
		   const void *key, size_t len)
{
	return i < r->nr && !mem_cmp(r->row[i], t, key, len);
}

static bool mem_under(const struct mem_rows *r, size_t i, enum table t,
		      const void *prefix, size_t len)
{
	return i < r->nr && r->row[i]->table == t && r->row[i]->key_len >= len &&
	       (!len || !memcmp(r->row[i]->bytes, prefix, len));
}

/* --- reading ------------------------------------------------------------- */

static int mem_rows_get(const struct mem_rows *r, enum table t, const void *key,
			size_t len, struct buf *ret)
{
	size_t i = mem_lower(r, t, key, len);

	PRE(len > 0 && len <= ROW_KEY_MAX);
	if (!mem_is(r, i, t, key, len))
		return -ENOENT;
	buf_put(ret, r->row[i]->bytes + len, r->row[i]->len);
	return 0;
}

static int mem_rows_scan(const struct mem_rows *r, enum table t,
			 const void *prefix, size_t plen, const void *from,
			 size_t flen, bool reverse, row_fn fn, void *ctx)
{
	size_t i = mem_lower(r, t, from ? from : prefix, from ? flen : plen);
	size_t at;

	if (reverse && from && !mem_is(r, i, t, from, flen))
		i--;
	else if (reverse && !from)
		for (; mem_under(r, i + 1, t, prefix, plen); i++)
			;
	for (at = i; mem_under(r, at, t, prefix, plen); reverse ? at-- : at++) {
		struct mem_row *row = r->row[at];
		int rc = fn(ctx, row->bytes, row->key_len,
			    row->bytes + row->key_len, row->len);

		if (rc)
			return rc < 0 ? rc : 0;
	}
	return 0;
}

static int mem_rows_events(const struct mem_rows *r, const char *session,
			   uint64_t after, event_fn fn, void *ctx, struct err *e)
{
	for (size_t i = (size_t)after; i < r->nr_events; i++) {
		struct event ev = r->event[i]->ev;
		int rc = event_body_decode(&ev, r->event[i]->body.p,
					   r->event[i]->body.len, e);

		if (rc)
			return rc;
		ev.seq = i + 1;
		if (!session || !strcmp(session, ev.session))
			rc = fn(ctx, &ev);
		event_done(&ev);
		if (rc)
			return rc < 0 ? rc : 0;
	}
	return 0;
}

static int mem_get(void *v, enum table t, const void *key, size_t key_len,
		   struct buf *ret, MEM_UNUSED struct err *e)
{
	PRE(((struct memstore *)v)->in_txn);
	return mem_rows_get(&((struct memstore *)v)->now, t, key, key_len, ret);
}

static int mem_scan(void *v, enum table t, const void *prefix, size_t plen,
		    const void *from, size_t flen, bool reverse, row_fn fn,
		    void *ctx, MEM_UNUSED struct err *e)
{
	return mem_rows_scan(&((struct memstore *)v)->now, t, prefix, plen,
			     from, flen, reverse, fn, ctx);
}

static int mem_events(void *v, const char *session, uint64_t after, event_fn fn,
		      void *ctx, struct err *e)
{
	return mem_rows_events(&((struct memstore *)v)->now, session, after, fn,
			       ctx, e);
}

static uint64_t mem_last_seq(void *v)
{
	return ((struct memstore *)v)->now.nr_events;
}

static const struct view_ops mem_ops = { mem_get, mem_scan, mem_events,
					 mem_last_seq };

/* --- views: a copy of the last commit ------------------------------------ */

struct mem_view {
	struct memstore *m;
	struct mem_rows rows;
};

static int mem_view_get(void *v, enum table t, const void *key, size_t key_len,
			struct buf *ret, MEM_UNUSED struct err *e)
{
	return mem_rows_get(&((struct mem_view *)v)->rows, t, key, key_len, ret);
}

static int mem_view_scan(void *v, enum table t, const void *prefix, size_t plen,
			 const void *from, size_t flen, bool reverse, row_fn fn,
			 void *ctx, MEM_UNUSED struct err *e)
{
	return mem_rows_scan(&((struct mem_view *)v)->rows, t, prefix, plen,
			     from, flen, reverse, fn, ctx);
}

static int mem_view_events(void *v, const char *session, uint64_t after,
			   event_fn fn, void *ctx, struct err *e)
{
	return mem_rows_events(&((struct mem_view *)v)->rows, session, after,
			       fn, ctx, e);
}

static uint64_t mem_view_last_seq(void *v)
{
	return ((struct mem_view *)v)->rows.nr_events;
}

static const struct view_ops mem_view_ops = { mem_view_get, mem_view_scan,
					      mem_view_events,
					      mem_view_last_seq };

static int mem_view_open(void *ctx, void **ret, MEM_UNUSED struct err *e)
{
	struct mem_view *v = base_alloc(sizeof(*v));

	v->m = ctx;
	pthread_mutex_lock(&v->m->lock);
	mem_rows_copy(&v->rows, &v->m->shown);
	pthread_mutex_unlock(&v->m->lock);
	*ret = v;
	return 0;
}

static void mem_view_close(void *view)
{
	struct mem_view *v = view;

	pthread_mutex_lock(&v->m->lock);
	mem_rows_done(&v->rows);
	pthread_mutex_unlock(&v->m->lock);
	free(v);
}

/* --- writing ------------------------------------------------------------- */

static int mem_begin(void *ctx, MEM_UNUSED struct err *e)
{
	struct memstore *m = ctx;

	PRE(!m->in_txn);
	m->in_txn = true;
	m->changed = false;
	return 0;
}

static int mem_write(struct memstore *m, struct err *e)
{
	PRE(m->in_txn);
	if (m->fail_in && !--m->fail_in)
		return err_set(e, -ENOSPC, ERR_NO_SPACE, "no space (a test)");
	pthread_mutex_lock(&m->lock);
	if (!m->changed)
		mem_rows_copy(&m->before, &m->now);
	pthread_mutex_unlock(&m->lock);
	m->changed = true;
	return 0;
}

static int mem_append(void *ctx, struct event *ev, struct err *e)
{
	struct memstore *m = ctx;
	struct mem_event *k;
	int rc = mem_write(m, e);

	if (rc)
		return rc;
	k = base_alloc(sizeof(*k));
	k->refs = 1;
	rc = event_body_encode(&k->body, ev, e);
	if (rc) {
		free(k);
		return rc;
	}
	k->ev = *ev;
	k->ev.data = NULL;
	if (m->now.nr_events == m->now.cap_events) {
		m->now.cap_events = 2 * m->now.cap_events + 16;
		m->now.event = base_realloc(
			m->now.event, m->now.cap_events * sizeof(*m->now.event));
	}
	m->now.event[m->now.nr_events++] = k;
	ev->seq = m->now.nr_events;
	return 0;
}

static void mem_drop(struct memstore *m, size_t i)
{
	pthread_mutex_lock(&m->lock);
	if (!--m->now.row[i]->refs)
		free(m->now.row[i]);
	pthread_mutex_unlock(&m->lock);
	m->now.nr--;
	memmove(&m->now.row[i], &m->now.row[i + 1],
		(m->now.nr - i) * sizeof(*m->now.row));
}

static int mem_del(void *ctx, enum table t, const void *key, size_t key_len,
		   struct err *e)
{
	struct memstore *m = ctx;
	size_t i = mem_lower(&m->now, t, key, key_len);
	int rc = mem_write(m, e);

	if (!rc && mem_is(&m->now, i, t, key, key_len))
		mem_drop(m, i);
	return rc;
}

static int mem_put(void *ctx, enum table t, const void *key, size_t key_len,
		   const void *value, size_t len, struct err *e)
{
	struct memstore *m = ctx;
	struct mem_row *row;
	size_t i = mem_lower(&m->now, t, key, key_len);
	int rc = mem_write(m, e);

	PRE(key_len > 0 && key_len <= ROW_KEY_MAX);
	if (rc)
		return rc;
	if (mem_is(&m->now, i, t, key, key_len))
		mem_drop(m, i);
	row = base_alloc(sizeof(*row) + key_len + len);
	*row = (struct mem_row){ 1, (uint8_t)t, key_len, len };
	memcpy(row->bytes, key, key_len);
	if (len)
		memcpy(row->bytes + key_len, value, len);
	if (m->now.nr == m->now.cap) {
		m->now.cap = 2 * m->now.cap + 16;
		m->now.row = base_realloc(m->now.row,
					  m->now.cap * sizeof(*m->now.row));
	}
	memmove(&m->now.row[i + 1], &m->now.row[i],
		(m->now.nr - i) * sizeof(*m->now.row));
	m->now.row[i] = row;
	m->now.nr++;
	return 0;
}

static void mem_abort(void *ctx)
{
	struct memstore *m = ctx;

	PRE(m->in_txn);
	m->in_txn = false;
	if (!m->changed)
		return;
	pthread_mutex_lock(&m->lock);
	mem_rows_done(&m->now);
	m->now = m->before;
	memset(&m->before, 0, sizeof(m->before));
	pthread_mutex_unlock(&m->lock);
}

static int mem_commit(void *ctx, struct err *e)
{
	struct memstore *m = ctx;

	PRE(m->in_txn);
	if (m->fail_commit)
		return err_set(e, -EIO, ERR_INTERNAL, "sync failed (a test)");
	if (m->full_commits) {
		m->full_commits--;
		mem_abort(m);
		return err_set(e, -ENOSPC, ERR_NO_SPACE, "disk full (a test)");
	}
	m->in_txn = false;
	m->commits++;
	pthread_mutex_lock(&m->lock);
	mem_rows_done(&m->before);
	mem_rows_done(&m->shown);
	mem_rows_copy(&m->shown, &m->now);
	pthread_mutex_unlock(&m->lock);
	return 0;
}

/* --- the store as a whole ------------------------------------------------ */

MEM_UNUSED static void memstore_init(struct memstore *m)
{
	memset(m, 0, sizeof(*m));
	pthread_mutex_init(&m->lock, NULL);
	m->port = (struct store_port){ m,	   &mem_ops, mem_begin,
				       mem_append, mem_put,  mem_del,
				       mem_commit, mem_abort };
	m->views = (struct view_port){ m, &mem_view_ops, mem_view_open,
				       mem_view_close };
}

MEM_UNUSED static void memstore_done(struct memstore *m)
{
	mem_rows_done(&m->now);
	mem_rows_done(&m->shown);
	mem_rows_done(&m->before);
	pthread_mutex_destroy(&m->lock);
}

/* A store of its own with the same content. */
MEM_UNUSED static void memstore_clone(struct memstore *dst,
				      const struct memstore *src)
{
	memstore_init(dst);
	mem_rows_copy(&dst->now, &src->now);
	mem_rows_copy(&dst->shown, &src->now);
}

/* All events of src folded into the empty dst. */
MEM_UNUSED static int memstore_fold(struct memstore *dst,
				    const struct memstore *src, struct err *e)
{
	int rc = mem_begin(dst, e);

	for (size_t i = 0; !rc && i < src->now.nr_events; i++) {
		const struct mem_event *k = src->now.event[i];
		struct event ev = k->ev;

		rc = event_body_decode(&ev, k->body.p, k->body.len, e);
		ev.seq = i + 1;
		if (!rc)
			rc = project_apply(&dst->port, &ev, e);
		event_done(&ev);
	}
	if (!rc)
		return mem_commit(dst, e);
	mem_abort(dst);
	return rc;
}

static void mem_show(const char *which, const struct mem_rows *r, size_t i)
{
	if (i >= r->nr)
		printf("#   %s: nothing\n", which);
	else
		printf("#   %s: table %d %.*s = %.*s\n", which,
		       r->row[i]->table, (int)MIN(r->row[i]->key_len, 40u),
		       (const char *)r->row[i]->bytes, (int)r->row[i]->len,
		       (const char *)r->row[i]->bytes + r->row[i]->key_len);
}

/* Are the rows the same? Prints the first difference. */
MEM_UNUSED static bool memstore_same_rows(const struct memstore *a,
					  const struct memstore *b)
{
	size_t n = MAX(a->now.nr, b->now.nr);

	for (size_t i = 0; i < n; i++) {
		const struct mem_row *x, *y;

		x = i < a->now.nr ? a->now.row[i] : NULL;
		y = i < b->now.nr ? b->now.row[i] : NULL;
		if (x && y && x->len == y->len &&
		    !mem_cmp(x, (enum table)y->table, y->bytes, y->key_len) &&
		    !memcmp(x->bytes + x->key_len, y->bytes + y->key_len, x->len))
			continue;
		mem_show("one", &a->now, i);
		mem_show("other", &b->now, i);
		return false;
	}
	return true;
}

/* Does folding the log give the rows? */
MEM_UNUSED static bool memstore_consistent(const struct memstore *m)
{
	struct memstore fresh;
	struct err e = { .msg = "" };
	bool same;

	memstore_init(&fresh);
	same = !memstore_fold(&fresh, m, &e);
	if (!same)
		printf("#   fold: %s\n", e.msg);
	same = same && memstore_same_rows(&fresh, m);
	memstore_done(&fresh);
	return same;
}

#endif
