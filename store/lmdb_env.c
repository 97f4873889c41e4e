/*
 * lmdb_env: a thin, total wrapping of LMDB.
 *
 * LMDB maps the file and writes changed pages to free places; a commit
 * writes the data pages, syncs, then writes one of two meta pages with
 * O_DSYNC. A crash at any moment leaves the last committed state; no repair
 * step exists or is needed. That order is why the sync flags stay at their
 * defaults.
 *
 * Invariants:
 *  1. One write transaction at a time, ended by the thread that began it
 *     (LMDB's mutex belongs to the thread).
 *  2. Every error but "no such row" has a text that names the folder.
 *  3. After a failed commit nothing of the transaction is visible; whether
 *     some of it reached the disk is not known, so the caller must not try
 *     it again but exit.
 *
 * A process that dies in a read transaction leaves a slot in lock.mdb that
 * keeps old pages from reuse; opening clears such slots.
 */
#include "store/lmdb_env.h"

#include <lmdb.h>
#include <sys/statvfs.h>

#define MAP_SIZE_DEFAULT ((size_t)1 << 40)
#define READERS_MAX 1022 /* views at a time, all processes together */
#define DISK_FULL (1u << 20) /* bytes left, at most, on a disk called full */
#define KEY_MAX 511 /* LMDB's default build */

struct lmdb_env {
	MDB_env *env;
	char *dir;
	size_t nr_tables;
	MDB_dbi dbi[LMDB_ENV_TABLES_MAX];
	bool by_seq[LMDB_ENV_TABLES_MAX];
};

struct lmdb_txn {
	MDB_txn *txn;
	struct lmdb_env *env;
};

struct lmdb_cur {
	MDB_cursor *cur;
	struct lmdb_txn *txn;
};

static int to_errno(int rc)
{
	switch (rc) {
	case MDB_MAP_FULL:
		return ENOSPC;
	case MDB_READERS_FULL:
		return EBUSY;
	case MDB_KEYEXIST:
		return EEXIST;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INVALID:
	case MDB_PANIC:
		return EBADMSG;
	case MDB_VERSION_MISMATCH:
		return EPROTONOSUPPORT;
	default:
		return rc > 0 ? rc : EIO;
	}
}

static enum err_code to_code(int en)
{
	switch (en) {
	case ENOSPC:
	case EDQUOT:
		return ERR_NO_SPACE;
	case EBUSY:
		return ERR_BUSY;
	case EBADMSG:
	case EPROTONOSUPPORT:
		return ERR_CORRUPT;
	case EACCES:
	case EPERM:
		return ERR_FORBIDDEN;
	default:
		return ERR_INTERNAL;
	}
}

static const char *advice(int en)
{
	switch (en) {
	case ENOSPC:
	case EDQUOT:
		return "; free some space on its file system";
	case EBUSY:
		return "; too many readers at once, try again";
	case EBADMSG:
		return "; restore the folder from a copy";
	case EACCES:
	case EPERM:
		return "; run as the user that owns the folder";
	default:
		return "";
	}
}

static int fail(const struct lmdb_env *env, int rc, const char *what,
		struct err *e)
{
	int en = to_errno(rc);

	return err_set(e, -en, to_code(en), "log database %s: %s: %s%s",
		       env->dir, what, mdb_strerror(rc), advice(en));
}

static int open_tables(struct lmdb_env *env, const struct lmdb_table *tables,
		       size_t nr, bool read_only, struct err *e)
{
	MDB_txn *txn;
	int rc = mdb_txn_begin(env->env, NULL, read_only ? MDB_RDONLY : 0, &txn);

	if (rc)
		return fail(env, rc, "begin", e);
	for (size_t i = 0; i < nr; i++) {
		unsigned flags = (tables[i].by_seq ? MDB_INTEGERKEY : 0) |
				 (read_only ? 0 : MDB_CREATE);

		rc = mdb_dbi_open(txn, tables[i].name, flags, &env->dbi[i]);
		if (rc) {
			mdb_txn_abort(txn);
			return fail(env, rc, tables[i].name, e);
		}
		env->by_seq[i] = tables[i].by_seq;
	}
	env->nr_tables = nr;
	rc = mdb_txn_commit(txn);
	return rc ? fail(env, rc, "make its tables", e) : 0;
}

