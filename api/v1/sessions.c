/*
 * sessions: create, list, show, destroy, and everything that moves a
 * session from one state to another.
 *
 * Invariants: each mutating handler is one command; what happens to the
 * session is decided by the engine alone, also where this file looks at the
 * state first (resume): a state that moved meanwhile is refused there.
 */
#include "api/v1/v1.h"

#include <stdio.h>

/* --- create --------------------------------------------------------------- */

static int v1_session_keep(struct call *c, struct session_spec *spec,
			   struct err *e)
{
	const char *word = NULL;
	int r = call_body_str(c, "keep", &word, e), keep;

	if (r < 0 || !word)
		return r;
	keep = fields_word(session_keep_words, KEEP_NR, word);
	if (keep < 0)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"keep\" is \"%.40s\"; it must be durable or "
			       "none",
			       word);
	spec->keep = (enum session_keep)keep;
	return 0;
}

/* Bounds are the engine's: here only what a field can hold. */
int v1_session_fill(struct call *c, struct command *cmd, struct err *e)
{
	struct session_spec *spec = &cmd->spec;
	int r = call_body_copy(c, "template", spec->template,
			       sizeof(spec->template), e);

	if (r == 0)
		r = call_body_copy(c, "name", cmd->name, sizeof(cmd->name), e);
	if (r == 0)
		r = call_body_u32(c, "memory_mib", 1, 1u << 24,
				  &spec->memory_mib, e);
	if (r == 0)
		r = call_body_u32(c, "vcpus", 1, 1024, &spec->vcpus, e);
	if (r == 0)
		r = call_body_u32(c, "disk_mib", 1, 1u << 24, &spec->disk_mib, e);
	if (r == 0)
		r = call_body_duration(c, "snapshot_every",
				       &spec->snapshot_every_ns, e);
	if (r == 0)
		r = call_body_duration(c, "ttl", &spec->ttl_ns, e);
	if (r == 0)
		r = v1_session_keep(c, spec, e);
	return r;
}

int v1_session_create(struct call *c, struct err *e)
{
	static const char *const keys[] = {
		"template",	  "name", "memory_mib", "vcpus", "disk_mib",
		"snapshot_every", "ttl",  "keep",	NULL
	};
	struct command *cmd;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = call_command(c, COMMAND_CREATE, NULL, &cmd, e);
	if (r < 0)
		return r;
	r = v1_session_fill(c, cmd, e);
	if (r < 0) {
		command_free(cmd);
		return r;
	}
	return call_operate(c, cmd, e);
}

/* --- look ----------------------------------------------------------------- */

int v1_session_get(struct call *c, struct err *e)
{
	struct session s;
	int r = call_session(c, c->param[0], &s, e);

	if (r == 0)
		call_reply_json(c, 200, v1_session_json(&s, c->conf));
	return r;
}

struct v1_session_walk {
	struct call *call;
	struct call_page page;
	size_t skip; /* bytes of the key before the session's id */
	char last[ID_LEN + 1];
	int r;
	struct err *e;
};

/* A row of SESSIONS or of SESSIONS_BY_TENANT: both keys end in the id. */
static int v1_session_list_one(void *ctx, const void *key, size_t key_len,
			       const void *value, size_t len)
{
	struct v1_session_walk *w = ctx;
	char id[ID_LEN + 1] = "";
	struct session s;

	(void)value;
	(void)len;
	if (key_len != w->skip + ID_LEN)
		return 0;
	memcpy(id, (const char *)key + w->skip, ID_LEN);
	if (w->page.after && strcmp(id, w->page.after) <= 0)
		return 0;
	if ((int64_t)json_array_size(w->page.items) == w->page.limit) {
		base_strcpy(w->page.next, sizeof(w->page.next), w->last);
		return 1;
	}
	w->r = rows_session(&w->call->reader, id, &s, w->e);
	if (w->r == -ENOENT) {
		w->r = 0;
		return 0;
	}
	if (w->r < 0)
		return 1;
	base_strcpy(w->last, sizeof(w->last), id);
	if (!s.park)
		json_array_append_new(w->page.items,
				      v1_session_json(&s, w->call->conf));
	return 0;
}

int v1_session_list(struct call *c, struct err *e)
{
	struct v1_session_walk w = { .call = c, .e = e };
	const struct reader *rd;
	uint8_t from[2 * ID_LEN];
	size_t len;
	int r = call_page_init(c, &w.page, e);

	if (r == 0 && w.page.after && !id_valid(w.page.after))
		r = err_set(e, -EINVAL, ERR_INVALID,
			    "?after is not a cursor of this list");
	if (r == 0)
		r = call_reader(c, &rd, e);
	if (r == 0) {
		w.skip = c->who.local ? 0 : strlen(c->who.tenant);
		memcpy(from, c->who.tenant, w.skip);
		len = w.skip;
		if (w.page.after) {
			memcpy(from + w.skip, w.page.after, ID_LEN);
			len += ID_LEN;
		}
		r = rd->ops->scan(rd->view,
				  c->who.local ? TABLE_SESSIONS
					       : TABLE_SESSIONS_BY_TENANT,
				  from, w.skip, from, len, false,
				  v1_session_list_one, &w, e);
	}
	if (r >= 0)
		r = w.r;
	if (r == 0)
		call_page_reply(c, &w.page);
	call_page_done(&w.page);
	return r;
}

/* --- move ----------------------------------------------------------------- */

/* A command without members about the session in the path. */
static int v1_session_simple(struct call *c, enum command_kind kind,
			     struct err *e)
{
	struct command *cmd;
	struct session s;
	int r = call_session(c, c->param[0], &s, e);

