/*
 * api_stream: bodies that are made while they are sent: a command's output
 * from any position, the event log, slow readers, clients that vanish, and
 * the end of the server in the middle of it all.
 */
#include "tests/unit/api_world.h"

#include "api/base64.h"
#include "api/sse.h"

static struct world w;
static char session[ID_LEN + 1];

/* What a reader of a stream gathers. */
struct heard {
	struct buf out[2];
	struct buf names; /* "stdout stdout exit " */
	char id[SSE_ID_MAX];
	int events;
	uint64_t next[2]; /* offset that must come next */
	bool gap;
	struct buf last; /* data of the last event */
};

static int hear(void *ctx, const struct sse_event *ev)
{
	struct heard *h = ctx;
	SCOPED_JSON json_t *j = NULL;
	const char *data;
	struct err e;
	uint64_t off;
	int s = !strcmp(ev->name, "stderr");

	h->events++;
	buf_printf(&h->names, "%s ", ev->name);
	base_strcpy(h->id, sizeof(h->id), ev->id);
	buf_reset(&h->last);
	buf_put_str(&h->last, ev->data);
	if (!s && strcmp(ev->name, "stdout"))
		return 0;
	if (json_parse(&j, ev->data, ev->len, &e) < 0)
		return -EPROTO;
	data = json_string_value(json_object_get(j, "data"));
	off = (uint64_t)json_integer_value(json_object_get(j, "offset"));
	h->gap |= off != h->next[s];
	base64_decode(&h->out[s], data, strlen(data));
	h->next[s] = off + strlen(data) / 4 * 3 -
		     (data[strlen(data) - 1] == '=') -
		     (size_t)(data[strlen(data) - 2] == '=');
	return 0;
}

static void heard_done(struct heard *h)
{
	buf_done(&h->out[0]);
	buf_done(&h->out[1]);
	buf_done(&h->names);
	buf_done(&h->last);
	*h = (struct heard){ 0 };
}

static void heard_read(struct heard *h, const struct answer *a)
{
	struct sse_reader r = { .fn = hear, .ctx = h };

	is_int(sse_reader_put(&r, a->body.p, a->body.len), 0,
	       "the stream is well formed");
	sse_reader_done(&r);
}

static void new_exec(char ret[ID_LEN + 1])
{
	SCOPED(answer_done) struct answer a = { 0 };
	char path[64];

	snprintf(path, sizeof(path), "/v1/sessions/%s/execs", session);
	is_int(world_do(&w, &a, "POST", path, "{\"argv\":[\"x\"]}"), 201,
	       "a command");
	base_strcpy(ret, ID_LEN + 1, answer_str(&a, "id"));
}

static int output(struct answer *a, const char *exec, const char *query)
{
	char path[160];

	snprintf(path, sizeof(path), "/v1/execs/%s/output%s", exec, query);
	return world_do(&w, a, "GET", path, NULL);
}

static void whole(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	SCOPED(heard_done) struct heard h = { 0 };
	char x[ID_LEN + 1];

	new_exec(x);
	world_say(&w, x, 0, "hello\n", 6);
	world_say(&w, x, 1, "\0\xff", 2);
	is_int(output(&a, x, "?follow=0"), 200, "what is there now");
	is_str(answer_header(&a, "Content-Type"), "text/event-stream",
	       "as server-sent events");
	ok(a.whole, "with a proper end");
	ok(strstr(buf_cstr(&a.body),
		  "id: 1:6:0\nevent: stdout\ndata: {\"data\":\"aGVsbG8K\","
		  "\"offset\":0,\"stream\":\"stdout\"}\n\n") != NULL,
	   "an event as documented");
	heard_read(&h, &a);
	is_str(buf_cstr(&h.names), "stdout stderr ", "one for each stream");
	is_str(h.id, "1:6:2", "the id is the position behind both");
	ok(h.out[1].len == 2 && !memcmp(h.out[1].p, "\0\xff", 2),
	   "any byte goes through");
	heard_done(&h);
	world_exit(&w, x, 3, 0);
	output(&a, x, "");
	heard_read(&h, &a);
	is_str(buf_cstr(&h.names), "stdout stderr exit ", "followed to the end");
	is_str(buf_cstr(&h.last), "{\"code\":3,\"signal\":0}", "its status");
	ok(a.whole && !h.gap, "complete");
}

