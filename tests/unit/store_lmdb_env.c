/*
 * The wrapping of LMDB: what it stores, what readers see, and how its errors
 * come out.
 */
#include "store/lmdb_env.h"

#include <sys/wait.h>

#include "tests/unit/store_help.h"

enum { SEQS, NAMES, TABLES_NR };

static const struct lmdb_table tables[TABLES_NR] = {
	[SEQS] = { "seqs", true },
	[NAMES] = { "names", false },
};

static struct lmdb_env *open_env(const char *name, size_t map, bool read_only,
				 int want)
{
	const struct lmdb_options o = { .map_size = map, .read_only = read_only };
	struct lmdb_env *env = NULL;
	struct err e = { 0 };
	const char *dir = help_path(name);

	mkdir(dir, 0700);
	is_int(lmdb_env_open(&env, dir, tables, TABLES_NR, &o, &e), want,
	       "open %s%s: %s", name, read_only ? " read-only" : "", e.msg);
	return env;
}

static struct lmdb_txn *begin(struct lmdb_env *env, bool write)
{
	struct lmdb_txn *txn = NULL;
	struct err e = { 0 };

	if (lmdb_txn_begin(&txn, env, write, &e))
		bail("begin: %s", e.msg);
	return txn;
}

static int get(struct lmdb_txn *txn, const char *key, const char *want)
{
	const void *v;
	size_t len;
	int r = lmdb_txn_get(txn, NAMES, key, strlen(key), &v, &len, NULL);

	return r ? r : len == strlen(want) && !memcmp(v, want, len);
}

static void test_rows(struct lmdb_env *env)
{
	struct lmdb_txn *reader = begin(env, false);
	struct lmdb_txn *txn = begin(env, true);
	struct err e = { .code = ERR_NR };

	is_int(get(txn, "a", ""), -ENOENT, "nothing there yet");
	is_int(lmdb_txn_put(txn, NAMES, "a", 1, "one", 3, &e), 0, "put");
	is_int(lmdb_txn_put(txn, NAMES, "b", 1, "", 0, &e), 0, "put empty");
	is_int(get(txn, "a", "one"), 1, "the writer sees its own write");
	is_int(get(reader, "a", "one"), -ENOENT, "a reader does not");
	is_int(lmdb_txn_commit(txn, &e), 0, "commit");
	is_int(get(reader, "a", "one"), -ENOENT, "nor later: one moment");
	lmdb_txn_abort(reader);

	txn = begin(env, true);
	is_int(get(txn, "a", "one"), 1, "committed");
	is_int(get(txn, "b", ""), 1, "an empty value is a value");
	is_int(lmdb_txn_put(txn, NAMES, "a", 1, "two", 3, &e), 0, "replace");
	is_int(lmdb_txn_del(txn, NAMES, "b", 1, &e), 0, "delete");
	is_int(lmdb_txn_del(txn, NAMES, "b", 1, &e), 0, "delete again: 0");
	is_int(get(txn, "b", ""), -ENOENT, "it is gone");
	lmdb_txn_abort(txn);
	is_int(e.code, ERR_NR, "no error was filled in");

	txn = begin(env, false);
	is_int(get(txn, "a", "one"), 1, "an abort leaves it as it was");
	is_int(lmdb_txn_count(txn, NAMES), 2, "two rows");
	lmdb_txn_abort(txn);
}

