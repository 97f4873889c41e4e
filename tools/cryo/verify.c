/*
 * verify: checks the log and all points of a data folder. The work is done
 * by cryo-verify, which lies beside this program.
 */
#include "tools/cryo/beside.h"
#include "tools/cryo/cryo.h"

static const struct args_spec verify_spec = {
	.verb = "verify",
	.usage = "[--data DIR]",
	.about = "Verifies the chain of the log, that the rows are what the "
		 "log says, and that the bytes of every\nlive point are those "
		 "that its event promised. Reads the data folder itself: run "
		 "it as root.",
};

static int verify_run(struct cryo *x, const void *opts, struct err *e)
{
	SCOPED_FREE char *data = beside_data(x->args.data);
	SCOPED_FREE char *program = NULL;
	char data_flag[] = "--data", json_flag[] = "--json";
	int r = beside_program("cryo-verify", &program, e);

	(void)opts;
	if (r < 0)
		return r;
	char *argv[] = { program, data_flag, data,
			 x->args.json ? json_flag : NULL, NULL };

	execv(program, argv);
	return err_sys(e, errno, "starting %s", program);
}

const struct verb verb_verify = {
	.spec = &verify_spec,
	.summary = "verify the log and every point",
	.offline = true,
	.run = verify_run,
};
