/*
 * json: strict parsing, RFC 8785 printing, typed members.
 *
 * How it works: jansson parses; what it does not check is checked before
 * (depth, so that its recursion is bounded; raw NUL bytes) or by its flags
 * (duplicates, NUL, trailing bytes). The canonical writer is ours: RFC 8785
 * sorts members by UTF-16 code units and fixes the escapes, and jansson does
 * neither.
 *
 * Invariants:
 *  1. Equal trees have equal canonical bytes; parsing those bytes gives an
 *     equal tree.
 *  2. A tree that json_canonical refuses leaves the buffer as it was.
 *  3. No path is opened: jansson would seed its hash tables from a device
 *     file, so the seed is given to it before main().
 *
 * A crash leaves nothing behind: there is no state.
 */
#include "core/json.h"

#include <stdio.h>

#define JSON_INT_MAX 9007199254740991ll /* 2^53 - 1 */

__attribute__((constructor)) static void json_seed(void)
{
	size_t seed;

	base_random(&seed, sizeof(seed));
	json_object_seed(seed | 1); /* 0 would mean: open the device */
}

/* jansson's iterators take no const although they change nothing */
static json_t *json_unconst(const json_t *j)
{
	return (json_t *)(uintptr_t)j;
}

/* ---- parsing ----------------------------------------------------------- */

/* Where the nesting first passes the limit; NULL if nowhere. */
static const char *json_too_deep(const char *p, const char *end)
{
	unsigned depth = 0;
	bool quoted = false;

	for (; p < end; p++) {
		if (quoted) {
			if (*p == '\\')
				p++;
			else if (*p == '"')
				quoted = false;
		} else if (*p == '"') {
			quoted = true;
		} else if (*p == '[' || *p == '{') {
			if (++depth > JSON_DEPTH_MAX)
				return p;
		} else if ((*p == ']' || *p == '}') && depth) {
			depth--;
		}
	}
	return NULL;
}

static int json_refuse(const char *text, const char *at, const char *why,
		       struct err *e)
{
	const char *start = text;
	int line = 1;

	for (const char *p = text; p < at; p++) {
		if (*p == '\n') {
			line++;
			start = p + 1;
		}
	}
	return err_set(e, -EINVAL, ERR_INVALID, "JSON, line %d column %td: %s",
		       line, at - start + 1, why);
}

int json_parse(json_t **ret, const void *text, size_t len, struct err *e)
{
	const char *bad;
	json_error_t why;
	json_t *j;

	if (!len)
		return err_set(e, -EINVAL, ERR_INVALID, "JSON: empty text");
	/* to jansson a NUL is the end, whatever follows it */
	bad = memchr(text, '\0', len);
	if (bad)
		return json_refuse(text, bad, "a NUL byte", e);
	bad = json_too_deep(text, (const char *)text + len);
	if (bad)
		return json_refuse(text, bad, "nested too deep", e);
	j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
	if (!j)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "JSON, line %d column %d: %s", why.line,
			       why.column, why.text);
	*ret = j;
	return 0;
}

/* ---- canonical printing (RFC 8785) ------------------------------------- */

/* Section 3.2.2.2: only what must be escaped is, and in one way. */
static void json_write_string(struct buf *b, const char *s, size_t len)
{
	static const char short_form[32] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',
		['\f'] = 'f', ['\r'] = 'r',
	};

	buf_put_u8(b, '"');
	for (size_t i = 0; i < len; i++) {
		uint8_t c = (uint8_t)s[i];

		if (c == '"' || c == '\\')
			buf_put_u8(b, '\\');
		if (c >= 0x20)
			buf_put_u8(b, c);
		else if (short_form[c])
			buf_printf(b, "\\%c", short_form[c]);
		else
			buf_printf(b, "\\u%04x", c);
	}
	buf_put_u8(b, '"');
}

/*
 * Section 3.2.3: order by UTF-16 code units, read off UTF-8. That is the
 * order of bytes except that characters above U+FFFF (lead byte F0 and up)
 * are written with surrogates, which come before U+E000 (lead EE, EF).
 */
