/*
 * snapshots: the points of a session, newest first.
 */
#include "tools/cryo/cryo.h"
#include "tools/cryo/table.h"

struct snapshots_opts {
	int64_t limit;
};

static const struct args_opt snapshots_options[] = {
	{ .name = "limit",
	  .letter = 'n',
	  .kind = ARGS_INT,
	  .value = "N",
	  .help = "only the newest N",
	  .min = 1,
	  .max = INT32_MAX,
	  .at = offsetof(struct snapshots_opts, limit) },
};

static const struct args_spec snapshots_spec = {
	.verb = "snapshots",
	.usage = "ID [-n N]",
	.about = "Lists the points of a session, newest first. LINE: whether "
		 "the present came through the point.",
	.opts = snapshots_options,
	.nr_opts = ARRAY_LEN(snapshots_options),
	.min_pos = 1,
	.max_pos = 1,
};

struct snapshots_walk {
	struct table table;
	bool json;
	int64_t left;
};

static void snapshots_row(struct table *t, const json_t *p)
{
	char size[TABLE_SIZE_LEN], when[TABLE_TIME_LEN];

	table_time(when, cryo_text(p, "time"));
	table_size(size, cryo_int(p, "stored_bytes"));
	table_put(t, cryo_text(p, "id"));
	table_put(t, when);
	table_put(t, cryo_text(p, "kind"));
	table_put(t, cryo_text(p, "name"));
	table_putf(t, "%lld", (long long)cryo_int(p, "epoch"));
	table_put(t, cryo_bool(p, "on_line") ? "yes" : "left");
	table_put(t, size);
	table_putf(t, "%.1f ms", (double)cryo_int(p, "freeze_us") / 1000);
}

static int snapshots_take(void *ctx, json_t *p)
{
	struct snapshots_walk *w = ctx;

	if (w->json)
		cryo_print_json(p);
	else
		snapshots_row(&w->table, p);
	return --w->left == 0;
}

static int snapshots_run(struct cryo *x, const void *opts, struct err *e)
{
	static const char *const titles[] = { "ID",	"TIME",	 "KIND",
					      "NAME",	"EPOCH", "LINE",
					      "STORED", "FREEZE" };
	const struct snapshots_opts *o = opts;
	struct snapshots_walk w = { .json = x->args.json,
				    .left = o->limit ? o->limit : INT64_MAX };
	SCOPED(buf_done) struct buf path = { 0 };
	int r;

	table_init(&w.table, titles, ARRAY_LEN(titles), 1 << 4 | 3 << 6);
	cryo_session_path(&path, x->args.pos[0], "snapshots");
	r = cryo_list(x, buf_cstr(&path), snapshots_take, &w, e);
	if (r >= 0 && !w.json)
		table_print(&w.table, stdout);
	table_done(&w.table);
	return r < 0 ? r : 0;
}

const struct verb verb_snapshots = {
	.spec = &snapshots_spec,
	.summary = "list a session's points",
	.opts_size = sizeof(struct snapshots_opts),
	.run = snapshots_run,
};
