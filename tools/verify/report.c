/*
 * report: what was looked at and what was wrong, kept until the end and then
 * printed for people or as one JSON object.
 *
 * Invariants:
 *  1. Failures are all counted; only their texts are bounded.
 *  2. A level is good only if something of it was checked and nothing failed.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "tools/verify/verify.h"

static const struct {
	const char *name, *good, *bad, *claim;
} levels[] = {
	[LEVEL_CHAIN] = { "chain", "intact", "BROKEN",
			  "no event is missing, changed, moved or added" },
	[LEVEL_FOLD] = { "fold", "equal", "DIFFERS",
			 "live state is what the events add up to" },
	[LEVEL_BYTES] = { "bytes", "restorable", "DAMAGED",
			  "every point reads back to the root in its event" },
};
static_assert(ARRAY_LEN(levels) == LEVEL_NR, "words for each level");

struct check *report_check(struct report *r, enum level level, const char *name)
{
	struct check *c = &r->checks[r->nr];

	PRE(r->nr < REPORT_CHECKS_MAX);
	r->nr++;
	*c = (struct check){ .level = level, .name = name };
	return c;
}

void report_fail(struct report *r, struct check *c, const char *fmt, ...)
{
	va_list ap;

	c->failed++;
	if (r->nr_problems < REPORT_PROBLEMS_MAX) {
		va_start(ap, fmt);
		vsnprintf(r->problems[r->nr_problems].text,
			  sizeof(r->problems[0].text), fmt, ap);
		va_end(ap);
		r->problems[r->nr_problems].check = c;
	}
	r->nr_problems++;
}

enum verdict { VERDICT_NONE, VERDICT_GOOD, VERDICT_BAD };

static enum verdict verdict(const struct report *r, enum level level)
{
	enum verdict v = VERDICT_NONE;

	for (size_t i = 0; i < r->nr; i++) {
		if (r->checks[i].level != level)
			continue;
		if (r->checks[i].failed)
			return VERDICT_BAD;
		v = VERDICT_GOOD;
	}
	return v;
}

static const char *verdict_word(enum level level, enum verdict v)
{
	if (v == VERDICT_NONE)
		return "not checked";
	return v == VERDICT_GOOD ? levels[level].good : levels[level].bad;
}

bool report_good(const struct report *r)
{
	for (int l = 0; l < LEVEL_NR; l++)
		if (verdict(r, (enum level)l) != VERDICT_GOOD)
			return false;
	return true;
}

void report_print(const struct report *r, const char *data, pid_t writer)
{
	printf("%s: %" PRIu64 " events", data, r->events);
	if (writer)
		printf(", process %d is at work on it", writer);
	printf("\n\n  %-6s %-22s %10s %8s\n", "LEVEL", "CHECK", "CHECKED",
	       "FAILED");
	for (size_t i = 0; i < r->nr; i++) {
		const struct check *c = &r->checks[i];

		printf("  %-6s %-22s %10" PRIu64 " %8" PRIu64 "  %s\n",
		       levels[c->level].name, c->name, c->done, c->failed,
		       c->note);
	}
	printf("\n");
	for (size_t i = 0; i < MIN(r->nr_problems, REPORT_PROBLEMS_MAX); i++)
		printf("  %s: %s\n", levels[r->problems[i].check->level].name,
		       r->problems[i].text);
	if (r->nr_problems > REPORT_PROBLEMS_MAX)
		printf("  and %" PRIu64 " more\n",
		       r->nr_problems - REPORT_PROBLEMS_MAX);
	if (r->nr_problems)
		printf("\n");
	for (int l = 0; l < LEVEL_NR; l++) {
		enum verdict v = verdict(r, (enum level)l);

		printf("  %-6s %-12s %s\n", levels[l].name,
		       verdict_word((enum level)l, v),
		       v == VERDICT_GOOD ? levels[l].claim : "");
	}
}

static json_t *level_json(const struct report *r, enum level level)
{
	json_t *o = json_object(), *list = json_array();

	json_put_str(o, "verdict", verdict_word(level, verdict(r, level)));
	json_put_bool(o, "ok", verdict(r, level) == VERDICT_GOOD);
	for (size_t i = 0; i < r->nr; i++) {
		json_t *c;

		if (r->checks[i].level != level)
			continue;
		c = json_object();
		json_put_str(c, "check", r->checks[i].name);
		json_put_int(c, "checked", (int64_t)r->checks[i].done);
		json_put_int(c, "failed", (int64_t)r->checks[i].failed);
		if (r->checks[i].note[0])
			json_put_str(c, "note", r->checks[i].note);
		json_array_append_new(list, c);
	}
	json_object_set_new(o, "checks", list);
	return o;
}

void report_json(const struct report *r, const char *data)
{
	SCOPED_JSON json_t *o = json_object();
	SCOPED(buf_done) struct buf text = { 0 };
	json_t *list = json_array();

	json_put_str(o, "data", data);
	json_put_bool(o, "ok", report_good(r));
	json_put_int(o, "events", (int64_t)r->events);
	json_put_hex(o, "head", r->head, sizeof(r->head));
	for (int l = 0; l < LEVEL_NR; l++)
		json_object_set_new(o, levels[l].name,
				    level_json(r, (enum level)l));
	for (size_t i = 0; i < MIN(r->nr_problems, REPORT_PROBLEMS_MAX); i++) {
		json_t *p = json_object();

		json_put_str(p, "level",
			     levels[r->problems[i].check->level].name);
		json_put_str(p, "check", r->problems[i].check->name);
		json_put_str(p, "problem", r->problems[i].text);
		json_array_append_new(list, p);
	}
	json_object_set_new(o, "problems", list);
	if (json_canonical(&text, o))
		NEVER("the report has no float in it");
	printf("%s\n", buf_cstr(&text));
}

/* --- ids ------------------------------------------------------------------ */

static size_t idset_place(const struct idset *s, const void *id)
{
	size_t lo = 0, hi = s->nr;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (memcmp(s->ids[mid].s, id, ID_LEN) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool idset_has(const struct idset *s, const void *id)
{
	size_t at = idset_place(s, id);

	return at < s->nr && !memcmp(s->ids[at].s, id, ID_LEN);
}

void idset_add(struct idset *s, const char *id)
{
	struct id padded = { "" };
	size_t at;

	base_strcpy(padded.s, sizeof(padded.s), id);
	at = idset_place(s, padded.s);
	if (at < s->nr && !memcmp(s->ids[at].s, padded.s, ID_LEN))
		return;
	if (s->nr == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->ids = base_realloc(s->ids, s->cap * sizeof(*s->ids));
	}
	memmove(s->ids + at + 1, s->ids + at, (s->nr - at) * sizeof(*s->ids));
	s->ids[at] = padded;
	s->nr++;
}

void idset_done(struct idset *s)
{
	free(s->ids);
	*s = (struct idset){ 0 };
}