static int json_key_cmp(const void *a, const void *b)
{
	const uint8_t *x = *(const uint8_t *const *)a;
	const uint8_t *y = *(const uint8_t *const *)b;

	while (*x && *x == *y) {
		x++;
		y++;
	}
	if (*x >= 0xee && *y >= 0xee && (*x >= 0xf0) != (*y >= 0xf0))
		return *x >= 0xf0 ? -1 : 1;
	return *x - *y;
}

static int json_write(struct buf *b, const json_t *j, int depth);

static int json_write_object(struct buf *b, const json_t *j, int depth)
{
	size_t nr = json_object_size(j), i = 0;
	SCOPED_FREE const char **keys = base_alloc(nr * sizeof(*keys));
	const char *key;
	json_t *value;

	json_object_foreach(json_unconst(j), key, value)
		keys[i++] = key;
	POST(i == nr);
	qsort(keys, nr, sizeof(*keys), json_key_cmp);
	buf_put_u8(b, '{');
	for (i = 0; i < nr; i++) {
		int r;

		if (i)
			buf_put_u8(b, ',');
		json_write_string(b, keys[i], strlen(keys[i]));
		buf_put_u8(b, ':');
		r = json_write(b, json_object_get(j, keys[i]), depth);
		if (r < 0)
			return r;
	}
	buf_put_u8(b, '}');
	return 0;
}

static int json_write_array(struct buf *b, const json_t *j, int depth)
{
	buf_put_u8(b, '[');
	for (size_t i = 0; i < json_array_size(j); i++) {
		int r;

		if (i)
			buf_put_u8(b, ',');
		r = json_write(b, json_array_get(j, i), depth);
		if (r < 0)
			return r;
	}
	buf_put_u8(b, ']');
	return 0;
}

static int json_write_integer(struct buf *b, json_int_t v)
{
	if (v > JSON_INT_MAX || v < -JSON_INT_MAX)
		return -EINVAL;
	buf_printf(b, "%" JSON_INTEGER_FORMAT, v);
	return 0;
}

static int json_write(struct buf *b, const json_t *j, int depth)
{
	if (!j)
		return -EINVAL;
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		return depth ? json_write_object(b, j, depth - 1) : -EINVAL;
	case JSON_ARRAY:
		return depth ? json_write_array(b, j, depth - 1) : -EINVAL;
	case JSON_STRING:
		json_write_string(b, json_string_value(j), json_string_length(j));
		return 0;
	case JSON_INTEGER:
		return json_write_integer(b, json_integer_value(j));
	case JSON_TRUE:
		buf_put_str(b, "true");
		return 0;
	case JSON_FALSE:
		buf_put_str(b, "false");
		return 0;
	case JSON_NULL:
		buf_put_str(b, "null");
		return 0;
	case JSON_REAL:
	default:
		return -EINVAL;
	}
}

int json_canonical(struct buf *b, const json_t *j)
{
	size_t before = b->len;
	int r = json_write(b, j, JSON_DEPTH_MAX);

	if (r < 0)
		b->len = before;
	return r;
}

/* ---- members for readers ----------------------------------------------- */

static int json_missing(const char *key, struct err *e)
{
	return err_set(e, -ENOENT, ERR_INVALID, "member \"%s\" is missing", key);
}

static int json_wrong(const char *key, const char *want, struct err *e)
{
	return err_set(e, -EINVAL, ERR_INVALID, "member \"%s\" must be %s", key,
		       want);
}

int json_get_str(const json_t *o, const char *key, const char **ret,
		 struct err *e)
{
	const json_t *j = json_object_get(o, key);

	if (!j)
		return json_missing(key, e);
	if (!json_is_string(j) ||
	    strlen(json_string_value(j)) != json_string_length(j))
		return json_wrong(key, "a string", e);
	*ret = json_string_value(j);
	return 0;
}

int json_get_int(const json_t *o, const char *key, int64_t min, int64_t max,
		 int64_t *ret, struct err *e)
{
	const json_t *j = json_object_get(o, key);
	json_int_t v;

	if (!j)
		return json_missing(key, e);
	v = json_integer_value(j);
	if (!json_is_integer(j) || v < min || v > max)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "member \"%s\" must be an integer from %lld to "
			       "%lld",
			       key, (long long)min, (long long)max);
	*ret = v;
	return 0;
}

