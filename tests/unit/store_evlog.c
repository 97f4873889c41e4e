/*
 * The event log and the ports on it: what is appended comes back, the chain
 * holds, destroyed keys hide bodies and nothing else, and what was changed
 * from outside is found.
 */
#include "store/evlog.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "store/datadir.h"
#include "store/view.h"
#include "tests/unit/store_help.h"

#define SESSION "abcdefghij0123456789"
#define OTHER "bbbbbbbbbb0123456789"
#define TENANT "t0000000000000000000"

struct node {
	const char *data;
	struct keys *keys;
	struct evlog *log;
};

static struct node node_open(const char *name, bool read_only)
{
	struct node n = { .data = help_path(name) };
	struct err e = { 0 };

	mkdir(n.data, 0700);
	if (keys_open(&n.keys, n.data, NULL, read_only, &clock_real, &e))
		bail("%s", e.msg);
	if (evlog_open(&n.log, n.data, n.keys,
		       read_only ? EVLOG_READ : EVLOG_WRITE, &e))
		bail("%s", e.msg);
	return n;
}

static void node_close(struct node *n)
{
	evlog_close(n->log);
	keys_close(n->keys);
	*n = (struct node){ 0 };
}

/* What opening says, without an open log left behind. */
static int open_result(const char *name, struct err *e)
{
	struct keys *keys;
	struct evlog *log = NULL;
	int r = keys_open(&keys, help_path(name), NULL, false, &clock_real, e);

	if (r)
		return r;
	r = evlog_open(&log, help_path(name), keys, EVLOG_WRITE, e);
	evlog_close(log);
	keys_close(keys);
	return r;
}

static void append(struct node *n, const char *type, const char *tenant,
		   const char *session, int value)
{
	struct event ev = help_event(type, tenant, session, value);
	struct err e = { 0 };

	if (evlog_append(n->log, &ev, &e))
		bail("append: %s", e.msg);
	event_done(&ev);
}

static void append_one(struct node *n, const char *type, const char *tenant,
		       const char *session, int value)
{
	struct err e = { 0 };

	if (evlog_begin(n->log, &e))
		bail("begin: %s", e.msg);
	append(n, type, tenant, session, value);
	if (evlog_commit(n->log, &e))
		bail("commit: %s", e.msg);
}

/* --- reading back --------------------------------------------------------- */

struct seen {
	struct event ev[64];
	int64_t value[64];
	int nr, stop;
};

static int see(void *ctx, const struct event *ev)
{
	struct seen *s = ctx;

	s->ev[s->nr] = *ev;
	s->ev[s->nr].data = NULL;
	s->value[s->nr] = -1;
	json_get_int(ev->data, "n", 0, INT32_MAX, &s->value[s->nr], NULL);
	return ++s->nr == s->stop;
}

static struct seen read_events(struct node *n, const char *session,
			       uint64_t after, int stop)
{
	struct seen s = { .stop = stop };
	struct view_port port;
	struct err e = { 0 };
	void *view;

	view_read_port(n->log, &port);
	if (port.open(port.ctx, &view, &e) ||
	    port.ops->events(view, session, after, see, &s, &e))
		bail("events: %s", e.msg);
	port.close(view);
	return s;
}

