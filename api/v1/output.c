/*
 * output: what a command wrote, as server-sent events.
 *
 *   id: 3:1024:0              epoch, next offsets of stdout and stderr
 *   event: stdout             or stderr
 *   data: {"data":"aGkK","offset":1021,"stream":"stdout"}
 *
 * then one of `exit` {"code","signal"}, `lost`, `error` (a problem), and the
 * end. `rewound` says that time went back and where reading goes on.
 *
 * How it works: the first piece is fetched before the reply, so that what is
 * wrong from the start is an HTTP error. After it the reply's stream asks
 * for piece after piece, each a short wait.
 *
 * Invariants: an event's id is the position after it, so a client that comes
 * back with Last-Event-ID misses nothing and gets nothing twice; memory per
 * reader is one piece, however slow it is; a body that ends without a last
 * event was cut off.
 */
#include "api/v1/v1.h"

#include "api/base64.h"
#include "api/problem.h"
#include "api/sse.h"

#define V1_OUTPUT_SLICE_MS 1000
#define V1_OUTPUT_PING_NS (15 * NS_PER_S)

struct v1_output {
	struct http_stream stream; /* first */
	const struct api_conf *conf;
	char session[ID_LEN + 1], exec[ID_LEN + 1];
	struct sandbox_cursor at;
	bool follow;
	int64_t said_ns; /* when something was sent last */
	bool have; /* `chunk` is not given yet */
	struct sandbox_chunk chunk; /* its bytes are in `data` */
	uint8_t data[SANDBOX_CHUNK_MAX];
};

static const char *const v1_output_names[] = {
	[SANDBOX_STDOUT] = "stdout",
	[SANDBOX_STDERR] = "stderr",
};

static int v1_output_fetch(struct v1_output *o, int timeout_ms, struct err *e)
{
	const struct sandbox_port *sb = &o->conf->sandbox;
	int r = sb->output(sb->ctx, o->session, o->exec, &o->at, o->data,
			   sizeof(o->data), timeout_ms, &o->chunk, e);

	if (r < 0)
		return r;
	/* what the port promises, since offsets are where bytes get lost */
	POST(IMPLIES(o->chunk.kind == SANDBOX_DATA,
		     o->chunk.len > 0 && o->chunk.len <= sizeof(o->data) &&
			     o->chunk.off >= o->at.off[o->chunk.stream]));
	o->have = true;
	return 0;
}

static void v1_output_event(struct v1_output *o, struct buf *b,
			    const char *name, json_t *data)
{
	SCOPED(buf_done) struct buf text = { 0 };
	char id[SSE_ID_MAX];

	if (json_canonical(&text, data) < 0)
		NEVER("an event with a float");
	json_decref(data);
	sse_id_format(id, o->at.epoch, o->at.off[SANDBOX_STDOUT],
		      o->at.off[SANDBOX_STDERR]);
	sse_write(b, id, name, buf_cstr(&text), text.len);
}

/* Bytes go past jansson: base64 has nothing to escape. */
static void v1_output_data(struct v1_output *o, struct buf *b)
{
	const struct sandbox_chunk *k = &o->chunk;
	const char *name = v1_output_names[k->stream];
	char id[SSE_ID_MAX];

	o->at.epoch = k->epoch;
	o->at.off[k->stream] = k->off + k->len;
	sse_id_format(id, o->at.epoch, o->at.off[SANDBOX_STDOUT],
		      o->at.off[SANDBOX_STDERR]);
	buf_printf(b, "id: %s\nevent: %s\ndata: {\"data\":\"", id, name);
	base64_encode(b, o->data, k->len);
	buf_printf(b, "\",\"offset\":%llu,\"stream\":\"%s\"}\n\n",
		   (unsigned long long)k->off, name);
}

static void v1_output_rewound(struct v1_output *o, struct buf *b)
{
	json_t *j = json_object();

	o->at = o->chunk.at;
	json_put_int(j, "epoch", (int64_t)o->at.epoch);
	json_put_int(j, "stdout", (int64_t)o->at.off[SANDBOX_STDOUT]);
	json_put_int(j, "stderr", (int64_t)o->at.off[SANDBOX_STDERR]);
	v1_output_event(o, b, "rewound", j);
}

