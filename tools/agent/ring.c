/*
 * ring: bytes [at, at + len) modulo cap are kept. An empty ring starts over
 * at 0: short bursts stay in its first pages.
 */
#include "tools/agent/ring.h"

#include <sys/mman.h>

void ring_make(struct ring *r, size_t cap)
{
	void *p;

	if (r->cap)
		return;
	p = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	if (p == MAP_FAILED)
		base_panic("out of", "memory", __FILE__, __LINE__);
	*r = (struct ring){ .p = p, .cap = cap };
}

void ring_done(struct ring *r)
{
	if (r->cap)
		munmap(r->p, r->cap);
	*r = (struct ring){ 0 };
}

static int pieces(const struct ring *r, size_t from, size_t len,
		  struct iovec v[2])
{
	size_t first = MIN(len, r->cap - from);

	v[0] = (struct iovec){ r->p + from, first };
	v[1] = (struct iovec){ r->p, len - first };
	return len == 0 ? 0 : len == first ? 1 : 2;
}

int ring_space(struct ring *r, struct iovec v[2])
{
	PRE(r->cap);
	if (!r->len)
		r->at = 0;
	return pieces(r, (r->at + r->len) % r->cap, ring_free(r), v);
}

void ring_filled(struct ring *r, size_t len)
{
	PRE(len <= ring_free(r));
	r->len += len;
}

int ring_peek(const struct ring *r, size_t skip, size_t len, struct iovec v[2])
{
	PRE(skip <= r->len);
	if (skip == r->len)
		return 0;
	return pieces(r, (r->at + skip) % r->cap, MIN(len, r->len - skip), v);
}

void ring_drop(struct ring *r, size_t len)
{
	PRE(len <= r->len);
	r->len -= len;
	r->at = r->len ? (r->at + len) % r->cap : 0;
}