static void test_append(void)
{
	struct node n = node_open("a", false);
	struct event ev = help_event("vector.two", TENANT, SESSION, 42);
	struct err e = { 0 };
	struct seen s;

	is_int(evlog_begin(n.log, &e), 0, "begin");
	is_int(evlog_append(n.log, &ev, &e), 0, "append: %s", e.msg);
	is_int(ev.seq, 1, "the first is number 1");
	event_done(&ev);
	append(&n, "node.started", "", "", 43);
	is_int(evlog_last_seq(n.log), 2, "two in the transaction");
	is_int(read_events(&n, NULL, 0, 0).nr, 0, "not seen before commit");
	is_int(evlog_commit(n.log, &e), 0, "commit");
	evlog_begin(n.log, &e);
	append(&n, "vector.lost", "", "", 44);
	evlog_abort(n.log);
	is_int(evlog_last_seq(n.log), 2, "an aborted one leaves no hole");
	append_one(&n, "vector.three", TENANT, "", 45);
	node_close(&n);

	n = node_open("a", false);
	s = read_events(&n, NULL, 0, 0);
	is_int(s.nr, 3, "three after a restart");
	is_int(s.ev[0].seq, 1, "the first has its number");
	is_str(s.ev[0].type_name, "vector.two", "its unknown type, kept");
	is_int(s.ev[0].type, EVENT_UNKNOWN, "as unknown");
	is_str(s.ev[0].tenant, TENANT, "its tenant");
	is_str(s.ev[0].session, SESSION, "its session");
	is_str(s.ev[0].actor, "system", "its actor");
	is_int(s.ev[0].schema, 1, "its schema");
	is_int(s.ev[0].wall_ns, 1767225600000000042, "its time");
	is_int(s.ev[0].mono_ns, 5042, "its monotonic time");
	is_int(s.ev[0].boot_id[15], 0xaf, "its boot id");
	is_int(s.value[0], 42, "its data");
	is_int(s.ev[1].type, EVENT_NODE_STARTED, "a known type");
	is_str(s.ev[2].type_name, "vector.three", "the third");
	is_int(s.ev[2].seq, 3, "is number 3");
	s = read_events(&n, NULL, 2, 0);
	is_int(s.nr == 1 && s.ev[0].seq == 3, 1, "after 2: the third");
	is_int(read_events(&n, NULL, 3, 0).nr, 0, "after 3: none");
	is_int(read_events(&n, NULL, UINT64_MAX, 0).nr, 0, "after the last");
	is_int(read_events(&n, NULL, 0, 2).nr, 2, "the reader may stop");
	node_close(&n);
}

static void test_by_session(void)
{
	struct node n = node_open("i", false);
	struct seen s;

	for (int i = 0; i < 12; i++)
		append_one(&n, "x", TENANT,
			   i % 3 == 0	? SESSION
			   : i % 3 == 1 ? OTHER
					: "",
			   i);
	s = read_events(&n, SESSION, 0, 0);
	is_int(s.nr, 4, "four of a session");
	ok(s.ev[0].seq == 1 && s.ev[1].seq == 4 && s.ev[2].seq == 7 &&
		   s.ev[3].seq == 10,
	   "the right ones, in order");
	s = read_events(&n, SESSION, 4, 0);
	ok(s.nr == 2 && s.ev[0].seq == 7, "after one of them");
	s = read_events(&n, OTHER, 10, 0);
	ok(s.nr == 1 && s.ev[0].seq == 11, "of the other");
	is_int(read_events(&n, OTHER, 11, 0).nr, 0, "none behind the last");
	is_int(read_events(&n, "zzzzzzzzzz0123456789", 0, 0).nr, 0,
	       "none of a stranger");
	is_int(read_events(&n, "", 0, 0).nr, 0, "none of no session");
	is_int(read_events(&n, "zzzzzzzzzz0123456789zzzz", 0, 0).nr, 0,
	       "none of what is no id");
	node_close(&n);
}

/* --- destroyed keys ------------------------------------------------------- */

