/*
 * kill -9 at random moments: a child appends batches, makes and destroys
 * keys, and reports each through a pipe once it is durable; the parent kills
 * it, opens the folder again and compares. What was acknowledged is there, at
 * most one batch more, rows and log are of one moment, the chain holds.
 *
 * It keeps the page cache, so it says nothing of the order of syncs.
 * CRYO_ROUNDS sets the number of rounds (20).
 */
#include <signal.h>
#include <sys/wait.h>

#include "store/evlog.h"
#include "store/view.h"
#include "tests/unit/store_help.h"

#define TENANT "t0000000000000000000"
#define BATCH_MAX 20

/* One message: an acknowledged batch, or a destroyed session. */
struct note {
	uint64_t seq;
	char destroyed[ID_LEN + 1];
};

struct node {
	struct keys *keys;
	struct evlog *log;
};

static bool node_open(struct node *n, struct err *e)
{
	*n = (struct node){ 0 };
	return !keys_open(&n->keys, help_tmp(), NULL, false, &clock_real, e) &&
	       !evlog_open(&n->log, help_tmp(), n->keys, EVLOG_WRITE, e);
}

static void node_close(struct node *n)
{
	evlog_close(n->log);
	keys_close(n->keys);
}

/* --- the child ------------------------------------------------------------ */

static void must(int r, const struct err *e)
{
	if (r) {
		fprintf(stderr, "# child: %s\n", e->msg);
		_exit(3);
	}
}

static void append_batch(struct node *n, const char *session, uint64_t nr)
{
	struct store_port w;
	struct err e = { 0 };
	uint8_t last[8];

	view_store_port(n->log, &w);
	must(w.begin(w.ctx, &e), &e);
	for (uint64_t i = 0; i < nr; i++) {
		uint64_t seq = w.ops->last_seq(w.ctx) + 1;
		struct event ev =
			help_event("crash.test", TENANT, session, (int)seq);

		must(w.append(w.ctx, &ev, &e), &e);
		event_done(&ev);
		put_be64(last, seq);
		must(w.put(w.ctx, TABLE_META, "last", 4, last, 8, &e), &e);
	}
	must(w.commit(w.ctx, &e), &e);
}

static void child(int wr, uint64_t seed)
{
	struct id session = { "" };
	struct note note;
	struct err e = { 0 };
	struct node n;

	must(node_open(&n, &e) ? 0 : -1, &e);
	for (;;) {
		if (!session.s[0] || tap_rand(&seed) % 8 == 0)
			id_new(&session);
		append_batch(&n, session.s,
			     1 + tap_rand(&seed) % (BATCH_MAX - 1));
		note = (struct note){ .seq = evlog_last_seq(n.log) };
		if (tap_rand(&seed) % 8 == 0) {
			must(keys_session_destroy(n.keys, session.s, &e), &e);
			memcpy(note.destroyed, session.s, sizeof(session.s));
			session.s[0] = 0;
		}
		if (write(wr, &note, sizeof(note)) != sizeof(note))
			_exit(4);
	}
}

/* --- the parent ----------------------------------------------------------- */

struct heard {
	uint64_t acked;
	struct note notes[4096];
	size_t nr;
};

static void listen_to(int rd, struct heard *h)
{
	struct note note;

	while (read(rd, &note, sizeof(note)) == sizeof(note)) {
		h->acked = note.seq;
		if (note.destroyed[0] && h->nr < ARRAY_LEN(h->notes))
			h->notes[h->nr++] = note;
	}
}

/* Lets a child work for a while after its first word, then kills it. */
static int run_child(struct heard *h, uint64_t *seed, uint64_t max_us)
{
	uint64_t child_seed = tap_rand(seed), us = tap_rand(seed) % max_us;
	int p[2], status;
	struct note first;
	pid_t pid;

	if (pipe(p) || fcntl(p[1], F_SETPIPE_SZ, 1 << 20) < 0)
		bail("pipe");
	pid = fork();
	if (!pid) {
		close(p[0]);
		child(p[1], child_seed);
	}
	close(p[1]);
	if (us % 4) { /* else it may die in its very start */
		if (read(p[0], &first, sizeof(first)) != sizeof(first))
			bail("the child said nothing");
		h->acked = first.seq;
		if (first.destroyed[0])
			h->notes[h->nr++] = first;
	}
	usleep((useconds_t)us);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	listen_to(p[0], h);
	close(p[0]);
	return status;
}

