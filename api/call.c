/*
 * call: what handlers share: parameters, rows that the caller may see,
 * commands, replies.
 *
 * Invariants:
 *  1. Whatever belongs to another tenant is answered like what does not
 *     exist, with the same text.
 *  2. No read view is held while a handler waits.
 *  3. A number or text from outside is checked against its bounds before
 *     anything is made of it.
 *
 * A crash leaves nothing behind: what was accepted lives in the engine.
 */
#include "api/call.h"

#include "api/problem.h"
#include "api/routes.h"
#include "api/v1/v1.h"

#include <stdio.h>

#define CALL_ENGINE_MS 30000 /* for a decision and its commit */
#define CALL_SLICE_MS 1000 /* between looks at a vanished client */
#define CALL_LIMIT_MAX 1000
#define CALL_LIMIT 100

/* --- reading -------------------------------------------------------------- */

int call_reader(struct call *c, const struct reader **ret, struct err *e)
{
	if (!c->view) {
		int r = c->conf->view.open(c->conf->view.ctx, &c->view, e);

		if (r < 0)
			return r;
		c->reader.ops = c->conf->view.ops;
		c->reader.view = c->view;
	}
	*ret = &c->reader;
	return 0;
}

void call_reader_close(struct call *c)
{
	if (c->view)
		c->conf->view.close(c->view);
	c->view = NULL;
}

bool call_may_see(const struct call *c, const char *tenant)
{
	return c->who.local || !strcmp(c->who.tenant, tenant);
}

static int call_unknown(const char *what, const char *id, struct err *e)
{
	return err_set(e, -ENOENT, ERR_NOT_FOUND,
		       "there is no %s \"%.64s\" here; list what there is, "
		       "or check the spelling",
		       what, id);
}

int call_session(struct call *c, const char *id_or_name, struct session *ret,
		 struct err *e)
{
	const struct reader *rd;
	char id[ID_LEN + 1] = "";
	int r = call_reader(c, &rd, e);

	if (r < 0)
		return r;
	if (id_valid(id_or_name)) {
		base_strcpy(id, sizeof(id), id_or_name);
	} else if (point_name_valid(id_or_name)) {
		r = rows_session_by_name(rd, c->who.tenant, id_or_name, id, e);
		if (r < 0 && r != -ENOENT)
			return r;
	}
	if (!id[0])
		return call_unknown("session", id_or_name, e);
	r = rows_session(rd, id, ret, e);
	if (r == -ENOENT || (r == 0 && !call_may_see(c, ret->tenant)))
		return call_unknown("session", id_or_name, e);
	return r;
}

int call_exec(struct call *c, const char *id, struct exec *ret, struct err *e)
{
	const struct reader *rd;
	struct exec x = { 0 };
	int r = call_reader(c, &rd, e);

	if (r < 0)
		return r;
	if (!id_valid(id))
		return call_unknown("exec", id, e);
	r = rows_exec(rd, id, &x, e);
	if (r == 0 && !call_may_see(c, x.tenant)) {
		exec_done(&x);
		r = -ENOENT;
	}
	if (r == -ENOENT)
		return call_unknown("exec", id, e);
	if (r == 0)
		*ret = x;
	return r;
}

int call_operation(struct call *c, const char *id, struct operation *ret,
		   struct err *e)
{
	const struct reader *rd;
	struct operation op = { 0 };
	int r = call_reader(c, &rd, e);

	if (r < 0)
		return r;
	if (!id_valid(id))
		return call_unknown("operation", id, e);
	r = rows_operation(rd, id, &op, e);
	if (r == 0 && !call_may_see(c, op.tenant)) {
		operation_done(&op);
		r = -ENOENT;
	}
	if (r == -ENOENT)
		return call_unknown("operation", id, e);
	if (r == 0)
		*ret = op;
	return r;
}

/* --- parameters ----------------------------------------------------------- */

int call_query_int(const struct call *c, const char *name, int64_t min,
		   int64_t max, int64_t dflt, int64_t *ret, struct err *e)
{
	const char *s = http_query(c->http, name);
	long long v;
	char *end;

	if (!s) {
		*ret = dflt;
		return 0;
	}
	errno = 0;
	v = strtoll(s, &end, 10);
	if (errno || end == s || *end || v < min || v > max)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "?%s must be a whole number from %lld to %lld",
			       name, (long long)min, (long long)max);
	*ret = v;
	return 0;
}

