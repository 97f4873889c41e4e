/*
 * lmdb_env: the one place that calls LMDB. An environment with named tables,
 * one writer, many readers that see one consistent moment each. A committed
 * transaction is durable: default sync flags, never NOSYNC.
 *
 * Errors: -ENOENT (no such row; `e` untouched), -ENOSPC (disk or map full),
 * -EBUSY (reader table full), -EBADMSG (corrupt file), -EIO and others; all
 * but -ENOENT fill in `e`.
 */
#ifndef STORE_LMDB_ENV_H
#define STORE_LMDB_ENV_H

#include "core/base.h"
#include "core/err.h"

#define LMDB_ENV_TABLES_MAX 48

struct lmdb_env;
struct lmdb_txn;
struct lmdb_cur;

struct lmdb_table {
	const char *name;
	bool by_seq; /* key is a native u64, in rising order (INTEGERKEY) */
};

struct lmdb_options {
	size_t map_size; /* bytes of address space; 0: 1 TiB */
	bool read_only; /* no table is made; the folder must hold one */
};

/*
 * Opens (or makes) the environment in folder `dir`; tables are named by
 * their index from then on. Readers that died are cleared. The process must
 * not open the same environment twice (LMDB's rule).
 */
int lmdb_env_open(struct lmdb_env **ret, const char *dir,
		  const struct lmdb_table *tables, size_t nr_tables,
		  const struct lmdb_options *o, struct err *e);
void lmdb_env_close(struct lmdb_env *env); /* no txn open; NULL is fine */
void lmdb_env_close_p(struct lmdb_env **env);

/* Clears slots of readers whose process died; number cleared. */
int lmdb_env_clear_readers(struct lmdb_env *env);

/* Bytes of the file in use. */
uint64_t lmdb_env_size(const struct lmdb_env *env);

/*
 * One write transaction at a time, ended by the thread that began it. Read
 * transactions may change threads, but serve one at a time; an open one
 * keeps old pages from reuse, so hold it for moments, never over a wait.
 */
int lmdb_txn_begin(struct lmdb_txn **ret, struct lmdb_env *env, bool write,
		   struct err *e);
int lmdb_txn_commit(struct lmdb_txn *txn, struct err *e); /* frees, always */
void lmdb_txn_abort(struct lmdb_txn *txn); /* NULL is fine */
void lmdb_txn_abort_p(struct lmdb_txn **txn);

/* Borrowed until the next write of the transaction or its end. */
int lmdb_txn_get(struct lmdb_txn *txn, size_t table, const void *key,
		 size_t key_len, const void **ret, size_t *ret_len,
		 struct err *e);
int lmdb_txn_put(struct lmdb_txn *txn, size_t table, const void *key,
		 size_t key_len, const void *value, size_t len, struct err *e);
int lmdb_txn_del(struct lmdb_txn *txn, size_t table, const void *key,
		 size_t key_len, struct err *e); /* no such row: 0 */

/* Tables by_seq: append refuses a seq that is not the highest (-EEXIST). */
int lmdb_txn_append(struct lmdb_txn *txn, size_t table, uint64_t seq,
		    const void *value, size_t len, struct err *e);
uint64_t lmdb_txn_count(struct lmdb_txn *txn, size_t table); /* rows */

/* A position in a table; ends before its transaction does. */
int lmdb_cur_open(struct lmdb_cur **ret, struct lmdb_txn *txn, size_t table,
		  struct err *e);
void lmdb_cur_close(struct lmdb_cur *c);
void lmdb_cur_close_p(struct lmdb_cur **c);

enum lmdb_move { LMDB_FIRST, LMDB_LAST, LMDB_NEXT, LMDB_PREV };

struct lmdb_row {
	const void *key, *value; /* borrowed, as lmdb_txn_get() */
	size_t key_len, len;
};

int lmdb_cur_move(struct lmdb_cur *c, enum lmdb_move m, struct lmdb_row *ret,
		  struct err *e); /* -ENOENT at the end */
/* First row with key >= the given one. */
int lmdb_cur_seek(struct lmdb_cur *c, const void *key, size_t key_len,
		  struct lmdb_row *ret, struct err *e);

#endif
