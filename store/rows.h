/*
 * rows: the projections at rest. Each value is sealed under a key derived
 * from the node's, bound to its table and key, so that a row can't be read,
 * changed, or moved without it. Keys of rows stand in the clear (LMDB sorts
 * by them). Format: docs/adr/0020-event-log-format.md, "Rows".
 */
#ifndef STORE_ROWS_H
#define STORE_ROWS_H

#include "core/ports.h"
#include "store/crypt.h"
#include "store/lmdb_env.h"

#define ROWS_VALUE_MAX (1u << 20) /* bytes of one value */
#define ROWS_CACHE 4

/* A reader's or the writer's sealing state; one thread at a time. */
struct rows {
	uint8_t key[CRYPT_KEY_LEN];
	uint32_t generation; /* that new rows are sealed under */
	struct {
		uint32_t generation;
		struct crypt_aead *aead;
	} cache[ROWS_CACHE];
	unsigned next;
};

/* Tables of the environment; rows of TABLE_X lie in table X of LMDB. */
#define ROWS_LMDB_TABLES TABLE_NR
const char *rows_table_name(enum table t);

/* `key`: keys_node_derive("cryo-row-v1"). Copied; done wipes. */
void rows_init(struct rows *r, const uint8_t key[CRYPT_KEY_LEN],
	       uint32_t generation);
void rows_done(struct rows *r);

/* As view_ops and store_port in core/ports.h, inside the transaction. */
int rows_get(struct rows *r, struct lmdb_txn *txn, enum table t,
	     const void *key, size_t key_len, struct buf *ret, struct err *e);
int rows_put(struct rows *r, struct lmdb_txn *txn, enum table t, const void *key,
	     size_t key_len, const void *value, size_t len, struct err *e);
int rows_del(struct rows *r, struct lmdb_txn *txn, enum table t,
	     const void *key, size_t key_len, struct err *e);
/*
 * The callback may put and del rows of other tables and of keys already
 * passed; returns the callback's negative value, else 0.
 */
int rows_scan(struct rows *r, struct lmdb_txn *txn, enum table t,
	      const void *prefix, size_t prefix_len, const void *from,
	      size_t from_len, bool reverse, row_fn fn, void *ctx, struct err *e);

/* Pure halves, for tests and tools. open: -EBADMSG. */
void rows_seal(struct rows *r, enum table t, const void *key, size_t key_len,
	       const void *value, size_t len, struct buf *ret);
int rows_open(struct rows *r, enum table t, const void *key, size_t key_len,
	      const void *sealed, size_t len, struct buf *ret);

#endif
