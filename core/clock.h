/*
 * clock: time is handed in. `struct clock` gives wall and monotonic time in
 * nanoseconds; the real one asks the kernel, tests and simulations use the
 * virtual one. Text form is RFC 3339 in UTC with nanoseconds as needed.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include "core/base.h"

#define NS_PER_S 1000000000ll
#define NS_PER_MS 1000000ll

struct clock {
	int64_t (*wall_ns)(const struct clock *c); /* since 1970, UTC */
	int64_t (*mono_ns)(const struct clock *c); /* CLOCK_BOOTTIME */
};

extern const struct clock clock_real;

struct clock_virtual {
	struct clock clock; /* first */
	int64_t wall, mono;
};

void clock_virtual_init(struct clock_virtual *v, int64_t wall_ns);
void clock_virtual_advance(struct clock_virtual *v, int64_t ns);

static inline int64_t clock_wall(const struct clock *c)
{
	return c->wall_ns(c);
}

static inline int64_t clock_mono(const struct clock *c)
{
	return c->mono_ns(c);
}

#define CLOCK_TEXT_LEN 36

/* "2026-01-31T12:00:00.123456789Z"; trailing zeros of the fraction dropped */
void clock_format(char ret_text[CLOCK_TEXT_LEN], int64_t wall_ns);

/* RFC 3339 with any offset, also with a space for the T; -EINVAL. */
int clock_parse(int64_t *ret_wall_ns, const char *text);

/*
 * "90" (seconds), "60s", "10m", "1h30m", "7d", "250ms" -> ns; units fall from
 * left to right: d h m s ms us ns. -EINVAL, -ERANGE.
 */
int clock_parse_duration(int64_t *ret_ns, const char *text);
void clock_format_duration(char *ret_text, size_t len, int64_t ns); /* "1h30m" */

#endif