int call_query_bool(const struct call *c, const char *name, bool dflt,
		    bool *ret, struct err *e)
{
	const char *s = http_query(c->http, name);

	if (!s)
		*ret = dflt;
	else if (!*s || !strcmp(s, "1") || !strcmp(s, "true"))
		*ret = true;
	else if (!strcmp(s, "0") || !strcmp(s, "false"))
		*ret = false;
	else
		return err_set(e, -EINVAL, ERR_INVALID,
			       "?%s must be true or false", name);
	return 0;
}

int call_wait_ms(const struct call *c, int64_t *ret, struct err *e)
{
	int64_t s;
	int r = call_query_int(c, "wait", 0, HTTP_WAIT_MAX_S, 0, &s, e);

	if (r == 0)
		*ret = s * 1000;
	return r;
}

/* A member that may be absent: -ENOENT becomes "leave it alone". */
static int call_optional(int r)
{
	return r == -ENOENT ? 0 : r;
}

int call_body_str(const struct call *c, const char *key, const char **ret,
		  struct err *e)
{
	return c->body ? call_optional(json_get_str(c->body, key, ret, e)) : 0;
}

int call_body_u32(const struct call *c, const char *key, uint32_t min,
		  uint32_t max, uint32_t *ret, struct err *e)
{
	int64_t v = *ret;
	int r = 0;

	if (c->body)
		r = call_optional(json_get_int(c->body, key, min, max, &v, e));
	if (r == 0)
		*ret = (uint32_t)v;
	return r;
}

int call_body_bool(const struct call *c, const char *key, bool *ret,
		   struct err *e)
{
	return c->body ? call_optional(json_get_bool(c->body, key, ret, e)) : 0;
}

int call_body_duration(const struct call *c, const char *key, int64_t *ret,
		       struct err *e)
{
	const char *s = NULL;
	int r = call_body_str(c, key, &s, e);

	if (r < 0 || !s)
		return r;
	if (clock_parse_duration(ret, s) < 0 || *ret < 0)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"%s\" is \"%.40s\"; write a duration such as "
			       "\"60s\", \"10m\" or \"1h30m\"",
			       key, s);
	return 0;
}

int call_body_copy(const struct call *c, const char *key, char *dst, size_t len,
		   struct err *e)
{
	const char *s = NULL;
	int r = call_body_str(c, key, &s, e);

	if (r < 0 || !s)
		return r;
	if (!base_strcpy(dst, len, s))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"%s\" may have at most %zu characters", key,
			       len - 1);
	return 0;
}

/* --- commands ------------------------------------------------------------- */

static int call_idempotency(const struct call *c, struct command *cmd,
			    struct err *e)
{
	const char *key = http_header(c->http, "Idempotency-Key");
	const struct buf *body = http_body(c->http);
	SCOPED(buf_done) struct buf scope = { 0 };

	if (!key)
		return 0;
	if (!*key || strlen(key) > 255)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "Idempotency-Key must have 1 to 255 "
			       "characters");
	/* the path and not its pattern: the key is about this session */
	buf_put(&scope, c->who.actor, strlen(c->who.actor) + 1);
	buf_put_str(&scope, c->route->method);
	buf_put(&scope, http_path(c->http), strlen(http_path(c->http)) + 1);
	buf_printf(&scope, "%d", (int)cmd->kind); /* a run has two commands */
	buf_put_u8(&scope, 0);
	buf_put_str(&scope, key);
	c->conf->sha256(cmd->idem.scope, scope.p, scope.len);
	c->conf->sha256(cmd->idem.body, body->len ? (const void *)body->p : "",
			body->len);
	cmd->idem.given = true;
	return 0;
}

int call_command(struct call *c, enum command_kind kind, const char *session,
		 struct command **ret, struct err *e)
{
	struct command *cmd = command_new(kind);
	int r;

	base_strcpy(cmd->tenant, sizeof(cmd->tenant), c->who.tenant);
	base_strcpy(cmd->actor, sizeof(cmd->actor), c->who.actor);
	cmd->admin = c->who.local;
	if (session)
		base_strcpy(cmd->session, sizeof(cmd->session), session);
	r = call_idempotency(c, cmd, e);
	if (r < 0) {
		command_free(cmd);
		return r;
	}
	*ret = cmd;
	return 0;
}

int call_submit(struct call *c, struct command *cmd, struct reply *ret,
		struct err *e)
{
	int r;

	call_reader_close(c);
	r = c->conf->engine.call(c->conf->engine.ctx, cmd, CALL_ENGINE_MS, ret,
				 e);
	if (r == 0 && ret->replayed)
		http_reply_header(c->http, "Idempotency-Replayed", "true");
	return r;
}

