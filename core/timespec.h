/*
 * timespec: the language in which people name a moment of a session:
 *
 *   2026-01-31T12:00:00Z   a time, RFC 3339 with any offset
 *   -10m  -1h30m  -250ms   so long before now
 *   k3v...                 a point's id
 *   before-upgrade         a point's name
 *   @1234                  as it was at event 1234
 *
 * A time means the newest kept point at or before it, as time was lived:
 * also on a line that was left by a rewind.
 */
#ifndef CORE_TIMESPEC_H
#define CORE_TIMESPEC_H

#include "core/rows.h"

struct timespec_point {
	struct point point;
	bool exact; /* named by id or name: no time was asked for */
	int64_t asked_ns; /* the time asked for; the point's own if exact */
	int64_t off_ns; /* asked_ns - point.time_ns, never negative */
	bool off_line; /* not on the line that leads to the present */
	bool inherited; /* the base: a point of the session it came from */
};

/*
 * Resolves `text` for a session at the moment now_ns. One reverse seek; the
 * walk over epochs is as long as there were restores. Errors: INVALID (not
 * a moment, or in the future), NOT_FOUND (no such point or event; before
 * the first point, which is then named). Any thread.
 */
int timespec_resolve(const struct reader *r, const struct session *s,
		     const char *text, int64_t now_ns,
		     struct timespec_point *ret, struct err *e);

/* Does the line that leads to the session's present pass through p? */
int timespec_on_line(const struct reader *r, const struct session *s,
		     const struct point_ref *p, bool *ret, struct err *e);

#endif