static void resume(void)
{
	static const char *const bad[] = { "?offset=1", "?offset=a:b:c",
					   "?offset=1:2", "?follow=maybe",
					   "?offset=-1:0:0" };
	SCOPED(answer_done) struct answer a = { 0 };
	SCOPED(heard_done) struct heard h = { 0 };
	char x[ID_LEN + 1], path[96];

	new_exec(x);
	world_say(&w, x, 0, "0123456789", 10);
	world_say(&w, x, 1, "abcdef", 6);
	world_exit(&w, x, 0, 15);
	h.next[0] = 4;
	h.next[1] = 6;
	output(&a, x, "?offset=1:4:6");
	heard_read(&h, &a);
	ok(!h.gap, "from the position asked for");
	is_str(buf_cstr(&h.out[0]), "456789", "the rest of the one");
	is_str(buf_cstr(&h.names), "stdout exit ", "none of the other");
	is_str(buf_cstr(&h.last), "{\"code\":0,\"signal\":15}", "a signal");
	heard_done(&h);
	snprintf(path, sizeof(path), "/v1/execs/%s/output?offset=1:0:0", x);
	world_request(world_connect_unix(&w), &a, "GET", path,
		      "Host: localhost\r\nLast-Event-ID: 1:10:2\r\n", NULL, 0);
	heard_read(&h, &a);
	is_str(buf_cstr(&h.out[1]), "cdef",
	       "a reconnecting browser's position comes first");
	heard_done(&h);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		is_int(output(&a, x, bad[i]), 400, "refuses %s", bad[i]);
}

/* Any cut of a stream, resumed from the last id, gives each byte once. */
static void cuts(uint64_t seed)
{
	SCOPED(answer_done) struct answer a = { 0 };
	SCOPED(heard_done) struct heard h = { 0 };
	SCOPED_FREE uint8_t *bytes = base_alloc(300000);
	char x[ID_LEN + 1], query[96] = "?offset=0:0:0";
	int turns = 0;

	for (size_t i = 0; i < 300000; i++)
		bytes[i] = (uint8_t)tap_rand(&seed);
	new_exec(x);
	world_say(&w, x, 0, bytes, 300000);
	world_say(&w, x, 1, bytes + 1000, 100000);
	world_exit(&w, x, 0, 0);
	while (turns++ < 50 && !strstr(buf_cstr(&h.names), "exit")) {
		struct sse_reader r = { .fn = hear, .ctx = &h };
		size_t n;

		output(&a, x, query);
		n = (size_t)(tap_rand(&seed) % 400000);
		sse_reader_put(&r, a.body.p, MIN(n, a.body.len));
		sse_reader_done(&r);
		snprintf(query, sizeof(query), "?offset=%s",
			 h.id[0] ? h.id : "0:0:0");
	}
	ok(turns > 2, "read in %d pieces", turns);
	ok(!h.gap && h.out[0].len == 300000 && h.out[1].len == 100000 &&
		   !memcmp(h.out[0].p, bytes, 300000) &&
		   !memcmp(h.out[1].p, bytes + 1000, 100000),
	   "each byte once, in order");
}

static void specials(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	SCOPED(heard_done) struct heard h = { 0 };
	struct world_exec *xe;
	char x[ID_LEN + 1];

	new_exec(x);
	world_say(&w, x, 0, "0123456789", 10);
	xe = world_exec(&w, x);
	xe->kept[0] = 6;
	output(&a, x, "?follow=0");
	heard_read(&h, &a);
	is_str(buf_cstr(&h.out[0]), "6789", "bytes that are gone are skipped");
	ok(h.gap && !strcmp(h.id, "1:10:0"), "and the offsets say so");
	heard_done(&h);
	xe->epoch = 2;
	xe->rewound = true;
	xe->rewound_to = (struct sandbox_cursor){ 2, { 7, 0 } };
	output(&a, x, "?follow=0&offset=1:10:0");
	heard_read(&h, &a);
	is_str(buf_cstr(&h.names), "rewound stdout ", "time went back");
	is_str(buf_cstr(&h.out[0]), "789", "output goes on where lines part");
	is_str(h.id, "2:10:0", "in the new epoch");
	heard_done(&h);
	w.fail_output = 1;
	is_int(output(&a, x, "?follow=0"), 503,
	       "an error before the first "
	       "byte is an HTTP status");
	is_str(answer_str(&a, "type"), "urn:cryo:problem:busy", "and problem");
}

