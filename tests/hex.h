/*
 * hex: test vectors as text. Spaces and newlines between digits are skipped.
 */
#ifndef TESTS_HEX_H
#define TESTS_HEX_H

#include "tests/tap.h"

/* Bytes written to `out`, which has room for `room`. */
__attribute__((unused)) static size_t hex_read(void *out, size_t room,
					       const char *text)
{
	uint8_t *p = out;
	size_t n = 0;

	while (*text) {
		unsigned int v = 0;

		if (*text == ' ' || *text == '\n') {
			text++;
			continue;
		}
		if (sscanf(text, "%2x", &v) != 1 || n == room)
			bail("bad hex in a test: %.16s", text);
		p[n++] = (uint8_t)v;
		text += 2;
	}
	return n;
}

__attribute__((unused)) static bool hex_same(const void *p, const char *text)
{
	uint8_t want[8192];
	size_t n = hex_read(want, sizeof(want), text);

	return !memcmp(p, want, n);
}

#endif
