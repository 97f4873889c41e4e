/*
 * Tests of core/clock: dates worked out by another implementation (Python's
 * datetime), refusals, and the laws of round trips.
 */
#include "core/clock.h"

#include <stdio.h>
#include <time.h>

#include "tests/tap.h"

static const struct {
	int64_t s;
	const char *text;
} known[] = {
	{ 0, "1970-01-01T00:00:00Z" },
	{ -1, "1969-12-31T23:59:59Z" },
	{ 946684799, "1999-12-31T23:59:59Z" },
	{ 951868799, "2000-02-29T23:59:59Z" },
	{ 1769860800, "2026-01-31T12:00:00Z" },
	{ 4107542400, "2100-03-01T00:00:00Z" },
	{ -2203891200, "1900-03-01T00:00:00Z" },
	{ -8515324800, "1700-02-28T00:00:00Z" },
	{ 9223372036, "2262-04-11T23:47:16Z" },
};

static void test_known(void)
{
	char text[CLOCK_TEXT_LEN];

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		int64_t ns = 42;

		clock_format(text, known[i].s * NS_PER_S);
		is_str(text, known[i].text, "%lld is printed",
		       (long long)known[i].s);
		ok(!clock_parse(&ns, known[i].text) && ns == known[i].s * NS_PER_S,
		   "and read back");
	}
}

static void test_fraction(void)
{
	static const struct {
		int64_t ns;
		const char *text;
	} want[] = {
		{ 1, "1970-01-01T00:00:00.000000001Z" },
		{ 500000000, "1970-01-01T00:00:00.5Z" },
		{ 123000000, "1970-01-01T00:00:00.123Z" },
		{ 999999999, "1970-01-01T00:00:00.999999999Z" },
		{ -1, "1969-12-31T23:59:59.999999999Z" },
		{ -1500000000, "1969-12-31T23:59:58.5Z" },
		{ INT64_MAX, "2262-04-11T23:47:16.854775807Z" },
		{ INT64_MIN, "1677-09-21T00:12:43.145224192Z" },
	};
	char text[CLOCK_TEXT_LEN];

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		int64_t ns = 42;

		clock_format(text, want[i].ns);
		is_str(text, want[i].text, "%lld ns", (long long)want[i].ns);
		ok(!clock_parse(&ns, text) && ns == want[i].ns, "and read back");
	}
}

static void test_parse_forms(void)
{
	static const struct {
		const char *text;
		int64_t ns;
	} want[] = {
		/* the four examples of RFC 3339 section 5.8 that are no leap
		 * seconds, by Python's datetime */
		{ "1985-04-12T23:20:50.52Z", 482196050520000000 },
		{ "1996-12-19T16:39:57-08:00", 851042397000000000 },
		{ "1937-01-01T12:00:27.87+00:20", -1041337172130000000 },
		{ "2026-01-31t12:00:00z", 1769860800000000000 },
		{ "2026-01-31 12:00:00Z", 1769860800000000000 },
		{ "2026-01-31T12:00:00-00:00", 1769860800000000000 },
		{ "2026-02-01T11:59:00+23:59", 1769860800000000000 },
		{ "1970-01-01T00:00:00.0000000019Z", 1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		int64_t ns = 42;
		int r = clock_parse(&ns, want[i].text);

		ok(!r && ns == want[i].ns, "%s is %lld (got %lld)",
		   want[i].text, (long long)want[i].ns, (long long)ns);
	}
}

static void test_parse_refused(void)
{
	static const char *const bad[] = {
		"",
		"2026",
		"2026-01-31",
		"2026-01-31T12:00:00",
		"2026-01-31T12:00:00z ",
		" 2026-01-31T12:00:00Z",
		"2026-1-31T12:00:00Z",
		"2026-02-29T12:00:00Z",
		"2100-02-29T12:00:00Z",
		"2026-04-31T12:00:00Z",
		"2026-00-01T12:00:00Z",
		"2026-13-01T12:00:00Z",
		"2026-01-00T12:00:00Z",
		"2026-01-31T24:00:00Z",
		"2026-01-31T12:60:00Z",
		"1990-12-31T23:59:60Z",
		"2026-01-31T12:00:00.Z",
		"2026-01-31T12:00:00,5Z",
		"2026-01-31T12:00:00+24:00",
		"2026-01-31T12:00:00+0100",
		"2026-01-31T12:00:00+01:60",
		"2026-01-31T12:00:00+01:00Z",
		"0000-01-01T00:00:00Z",
		"2262-04-11T23:47:16.854775808Z",
		"1677-09-21T00:12:43.145224191Z",
		"9999-12-31T23:59:59Z",
		"+026-01-31T12:00:00Z",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int64_t ns = 42;

		ok(clock_parse(&ns, bad[i]) == -EINVAL && ns == 42,
		   "refuses \"%s\"", bad[i]);
	}
}

static void law_time_text(uint64_t *rng)
{
	int wrong = 0, unlike = 0;

	for (int i = 0; i < 20000; i++) {
		int64_t t = (int64_t)tap_rand(rng), back = t + 1;
		char text[CLOCK_TEXT_LEN], libc[32];
		int64_t s = t / NS_PER_S - (t % NS_PER_S < 0);
		time_t tt = (time_t)s;
		struct tm tm;

		clock_format(text, t);
		wrong += clock_parse(&back, text) != 0 || back != t;
		gmtime_r(&tt, &tm);
		strftime(libc, sizeof(libc), "%Y-%m-%dT%H:%M:%S", &tm);
		unlike += strncmp(text, libc, 19) != 0;
	}
	is_int(wrong, 0, "every time is read back from its text");
	is_int(unlike, 0, "and has the date that the C library gives it");
}

static void test_duration(void)
{
	static const struct {
		const char *text;
		int64_t ns;
	} want[] = {
		{ "90", 90 * NS_PER_S },
		{ "0", 0 },
		{ "60s", 60 * NS_PER_S },
		{ "10m", 600 * NS_PER_S },
		{ "1h30m", 5400 * NS_PER_S },
		{ "90m", 5400 * NS_PER_S },
		{ "7d", 604800 * NS_PER_S },
		{ "250ms", 250 * NS_PER_MS },
		{ "1d2h3m4s5ms6us7ns", 93784005006007 },
		{ "1m5ms", 60005 * NS_PER_MS },
		{ "9223372036854775807ns", INT64_MAX },
	};

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		int64_t ns = 42;
		int r = clock_parse_duration(&ns, want[i].text);

		ok(!r && ns == want[i].ns, "%s is %lld ns (got %lld)",
		   want[i].text, (long long)want[i].ns, (long long)ns);
	}
}

