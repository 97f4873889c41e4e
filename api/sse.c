/*
 * sse: writing and reading server-sent events.
 *
 * How reading works: bytes gather in `line` until a line end (CR, LF or
 * CRLF); fields gather in `data`, `id`, `name`; an empty line dispatches.
 *
 * Invariants: the events read do not depend on how the stream was cut into
 * pieces; memory is bounded by SSE_EVENT_MAX whatever the server sends; an
 * event that the connection's end cut off is never dispatched.
 */
#include "api/sse.h"

#include <inttypes.h>
#include <stdio.h>

void sse_write(struct buf *b, const char *id, const char *event,
	       const char *data, size_t len)
{
	PRE(!memchr(data, '\n', len) && !memchr(data, '\r', len));
	if (id)
		buf_printf(b, "id: %s\n", id);
	buf_printf(b, "event: %s\ndata: ", event);
	buf_put(b, data, len);
	buf_put_str(b, "\n\n");
}

void sse_write_ping(struct buf *b)
{
	buf_put_str(b, ": ping\n\n");
}

void sse_id_format(char ret[SSE_ID_MAX], uint64_t epoch, uint64_t out,
		   uint64_t err)
{
	snprintf(ret, SSE_ID_MAX, "%" PRIu64 ":%" PRIu64 ":%" PRIu64, epoch,
		 out, err);
}

/* Decimal digits only, up to `end`; -EINVAL, also on overflow. */
static int sse_number(const char **p, char end, uint64_t *ret)
{
	uint64_t v = 0;
	const char *s = *p;

	if (*s == end)
		return -EINVAL;
	for (; *s != end; s++) {
		if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -EINVAL;
	}
	*p = end ? s + 1 : s;
	*ret = v;
	return 0;
}

int sse_id_parse(const char *s, uint64_t *ret_epoch, uint64_t *ret_out,
		 uint64_t *ret_err)
{
	uint64_t epoch, out, err;

	if (sse_number(&s, ':', &epoch) < 0 || sse_number(&s, ':', &out) < 0 ||
	    sse_number(&s, 0, &err) < 0)
		return -EINVAL;
	*ret_epoch = epoch;
	*ret_out = out;
	*ret_err = err;
	return 0;
}

static int sse_dispatch(struct sse_reader *r)
{
	struct sse_event ev;
	int n = 0;

	if (r->has_data) {
		if (r->data.len) /* each data line added a line end */
			r->data.len--;
		memcpy(ev.id, r->id, sizeof(ev.id));
		base_strcpy(ev.name, sizeof(ev.name),
			    r->name[0] ? r->name : "message");
		ev.data = buf_cstr(&r->data);
		ev.len = r->data.len;
		n = r->fn(r->ctx, &ev);
	}
	buf_reset(&r->data);
	r->name[0] = 0;
	r->has_data = false;
	return n;
}

static int sse_field(struct sse_reader *r, const char *name, const char *value)
{
	if (!strcmp(name, "data")) {
		size_t len = strlen(value);

		if (r->data.len + len >= SSE_EVENT_MAX)
			return -EMSGSIZE;
		buf_put(&r->data, value, len);
		buf_put_u8(&r->data, '\n');
		r->has_data = true;
	} else if (!strcmp(name, "id")) {
		base_strcpy(r->id, sizeof(r->id), value);
	} else if (!strcmp(name, "event")) {
		base_strcpy(r->name, sizeof(r->name), value);
	}
	return 0;
}

static int sse_line(struct sse_reader *r)
{
	char *line, *colon;
	int n;

	if (!r->line.len)
		return sse_dispatch(r);
	buf_put_u8(&r->line, 0);
	line = (char *)r->line.p;
	colon = strchr(line, ':');
	if (!colon) {
		n = sse_field(r, line, "");
	} else if (colon == line) {
		n = 0; /* a comment */
	} else {
		*colon = 0;
		n = sse_field(r, line, colon + 1 + (colon[1] == ' '));
	}
	buf_reset(&r->line);
	return n;
}

int sse_reader_put(struct sse_reader *r, const void *p, size_t len)
{
	const char *s = p;
	int n;

	for (size_t i = 0; i < len; i++) {
		bool after_cr = r->was_cr;

		r->was_cr = s[i] == '\r';
		if (s[i] == '\n' && after_cr)
			continue;
		if (s[i] == '\n' || s[i] == '\r') {
			n = sse_line(r);
			if (n)
				return n;
			continue;
		}
		if (r->line.len >= SSE_EVENT_MAX)
			return -EMSGSIZE;
		buf_put_u8(&r->line, (uint8_t)s[i]);
	}
	return 0;
}

void sse_reader_reset(struct sse_reader *r)
{
	buf_reset(&r->line);
	buf_reset(&r->data);
	r->name[0] = 0;
	r->has_data = r->was_cr = false;
}

void sse_reader_done(struct sse_reader *r)
{
	buf_done(&r->line);
	buf_done(&r->data);
}