int call_await_operation(struct call *c, const char *id, int64_t timeout_ms,
			 struct operation *ret, struct err *e)
{
	int64_t now = clock_mono(c->conf->clock) / NS_PER_MS;
	int64_t until = now + timeout_ms;

	call_reader_close(c);
	for (;;) {
		int64_t ms = MAX(0, MIN(until - now, CALL_SLICE_MS));
		struct operation op = { 0 };
		int r = c->conf->engine.wait_operation(c->conf->engine.ctx, id,
						       ms, &op, e);

		if (r < 0)
			return r;
		now = clock_mono(c->conf->clock) / NS_PER_MS;
		if (op.state != OPERATION_OPEN || now >= until ||
		    http_stopping(c->http) || http_peer_gone(c->http)) {
			*ret = op;
			return 0;
		}
		operation_done(&op);
	}
}

static void call_reply_operation(struct call *c, const struct operation *op,
				 const struct reply *re, json_t *found)
{
	json_t *j = v1_operation_json(op);
	bool open = op->state == OPERATION_OPEN;
	char where[64];

	if (re->nr_children && !json_object_get(j, "sessions")) {
		json_t *list = json_array();

		for (int i = 0; i < re->nr_children; i++)
			json_array_append_new(list, json_string(re->children[i]));
		json_object_set_new(j, "sessions", list);
	}
	if (found)
		json_object_set(j, "found", found);
	snprintf(where, sizeof(where), "/v1/operations/%s", op->id);
	http_reply_header(c->http, "Location", where);
	call_reply_json(c, open ? 202 : 200, j);
}

int call_operate(struct call *c, struct command *cmd, struct err *e)
{
	return call_operate_found(c, cmd, NULL, e);
}

int call_operate_found(struct call *c, struct command *cmd, json_t *found_,
		       struct err *e)
{
	SCOPED_JSON json_t *found = found_;
	SCOPED(operation_done) struct operation op = { 0 };
	struct reply re = { 0 };
	int64_t wait_ms = 0;
	int r = call_wait_ms(c, &wait_ms, e);

	if (r < 0) {
		command_free(cmd);
		return r;
	}
	r = call_submit(c, cmd, &re, e);
	if (r < 0)
		return r;
	r = call_await_operation(c, re.operation, wait_ms, &op, e);
	if (r < 0)
		return r;
	call_reply_operation(c, &op, &re, found);
	return 0;
}

/* --- replies -------------------------------------------------------------- */

void call_reply_json(struct call *c, unsigned status, json_t *j)
{
	SCOPED(buf_done) struct buf b = { 0 };

	if (json_canonical(&b, j) < 0)
		NEVER("a document with a float");
	json_decref(j);
	buf_put_u8(&b, '\n');
	http_reply(c->http, status, "application/json", b.p, b.len);
}

void call_reply_none(struct call *c)
{
	http_reply(c->http, 204, NULL, NULL, 0);
}

void call_reply_problem(struct call *c, const struct err *e)
{
	SCOPED(buf_done) struct buf b = { 0 };
	unsigned status = (unsigned)err_http_status(e->code);

	if (e->code == ERR_BUSY || e->code == ERR_LIMIT)
		http_reply_header(c->http, "Retry-After", "1");
	if (e->code == ERR_UNAUTHORIZED)
		http_reply_header(c->http, "WWW-Authenticate", "Bearer");
	problem_write(&b, e, status, c->request);
	http_reply(c->http, status, PROBLEM_TYPE, b.p, b.len);
}

int call_page_init(struct call *c, struct call_page *p, struct err *e)
{
	int r;

	*p = (struct call_page){ 0 };
	r = call_query_int(c, "limit", 1, CALL_LIMIT_MAX, CALL_LIMIT, &p->limit,
			   e);
	if (r < 0)
		return r;
	p->after = http_query(c->http, "after");
	if (p->after && strlen(p->after) >= sizeof(p->next))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "?after is not a cursor of this list: take "
			       "\"next\" of the page before");
	p->items = json_array();
	return 0;
}

void call_page_done(struct call_page *p)
{
	json_decref(p->items);
	p->items = NULL;
}

void call_page_reply(struct call *c, struct call_page *p)
{
	json_t *j = json_object();

	json_object_set_new(j, "items", STEAL(p->items));
	if (p->next[0])
		json_put_str(j, "next", p->next);
	call_reply_json(c, 200, j);
}
