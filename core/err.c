/*
 * err: filling in, wrapping and naming errors.
 *
 * How it works: the caller's struct is filled with a code that programs read
 * and a sentence that people read. Wrapping shifts the sentence to the right
 * and puts its context before it.
 *
 * Invariants:
 *  1. No allocation, no lock, no locale: usable when memory is what failed.
 *  2. A message is terminated and is never cut inside a UTF-8 character, so
 *     that it can go into JSON as it is.
 *  3. Every function takes a NULL `e` and returns what it would have.
 *
 * A crash leaves nothing behind: there is no state.
 */
#include "core/err.h"

#include <stdarg.h>
#include <stdio.h>

struct err_class {
	const char *word;
	int status;
};

static const struct err_class err_classes[ERR_NR] = {
#define X(name, word, status) [ERR_##name] = { word, status },
	ERR_CODES(X)
#undef X
};

/* Drops a character whose last bytes did not fit. */
static void err_trim(char *msg, size_t len)
{
	size_t at = len, need;
	uint8_t lead;

	while (at > 0 && ((uint8_t)msg[at - 1] & 0xc0) == 0x80)
		at--;
	if (!at)
		return;
	lead = (uint8_t)msg[at - 1];
	need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
	if (len - (at - 1) < need)
		msg[at - 1] = '\0';
}

/* Formats into msg from `at`; returns the new length. */
PRINTF(4, 0)
static size_t err_format(char *msg, size_t cap, size_t at, const char *fmt,
			 va_list ap)
{
	int n = vsnprintf(msg + at, cap - at, fmt, ap);

	if (n < 0) {
		msg[at] = '\0';
		return at;
	}
	if ((size_t)n < cap - at)
		return at + (size_t)n;
	err_trim(msg, cap - 1);
	return strlen(msg);
}

/* Adds ": text"; keeps what fits. */
static void err_append(struct err *e, size_t at, const char *text)
{
	int n = snprintf(e->msg + at, sizeof(e->msg) - at, ": %s", text);

	if (n >= 0 && (size_t)n >= sizeof(e->msg) - at)
		err_trim(e->msg, sizeof(e->msg) - 1);
}

int err_set_at(struct err *e, const char *file, int line, int ret,
	       enum err_code code, const char *fmt, ...)
{
	va_list ap;

	PRE(ret < 0);
	if (!e)
		return ret;
	e->code = code;
	e->file = file;
	e->line = line;
	va_start(ap, fmt);
	err_format(e->msg, sizeof(e->msg), 0, fmt, ap);
	va_end(ap);
	return ret;
}

int err_wrap_at(struct err *e, const char *file UNUSED, int line UNUSED,
		int ret, const char *fmt, ...)
{
	char inner[sizeof(e->msg)];
	size_t at;
	va_list ap;

	PRE(ret < 0);
	if (!e)
		return ret;
	/* the place of the first error is the one worth keeping */
	memcpy(inner, e->msg, sizeof(inner));
	inner[sizeof(inner) - 1] = '\0';
	va_start(ap, fmt);
	at = err_format(e->msg, sizeof(e->msg), 0, fmt, ap);
	va_end(ap);
	err_append(e, at, inner);
	return ret;
}

static enum err_code err_code_of(int en)
{
	switch (en) {
	case ENOENT:
	case ESRCH:
		return ERR_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return ERR_FORBIDDEN;
	case EEXIST:
	case EADDRINUSE:
		return ERR_CONFLICT;
	case ENOSPC:
	case EDQUOT:
		return ERR_NO_SPACE;
	case EFBIG:
	case EMSGSIZE:
		return ERR_TOO_LARGE;
	case EMFILE:
	case ENFILE:
		return ERR_LIMIT;
	case EBUSY:
	case EAGAIN:
		return ERR_BUSY;
	case ETIMEDOUT:
		return ERR_TIMEOUT;
	case EBADMSG:
	case EUCLEAN:
		return ERR_CORRUPT;
	default:
		return ERR_INTERNAL;
	}
}

int err_sys_at(struct err *e, const char *file, int line, int en,
	       const char *fmt, ...)
{
	const char *why = strerrordesc_np(en);
	char unknown[32];
	size_t at;
	va_list ap;

	PRE(en > 0);
	if (!e)
		return -en;
	if (!why) {
		snprintf(unknown, sizeof(unknown), "error %d", en);
		why = unknown;
	}
	e->code = err_code_of(en);
	e->file = file;
	e->line = line;
	va_start(ap, fmt);
	at = err_format(e->msg, sizeof(e->msg), 0, fmt, ap);
	va_end(ap);
	err_append(e, at, why);
	return -en;
}

const char *err_word(enum err_code code)
{
	PRE((unsigned)code < ERR_NR);
	return err_classes[code].word;
}

int err_http_status(enum err_code code)
{
	PRE((unsigned)code < ERR_NR);
	return err_classes[code].status;
}