static void test_duration_refused(void)
{
	static const struct {
		const char *text;
		int r;
	} bad[] = {
		{ "", -EINVAL },
		{ "s", -EINVAL },
		{ "-1s", -EINVAL },
		{ "+1s", -EINVAL },
		{ "1 s", -EINVAL },
		{ "1s ", -EINVAL },
		{ "1.5h", -EINVAL },
		{ "1x", -EINVAL },
		{ "1mm", -EINVAL },
		{ "1h5", -EINVAL }, /* 5 what? */
		{ "1m1h", -EINVAL },
		{ "1s1s", -EINVAL },
		{ "1week", -EINVAL },
		{ "9223372037", -ERANGE },
		{ "9223372036854775808ns", -ERANGE },
		{ "99999999999999999999999s", -ERANGE },
		{ "106752d", -ERANGE },
		{ "106751d86400s", -ERANGE },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int64_t ns = 42;

		ok(clock_parse_duration(&ns, bad[i].text) == bad[i].r && ns == 42,
		   "refuses \"%s\"", bad[i].text);
	}
}

static void test_duration_text(void)
{
	static const struct {
		int64_t ns;
		const char *text;
	} want[] = {
		{ 0, "0s" },
		{ 5400 * NS_PER_S, "1h30m" },
		{ 86400 * NS_PER_S, "1d" },
		{ 60 * NS_PER_S, "1m" },
		{ 250 * NS_PER_MS, "250ms" },
		{ 1500 * NS_PER_MS, "1s500ms" },
		{ 1, "1ns" },
		{ -5400 * NS_PER_S, "-1h30m" },
		{ INT64_MAX, "106751d23h47m16s854ms775us807ns" },
		{ INT64_MIN, "-106751d23h47m16s854ms775us808ns" },
	};
	char text[48];

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		clock_format_duration(text, sizeof(text), want[i].ns);
		is_str(text, want[i].text, "%lld ns", (long long)want[i].ns);
	}
	clock_format_duration(text, 4, 5400 * NS_PER_S);
	is_str(text, "1h3", "a short buffer is filled and terminated");
}

static void law_duration_text(uint64_t *rng)
{
	int wrong = 0;

	for (int i = 0; i < 20000; i++) {
		int64_t d = (int64_t)(tap_rand(rng) >> (1 + tap_rand(rng) % 63));
		int64_t back = d + 1;
		char text[48];

		clock_format_duration(text, sizeof(text), d);
		wrong += clock_parse_duration(&back, text) != 0 || back != d;
	}
	is_int(wrong, 0, "every duration is read back from its text");
}

static void test_clocks(void)
{
	struct clock_virtual v;
	struct timespec boot;
	int64_t a, b;

	clock_virtual_init(&v, 1000);
	is_int(clock_wall(&v.clock), 1000, "a virtual clock starts when told");
	is_int(clock_mono(&v.clock), 0, "its other hand at zero");
	clock_virtual_advance(&v, 5);
	is_int(clock_wall(&v.clock), 1005, "both hands move");
	is_int(clock_mono(&v.clock), 5, "together");
	a = clock_mono(&clock_real);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	b = clock_mono(&clock_real);
	ok(a <= boot.tv_sec * NS_PER_S + boot.tv_nsec &&
		   boot.tv_sec * NS_PER_S + boot.tv_nsec <= b,
	   "real monotonic time is CLOCK_BOOTTIME");
	a = clock_wall(&clock_real) / NS_PER_S;
	b = (int64_t)time(NULL);
	ok(a - b <= 1 && b - a <= 1, "real wall time is the system's");
}

int main(void)
{
	uint64_t rng = tap_seed();

	test_known();
	test_fraction();
	test_parse_forms();
	test_parse_refused();
	law_time_text(&rng);
	test_duration();
	test_duration_refused();
	test_duration_text();
	law_duration_text(&rng);
	test_clocks();
	return tap_done();
}
