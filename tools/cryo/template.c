/*
 * template: what sessions can start from.
 */
#include "tools/cryo/beside.h"
#include "tools/cryo/stage.h"
#include "tools/cryo/table.h"

#include <spawn.h>
#include <sys/wait.h>

struct template_opts {
	const char *from;
};

static const struct args_opt template_options[] = {
	{ .name = "from",
	  .kind = ARGS_TEXT,
	  .value = "DIR",
	  .help = "build: take this folder instead of building tiny",
	  .at = offsetof(struct template_opts, from) },
};

static const struct args_spec template_spec = {
	.verb = "template",
	.usage = "ls | build [--from DIR]",
	.about = "Lists the templates, or builds `tiny` and puts it into the "
		 "data folder (as root). A template\nnever changes: building "
		 "again makes a new one, or the same.",
	.opts = template_options,
	.nr_opts = ARRAY_LEN(template_options),
	.min_pos = 1,
	.max_pos = 1,
};

static int template_ls(struct cryo *x, struct err *e)
{
	static const char *const titles[] = { "NAME", "DIGEST" };
	SCOPED(table_done) struct table t;
	SCOPED_JSON json_t *page = NULL;
	const json_t *item;
	size_t i;
	int r = client_call(x->client, "GET", "/v1/templates", NULL, &page, e);

	table_init(&t, titles, ARRAY_LEN(titles), 0);
	if (r < 0)
		return r;
	json_array_foreach(json_object_get(page, "items"), i, item) {
		table_put(&t, cryo_text(item, "name"));
		table_put(&t, cryo_text(item, "digest"));
		if (x->args.json)
			cryo_print_json(item);
	}
	if (!x->args.json)
		table_print(&t, stdout);
	return 0;
}

/* The build script of the source tree that this program was built in. */
static int template_make(const char *out, struct err *e)
{
	SCOPED_FREE char *script = beside_path("../tools/image/tiny.sh");
	SCOPED_FREE char *agent = beside_path("cryo-agent");
	SCOPED_FREE char *to = base_strdup(out);
	char *argv[] = { script, agent, to, NULL };
	int status, r;
	pid_t pid;

	if (access(script, X_OK) < 0 || access(agent, X_OK) < 0)
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "%s or %s is not there: `tiny` is built in the "
			       "source tree (make image); give its folder by "
			       "--from",
			       script, agent);
	r = posix_spawn(&pid, script, NULL, NULL, argv, environ);
	if (r != 0)
		return err_sys(e, r, "starting %s", script);
	if (waitpid(pid, &status, 0) < 0)
		return err_sys(e, errno, "waiting for %s", script);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return err_set(e, -EIO, ERR_INTERNAL,
			       "building the template failed; see above");
	return 0;
}

static int template_build(struct cryo *x, const struct template_opts *o,
			  struct err *e)
{
	SCOPED_FREE char *data = beside_data(x->args.data);
	SCOPED_FREE char *from = o->from ? base_strdup(o->from)
					 : beside_path("image/tiny");
	char digest[STAGE_DIGEST_LEN + 1];
	int r = 0;

	if (geteuid() != 0)
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "a template is put into the data folder by "
			       "root: run this as root");
	if (!o->from)
		r = template_make(from, e);
	if (r == 0)
		r = stage_template(data, from, digest, e);
	if (r == 0)
		r = stage_register(x->client, digest, e);
	if (r < 0)
		return r;
	printf("%s\n", digest);
	return 0;
}

static int template_run(struct cryo *x, const void *opts, struct err *e)
{
	if (!strcmp(x->args.pos[0], "ls"))
		return template_ls(x, e);
	if (!strcmp(x->args.pos[0], "build"))
		return template_build(x, opts, e);
	return cryo_usage(x, &template_spec, e);
}

const struct verb verb_template = {
	.spec = &template_spec,
	.summary = "list templates, or build one",
	.opts_size = sizeof(struct template_opts),
	.run = template_run,
};