static void test_destroyed(void)
{
	struct node n = node_open("d", false);
	struct err e = { 0 };
	uint8_t key[32];
	struct seen s;

	append_one(&n, "x", TENANT, SESSION, 1);
	is_int(keys_session_get(n.keys, SESSION, key, &e), 0,
	       "the first event made the session's key");
	append_one(&n, "x", TENANT, SESSION, 2);
	append_one(&n, "x", TENANT, OTHER, 3);
	is_int(keys_session_destroy(n.keys, SESSION, &e), 0, "destroy");
	append_one(&n, "after", TENANT, SESSION, 4);
	is_int(keys_session_get(n.keys, SESSION, key, &e), -ENOENT,
	       "a later event does not make the key again");
	s = read_events(&n, NULL, 0, 0);
	is_int(s.nr, 4, "all events are there");
	is_str(s.ev[0].type_name, EVLOG_SEALED, "the first is sealed");
	is_int(s.ev[0].type, EVENT_UNKNOWN, "of no known type");
	is_str(s.ev[0].session, SESSION, "its session is known");
	is_int(s.ev[0].wall_ns, 1767225600000000001, "its time is");
	is_int(s.value[0], -1, "its data are not");
	is_str(s.ev[1].type_name, EVLOG_SEALED, "so is the second");
	is_int(s.value[2], 3, "another session's is not");
	is_str(s.ev[3].type_name, "after", "the one after is the tenant's");
	is_int(s.value[3], 4, "and readable");
	is_int(read_events(&n, SESSION, 0, 0).nr, 3,
	       "the session's list still has all three");
	node_close(&n);
	is_int(open_result("d", &e), 0, "it opens: %s", e.msg);
}

/* --- rows and views ------------------------------------------------------- */

static int count_row(void *ctx, const void *key UNUSED, size_t key_len UNUSED,
		     const void *value UNUSED, size_t len UNUSED)
{
	++*(int *)ctx;
	return 0;
}

static int get(const struct view_ops *ops, void *view, const char *want)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct err e = { 0 };
	int r = ops->get(view, TABLE_SESSIONS, "k", 1, &b, &e);

	return r ? r : !strcmp(buf_cstr(&b), want);
}

static void test_ports(void)
{
	struct node n = node_open("p", false);
	struct event ev = help_event("x", TENANT, SESSION, 1);
	struct store_port w;
	struct view_port port;
	struct err e = { 0 };
	void *old, *view;
	int rows = 0;

	view_store_port(n.log, &w);
	view_read_port(n.log, &port);
	is_int(port.open(port.ctx, &old, &e), 0, "a view");
	is_int(w.begin(w.ctx, &e), 0, "begin");
	is_int(w.append(w.ctx, &ev, &e), 0, "append");
	is_int(w.put(w.ctx, TABLE_SESSIONS, "k", 1, "v1", 2, &e), 0, "put");
	is_int(w.put(w.ctx, TABLE_SESSIONS, "l", 1, "", 0, &e), 0, "put");
	is_int(get(w.ops, w.ctx, "v1"), 1, "the writer reads it");
	is_int(w.ops->last_seq(w.ctx), 1, "and its last event");
	w.ops->scan(w.ctx, TABLE_SESSIONS, "", 0, NULL, 0, false, count_row,
		    &rows, &e);
	is_int(rows, 2, "and both rows");
	is_int(get(port.ops, old, "v1"), -ENOENT, "an open view does not");
	is_int(w.commit(w.ctx, &e), 0, "commit");
	is_int(get(port.ops, old, "v1"), -ENOENT, "nor after the commit");
	is_int(port.ops->last_seq(old), 0, "it has no event");
	is_int(port.open(port.ctx, &view, &e), 0, "a new view");
	is_int(get(port.ops, view, "v1"), 1, "sees the row");
	is_int(port.ops->last_seq(view), 1, "and the event");
	rows = 0;
	port.ops->scan(view, TABLE_SESSIONS, "l", 1, NULL, 0, true, count_row,
		       &rows, &e);
	is_int(rows, 1, "scans");
	port.close(view);
	port.close(old);
	port.close(NULL);

	w.begin(w.ctx, &e);
	w.put(w.ctx, TABLE_SESSIONS, "k", 1, "v2", 2, &e);
	w.del(w.ctx, TABLE_SESSIONS, "l", 1, &e);
	w.abort(w.ctx);
	w.begin(w.ctx, &e);
	is_int(get(w.ops, w.ctx, "v1"), 1, "an abort takes back rows");
	is_int(w.del(w.ctx, TABLE_SESSIONS, "k", 1, &e), 0, "delete");
	is_int(get(w.ops, w.ctx, "v1"), -ENOENT, "is seen at once");
	is_int(w.commit(w.ctx, &e), 0, "rows without events commit");
	is_int(evlog_last_seq(n.log), 1, "and add none");
	event_done(&ev);
	node_close(&n);
	n = node_open("p", false);
	port.open(n.log, &view, &e);
	is_int(get(port.ops, view, "v1"), -ENOENT, "deleted for good");
	port.close(view);
	node_close(&n);
}

