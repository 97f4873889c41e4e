/*
 * sse: server-sent events (WHATWG HTML, section 9.2), both ends of them. We
 * write single-line data only (JSON); the reader takes any valid stream, in
 * pieces of any size, within bounds.
 */
#ifndef API_SSE_H
#define API_SSE_H

#include "core/buf.h"

#define SSE_TYPE "text/event-stream"
#define SSE_ID_MAX 80
#define SSE_NAME_MAX 32
#define SSE_EVENT_MAX (512u << 10) /* bytes of data in one event */

/* Appends one event; `id` may be NULL; `data` has no line breaks. */
void sse_write(struct buf *b, const char *id, const char *event,
	       const char *data, size_t len);
/* A comment line: keeps proxies and dead peers honest. */
void sse_write_ping(struct buf *b);

/* "epoch:out:err", the position after an output event, and back; -EINVAL */
void sse_id_format(char ret[SSE_ID_MAX], uint64_t epoch, uint64_t out,
		   uint64_t err);
int sse_id_parse(const char *s, uint64_t *ret_epoch, uint64_t *ret_out,
		 uint64_t *ret_err);

struct sse_event {
	char id[SSE_ID_MAX]; /* last one seen, "" before the first */
	char name[SSE_NAME_MAX]; /* "message" if the stream gave none */
	const char *data; /* NUL-terminated; until the callback ends */
	size_t len;
};

/* Returns 0 to go on; anything else ends sse_reader_put() with that. */
typedef int (*sse_fn)(void *ctx, const struct sse_event *ev);

/* A zeroed struct with fn and ctx set is a reader at a stream's start. */
struct sse_reader {
	sse_fn fn;
	void *ctx;
	struct buf line, data;
	char id[SSE_ID_MAX], name[SSE_NAME_MAX];
	bool has_data, was_cr;
};

/* Feeds a piece; -EMSGSIZE for an event or line beyond SSE_EVENT_MAX. */
int sse_reader_put(struct sse_reader *r, const void *p, size_t len);
void sse_reader_reset(struct sse_reader *r); /* new connection; keeps the id */
void sse_reader_done(struct sse_reader *r);

#endif
