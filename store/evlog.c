/*
 * evlog: appends events and reads them back.
 *
 * An append picks the event's scope, seals its body under the scope's key,
 * links it to the one before, and puts record and index entry into the open
 * transaction; a commit adds the new head and syncs. Rows go into the same
 * transaction (view.c), so log and rows can't part. Readers have transactions
 * of their own and share nothing with the writer but the keys.
 *
 * Invariants:
 *  1. Sequence numbers are 1, 2, 3 ... without holes; the head in the
 *     database is always that of the last record.
 *  2. What is committed is never changed; `head` moves only after a commit
 *     that succeeded.
 *  3. A session's key is made for its first event and never again: once it is
 *     destroyed, later events about the session go under its tenant's key.
 *  4. Reading needs keys, walking does not: an event whose key is destroyed
 *     is an event still.
 *
 * A crash leaves the last committed transaction (lmdb_env.c), and perhaps a
 * key file that no event uses.
 */
#include "store/evlog.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "store/datadir.h"

#define INDEX_LEN (ID_LEN + 8)
#define HEAD_LEN (8 + CHAIN_HASH_LEN + CRYPT_HASH_LEN)
#define GENERATION_SEALS (1ull << 30) /* rows under one generation's key */

struct evlog {
	struct lmdb_env *env;
	struct keys *keys;
	char *data;
	enum evlog_mode mode;
	uint8_t tag_key[CRYPT_KEY_LEN];
	uint8_t head_key[CRYPT_KEY_LEN];
	uint8_t row_key[CRYPT_KEY_LEN];

	/* the writer's */
	struct lmdb_txn *txn;
	struct evlog_head head, next; /* committed; with the transaction */
	struct rowbox rowbox;
	struct buf record; /* reused */
	bool no_ballast; /* given back, and to be made anew */
};

static const char key_version[] = "version";
static const char key_generation[] = "generation";
static const char key_head[] = "head";

/* --- the format table ----------------------------------------------------- */

static int format_get(struct lmdb_txn *txn, const char *key, void *ret,
		      size_t len, struct err *e)
{
	const void *value;
	size_t got;
	int r = lmdb_txn_get(txn, EVLOG_TABLE_FORMAT, key, strlen(key), &value,
			     &got, e);

	if (r)
		return r;
	if (got != len)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "log: \"%s\" of its format has %zu bytes, not "
			       "%zu",
			       key, got, len);
	memcpy(ret, value, len);
	return 0;
}

static int format_put(struct lmdb_txn *txn, const char *key, const void *value,
		      size_t len, struct err *e)
{
	return lmdb_txn_put(txn, EVLOG_TABLE_FORMAT, key, strlen(key), value,
			    len, e);
}

static int put_head(const struct evlog *log, struct lmdb_txn *txn,
		    const struct evlog_head *head, struct err *e)
{
	uint8_t v[HEAD_LEN];

	put_u64(v, head->seq);
	memcpy(v + 8, head->hash, CHAIN_HASH_LEN);
	crypt_hmac_sha256(v + 8 + CHAIN_HASH_LEN, log->head_key,
			  sizeof(log->head_key), v, 8 + CHAIN_HASH_LEN);
	return format_put(txn, key_head, v, sizeof(v), e);
}

int evlog_head(const struct evlog *log, struct lmdb_txn *txn,
	       struct evlog_head *ret, struct err *e)
{
	uint8_t v[HEAD_LEN], mac[CRYPT_HASH_LEN];
	int r = format_get(txn, key_head, v, sizeof(v), e);

	if (r == -ENOENT) {
		*ret = (struct evlog_head){ 0 };
		return 0;
	}
	if (r)
		return r;
	crypt_hmac_sha256(mac, log->head_key, sizeof(log->head_key), v,
			  8 + CHAIN_HASH_LEN);
	if (!base_same_secret(mac, v + 8 + CHAIN_HASH_LEN, sizeof(mac)))
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "log: its head is not one that this node's key "
			       "wrote (another provider key, or changed from "
			       "outside); bring the right keys or a copy back");
	ret->seq = get_u64(v);
	memcpy(ret->hash, v + 8, CHAIN_HASH_LEN);
	return 0;
}

