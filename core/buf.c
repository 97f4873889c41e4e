/*
 * buf: the growing buffer of writers and the bounded cursor of readers.
 *
 * How it works: a buffer doubles, so that appending is linear over its life.
 * A cursor keeps two pointers; whatever would pass the end sets `failed`,
 * moves nothing and yields zeros.
 *
 * Invariants:
 *  1. len <= cap, and p is NULL exactly when cap is 0.
 *  2. A cursor never reads at or past `end`, whatever lengths it is told.
 *  3. Every number has one varint: overlong forms are refused, so bytes that
 *     decode are the bytes that encode.
 *
 * A crash leaves nothing behind: there is no state.
 */
#include "core/buf.h"

#include <stdarg.h>
#include <stdio.h>

#define BUF_MIN 64u
#define VARINT_MAX 10

void buf_done(struct buf *b)
{
	free(b->p);
	*b = (struct buf){ 0 };
}

void buf_reset(struct buf *b)
{
	b->len = 0;
}

void *buf_reserve(struct buf *b, size_t len)
{
	size_t need, cap;

	PRE(b->len <= b->cap);
	if (__builtin_add_overflow(b->len, len, &need) || need > PTRDIFF_MAX)
		NEVER("buffer larger than the address space");
	if (need <= b->cap && b->p)
		return b->p + b->len;
	cap = MAX(b->cap, BUF_MIN);
	while (cap < need)
		cap *= 2; /* need <= PTRDIFF_MAX: can't overflow */
	b->p = base_realloc(b->p, cap);
	b->cap = cap;
	return b->p + b->len;
}

void buf_put(struct buf *b, const void *p, size_t len)
{
	if (!len)
		return;
	memcpy(buf_reserve(b, len), p, len);
	b->len += len;
}

void buf_put_u8(struct buf *b, uint8_t v)
{
	buf_put(b, &v, 1);
}

void buf_put_u16(struct buf *b, uint16_t v)
{
	put_u16(buf_reserve(b, 2), v);
	b->len += 2;
}

void buf_put_u32(struct buf *b, uint32_t v)
{
	put_u32(buf_reserve(b, 4), v);
	b->len += 4;
}

void buf_put_u64(struct buf *b, uint64_t v)
{
	put_u64(buf_reserve(b, 8), v);
	b->len += 8;
}

void buf_put_varint(struct buf *b, uint64_t v)
{
	uint8_t *p = buf_reserve(b, VARINT_MAX);
	size_t n = 0;

	while (v >= 0x80) {
		p[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	p[n++] = (uint8_t)v;
	b->len += n;
}

void buf_put_str(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		NEVER("a format that can't be printed");
	vsnprintf(buf_reserve(b, (size_t)n + 1), (size_t)n + 1, fmt, again);
	va_end(again);
	b->len += (size_t)n;
}

const char *buf_cstr(struct buf *b)
{
	*(char *)buf_reserve(b, 1) = '\0';
	return (const char *)b->p;
}

const uint8_t *cur_get(struct cur *c, size_t len)
{
	const uint8_t *p = c->p;

	if (c->failed || len > cur_left(c)) {
		c->failed = true;
		return NULL;
	}
	c->p += len;
	return p;
}

bool cur_get_copy(struct cur *c, void *dst, size_t len)
{
	const uint8_t *p = cur_get(c, len);

	if (c->failed) {
		memset(dst, 0, len);
		return false;
	}
	if (len)
		memcpy(dst, p, len);
	return true;
}

uint8_t cur_get_u8(struct cur *c)
{
	const uint8_t *p = cur_get(c, 1);

	return p ? *p : 0;
}

uint16_t cur_get_u16(struct cur *c)
{
	const uint8_t *p = cur_get(c, 2);

	return p ? get_u16(p) : 0;
}

uint32_t cur_get_u32(struct cur *c)
{
	const uint8_t *p = cur_get(c, 4);

	return p ? get_u32(p) : 0;
}

uint64_t cur_get_u64(struct cur *c)
{
	const uint8_t *p = cur_get(c, 8);

	return p ? get_u64(p) : 0;
}

uint64_t cur_get_varint(struct cur *c)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < VARINT_MAX; i++) {
		uint8_t b = cur_get_u8(c);

		if (c->failed)
			return 0;
		if (i == VARINT_MAX - 1 && b > 1)
			break; /* more than 64 bits */
		v |= (uint64_t)(b & 0x7f) << (7 * i);
		if (b & 0x80)
			continue;
		if (!b && i)
			break; /* overlong */
		return v;
	}
	c->failed = true;
	return 0;
}

bool cur_done(const struct cur *c)
{
	return !c->failed && c->p == c->end;
}
