/*
 * problem: RFC 9457 documents out of struct err, and back.
 *
 * Invariants: the stable part is `type`, made of err_word(); nothing in a
 * document comes from a guest; a document that is not ours still yields an
 * error with a text.
 */
#include "api/problem.h"

#include "core/json.h"

#include <stdio.h>

static const char *const problem_titles[] = {
	[ERR_INTERNAL] = "Internal error",
	[ERR_INVALID] = "Invalid request",
	[ERR_UNAUTHORIZED] = "Not authenticated",
	[ERR_FORBIDDEN] = "Not allowed",
	[ERR_NOT_FOUND] = "Not found",
	[ERR_METHOD] = "Method not allowed",
	[ERR_CONFLICT] = "Conflict with the present state",
	[ERR_GONE] = "Gone",
	[ERR_TOO_LARGE] = "Too large",
	[ERR_MISMATCH] = "Does not match",
	[ERR_LIMIT] = "Limit reached",
	[ERR_NO_SPACE] = "No space left",
	[ERR_BUSY] = "Busy",
	[ERR_TIMEOUT] = "Timed out",
	[ERR_CORRUPT] = "Corrupt data",
};

static_assert(ARRAY_LEN(problem_titles) == ERR_NR, "a title for each code");

void problem_write(struct buf *b, const struct err *e, unsigned status,
		   const char *request)
{
	SCOPED_JSON json_t *o = json_object();
	SCOPED(buf_done) struct buf type = { 0 };

	PRE(e->code < ERR_NR);
	buf_printf(&type, PROBLEM_URN "%s", err_word(e->code));
	json_put_str(o, "type", buf_cstr(&type));
	json_put_str(o, "title", problem_titles[e->code]);
	json_put_int(o, "status",
		     status ? (int)status : err_http_status(e->code));
	json_put_str(o, "detail", e->msg);
	json_put_str(o, "request", request);
	if (json_canonical(b, o) < 0)
		NEVER("a problem document has no floats");
	buf_put_u8(b, '\n');
}

static const struct {
	enum err_code code;
	int errnum;
} problem_errnos[] = {
	{ ERR_INTERNAL, EIO },	      { ERR_INVALID, EINVAL },
	{ ERR_UNAUTHORIZED, EACCES }, { ERR_FORBIDDEN, EPERM },
	{ ERR_NOT_FOUND, ENOENT },    { ERR_METHOD, EOPNOTSUPP },
	{ ERR_CONFLICT, EEXIST },     { ERR_GONE, ESTALE },
	{ ERR_TOO_LARGE, EFBIG },     { ERR_MISMATCH, EBADMSG },
	{ ERR_LIMIT, EDQUOT },	      { ERR_NO_SPACE, ENOSPC },
	{ ERR_BUSY, EBUSY },	      { ERR_TIMEOUT, ETIMEDOUT },
	{ ERR_CORRUPT, EUCLEAN },
};

static_assert(ARRAY_LEN(problem_errnos) == ERR_NR, "an errno for each code");

static int problem_errno(enum err_code code)
{
	for (size_t i = 0; i < ARRAY_LEN(problem_errnos); i++)
		if (problem_errnos[i].code == code)
			return -problem_errnos[i].errnum;
	NEVER("every code is in the table");
}

static enum err_code problem_code(const char *type, unsigned status)
{
	size_t skip = strlen(PROBLEM_URN);

	for (int i = 0; type && i < ERR_NR; i++)
		if (!strncmp(type, PROBLEM_URN, skip) &&
		    !strcmp(type + skip, err_word((enum err_code)i)))
			return (enum err_code)i;
	for (int i = 1; i < ERR_NR; i++) /* 0 is internal: the fallback */
		if (err_http_status((enum err_code)i) == (int)status)
			return (enum err_code)i;
	return ERR_INTERNAL;
}

int problem_read(const void *p, size_t len, unsigned status, struct err *e)
{
	SCOPED_JSON json_t *o = NULL;
	const char *type = NULL, *detail = NULL;
	struct err ignore;
	enum err_code code;

	if (json_parse(&o, p, len, &ignore) == 0 && json_is_object(o)) {
		json_get_str(o, "type", &type, &ignore);
		json_get_str(o, "detail", &detail, &ignore);
	}
	code = problem_code(type, status);
	if (detail)
		return err_set(e, problem_errno(code), code, "%s", detail);
	return err_set(e, problem_errno(code), code,
		       "the server answered with status %u and no reason",
		       status);
}
