/*
 * resume: a paused or suspended session goes on; with --at from an earlier
 * moment.
 */
#include "tools/cryo/moment.h"

struct resume_opts {
	const char *at;
	bool forensic;
};

static const struct args_opt resume_options[] = {
	{ .name = "at",
	  .kind = ARGS_TEXT,
	  .value = "T",
	  .help = "go on from this moment instead of the newest point",
	  .at = offsetof(struct resume_opts, at) },
	{ .name = "forensic",
	  .kind = ARGS_FLAG,
	  .help = "start even if the guest's agent stays silent",
	  .at = offsetof(struct resume_opts, forensic) },
};

static const struct args_spec resume_spec = {
	.verb = "resume",
	.usage = "ID [--at T]",
	.about = "Lets a paused session go on, or starts a suspended or "
		 "failed one from its newest point\n(or, with --at, from an "
		 "earlier one).",
	.opts = resume_options,
	.nr_opts = ARRAY_LEN(resume_options),
	.min_pos = 1,
	.max_pos = 1,
};

static int resume_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct resume_opts *o = opts;
	SCOPED_JSON json_t *body = json_object(), *op = NULL;
	int r;

	json_put_str(body, "at", o->at);
	if (o->forensic)
		json_put_bool(body, "forensic", true);
	r = cryo_session_verb(x, x->args.pos[0], "resume", body, &op, e);
	if (r < 0)
		return r;
	if (x->args.json)
		cryo_print_json(op);
	else
		moment_say(op);
	return 0;
}

const struct verb verb_resume = {
	.spec = &resume_spec,
	.summary = "let a paused or suspended session go on",
	.opts_size = sizeof(struct resume_opts),
	.run = resume_run,
};
