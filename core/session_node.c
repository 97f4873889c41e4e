/*
 * session_node: what is not about one session: tenants, API keys, templates,
 * the start of the node. These are done at once: an event, no operation.
 */
#include "core/session_internal.h"

static json_t *node_event(struct decide *x, enum event_type type,
			  const char *tenant)
{
	return decide_event_on(x, type, "", tenant);
}

static bool new_row(struct decide *x, const char *what)
{
	const struct command *c = x->c;

	if (!c->admin)
		decide_refuse(x, -EACCES, ERR_FORBIDDEN,
			      "only local administration may make a %s", what);
	else if (!id_valid(c->id))
		decide_refuse(x, -EINVAL, ERR_INVALID,
			      "\"%.40s\" is not the id of a %s", c->id, what);
	else if (x->f->exists)
		decide_refuse(x, -EEXIST, ERR_CONFLICT,
			      "there is a %s %s already", what, c->id);
	return !decide_refused(x);
}

void decide_tenant_create(struct decide *x)
{
	const struct command *c = x->c;
	json_t *data;

	if (!new_row(x, "tenant"))
		return;
	data = node_event(x, EVENT_TENANT_CREATED, c->id);
	json_put_str(data, "id", c->id);
	json_put_str(data, "name", c->name);
}

void decide_key_create(struct decide *x)
{
	const struct command *c = x->c;
	json_t *data;

	if (!new_row(x, "key"))
		return;
	data = node_event(x, EVENT_KEY_CREATED, c->tenant);
	json_put_str(data, "id", c->id);
	json_put_str(data, "name", c->name);
	json_put_str(data, "hash", c->digest);
	if (json_is_array(c->info))
		json_object_set(data, "scopes", c->info);
}

void decide_key_remove(struct decide *x)
{
	const struct command *c = x->c;

	if (!c->admin)
		decide_refuse(x, -EACCES, ERR_FORBIDDEN,
			      "only local administration may remove a key");
	else if (!x->f->exists)
		decide_refuse(x, -ENOENT, ERR_NOT_FOUND,
			      "no key %s: `cryo key ls` lists them", c->id);
	else
		json_put_str(node_event(x, EVENT_KEY_REMOVED, c->tenant), "id",
			     c->id);
}

void decide_template_add(struct decide *x)
{
	const struct command *c = x->c;
	json_t *data;

	if (!c->admin)
		decide_refuse(x, -EACCES, ERR_FORBIDDEN,
			      "only local administration may add a template");
	else if (!c->spec.template[0] || strlen(c->digest) != DIGEST_TEXT_LEN)
		decide_refuse(x, -EINVAL, ERR_INVALID,
			      "a template needs a name and the %d hex digits "
			      "of its digest",
			      DIGEST_TEXT_LEN);
	if (decide_refused(x))
		return;
	if (x->f->have_template && !strcmp(x->f->template_digest, c->digest))
		return; /* known as it is */
	data = node_event(x, EVENT_TEMPLATE_ADDED, "");
	json_put_str(data, "name", c->spec.template);
	json_put_str(data, "digest", c->digest);
	if (c->info)
		json_object_set(data, "info", c->info);
}

void decide_node_start(struct decide *x)
{
	json_t *data = node_event(x, EVENT_NODE_STARTED, "");

	json_put_str(data, "version", x->c->name);
	json_put_str(data, "platform", x->f->limits->platform);
}
