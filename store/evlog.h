/*
 * evlog: the event log, the only truth. One writer appends events and the
 * rows that follow from them in one durable transaction; readers walk it in
 * read transactions of their own. Format: docs/adr/0020-event-log-format.md.
 *
 * Core sees it through the ports of store/view.h.
 */
#ifndef STORE_EVLOG_H
#define STORE_EVLOG_H

#include "core/ports.h"
#include "store/evrecord.h"
#include "store/keys.h"
#include "store/lmdb_env.h"
#include "store/rowbox.h"

#define EVLOG_FORMAT 1 /* of the whole database */
#define EVLOG_RESERVE (32ull << 20) /* bytes left on disk for the log */

/* Type name of an event whose key is destroyed; its data tell no more. */
#define EVLOG_SEALED "sealed"

struct evlog;

struct evlog_head {
	uint64_t seq; /* of the last event; 0: none */
	uint8_t hash[CHAIN_HASH_LEN];
};

enum evlog_mode {
	EVLOG_WRITE,
	EVLOG_READ, /* makes and changes nothing; beside a writer too */
	EVLOG_INSPECT, /* as read, and opens a broken log as well */
};

/*
 * Opens DATA/log (made if missing, by EVLOG_WRITE). Checks the format
 * version (-EPROTONOSUPPORT: newer), the head and the last record's link
 * (-EBADMSG). `keys` is kept by reference and outlives the log. A process
 * opens one data folder's log once.
 */
int evlog_open(struct evlog **ret, const char *data, struct keys *keys,
	       enum evlog_mode mode, struct err *e);
void evlog_close(struct evlog *log); /* no view open; NULL is fine */
void evlog_close_p(struct evlog **log);

struct lmdb_env *evlog_env(struct evlog *log);
struct keys *evlog_keys(struct evlog *log);
/* A sealing state for one reader; the caller ends it with rowbox_done(). */
void evlog_rowbox_init(const struct evlog *log, struct rowbox *ret);

/*
 * The writer: one thread, begin .. {append, rows} .. commit or abort.
 * append sets ev->seq; the event is under its session's key (made for a
 * session's first event), else its tenant's, else the node's. commit returns
 * once all is on the disk; if it fails, the process exits without
 * acknowledging. When space for the log runs out (EVLOG_RESERVE), begin and
 * a failing commit give the ballast back; a timer of the daemon makes it
 * again (datadir_ballast_ensure()).
 */
int evlog_begin(struct evlog *log, struct err *e);
int evlog_append(struct evlog *log, struct event *ev, struct err *e);
int evlog_commit(struct evlog *log, struct err *e);
void evlog_abort(struct evlog *log);
uint64_t evlog_last_seq(const struct evlog *log); /* with what is open */
struct lmdb_txn *evlog_txn(struct evlog *log); /* the writer's, or NULL */
struct rowbox *evlog_writer_rowbox(struct evlog *log);

/* The last event that `txn` sees; -EBADMSG: not what this node wrote. */
int evlog_head(const struct evlog *log, struct lmdb_txn *txn,
	       struct evlog_head *ret, struct err *e);

/*
 * Events with seq > after, of one session (by its index) or of all, in
 * rising order; as view_ops.events. An event whose key is destroyed comes
 * with type EVENT_UNKNOWN, type_name EVLOG_SEALED, its scope's tenant or
 * session, and data {"reason":"key destroyed"}.
 */
int evlog_events(struct evlog *log, struct lmdb_txn *txn, const char *session,
		 uint64_t after, event_fn fn, void *ctx, struct err *e);

/*
 * Opens the record stored as number `seq`: 0, or 1 if its key is destroyed
 * (`ret` is then the EVLOG_SEALED event). The caller ends it with
 * event_done(). Says nothing of the chain.
 */
int evlog_event_read(struct evlog *log, uint64_t seq, const void *record,
		     size_t len, struct event *ret, struct err *e);

/* Tables of the database after those of core/ports.h. */
enum evlog_table {
	EVLOG_TABLE_LOG = TABLE_NR, /* u64 seq -> record */
	EVLOG_TABLE_BY_SESSION, /* session + be64 seq -> "" */
	EVLOG_TABLE_FORMAT, /* "version" "head" "generation" */
	EVLOG_TABLE_END
};

#endif
