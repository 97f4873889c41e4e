/*
 * fields: rows and event data as tables. One `struct field` per member says
 * its JSON name, its kind and where it lies in the C struct; encoding and
 * decoding follow the table. Integers and booleans are always written;
 * empty strings, zero digests and empty parts are left out and read back as
 * zero. Unknown members are ignored when reading: rows of a newer build
 * stay readable.
 */
#ifndef CORE_FIELDS_H
#define CORE_FIELDS_H

#include "core/json.h"

enum field_kind {
	FIELD_STR, /* char[len], NUL-terminated */
	FIELD_U32, /* uint32_t */
	FIELD_I32, /* int */
	FIELD_U64, /* uint64_t, at most 2^53 - 1 */
	FIELD_NS, /* int64_t, a decimal string in JSON */
	FIELD_BOOL, /* bool */
	FIELD_HEX, /* uint8_t[len] */
	FIELD_ENUM, /* an enum; aux: const char *const words[], len of them */
	FIELD_PART, /* a struct; aux: struct fields */
	FIELD_JSON, /* json_t *, owned by the struct */
};

struct field {
	const char *name;
	enum field_kind kind;
	size_t off, len;
	const void *aux;
};

struct fields {
	const struct field *f;
	size_t nr;
	size_t size; /* of the C struct */
};

/* Rows of a table; `s` is the struct's type, `m` the member. */
#define FIELD(s, k, m, n)                                            \
	{                                                            \
		.name = n, .kind = FIELD_##k, .off = offsetof(s, m), \
		.len = sizeof(((s *)0)->m)                           \
	}
#define FIELD_OF_ENUM(s, m, n, words)                                 \
	{                                                             \
		.name = n, .kind = FIELD_ENUM, .off = offsetof(s, m), \
		.len = ARRAY_LEN(words), .aux = words                 \
	}
#define FIELD_OF_PART(s, m, n, table)                                 \
	{                                                             \
		.name = n, .kind = FIELD_PART, .off = offsetof(s, m), \
		.len = sizeof(((s *)0)->m), .aux = &(table)           \
	}
#define FIELDS(s, table)                                              \
	{                                                             \
		.f = table, .nr = ARRAY_LEN(table), .size = sizeof(s) \
	}

/* Puts the members into the object `o`. */
void fields_encode(json_t *o, const struct fields *t, const void *s);

/*
 * Reads the members that are there into *ret, which the caller zeroed;
 * -EINVAL names the member that has a wrong type or does not fit.
 */
int fields_decode(const json_t *o, const struct fields *t, void *ret,
		  struct err *e);

/* A whole row: canonical JSON bytes appended to b; and back (zeroes *ret). */
void fields_row_encode(struct buf *b, const struct fields *t, const void *s);
int fields_row_decode(const void *p, size_t len, const struct fields *t,
		      void *ret, struct err *e);

/* Drops what FIELD_JSON members own, and zeroes the struct. */
void fields_done(const struct fields *t, void *s);

/* Deep copy: JSON members get a reference of their own. */
void fields_copy(const struct fields *t, void *dst, const void *src);

/* Index of `word` in words[nr], or -1. */
int fields_word(const char *const *words, size_t nr, const char *word);

#endif
