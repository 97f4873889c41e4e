/*
 * Tests of core/err: what a person reads, what a program reads, and that
 * neither is ever cut into something that is no text.
 */
#include "core/err.h"

#include <jansson.h>
#include <stdio.h>

#include "tests/tap.h"

static void test_set(void)
{
	struct err e = { 0 };

	is_int(err_set(&e, -EINVAL, ERR_INVALID, "time \"%s\" is none", "x"),
	       -EINVAL, "returns what it was given");
	is_int(e.code, ERR_INVALID, "keeps the code");
	is_str(e.msg, "time \"x\" is none", "formats the sentence");
	ok(e.line > 0 && strstr(e.file, "core_err.c"), "knows the place");
}

static void test_wrap(void)
{
	struct err e = { 0 };
	int line;

	err_set(&e, -ENOENT, ERR_NOT_FOUND, "no such file");
	line = e.line;
	is_int(err_wrap(&e, -ENOENT, "open pack %d", 7), -ENOENT, "returns it");
	is_str(e.msg, "open pack 7: no such file", "the context comes first");
	is_int(e.line, line, "the place stays that of the cause");
	is_int(e.code, ERR_NOT_FOUND, "so does the code");
	err_wrap(&e, -ENOENT, "restore s1");
	is_str(e.msg, "restore s1: open pack 7: no such file", "wrapped again");
}

static void test_sys(void)
{
	static const struct {
		int en;
		enum err_code code;
		const char *msg;
	} want[] = {
		{ ENOENT, ERR_NOT_FOUND, "x: No such file or directory" },
		{ EACCES, ERR_FORBIDDEN, "x: Permission denied" },
		{ EEXIST, ERR_CONFLICT, "x: File exists" },
		{ EADDRINUSE, ERR_CONFLICT, "x: Address already in use" },
		{ ENOSPC, ERR_NO_SPACE, "x: No space left on device" },
		{ EBUSY, ERR_BUSY, "x: Device or resource busy" },
		{ ETIMEDOUT, ERR_TIMEOUT, "x: Connection timed out" },
		{ EMFILE, ERR_LIMIT, "x: Too many open files" },
		{ EBADMSG, ERR_CORRUPT, "x: Bad message" },
		{ EIO, ERR_INTERNAL, "x: Input/output error" },
		{ 9999, ERR_INTERNAL, "x: error 9999" },
	};

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		struct err e = { 0 };
		int r = err_sys(&e, want[i].en, "%s", "x");

		ok(r == -want[i].en && e.code == want[i].code &&
			   !strcmp(e.msg, want[i].msg),
		   "errno %d is %s, \"%s\"", want[i].en, err_word(e.code), e.msg);
	}
}

static void test_null(void)
{
	is_int(err_set(NULL, -EINVAL, ERR_INVALID, "x"), -EINVAL,
	       "set without a struct");
	is_int(err_wrap(NULL, -EIO, "x"), -EIO, "wrap without one");
	is_int(err_sys(NULL, EIO, "x"), -EIO, "sys without one");
}

static void test_words(void)
{
	int bad = 0;

	is_str(err_word(ERR_NOT_FOUND), "not-found", "a word");
	is_int(err_http_status(ERR_NOT_FOUND), 404, "a status");
	is_int(err_http_status(ERR_NO_SPACE), 507, "another");
	for (enum err_code i = 0; i < ERR_NR; i++) {
		bad += err_http_status(i) < 400 || err_http_status(i) > 599;
		bad += strspn(err_word(i), "abcdefghijklmnopqrstuvwxyz-") !=
		       strlen(err_word(i));
		for (enum err_code j = 0; j < i; j++)
			bad += !strcmp(err_word(i), err_word(j));
	}
	is_int(bad, 0, "all words differ, all are words with an error status");
}

static bool is_text(const char *s)
{
	json_t *j = json_string(s); /* NULL unless it is UTF-8 */
	bool good = j != NULL;

	json_decref(j);
	return good;
}

/* Characters of 1 to 4 bytes, so that every cut is met. */
static void fill(char *text, size_t len, uint64_t *rng)
{
	static const char *const some[] = { "a", "\xc3\xa9", "\xe2\x82\xac",
					    "\xf0\x9f\x98\x80" };

	size_t at = 0;

	while (at + 5 < len) {
		const char *c = some[tap_rand(rng) % 4];

		memcpy(text + at, c, strlen(c) + 1);
		at += strlen(c);
	}
}

static void law_messages_are_text(uint64_t *rng)
{
	int broken = 0, unbounded = 0;

	for (int i = 0; i < 2000; i++) {
		char text[400], head[400];
		struct err e = { 0 };

		fill(text, 6 + tap_rand(rng) % 390, rng);
		fill(head, 6 + tap_rand(rng) % 390, rng);
		if (i % 2)
			err_set(&e, -EIO, ERR_INTERNAL, "%s", text);
		else
			err_sys(&e, EIO, "%s", text);
		broken += !is_text(e.msg);
		err_wrap(&e, -EIO, "%s", head);
		broken += !is_text(e.msg);
		unbounded += strnlen(e.msg, sizeof(e.msg)) == sizeof(e.msg);
	}
	is_int(broken, 0, "no message is cut inside a character");
	is_int(unbounded, 0, "every message is terminated");
}

static void test_full(void)
{
	struct err e = { 0 };
	char text[400];

	memset(text, 'a', sizeof(text));
	text[399] = '\0';
	err_set(&e, -EIO, ERR_INTERNAL, "%s", text);
	is_int(strlen(e.msg), 255, "plain text fills the message");
	err_wrap(&e, -EIO, "ctx");
	ok(!strncmp(e.msg, "ctx: aaa", 8) && strlen(e.msg) == 255,
	   "the context pushes the end out");
}

int main(void)
{
	uint64_t rng = tap_seed();

	test_set();
	test_wrap();
	test_sys();
	test_null();
	test_words();
	test_full();
	law_messages_are_text(&rng);
	return tap_done();
}
