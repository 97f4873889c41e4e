/*
 * snapshot: a point of the present, by hand. Prints its id once all of it
 * is durable.
 */
#include "tools/cryo/cryo.h"

#include <stdio.h>

struct snapshot_opts {
	const char *name;
};

static const struct args_opt snapshot_options[] = {
	{ .name = "name",
	  .kind = ARGS_TEXT,
	  .value = "N",
	  .help = "a name that works wherever a moment is asked for",
	  .at = offsetof(struct snapshot_opts, name) },
};

static const struct args_spec snapshot_spec = {
	.verb = "snapshot",
	.usage = "ID [--name N]",
	.about = "Takes a point of the session as it is now, and prints the "
		 "point's id.",
	.opts = snapshot_options,
	.nr_opts = ARRAY_LEN(snapshot_options),
	.min_pos = 1,
	.max_pos = 1,
};

static int snapshot_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct snapshot_opts *o = opts;
	SCOPED_JSON json_t *body = json_object(), *op = NULL;
	int r;

	json_put_str(body, "name", o->name);
	r = cryo_session_verb(x, x->args.pos[0], "snapshots", body, &op, e);
	if (r < 0)
		return r;
	if (x->args.json)
		cryo_print_json(op);
	else
		printf("%s\n", cryo_text(op, "point"));
	return 0;
}

const struct verb verb_snapshot = {
	.spec = &snapshot_spec,
	.summary = "take a point now",
	.opts_size = sizeof(struct snapshot_opts),
	.run = snapshot_run,
};