/* A second process reads while this one writes. */
static void test_other_process(void)
{
	struct node n = node_open("o", false);
	int go[2], status;
	pid_t pid;
	char c = 0;

	append_one(&n, "x", TENANT, SESSION, 1);
	if (pipe(go))
		bail("pipe");
	/* LMDB must not cross a fork: the child opens its own. */
	node_close(&n);
	pid = fork();
	if (!pid) {
		if (read(go[0], &c, 1) != 1)
			_exit(9);
		n = node_open("o", true);
		_exit(read_events(&n, NULL, 0, 0).nr);
	}
	n = node_open("o", false);
	append_one(&n, "x", TENANT, SESSION, 2);
	evlog_begin(n.log, NULL);
	append(&n, "x", TENANT, SESSION, 3);
	if (write(go[1], &c, 1) != 1)
		bail("write");
	waitpid(pid, &status, 0);
	is_int(WEXITSTATUS(status), 2,
	       "a read-only process sees what is committed");
	evlog_commit(n.log, NULL);
	node_close(&n);
}

/* --- changed from outside ------------------------------------------------- */

/* A log of three, one table of it changed by hand. */
static int tampered(const char *name, void (*fn)(struct lmdb_txn *txn),
		    struct err *e)
{
	struct node n = node_open(name, false);
	struct lmdb_txn *txn;

	for (int i = 0; i < 3; i++)
		append_one(&n, "x", TENANT, i ? SESSION : "", i);
	lmdb_txn_begin(&txn, evlog_env(n.log), true, NULL);
	fn(txn);
	if (lmdb_txn_commit(txn, e))
		bail("%s", e->msg);
	node_close(&n);
	return open_result(name, e);
}

static void get_record(struct lmdb_txn *txn, uint64_t seq, struct buf *ret)
{
	const void *p;
	size_t len;

	if (lmdb_txn_get(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), &p, &len, NULL))
		bail("no record");
	buf_put(ret, p, len);
}

static void put_record(struct lmdb_txn *txn, uint64_t seq, struct buf *b)
{
	if (lmdb_txn_put(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), b->p, b->len,
			 NULL))
		bail("put");
}

static void cut_last(struct lmdb_txn *txn)
{
	uint64_t seq = 3;

	lmdb_txn_del(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), NULL);
}

static void change_hash(struct lmdb_txn *txn)
{
	SCOPED(buf_done) struct buf b = { 0 };

	get_record(txn, 3, &b);
	b.p[40] ^= 1;
	put_record(txn, 3, &b);
}

/* Another time in the public part, all checksums in order. */
static void change_time(struct lmdb_txn *txn)
{
	SCOPED(buf_done) struct buf b = { 0 };
	char *at;

	get_record(txn, 3, &b);
	at = memmem(b.p, b.len, "\"wall_ns\":\"1", 12);
	if (!at)
		bail("no wall_ns");
	at[11] = '2';
	put_record(txn, 3, &b);
}

/* Another end, with its hash, by someone who has no key. */
static void rewrite_head(struct lmdb_txn *txn)
{
	SCOPED(buf_done) struct buf b = { 0 };
	uint8_t head[72] = { 0 };

	cut_last(txn);
	get_record(txn, 2, &b);
	put_u64(head, 2);
	memcpy(head + 8, b.p + 40, 32);
	lmdb_txn_put(txn, EVLOG_TABLE_FORMAT, "head", 4, head, sizeof(head),
		     NULL);
}

