/*
 * run: one command in a session of its own, which is gone afterwards.
 *
 * How it works: create, wait, run the command with its streams connected,
 * fetch what was asked for, destroy. With --keep durable the session stays.
 *
 * Invariants: our exit status is the command's; the session is destroyed
 * also when the command fails or is interrupted. If we are killed, the time
 * limit that it was created with removes it.
 */
#include "tools/cryo/create.h"
#include "tools/cryo/fetch.h"
#include "tools/cryo/follow.h"

#include <signal.h>
#include <stdio.h>

#define RUN_TTL "24h"

struct run_opts {
	struct create_common common;
	struct args_list out, env;
	const char *keep, *cwd, *user;
	bool no_stdin;
};

static const struct args_opt run_options[] = {
	CREATE_COMMON(struct run_opts, common),
	{ .name = "keep",
	  .kind = ARGS_TEXT,
	  .value = "none|durable",
	  .help = "durable: keep the session and its points",
	  .at = offsetof(struct run_opts, keep) },
	{ .name = "out",
	  .kind = ARGS_LIST,
	  .value = "/path=./dir",
	  .help = "afterwards, fetch this file or folder to here",
	  .at = offsetof(struct run_opts, out) },
	{ .name = "env",
	  .letter = 'e',
	  .kind = ARGS_LIST,
	  .value = "K[=V]",
	  .help = "a variable for it; without =V the value it has here",
	  .at = offsetof(struct run_opts, env) },
	{ .name = "cwd",
	  .kind = ARGS_TEXT,
	  .value = "D",
	  .help = "the folder it starts in",
	  .at = offsetof(struct run_opts, cwd) },
	{ .name = "user",
	  .letter = 'u',
	  .kind = ARGS_TEXT,
	  .value = "U",
	  .help = "who it runs as",
	  .at = offsetof(struct run_opts, user) },
	{ .name = "no-stdin",
	  .kind = ARGS_FLAG,
	  .help = "don't forward standard input",
	  .at = offsetof(struct run_opts, no_stdin) },
};

static const struct args_spec run_spec = {
	.verb = "run",
	.usage = "[--template T] [--keep none|durable] [--out /path=./dir] "
		 "-- CMD...",
	.about = "Runs one command in a new session and destroys it "
		 "afterwards. The exit status is the command's.",
	.opts = run_options,
	.nr_opts = ARRAY_LEN(run_options),
	.command = true,
};

/* "/path=./dir"; all are checked before anything is made. */
static int run_split_out(const char *word, char **ret_path,
			 const char **ret_dst, struct err *e)
{
	const char *eq = strchr(word, '=');

	if (word[0] != '/' || !eq || !eq[1])
		return err_set(e, -EINVAL, ERR_INVALID,
			       "--out %.100s: write it as /path/in/session="
			       "./path/here",
			       word);
	*ret_path = base_strdup(word);
	(*ret_path)[eq - word] = 0;
	*ret_dst = eq + 1;
	return 0;
}

static int run_check(const struct run_opts *o, struct err *e)
{
	for (int i = 0; i < o->out.nr; i++) {
		SCOPED_FREE char *path = NULL;
		const char *dst;
		int r = run_split_out(o->out.v[i], &path, &dst, e);

		if (r < 0)
			return r;
	}
	return 0;
}

static int run_fetch_one(struct cryo *x, const char *session, const char *word,
			 struct err *e)
{
	SCOPED_FREE char *path = NULL;
	SCOPED_JSON json_t *st = NULL;
	const char *dst;
	int r = run_split_out(word, &path, &dst, e);

	if (r == 0)
		r = fetch_stat(x, session, path, &st, e);
	if (r < 0)
		return r;
	if (!strcmp(cryo_text(st, "kind"), "directory"))
		return fetch_folder(x, session, path, dst, e);
	return fetch_file(x, session, path, dst, e);
}

static int run_create(struct cryo *x, const struct run_opts *o, json_t **ret,
		      struct err *e)
{
	SCOPED_JSON json_t *body = json_object();

	create_body(body, &o->common);
	if (!o->common.ttl)
		json_put_str(body, "ttl", RUN_TTL);
	json_put_str(body, "keep", o->keep ? o->keep : "none");
	return cryo_operate(x, "POST", "/v1/sessions", body, ret, e);
}

static int run_destroy(struct cryo *x, const char *session, struct err *e)
{
	SCOPED(buf_done) struct buf path = { 0 };
	SCOPED_JSON json_t *op = NULL;

	cryo_session_path(&path, session, NULL);
	return cryo_operate(x, "DELETE", buf_cstr(&path), NULL, &op, e);
}

/* Everything between creation and destruction. */
static int run_inside(struct cryo *x, const struct run_opts *o,
		      struct follow_input *in, const char *session,
		      int *ret_status, struct err *e)
{
	struct follow_start s = {
		.session = session,
		.argv = x->args.cmd,
		.env = &o->env,
		.cwd = o->cwd,
		.user = o->user,
		.has_stdin = !o->no_stdin && follow_has_stdin(),
	};
	int r;

	if (follow_interrupted(in)) {
		*ret_status = 128 + SIGINT;
		return 0;
	}
	r = follow_run(x, in, &s, ret_status, e);
	for (int i = 0; r == 0 && i < o->out.nr; i++)
		r = run_fetch_one(x, session, o->out.v[i], e);
	return r;
}

static int run_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct run_opts *o = opts;
	SCOPED_JSON json_t *op = NULL;
	struct follow_input *in;
	const char *session;
	struct err late = { 0 };
	int status = 0;
	int r = run_check(o, e);

	if (r < 0) {
		x->usage = true;
		return r;
	}
	in = follow_signals(x->client); /* ends with the process */
	r = run_create(x, o, &op, e);
	if (!op)
		return r;
	session = cryo_text(op, "session");
	if (r == 0)
		r = run_inside(x, o, in, session, &status, e);
	if (o->keep && !strcmp(o->keep, "durable")) {
		fprintf(stderr, "cryo: session %s is kept\n", session);
	} else if (run_destroy(x, session, &late) < 0) {
		fprintf(stderr, "cryo: session %s could not be destroyed: %s\n",
			session, late.msg);
		if (r == 0 && !status)
			status = CRYO_EXIT_FAILED;
	}
	return r < 0 ? r : status;
}

const struct verb verb_run = {
	.spec = &run_spec,
	.summary = "run one command in a session of its own",
	.opts_size = sizeof(struct run_opts),
	.run = run_run,
};
