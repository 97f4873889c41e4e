/*
 * events: the log, as it was and as it grows.
 *
 * How it works: the server sends JSON Lines; each line is printed as it is
 * (--json) or in short. When the connection is lost while following, it is
 * made again from the last event seen.
 *
 * Invariants: no event is printed twice; none is left out.
 */
#include "tools/cryo/cryo.h"
#include "tools/cryo/table.h"

#include <inttypes.h>

#define EVENTS_LINE_MAX (1u << 20)

struct events_opts {
	int64_t after, limit;
	bool follow;
};

static const struct args_opt events_options[] = {
	{ .name = "after",
	  .kind = ARGS_INT,
	  .value = "SEQ",
	  .help = "only events behind this number",
	  .min = 0,
	  .max = INT64_MAX,
	  .at = offsetof(struct events_opts, after) },
	{ .name = "follow",
	  .letter = 'f',
	  .kind = ARGS_FLAG,
	  .help = "go on with new ones as they happen",
	  .at = offsetof(struct events_opts, follow) },
};

static const struct args_spec events_spec = {
	.verb = "events",
	.usage = "[ID] [--after SEQ] [--follow]",
	.about = "Prints the event log, of one session or of all.",
	.opts = events_options,
	.nr_opts = ARRAY_LEN(events_options),
	.max_pos = 1,
};

struct events {
	struct cryo *x;
	struct buf line;
	uint64_t after; /* last event printed */
	struct err *e;
};

/* "key=value" of the members that are short enough to be read. */
static void events_data(char *ret, size_t len, const json_t *data)
{
	const char *key;
	json_t *v;
	size_t at = 0;

	ret[0] = 0;
	json_object_foreach((json_t *)(uintptr_t)data, key, v) {
		int n = 0;

		if (json_is_string(v) && json_string_length(v) <= 48)
			n = snprintf(ret + at, len - at, " %s=%s", key,
				     json_string_value(v));
		else if (json_is_integer(v))
			n = snprintf(ret + at, len - at,
				     " %s=%" JSON_INTEGER_FORMAT, key,
				     json_integer_value(v));
		if (n < 0 || at + (size_t)n >= len)
			break;
		at += (size_t)n;
	}
	ret[at] = 0;
	for (char *p = ret; *p; p++)
		if ((unsigned char)*p < 32 || *p == 127)
			*p = '?';
}

static void events_print(const json_t *ev)
{
	char when[TABLE_TIME_LEN], data[200];

	table_time(when, cryo_text(ev, "time"));
	events_data(data, sizeof(data), json_object_get(ev, "data"));
	printf("%6" PRId64 "  %s  %-20s %-20s%s\n", cryo_int(ev, "seq"), when,
	       cryo_text(ev, "session"), cryo_text(ev, "type"), data);
}

static int events_line(struct events *w)
{
	SCOPED_JSON json_t *ev = NULL;
	int r;

	if (!w->line.len)
		return 0; /* the server says that it is there */
	r = json_parse(&ev, w->line.p, w->line.len, w->e);
	if (r < 0)
		return r;
	if ((uint64_t)cryo_int(ev, "seq") <= w->after)
		return 0;
	w->after = (uint64_t)cryo_int(ev, "seq");
	if (w->x->args.json)
		cryo_print_json(ev);
	else
		events_print(ev);
	return cryo_flush(w->e);
}

static int events_take(void *ctx, const void *p, size_t len)
{
	struct events *w = ctx;
	const char *s = p, *end = s + len;

	while (s < end) {
		const char *nl = memchr(s, '\n', (size_t)(end - s));
		size_t n = (size_t)((nl ? nl : end) - s);
		int r = 0;

		if (w->line.len + n > EVENTS_LINE_MAX)
			return err_set(w->e, -EMSGSIZE, ERR_INTERNAL,
				       "the server sent a line of more than "
				       "%u bytes",
				       EVENTS_LINE_MAX);
		if (n)
			buf_put(&w->line, s, n);
		s += n + (nl != NULL);
		if (nl) {
			r = events_line(w);
			buf_reset(&w->line);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static void events_path(struct buf *path, const struct events *w,
			const char *session, bool follow)
{
	char after[24];

	buf_put_str(path, "/v1/events");
	snprintf(after, sizeof(after), "%" PRIu64, w->after);
	client_query(path, "after", after);
	client_query(path, "session", session);
	client_query(path, "follow", follow ? "1" : NULL);
}

static int events_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct events_opts *o = opts;
	const char *session = x->args.nr_pos ? x->args.pos[0] : NULL;
	struct events w = { .x = x, .after = (uint64_t)o->after, .e = e };
	struct client_retry retry = { 0 };
	bool away = false;
	int r;

	for (;;) {
		SCOPED(buf_done) struct buf path = { 0 };
		uint64_t before = w.after;

		*e = (struct err){ 0 };
		events_path(&path, &w, session, o->follow);
		buf_reset(&w.line);
		r = client_stream(x->client, buf_cstr(&path), NULL, events_take,
				  &w, &away, e);
		if (w.after != before)
			retry = (struct client_retry){ 0 };
		if (r == CLIENT_STOPPED || (r == CLIENT_ENDED && !o->follow))
			break;
		if (r < 0 && !(away && (w.after || retry.tries)))
			break;
		if (!client_retry_wait(&retry))
			break;
	}
	buf_done(&w.line);
	if (r == CLIENT_CUT)
		return err_set(e, -EPIPE, ERR_BUSY,
			       "the daemon went away after event %" PRIu64,
			       w.after);
	return r < 0 || e->msg[0] ? -EIO : 0;
}

const struct verb verb_events = {
	.spec = &events_spec,
	.summary = "print the event log",
	.opts_size = sizeof(struct events_opts),
	.run = events_run,
};
