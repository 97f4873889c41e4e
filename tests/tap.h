/*
 * tap: the Test Anything Protocol for our C tests. A test program calls
 * ok()/is_*() and ends with `return tap_done();`. Failures print where and
 * what. tap_seed() gives the seed (CRYO_SEED or random) and prints it.
 */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int tap_nr, tap_failed;

__attribute__((unused, format(printf, 3, 4))) static bool
tap_ok(bool good, const char *where, const char *fmt, ...)
{
	char name[256];
	__builtin_va_list ap;

	__builtin_va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	__builtin_va_end(ap);
	tap_nr++;
	tap_failed += !good;
	printf("%sok %d - %s\n", good ? "" : "not ", tap_nr, name);
	if (!good)
		printf("# failed at %s\n", where);
	fflush(stdout);
	return good;
}

#define TAP_STR2(x) #x
#define TAP_STR(x) TAP_STR2(x)
#define TAP_WHERE __FILE__ ":" TAP_STR(__LINE__)

#define ok(x, ...) tap_ok(!!(x), TAP_WHERE, __VA_ARGS__)
#define is_int(got, want, ...)                                                 \
	do {                                                                   \
		long long tap_g = (long long)(got), tap_w = (long long)(want); \
		if (!tap_ok(tap_g == tap_w, TAP_WHERE, __VA_ARGS__))           \
			printf("#   got %lld, want %lld\n", tap_g, tap_w);     \
	} while (0)
#define is_str(got, want, ...)                                       \
	do {                                                         \
		const char *tap_g = (got), *tap_w = (want);          \
		if (!tap_ok(tap_g && tap_w && !strcmp(tap_g, tap_w), \
			    TAP_WHERE, __VA_ARGS__))                 \
			printf("#   got \"%s\"\n#   want \"%s\"\n",  \
			       tap_g ? tap_g : "(null)",             \
			       tap_w ? tap_w : "(null)");            \
	} while (0)
#define is_mem(got, want, len, ...) \
	tap_ok(!memcmp(got, want, len), TAP_WHERE, __VA_ARGS__)

/* Ends the program at once: nothing after this could mean anything. */
#define bail(...)                     \
	do {                          \
		printf("Bail out! "); \
		printf(__VA_ARGS__);  \
		printf("\n");         \
		exit(1);              \
	} while (0)

__attribute__((unused)) static uint64_t tap_seed(void)
{
	const char *s = getenv("CRYO_SEED");
	struct timespec t;
	uint64_t seed;

	clock_gettime(CLOCK_REALTIME, &t);
	seed = s ? strtoull(s, NULL, 0)
		 : (uint64_t)t.tv_nsec * 2654435761u ^ (uint64_t)t.tv_sec;
	printf("# seed: CRYO_SEED=%" PRIu64 "\n", seed);
	return seed;
}

/* splitmix64: a small generator for seeded tests */
__attribute__((unused)) static uint64_t tap_rand(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

__attribute__((unused)) static int tap_done(void)
{
	printf("1..%d\n", tap_nr);
	return tap_failed ? 1 : 0;
}

#endif