static int check_version(struct lmdb_txn *txn, struct err *e)
{
	uint8_t v[4];
	int r = format_get(txn, key_version, v, sizeof(v), e);

	if (!r && get_u32(v) != EVLOG_FORMAT)
		return err_set(e, -EPROTONOSUPPORT, ERR_CORRUPT,
			       "log: written in format %u, this cryo (%s) "
			       "knows format %d; use a cryo that knows format "
			       "%u",
			       get_u32(v), CRYO_VERSION, EVLOG_FORMAT,
			       get_u32(v));
	return r;
}

/* --- opening -------------------------------------------------------------- */

/* Record `seq` as far as no key is needed. */
static int walk_get(struct lmdb_txn *txn, uint64_t seq, struct evrecord *ret,
		    struct err *e)
{
	const void *p;
	size_t len;
	int r = lmdb_txn_get(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), &p, &len,
			     e);

	if (r == -ENOENT)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "log: event %llu is missing",
			       (unsigned long long)seq);
	if (!r)
		r = evrecord_decode(ret, p, len, e);
	if (!r && ret->pub.seq != seq)
		r = err_set(e, -EBADMSG, ERR_CORRUPT, "is number %llu",
			    (unsigned long long)ret->pub.seq);
	return r ? err_wrap(e, r, "log: event %llu", (unsigned long long)seq) : 0;
}

/* The last record is the head's, and follows from the one before. */
static int check_end(struct lmdb_txn *txn, const struct evlog_head *head,
		     struct err *e)
{
	const uint8_t *prev = chain_genesis;
	uint8_t hash[CHAIN_HASH_LEN];
	struct evrecord last, before;
	int r;

	if (lmdb_txn_count(txn, EVLOG_TABLE_LOG) != head->seq)
		return err_set(
			e, -EBADMSG, ERR_CORRUPT,
			"log: %llu records, but its head is event %llu",
			(unsigned long long)lmdb_txn_count(txn, EVLOG_TABLE_LOG),
			(unsigned long long)head->seq);
	if (!head->seq)
		return 0;
	r = walk_get(txn, head->seq, &last, e);
	if (!r && head->seq > 1) {
		r = walk_get(txn, head->seq - 1, &before, e);
		prev = before.hash;
	}
	if (r)
		return r;
	chain_hash(hash, prev, last.public, last.public_len);
	if (memcmp(hash, head->hash, sizeof(hash)) != 0 ||
	    memcmp(hash, last.hash, sizeof(hash)) != 0)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "log: event %llu does not follow from the one "
			       "before it; run cryo verify",
			       (unsigned long long)head->seq);
	return 0;
}

/* A new generation of row keys for each life of a writer. */
static int next_generation(struct evlog *log, struct lmdb_txn *txn, struct err *e)
{
	uint8_t v[4] = { 0 };
	int r = format_get(txn, key_generation, v, sizeof(v), e);

	if (r && r != -ENOENT)
		return r;
	put_u32(v, get_u32(v) + 1);
	r = format_put(txn, key_generation, v, sizeof(v), e);
	if (r)
		return r;
	rowbox_done(&log->rowbox);
	rowbox_init(&log->rowbox, log->row_key, get_u32(v));
	return 0;
}

static int start_in(struct evlog *log, struct lmdb_txn *txn, struct err *e)
{
	uint8_t version[4];
	int r = check_version(txn, e);

	if (r == -ENOENT && log->mode != EVLOG_WRITE)
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "log: nothing was ever written to it");
	if (r == -ENOENT) {
		put_u32(version, EVLOG_FORMAT);
		r = format_put(txn, key_version, version, sizeof(version), e);
	}
	if (r || log->mode == EVLOG_INSPECT)
		return r;
	r = evlog_head(log, txn, &log->head, e);
	if (!r)
		r = check_end(txn, &log->head, e);
	if (!r && log->mode == EVLOG_WRITE)
		r = next_generation(log, txn, e);
	return r;
}