static void newer_format(struct lmdb_txn *txn)
{
	uint8_t v[4];

	put_u32(v, 7);
	lmdb_txn_put(txn, EVLOG_TABLE_FORMAT, "version", 7, v, sizeof(v), NULL);
}

static void no_change(struct lmdb_txn *txn UNUSED)
{
}

static void test_tampered(void)
{
	struct err e = { 0 };

	is_int(tampered("t0", no_change, &e), 0, "unchanged: opens");
	is_int(tampered("t1", cut_last, &e), -EBADMSG, "cut off: %s", e.msg);
	{
		struct keys *keys;
		struct evlog *log = NULL;

		keys_open(&keys, help_path("t1"), NULL, true, &clock_real, &e);
		is_int(evlog_open(&log, help_path("t1"), keys, EVLOG_READ, &e),
		       -EBADMSG, "also to read");
		is_int(evlog_open(&log, help_path("t1"), keys, EVLOG_INSPECT, &e),
		       0, "but it can be inspected: %s", e.msg);
		evlog_close(log);
		keys_close(keys);
	}
	is_int(tampered("t2", change_hash, &e), -EBADMSG, "hash: %s", e.msg);
	is_int(tampered("t3", change_time, &e), -EBADMSG, "time: %s", e.msg);
	is_int(tampered("t4", rewrite_head, &e), -EBADMSG, "head: %s", e.msg);
	is_int(tampered("t5", newer_format, &e), -EPROTONOSUPPORT, "newer: %s",
	       e.msg);
	ok(strstr(e.msg, "format 7"), "names the format needed");
}

/* The record of an event moved to a scope whose key is destroyed. */
static void test_moved_scope(void)
{
	struct node n = node_open("m", false);
	SCOPED(buf_done) struct buf b = { 0 };
	struct lmdb_txn *txn;
	struct event ev = { 0 };
	struct err e = { 0 };

	append_one(&n, "x", TENANT, SESSION, 1);
	append_one(&n, "x", TENANT, OTHER, 2);
	keys_session_destroy(n.keys, OTHER, &e);
	lmdb_txn_begin(&txn, evlog_env(n.log), false, NULL);
	get_record(txn, 1, &b);
	lmdb_txn_abort(txn);
	is_int(evlog_event_read(n.log, 1, b.p, b.len, &ev, &e), 0, "readable");
	event_done(&ev);
	is_int(evlog_event_read(n.log, 2, b.p, b.len, &ev, &e), -EBADMSG,
	       "not as another number: %s", e.msg);
	memcpy(b.p + 16, OTHER, 20);
	put_u32(b.p + 36, crypt_crc32c(b.p, 36));
	is_int(evlog_event_read(n.log, 1, b.p, b.len, &ev, &e), -EBADMSG,
	       "moved to a destroyed scope: forged, not sealed: %s", e.msg);
	node_close(&n);
}

/* Old provider key and node key lost, new ones made beside the old log. */
static void test_other_keys(void)
{
	struct err e = { 0 };
	struct node n = node_open("k", false), m = node_open("k2", false);

	append_one(&n, "x", TENANT, SESSION, 1);
	append_one(&m, "x", TENANT, SESSION, 1);
	node_close(&n);
	node_close(&m);
	rename(help_path("k/keys"), help_path("k/old"));
	rename(help_path("k2/keys"), help_path("k/keys"));
	is_int(open_result("k", &e), -EBADMSG, "another node's keys: %s", e.msg);
}

