/*
 * cryo: the command line. main() finds the verb, parses its words, finds the
 * daemon, runs it, and prints what went wrong.
 *
 * Exit status: 0 done; 1 failed; 2 wrong usage; `run` and `exec` end with
 * the status of the command they ran (128 + N when signal N ended it).
 *
 * A crash leaves nothing behind: what was accepted goes on in the daemon.
 */
#include "tools/cryo/cryo.h"

#include <signal.h>
#include <stdio.h>

static const struct verb *const main_verbs[] = {
	&verb_up,	 &verb_doctor,	 &verb_template, &verb_run,
	&verb_create,	 &verb_ls,	 &verb_show,	 &verb_exec,
	&verb_logs,	 &verb_cp,	 &verb_pause,	 &verb_suspend,
	&verb_resume,	 &verb_rewind,	 &verb_fork,	 &verb_snapshot,
	&verb_snapshots, &verb_timeline, &verb_events,	 &verb_key,
	&verb_verify,	 &verb_rm,
};

static void main_help(void)
{
	printf("cryo " CRYO_VERSION ": sandboxes with a time machine\n\n"
	       "usage: cryo VERB [options]    cryo VERB --help\n\n");
	for (size_t i = 0; i < ARRAY_LEN(main_verbs); i++)
		printf("  %-10s %s\n", main_verbs[i]->spec->verb,
		       main_verbs[i]->summary);
	printf("\nA moment (T) is an RFC 3339 time, -10m, a point's id or "
	       "name, or @SEQ.\nThe daemon is found by --data or CRYO_DATA, "
	       "or by CRYO_URL and CRYO_KEY.\n");
}

static const struct verb *main_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(main_verbs); i++)
		if (!strcmp(main_verbs[i]->spec->verb, name))
			return main_verbs[i];
	return NULL;
}

static int main_fail(const char *verb, const struct err *e, int status)
{
	fflush(stdout);
	fprintf(stderr, "cryo %s: %s\n", verb, e->msg);
	return status;
}

static int main_run(const struct verb *v, int argc, char **argv)
{
	SCOPED_FREE void *opts = base_alloc(v->opts_size + 1);
	SCOPED_CLIENT struct client *client = NULL;
	struct cryo x = { 0 };
	struct err e = { 0 };
	int r = args_parse(v->spec, argc, argv, opts, &x.args, &e);

	if (r < 0)
		return main_fail(v->spec->verb, &e, CRYO_EXIT_USAGE);
	if (r > 0)
		return 0;
	if (!v->offline) {
		r = client_new(&client, x.args.data, &e);
		if (r < 0)
			return main_fail(v->spec->verb, &e, CRYO_EXIT_FAILED);
		x.client = client;
	}
	r = v->run(&x, opts, &e);
	if (r >= 0 && cryo_flush(&e) < 0)
		r = -EIO;
	if (r >= 0)
		return r;
	return main_fail(v->spec->verb, &e,
			 x.usage ? CRYO_EXIT_USAGE : CRYO_EXIT_FAILED);
}

int main(int argc, char **argv)
{
	const struct verb *v;

	signal(SIGPIPE, SIG_IGN);
	if (argc < 2 || !strcmp(argv[1], "help") ||
	    !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		main_help();
		return argc < 2 ? CRYO_EXIT_USAGE : 0;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("cryo " CRYO_VERSION "\n");
		return 0;
	}
	v = main_find(argv[1]);
	if (!v) {
		fprintf(stderr,
			"cryo: there is no verb \"%.40s\"; `cryo help` lists "
			"them\n",
			argv[1]);
		return CRYO_EXIT_USAGE;
	}
	return main_run(v, argc - 2, argv + 2);
}
