/*
 * ring: a fixed-size byte queue. Its memory is mapped when first used and
 * touched only as far as it was ever filled, so that an exec with little
 * output costs a snapshot little.
 */
#ifndef TOOLS_AGENT_RING_H
#define TOOLS_AGENT_RING_H

#include "core/base.h"

#include <sys/uio.h>

struct ring {
	uint8_t *p;
	size_t cap; /* 0: not made yet */
	size_t at, len; /* of what is kept */
};

void ring_make(struct ring *r, size_t cap); /* no-op if made */
void ring_done(struct ring *r);

/* The free part as up to two pieces; returns how many. */
int ring_space(struct ring *r, struct iovec v[2]);
void ring_filled(struct ring *r, size_t len);

/* Up to `len` kept bytes from `skip` on, as up to two pieces. */
int ring_peek(const struct ring *r, size_t skip, size_t len, struct iovec v[2]);
void ring_drop(struct ring *r, size_t len);

static inline size_t ring_free(const struct ring *r)
{
	return r->cap - r->len;
}

#endif
