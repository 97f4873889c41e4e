/*
 * clock: where time comes from, and how it is written.
 *
 * How it works: dates are counted in whole days since 1970 with the rules of
 * the Gregorian calendar. The C library's gmtime() is not used: it reads
 * time zone files, and some of our processes may open no path.
 *
 * Invariants:
 *  1. clock_parse(clock_format(t)) = t for every int64_t t, and
 *     clock_parse_duration(clock_format_duration(d)) = d for every d >= 0.
 *  2. Text order equals time order for texts with the same fraction length.
 *
 * A crash leaves nothing behind: there is no state.
 */
#include "core/clock.h"

#include <stdio.h>
#include <time.h>

#define DAY_S 86400ll
#define DAYS_OF_400_YEARS 146097ll
#define DAYS_TO_1970 719162ll /* from 0001-01-01 */

static int64_t clock_ask(clockid_t id)
{
	struct timespec t;

	if (clock_gettime(id, &t))
		NEVER("the kernel has no such clock");
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int64_t clock_real_wall(const struct clock *c UNUSED)
{
	return clock_ask(CLOCK_REALTIME);
}

static int64_t clock_real_mono(const struct clock *c UNUSED)
{
	return clock_ask(CLOCK_BOOTTIME);
}

const struct clock clock_real = {
	.wall_ns = clock_real_wall,
	.mono_ns = clock_real_mono,
};

static int64_t clock_virtual_wall(const struct clock *c)
{
	return ((const struct clock_virtual *)(const void *)c)->wall;
}

static int64_t clock_virtual_mono(const struct clock *c)
{
	return ((const struct clock_virtual *)(const void *)c)->mono;
}

void clock_virtual_init(struct clock_virtual *v, int64_t wall_ns)
{
	*v = (struct clock_virtual){
		.clock = { .wall_ns = clock_virtual_wall,
			   .mono_ns = clock_virtual_mono },
		.wall = wall_ns,
	};
}

void clock_virtual_advance(struct clock_virtual *v, int64_t ns)
{
	PRE(ns >= 0);
	v->wall += ns;
	v->mono += ns;
}

/* ---- calendar ---------------------------------------------------------- */

static bool clock_leap(int64_t year)
{
	return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int clock_month_days(int64_t year, int month)
{
	static const uint8_t days[12] = { 31, 28, 31, 30, 31, 30,
					  31, 31, 30, 31, 30, 31 };

	return days[month - 1] + (month == 2 && clock_leap(year));
}

/* Days from 0001-01-01 to the first of January of `year` (>= 1). */
static int64_t clock_year_start(int64_t year)
{
	int64_t y = year - 1;

	return y * 365 + y / 4 - y / 100 + y / 400;
}

/* Days since 1970 of a date that exists. */
static int64_t clock_days(int64_t year, int month, int day)
{
	int64_t days = clock_year_start(year) - DAYS_TO_1970 + day - 1;

	for (int m = 1; m < month; m++)
		days += clock_month_days(year, m);
	return days;
}

static void clock_date(int64_t days, int *ret_year, int *ret_month, int *ret_day)
{
	int64_t left = days + DAYS_TO_1970;
	int64_t year = left * 400 / DAYS_OF_400_YEARS + 1;
	int month = 1;

	/* the guess is by the mean length of a year: at most one off */
	while (clock_year_start(year) > left)
		year--;
	while (clock_year_start(year + 1) <= left)
		year++;
	left -= clock_year_start(year);
	while (left >= clock_month_days(year, month))
		left -= clock_month_days(year, month++);
	*ret_year = (int)year;
	*ret_month = month;
	*ret_day = (int)left + 1;
}

/* ---- RFC 3339 ---------------------------------------------------------- */

static int64_t clock_floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

void clock_format(char ret_text[CLOCK_TEXT_LEN], int64_t wall_ns)
{
	int64_t s = clock_floor_div(wall_ns, NS_PER_S);
	int64_t days = clock_floor_div(s, DAY_S);
	int frac = (int)((wall_ns % NS_PER_S + NS_PER_S) % NS_PER_S);
	int sec = (int)(s - days * DAY_S), digits = 9;
	int year, month, day, n;

	clock_date(days, &year, &month, &day);
	n = snprintf(ret_text, CLOCK_TEXT_LEN, "%04d-%02d-%02dT%02d:%02d:%02d",
		     year, month, day, sec / 3600, sec / 60 % 60, sec % 60);
	POST(n == 19);
	while (frac && frac % 10 == 0) {
		frac /= 10;
		digits--;
	}
	if (frac)
		n += snprintf(ret_text + n, CLOCK_TEXT_LEN - (size_t)n, ".%0*d",
			      digits, frac);
	base_strcpy(ret_text + n, CLOCK_TEXT_LEN - (size_t)n, "Z");
}

/* Exactly `digits` decimal digits within min and max; moves *p past them. */
static bool clock_number(const char **p, int digits, int min, int max, int *ret)
{
	int v = 0;

	for (int i = 0; i < digits; i++, (*p)++) {
		if (**p < '0' || **p > '9')
			return false;
		v = v * 10 + (**p - '0');
	}
	*ret = v;
	return v >= min && v <= max;
}

static bool clock_one_of(const char **p, const char *set)
{
	return **p && strchr(set, *(*p)++);
}

/* ".5" -> 500000000; digits past the ninth are read and dropped. */
static bool clock_fraction(const char **p, int64_t *ret_ns)
{
	int64_t unit = NS_PER_S / 10, ns = 0;

	if (**p == '.') {
		(*p)++;
		if (**p < '0' || **p > '9')
			return false;
		for (; **p >= '0' && **p <= '9'; (*p)++, unit /= 10)
			ns += (**p - '0') * unit;
	}
	*ret_ns = ns;
	return true;
}

/* "Z" or "+02:00" -> seconds east of UTC, at the end of the text */
static bool clock_offset(const char **p, int *ret_s)
{
	int sign, h, m;

	if (**p == 'Z' || **p == 'z') {
		*ret_s = 0;
		return !*++*p;
	}
	sign = **p == '-' ? -1 : 1;
	if (!clock_one_of(p, "+-") || !clock_number(p, 2, 0, 23, &h) ||
	    !clock_one_of(p, ":") || !clock_number(p, 2, 0, 59, &m))
		return false;
	*ret_s = sign * (h * 3600 + m * 60);
	return !**p;
}

/*
 * A leap second (:60) is refused: the kernel's clock never shows one, so it
 * names no time that a point could have.
 */
int clock_parse(int64_t *ret_wall_ns, const char *text)
{
	int year, month, day, h, m, s, east;
	int64_t frac, sec, ns;

	if (!clock_number(&text, 4, 1, 9999, &year) || !clock_one_of(&text, "-") ||
	    !clock_number(&text, 2, 1, 12, &month) || !clock_one_of(&text, "-") ||
	    !clock_number(&text, 2, 1, clock_month_days(year, month), &day) ||
	    !clock_one_of(&text, "Tt ") || !clock_number(&text, 2, 0, 23, &h) ||
	    !clock_one_of(&text, ":") || !clock_number(&text, 2, 0, 59, &m) ||
	    !clock_one_of(&text, ":") || !clock_number(&text, 2, 0, 59, &s) ||
	    !clock_fraction(&text, &frac) || !clock_offset(&text, &east))
		return -EINVAL;
	sec = clock_days(year, month, day) * DAY_S + h * 3600 + m * 60 + s;
	sec -= east;
	/* towards zero first: the sum of a negative second and its fraction
	 * may be in range where the second alone is not */
	if (sec < 0) {
		sec++;
		frac -= NS_PER_S;
	}
	if (__builtin_mul_overflow(sec, NS_PER_S, &ns) ||
	    __builtin_add_overflow(ns, frac, &ns))
		return -EINVAL;
	*ret_wall_ns = ns;
	return 0;
}

/* ---- durations --------------------------------------------------------- */

static const struct {
	const char *word;
	int64_t ns;
} clock_units[] = {
	/* long to short; a text names each at most once, in this order */
	{ "d", DAY_S *NS_PER_S },
	{ "h", 3600 * NS_PER_S },
	{ "m", 60 * NS_PER_S },
	{ "s", NS_PER_S },
	{ "ms", NS_PER_MS },
	{ "us", 1000 },
	{ "ns", 1 },
};

/* Finds the unit at *p, from the unit `from` on; -1 if there is none. */
static int clock_unit(const char **p, int from)
{
	size_t len = strspn(*p, "dhmsun");

	for (int i = from; i < (int)ARRAY_LEN(clock_units); i++) {
		if (strlen(clock_units[i].word) == len &&
		    !strncmp(clock_units[i].word, *p, len)) {
			*p += len;
			return i;
		}
	}
	return -1;
}

/* Decimal digits, at least one. */
static int clock_digits(const char **p, int64_t *ret)
{
	int64_t v = 0;

	if (**p < '0' || **p > '9')
		return -EINVAL;
	for (; **p >= '0' && **p <= '9'; (*p)++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, **p - '0', &v))
			return -ERANGE;
	*ret = v;
	return 0;
}

int clock_parse_duration(int64_t *ret_ns, const char *text)
{
	int64_t sum = 0, v;
	int unit = -1;
	bool first = true;

	do {
		int r = clock_digits(&text, &v);

		if (r < 0)
			return r;
		if (first && !*text)
			unit = 3; /* a bare number is seconds */
		else
			unit = clock_unit(&text, unit + 1);
		if (unit < 0)
			return -EINVAL;
		if (__builtin_mul_overflow(v, clock_units[unit].ns, &v) ||
		    __builtin_add_overflow(sum, v, &sum))
			return -ERANGE;
		first = false;
	} while (*text);
	*ret_ns = sum;
	return 0;
}

void clock_format_duration(char *ret_text, size_t len, int64_t ns)
{
	uint64_t left = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
	size_t at = 0;

	PRE(len >= 2);
	ret_text[0] = '\0';
	if (ns < 0)
		base_strcpy(ret_text, len, "-");
	for (size_t i = 0; i < ARRAY_LEN(clock_units); i++) {
		uint64_t n = left / (uint64_t)clock_units[i].ns;

		left %= (uint64_t)clock_units[i].ns;
		at = strlen(ret_text);
		if (n)
			snprintf(ret_text + at, len - at, "%llu%s",
				 (unsigned long long)n, clock_units[i].word);
	}
	if (!ns)
		snprintf(ret_text, len, "0s");
}
