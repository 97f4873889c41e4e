/*
 * pause: a session's clock stands still; it stays in memory.
 */
#include "tools/cryo/cryo.h"

static const struct args_spec pause_spec = {
	.verb = "pause",
	.usage = "ID",
	.about = "Stops a session where it is. It stays in memory and its "
		 "time limit stands still;\n`cryo resume` lets it go on.",
	.min_pos = 1,
	.max_pos = 1,
};

static int pause_run(struct cryo *x, const void *opts, struct err *e)
{
	SCOPED_JSON json_t *op = NULL;
	int r = cryo_session_verb(x, x->args.pos[0], "pause", NULL, &op, e);

	(void)opts;
	if (r == 0 && x->args.json)
		cryo_print_json(op);
	return r;
}

const struct verb verb_pause = {
	.spec = &pause_spec,
	.summary = "stop a session's clock; it stays in memory",
	.run = pause_run,
};
