/*
 * json: the one place that parses and prints JSON, on top of jansson. Trees
 * are jansson's json_t with its reference counts. The canonical form is
 * RFC 8785 restricted to what cryo writes: no floats, integers within
 * +-(2^53-1); larger ones and all times in ns are decimal strings.
 */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include "core/buf.h"
#include "core/err.h"

#include <jansson.h>

#define JSON_DEPTH_MAX 32

static inline void json_decref_p(json_t **j)
{
	json_decref(*j);
}

#define SCOPED_JSON SCOPED(json_decref_p)

/*
 * Parses one value of at most `len` bytes; refuses duplicate keys, bytes
 * after the value, NUL in strings and depth over JSON_DEPTH_MAX. The error
 * names line and column. The caller owns *ret.
 */
int json_parse(json_t **ret, const void *text, size_t len, struct err *e);

/* RFC 8785 bytes appended to `b`; -EINVAL for a float or too large integer */
int json_canonical(struct buf *b, const json_t *j);

/*
 * Typed access to members of an object, for decoders. A missing member is
 * -ENOENT, a wrong type or range -EINVAL; `e` names the member.
 */
int json_get_str(const json_t *o, const char *key, const char **ret,
		 struct err *e);
int json_get_int(const json_t *o, const char *key, int64_t min, int64_t max,
		 int64_t *ret, struct err *e);
int json_get_bool(const json_t *o, const char *key, bool *ret, struct err *e);
int json_get_ns(const json_t *o, const char *key, int64_t *ret, struct err *e);

/*
 * Members for writers; a NULL string is left out. A string that is no UTF-8
 * gets U+FFFD for each byte that is wrong: who needs the exact bytes puts hex.
 */
void json_put_str(json_t *o, const char *key, const char *value);
void json_put_int(json_t *o, const char *key, int64_t value);
void json_put_bool(json_t *o, const char *key, bool value);
void json_put_ns(json_t *o, const char *key, int64_t ns); /* decimal string */
void json_put_hex(json_t *o, const char *key, const void *p, size_t len);
int json_get_hex(const json_t *o, const char *key, void *ret, size_t len,
		 struct err *e);

/* Refuses members not in the NULL-terminated list; names the first. */
int json_only(const json_t *o, const char *const *keys, struct err *e);

#endif
