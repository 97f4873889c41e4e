/*
 * fork: new sessions that start at a moment of another. Prints their ids,
 * one a line.
 */
#include "tools/cryo/moment.h"

#include <stdio.h>

struct fork_opts {
	const char *at, *ttl;
	struct args_list names;
	int64_t count;
};

static const struct args_opt fork_options[] = {
	{ .name = "at",
	  .kind = ARGS_TEXT,
	  .value = "T",
	  .help = "the moment they start at; else the present",
	  .at = offsetof(struct fork_opts, at) },
	{ .name = "count",
	  .letter = 'n',
	  .kind = ARGS_INT,
	  .value = "N",
	  .help = "how many; else one",
	  .min = 1,
	  .max = 64,
	  .at = offsetof(struct fork_opts, count) },
	{ .name = "name",
	  .kind = ARGS_LIST,
	  .value = "NAME",
	  .help = "name of a child; may be given for each",
	  .at = offsetof(struct fork_opts, names) },
	{ .name = "ttl",
	  .kind = ARGS_TEXT,
	  .value = "1h",
	  .help = "running time after which a child is suspended",
	  .at = offsetof(struct fork_opts, ttl) },
};

static const struct args_spec fork_spec = {
	.verb = "fork",
	.usage = "ID [--at T] [-n N]",
	.about = "Makes new sessions with the memory and the files that this "
		 "one had at a moment, and\nprints their ids, one a line. The "
		 "session itself goes on untouched.",
	.opts = fork_options,
	.nr_opts = ARRAY_LEN(fork_options),
	.min_pos = 1,
	.max_pos = 1,
};

static json_t *fork_body(const struct fork_opts *o)
{
	json_t *body = json_object(), *names;

	json_put_str(body, "at", o->at);
	json_put_str(body, "ttl", o->ttl);
	if (o->count)
		json_put_int(body, "count", o->count);
	if (!o->names.nr)
		return body;
	names = json_array();
	for (int i = 0; i < o->names.nr; i++)
		json_array_append_new(names, json_string(o->names.v[i]));
	json_object_set_new(body, "names", names);
	return body;
}

static int fork_run(struct cryo *x, const void *opts, struct err *e)
{
	SCOPED_JSON json_t *body = fork_body(opts), *op = NULL;
	const json_t *id;
	size_t i;
	int r = cryo_session_verb(x, x->args.pos[0], "fork", body, &op, e);

	if (r < 0)
		return r;
	if (x->args.json) {
		cryo_print_json(op);
		return 0;
	}
	moment_say(op);
	json_array_foreach(json_object_get(op, "sessions"), i, id)
		printf("%s\n", json_string_value(id));
	return 0;
}

const struct verb verb_fork = {
	.spec = &fork_spec,
	.summary = "make new sessions from a moment of this one",
	.opts_size = sizeof(struct fork_opts),
	.run = fork_run,
};
