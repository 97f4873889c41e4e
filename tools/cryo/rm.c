/*
 * rm: destroys a session, in whatever state it is. Its key is destroyed
 * too, so what is left on disk is noise; forks of it live on.
 */
#include "tools/cryo/cryo.h"

static const struct args_spec rm_spec = {
	.verb = "rm",
	.usage = "ID...",
	.about = "Destroys sessions with all their points, in whatever state "
		 "they are. Forks of them live on.",
	.min_pos = 1,
	.max_pos = ARGS_POS_MAX,
};

static int rm_run(struct cryo *x, const void *opts, struct err *e)
{
	(void)opts;
	for (int i = 0; i < x->args.nr_pos; i++) {
		SCOPED(buf_done) struct buf path = { 0 };
		SCOPED_JSON json_t *op = NULL;
		int r;

		cryo_session_path(&path, x->args.pos[i], NULL);
		r = cryo_operate(x, "DELETE", buf_cstr(&path), NULL, &op, e);
		if (r < 0)
			return r;
		if (x->args.json)
			cryo_print_json(op);
	}
	return 0;
}

const struct verb verb_rm = {
	.spec = &rm_spec,
	.summary = "destroy a session",
	.run = rm_run,
};