static int start(struct evlog *log, struct err *e)
{
	struct lmdb_txn *txn;
	int r = lmdb_txn_begin(&txn, log->env, log->mode == EVLOG_WRITE, e);

	if (r)
		return r;
	r = start_in(log, txn, e);
	if (!r && log->mode == EVLOG_WRITE)
		return lmdb_txn_commit(txn, e);
	lmdb_txn_abort(txn);
	return r;
}

static int open_env(struct evlog *log, struct err *e)
{
	struct lmdb_table tables[EVLOG_TABLE_END] = {
		[EVLOG_TABLE_LOG] = { "log", true },
		[EVLOG_TABLE_BY_SESSION] = { "by_session", false },
		[EVLOG_TABLE_FORMAT] = { "format", false },
	};
	const struct lmdb_options o = { .read_only = log->mode != EVLOG_WRITE };
	char dir[PATH_MAX];

	for (int t = 0; t < TABLE_NR; t++)
		tables[t].name = rowbox_table_name((enum table)t);
	if (snprintf(dir, sizeof(dir), "%s/log", log->data) >= (int)sizeof(dir))
		return err_set(e, -ENAMETOOLONG, ERR_INVALID,
			       "data folder: path too long");
	if (log->mode == EVLOG_WRITE && mkdir(dir, 0700) && errno != EEXIST)
		return err_sys(e, errno, "make folder %s", dir);
	return lmdb_env_open(&log->env, dir, tables, ARRAY_LEN(tables), &o, e);
}

int evlog_open(struct evlog **ret, const char *data, struct keys *keys,
	       enum evlog_mode mode, struct err *e)
{
	SCOPED(evlog_close_p) struct evlog *log = base_alloc(sizeof(*log));
	int r;

	log->keys = keys;
	log->data = base_strdup(data);
	log->mode = mode;
	keys_node_derive(keys, EVRECORD_TAG_LABEL, NULL, 0, log->tag_key,
			 sizeof(log->tag_key));
	keys_node_derive(keys, "cryo-head-v1", NULL, 0, log->head_key,
			 sizeof(log->head_key));
	keys_node_derive(keys, "cryo-row-v1", NULL, 0, log->row_key,
			 sizeof(log->row_key));
	r = open_env(log, e);
	if (!r)
		r = start(log, e);
	if (r)
		return r;
	*ret = STEAL(log);
	return 0;
}

void evlog_close(struct evlog *log)
{
	if (!log)
		return;
	PRE(!log->txn);
	lmdb_env_close(log->env);
	rowbox_done(&log->rowbox);
	buf_done(&log->record);
	free(log->data);
	base_wipe(log, sizeof(*log));
	free(log);
}

void evlog_close_p(struct evlog **log)
{
	evlog_close(*log);
}

struct lmdb_env *evlog_env(struct evlog *log)
{
	return log->env;
}

struct keys *evlog_keys(struct evlog *log)
{
	return log->keys;
}

void evlog_rowbox_init(const struct evlog *log, struct rowbox *ret)
{
	rowbox_init(ret, log->row_key, 0);
}

struct lmdb_txn *evlog_txn(struct evlog *log)
{
	return log->txn;
}

struct rowbox *evlog_writer_rowbox(struct evlog *log)
{
	return &log->rowbox;
}

/* --- scopes and their keys ------------------------------------------------ */

/* -ENOENT without touching e: the scope's key is destroyed. */
static int body_key(const struct evlog *log, const struct evrecord_scope *scope,
		    uint8_t ret[CRYPT_KEY_LEN], struct err *e)
{
	uint8_t key[CRYPT_KEY_LEN];
	int r;

	switch (scope->kind) {
	case EVRECORD_SESSION:
		return keys_session_derive(log->keys, scope->id,
					   EVRECORD_BODY_LABEL, NULL, 0, ret,
					   CRYPT_KEY_LEN, e);
	case EVRECORD_TENANT:
		r = keys_tenant_get(log->keys, scope->id, key, e);
		if (!r)
			crypt_hkdf(ret, CRYPT_KEY_LEN, key, EVRECORD_BODY_LABEL,
				   NULL, 0);
		base_wipe(key, sizeof(key));
		return r;
	case EVRECORD_NODE:
		keys_node_derive(log->keys, EVRECORD_BODY_LABEL, NULL, 0, ret,
				 CRYPT_KEY_LEN);
		return 0;
	}
	NEVER("a scope that the decoder let through");
}