struct walk {
	struct node *n;
	uint8_t prev[CHAIN_HASH_LEN];
	uint64_t seq, bad;
};

static void walk_chain(struct walk *w, struct lmdb_txn *txn)
{
	struct lmdb_cur *c;
	struct lmdb_row row;
	int r = lmdb_cur_open(&c, txn, EVLOG_TABLE_LOG, NULL);

	for (r = r ? r : lmdb_cur_move(c, LMDB_FIRST, &row, NULL); !r;
	     r = lmdb_cur_move(c, LMDB_NEXT, &row, NULL)) {
		struct evrecord rec = { 0 };

		w->seq++;
		w->bad += evrecord_decode(&rec, row.value, row.len, NULL) != 0;
		chain_hash(w->prev, w->prev, rec.public, rec.public_len);
		w->bad += memcmp(w->prev, rec.hash, sizeof(w->prev)) != 0 ||
			  rec.pub.seq != w->seq;
	}
	lmdb_cur_close(c);
}

static int check_event(void *ctx, const struct event *ev)
{
	struct walk *w = ctx;
	int64_t value = 0;
	uint8_t key[32];

	if (!strcmp(ev->type_name, EVLOG_SEALED)) {
		/* only a destroyed session's */
		w->bad += keys_session_get(w->n->keys, ev->session, key, NULL) !=
			  -ENOENT;
		return 0;
	}
	w->bad += json_get_int(ev->data, "n", 0, INT64_MAX, &value, NULL) ||
		  (uint64_t)value != ev->seq;
	return 0;
}

static uint64_t row_last(const struct view_port *port, void *view)
{
	SCOPED(buf_done) struct buf b = { 0 };

	if (port->ops->get(view, TABLE_META, "last", 4, &b, NULL) || b.len != 8)
		return 0;
	return get_be64(b.p);
}

static void check(struct node *n, const struct heard *h, int round)
{
	struct walk w = { .n = n };
	struct view_port port;
	struct lmdb_txn *txn;
	uint64_t last = evlog_last_seq(n->log), alive = 0;
	uint8_t key[32];
	void *view;

	ok(last >= h->acked, "round %d: all %llu acknowledged are there", round,
	   (unsigned long long)h->acked);
	ok(last < h->acked + BATCH_MAX || !h->acked,
	   "at most one batch more: %llu", (unsigned long long)last);
	view_read_port(n->log, &port);
	port.open(port.ctx, &view, NULL);
	is_int(row_last(&port, view), last, "rows are of the same moment");
	is_int(port.ops->events(view, NULL, 0, check_event, &w, NULL), 0,
	       "every event is read");
	port.close(view);
	lmdb_txn_begin(&txn, evlog_env(n->log), false, NULL);
	walk_chain(&w, txn);
	lmdb_txn_abort(txn);
	ok(!w.bad && w.seq == last, "the chain holds, bodies are right");
	for (size_t i = 0; i < h->nr; i++)
		alive += keys_session_get(n->keys, h->notes[i].destroyed, key,
					  NULL) != -ENOENT;
	is_int(alive, 0, "%zu destroyed keys stay destroyed", h->nr);
	is_int(rmdir(help_path("keys/tmp")), 0, "no half key is left");
}

int main(void)
{
	static struct heard h;
	const char *s = getenv("CRYO_ROUNDS");
	int rounds = s ? (int)strtol(s, NULL, 10) : 20, status;
	uint64_t seed = tap_seed();
	struct err e = { 0 };
	struct node n;

	help_tmp();
	for (int i = 1; i <= rounds; i++) {
		status = run_child(&h, &seed, 60000);
		ok(WIFSIGNALED(status), "round %d: it worked until killed", i);
		if (!ok(node_open(&n, &e), "the folder opens again"))
			bail("%s", e.msg);
		check(&n, &h, i);
		h.acked = evlog_last_seq(n.log);
		node_close(&n);
	}
	return tap_done();
}