static void test_refused(void)
{
	struct node n = node_open("r", false);
	struct event ev = help_event("x", TENANT, "../up", 1);
	struct err e = { 0 };
	uint8_t key[32];

	evlog_begin(n.log, &e);
	is_int(evlog_append(n.log, &ev, &e), -EINVAL, "no such id: %s", e.msg);
	evlog_abort(n.log);
	event_done(&ev);
	append_one(&n, "x", "", SESSION, 1);
	is_int(keys_session_get(n.keys, SESSION, key, &e), 0,
	       "a session without tenant has a key too");
	keys_session_destroy(n.keys, SESSION, &e);
	append_one(&n, "x", "", SESSION, 2);
	is_int(read_events(&n, SESSION, 1, 0).value[0], 2,
	       "and goes under the node's when it is destroyed");
	node_close(&n);
}

/* --- a full disk ---------------------------------------------------------- */

static void fill_up_to(const char *name, uint64_t left)
{
	struct datadir_space space;
	int fd = open(help_path(name), O_WRONLY | O_CREAT, 0600);
	off_t at = lseek(fd, 0, SEEK_END);

	datadir_space(help_path("small"), &space, NULL);
	if (space.avail > left &&
	    posix_fallocate(fd, at, (off_t)(space.avail - left)))
		bail("fill the disk");
	close(fd);
}

/* Appends batches until one fails; the seq of the last that did not. */
static uint64_t append_until(struct node *n, int want, struct err *e)
{
	SCOPED(buf_done) struct buf text = { 0 };
	uint64_t acked = evlog_last_seq(n->log);
	int r = 0;

	memset(buf_reserve(&text, 60000), 'x', 60000);
	text.len = 60000;
	for (int i = 0; !r && i < 1000; i++) {
		struct event ev = help_event("x", TENANT, SESSION, i);

		json_put_str(ev.data, "text", buf_cstr(&text));
		if (evlog_begin(n->log, e) || evlog_append(n->log, &ev, e))
			bail("append: %s", e->msg);
		r = evlog_commit(n->log, e);
		acked = r ? acked : ev.seq;
		event_done(&ev);
	}
	is_int(r, want, "a commit fails: %s", e->msg);
	return acked;
}

static void test_full_disk(void)
{
	struct err e = { 0 };
	struct node n;
	uint64_t acked;

	mkdir(help_path("small"), 0700);
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", help_path("small"), "tmpfs", 0, "size=64m")) {
		printf("# can't mount: a full disk is not tested\n");
		return;
	}
	if (datadir_create(help_path("small"), (uid_t)-1, (gid_t)-1, &e) ||
	    datadir_ballast_ensure(help_path("small"), 4 << 20, &e))
		bail("%s", e.msg);
	n = node_open("small", false);
	append_one(&n, "x", TENANT, SESSION, 1);
	ok(!access(help_path("small/log/ballast"), F_OK),
	   "with space left the ballast stays");
	fill_up_to("small/filler", EVLOG_RESERVE - 4096);
	append_one(&n, "x", TENANT, SESSION, 2);
	ok(access(help_path("small/log/ballast"), F_OK) != 0,
	   "with little left it is given back");
	fill_up_to("small/filler", 1 << 20);
	acked = append_until(&n, -ENOSPC, &e);
	is_int(e.code, ERR_NO_SPACE, "for want of space");
	ok(acked > 2, "after some that were fine");
	evlog_abort(n.log);
	node_close(&n);
	n = node_open("small", false);
	is_int(evlog_last_seq(n.log), acked,
	       "the next start has what was acknowledged, no more");
	unlink(help_path("small/filler"));
	append_one(&n, "x", TENANT, SESSION, 3);
	is_int(read_events(&n, NULL, acked, 0).nr, 1,
	       "and with space again it goes on");
	node_close(&n);
	umount(help_path("small"));
}

int main(void)
{
	test_append();
	test_by_session();
	test_destroyed();
	test_ports();
	test_other_process();
	test_tampered();
	test_moved_scope();
	test_other_keys();
	test_refused();
	test_full_disk();
	return tap_done();
}
