/*
 * ports: what core needs from outside, handed in. The store implements both
 * on LMDB; tests have a small one in memory. Values are canonical JSON made
 * by core's codecs; the store seals them and never looks inside.
 */
#ifndef CORE_PORTS_H
#define CORE_PORTS_H

#include "core/buf.h"
#include "core/err.h"
#include "core/event.h"

/*
 * Projections. Keys are bytes compared by memcmp; ids are 20 bytes without
 * NUL; times are big-endian u64 of ns.
 *   name                key                        value
 */
#define TABLES(X)                                                              \
	X(SESSIONS, "sessions") /* session id      -> session */               \
	X(SESSIONS_BY_TENANT, "by_tenant") /* tenant + id     -> "" */         \
	X(SESSIONS_BY_NAME, "by_name") /* tenant + name   -> id */             \
	X(EPOCHS, "epochs") /* session + be64 epoch -> {} */                   \
	X(POINTS, "points") /* session + be64 time -> point */                 \
	X(POINTS_BY_ID, "points_by_id") /* point id -> points key */           \
	X(POINTS_BY_NAME, "points_by_name") /* session + name -> points key */ \
	X(EXECS, "execs") /* exec id -> exec */                                \
	X(EXECS_BY_SESSION, "session_execs") /* session + exec id -> "" */     \
	X(OPERATIONS, "operations") /* operation id -> operation */            \
	X(OPERATIONS_OPEN, "operations_open") /* operation id -> "" */         \
	X(TEMPLATES, "templates") /* name:tag -> template */                   \
	X(PARKS, "parks") /* park key -> session id */                         \
	X(TENANTS, "tenants") /* tenant id -> tenant */                        \
	X(KEYS, "keys") /* key id -> API key (hash) */                         \
	X(IDEMPOTENCY, "idempotency") /* scope digest -> outcome */            \
	X(META, "meta") /* what is node-wide */

enum table {
#define X(name, word) TABLE_##name,
	TABLES(X)
#undef X
		TABLE_NR
};

#define ROW_KEY_MAX 256

/* Returns 0 to go on, 1 to stop, -errno to fail. Borrows for the call. */
typedef int (*row_fn)(void *ctx, const void *key, size_t key_len,
		      const void *value, size_t len);
typedef int (*event_fn)(void *ctx, const struct event *ev);

/* A read view: one consistent moment. Any thread; one thread per view. */
struct view_ops {
	/* Appends the value to ret. -ENOENT without touching e. */
	int (*get)(void *view, enum table t, const void *key, size_t key_len,
		   struct buf *ret, struct err *e);
	/*
	 * Rows whose key starts with prefix, from `from` (inclusive; empty:
	 * the first, or the last when reverse) up- or downwards.
	 */
	int (*scan)(void *view, enum table t, const void *prefix,
		    size_t prefix_len, const void *from, size_t from_len,
		    bool reverse, row_fn fn, void *ctx, struct err *e);
	/* Events with seq > after, of one session or (NULL) of all. */
	int (*events)(void *view, const char *session, uint64_t after,
		      event_fn fn, void *ctx, struct err *e);
	uint64_t (*last_seq)(void *view);
};

/* Opens and closes read views; shared by all readers. */
struct view_port {
	void *ctx;
	const struct view_ops *ops;
	int (*open)(void *ctx, void **ret_view, struct err *e);
	void (*close)(void *view);
};

/*
 * The only writer: engine thread alone. begin .. {append, put, del} ..
 * commit; reads inside see the transaction's own writes. commit returns
 * once all of it is durable; if it fails the process must exit without
 * acknowledging (a failed sync is never retried). Not so with ERR_NO_SPACE
 * and a `begin` that works: nothing of it is there then, nor ever will be.
 */
struct store_port {
	void *ctx;
	const struct view_ops *ops; /* reads; `view` is ctx, inside begin..end */
	int (*begin)(void *ctx, struct err *e);
	int (*append)(void *ctx, struct event *ev, struct err *e); /* sets seq */
	int (*put)(void *ctx, enum table t, const void *key, size_t key_len,
		   const void *value, size_t len, struct err *e);
	int (*del)(void *ctx, enum table t, const void *key, size_t key_len,
		   struct err *e); /* no such row: 0 */
	int (*commit)(void *ctx, struct err *e);
	void (*abort)(void *ctx);
};

#endif
