/*
 * key: API keys. The secret is printed once, by create; the daemon keeps
 * its hash only.
 */
#include "tools/cryo/cryo.h"
#include "tools/cryo/table.h"

struct key_opts {
	const char *name;
	struct args_list scopes;
};

static const struct args_opt key_options[] = {
	{ .name = "name",
	  .kind = ARGS_TEXT,
	  .value = "N",
	  .help = "create: what the key is for",
	  .at = offsetof(struct key_opts, name) },
	{ .name = "scope",
	  .kind = ARGS_LIST,
	  .value = "S",
	  .help = "create: read, write, exec or admin; may be repeated",
	  .at = offsetof(struct key_opts, scopes) },
};

static const struct args_spec key_spec = {
	.verb = "key",
	.usage = "create [--name N] [--scope S]... | ls | rm KEY",
	.about = "Makes, lists and removes API keys for access by TCP. "
		 "`create` prints the key: it is shown\nthis once. Without "
		 "--scope a key may read, write and exec.",
	.opts = key_options,
	.nr_opts = ARRAY_LEN(key_options),
	.min_pos = 1,
	.max_pos = 2,
};

static int key_create(struct cryo *x, const struct key_opts *o, struct err *e)
{
	SCOPED_JSON json_t *body = json_object(), *key = NULL;
	int r;

	json_put_str(body, "name", o->name);
	if (o->scopes.nr) {
		json_t *list = json_array();

		for (int i = 0; i < o->scopes.nr; i++)
			json_array_append_new(list, json_string(o->scopes.v[i]));
		json_object_set_new(body, "scopes", list);
	}
	r = client_call(x->client, "POST", "/v1/keys", body, &key, e);
	if (r < 0)
		return r;
	if (x->args.json)
		cryo_print_json(key);
	else
		printf("%s\n", cryo_text(key, "token"));
	return 0;
}

static void key_row(struct table *t, const json_t *key)
{
	char scopes[64] = "";
	const json_t *item;
	size_t i, len;

	json_array_foreach(json_object_get(key, "scopes"), i, item) {
		len = strlen(scopes);
		snprintf(scopes + len, sizeof(scopes) - len, "%s%s",
			 i ? "," : "", json_string_value(item));
	}
	table_put(t, cryo_text(key, "id"));
	table_put(t, cryo_text(key, "name"));
	table_put(t, scopes);
}

static int key_ls(struct cryo *x, struct err *e)
{
	static const char *const titles[] = { "ID", "NAME", "SCOPES" };
	SCOPED(table_done) struct table t;
	SCOPED_JSON json_t *page = NULL;
	const json_t *item;
	size_t i;
	int r = client_call(x->client, "GET", "/v1/keys", NULL, &page, e);

	table_init(&t, titles, ARRAY_LEN(titles), 0);
	if (r < 0)
		return r;
	json_array_foreach(json_object_get(page, "items"), i, item) {
		if (x->args.json)
			cryo_print_json(item);
		else
			key_row(&t, item);
	}
	if (!x->args.json)
		table_print(&t, stdout);
	return 0;
}

static int key_rm(struct cryo *x, const char *id, struct err *e)
{
	SCOPED(buf_done) struct buf path = { 0 };

	buf_put_str(&path, "/v1/keys/");
	client_segment(&path, id);
	return client_call(x->client, "DELETE", buf_cstr(&path), NULL, NULL, e);
}

static int key_run(struct cryo *x, const void *opts, struct err *e)
{
	const char *what = x->args.pos[0];
	int nr = x->args.nr_pos;

	if (!strcmp(what, "create") && nr == 1)
		return key_create(x, opts, e);
	if (!strcmp(what, "ls") && nr == 1)
		return key_ls(x, e);
	if (!strcmp(what, "rm") && nr == 2)
		return key_rm(x, x->args.pos[1], e);
	return cryo_usage(x, &key_spec, e);
}

const struct verb verb_key = {
	.spec = &key_spec,
	.summary = "make, list and remove API keys",
	.opts_size = sizeof(struct key_opts),
	.run = key_run,
};
