/*
 * exec: a command in a running session. Its exit status is ours.
 */
#include "tools/cryo/follow.h"

#include <stdio.h>

struct exec_opts {
	struct args_list env;
	const char *cwd, *user;
	bool detach, no_stdin;
};

static const struct args_opt exec_options[] = {
	{ .name = "detach",
	  .letter = 'd',
	  .kind = ARGS_FLAG,
	  .help = "print the command's id and don't wait for it",
	  .at = offsetof(struct exec_opts, detach) },
	{ .name = "env",
	  .letter = 'e',
	  .kind = ARGS_LIST,
	  .value = "K[=V]",
	  .help = "a variable for it; without =V the value it has here",
	  .at = offsetof(struct exec_opts, env) },
	{ .name = "cwd",
	  .kind = ARGS_TEXT,
	  .value = "D",
	  .help = "the folder it starts in",
	  .at = offsetof(struct exec_opts, cwd) },
	{ .name = "user",
	  .letter = 'u',
	  .kind = ARGS_TEXT,
	  .value = "U",
	  .help = "who it runs as",
	  .at = offsetof(struct exec_opts, user) },
	{ .name = "no-stdin",
	  .kind = ARGS_FLAG,
	  .help = "don't forward standard input",
	  .at = offsetof(struct exec_opts, no_stdin) },
};

static const struct args_spec exec_spec = {
	.verb = "exec",
	.usage = "ID [--detach] [--env K[=V]] [--cwd D] -- CMD...",
	.about = "Runs a command in a session: standard input is forwarded "
		 "when it is no terminal, signals are\npassed on, the exit "
		 "status is the command's (128 + N when signal N ended it).",
	.opts = exec_options,
	.nr_opts = ARRAY_LEN(exec_options),
	.min_pos = 1,
	.max_pos = 1,
	.command = true,
};

static int exec_detached(struct cryo *x, const struct follow_start *s,
			 struct err *e)
{
	SCOPED_JSON json_t *exec = NULL;
	int r = follow_start(x, s, &exec, e);

	if (r < 0)
		return r;
	if (x->args.json)
		cryo_print_json(exec);
	else
		printf("%s\n", cryo_text(exec, "id"));
	return 0;
}

static int exec_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct exec_opts *o = opts;
	struct follow_start s = {
		.session = x->args.pos[0],
		.argv = x->args.cmd,
		.env = &o->env,
		.cwd = o->cwd,
		.user = o->user,
	};
	struct follow_input *in;
	int status = 0, r;

	if (o->detach)
		return exec_detached(x, &s, e);
	s.has_stdin = !o->no_stdin && follow_has_stdin();
	in = follow_signals(x->client); /* ends with the process */
	r = follow_run(x, in, &s, &status, e);
	return r < 0 ? r : status;
}

const struct verb verb_exec = {
	.spec = &exec_spec,
	.summary = "run a command in a session",
	.opts_size = sizeof(struct exec_opts),
	.run = exec_run,
};
