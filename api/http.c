/*
 * http: requests in, replies out, over libmicrohttpd.
 *
 * How it works: each listener is one MHD daemon with a thread per
 * connection. MHD calls http_access() for the head, for each piece of the
 * body, and once more at its end; we turn that into begin, chunk, finish,
 * done. A reply is only recorded by the handler and handed to MHD at the
 * next moment where MHD takes one.
 *
 * Invariants:
 *  1. A request gets exactly one reply, or its connection is cut.
 *  2. done() runs once for every request for which begin() ran.
 *  3. At most max_connections handlers run; HTTP_SPARE further connections
 *     are answered 503 by their own short thread; beyond that they are
 *     closed unanswered. So threads and memory are bounded.
 *  4. A body that nobody wants is drained up to HTTP_DRAIN_MAX, since a
 *     close with unread bytes makes TCP throw our reply away.
 *
 * A crash leaves nothing behind: no state outlives the process.
 */
#include "api/http.h"

#include "core/log.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>

#define HTTP_SPARE 32u
#define HTTP_DRAIN_MAX (4u << 20)
#define HTTP_STACK (256u << 10)
#define HTTP_HEAD_MAX (64u << 10)
#define HTTP_IDLE_S 120u /* above HTTP_WAIT_MAX_S: MHD counts blocked time */
#define HTTP_LISTENERS_MAX 8
#define HTTP_PIECE (64u << 10)

static_assert(HTTP_WAIT_MAX_S < HTTP_IDLE_S, "a wait must not time out");

struct http_listener {
	struct http_server *server;
	struct MHD_Daemon *mhd;
	void *tag;
};

struct http_server {
	const struct http_ops *ops;
	void *ctx;
	unsigned max;
	atomic_uint nr; /* open connections */
	atomic_bool stopping;
	unsigned nr_listeners;
	struct http_listener listeners[HTTP_LISTENERS_MAX];
};

struct http_request {
	struct http_listener *listener;
	struct MHD_Connection *mhd;
	const char *method, *path;
	void *data;
	enum http_body mode;
	bool begun, queued;
	uint64_t body_len; /* declared */
	uint64_t drained;
	struct buf body;

	/* the reply */
	unsigned status, nr_headers;
	struct {
		char *name, *value;
	} headers[HTTP_HEADERS_MAX];
	char *type;
	struct buf out; /* whole body, or what of the stream is not sent */
	size_t out_off;
	uint64_t out_len;
	struct http_stream *stream;
	bool stream_ended;
};

/* --- what handlers see ---------------------------------------------------- */

bool http_stopping(const struct http_request *r)
{
	return atomic_load(&r->listener->server->stopping);
}

static int http_fd(const struct http_request *r)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(
		r->mhd, MHD_CONNECTION_INFO_CONNECTION_FD);

	return i ? i->connect_fd : -1;
}

