/*
 * Tests of core/json: the samples of RFC 8785, what strict parsing refuses,
 * and round trips of random trees against a second order of members.
 */
#include "core/json.h"

#include <stdio.h>

#include "tests/tap.h"

/* Parses, prints canonically; "error: ..." if either refuses. Owned. */
static char *canonical_of(const char *text, size_t len)
{
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED_JSON json_t *j = NULL;
	struct err e = { 0 };

	if (json_parse(&j, text, len, &e))
		return base_printf("error: %s", e.msg);
	if (json_canonical(&b, j))
		return base_strdup("error: not canonical");
	return base_strdup(buf_cstr(&b));
}

static void test_canonical(void)
{
	static const struct {
		const char *what, *in, *out;
	} want[] = {
		{ "RFC 8785 3.2.2, without its floats",
		  "{ \"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022"
		  "\\u005c\\\\\\\"\\/\", \"literals\": [null, true, false] }",
		  "{\"literals\":[null,true,false],\"string\":\"\xe2\x82\xac$"
		  "\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}" },
		{ "RFC 8785 3.2.3, order of UTF-16 code units",
		  "{\"\\u20ac\": \"Euro Sign\", \"\\r\": \"Carriage Return\","
		  "\"\\ufb33\": \"Hebrew Letter Dalet With Dagesh\","
		  "\"1\": \"One\","
		  "\"\\ud83d\\ude00\": \"Emoji: Grinning Face\","
		  "\"\\u0080\": \"Control\","
		  "\"\\u00f6\": \"Latin Small Letter O With Diaeresis\"}",
		  "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":"
		  "\"Control\",\"\xc3\xb6\":\"Latin Small Letter O With "
		  "Diaeresis\",\"\xe2\x82\xac\":\"Euro Sign\","
		  "\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\","
		  "\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}" },
		{ "the short escapes", "\"\\b\\t\\n\\f\\r\\\"\\\\\"",
		  "\"\\b\\t\\n\\f\\r\\\"\\\\\"" },
		{ "the long ones in lower case",
		  "\"\\u001F\\u0001\\u000B\\u007f\"",
		  "\"\\u001f\\u0001\\u000b\x7f\"" },
		{ "no escape for a solidus", "\"\\/\"", "\"/\"" },
		{ "a prefix comes first", "{\"ab\":1,\"a\":2,\"\":3}",
		  "{\"\":3,\"a\":2,\"ab\":1}" },
		{ "the last integers", "[9007199254740991,-9007199254740991]",
		  "[9007199254740991,-9007199254740991]" },
		{ "minus zero is zero", "[-0]", "[0]" },
		{ "no space", " { \"a\" : [ 1 , 2 ] , \"b\" : { } } ",
		  "{\"a\":[1,2],\"b\":{}}" },
		{ "a bare value", "true", "true" },
		{ "too large an integer", "[9007199254740992]",
		  "error: not canonical" },
		{ "too small an integer", "[-9007199254740992]",
		  "error: not canonical" },
		{ "a float", "{\"a\":1.0}", "error: not canonical" },
	};

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		SCOPED_FREE char *got =
			canonical_of(want[i].in, strlen(want[i].in));

		is_str(got, want[i].out, "%s", want[i].what);
	}
}

static void test_refused_leaves_buffer(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED_JSON json_t *j = json_pack("{s:i, s:f}", "a", 1, "b", 0.5);

	buf_put_str(&b, "before");
	is_int(json_canonical(&b, j), -EINVAL, "a float inside is refused");
	is_str(buf_cstr(&b), "before", "and nothing of the rest is left");
	is_int(json_canonical(&b, NULL), -EINVAL, "so is no tree");
}

/* n times open, n times close */
static char *nested(size_t n)
{
	char *text = base_alloc(2 * n + 1);

	memset(text, '[', n);
	memset(text + n, ']', n);
	return text;
}

static void test_depth(void)
{
	SCOPED_FREE char *good = nested(JSON_DEPTH_MAX);
	SCOPED_FREE char *deep = nested(JSON_DEPTH_MAX + 1);
	SCOPED_FREE char *huge = nested(100000);
	SCOPED_FREE char *a = canonical_of(good, strlen(good));
	SCOPED_FREE char *b = canonical_of(deep, strlen(deep));
	SCOPED_FREE char *c = canonical_of(huge, strlen(huge));
	static const char quoted[] =
		"\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[\"";
	static const char wide[] =
		"[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],"
		"[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]";
	SCOPED_FREE char *d = canonical_of(quoted, strlen(quoted));
	SCOPED_FREE char *e = canonical_of(wide, strlen(wide));

	is_str(a, good, "%d levels are fine", JSON_DEPTH_MAX);
	is_str(b, "error: JSON, line 1 column 33: nested too deep",
	       "one more is refused, with its place");
	is_str(c, b, "any number more costs no stack");
	is_str(d, quoted, "brackets in strings do not count");
	is_str(e, wide, "nor do those that are closed");
}