/* Follows with a socket of its own; returns it after the first bytes. */
static int follow(const char *path, const char *accept, struct buf *b,
		  const char *until)
{
	SCOPED(buf_done) struct buf head = { 0 };
	int fd = world_connect_unix(&w);

	buf_printf(&head, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path,
		   accept);
	world_send(fd, head.p, head.len);
	world_receive(fd, b, until);
	return fd;
}

static void following(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	char x[ID_LEN + 1], path[80];
	int64_t t;
	int fd;

	new_exec(x);
	world_say(&w, x, 0, "one", 3);
	snprintf(path, sizeof(path), "/v1/execs/%s/output", x);
	fd = follow(path, "", &b, "b25l");
	ok(strstr(buf_cstr(&b), "b25l") != NULL, "what is there, at once");
	t = clock_mono(&clock_real);
	world_say(&w, x, 0, "two", 3);
	world_receive(fd, &b, "dHdv");
	t = (clock_mono(&clock_real) - t) / NS_PER_MS;
	ok(strstr(buf_cstr(&b), "dHdv") && t < 500,
	   "what comes, as it comes (%lld ms)", (long long)t);
	world_exit(&w, x, 0, 0);
	world_receive(fd, &b, "event: exit");
	world_receive(fd, &b, "\r\n0\r\n\r\n");
	ok(strstr(buf_cstr(&b), "\r\n0\r\n\r\n") != NULL, "then the end");
	close(fd);
}

/* A reader that doesn't read holds up nobody and costs one piece. */
static void slow_reader(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED(answer_done) struct answer a = { 0 };
	size_t len = 8u << 20;
	SCOPED_FREE char *bytes = base_alloc(len);
	char x[ID_LEN + 1], path[80];
	int fd;

	memset(bytes, 'x', len);
	new_exec(x);
	world_say(&w, x, 0, bytes, len);
	world_exit(&w, x, 0, 0);
	snprintf(path, sizeof(path), "/v1/execs/%s/output", x);
	fd = follow(path, "", &b, "event: stdout");
	poll(NULL, 0, 300);
	is_int(world_do(&w, &a, "GET", "/v1/node", NULL), 200,
	       "others are served meanwhile");
	while (!strstr((char *)b.p + (b.len > 4096 ? b.len - 4096 : 0),
		       "event: exit")) {
		size_t before = b.len;

		world_receive(fd, &b, "");
		if (b.len == before)
			break;
		buf_cstr(&b);
	}
	ok(b.len > len / 3 * 4, "and it gets all in the end (%zu bytes)", b.len);
	close(fd);
}

static void vanishing(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	char x[ID_LEN + 1], path[80];
	int fd[10], i;

	new_exec(x);
	world_say(&w, x, 0, "one", 3);
	snprintf(path, sizeof(path), "/v1/execs/%s/output", x);
	for (i = 0; i < 10; i++) {
		buf_reset(&b);
		fd[i] = follow(path, "", &b, "b25l");
	}
	for (i = 0; i < 500 && atomic_load(&w.reading) < 10; i++)
		poll(NULL, 0, 10);
	is_int(atomic_load(&w.reading), 10, "ten clients follow");
	for (i = 0; i < 10; i++)
		close(fd[i]);
	for (i = 0; i < 500 && atomic_load(&w.reading); i++)
		poll(NULL, 0, 10);
	is_int(atomic_load(&w.reading), 0,
	       "gone, they are noticed without a byte to send (%d ms)", i * 10);
}

/* --- the log -------------------------------------------------------------- */

/* Sequence numbers of JSON lines: are they from..., one by one? */
static int count_lines(const struct answer *a, long long first, bool *ordered)
{
	const char *p = (const char *)a->body.p, *end = p + a->body.len;
	long long seq = first;
	int nr = 0;

	*ordered = true;
	while (p < end) {
		SCOPED_JSON json_t *j = NULL;
		size_t n = strcspn(p, "\n");
		struct err e;

		if (n && json_parse(&j, p, n, &e) < 0)
			return -1;
		if (n) {
			*ordered &= json_integer_value(
					    json_object_get(j, "seq")) == seq;
			seq++;
			nr++;
		}
		p += n + 1;
	}
	return nr;
}

