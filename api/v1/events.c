/*
 * events: the log as it is read from outside: JSON Lines, or server-sent
 * events when the client accepts those.
 *
 * How it works: the reply is made page by page, each from a read view of its
 * own; between pages a following reader waits for the log to grow.
 *
 * Invariants: events come in the order of seq, none twice, none missing; a
 * key sees its own tenant's only; no read view is held while waiting, so
 * that a slow reader doesn't keep old pages of the log alive.
 */
#include "api/v1/v1.h"

#include "api/sse.h"

#include <inttypes.h>
#include <stdio.h>

#define V1_EVENTS_PAGE 64
#define V1_EVENTS_BYTES (256u << 10)
#define V1_EVENTS_SLICE_MS 1000
#define V1_EVENTS_PING_NS (15 * NS_PER_S)

struct v1_events {
	struct http_stream stream; /* first */
	const struct api_conf *conf;
	char session[ID_LEN + 1]; /* "": all */
	char tenant[ID_LEN + 1]; /* "": all */
	uint64_t after;
	uint64_t left; /* how many to give at most */
	bool follow, sse;
	int64_t said_ns;
};

struct v1_events_page {
	struct v1_events *ev;
	struct buf *b;
	int nr; /* looked at */
	size_t start;
};

static int v1_events_one(void *ctx, const struct event *event)
{
	struct v1_events_page *p = ctx;
	SCOPED(buf_done) struct buf text = { 0 };
	SCOPED_JSON json_t *j = NULL;
	char id[24];

	p->ev->after = event->seq;
	p->nr++;
	if (!p->ev->tenant[0] || !strcmp(p->ev->tenant, event->tenant)) {
		j = event_to_json(event);
		if (json_canonical(&text, j) < 0)
			NEVER("an event of the log has a float");
		if (p->ev->sse) {
			snprintf(id, sizeof(id), "%" PRIu64, event->seq);
			sse_write(p->b, id, "event", buf_cstr(&text), text.len);
		} else {
			buf_put(p->b, text.p, text.len);
			buf_put_u8(p->b, '\n');
		}
		p->ev->left--;
	}
	return !p->ev->left || p->nr == V1_EVENTS_PAGE ||
	       p->b->len - p->start > V1_EVENTS_BYTES;
}

/* One page; *ret_seq is the log's end as of it. */
static int v1_events_page(struct v1_events *ev, struct buf *b, int *ret_nr,
			  uint64_t *ret_seq)
{
	const struct view_port *vp = &ev->conf->view;
	struct v1_events_page p = { .ev = ev, .b = b, .start = b->len };
	struct err e;
	void *view;
	int r = vp->open(vp->ctx, &view, &e);

	if (r < 0)
		return r;
	*ret_seq = vp->ops->last_seq(view);
	r = vp->ops->events(view, ev->session[0] ? ev->session : NULL,
			    ev->after, v1_events_one, &p, &e);
	vp->close(view);
	*ret_nr = p.nr;
	return r < 0 ? r : 0;
}

static void v1_events_ping(struct v1_events *ev, struct buf *b, int64_t now)
{
	if (now - ev->said_ns < V1_EVENTS_PING_NS)
		return;
	ev->said_ns = now;
	if (ev->sse)
		sse_write_ping(b);
	else
		buf_put_u8(b, '\n'); /* an empty line: readers skip it */
}

static int v1_events_next(struct http_stream *s, struct buf *b)
{
	struct v1_events *ev = CONTAINER_OF(s, struct v1_events, stream);
	int64_t now = clock_mono(ev->conf->clock);
	uint64_t seq = 0;
	int nr = 0;
	int r;

	if (!ev->left)
		return 1;
	r = v1_events_page(ev, b, &nr, &seq);
	if (r < 0)
		return r;
	if (nr) {
		ev->said_ns = now;
		return 0;
	}
	if (!ev->follow)
		return 1;
	ev->after = MAX(ev->after, seq); /* others' events are behind us */
	v1_events_ping(ev, b, now);
	if (!b->len)
		ev->conf->engine.wait_seq(ev->conf->engine.ctx, seq,
					  V1_EVENTS_SLICE_MS);
	return 0;
}

static void v1_events_free(struct http_stream *s)
{
	free(CONTAINER_OF(s, struct v1_events, stream));
}

static int v1_events_from(const struct call *c, struct v1_events *ev,
			  struct err *e)
{
	const char *last = http_header(c->http, "Last-Event-ID");
	int64_t after, limit;
	char *end;
	int r = call_query_int(c, "after", 0, INT64_MAX, 0, &after, e);

	if (r == 0)
		r = call_query_int(c, "limit", 1, INT64_MAX, INT64_MAX, &limit,
				   e);
	if (r == 0)
		r = call_query_bool(c, "follow", false, &ev->follow, e);
	if (r < 0)
		return r;
	ev->after = (uint64_t)after;
	ev->left = (uint64_t)limit;
	if (!last || !*last)
		return 0;
	errno = 0;
	ev->after = strtoull(last, &end, 10);
	if (errno || *end || *last == '-')
		return err_set(e, -EINVAL, ERR_INVALID,
			       "Last-Event-ID must be the number of an event");
	return 0;
}

int v1_event_list(struct call *c, struct err *e)
{
	SCOPED_FREE struct v1_events *ev = base_alloc(sizeof(*ev));
	const char *session = http_query(c->http, "session");
	const char *accept = http_header(c->http, "Accept");
	struct session s;
	int r = v1_events_from(c, ev, e);

	if (r == 0 && session)
		r = call_session(c, session, &s, e);
	/* a destroyed session has no row any more, but its events stay */
	if (r == -ENOENT && session && id_valid(session)) {
		base_strcpy(s.id, sizeof(s.id), session);
		r = 0;
	}
	if (r < 0)
		return r;
	call_reader_close(c);
	ev->stream.next = v1_events_next;
	ev->stream.free = v1_events_free;
	ev->conf = c->conf;
	ev->sse = accept && strstr(accept, SSE_TYPE);
	ev->said_ns = clock_mono(c->conf->clock);
	if (session)
		base_strcpy(ev->session, sizeof(ev->session), s.id);
	if (!c->who.local)
		base_strcpy(ev->tenant, sizeof(ev->tenant), c->who.tenant);
	http_reply_stream(c->http, 200,
			  ev->sse ? SSE_TYPE : "application/x-ndjson",
			  UINT64_MAX, &ev->stream);
	STEAL(ev);
	return 0;
}