/* Writes what was fetched; 1 after the last event of an exec. */
static int v1_output_write(struct v1_output *o, struct buf *b)
{
	json_t *j;

	o->have = false;
	switch (o->chunk.kind) {
	case SANDBOX_NOTHING:
		return 0;
	case SANDBOX_DATA:
		v1_output_data(o, b);
		return 0;
	case SANDBOX_REWOUND:
		v1_output_rewound(o, b);
		return 0;
	case SANDBOX_EXIT:
		j = json_object();
		json_put_int(j, "code", o->chunk.code);
		json_put_int(j, "signal", o->chunk.signal);
		v1_output_event(o, b, "exit", j);
		return 1;
	case SANDBOX_LOST:
		v1_output_event(o, b, "lost", json_object());
		return 1;
	}
	NEVER("a chunk of no kind");
}

static void v1_output_error(struct v1_output *o, struct buf *b,
			    const struct err *e)
{
	SCOPED(buf_done) struct buf text = { 0 };
	char id[SSE_ID_MAX];

	problem_write(&text, e, 0, NULL);
	sse_id_format(id, o->at.epoch, o->at.off[SANDBOX_STDOUT],
		      o->at.off[SANDBOX_STDERR]);
	/* without its line end */
	sse_write(b, id, "error", buf_cstr(&text), text.len - 1);
}

static int v1_output_next(struct http_stream *s, struct buf *b)
{
	struct v1_output *o = CONTAINER_OF(s, struct v1_output, stream);
	int64_t now = clock_mono(o->conf->clock);
	struct err e = { 0 };

	if (!o->have &&
	    v1_output_fetch(o, o->follow ? V1_OUTPUT_SLICE_MS : 0, &e) < 0) {
		v1_output_error(o, b, &e);
		return 1;
	}
	if (o->chunk.kind == SANDBOX_NOTHING) {
		o->have = false;
		if (!o->follow)
			return 1;
		if (now - o->said_ns >= V1_OUTPUT_PING_NS) {
			sse_write_ping(b);
			o->said_ns = now;
		}
		return 0;
	}
	o->said_ns = now;
	return v1_output_write(o, b);
}

static void v1_output_free(struct http_stream *s)
{
	free(CONTAINER_OF(s, struct v1_output, stream));
}

/* ?offset, else Last-Event-ID, else the beginning. */
static int v1_output_from(const struct call *c, struct sandbox_cursor *at,
			  struct err *e)
{
	const char *s = http_header(c->http, "Last-Event-ID");
	const char *q = http_query(c->http, "offset");

	if (!s || !*s)
		s = q;
	if (!s || !*s)
		return 0;
	if (sse_id_parse(s, &at->epoch, &at->off[SANDBOX_STDOUT],
			 &at->off[SANDBOX_STDERR]) < 0)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "the position must be EPOCH:STDOUT:STDERR, "
			       "such as the id of the last event");
	return 0;
}

int v1_output_get(struct call *c, struct err *e)
{
	SCOPED(exec_done) struct exec x = { 0 };
	SCOPED_FREE struct v1_output *o = NULL;
	struct sandbox_cursor at = { 0 };
	bool follow;
	int r = call_query_bool(c, "follow", true, &follow, e);

	if (r == 0)
		r = v1_output_from(c, &at, e);
	if (r == 0)
		r = call_exec(c, c->param[0], &x, e);
	if (r < 0)
		return r;
	call_reader_close(c);
	o = base_alloc(sizeof(*o));
	o->stream.next = v1_output_next;
	o->stream.free = v1_output_free;
	o->conf = c->conf;
	o->at = at;
	o->follow = follow;
	o->said_ns = clock_mono(c->conf->clock);
	base_strcpy(o->session, sizeof(o->session), x.session);
	base_strcpy(o->exec, sizeof(o->exec), x.id);
	r = v1_output_fetch(o, 0, e);
	if (r < 0)
		return r;
	http_reply_stream(c->http, 200, SSE_TYPE, UINT64_MAX, &STEAL(o)->stream);
	return 0;
}