static void log_lists(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	long long last;
	bool ordered;

	world_do(&w, &a, "GET", "/v1/node", NULL);
	last = world_nr(answer_str(&a, "seq"));
	is_int(world_do(&w, &a, "GET", "/v1/events", NULL), 200, "the log");
	is_str(answer_header(&a, "Content-Type"), "application/x-ndjson",
	       "as JSON lines");
	buf_cstr(&a.body);
	is_int(count_lines(&a, 1, &ordered), last, "all of it");
	ok(ordered && a.whole, "in order, to the end");
	world_do(&w, &a, "GET", "/v1/events?after=3&limit=4", NULL);
	buf_cstr(&a.body);
	is_int(count_lines(&a, 4, &ordered), 4, "a part of it");
	ok(ordered, "behind the number given");
	world_do_key(&w, &a, w.other, "GET", "/v1/events", NULL);
	ok(!strstr(buf_cstr(&a.body), session) &&
		   strstr(buf_cstr(&a.body), WORLD_OTHER),
	   "a tenant sees its own only");
	{
		char path[80];

		snprintf(path, sizeof(path), "/v1/events?session=%s", session);
		world_do_key(&w, &a, w.other, "GET", path, NULL);
		is_int((int)a.body.len, 0, "also by a session's id");
		world_do(&w, &a, "GET", path, NULL);
		ok(strstr(buf_cstr(&a.body), "session.created") &&
			   !strstr(buf_cstr(&a.body), "key.created"),
		   "of one session");
	}
	is_int(world_do(&w, &a, "GET", "/v1/events?session=nobody", NULL), 404,
	       "an unknown name");
	is_int(world_do(&w, &a, "GET", "/v1/events?after=-1", NULL), 400,
	       "a number that is none");
}

static void log_follows(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	SCOPED(buf_done) struct buf b = { 0 };
	char path[96];
	int64_t t;
	int fd;

	world_do(&w, &a, "GET", "/v1/node", NULL);
	snprintf(path, sizeof(path), "/v1/events?follow=1&after=%s",
		 answer_str(&a, "seq"));
	fd = follow(path, "Accept: text/event-stream\r\n", &b, "\r\n\r\n");
	ok(!strstr(buf_cstr(&b), "data:"), "nothing is new");
	t = clock_mono(&clock_real);
	world_do(&w, &a, "POST", "/v1/keys", "{\"name\":\"follower\"}");
	world_receive(fd, &b, "\n\n");
	t = (clock_mono(&clock_real) - t) / NS_PER_MS;
	ok(strstr(buf_cstr(&b), "follower") && t < 800,
	   "a new event comes at once (%lld ms)", (long long)t);
	ok(strstr(buf_cstr(&b), "event: event\n") && strstr(buf_cstr(&b), "id: "),
	   "as a server-sent event");
	close(fd);
	buf_reset(&b);
	world_do(&w, &a, "GET", "/v1/node", NULL);
	snprintf(path, sizeof(path), "Last-Event-ID: %lld\r\n",
		 world_nr(answer_str(&a, "seq")) - 1);
	fd = follow("/v1/events?follow=1", path, &b, "follower");
	ok(strstr(buf_cstr(&b), "follower") &&
		   !strstr(buf_cstr(&b), "session.created"),
	   "from the last event that was seen");
	close(fd);
}

/* The server stops while clients follow: cut, not ended. */
static void stopping(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	int fd = follow("/v1/events?follow=1", "", &b, "session.created");
	int64_t t = clock_mono(&clock_real);

	api_stop(w.api);
	w.api = NULL;
	t = (clock_mono(&clock_real) - t) / NS_PER_MS;
	ok(t < 4000, "it stops in time (%lld ms)", (long long)t);
	world_receive(fd, &b, NULL);
	ok(!strstr(buf_cstr(&b), "\r\n0\r\n\r\n"),
	   "a body that was cut doesn't look whole");
	close(fd);
}

int main(void)
{
	uint64_t seed = tap_seed();
	SCOPED(answer_done) struct answer a = { 0 };

	world_start(&w, 64);
	is_int(world_do(&w, &a, "POST", "/v1/sessions?wait=5", "{}"), 200,
	       "a session");
	base_strcpy(session, sizeof(session), answer_str(&a, "session"));
	whole();
	resume();
	cuts(seed);
	specials();
	following();
	slow_reader();
	vanishing();
	log_lists();
	log_follows();
	stopping();
	world_stop(&w);
	return tap_done();
}