bool http_peer_gone(const struct http_request *r)
{
	struct pollfd p = { .fd = http_fd(r), .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0;
}

void *http_ctx(const struct http_request *r)
{
	return r->listener->server->ctx;
}

void *http_listen_tag(const struct http_request *r)
{
	return r->listener->tag;
}

const char *http_method(const struct http_request *r)
{
	return r->method;
}

const char *http_path(const struct http_request *r)
{
	return r->path;
}

const char *http_header(const struct http_request *r, const char *name)
{
	return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_request *r, const char *name)
{
	const char *v = NULL;

	if (MHD_lookup_connection_value_n(r->mhd, MHD_GET_ARGUMENT_KIND, name,
					  strlen(name), &v, NULL) != MHD_YES)
		return NULL;
	return v ? v : "";
}

struct http_each {
	bool (*fn)(void *ctx, const char *name);
	void *ctx;
};

static enum MHD_Result http_each_one(void *cls, enum MHD_ValueKind kind,
				     const char *key, const char *value)
{
	const struct http_each *each = cls;

	(void)kind;
	(void)value;
	return each->fn(each->ctx, key) ? MHD_YES : MHD_NO;
}

void http_query_each(const struct http_request *r,
		     bool (*fn)(void *ctx, const char *name), void *ctx)
{
	struct http_each each = { fn, ctx };

	MHD_get_connection_values(r->mhd, MHD_GET_ARGUMENT_KIND, http_each_one,
				  &each);
}

bool http_has_body(const struct http_request *r)
{
	return r->body_len != 0;
}

uint64_t http_body_len(const struct http_request *r)
{
	return r->body_len;
}

const struct buf *http_body(const struct http_request *r)
{
	return &r->body;
}

int http_peer_uid(const struct http_request *r, uid_t *ret)
{
	struct ucred c;
	socklen_t len = sizeof(c);
	struct sockaddr_storage a;
	socklen_t alen = sizeof(a);

	if (getsockname(http_fd(r), (struct sockaddr *)&a, &alen) < 0)
		return -errno;
	if (a.ss_family != AF_UNIX)
		return -EAFNOSUPPORT;
	if (getsockopt(http_fd(r), SOL_SOCKET, SO_PEERCRED, &c, &len) < 0)
		return -errno;
	*ret = c.uid;
	return 0;
}

void http_set_data(struct http_request *r, void *data)
{
	r->data = data;
}

void *http_data(const struct http_request *r)
{
	return r->data;
}

bool http_replied(const struct http_request *r)
{
	return r->status != 0;
}

unsigned http_status(const struct http_request *r)
{
	return r->status;
}

void http_reply_header(struct http_request *r, const char *name, const char *value)
{
	PRE(r->nr_headers < HTTP_HEADERS_MAX && !r->queued);
	PRE(!strpbrk(value, "\r\n"));
	r->headers[r->nr_headers].name = base_strdup(name);
	r->headers[r->nr_headers].value = base_strdup(value);
	r->nr_headers++;
}

void http_reply(struct http_request *r, unsigned status, const char *type,
		const void *body, size_t len)
{
	PRE(!http_replied(r) && status >= 200 && status < 600);
	r->status = status;
	r->type = type ? base_strdup(type) : NULL;
	if (len)
		buf_put(&r->out, body, len);
	r->out_len = len;
}

void http_reply_stream(struct http_request *r, unsigned status,
		       const char *type, uint64_t len, struct http_stream *s)
{
	PRE(!http_replied(r) && status >= 200 && status < 600 && s);
	r->status = status;
	r->type = base_strdup(type);
	r->out_len = len;
	r->stream = s;
}

/* --- sending -------------------------------------------------------------- */

/* Makes bytes to send; 0 some are there, 1 the end, -errno cut it off. */
static int http_fill(struct http_request *r)
{
	while (r->out_off == r->out.len) {
		int n;

		if (r->stream_ended)
			return 1;
		if (http_stopping(r) || http_peer_gone(r))
			return -EPIPE;
		buf_reset(&r->out);
		r->out_off = 0;
		n = r->stream->next(r->stream, &r->out);
		if (n < 0)
			return n;
		r->stream_ended = n == 1;
	}
	return 0;
}

static ssize_t http_read(void *cls, uint64_t pos, char *p, size_t max)
{
	struct http_request *r = cls;
	int n = http_fill(r);
	size_t len;

	(void)pos;
	if (n < 0)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (n == 1)
		return MHD_CONTENT_READER_END_OF_STREAM;
	len = MIN(max, r->out.len - r->out_off);
	memcpy(p, r->out.p + r->out_off, len);
	r->out_off += len;
	return (ssize_t)len;
}

static struct MHD_Response *http_response(struct http_request *r)
{
	struct MHD_Response *m;

	/* for MHD the request outlives the response: freed in completed */
	if (r->stream)
		m = MHD_create_response_from_callback(r->out_len, HTTP_PIECE,
						      http_read, r, NULL);
	else
		m = MHD_create_response_from_buffer(r->out.len, r->out.p,
						    MHD_RESPMEM_PERSISTENT);
	if (!m)
		return NULL;
	if (r->type)
		MHD_add_response_header(m, "Content-Type", r->type);
	for (unsigned i = 0; i < r->nr_headers; i++)
		MHD_add_response_header(m, r->headers[i].name,
					r->headers[i].value);
	MHD_add_response_header(m, "Cache-Control", "no-store");
	return m;
}

static enum MHD_Result http_queue(struct http_request *r)
{
	struct MHD_Response *m = http_response(r);
	enum MHD_Result ret;

	if (!m)
		return MHD_NO;
	ret = MHD_queue_response(r->mhd, r->status, m);
	r->queued = true;
	MHD_destroy_response(m); /* MHD keeps a reference of its own */
	return ret;
}

/* --- receiving ------------------------------------------------------------ */

static uint64_t http_declared_len(struct MHD_Connection *c)
{
	const char *te = MHD_lookup_connection_value(c, MHD_HEADER_KIND,
						     "Transfer-Encoding");
	const char *cl = MHD_lookup_connection_value(c, MHD_HEADER_KIND,
						     "Content-Length");

	if (te)
		return UINT64_MAX;
	return cl ? strtoull(cl, NULL, 10) : 0; /* MHD has checked its form */
}

static void http_reply_crowded(struct http_request *r)
{
	static const char text[] =
		"{\"type\":\"urn:cryo:problem:busy\",\"title\":\"Busy\","
		"\"status\":503,\"detail\":\"the server is at its limit of "
		"connections; try again in a second\"}\n";

	http_reply_header(r, "Retry-After", "1");
	http_reply_header(r, "Connection", "close");
	http_reply(r, 503, "application/problem+json", text, sizeof(text) - 1);
}

static void http_reply_too_large(struct http_request *r)
{
	static const char text[] =
		"{\"type\":\"urn:cryo:problem:too-large\",\"title\":\"Too "
		"large\",\"status\":413,\"detail\":\"the body of this request "
		"may have at most 1048576 bytes; send less\"}\n";

	http_reply(r, 413, "application/problem+json", text, sizeof(text) - 1);
}

/* Whether this connection came when the limit was reached already. */
static bool http_is_spare(const struct http_request *r)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(
		r->mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return i && i->socket_context;
}

static enum MHD_Result http_begin(struct http_request *r)
{
	struct http_server *s = r->listener->server;

	r->body_len = http_declared_len(r->mhd);
	if (http_is_spare(r)) {
		http_reply_crowded(r);
	} else {
		r->begun = true;
		r->mode = s->ops->begin(r);
		if (!http_replied(r) && r->mode == HTTP_BODY_KEEP &&
		    r->body_len != UINT64_MAX && r->body_len > HTTP_JSON_MAX)
			http_reply_too_large(r);
	}
	/* a long body that nobody wants: say so now and close afterwards */
	if (http_replied(r) && r->body_len != UINT64_MAX &&
	    r->body_len > HTTP_DRAIN_MAX)
		return http_queue(r);
	return MHD_YES;
}

/* A piece of the body; MHD_NO cuts the connection. */
static enum MHD_Result http_take(struct http_request *r, const char *p, size_t len)
{
	if (!http_replied(r)) {
		if (r->mode == HTTP_BODY_STREAM) {
			r->listener->server->ops->chunk(r, p, len);
			return MHD_YES;
		}
		if (r->body.len + len <= HTTP_JSON_MAX) {
			buf_put(&r->body, p, len);
			return MHD_YES;
		}
		http_reply_too_large(r);
	}
	r->drained += len;
	/* a declared length was let in by begin: drain all of it */
	if (r->body_len == UINT64_MAX && r->drained > HTTP_DRAIN_MAX)
		return MHD_NO;
	return MHD_YES;
}

static enum MHD_Result http_access(void *cls, struct MHD_Connection *c,
				   const char *url, const char *method,
				   const char *version, const char *upload,
				   size_t *upload_len, void **con)
{
	struct http_listener *l = cls;
	struct http_request *r = *con;

	(void)version;
	if (!r) {
		r = base_alloc(sizeof(*r));
		r->listener = l;
		r->mhd = c;
		r->path = url;
		r->method = method;
		*con = r;
		return http_begin(r);
	}
	if (*upload_len) {
		size_t len = *upload_len;

		*upload_len = 0;
		return http_take(r, upload, len);
	}
	if (r->queued)
		return MHD_YES;
	if (!http_replied(r))
		l->server->ops->finish(r);
	POST(http_replied(r));
	return http_queue(r);
}

static void http_completed(void *cls, struct MHD_Connection *c, void **con,
			   enum MHD_RequestTerminationCode why)
{
	struct http_request *r = *con;

	(void)cls;
	(void)c;
	(void)why;
	if (!r)
		return;
	*con = NULL;
	if (r->stream)
		r->stream->free(r->stream);
	if (r->begun)
		r->listener->server->ops->done(r);
	for (unsigned i = 0; i < r->nr_headers; i++) {
		free(r->headers[i].name);
		free(r->headers[i].value);
	}
	free(r->type);
	buf_done(&r->body);
	buf_done(&r->out);
	free(r);
}

static void http_connection(void *cls, struct MHD_Connection *c, void **ctx,
			    enum MHD_ConnectionNotificationCode what)
{
	struct http_server *s = cls;

	(void)c;
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		*ctx = atomic_fetch_add(&s->nr, 1) < s->max ? NULL : s;
	else
		atomic_fetch_sub(&s->nr, 1);
}

/* --- percent-decoding ----------------------------------------------------- */

static int http_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* In place. A NUL would end strings early for us only, so it stays "%00". */
static size_t http_unescape(void *cls, struct MHD_Connection *c, char *s)
{
	char *w = s;

	(void)cls;
	(void)c;
	for (const char *p = s; *p; w++) {
		int hi = *p == '%' ? http_hex(p[1]) : -1;
		int lo = hi >= 0 ? http_hex(p[2]) : -1;

		if (lo >= 0 && hi + lo > 0) {
			*w = (char)(hi << 4 | lo);
			p += 3;
		} else {
			*w = *p++;
		}
	}
	*w = 0;
	return (size_t)(w - s);
}

/* --- start and stop ------------------------------------------------------- */

static int http_listen_one(struct http_server *s, const struct http_listen *c,
			   struct err *e)
{
	struct http_listener *l = &s->listeners[s->nr_listeners];
	int fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		return err_sys(e, errno, "duplicating a listening socket");
	l->server = s;
	l->tag = c->tag;
	l->mhd = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
			MHD_USE_POLL | MHD_USE_ITC,
		0, NULL, NULL, http_access, l, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_CONNECTION_LIMIT, s->max + HTTP_SPARE,
		MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEAD_MAX,
		MHD_OPTION_THREAD_STACK_SIZE, (size_t)HTTP_STACK,
		MHD_OPTION_NOTIFY_COMPLETED, http_completed, l,
		MHD_OPTION_NOTIFY_CONNECTION, http_connection, s,
		MHD_OPTION_UNESCAPE_CALLBACK, http_unescape, NULL,
		MHD_OPTION_END);
	if (!l->mhd) {
		close(fd);
		return err_set(e, -EIO, ERR_INTERNAL,
			       "starting the HTTP server failed (threads or "
			       "memory short?)");
	}
	s->nr_listeners++;
	return 0;
}

int http_start(struct http_server **ret, const struct http_conf *conf,
	       struct err *e)
{
	struct http_server *s;

	PRE(conf->nr_listen > 0 && conf->nr_listen <= HTTP_LISTENERS_MAX);
	s = base_alloc(sizeof(*s));
	s->ops = conf->ops;
	s->ctx = conf->ctx;
	s->max = conf->max_connections;
	for (unsigned i = 0; i < conf->nr_listen; i++) {
		int r = http_listen_one(s, &conf->listen[i], e);

		if (r < 0) {
			http_stop(s);
			return r;
		}
	}
	*ret = s;
	return 0;
}

void http_stop(struct http_server *s)
{
	if (!s)
		return;
	atomic_store(&s->stopping, true);
	for (unsigned i = 0; i < s->nr_listeners; i++)
		MHD_stop_daemon(s->listeners[i].mhd);
	free(s);
}