static void index_key(uint8_t ret[INDEX_LEN], const char *session, uint64_t seq)
{
	memset(ret, 0, ID_LEN);
	memcpy(ret, session, strnlen(session, ID_LEN));
	put_be64(ret + ID_LEN, seq);
}

/* 1: the log has an event about the session, 0: none */
static int session_known(struct lmdb_txn *txn, const char *session, struct err *e)
{
	SCOPED(lmdb_cur_close_p) struct lmdb_cur *c = NULL;
	uint8_t key[INDEX_LEN];
	struct lmdb_row row;
	int r = lmdb_cur_open(&c, txn, EVLOG_TABLE_BY_SESSION, e);

	if (r)
		return r;
	index_key(key, session, 0);
	r = lmdb_cur_seek(c, key, sizeof(key), &row, e);
	if (r)
		return r == -ENOENT ? 0 : r;
	return row.key_len == sizeof(key) && !memcmp(row.key, key, ID_LEN);
}

/* Session's key if it has one, or is to get one now; -ENOENT: neither. */
static int session_key(const struct evlog *log, const struct event *ev,
		       const struct evrecord_scope *scope,
		       uint8_t ret[CRYPT_KEY_LEN], struct err *e)
{
	int r = body_key(log, scope, ret, e);

	if (r != -ENOENT)
		return r;
	r = session_known(log->txn, ev->session, e);
	if (r)
		return r < 0 ? r : -ENOENT;
	r = keys_session_create(log->keys, ev->tenant, ev->session, e);
	return r ? r : body_key(log, scope, ret, e);
}

static int pick_scope(const struct evlog *log, const struct event *ev,
		      struct evrecord_scope *scope, uint8_t ret[CRYPT_KEY_LEN],
		      struct err *e)
{
	int r;

	*scope = (struct evrecord_scope){ .kind = EVRECORD_SESSION };
	if (ev->session[0]) {
		base_strcpy(scope->id, sizeof(scope->id), ev->session);
		r = session_key(log, ev, scope, ret, e);
		if (r != -ENOENT)
			return r;
	}
	*scope = (struct evrecord_scope){ .kind = EVRECORD_TENANT };
	if (ev->tenant[0]) {
		base_strcpy(scope->id, sizeof(scope->id), ev->tenant);
		r = keys_tenant_create(log->keys, ev->tenant, e);
		return r ? r : body_key(log, scope, ret, e);
	}
	*scope = (struct evrecord_scope){ .kind = EVRECORD_NODE };
	return body_key(log, scope, ret, e);
}

/* --- the writer ----------------------------------------------------------- */

/*
 * Gives the ballast back while a commit can still use it, and makes it anew
 * when there is room for it again.
 */
static void keep_reserve(struct evlog *log)
{
	struct datadir_space space;
	struct err ignored;

	if (datadir_space(log->data, &space, &ignored))
		return;
	if (space.avail < EVLOG_RESERVE) {
		log->no_ballast = true;
		datadir_ballast_release(log->data, &ignored);
	} else if (log->no_ballast && space.avail > 2 * DATADIR_BALLAST) {
		log->no_ballast = datadir_ballast_ensure(log->data,
							 DATADIR_BALLAST,
							 &ignored) != 0;
	}
}

int evlog_begin(struct evlog *log, struct err *e)
{
	int r;

	PRE(!log->txn && log->mode == EVLOG_WRITE);
	keep_reserve(log);
	r = lmdb_txn_begin(&log->txn, log->env, true, e);
	if (r)
		return r;
	log->next = log->head;
	if (log->rowbox.sealed < GENERATION_SEALS)
		return 0;
	r = next_generation(log, log->txn, e);
	if (r)
		evlog_abort(log);
	return r;
}