static void test_append(struct lmdb_env *env)
{
	struct lmdb_txn *txn = begin(env, true);
	struct lmdb_cur *c = NULL;
	struct lmdb_row row;
	struct err e = { 0 };
	uint64_t seq = 0, n = 0, bad = 0;

	/* 255, 256, 257: byte order would show here */
	for (uint64_t i = 1; i <= 1000; i++)
		if (lmdb_txn_append(txn, SEQS, i, &i, sizeof(i), &e))
			bail("append: %s", e.msg);
	is_int(lmdb_txn_commit(txn, &e), 0, "1000 appended");
	txn = begin(env, true);
	is_int(lmdb_txn_append(txn, SEQS, 1000, "x", 1, &e), -EEXIST,
	       "1000 again is refused");
	lmdb_txn_abort(txn);
	txn = begin(env, true);
	is_int(lmdb_txn_append(txn, SEQS, 5, "x", 1, &e), -EEXIST,
	       "5 is refused");
	lmdb_txn_abort(txn);

	txn = begin(env, false);
	lmdb_cur_open(&c, txn, SEQS, &e);
	for (int r = lmdb_cur_move(c, LMDB_FIRST, &row, &e); !r;
	     r = lmdb_cur_move(c, LMDB_NEXT, &row, &e)) {
		memcpy(&seq, row.key, sizeof(seq));
		bad += seq != ++n || memcmp(row.value, &n, sizeof(n)) != 0;
	}
	ok(n == 1000 && !bad, "they come back in rising order");
	seq = 256;
	is_int(lmdb_cur_seek(c, &seq, sizeof(seq), &row, &e), 0, "seek 256");
	ok(!memcmp(row.key, &seq, sizeof(seq)), "finds 256");
	is_int(lmdb_cur_move(c, LMDB_PREV, &row, &e), 0, "one back");
	memcpy(&seq, row.key, sizeof(seq));
	is_int(seq, 255, "is 255");
	is_int(lmdb_cur_move(c, LMDB_LAST, &row, &e), 0, "last");
	is_int(lmdb_cur_move(c, LMDB_NEXT, &row, &e), -ENOENT, "then the end");
	seq = 1001;
	is_int(lmdb_cur_seek(c, &seq, sizeof(seq), &row, &e), -ENOENT,
	       "nothing behind it");
	lmdb_cur_close(c);
	lmdb_txn_abort(txn);
}

static void test_full(void)
{
	struct lmdb_env *env = open_env("full", 1 << 20, false, 0);
	struct lmdb_txn *txn = begin(env, true);
	static const uint8_t big[3000];
	struct err e = { 0 };
	char key[16];
	int r = 0;

	for (int i = 0; !r && i < 2000; i++) {
		snprintf(key, sizeof(key), "%d", i);
		r = lmdb_txn_put(txn, NAMES, key, strlen(key), big, sizeof(big),
				 &e);
	}
	is_int(r, -ENOSPC, "a full map is ENOSPC");
	is_int(e.code, ERR_NO_SPACE, "and no-space: %s", e.msg);
	ok(strstr(e.msg, "full") && strstr(e.msg, "free some space"),
	   "says why and what to do");
	lmdb_txn_abort(txn);
	txn = begin(env, true);
	is_int(lmdb_txn_put(txn, NAMES, "k", 1, "v", 1, &e), 0,
	       "usable after the abort");
	is_int(lmdb_txn_commit(txn, &e), 0, "and commits");
	lmdb_env_close(env);
}

/* A child dies in a read transaction; the next open frees its slot. */
static void test_dead_reader(void)
{
	struct lmdb_env *env;
	struct lmdb_txn *txn;
	struct err e = { 0 };
	int status;
	pid_t pid = fork();

	if (!pid) {
		const struct lmdb_options o = { 0 };

		mkdir(help_path("dead"), 0700);
		if (lmdb_env_open(&env, help_path("dead"), tables, TABLES_NR,
				  &o, &e) ||
		    lmdb_txn_begin(&txn, env, false, &e))
			_exit(1);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "a reader died holding its transaction");
	env = open_env("dead", 0, false, 0);
	is_int(lmdb_env_clear_readers(env), 0, "its slot was cleared at open");
	lmdb_env_close(env);
}

static void test_broken(void)
{
	SCOPED(buf_done) struct buf junk = { 0 };

	mkdir(help_path("broken"), 0700);
	memset(buf_reserve(&junk, 8192), 'x', 8192);
	help_write(help_path("broken/data.mdb"), junk.p, 8192);
	open_env("broken", 0, false, -EBADMSG);
	open_env("empty", 0, true, -ENOENT);
}

int main(void)
{
	struct lmdb_env *env = open_env("env", 0, false, 0);

	test_rows(env);
	test_append(env);
	ok(lmdb_env_size(env) >= 5 * 4096, "it has a size");
	lmdb_env_close(env);
	env = open_env("env", 0, true, 0);
	lmdb_env_close(env);
	lmdb_env_close(NULL);
	test_full();
	test_dead_reader();
	test_broken();
	return tap_done();
}