	if (r == 0)
		r = call_command(c, kind, s.id, &cmd, e);
	return r < 0 ? r : call_operate(c, cmd, e);
}

int v1_session_pause(struct call *c, struct err *e)
{
	return v1_session_simple(c, COMMAND_PAUSE, e);
}

int v1_session_suspend(struct call *c, struct err *e)
{
	return v1_session_simple(c, COMMAND_SUSPEND, e);
}

int v1_session_delete(struct call *c, struct err *e)
{
	return v1_session_simple(c, COMMAND_DESTROY, e);
}

static json_t *v1_session_found(const struct timespec_point *t)
{
	json_t *o = json_object();

	json_put_str(o, "id", t->point.id);
	if (t->point.name[0])
		json_put_str(o, "name", t->point.name);
	v1_put_time(o, "time", t->point.time_ns);
	v1_put_duration(o, "before_asked", t->off_ns);
	json_put_bool(o, "on_line", !t->off_line);
	return o;
}

int v1_session_at(struct call *c, const struct session *s, const char *key,
		  char ret_point[ID_LEN + 1], json_t **ret_found, struct err *e)
{
	struct timespec_point t;
	const struct reader *rd;
	const char *at = NULL;
	int r = call_body_str(c, key, &at, e);

	if (r < 0 || !at)
		return r;
	r = call_reader(c, &rd, e);
	if (r == 0)
		r = timespec_resolve(rd, s, at, clock_wall(c->conf->clock), &t,
				     e);
	if (r < 0)
		return r;
	base_strcpy(ret_point, ID_LEN + 1, t.point.id);
	*ret_found = v1_session_found(&t);
	return 0;
}

int v1_session_resume(struct call *c, struct err *e)
{
	static const char *const keys[] = { "at", "forensic", NULL };
	SCOPED_JSON json_t *found = NULL;
	char point[ID_LEN + 1] = "";
	bool forensic = false;
	struct command *cmd;
	struct session s;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = call_body_bool(c, "forensic", &forensic, e);
	if (r == 0)
		r = v1_session_at(c, &s, "at", point, &found, e);
	if (r == 0)
		r = call_command(c,
				 s.state == SESSION_PAUSED && !found
					 ? COMMAND_CONTINUE
					 : COMMAND_RESUME,
				 s.id, &cmd, e);
	if (r < 0)
		return r;
	base_strcpy(cmd->point, sizeof(cmd->point), point);
	cmd->forensic = forensic;
	return call_operate_found(c, cmd, STEAL(found), e);
}

int v1_session_rewind(struct call *c, struct err *e)
{
	static const char *const keys[] = { "at", "undo", NULL };
	SCOPED_JSON json_t *found = NULL;
	char point[ID_LEN + 1] = "";
	struct command *cmd;
	struct session s;
	bool undo = false;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = call_body_bool(c, "undo", &undo, e);
	if (r == 0)
		r = v1_session_at(c, &s, "at", point, &found, e);
	if (r == 0 && undo == (found != NULL))
		r = err_set(e, -EINVAL, ERR_INVALID,
			    "a rewind needs either \"at\", the moment to go "
			    "back to, or \"undo\": true");
	if (r == 0)
		r = call_command(c, COMMAND_REWIND, s.id, &cmd, e);
	if (r < 0)
		return r;
	base_strcpy(cmd->point, sizeof(cmd->point), point);
	cmd->undo = undo;
	return call_operate_found(c, cmd, STEAL(found), e);
}

/* --- fork ----------------------------------------------------------------- */

/* "names": names of the children, as many as "count" or fewer. */
static int v1_session_names(struct call *c, struct command *cmd, struct err *e)
{
	const json_t *list = json_object_get(c->body, "names");
	json_t *item;
	size_t i;

	if (!list)
		return 0;
	if (!json_is_array(list) ||
	    json_array_size(list) > (size_t)cmd->nr_children)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"names\" must be a list of at most \"count\" "
			       "names");
	json_array_foreach(list, i, item) {
		const char *name = json_string_value(item);

		if (!name || !base_strcpy(cmd->children[i].name,
					  sizeof(cmd->children[i].name), name))
			return err_set(e, -EINVAL, ERR_INVALID,
				       "\"names\"[%zu] is not a name of at "
				       "most %d characters",
				       i, NAME_MAX_LEN);
	}
	return 0;
}

static int v1_session_fork_fill(struct call *c, struct command *cmd,
				struct err *e)
{
	uint32_t count = 1;
	int r = call_body_u32(c, "count", 1, FORK_MAX, &count, e);

	cmd->nr_children = (int)count;
	if (r == 0)
		r = call_body_bool(c, "forensic", &cmd->forensic, e);
	if (r == 0)
		r = call_body_duration(c, "ttl", &cmd->spec.ttl_ns, e);
	if (r == 0)
		r = v1_session_names(c, cmd, e);
	return r;
}

int v1_session_fork(struct call *c, struct err *e)
{
	static const char *const keys[] = { "at",  "count",    "names",
					    "ttl", "forensic", NULL };
	SCOPED_JSON json_t *found = NULL;
	char point[ID_LEN + 1] = "";
	struct command *cmd;
	struct session s;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = v1_session_at(c, &s, "at", point, &found, e);
	if (r == 0)
		r = call_command(c, COMMAND_FORK, s.id, &cmd, e);
	if (r < 0)
		return r;
	base_strcpy(cmd->point, sizeof(cmd->point), point);
	r = v1_session_fork_fill(c, cmd, e);
	if (r < 0) {
		command_free(cmd);
		return r;
	}
	return call_operate_found(c, cmd, STEAL(found), e);
}
