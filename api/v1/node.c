/*
 * node: what belongs to the node as a whole: its description and health,
 * operations, templates, API keys.
 *
 * Invariants: the secret of a key is in the one reply that makes it and
 * nowhere else; keys of other tenants are neither listed nor removed, and
 * look like keys that don't exist.
 */
#include "api/v1/v1.h"

#include "api/routes.h"

#define V1_KEYS_MAX 1000

int v1_health_get(struct call *c, struct err *e)
{
	const struct reader *rd;
	json_t *o;
	int r = call_reader(c, &rd, e);

	if (r < 0)
		return err_wrap(e, r, "reading the log");
	o = json_object();
	json_put_str(o, "status", "ok");
	call_reply_json(c, 200, o);
	return 0;
}

int v1_node_get(struct call *c, struct err *e)
{
	const struct api_node *n = &c->conf->node;
	const struct reader *rd;
	json_t *o;
	int r = call_reader(c, &rd, e);

	if (r < 0)
		return r;
	o = json_object();
	json_put_str(o, "version", n->version);
	json_put_str(o, "backend", n->backend);
	json_put_str(o, "accel", n->accel);
	json_put_str(o, "isolation", n->isolation);
	json_put_str(o, "boot_id", n->boot_id);
	if (c->who.local)
		json_put_str(o, "data_dir", n->data_dir);
	json_put_int(o, "seq", (int64_t)rd->ops->last_seq(rd->view));
	v1_put_time(o, "time", clock_wall(c->conf->clock));
	call_reply_json(c, 200, o);
	return 0;
}

int v1_operation_get(struct call *c, struct err *e)
{
	SCOPED(operation_done) struct operation op = { 0 };
	int64_t wait_ms = 0;
	char id[ID_LEN + 1];
	int r = call_wait_ms(c, &wait_ms, e);

	if (r == 0)
		r = call_operation(c, c->param[0], &op, e);
	if (r < 0)
		return r;
	if (wait_ms && op.state == OPERATION_OPEN) {
		base_strcpy(id, sizeof(id), op.id);
		operation_done(&op);
		r = call_await_operation(c, id, wait_ms, &op, e);
		if (r < 0)
			return r;
	}
	call_reply_json(c, 200, v1_operation_json(&op));
	return 0;
}

/* --- lists that are short ------------------------------------------------- */

struct v1_rows {
	const struct call *call;
	json_t *items;
	const char *key_name; /* member that the row's key goes to */
	const char *hide; /* member that is not shown */
	bool own_tenant; /* only rows of the caller's tenant */
	int r;
	struct err *e;
};

static int v1_rows_one(void *ctx, const void *key, size_t key_len,
		       const void *value, size_t len)
{
	struct v1_rows *w = ctx;
	SCOPED_JSON json_t *row = NULL;
	const char *tenant;

	w->r = json_parse(&row, value, len, w->e);
	if (w->r < 0)
		return 1;
	tenant = json_string_value(json_object_get(row, "tenant"));
	if (w->own_tenant && !call_may_see(w->call, tenant ? tenant : ""))
		return 0;
	json_object_set_new(row, w->key_name, json_stringn(key, key_len));
	if (w->hide)
		json_object_del(row, w->hide);
	v1_rename_time(row, "created_ns", "created");
	json_array_append(w->items, row);
	return json_array_size(w->items) == V1_KEYS_MAX;
}

static int v1_rows_reply(struct call *c, enum table t, struct v1_rows *w,
			 struct err *e)
{
	SCOPED_JSON json_t *o = json_object();
	const struct reader *rd;
	int r = call_reader(c, &rd, e);

	if (r < 0)
		return r;
	w->call = c;
	w->e = e;
	w->items = json_array();
	json_object_set_new(o, "items", w->items);
	r = rd->ops->scan(rd->view, t, "", 0, NULL, 0, false, v1_rows_one, w, e);
	if (r >= 0)
		r = w->r;
	if (r == 0)
		call_reply_json(c, 200, STEAL(o));
	return r;
}

int v1_template_list(struct call *c, struct err *e)
{
	struct v1_rows w = { .key_name = "name" };

	return v1_rows_reply(c, TABLE_TEMPLATES, &w, e);
}

int v1_key_list(struct call *c, struct err *e)
{
	struct v1_rows w = { .key_name = "id", .hide = "hash", .own_tenant = true };

	return v1_rows_reply(c, TABLE_KEYS, &w, e);
}

/* --- templates ------------------------------------------------------------ */

