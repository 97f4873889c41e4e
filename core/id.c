/*
 * id: random names.
 *
 * How it works: bytes of the kernel's generator are thrown away unless they
 * are below the largest multiple of the alphabet's size, so that every
 * character is equally likely.
 *
 * Invariants:
 *  1. What id_new makes, id_valid accepts.
 *  2. An id is safe as a file name, in a URL, a log line and a host name.
 */
#include "core/id.h"

#define ID_LETTERS 26u
#define ID_CHARS 36u

static const char id_alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";

static_assert(sizeof(id_alphabet) == ID_CHARS + 1, "letters and digits");

void id_new(struct id *ret_id)
{
	uint8_t pool[2 * ID_LEN];
	size_t at = sizeof(pool);

	for (size_t i = 0; i < ID_LEN;) {
		unsigned n = i ? ID_CHARS : ID_LETTERS;

		if (at == sizeof(pool)) {
			base_random(pool, sizeof(pool));
			at = 0;
		}
		if (pool[at] < 256 / n * n)
			ret_id->s[i++] = id_alphabet[pool[at] % n];
		at++;
	}
	ret_id->s[ID_LEN] = '\0';
	POST(id_valid(ret_id->s));
}

bool id_valid(const char *s)
{
	if (strnlen(s, ID_LEN + 1) != ID_LEN || s[0] < 'a' || s[0] > 'z')
		return false;
	for (size_t i = 1; i < ID_LEN; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') ||
		      (s[i] >= '0' && s[i] <= '9')))
			return false;
	return true;
}

int id_parse(struct id *ret_id, const char *s)
{
	if (!id_valid(s))
		return -EINVAL;
	memcpy(ret_id->s, s, ID_LEN + 1);
	return 0;
}