static int open_env(struct lmdb_env *env, const struct lmdb_options *o,
		    struct err *e)
{
	unsigned flags = MDB_NOTLS | (o->read_only ? MDB_RDONLY : 0);
	int rc = mdb_env_create(&env->env);

	if (!rc)
		rc = mdb_env_set_maxdbs(env->env, LMDB_ENV_TABLES_MAX);
	if (!rc)
		rc = mdb_env_set_maxreaders(env->env, READERS_MAX);
	if (!rc)
		rc = mdb_env_set_mapsize(
			env->env, o->map_size ? o->map_size : MAP_SIZE_DEFAULT);
	if (!rc)
		rc = mdb_env_open(env->env, env->dir, flags, 0600);
	return rc ? fail(env, rc, "open", e) : 0;
}

int lmdb_env_open(struct lmdb_env **ret, const char *dir,
		  const struct lmdb_table *tables, size_t nr_tables,
		  const struct lmdb_options *o, struct err *e)
{
	SCOPED(lmdb_env_close_p) struct lmdb_env *env = NULL;
	int r;

	PRE(nr_tables <= LMDB_ENV_TABLES_MAX);
	env = base_alloc(sizeof(*env));
	env->dir = base_strdup(dir);
	r = open_env(env, o, e);
	if (r)
		return r;
	lmdb_env_clear_readers(env);
	r = open_tables(env, tables, nr_tables, o->read_only, e);
	if (r)
		return r;
	*ret = STEAL(env);
	return 0;
}

void lmdb_env_close(struct lmdb_env *env)
{
	if (!env)
		return;
	if (env->env)
		mdb_env_close(env->env);
	free(env->dir);
	free(env);
}

void lmdb_env_close_p(struct lmdb_env **env)
{
	lmdb_env_close(*env);
}

int lmdb_env_clear_readers(struct lmdb_env *env)
{
	int dead = 0;

	/* Failing to clear costs space, not correctness. */
	return mdb_reader_check(env->env, &dead) ? 0 : dead;
}

uint64_t lmdb_env_size(const struct lmdb_env *env)
{
	MDB_envinfo info;
	MDB_stat st;

	if (mdb_env_info(env->env, &info) || mdb_env_stat(env->env, &st))
		NEVER("asking an open environment can't fail");
	return (uint64_t)(info.me_last_pgno + 1) * st.ms_psize;
}

int lmdb_txn_begin(struct lmdb_txn **ret, struct lmdb_env *env, bool write,
		   struct err *e)
{
	SCOPED_FREE struct lmdb_txn *txn = base_alloc(sizeof(*txn));
	int rc = mdb_txn_begin(env->env, NULL, write ? 0 : MDB_RDONLY, &txn->txn);

	if (rc)
		return fail(env, rc, "begin", e);
	txn->env = env;
	*ret = STEAL(txn);
	return 0;
}

/* LMDB answers EIO to a short write, which is what a full disk gives. */
static bool disk_full(const struct lmdb_env *env)
{
	struct statvfs st;

	return !statvfs(env->dir, &st) &&
	       (uint64_t)st.f_bavail * st.f_frsize < DISK_FULL;
}

int lmdb_txn_commit(struct lmdb_txn *txn, struct err *e)
{
	struct lmdb_env *env = txn->env;
	int rc = mdb_txn_commit(txn->txn);

	free(txn);
	if (rc == EIO && disk_full(env))
		rc = ENOSPC;
	return rc ? fail(env, rc, "commit", e) : 0;
}

void lmdb_txn_abort(struct lmdb_txn *txn)
{
	if (!txn)
		return;
	mdb_txn_abort(txn->txn);
	free(txn);
}

void lmdb_txn_abort_p(struct lmdb_txn **txn)
{
	lmdb_txn_abort(*txn);
}

/* LMDB's struct has no const, and LMDB never writes through it. */
static MDB_val val(const void *p, size_t len)
{
	union {
		const void *c;
		void *p;
	} u = { .c = p };

	return (MDB_val){ .mv_data = u.p, .mv_size = len };
}

static void check_key(const struct lmdb_txn *txn, size_t table, size_t len)
{
	PRE(table < txn->env->nr_tables);
	PRE(len > 0 && len <= KEY_MAX);
	PRE(IMPLIES(txn->env->by_seq[table], len == sizeof(uint64_t)));
}

