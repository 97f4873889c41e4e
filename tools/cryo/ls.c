/*
 * ls: the sessions, oldest first.
 */
#include "tools/cryo/cryo.h"
#include "tools/cryo/table.h"

#include <stdio.h>

static const struct args_spec ls_spec = {
	.verb = "ls",
	.usage = "[--json]",
	.about = "Lists sessions, oldest first.",
};

static int ls_take(void *ctx, json_t *item)
{
	json_array_append(ctx, item);
	return 0;
}

static int ls_older(const void *a, const void *b)
{
	return strcmp(cryo_text(*(json_t *const *)a, "created"),
		      cryo_text(*(json_t *const *)b, "created"));
}

static void ls_row(struct table *t, const json_t *s)
{
	const json_t *head = json_object_get(s, "head");
	char size[TABLE_SIZE_LEN], when[TABLE_TIME_LEN];

	table_put(t, cryo_text(s, "id"));
	table_put(t, cryo_text(s, "name"));
	table_put(t, cryo_text(s, "state"));
	table_put(t, cryo_text(s, "template"));
	table_putf(t, "%lld MiB", (long long)cryo_int(s, "memory_mib"));
	table_putf(t, "%lld", (long long)cryo_int(s, "snapshots"));
	table_size(size, cryo_int(s, "stored_bytes"));
	table_put(t, size);
	table_time(when, cryo_text(head, "time"));
	table_put(t, when);
}

static void ls_print(json_t **rows, size_t nr)
{
	static const char *const titles[] = { "ID",	"NAME",
					      "STATE",	"TEMPLATE",
					      "MEMORY", "POINTS",
					      "STORED", "NEWEST POINT" };
	SCOPED(table_done) struct table t;

	table_init(&t, titles, ARRAY_LEN(titles), 7 << 4);
	for (size_t i = 0; i < nr; i++)
		ls_row(&t, rows[i]);
	table_print(&t, stdout);
}

static int ls_run(struct cryo *x, const void *opts, struct err *e)
{
	SCOPED_JSON json_t *all = json_array();
	SCOPED_FREE json_t **rows = NULL;
	size_t nr;
	int r = cryo_list(x, "/v1/sessions", ls_take, all, e);

	(void)opts;
	if (r < 0)
		return r;
	nr = json_array_size(all);
	rows = base_alloc((nr + 1) * sizeof(*rows));
	for (size_t i = 0; i < nr; i++)
		rows[i] = json_array_get(all, i);
	qsort(rows, nr, sizeof(*rows), ls_older);
	if (!x->args.json) {
		ls_print(rows, nr);
		return 0;
	}
	for (size_t i = 0; i < nr; i++)
		cryo_print_json(rows[i]);
	return 0;
}

const struct verb verb_ls = {
	.spec = &ls_spec,
	.summary = "list sessions",
	.run = ls_run,
};
