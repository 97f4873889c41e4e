/*
 * view: the two ports of core/ports.h on LMDB. All that is here is choosing
 * the transaction: a reader's own, or the writer's.
 *
 * Invariants:
 *  1. A reader's view never changes while it is open, whatever is committed.
 *  2. The writer's reads see its own uncommitted writes.
 *  3. A view belongs to one thread at a time; many views run beside the
 *     writer without a lock.
 *
 * A process that dies with views open leaves reader slots, cleared at the
 * next open of the log.
 */
#include "store/view.h"

struct view {
	struct evlog *log;
	struct lmdb_txn *txn;
	struct rowbox rowbox;
};

static uint64_t last_seq(const struct evlog *log, struct lmdb_txn *txn)
{
	struct evlog_head head;

	/* The open checked the head; a bad one now is a broken disk. */
	if (evlog_head(log, txn, &head, NULL))
		return 0;
	return head.seq;
}

/* --- readers -------------------------------------------------------------- */

static int reader_get(void *view, enum table t, const void *key, size_t key_len,
		      struct buf *ret, struct err *e)
{
	struct view *v = view;

	return rowbox_get(&v->rowbox, v->txn, t, key, key_len, ret, e);
}

static int reader_scan(void *view, enum table t, const void *prefix,
		       size_t prefix_len, const void *from, size_t from_len,
		       bool reverse, row_fn fn, void *ctx, struct err *e)
{
	struct view *v = view;

	return rowbox_scan(&v->rowbox, v->txn, t, prefix, prefix_len, from,
			   from_len, reverse, fn, ctx, e);
}

static int reader_events(void *view, const char *session, uint64_t after,
			 event_fn fn, void *ctx, struct err *e)
{
	struct view *v = view;

	return evlog_events(v->log, v->txn, session, after, fn, ctx, e);
}

static uint64_t reader_last_seq(void *view)
{
	struct view *v = view;

	return last_seq(v->log, v->txn);
}

static const struct view_ops reader_ops = {
	.get = reader_get,
	.scan = reader_scan,
	.events = reader_events,
	.last_seq = reader_last_seq,
};

static int reader_open(void *ctx, void **ret_view, struct err *e)
{
	struct evlog *log = ctx;
	struct lmdb_txn *txn;
	struct view *v;
	int r = lmdb_txn_begin(&txn, evlog_env(log), false, e);

	if (r)
		return r;
	v = base_alloc(sizeof(*v));
	v->log = log;
	v->txn = txn;
	evlog_rowbox_init(log, &v->rowbox);
	*ret_view = v;
	return 0;
}

static void reader_close(void *view)
{
	struct view *v = view;

	if (!v)
		return;
	lmdb_txn_abort(v->txn);
	rowbox_done(&v->rowbox);
	free(v);
}

void view_read_port(struct evlog *log, struct view_port *ret)
{
	*ret = (struct view_port){
		.ctx = log,
		.ops = &reader_ops,
		.open = reader_open,
		.close = reader_close,
	};
}

/* --- the writer ----------------------------------------------------------- */

static int writer_get(void *view, enum table t, const void *key, size_t key_len,
		      struct buf *ret, struct err *e)
{
	struct evlog *log = view;

	PRE(evlog_txn(log));
	return rowbox_get(evlog_writer_rowbox(log), evlog_txn(log), t, key,
			  key_len, ret, e);
}

static int writer_scan(void *view, enum table t, const void *prefix,
		       size_t prefix_len, const void *from, size_t from_len,
		       bool reverse, row_fn fn, void *ctx, struct err *e)
{
	struct evlog *log = view;

	PRE(evlog_txn(log));
	return rowbox_scan(evlog_writer_rowbox(log), evlog_txn(log), t, prefix,
			   prefix_len, from, from_len, reverse, fn, ctx, e);
}

static int writer_events(void *view, const char *session, uint64_t after,
			 event_fn fn, void *ctx, struct err *e)
{
	struct evlog *log = view;

	PRE(evlog_txn(log));
	return evlog_events(log, evlog_txn(log), session, after, fn, ctx, e);
}

static uint64_t writer_last_seq(void *view)
{
	return evlog_last_seq(view);
}

static int writer_begin(void *ctx, struct err *e)
{
	return evlog_begin(ctx, e);
}

static int writer_append(void *ctx, struct event *ev, struct err *e)
{
	return evlog_append(ctx, ev, e);
}

static int writer_put(void *ctx, enum table t, const void *key, size_t key_len,
		      const void *value, size_t len, struct err *e)
{
	struct evlog *log = ctx;

	PRE(evlog_txn(log));
	return rowbox_put(evlog_writer_rowbox(log), evlog_txn(log), t, key,
			  key_len, value, len, e);
}

static int writer_del(void *ctx, enum table t, const void *key, size_t key_len,
		      struct err *e)
{
	struct evlog *log = ctx;

	PRE(evlog_txn(log));
	return rowbox_del(evlog_writer_rowbox(log), evlog_txn(log), t, key,
			  key_len, e);
}

static int writer_commit(void *ctx, struct err *e)
{
	return evlog_commit(ctx, e);
}

static void writer_abort(void *ctx)
{
	evlog_abort(ctx);
}

static const struct view_ops writer_ops = {
	.get = writer_get,
	.scan = writer_scan,
	.events = writer_events,
	.last_seq = writer_last_seq,
};

void view_store_port(struct evlog *log, struct store_port *ret)
{
	*ret = (struct store_port){
		.ctx = log,
		.ops = &writer_ops,
		.begin = writer_begin,
		.append = writer_append,
		.put = writer_put,
		.del = writer_del,
		.commit = writer_commit,
		.abort = writer_abort,
	};
}