static int put_record(struct evlog *log, struct event *ev,
		      const struct evrecord_scope *scope,
		      const uint8_t key[CRYPT_KEY_LEN],
		      uint8_t ret_hash[CHAIN_HASH_LEN], struct err *e)
{
	uint8_t salt[CHAIN_SALT_LEN], index[INDEX_LEN];
	int r;

	base_random(salt, sizeof(salt));
	buf_reset(&log->record);
	r = evrecord_encode(&log->record, ev, scope, key, log->tag_key, salt,
			    log->next.hash, ret_hash, e);
	base_wipe(salt, sizeof(salt));
	if (!r)
		r = lmdb_txn_append(log->txn, EVLOG_TABLE_LOG, ev->seq,
				    log->record.p, log->record.len, e);
	if (r || !ev->session[0])
		return r;
	index_key(index, ev->session, ev->seq);
	return lmdb_txn_put(log->txn, EVLOG_TABLE_BY_SESSION, index,
			    sizeof(index), "", 0, e);
}

int evlog_append(struct evlog *log, struct event *ev, struct err *e)
{
	uint8_t key[CRYPT_KEY_LEN], hash[CHAIN_HASH_LEN];
	struct evrecord_scope scope;
	int r;

	PRE(log->txn);
	r = pick_scope(log, ev, &scope, key, e);
	if (r) {
		base_wipe(key, sizeof(key));
		return err_wrap(e, r, "append %s", ev->type_name);
	}
	ev->seq = log->next.seq + 1;
	r = put_record(log, ev, &scope, key, hash, e);
	base_wipe(key, sizeof(key));
	if (r)
		return r;
	log->next.seq = ev->seq;
	memcpy(log->next.hash, hash, sizeof(hash));
	return 0;
}

int evlog_commit(struct evlog *log, struct err *e)
{
	struct err ignored;
	int r = 0;

	PRE(log->txn);
	if (log->next.seq != log->head.seq)
		r = put_head(log, log->txn, &log->next, e);
	if (r)
		lmdb_txn_abort(STEAL(log->txn));
	else
		r = lmdb_txn_commit(STEAL(log->txn), e);
	if (!r) {
		log->head = log->next;
	} else if (r == -ENOSPC || r == -EDQUOT) {
		log->no_ballast = true;
		datadir_ballast_release(log->data, &ignored);
	}
	return r;
}

void evlog_abort(struct evlog *log)
{
	lmdb_txn_abort(STEAL(log->txn));
}

uint64_t evlog_last_seq(const struct evlog *log)
{
	return log->txn ? log->next.seq : log->head.seq;
}

/* --- readers -------------------------------------------------------------- */

static void fill_public(struct event *ev, const struct chain_public *pub)
{
	ev->seq = pub->seq;
	ev->wall_ns = pub->wall_ns;
	ev->mono_ns = pub->mono_ns;
	memcpy(ev->boot_id, pub->boot_id, sizeof(ev->boot_id));
}

static void make_sealed(struct event *ret, const struct evrecord *rec)
{
	struct event ev = { .type = EVENT_UNKNOWN };

	base_strcpy(ev.type_name, sizeof(ev.type_name), EVLOG_SEALED);
	base_strcpy(rec->scope.kind == EVRECORD_SESSION ? ev.session : ev.tenant,
		    ID_LEN + 1, rec->scope.id);
	ev.data = json_object();
	json_put_str(ev.data, "reason", "key destroyed");
	fill_public(&ev, &rec->pub);
	*ret = ev;
}

static int read_body(const struct evlog *log, const struct evrecord *rec,
		     struct event *ret, struct err *e)
{
	SCOPED(buf_done) struct buf body = { 0 };
	uint8_t key[CRYPT_KEY_LEN], tag[CHAIN_SCOPE_LEN];
	int r;

