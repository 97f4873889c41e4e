/*
 * rowbox: the projections at rest. Each value is sealed under a key derived
 * from the node's, bound to its table and key, so that a row can't be read,
 * changed, or moved without it. Keys of rows stand in the clear (LMDB sorts
 * by them). Format: docs/adr/0020-event-log-format.md, "Rows".
 */
#ifndef STORE_ROWBOX_H
#define STORE_ROWBOX_H

#include "core/ports.h"
#include "store/crypt.h"
#include "store/lmdb_env.h"

#define ROWBOX_VALUE_MAX (1u << 20) /* bytes of one value */
#define ROWBOX_CACHE 4

/* A reader's or the writer's sealing state; one thread at a time. */
struct rowbox {
	uint8_t key[CRYPT_KEY_LEN];
	uint32_t generation; /* that new rows are sealed under */
	uint64_t sealed; /* rows sealed under it by this process */
	struct {
		uint32_t generation;
		struct crypt_aead *aead;
	} cache[ROWBOX_CACHE];
	unsigned next;
};

/* Tables of the environment; rows of TABLE_X lie in table X of LMDB. */
#define ROWBOX_LMDB_TABLES TABLE_NR
const char *rowbox_table_name(enum table t);

/* `key`: keys_node_derive("cryo-row-v1"). Copied; done wipes. */
void rowbox_init(struct rowbox *r, const uint8_t key[CRYPT_KEY_LEN],
		 uint32_t generation);
void rowbox_done(struct rowbox *r);

/* As view_ops and store_port in core/ports.h, inside the transaction. */
int rowbox_get(struct rowbox *r, struct lmdb_txn *txn, enum table t,
	       const void *key, size_t key_len, struct buf *ret, struct err *e);
int rowbox_put(struct rowbox *r, struct lmdb_txn *txn, enum table t,
	       const void *key, size_t key_len, const void *value, size_t len,
	       struct err *e);
int rowbox_del(struct rowbox *r, struct lmdb_txn *txn, enum table t,
	       const void *key, size_t key_len, struct err *e);
/*
 * The callback may put and del rows, also of this table, also the one it is
 * given; returns the callback's negative value, else 0.
 */
int rowbox_scan(struct rowbox *r, struct lmdb_txn *txn, enum table t,
		const void *prefix, size_t prefix_len, const void *from,
		size_t from_len, bool reverse, row_fn fn, void *ctx,
		struct err *e);

/* Pure halves, for tests and tools. open: -EBADMSG. */
void rowbox_seal(struct rowbox *r, enum table t, const void *key,
		 size_t key_len, const void *value, size_t len, struct buf *ret);
int rowbox_open(struct rowbox *r, enum table t, const void *key, size_t key_len,
		const void *sealed, size_t len, struct buf *ret);

#endif
