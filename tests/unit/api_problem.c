/*
 * api_problem: documents as RFC 9457 wants them, and errors back out of
 * them, also out of what is no document.
 */
#include "api/problem.h"

#include "core/json.h"
#include "tests/tap.h"

static void writing(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct err e = { 0 };

	err_set(&e, -ENOENT, ERR_NOT_FOUND, "no session \"%s\"", "x");
	problem_write(&b, &e, 0, "req-1");
	is_str(buf_cstr(&b),
	       "{\"detail\":\"no session \\\"x\\\"\",\"request\":\"req-1\","
	       "\"status\":404,\"title\":\"Not found\","
	       "\"type\":\"urn:cryo:problem:not-found\"}\n",
	       "a document");
	buf_reset(&b);
	problem_write(&b, &e, 415, NULL);
	ok(strstr(buf_cstr(&b), "\"status\":415") &&
		   !strstr(buf_cstr(&b), "request"),
	   "a status of its own, no request id");
}

/* Each code comes back as itself. */
static void round_trip(void)
{
	for (int i = 0; i < ERR_NR; i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		struct err e = { 0 }, back = { 0 };
		unsigned status = (unsigned)err_http_status((enum err_code)i);
		int r;

		err_set(&e, -EIO, (enum err_code)i, "why %d", i);
		problem_write(&b, &e, 0, "r");
		r = problem_read(b.p, b.len, status, &back);
		ok(r < 0, "%s is an error", err_word((enum err_code)i));
		is_int(back.code, i, "of the same code");
		is_str(back.msg, e.msg, "with the same text");
	}
}

static void not_ours(void)
{
	static const char *const bodies[] = {
		"",
		"<html>502</html>",
		"[]",
		"{\"type\":5,\"detail\":[]}",
		"{\"type\":\"about:blank\"}",
	};

	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		struct err e = { 0 };
		int r = problem_read(bodies[i], strlen(bodies[i]), 503, &e);

		is_int(r, -EBUSY, "\"%s\" with 503 is busy", bodies[i]);
		is_int(e.code, ERR_BUSY, "by its status");
		ok(strstr(e.msg, "503") != NULL, "and says so: %s", e.msg);
	}
	{
		struct err e = { 0 };

		problem_read("{}", 2, 418, &e);
		is_int(e.code, ERR_INTERNAL, "an unknown status is internal");
	}
}

int main(void)
{
	writing();
	round_trip();
	not_ours();
	return tap_done();
}
