/*
 * verify: checks the log and all points of a data folder. The work is done
 * by cryo-verify, which lies beside this program.
 */
#include "tools/cryo/beside.h"
#include "tools/cryo/cryo.h"

struct verify_opts {
	bool deep;
	const char *provider;
};

static const struct args_opt verify_options[] = {
	{ .name = "deep",
	  .kind = ARGS_FLAG,
	  .help = "also read packs that no point needs",
	  .at = offsetof(struct verify_opts, deep) },
	{ .name = "provider-key",
	  .kind = ARGS_TEXT,
	  .value = "FILE",
	  .help = "the key of all keys, if it isn't in the data folder",
	  .at = offsetof(struct verify_opts, provider) },
};

static const struct args_spec verify_spec = {
	.verb = "verify",
	.usage = "[--data DIR]",
	.about = "Verifies the chain of the log, that the rows are what the "
		 "log says, and that the bytes of every\nlive point are those "
		 "that its event promised. Reads the data folder itself: run "
		 "it as root.",
	.opts = verify_options,
	.nr_opts = ARRAY_LEN(verify_options),
};

static int verify_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct verify_opts *o = opts;
	SCOPED_FREE char *data = beside_data(x->args.data);
	SCOPED_FREE char *program = NULL;
	const char *argv[8];
	int r = beside_program("cryo-verify", &program, e), n = 0;

	if (r < 0)
		return r;
	argv[n++] = program;
	argv[n++] = "--data";
	argv[n++] = data;
	if (o->deep)
		argv[n++] = "--deep";
	if (o->provider) {
		argv[n++] = "--provider-key";
		argv[n++] = o->provider;
	}
	if (x->args.json)
		argv[n++] = "--json";
	argv[n] = NULL;
	execv(program, (char *const *)(uintptr_t)argv);
	return err_sys(e, errno, "starting %s", program);
}

const struct verb verb_verify = {
	.spec = &verify_spec,
	.summary = "verify the log and every point",
	.opts_size = sizeof(struct verify_opts),
	.offline = true,
	.run = verify_run,
};