int lmdb_txn_get(struct lmdb_txn *txn, size_t table, const void *key,
		 size_t key_len, const void **ret, size_t *ret_len, struct err *e)
{
	MDB_val k = val(key, key_len), v;
	int rc;

	check_key(txn, table, key_len);
	rc = mdb_get(txn->txn, txn->env->dbi[table], &k, &v);
	if (rc == MDB_NOTFOUND)
		return -ENOENT;
	if (rc)
		return fail(txn->env, rc, "read", e);
	*ret = v.mv_data;
	*ret_len = v.mv_size;
	return 0;
}

static int put(struct lmdb_txn *txn, size_t table, MDB_val k, MDB_val v,
	       unsigned flags, struct err *e)
{
	int rc = mdb_put(txn->txn, txn->env->dbi[table], &k, &v, flags);

	return rc ? fail(txn->env, rc, "write", e) : 0;
}

int lmdb_txn_put(struct lmdb_txn *txn, size_t table, const void *key,
		 size_t key_len, const void *value, size_t len, struct err *e)
{
	check_key(txn, table, key_len);
	return put(txn, table, val(key, key_len), val(value, len), 0, e);
}

int lmdb_txn_append(struct lmdb_txn *txn, size_t table, uint64_t seq,
		    const void *value, size_t len, struct err *e)
{
	check_key(txn, table, sizeof(seq));
	return put(txn, table, val(&seq, sizeof(seq)), val(value, len),
		   MDB_APPEND, e);
}

int lmdb_txn_del(struct lmdb_txn *txn, size_t table, const void *key,
		 size_t key_len, struct err *e)
{
	MDB_val k = val(key, key_len);
	int rc;

	check_key(txn, table, key_len);
	rc = mdb_del(txn->txn, txn->env->dbi[table], &k, NULL);
	if (rc && rc != MDB_NOTFOUND)
		return fail(txn->env, rc, "delete", e);
	return 0;
}

uint64_t lmdb_txn_count(struct lmdb_txn *txn, size_t table)
{
	MDB_stat st;

	PRE(table < txn->env->nr_tables);
	if (mdb_stat(txn->txn, txn->env->dbi[table], &st))
		NEVER("counting rows of an open table can't fail");
	return st.ms_entries;
}

int lmdb_cur_open(struct lmdb_cur **ret, struct lmdb_txn *txn, size_t table,
		  struct err *e)
{
	SCOPED_FREE struct lmdb_cur *c = base_alloc(sizeof(*c));
	int rc;

	PRE(table < txn->env->nr_tables);
	rc = mdb_cursor_open(txn->txn, txn->env->dbi[table], &c->cur);
	if (rc)
		return fail(txn->env, rc, "open a cursor", e);
	c->txn = txn;
	*ret = STEAL(c);
	return 0;
}

void lmdb_cur_close(struct lmdb_cur *c)
{
	if (!c)
		return;
	mdb_cursor_close(c->cur);
	free(c);
}

void lmdb_cur_close_p(struct lmdb_cur **c)
{
	lmdb_cur_close(*c);
}

static int cur_read(struct lmdb_cur *c, MDB_val k, MDB_cursor_op op,
		    struct lmdb_row *ret, struct err *e)
{
	MDB_val v;
	int rc = mdb_cursor_get(c->cur, &k, &v, op);

	if (rc == MDB_NOTFOUND)
		return -ENOENT;
	if (rc)
		return fail(c->txn->env, rc, "read on", e);
	*ret = (struct lmdb_row){
		.key = k.mv_data,
		.key_len = k.mv_size,
		.value = v.mv_data,
		.len = v.mv_size,
	};
	return 0;
}

int lmdb_cur_move(struct lmdb_cur *c, enum lmdb_move m, struct lmdb_row *ret,
		  struct err *e)
{
	static const MDB_cursor_op op[] = {
		[LMDB_FIRST] = MDB_FIRST,
		[LMDB_LAST] = MDB_LAST,
		[LMDB_NEXT] = MDB_NEXT,
		[LMDB_PREV] = MDB_PREV,
	};

	return cur_read(c, val(NULL, 0), op[m], ret, e);
}

int lmdb_cur_seek(struct lmdb_cur *c, const void *key, size_t key_len,
		  struct lmdb_row *ret, struct err *e)
{
	PRE(key_len > 0 && key_len <= KEY_MAX);
	return cur_read(c, val(key, key_len), MDB_SET_RANGE, ret, e);
}