int v1_template_add(struct call *c, struct err *e)
{
	static const char *const keys[] = { "digest", NULL };
	char digest[DIGEST_TEXT_LEN + 1] = "";
	json_t *o;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = call_body_copy(c, "digest", digest, sizeof(digest), e);
	if (r < 0)
		return r;
	if (!c->who.local)
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "templates are every tenant's: add them over "
			       "the daemon's unix socket");
	if (strlen(digest) != DIGEST_TEXT_LEN ||
	    strspn(digest, "0123456789abcdef") != DIGEST_TEXT_LEN)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"digest\" must be 64 hex digits: the name of "
			       "a folder below the data folder's templates/");
	call_reader_close(c);
	r = c->conf->templates.add(c->conf->templates.ctx, digest, c->who.actor,
				   e);
	if (r < 0)
		return r;
	o = json_object();
	json_put_str(o, "digest", digest);
	call_reply_json(c, 201, o);
	return 0;
}

/* --- keys ----------------------------------------------------------------- */

/* A key makes no key that may more than itself. */
static int v1_key_scopes(const struct call *c, unsigned *ret, struct err *e)
{
	const json_t *list = json_object_get(c->body, "scopes");
	unsigned scopes = SCOPE_READ | SCOPE_WRITE | SCOPE_EXEC;
	int r = list ? auth_scopes_parse(&scopes, list, e) : 0;

	if (r < 0)
		return r;
	scopes |= SCOPE_READ; /* nothing works without looking */
	if (scopes & ~c->who.scopes)
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "a key can't give scopes that it lacks");
	*ret = scopes;
	return 0;
}

static int v1_key_submit(struct call *c, const char *id, const char *name,
			 const char *hash, unsigned scopes, struct err *e)
{
	struct command *cmd;
	struct reply re = { 0 };
	int r = call_command(c, COMMAND_KEY_CREATE, NULL, &cmd, e);

	if (r < 0)
		return r;
	/* not under an Idempotency-Key: the secret can't be given again */
	cmd->idem.given = false;
	cmd->admin = true; /* the scope says so, for this tenant */
	base_strcpy(cmd->id, sizeof(cmd->id), id);
	base_strcpy(cmd->name, sizeof(cmd->name), name);
	base_strcpy(cmd->digest, sizeof(cmd->digest), hash);
	cmd->info = auth_scopes_to_json(scopes);
	return call_submit(c, cmd, &re, e);
}

int v1_key_create(struct call *c, struct err *e)
{
	static const char *const keys[] = { "name", "scopes", NULL };
	char token[AUTH_TOKEN_LEN + 1], hash[DIGEST_TEXT_LEN + 1];
	char name[NAME_MAX_LEN + 1] = "key";
	unsigned scopes = 0;
	struct id id;
	json_t *o;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = call_body_copy(c, "name", name, sizeof(name), e);
	if (r == 0)
		r = v1_key_scopes(c, &scopes, e);
	if (r < 0)
		return r;
	id_new(&id);
	auth_token_new(token, hash, id.s, c->conf->sha256);
	r = v1_key_submit(c, id.s, name, hash, scopes, e);
	if (r == 0) {
		o = json_object();
		json_put_str(o, "id", id.s);
		json_put_str(o, "name", name);
		json_put_str(o, "token", token);
		json_object_set_new(o, "scopes", auth_scopes_to_json(scopes));
		call_reply_json(c, 201, o);
	}
	base_wipe(token, sizeof(token));
	return r;
}

int v1_key_delete(struct call *c, struct err *e)
{
	SCOPED_JSON json_t *row = NULL;
	const struct reader *rd;
	const char *id = c->param[0], *tenant = NULL;
	struct command *cmd;
	struct reply re = { 0 };
	int r = call_reader(c, &rd, e);

	if (r == 0)
		r = id_valid(id) ? rows_json(rd, TABLE_KEYS, id, ID_LEN, &row, e)
				 : -ENOENT;
	if (r == 0)
		tenant = json_string_value(json_object_get(row, "tenant"));
	if (r == -ENOENT || (r == 0 && !call_may_see(c, tenant ? tenant : "")))
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "there is no API key \"%.40s\" here; `cryo key "
			       "ls` lists them",
			       id);
	if (r == 0)
		r = call_command(c, COMMAND_KEY_REMOVE, NULL, &cmd, e);
	if (r < 0)
		return r;
	cmd->idem.given = false; /* removing twice is harmless */
	base_strcpy(cmd->id, sizeof(cmd->id), id);
	base_strcpy(cmd->tenant, sizeof(cmd->tenant), tenant ? tenant : "");
	cmd->admin = true; /* the scope says so, for this tenant */
	r = call_submit(c, cmd, &re, e);
	if (r == 0)
		call_reply_none(c);
	return r;
}
