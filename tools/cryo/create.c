/*
 * create: a session from a template. Prints its id once it runs.
 */
#include "tools/cryo/create.h"

#include <stdio.h>

struct create_opts {
	struct create_common common;
	const char *name, *keep;
};

static const struct args_opt create_options[] = {
	CREATE_COMMON(struct create_opts, common),
	{ .name = "name",
	  .kind = ARGS_TEXT,
	  .value = "N",
	  .help = "a name that works wherever the id does",
	  .at = offsetof(struct create_opts, name) },
	{ .name = "keep",
	  .kind = ARGS_TEXT,
	  .value = "durable|none",
	  .help = "none: no points, destroyed at its time limit",
	  .at = offsetof(struct create_opts, keep) },
};

static const struct args_spec create_spec = {
	.verb = "create",
	.usage = "[--template T] [--name N] [--snapshot-every 60s] "
		 "[--memory MiB] [--ttl 1h]",
	.about = "Creates a session and prints its id. The first session of "
		 "a template boots it once\nand keeps its memory; later ones "
		 "start from there.",
	.opts = create_options,
	.nr_opts = ARRAY_LEN(create_options),
};

void create_body(json_t *body, const struct create_common *o)
{
	json_put_str(body, "template", o->template);
	json_put_str(body, "snapshot_every", o->every);
	json_put_str(body, "ttl", o->ttl);
	if (o->memory)
		json_put_int(body, "memory_mib", o->memory);
	if (o->vcpus)
		json_put_int(body, "vcpus", o->vcpus);
	if (o->disk)
		json_put_int(body, "disk_mib", o->disk);
}

static int create_run(struct cryo *x, const void *opts, struct err *e)
{
	const struct create_opts *o = opts;
	SCOPED_JSON json_t *body = json_object(), *op = NULL;
	int r;

	create_body(body, &o->common);
	json_put_str(body, "name", o->name);
	json_put_str(body, "keep", o->keep);
	r = cryo_operate(x, "POST", "/v1/sessions", body, &op, e);
	if (r < 0)
		return r;
	if (x->args.json)
		cryo_print_json(op);
	else
		printf("%s\n", cryo_text(op, "session"));
	return 0;
}

const struct verb verb_create = {
	.spec = &create_spec,
	.summary = "create a session from a template",
	.opts_size = sizeof(struct create_opts),
	.run = create_run,
};