int json_get_bool(const json_t *o, const char *key, bool *ret, struct err *e)
{
	const json_t *j = json_object_get(o, key);

	if (!j)
		return json_missing(key, e);
	if (!json_is_boolean(j))
		return json_wrong(key, "true or false", e);
	*ret = json_is_true(j);
	return 0;
}

/* The one decimal form of each int64_t: no plus, no leading zero, no -0. */
static int json_parse_ns(const char *s, int64_t *ret)
{
	bool neg = *s == '-';
	const char *p = s + neg;
	int64_t v = 0;

	if (!*p || (*p == '0' && (p[1] || neg)))
		return -EINVAL;
	for (; *p; p++) {
		int digit = *p - '0';

		if (digit < 0 || digit > 9 || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, neg ? -digit : digit, &v))
			return -EINVAL;
	}
	*ret = v;
	return 0;
}

int json_get_ns(const json_t *o, const char *key, int64_t *ret, struct err *e)
{
	const char *s;
	int r = json_get_str(o, key, &s, e);

	if (r < 0)
		return r;
	if (json_parse_ns(s, ret) < 0)
		return json_wrong(key, "a decimal string of nanoseconds", e);
	return 0;
}

static int json_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int json_get_hex(const json_t *o, const char *key, void *ret, size_t len,
		 struct err *e)
{
	uint8_t *out = ret;
	const char *s;
	int r = json_get_str(o, key, &s, e);

	if (r < 0)
		return r;
	if (strlen(s) != 2 * len || strspn(s, "0123456789abcdef") != 2 * len)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "member \"%s\" must be %zu lower-case hex "
			       "digits",
			       key, 2 * len);
	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)(json_hex_digit(s[2 * i]) << 4 |
				   json_hex_digit(s[2 * i + 1]));
	return 0;
}

int json_only(const json_t *o, const char *const *keys, struct err *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(o))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "a JSON object is wanted here");
	json_object_foreach(json_unconst(o), key, value) {
		size_t i = 0;

		while (keys[i] && strcmp(keys[i], key) != 0)
			i++;
		if (!keys[i])
			return err_set(e, -EINVAL, ERR_INVALID,
				       "unknown member \"%s\"", key);
	}
	return 0;
}

/* ---- members for writers ----------------------------------------------- */

static void json_put(json_t *o, const char *key, json_t *value)
{
	if (!value || json_object_set_new(o, key, value))
		NEVER("a member can't be set: no memory or not an object");
}

/* Bytes of the UTF-8 character at s; 0 if there is none (RFC 3629). */
static size_t json_utf8_len(const uint8_t *s)
{
	size_t len = *s < 0x80 ? 1 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;

	if (*s < 0x80)
		return 1;
	if (*s < 0xc2 || *s > 0xf4)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) ||
	    (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

/* A string whose bytes are no UTF-8: each of those becomes U+FFFD. */
static json_t *json_repaired(const char *value)
{
	SCOPED(buf_done) struct buf b = { 0 };
	const uint8_t *s = (const uint8_t *)value;

	while (*s) {
		size_t len = json_utf8_len(s);

		if (len)
			buf_put(&b, s, len);
		else
			buf_put_str(&b, "\xef\xbf\xbd");
		s += len ? len : 1;
	}
	return json_string(buf_cstr(&b));
}

void json_put_str(json_t *o, const char *key, const char *value)
{
	json_t *j;

	if (!value)
		return;
	j = json_string(value);
	json_put(o, key, j ? j : json_repaired(value));
}

void json_put_int(json_t *o, const char *key, int64_t value)
{
	json_put(o, key, json_integer(value));
}

void json_put_bool(json_t *o, const char *key, bool value)
{
	json_put(o, key, json_boolean(value));
}

void json_put_ns(json_t *o, const char *key, int64_t ns)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)ns);
	json_put(o, key, json_string(text));
}

void json_put_hex(json_t *o, const char *key, const void *p, size_t len)
{
	SCOPED(buf_done) struct buf b = { 0 };
	const uint8_t *bytes = p;

	for (size_t i = 0; i < len; i++)
		buf_printf(&b, "%02x", bytes[i]);
	json_put(o, key, json_string(buf_cstr(&b)));
}
