/*
 * verify: does a data folder say the truth? Three levels, each with a word of
 * its own, so that no claim is larger than its proof:
 *
 *   chain  intact      no event is missing, changed, moved or added
 *   fold   equal       the live rows are what the events add up to
 *   bytes  restorable  every point reads back to the root in its event
 *
 * Reads only, beside a running daemon too.
 */
#ifndef TOOLS_VERIFY_VERIFY_H
#define TOOLS_VERIFY_VERIFY_H

#include "core/json.h"
#include "store/evlog.h"

enum level { LEVEL_CHAIN, LEVEL_FOLD, LEVEL_BYTES, LEVEL_NR };

#define REPORT_CHECKS_MAX 16
#define REPORT_PROBLEMS_MAX 100 /* kept; all are counted */

/* One kind of thing that was looked at. */
struct check {
	enum level level;
	const char *name;
	uint64_t done, failed;
	char note[128];
};

struct report {
	struct check checks[REPORT_CHECKS_MAX];
	size_t nr;
	struct {
		const struct check *check;
		char text[320];
	} problems[REPORT_PROBLEMS_MAX];
	uint64_t nr_problems;
	uint64_t events;
	uint8_t head[CHAIN_HASH_LEN];
};

struct check *report_check(struct report *r, enum level level, const char *name);
void report_fail(struct report *r, struct check *c, const char *fmt, ...)
	PRINTF(3, 4);
bool report_good(const struct report *r); /* every level was looked at */
void report_print(const struct report *r, const char *data, pid_t writer);
void report_json(const struct report *r, const char *data);

/* Ids, sorted; for sessions whose key is destroyed. */
struct idset {
	struct id *ids;
	size_t nr, cap;
};

void idset_add(struct idset *s, const char *id);
bool idset_has(const struct idset *s, const void *id); /* ID_LEN bytes */
void idset_done(struct idset *s);

struct verify {
	const char *data;
	struct keys *keys;
	struct evlog *log;
	struct lmdb_txn *txn; /* one moment for chain and fold */
	struct idset gone; /* sessions with events that no key opens */
	struct report report;
	bool deep;
};

/*
 * Each looks at its level and reports into v->report. The return value is
 * about the looking itself: -errno with `e` if it could not go on.
 */
int chain_verify(struct verify *v, struct err *e);
int fold_verify(struct verify *v, struct err *e); /* after chain_verify() */
void bytes_verify(struct verify *v); /* ends v->txn */

#endif
