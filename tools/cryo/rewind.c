/*
 * rewind: a session goes back in time, in place. The present is kept as a
 * point first, so that --undo can return to it.
 */
#include "tools/cryo/moment.h"

struct rewind_opts {
	const char *at;
	bool undo;
};

static const struct args_opt rewind_options[] = {
	{ .name = "at",
	  .kind = ARGS_TEXT,
	  .value = "T",
	  .help = "the moment to go back to",
	  .at = offsetof(struct rewind_opts, at) },
	{ .name = "undo",
	  .kind = ARGS_FLAG,
	  .help = "return to the present that the last rewind left",
	  .at = offsetof(struct rewind_opts, undo) },
};

static const struct args_spec rewind_spec = {
	.verb = "rewind",
	.usage = "ID --at T | --undo",
	.about = "Takes a session, memory and files, back to a moment. Its "
		 "present is kept as a point\n(before-rewind-N) and stays in "
		 "the timeline.",
	.opts = rewind_options,
	.nr_opts = ARRAY_LEN(rewind_options),
	.min_pos = 1,
	.max_pos = 1,
};

static int rewind_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct rewind_opts *o = opts;
	SCOPED_JSON json_t *body = json_object(), *op = NULL;
	int r;

	json_put_str(body, "at", o->at);
	if (o->undo)
		json_put_bool(body, "undo", true);
	r = cryo_session_verb(x, x->args.pos[0], "rewind", body, &op, e);
	if (r < 0)
		return r;
	if (x->args.json)
		cryo_print_json(op);
	else
		moment_say(op);
	return 0;
}

const struct verb verb_rewind = {
	.spec = &rewind_spec,
	.summary = "take a session back to a moment, in place",
	.opts_size = sizeof(struct rewind_opts),
	.run = rewind_run,
};
