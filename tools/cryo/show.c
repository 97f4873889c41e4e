/*
 * show: all that is known about one session, and the commands in it.
 */
#include "tools/cryo/cryo.h"
#include "tools/cryo/table.h"

#include <stdio.h>

static const struct args_spec show_spec = {
	.verb = "show",
	.usage = "ID [--json]",
	.about = "Shows a session and its commands.",
	.min_pos = 1,
	.max_pos = 1,
};

static void show_line(const char *title, const char *text)
{
	if (strcmp(text, "-"))
		printf("%-16s %s\n", title, text);
}

static void show_ref(const char *title, const json_t *ref)
{
	if (ref)
		printf("%-16s %s  %s  epoch %lld\n", title, cryo_text(ref, "id"),
		       cryo_text(ref, "time"), (long long)cryo_int(ref, "epoch"));
}

static void show_session(const json_t *s)
{
	static const struct {
		const char *title, *key;
	} lines[] = {
		{ "id", "id" },
		{ "name", "name" },
		{ "state", "state" },
		{ "template", "template" },
		{ "keep", "keep" },
		{ "snapshot every", "snapshot_every" },
		{ "time limit", "ttl" },
		{ "time left", "ttl_left" },
		{ "parent", "parent" },
		{ "operation", "operation" },
		{ "backend", "backend" },
		{ "acceleration", "accel" },
		{ "stalled", "stalled" },
		{ "created by", "created_by" },
		{ "created", "created" },
		{ "changed", "changed" },
		{ "started", "started" },
	};
	const json_t *failure = json_object_get(s, "failure");
	char size[TABLE_SIZE_LEN];

	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		show_line(lines[i].title, cryo_text(s, lines[i].key));
	if (failure)
		printf("%-16s %s (%s)\n", "failure",
		       cryo_text(failure, "detail"), cryo_text(failure, "code"));
	printf("%-16s %lld MiB memory, %lld vCPUs, %lld MiB disk\n", "machine",
	       (long long)cryo_int(s, "memory_mib"),
	       (long long)cryo_int(s, "vcpus"),
	       (long long)cryo_int(s, "disk_mib"));
	table_size(size, cryo_int(s, "stored_bytes"));
	printf("%-16s %lld, %s stored\n", "points",
	       (long long)cryo_int(s, "snapshots"), size);
	printf("%-16s %lld\n", "epoch", (long long)cryo_int(s, "epoch"));
	show_ref("base", json_object_get(s, "base"));
	show_ref("newest point", json_object_get(s, "head"));
	show_ref("undo goes to", json_object_get(s, "undo"));
}

/* Arguments in one line, cut where it gets long. */
static void show_argv(char *ret, size_t len, const json_t *argv)
{
	const json_t *item;
	size_t i, at = 0;

	ret[0] = 0;
	json_array_foreach(argv, i, item) {
		int n = snprintf(ret + at, len - at, "%s%s", i ? " " : "",
				 json_string_value(item));

		if (n < 0 || at + (size_t)n >= len)
			return;
		at += (size_t)n;
	}
}

static int show_exec(void *ctx, json_t *x)
{
	struct table *t = ctx;
	char argv[80], when[TABLE_TIME_LEN];

	show_argv(argv, sizeof(argv), json_object_get(x, "argv"));
	table_time(when, cryo_text(x, "started"));
	table_put(t, cryo_text(x, "id"));
	table_put(t, cryo_text(x, "state"));
	if (json_object_get(x, "code"))
		table_putf(t, "%lld", (long long)cryo_int(x, "code"));
	else
		table_put(t, "-");
	table_put(t, when);
	table_put(t, argv);
	return 0;
}

static int show_execs(struct cryo *x, const char *path, struct err *e)
{
	static const char *const titles[] = { "EXEC", "STATE", "CODE",
					      "STARTED", "COMMAND" };
	SCOPED(table_done) struct table t;
	int r;

	table_init(&t, titles, ARRAY_LEN(titles), 1 << 2);
	r = cryo_list(x, path, show_exec, &t, e);
	if (r == 0 && t.nr > ARRAY_LEN(titles)) {
		putchar('\n');
		table_print(&t, stdout);
	}
	return r;
}

static int show_run(struct cryo *x, const void *opts, struct err *e)
{
	SCOPED(buf_done) struct buf path = { 0 };
	SCOPED_JSON json_t *s = NULL;
	int r;

	(void)opts;
	cryo_session_path(&path, x->args.pos[0], NULL);
	r = client_call(x->client, "GET", buf_cstr(&path), NULL, &s, e);
	if (r < 0)
		return r;
	if (x->args.json) {
		cryo_print_json(s);
		return 0;
	}
	show_session(s);
	buf_put_str(&path, "/execs");
	return show_execs(x, buf_cstr(&path), e);
}

const struct verb verb_show = {
	.spec = &show_spec,
	.summary = "show a session and its commands",
	.run = show_run,
};
