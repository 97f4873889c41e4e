/*
 * chain: walks the log from its first event to its last.
 *
 * The walk is written from docs/adr/0020-event-log-format.md, apart from the
 * code that writes the log: it takes the records apart by offset and hashes
 * what the format says, so that a mistake in the writer does not hide here.
 * Bodies are then opened the way readers do it.
 *
 * Invariants:
 *  1. One changed event is one problem: after a break the walk goes on from
 *     the hash that is stored.
 *  2. A destroyed key is a fact to report, not a failure.
 */
#include "tools/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>

struct walk {
	struct verify *v;
	struct crypt_hash *hash;
	struct check *links, *bodies, *index;
	uint64_t next; /* number that comes next */
	uint64_t sealed, indexed;
	uint8_t prev[32];
	bool broken; /* since the last record, until one follows again */
};

/* A record taken apart, as the format says. */
struct parts {
	const uint8_t *public, *hash;
	size_t public_len;
};

static const char *take_apart(struct parts *ret, const uint8_t *p, size_t len)
{
	uint32_t box_len;

	if (len < 72 || memcmp(p, "cevr", 4) != 0)
		return "is no record";
	if (crypt_crc32c(p, 36) != get_u32(p + 36))
		return "has a header that does not match its checksum";
	if (get_u16(p + 4) != 1 || get_u16(p + 6))
		return "is of a version that this program does not know";
	ret->public_len = get_u16(p + 10);
	box_len = get_u32(p + 12);
	if (len - 72 != ret->public_len + (size_t)box_len)
		return "has lengths that do not add up";
	ret->hash = p + 40;
	ret->public = p + 72;
	return NULL;
}

static bool says_seq(const struct parts *x, uint64_t seq)
{
	char want[40];
	int n = snprintf(want, sizeof(want), "\"seq\":\"%" PRIu64 "\"", seq);

	return memmem(x->public, x->public_len, want, (size_t)n) != NULL;
}

static void walk_link(struct walk *w, const uint8_t *p, size_t len)
{
	struct report *r = &w->v->report;
	struct parts x;
	uint8_t hash[32];
	const char *why = take_apart(&x, p, len);

	w->links->done++;
	if (why) {
		report_fail(r, w->links, "event %" PRIu64 " %s", w->next, why);
		w->broken = true;
		return;
	}
	crypt_hash_init(w->hash);
	crypt_hash_put(w->hash, "cryo-event-v1\n", 14);
	crypt_hash_put(w->hash, w->prev, 32);
	crypt_hash_put(w->hash, x.public, x.public_len);
	crypt_hash_end(w->hash, hash);
	if (!says_seq(&x, w->next))
		report_fail(r, w->links,
			    "event %" PRIu64 " says it is another number",
			    w->next);
	else if (memcmp(hash, x.hash, 32) != 0 && !w->broken)
		report_fail(r, w->links,
			    "event %" PRIu64 " is not what was logged, or does "
			    "not follow from event %" PRIu64,
			    w->next, w->next - 1);
	w->broken = false;
	memcpy(w->prev, x.hash, 32);
}

/* An event about a session is in that session's index. */
static void walk_index(struct walk *w, const struct event *ev)
{
	uint8_t key[ID_LEN + 8] = { 0 };
	const void *value;
	size_t len;

	if (!ev->session[0])
		return;
	memcpy(key, ev->session, strlen(ev->session));
	put_be64(key + ID_LEN, w->next);
	w->index->done++;
	if (lmdb_txn_get(w->v->txn, EVLOG_TABLE_BY_SESSION, key, sizeof(key),
			 &value, &len, NULL))
		report_fail(&w->v->report, w->index,
			    "event %" PRIu64 " is missing in the index of "
			    "session %s",
			    w->next, ev->session);
	else
		w->indexed++;
}

static void walk_body(struct walk *w, const uint8_t *p, size_t len)
{
	struct event ev = { 0 };
	struct err e = { 0 };
	int r = evlog_event_read(w->v->log, w->next, p, len, &ev, &e);

	w->bodies->done++;
	if (r < 0) {
		report_fail(&w->v->report, w->bodies, "%s", e.msg);
		return;
	}
	if (r) {
		w->sealed++;
		if (ev.session[0])
			idset_add(&w->v->gone, ev.session);
	}
	walk_index(w, &ev);
	event_done(&ev);
}

static int walk_all(struct walk *w, struct err *e)
{
	SCOPED(lmdb_cur_close_p) struct lmdb_cur *c = NULL;
	struct lmdb_row row;
	uint64_t seq;
	int r = lmdb_cur_open(&c, w->v->txn, EVLOG_TABLE_LOG, e);

	if (!r)
		r = lmdb_cur_move(c, LMDB_FIRST, &row, e);
	for (; !r; r = lmdb_cur_move(c, LMDB_NEXT, &row, e)) {
		memcpy(&seq, row.key, sizeof(seq));
		if (seq != w->next) {
			report_fail(&w->v->report, w->links,
				    "events %" PRIu64 " to %" PRIu64
				    " are missing",
				    w->next, seq - 1);
			w->next = seq;
			w->broken = true;
		}
		walk_link(w, row.value, row.len);
		walk_body(w, row.value, row.len);
		w->next++;
	}
	return r == -ENOENT ? 0 : r;
}

/* The end is where the node said it was. */
static void check_head(struct walk *w)
{
	struct report *r = &w->v->report;
	struct check *c = report_check(r, LEVEL_CHAIN, "head");
	struct evlog_head head;
	struct err e = { 0 };

	c->done = 1;
	if (evlog_head(w->v->log, w->v->txn, &head, &e))
		report_fail(r, c, "%s", e.msg);
	else if (head.seq != w->next - 1)
		report_fail(r, c,
			    "the log ends at event %" PRIu64 ", but its head "
			    "is event %" PRIu64,
			    w->next - 1, head.seq);
	else if (memcmp(head.hash, w->prev, 32) != 0)
		report_fail(r, c, "event %" PRIu64 " is not the head", head.seq);
	memcpy(r->head, w->prev, sizeof(r->head));
}

static void sum_up(struct walk *w)
{
	uint64_t rows = lmdb_txn_count(w->v->txn, EVLOG_TABLE_BY_SESSION);

	/* Bodies that could not be opened may have entries of their own. */
	if (rows != w->indexed && !w->bodies->failed)
		report_fail(&w->v->report, w->index,
			    "the index has %" PRIu64 " entries, events account "
			    "for %" PRIu64,
			    rows, w->indexed);
	if (w->sealed)
		snprintf(w->bodies->note, sizeof(w->bodies->note),
			 "%" PRIu64 " sealed, key destroyed (%zu sessions)",
			 w->sealed, w->v->gone.nr);
	w->v->report.events = w->next - 1;
}

int chain_verify(struct verify *v, struct err *e)
{
	struct walk w = { .v = v, .next = 1 };
	int r;

	w.links = report_check(&v->report, LEVEL_CHAIN, "links");
	w.bodies = report_check(&v->report, LEVEL_CHAIN, "bodies");
	w.index = report_check(&v->report, LEVEL_CHAIN, "index by session");
	w.hash = crypt_hash_new();
	r = walk_all(&w, e);
	crypt_hash_free(w.hash);
	if (r)
		return r;
	check_head(&w);
	sum_up(&w);
	return 0;
}
