/*
 * base: panics, allocation that can't fail, whole reads and writes, secrets.
 *
 * How it works: a panic writes one line by write(2), takes no lock and
 * allocates nothing, then aborts, so that a core dump shows the place. The
 * control plane is small and its state is in the log, so memory that can't
 * be had is a panic as well and no caller tests for it.
 *
 * Invariants:
 *  1. No function here opens a path: processes without a file system use it.
 *  2. Reads and writes are whole or failed; EINTR is never seen outside.
 *  3. base_wipe and base_same_secret survive the optimizer.
 *
 * A crash leaves nothing behind: there is no state.
 */
#include "core/base.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/types.h>

_Noreturn void base_panic(const char *kind, const char *expr, const char *file,
			  int line)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "panic: %s at %s:%d: %s\n", kind,
			 file, line, expr);

	if (n >= (int)sizeof(text)) {
		n = (int)sizeof(text) - 1;
		text[n - 1] = '\n';
	}
	/* nothing can be done about a failed write on the way out */
	if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
		abort();
	abort();
}

void *base_alloc(size_t len)
{
	void *p = calloc(1, len ? len : 1);

	if (!p)
		NEVER("out of memory");
	return p;
}

void *base_realloc(void *p, size_t len)
{
	void *q = realloc(p, len ? len : 1);

	if (!q)
		NEVER("out of memory");
	return q;
}

char *base_strdup(const char *s)
{
	size_t len = strlen(s) + 1;

	return memcpy(base_alloc(len), s, len);
}

char *base_printf(const char *fmt, ...)
{
	char *text;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		NEVER("out of memory");
	return text;
}

bool base_strcpy(char *dst, size_t len, const char *src)
{
	size_t n;

	PRE(len > 0);
	n = strnlen(src, len);
	if (n == len) {
		memcpy(dst, src, len - 1);
		dst[len - 1] = '\0';
		return false;
	}
	memcpy(dst, src, n + 1);
	return true;
}

/* What one transfer said: bytes moved, 0 to try again, or -errno. */
static ssize_t base_moved(ssize_t n)
{
	if (n > 0)
		return n;
	if (!n)
		return -EPIPE;
	return errno == EINTR ? 0 : -errno;
}

int base_write_all(int fd, const void *p, size_t len)
{
	const uint8_t *b = p;

	while (len > 0) {
		ssize_t n = base_moved(write(fd, b, len));

		if (n < 0)
			return (int)n;
		b += n;
		len -= (size_t)n;
	}
	return 0;
}

int base_read_all(int fd, void *p, size_t len)
{
	uint8_t *b = p;

	while (len > 0) {
		ssize_t n = base_moved(read(fd, b, len));

		if (n < 0)
			return (int)n;
		b += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The range of a positioned transfer must be one that off_t can name. */
static bool base_range_ok(size_t len, uint64_t off)
{
	return off <= INT64_MAX && len <= INT64_MAX - off;
}

int base_pwrite_all(int fd, const void *p, size_t len, uint64_t off)
{
	const uint8_t *b = p;

	if (!base_range_ok(len, off))
		return -EOVERFLOW;
	while (len > 0) {
		ssize_t n = base_moved(pwrite(fd, b, len, (off_t)off));

		if (n < 0)
			return (int)n;
		b += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

int base_pread_all(int fd, void *p, size_t len, uint64_t off)
{
	uint8_t *b = p;

	if (!base_range_ok(len, off))
		return -EOVERFLOW;
	while (len > 0) {
		ssize_t n = base_moved(pread(fd, b, len, (off_t)off));

		if (n < 0)
			return (int)n;
		b += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

void base_wipe(void *p, size_t len)
{
	explicit_bzero(p, len);
}

bool base_same_secret(const void *a, const void *b, size_t len)
{
	const volatile uint8_t *x = a, *y = b;
	uint8_t diff = 0;

	for (size_t i = 0; i < len; i++)
		diff = (uint8_t)(diff | (x[i] ^ y[i]));
	return !diff;
}

void base_random(void *p, size_t len)
{
	uint8_t *b = p;

	while (len > 0) {
		ssize_t n = getrandom(b, MIN(len, (size_t)256), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			NEVER("the kernel gives no random bytes");
		b += n;
		len -= (size_t)n;
	}
}
