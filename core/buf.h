/*
 * buf: a growing byte buffer for writers, and a bounded cursor for readers
 * of foreign bytes. A cursor that once read past its end stays failed and
 * yields zeros, so a decoder checks once, at its end.
 */
#ifndef CORE_BUF_H
#define CORE_BUF_H

#include "core/base.h"

struct buf {
	uint8_t *p;
	size_t len, cap;
};

/* A zeroed struct is an empty buffer. */
void buf_done(struct buf *b); /* frees, leaves it empty; fits SCOPED() */
void buf_reset(struct buf *b); /* empty, keeps the memory */
void *buf_reserve(struct buf *b, size_t len); /* room at the end; not counted */
void buf_put(struct buf *b, const void *p, size_t len);
void buf_put_u8(struct buf *b, uint8_t v);
void buf_put_u16(struct buf *b, uint16_t v); /* little-endian */
void buf_put_u32(struct buf *b, uint32_t v);
void buf_put_u64(struct buf *b, uint64_t v);
void buf_put_varint(struct buf *b, uint64_t v); /* LEB128, at most 10 bytes */
void buf_put_str(struct buf *b, const char *s); /* without its NUL */
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
const char *buf_cstr(struct buf *b); /* NUL-terminated view, until changed */

struct cur {
	const uint8_t *p, *end;
	bool failed;
};

static inline struct cur cur_init(const void *p, size_t len)
{
	return (struct cur){ .p = p, .end = (const uint8_t *)p + len };
}

static inline size_t cur_left(const struct cur *c)
{
	return (size_t)(c->end - c->p);
}

const uint8_t *cur_get(struct cur *c, size_t len); /* NULL once failed */
bool cur_get_copy(struct cur *c, void *dst, size_t len); /* zeros if failed */
uint8_t cur_get_u8(struct cur *c);
uint16_t cur_get_u16(struct cur *c);
uint32_t cur_get_u32(struct cur *c);
uint64_t cur_get_u64(struct cur *c);
uint64_t cur_get_varint(struct cur *c); /* overlong or > 64 bit: failed */
bool cur_done(const struct cur *c); /* nothing failed and nothing left */

#endif
