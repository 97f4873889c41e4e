/*
 * api_sse: what is written, byte by byte; what is read does not depend on
 * how the stream is cut; bounds.
 */
#include "api/sse.h"

#include "tests/tap.h"

struct seen {
	struct buf text; /* "name|id|data;" of each event */
	int stop_at;
	int nr;
};

static int see(void *ctx, const struct sse_event *ev)
{
	struct seen *s = ctx;

	buf_printf(&s->text, "%s|%s|%.60s;", ev->name, ev->id, ev->data);
	return ++s->nr == s->stop_at ? -ECANCELED : 0;
}

static void writing(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	char id[SSE_ID_MAX];

	sse_id_format(id, 3, 1024, 7);
	is_str(id, "3:1024:7", "an id is epoch:out:err");
	sse_write(&b, id, "stdout", "{\"a\":1}", 7);
	sse_write_ping(&b);
	sse_write(&b, NULL, "exit", "{}", 2);
	is_str(buf_cstr(&b),
	       "id: 3:1024:7\nevent: stdout\ndata: {\"a\":1}\n\n"
	       ": ping\n\n"
	       "event: exit\ndata: {}\n\n",
	       "events as the standard wants them");
}

static void ids(void)
{
	static const char *const bad[] = {
		"",	   "1",	     "1:2",    "1:2:",
		"1:2:3:4", "-1:2:3", "1:2:x",  ":2:3",
		" 1:2:3",  "1:2:3 ", "+1:2:3", "18446744073709551616:0:0",
	};
	uint64_t a = 9, b = 9, c = 9;

	is_int(sse_id_parse("7:18446744073709551615:0", &a, &b, &c), 0,
	       "an id is read");
	ok(a == 7 && b == UINT64_MAX && c == 0, "with its three numbers");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		is_int(sse_id_parse(bad[i], &a, &b, &c), -EINVAL,
		       "refuses \"%s\"", bad[i]);
	ok(a == 7 && b == UINT64_MAX && c == 0, "and touches nothing");
}

/* Every kind of line the standard has, and what must come of it. */
static const char stream[] =
	"\xef\xbb\xbf: a comment\n\n"
	"data: one\n\n"
	"id: 1:2:3\r\nevent: stdout\r\ndata: two\r\ndata: lines\r\n\r\n"
	"data\n\n"
	"event: nothing\n\n"
	"data:no blank\rid: x\r\r"
	": ping\n\n"
	"unknown: field\ndata:  keeps one blank\n\n"
	"data: never dispatched\n";
static const char expected[] = "message||one;"
			       "stdout|1:2:3|two\nlines;"
			       "message|1:2:3|;"
			       "message|x|no blank;"
			       "message|x| keeps one blank;";

static void reading(uint64_t seed)
{
	bool same = true;

	for (int i = 0; i < 300 && same; i++) {
		struct seen s = { 0 };
		struct sse_reader r = { .fn = see, .ctx = &s };
		const char *p = stream + 3; /* no byte order mark from us */
		size_t left = sizeof(stream) - 4;

		while (left) {
			size_t n = 1 + (size_t)(tap_rand(&seed) % 12);

			n = MIN(n, left);
			same &= sse_reader_put(&r, p, n) == 0;
			p += n;
			left -= n;
		}
		same &= !strcmp(buf_cstr(&s.text), expected);
		if (!same)
			printf("#   got %s\n", buf_cstr(&s.text));
		buf_done(&s.text);
		sse_reader_done(&r);
	}
	ok(same, "the events don't depend on how the stream is cut");
}

static void limits(void)
{
	struct seen s = { .stop_at = 2 };
	struct sse_reader r = { .fn = see, .ctx = &s };
	SCOPED_FREE char *long_line = base_alloc(SSE_EVENT_MAX + 64);
	int n = 0;

	is_int(sse_reader_put(&r, "data: 1\n\ndata: 2\n\ndata: 3\n\n", 27),
	       -ECANCELED, "what the callback says ends the reading");
	is_int(s.nr, 2, "at once");
	memset(long_line, 'x', SSE_EVENT_MAX + 64);
	sse_reader_reset(&r);
	is_int(sse_reader_put(&r, long_line, SSE_EVENT_MAX + 64), -EMSGSIZE,
	       "a line without an end is refused");
	ok(r.line.cap <= 2 * SSE_EVENT_MAX + 4096, "and not kept");
	sse_reader_reset(&r);
	for (int i = 0; i < 100 && n == 0; i++) {
		n = sse_reader_put(&r, "data: ", 6);
		if (n == 0)
			n = sse_reader_put(&r, long_line, 16384);
		if (n == 0)
			n = sse_reader_put(&r, "\n", 1);
	}
	is_int(n, -EMSGSIZE, "an event without an end is refused");
	buf_done(&s.text);
	sse_reader_done(&r);
}

static void reconnecting(void)
{
	struct seen s = { 0 };
	struct sse_reader r = { .fn = see, .ctx = &s };

	sse_reader_put(&r, "id: 1:1:1\ndata: a\n\nid: 1:2:1\ndata: cut", 38);
	is_str(buf_cstr(&s.text), "message|1:1:1|a;",
	       "half an event is not given");
	sse_reader_reset(&r);
	sse_reader_put(&r, "data: b\n\n", 9);
	is_str(buf_cstr(&s.text), "message|1:1:1|a;message|1:2:1|b;",
	       "a new connection begins with no event half read");
	buf_done(&s.text);
	sse_reader_done(&r);
}

int main(void)
{
	writing();
	ids();
	reading(tap_seed());
	limits();
	reconnecting();
	return tap_done();
}
