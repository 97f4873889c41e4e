/*
 * suspend: a durable point of the present, then the memory is freed.
 */
#include "tools/cryo/cryo.h"

#include <stdio.h>

static const struct args_spec suspend_spec = {
	.verb = "suspend",
	.usage = "ID",
	.about = "Takes a durable point and frees the memory. The session "
		 "costs no memory from then on\nand survives a restart of the "
		 "host; `cryo resume` continues exactly there.",
	.min_pos = 1,
	.max_pos = 1,
};

static int suspend_run(struct cryo *x, const void *opts, struct err *e)
{
	SCOPED_JSON json_t *op = NULL;
	int r = cryo_session_verb(x, x->args.pos[0], "suspend", NULL, &op, e);

	(void)opts;
	if (r == 0 && x->args.json)
		cryo_print_json(op);
	else if (r == 0 && json_object_get(op, "point"))
		printf("%s\n", cryo_text(op, "point"));
	return r;
}

const struct verb verb_suspend = {
	.spec = &suspend_spec,
	.summary = "take a durable point and free the memory",
	.run = suspend_run,
};