static void test_parse_refused(void)
{
	static const struct {
		const char *what, *text;
		size_t len; /* 0: strlen */
	} bad[] = {
		{ "a duplicate key", "{\"a\":1,\"a\":2}", 0 },
		{ "a duplicate key by escape", "{\"a\":1,\"\\u0061\":2}", 0 },
		{ "bytes after the value", "{} {}", 0 },
		{ "a letter after the value", "1x", 0 },
		{ "a NUL after the value", "1\0", 2 },
		{ "a NUL by escape", "\"a\\u0000b\"", 0 },
		{ "a NUL in a key", "{\"a\\u0000b\":1}", 0 },
		{ "a raw NUL in a string", "\"a\0b\"", 5 },
		{ "a raw newline in a string", "\"a\nb\"", 0 },
		{ "nothing but space", " ", 0 },
		{ "an open object", "{\"a\":1", 0 },
		{ "an open string", "\"abc", 0 },
		{ "a trailing comma", "[1,]", 0 },
		{ "a comment", "/* x */ 1", 0 },
		{ "single quotes", "{'a':1}", 0 },
		{ "a leading zero", "[01]", 0 },
		{ "a plus sign", "[+1]", 0 },
		{ "hex", "[0x1]", 0 },
		{ "NaN", "[NaN]", 0 },
		{ "an integer beyond 64 bits", "[9223372036854775808]", 0 },
		{ "a lone surrogate", "\"\\ud83d\"", 0 },
		{ "surrogates in the wrong order", "\"\\ude00\\ud83d\"", 0 },
		{ "bytes that are no UTF-8", "\"\xff\"", 0 },
		{ "overlong UTF-8", "\"\xc0\xaf\"", 0 },
		{ "a surrogate in UTF-8", "\"\xed\xa0\x80\"", 0 },
		{ "a byte order mark", "\xef\xbb\xbf{}", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		json_t *j = NULL;
		struct err e = { 0 };
		size_t len = bad[i].len ? bad[i].len : strlen(bad[i].text);
		int r = json_parse(&j, bad[i].text, len, &e);

		ok(r == -EINVAL && !j && e.code == ERR_INVALID &&
			   !strncmp(e.msg, "JSON, line ", 11),
		   "refuses %s: %s", bad[i].what, e.msg);
	}
}

static void test_parse_place(void)
{
	static const char text[] = "{\n \"a\": 1,\n \"b\": }";
	struct err e = { 0 };
	json_t *j;

	is_int(json_parse(&j, text, strlen(text), &e), -EINVAL, "a bad text");
	ok(strstr(e.msg, "line 3 column 7"), "is placed: %s", e.msg);
	is_int(json_parse(&j, "", 0, &e), -EINVAL, "so is the empty one");
	is_str(e.msg, "JSON: empty text", "in words");
	is_int(json_parse(&j, "[1]]", 3, &e), 0, "only len bytes are read");
	json_decref(j);
}

static void test_get(void)
{
	SCOPED_JSON json_t *o = json_pack(
		"{s:s, s:i, s:b, s:n, s:s, s:s}", "str", "x", "int", 7, "yes",
		1, "null", "hex", "00ff10", "ns", "-9223372036854775808");
	struct err e = { 0 };
	const char *s = NULL;
	uint8_t hex[3];
	int64_t v = 0;
	bool b = false;

	ok(!json_get_str(o, "str", &s, &e) && !strcmp(s, "x"), "a string");
	ok(!json_get_int(o, "int", 7, 7, &v, &e) && v == 7, "an integer");
	ok(!json_get_bool(o, "yes", &b, &e) && b, "a truth");
	ok(!json_get_ns(o, "ns", &v, &e) && v == INT64_MIN, "the least time");
	ok(!json_get_hex(o, "hex", hex, 3, &e) && !memcmp(hex, "\x00\xff\x10", 3),
	   "hex digits");
	is_int(json_get_str(o, "none", &s, &e), -ENOENT, "missing is ENOENT");
	is_str(e.msg, "member \"none\" is missing", "and named");
	is_int(json_get_str(o, "int", &s, &e), -EINVAL, "not a string");
	is_str(e.msg, "member \"int\" must be a string", "is said");
	is_int(json_get_str(o, "null", &s, &e), -EINVAL, "null is no string");
	is_int(json_get_int(o, "int", 8, 9, &v, &e), -EINVAL, "below range");
	is_str(e.msg, "member \"int\" must be an integer from 8 to 9",
	       "the range is told");
	is_int(json_get_int(o, "int", 0, 6, &v, &e), -EINVAL, "above range");
	is_int(json_get_int(o, "str", 0, 6, &v, &e), -EINVAL, "no integer");
	is_int(json_get_bool(o, "int", &b, &e), -EINVAL, "7 is no truth");
	is_int(json_get_hex(o, "hex", hex, 2, &e), -EINVAL, "too many digits");
	is_int(json_get_hex(o, "str", hex, 1, &e), -EINVAL, "no digits");
	is_int(json_get_bool(NULL, "x", &b, &e), -ENOENT, "nothing has none");
}

static void test_ns(void)
{
	static const struct {
		const char *s;
		int r;
		int64_t v;
	} want[] = {
		{ "0", 0, 0 },
		{ "9223372036854775807", 0, INT64_MAX },
		{ "-1", 0, -1 },
		{ "9223372036854775808", -EINVAL, 0 },
		{ "-9223372036854775809", -EINVAL, 0 },
		{ "-0", -EINVAL, 0 },
		{ "00", -EINVAL, 0 },
		{ "01", -EINVAL, 0 },
		{ "-01", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
		{ "-", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },
		{ "1 ", -EINVAL, 0 },
		{ "1e3", -EINVAL, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		SCOPED_JSON json_t *o = json_pack("{s:s}", "t", want[i].s);
		int64_t v = 0;

		ok(json_get_ns(o, "t", &v, NULL) == want[i].r && v == want[i].v,
		   "\"%s\" as a time", want[i].s);
	}
}

static void test_put(void)
{
	static const uint8_t bytes[] = { 0x00, 0xff, 0x10 };
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED_JSON json_t *o = json_object();

	json_put_str(o, "s", "x");
	json_put_str(o, "left out", NULL);
	json_put_int(o, "i", -5);
	json_put_bool(o, "b", true);
	json_put_ns(o, "t", INT64_MIN);
	json_put_hex(o, "h", bytes, sizeof(bytes));
	json_put_str(o, "bad", "a\xff\xc3(\xed\xa0\x80");
	is_int(json_canonical(&b, o), 0, "what was put can be printed");
	is_str(buf_cstr(&b),
	       "{\"b\":true,\"bad\":\"a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd"
	       "\xef\xbf\xbd\xef\xbf\xbd\",\"h\":\"00ff10\",\"i\":-5,"
	       "\"s\":\"x\",\"t\":\"-9223372036854775808\"}",
	       "as it was put; bytes that are no text are replaced");
}

static void test_only(void)
{
	static const char *const keys[] = { "a", "b", NULL };
	SCOPED_JSON json_t *good = json_pack("{s:i, s:i}", "b", 1, "a", 2);
	SCOPED_JSON json_t *bad = json_pack("{s:i, s:i}", "a", 1, "c", 2);
	SCOPED_JSON json_t *list = json_array();
	struct err e = { 0 };

	is_int(json_only(good, keys, &e), 0, "known members pass");
	is_int(json_only(bad, keys, &e), -EINVAL, "an unknown one does not");
	is_str(e.msg, "unknown member \"c\"", "and is named");
	is_int(json_only(list, keys, &e), -EINVAL, "nor what is no object");
}

/* ---- laws --------------------------------------------------------------- */

/* Characters around each place where byte and UTF-16 order could part. */
static const char *const chars[] = {
	"a",
	"\"",
	"\\",
	"\n",
	"\x01",
	"\x7f",
	"\xc2\x80",
	"\xdf\xbf",
	"\xe0\xa0\x80",
	"\xed\x9f\xbf",
	"\xee\x80\x80",
	"\xef\xbf\xbf",
	"\xf0\x90\x80\x80",
	"\xf4\x8f\xbf\xbf",
};

static void random_text(char *text, uint64_t *rng)
{
	size_t at = 0;

	for (uint64_t n = tap_rand(rng) % 4; n > 0; n--) {
		const char *c = chars[tap_rand(rng) % ARRAY_LEN(chars)];

		memcpy(text + at, c, strlen(c));
		at += strlen(c);
	}
	text[at] = '\0';
}

static json_t *random_tree(uint64_t *rng, int depth)
{
	uint64_t n = tap_rand(rng) % 5;
	char text[32];
	json_t *j;

	switch (tap_rand(rng) % (depth ? 6 : 4)) {
	case 0:
		random_text(text, rng);
		return json_string(text);
	case 1:
		return json_integer((json_int_t)(tap_rand(rng) >> 11) *
				    (tap_rand(rng) % 2 ? 1 : -1));
	case 2:
		return json_boolean(tap_rand(rng) % 2);
	case 3:
		return json_null();
	case 4:
		j = json_array();
		while (n--)
			json_array_append_new(j, random_tree(rng, depth - 1));
		return j;
	default:
		j = json_object();
		while (n--) {
			random_text(text, rng);
			json_object_set_new(j, text, random_tree(rng, depth - 1));
		}
		return j;
	}
}

/* The same tree with the members of its top put in the other order. */
static json_t *reversed(json_t *j)
{
	json_t *out = json_object(), *value;
	const char *keys[8], *key;
	size_t n = 0;

	json_object_foreach(j, key, value)
		keys[n++] = key;
	while (n--)
		json_object_set(out, keys[n], json_object_get(j, keys[n]));
	return out;
}

static void law_round_trip(uint64_t *rng)
{
	int lost = 0, changed = 0, ordered = 0;

	for (int i = 0; i < 5000; i++) {
		SCOPED_JSON json_t *j = random_tree(rng, 4), *back = NULL;
		SCOPED(buf_done) struct buf a = { 0 }, b = { 0 }, c = { 0 };

		if (json_canonical(&a, j) || json_parse(&back, a.p, a.len, NULL)) {
			lost++;
			continue;
		}
		lost += !json_equal(j, back);
		json_canonical(&b, back);
		changed += strcmp(buf_cstr(&a), buf_cstr(&b)) != 0;
		if (json_is_object(j)) {
			SCOPED_JSON json_t *r = reversed(j);

			json_canonical(&c, r);
			ordered += strcmp(buf_cstr(&a), buf_cstr(&c)) != 0;
		}
	}
	is_int(lost, 0, "a printed tree is read back");
	is_int(changed, 0, "and printed to the same bytes");
	is_int(ordered, 0, "the order of putting makes no difference");
}

/* UTF-16 code units of a text of ours; returns their number. */
static size_t utf16(const char *s, uint16_t *out)
{
	size_t n = 0;

	while (*s) {
		const uint8_t *u = (const uint8_t *)s;
		size_t len = *u < 0x80 ? 1 : *u < 0xe0 ? 2 : *u < 0xf0 ? 3 : 4;
		uint32_t c = len == 1 ? *u : *u & (0x7fu >> len);

		for (size_t i = 1; i < len; i++)
			c = c << 6 | (u[i] & 0x3f);
		if (c >= 0x10000) {
			out[n++] = (uint16_t)(0xd800 + ((c - 0x10000) >> 10));
			c = 0xdc00 + ((c - 0x10000) & 0x3ff);
		}
		out[n++] = (uint16_t)c;
		s += len;
	}
	return n;
}

/* Order taken from real code units, not from UTF-8 as the writer does. */
static bool comes_first(const char *a, const char *b)
{
	uint16_t x[32], y[32];
	size_t nx = utf16(a, x), ny = utf16(b, y);

	for (size_t i = 0; i < nx && i < ny; i++)
		if (x[i] != y[i])
			return x[i] < y[i];
	return nx < ny;
}

static void law_order(uint64_t *rng)
{
	int wrong = 0, compared = 0;

	for (int i = 0; i < 20000; i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		SCOPED_JSON json_t *o = json_object();
		char one[32], two[32], *p, *q;

		random_text(one, rng);
		random_text(two, rng);
		if (!strcmp(one, two))
			continue;
		json_put_int(o, one, 1);
		json_put_int(o, two, 2);
		json_canonical(&b, o);
		p = strstr(buf_cstr(&b), ":1");
		q = strstr(buf_cstr(&b), ":2");
		wrong += (p < q) != comes_first(one, two);
		compared++;
	}
	is_int(wrong, 0, "members are in the order of UTF-16 (%d pairs)",
	       compared);
}

/* Damage anywhere is refused or gives another tree that prints; no crash. */
static void law_damage(uint64_t *rng)
{
	int wrong = 0;

	for (int i = 0; i < 20000; i++) {
		SCOPED_JSON json_t *j = random_tree(rng, 3), *back = NULL;
		SCOPED(buf_done) struct buf a = { 0 }, b = { 0 };

		json_canonical(&a, j);
		for (uint64_t n = 1 + tap_rand(rng) % 3; n > 0; n--)
			a.p[tap_rand(rng) % a.len] = (uint8_t)tap_rand(rng);
		if (json_parse(&back, a.p, a.len, NULL))
			wrong += back != NULL;
		else
			json_canonical(&b, back);
	}
	is_int(wrong, 0, "a refused text gives no tree");
}

int main(void)
{
	uint64_t rng = tap_seed();

	test_canonical();
	test_refused_leaves_buffer();
	test_depth();
	test_parse_refused();
	test_parse_place();
	test_get();
	test_ns();
	test_put();
	test_only();
	law_round_trip(&rng);
	law_order(&rng);
	law_damage(&rng);
	return tap_done();
}
