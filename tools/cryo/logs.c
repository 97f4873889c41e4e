/*
 * logs: what a command has written so far.
 */
#include "tools/cryo/follow.h"

struct logs_opts {
	bool follow;
};

static const struct args_opt logs_options[] = {
	{ .name = "follow",
	  .letter = 'f',
	  .kind = ARGS_FLAG,
	  .help = "go on until the command ends",
	  .at = offsetof(struct logs_opts, follow) },
};

static const struct args_spec logs_spec = {
	.verb = "logs",
	.usage = "EXEC [--follow]",
	.about = "Prints what a command has written so far, standard output "
		 "and error each to its own.",
	.opts = logs_options,
	.nr_opts = ARRAY_LEN(logs_options),
	.min_pos = 1,
	.max_pos = 1,
};

/* With --json: {"data": text, "stream": "stdout"} a line. */
static int logs_json(void *ctx, int stream, const void *p, size_t len,
		     struct err *e)
{
	SCOPED_JSON json_t *o = json_object();
	SCOPED(buf_done) struct buf text = { 0 };

	(void)ctx;
	(void)e;
	buf_put(&text, p, len);
	json_put_str(o, "stream", stream ? "stderr" : "stdout");
	json_put_str(o, "data", buf_cstr(&text));
	cryo_print_json(o);
	return 0;
}

static int logs_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct logs_opts *o = opts;
	struct follow f = {
		.client = x->client,
		.exec = x->args.pos[0],
		.once = !o->follow,
		.fn = x->args.json ? logs_json : follow_print,
	};

	return follow_output(&f, e);
}

const struct verb verb_logs = {
	.spec = &logs_spec,
	.summary = "print a command's output",
	.opts_size = sizeof(struct logs_opts),
	.run = logs_run,
};
