/*
 * timeline: the points of a session, the lines that rewinds left, and its
 * forks, drawn in the terminal.
 */
#include "tools/cryo/cryo.h"
#include "tools/cryo/graph.h"

#include <inttypes.h>
#include <stdio.h>

struct timeline_opts {
	int64_t limit;
	bool all;
};

static const struct args_opt timeline_options[] = {
	{ .name = "limit",
	  .letter = 'n',
	  .kind = ARGS_INT,
	  .value = "N",
	  .help = "the newest N points; else 1000",
	  .min = 1,
	  .max = 20000,
	  .at = offsetof(struct timeline_opts, limit) },
	{ .name = "all",
	  .kind = ARGS_FLAG,
	  .help = "a line for each rolling point",
	  .at = offsetof(struct timeline_opts, all) },
};

static const struct args_spec timeline_spec = {
	.verb = "timeline",
	.usage = "ID [--all] [-n N]",
	.about = "Draws a session's points from the oldest down to now: one "
		 "column for each line of time,\nhollow dots where a rewind "
		 "left a line, arrows for forks.",
	.opts = timeline_options,
	.nr_opts = ARRAY_LEN(timeline_options),
	.min_pos = 1,
	.max_pos = 1,
};

/* As POSIX orders them; the first that is set decides. */
static bool timeline_utf8(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *v = getenv(names[i]);

		if (v && *v)
			return strcasestr(v, "utf-8") || strcasestr(v, "utf8");
	}
	return false;
}

static int timeline_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct timeline_opts *o = opts;
	struct graph_style style = { .utf8 = timeline_utf8(), .all = o->all };
	SCOPED(buf_done) struct buf path = { 0 }, text = { 0 };
	SCOPED_JSON json_t *doc = NULL;
	char limit[24];
	int r;

	cryo_session_path(&path, x->args.pos[0], "timeline");
	snprintf(limit, sizeof(limit), "%" PRId64, o->limit);
	client_query(&path, "limit", o->limit ? limit : NULL);
	r = client_call(x->client, "GET", buf_cstr(&path), NULL, &doc, e);
	if (r < 0)
		return r;
	if (x->args.json) {
		cryo_print_json(doc);
		return 0;
	}
	graph_draw(&text, doc, &style);
	fwrite(text.p, 1, text.len, stdout);
	return 0;
}

const struct verb verb_timeline = {
	.spec = &timeline_spec,
	.summary = "draw a session's points, lines and forks",
	.opts_size = sizeof(struct timeline_opts),
	.run = timeline_run,
};