	evrecord_scope_tag(tag, log->tag_key, rec->pub.seq, &rec->scope);
	if (!base_same_secret(tag, rec->pub.scope, sizeof(tag)))
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "not in the key scope that it was written in");
	r = body_key(log, &rec->scope, key, e);
	if (r == -ENOENT) {
		make_sealed(ret, rec);
		return 1;
	}
	if (!r)
		r = evrecord_open(rec, key, &body, e);
	base_wipe(key, sizeof(key));
	if (!r)
		r = event_body_decode(ret, body.p, body.len, e);
	if (!r)
		fill_public(ret, &rec->pub);
	return r;
}

int evlog_event_read(struct evlog *log, uint64_t seq, const void *record,
		     size_t len, struct event *ret, struct err *e)
{
	struct evrecord rec;
	int r = evrecord_decode(&rec, record, len, e);

	if (!r && rec.pub.seq != seq)
		r = err_set(e, -EBADMSG, ERR_CORRUPT, "is number %llu",
			    (unsigned long long)rec.pub.seq);
	if (!r)
		r = read_body(log, &rec, ret, e);
	return r < 0 ? err_wrap(e, r, "log: event %llu", (unsigned long long)seq)
		     : r;
}

static int deliver(struct evlog *log, uint64_t seq, const void *record,
		   size_t len, event_fn fn, void *ctx, struct err *e)
{
	struct event ev = { 0 };
	int r = evlog_event_read(log, seq, record, len, &ev, e);

	if (r < 0)
		return r;
	r = fn(ctx, &ev);
	event_done(&ev);
	return r;
}

static int events_all(struct evlog *log, struct lmdb_txn *txn, uint64_t after,
		      event_fn fn, void *ctx, struct err *e)
{
	SCOPED(lmdb_cur_close_p) struct lmdb_cur *c = NULL;
	struct lmdb_row row;
	uint64_t seq = after + 1;
	int r = lmdb_cur_open(&c, txn, EVLOG_TABLE_LOG, e);

	if (!r)
		r = lmdb_cur_seek(c, &seq, sizeof(seq), &row, e);
	while (!r) {
		memcpy(&seq, row.key, sizeof(seq));
		r = deliver(log, seq, row.value, row.len, fn, ctx, e);
		if (!r)
			r = lmdb_cur_move(c, LMDB_NEXT, &row, e);
	}
	return r;
}

static int events_session(struct evlog *log, struct lmdb_txn *txn,
			  const char *session, uint64_t after, event_fn fn,
			  void *ctx, struct err *e)
{
	SCOPED(lmdb_cur_close_p) struct lmdb_cur *c = NULL;
	uint8_t key[INDEX_LEN];
	struct lmdb_row row;
	const void *record;
	size_t len;
	uint64_t seq;
	int r = lmdb_cur_open(&c, txn, EVLOG_TABLE_BY_SESSION, e);

	index_key(key, session, after + 1);
	if (!r)
		r = lmdb_cur_seek(c, key, sizeof(key), &row, e);
	while (!r && row.key_len == sizeof(key) && !memcmp(row.key, key, ID_LEN)) {
		seq = get_be64((const uint8_t *)row.key + ID_LEN);
		r = lmdb_txn_get(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq),
				 &record, &len, e);
		if (r == -ENOENT)
			r = err_set(e, -EBADMSG, ERR_CORRUPT,
				    "log: event %llu of session %s is missing",
				    (unsigned long long)seq, session);
		if (!r)
			r = deliver(log, seq, record, len, fn, ctx, e);
		if (!r)
			r = lmdb_cur_move(c, LMDB_NEXT, &row, e);
	}
	return r;
}

int evlog_events(struct evlog *log, struct lmdb_txn *txn, const char *session,
		 uint64_t after, event_fn fn, void *ctx, struct err *e)
{
	int r;

	if (after == UINT64_MAX)
		return 0;
	if (session && (!session[0] || strlen(session) > ID_LEN))
		return 0;
	r = session ? events_session(log, txn, session, after, fn, ctx, e)
		    : events_all(log, txn, after, fn, ctx, e);
	/* -ENOENT is the end of the table, 1 the reader's wish to stop. */
	return r < 0 && r != -ENOENT ? r : 0;
}
