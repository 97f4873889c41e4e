/*
 * http: an HTTP/1.1 server, and the only file that knows libmicrohttpd. A
 * thread per connection, so handlers may block; a limit on connections, so
 * that threads are bounded; bounded heads and bodies. What a request means
 * is decided by `struct http_ops`.
 */
#ifndef API_HTTP_H
#define API_HTTP_H

#include "core/buf.h"
#include "core/err.h"

#include <sys/types.h>

#define HTTP_JSON_MAX (1u << 20) /* bytes of a body that is kept in memory */
#define HTTP_WAIT_MAX_S 60 /* how long a handler may block in all */

struct http_server;
struct http_request;

/*
 * A body that is made while it is sent. next() appends bytes to `b` and may
 * block up to about a second; it may return having appended nothing.
 * 0: more to come, 1: that was the end, -errno: cut the connection, so that
 * the client can tell the body from a whole one. free() runs once, whatever
 * happens; both on the connection's thread.
 */
struct http_stream {
	int (*next)(struct http_stream *s, struct buf *b);
	void (*free)(struct http_stream *s);
};

enum http_body {
	HTTP_BODY_KEEP, /* up to HTTP_JSON_MAX, then http_body() has it */
	HTTP_BODY_STREAM, /* each piece goes to ops->chunk as it comes */
};

struct http_ops {
	/*
	 * The head is there. May reply at once (the body, if any, is then
	 * dropped). Returns how it wants the body.
	 */
	enum http_body (*begin)(struct http_request *r);
	/* A piece of a streamed body; not called any more after a reply. */
	void (*chunk)(struct http_request *r, const void *p, size_t len);
	/* The body is complete; must have replied when it returns. */
	void (*finish)(struct http_request *r);
	/* The last thing that happens to a request, also when cut off. */
	void (*done)(struct http_request *r);
};

struct http_listen {
	int fd; /* listening; the server works on a duplicate */
	void *tag;
};

struct http_conf {
	const struct http_ops *ops;
	void *ctx;
	const struct http_listen *listen;
	unsigned nr_listen;
	unsigned max_connections; /* over all listeners */
};

int http_start(struct http_server **ret, const struct http_conf *conf,
	       struct err *e);
void http_stop(struct http_server *s); /* waits for all; NULL is fine */

/* From a handler: true once the server is about to end. */
bool http_stopping(const struct http_request *r);
/* True if the client has closed (or half-closed) its side. */
bool http_peer_gone(const struct http_request *r);

/* The request; strings live as long as it does. */
void *http_ctx(const struct http_request *r); /* conf->ctx */
void *http_listen_tag(const struct http_request *r); /* listen->tag */
const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r); /* decoded, no query */
const char *http_header(const struct http_request *r, const char *name);
/* NULL: not there; "": without value. "%00" is never decoded. */
const char *http_query(const struct http_request *r, const char *name);
/* Calls fn for each query member until it returns false. */
void http_query_each(const struct http_request *r,
		     bool (*fn)(void *ctx, const char *name), void *ctx);
bool http_has_body(const struct http_request *r);
/* Declared length of the body; UINT64_MAX if it came without one. */
uint64_t http_body_len(const struct http_request *r);
const struct buf *http_body(const struct http_request *r);
/* uid at the other end of a unix socket; -errno for other sockets */
int http_peer_uid(const struct http_request *r, uid_t *ret);

/* What ops hang on a request between begin and done. */
void http_set_data(struct http_request *r, void *data);
void *http_data(const struct http_request *r);

/* Headers of the reply, before it; at most HTTP_HEADERS_MAX. Copied. */
#define HTTP_HEADERS_MAX 8
void http_reply_header(struct http_request *r, const char *name,
		       const char *value);
/* The reply. Copies the body; `type` NULL for none. Once per request. */
void http_reply(struct http_request *r, unsigned status, const char *type,
		const void *body, size_t len);
/* Takes `s` over. `len` UINT64_MAX: chunked. */
void http_reply_stream(struct http_request *r, unsigned status,
		       const char *type, uint64_t len, struct http_stream *s);
bool http_replied(const struct http_request *r);
unsigned http_status(const struct http_request *r); /* 0 before the reply */

#endif
