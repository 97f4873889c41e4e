/*
 * err: an error that a person will read. Fixed size, on the caller's stack,
 * never allocates. Functions that meet the outside world take one last;
 * they return -errno and have filled it in. What it says in the end: what
 * failed, on which object, why, and what to do about it.
 */
#ifndef CORE_ERR_H
#define CORE_ERR_H

#include "core/base.h"

/*
 * A stable word that programs may switch on; it is the last part of a
 * problem's `type` in the API, so names are never reused.
 */
#define ERR_CODES(X)                         \
	X(INTERNAL, "internal", 500)         \
	X(INVALID, "invalid", 400)           \
	X(UNAUTHORIZED, "unauthorized", 401) \
	X(FORBIDDEN, "forbidden", 403)       \
	X(NOT_FOUND, "not-found", 404)       \
	X(METHOD, "method-not-allowed", 405) \
	X(CONFLICT, "conflict", 409)         \
	X(GONE, "gone", 410)                 \
	X(TOO_LARGE, "too-large", 413)       \
	X(MISMATCH, "mismatch", 422)         \
	X(LIMIT, "limit", 429)               \
	X(NO_SPACE, "no-space", 507)         \
	X(BUSY, "busy", 503)                 \
	X(TIMEOUT, "timeout", 504)           \
	X(CORRUPT, "corrupt", 500)

enum err_code {
#define X(name, word, status) ERR_##name,
	ERR_CODES(X)
#undef X
		ERR_NR
};

struct err {
	enum err_code code;
	int line;
	const char *file;
	char msg[256];
};

/*
 * Sets the error and returns `ret` (-errno), so: return err_set(e, ...);
 * Here and below `e` may be NULL: who wants no words gets the number only.
 */
int err_set_at(struct err *e, const char *file, int line, int ret,
	       enum err_code code, const char *fmt, ...) PRINTF(6, 7);

/* Puts "context: " before what is there already; returns `ret`. */
int err_wrap_at(struct err *e, const char *file, int line, int ret,
		const char *fmt, ...) PRINTF(5, 6);

#define err_set(e, ret, code, ...) \
	err_set_at(e, __FILE__, __LINE__, ret, code, __VA_ARGS__)
#define err_wrap(e, ret, ...) \
	err_wrap_at(e, __FILE__, __LINE__, ret, __VA_ARGS__)

/*
 * For a failed system call, `en` being the positive errno: "WHAT: why";
 * picks the code; returns -en.
 */
#define err_sys(e, en, ...) err_sys_at(e, __FILE__, __LINE__, en, __VA_ARGS__)
int err_sys_at(struct err *e, const char *file, int line, int en,
	       const char *fmt, ...) PRINTF(5, 6);

const char *err_word(enum err_code code); /* "not-found" */
int err_http_status(enum err_code code); /* 404 */

#endif
