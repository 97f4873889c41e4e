/*
 * execs: commands in a sandbox: start, look, wait, signal, standard input.
 *
 * Invariants: values of env and bytes of stdin pass through memory only;
 * waiting holds no read view; a repeated stdin request at the same offset
 * gives no byte twice.
 */
#include "api/v1/v1.h"

#include <inttypes.h>

#define V1_EXEC_SLICE_MS 1000
#define V1_STDIN_MS 20000 /* for a process to take what it was given */

/* --- start ---------------------------------------------------------------- */

static int v1_exec_argv(const struct call *c, struct command *cmd, struct err *e)
{
	json_t *argv = json_object_get(c->body, "argv"), *item;
	size_t i, bytes = 0;

	if (!json_is_array(argv) || !json_array_size(argv))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"argv\" must be a list of strings: the "
			       "program and its arguments");
	json_array_foreach(argv, i, item) {
		if (!json_is_string(item))
			return err_set(e, -EINVAL, ERR_INVALID,
				       "\"argv\"[%zu] is not a string", i);
		bytes += json_string_length(item) + 4;
	}
	if (bytes > EXEC_ARGV_MAX)
		return err_set(e, -EINVAL, ERR_TOO_LARGE,
			       "\"argv\" has more than %u bytes; put long "
			       "input into a file",
			       EXEC_ARGV_MAX);
	cmd->argv = json_incref(argv);
	return 0;
}

static int v1_exec_env(const struct call *c, struct command *cmd, struct err *e)
{
	json_t *env = json_object_get(c->body, "env"), *item;
	const char *name;
	size_t bytes = 0;

	if (!env)
		return 0;
	if (!json_is_object(env))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"env\" must be an object of strings");
	json_object_foreach(env, name, item) {
		if (!*name || strchr(name, '=') || !json_is_string(item))
			return err_set(e, -EINVAL, ERR_INVALID,
				       "\"env\": \"%.40s\" must be a name "
				       "without = and have a string",
				       name);
		bytes += strlen(name) + json_string_length(item) + 6;
	}
	if (bytes > EXEC_ARGV_MAX)
		return err_set(e, -EINVAL, ERR_TOO_LARGE,
			       "\"env\" has more than %u bytes; put long "
			       "values into a file",
			       EXEC_ARGV_MAX);
	cmd->env = json_incref(env);
	return 0;
}

static int v1_exec_cwd(const struct call *c, struct command *cmd, struct err *e)
{
	const char *cwd = NULL;
	int r = call_body_str(c, "cwd", &cwd, e);

	if (r < 0 || !cwd)
		return r;
	if (cwd[0] != '/' || strlen(cwd) >= EXEC_CWD_MAX)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"cwd\" must be an absolute path of at most "
			       "%d bytes",
			       EXEC_CWD_MAX - 1);
	cmd->cwd = base_strdup(cwd);
	return 0;
}

int v1_exec_fill(struct call *c, struct command *cmd, struct err *e)
{
	int r = v1_exec_argv(c, cmd, e);

	if (r == 0)
		r = v1_exec_env(c, cmd, e);
	if (r == 0)
		r = v1_exec_cwd(c, cmd, e);
	if (r == 0)
		r = call_body_copy(c, "user", cmd->user, sizeof(cmd->user), e);
	if (r == 0)
		r = call_body_bool(c, "stdin", &cmd->has_stdin, e);
	return r;
}

int v1_exec_create(struct call *c, struct err *e)
{
	static const char *const keys[] = { "argv", "env",   "cwd",
					    "user", "stdin", NULL };
	SCOPED(exec_done) struct exec x = { 0 };
	struct reply re = { 0 };
	struct command *cmd;
	struct session s;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = call_command(c, COMMAND_EXEC_START, s.id, &cmd, e);
	if (r < 0)
		return r;
	r = v1_exec_fill(c, cmd, e);
	if (r < 0) {
		command_free(cmd);
		return r;
	}
	r = call_submit(c, cmd, &re, e);
	if (r == 0)
		r = call_exec(c, re.exec, &x, e);
	if (r < 0)
		return r;
	call_reply_json(c, 201, v1_exec_json(&x));
	return 0;
}

/* --- look ----------------------------------------------------------------- */

int v1_exec_get(struct call *c, struct err *e)
{
	SCOPED(exec_done) struct exec x = { 0 };
	int r = call_exec(c, c->param[0], &x, e);

	if (r == 0)
		call_reply_json(c, 200, v1_exec_json(&x));
	return r;
}

struct v1_exec_walk {
	struct call *call;
	struct call_page page;
	int r;
	struct err *e;
};

static int v1_exec_list_one(void *ctx, const void *key, size_t key_len,
			    const void *value, size_t len)
{
	struct v1_exec_walk *w = ctx;
	SCOPED(exec_done) struct exec x = { 0 };
	char id[ID_LEN + 1] = "";
	size_t nr = json_array_size(w->page.items);

	(void)value;
	(void)len;
	if (key_len != 2 * ID_LEN)
		return 0;
	memcpy(id, (const char *)key + ID_LEN, ID_LEN);
	if (w->page.after && strcmp(id, w->page.after) <= 0)
		return 0;
	if ((int64_t)nr == w->page.limit) {
		const json_t *last = json_array_get(w->page.items, nr - 1);

		base_strcpy(w->page.next, sizeof(w->page.next),
			    json_string_value(json_object_get(last, "id")));
		return 1;
	}
	w->r = rows_exec(&w->call->reader, id, &x, w->e);
	if (w->r == 0)
		json_array_append_new(w->page.items, v1_exec_json(&x));
	if (w->r == -ENOENT)
		w->r = 0;
	return w->r < 0;
}

int v1_exec_list(struct call *c, struct err *e)
{
	struct v1_exec_walk w = { .call = c, .e = e };
	const struct reader *rd;
	uint8_t from[2 * ID_LEN];
	struct session s;
	int r = call_page_init(c, &w.page, e);

	if (r == 0 && w.page.after && !id_valid(w.page.after))
		r = err_set(e, -EINVAL, ERR_INVALID,
			    "?after is not a cursor of this list");
	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = call_reader(c, &rd, e);
	if (r == 0) {
		memcpy(from, s.id, ID_LEN);
		if (w.page.after)
			memcpy(from + ID_LEN, w.page.after, ID_LEN);
		r = rd->ops->scan(rd->view, TABLE_EXECS_BY_SESSION, s.id, ID_LEN,
				  from, w.page.after ? sizeof(from) : ID_LEN,
				  false, v1_exec_list_one, &w, e);
	}
	if (r >= 0)
		r = w.r;
	if (r == 0)
		call_page_reply(c, &w.page);
	call_page_done(&w.page);
	return r;
}

/* --- wait ----------------------------------------------------------------- */

int v1_exec_await(struct call *c, struct exec *x, int64_t timeout_ms,
		  struct err *e)
{
	int64_t now = clock_mono(c->conf->clock) / NS_PER_MS;
	int64_t until = now + timeout_ms;
	char id[ID_LEN + 1];

	base_strcpy(id, sizeof(id), x->id);
	while (x->state == EXEC_RUNNING && now < until &&
	       !http_stopping(c->http) && !http_peer_gone(c->http)) {
		const struct reader *rd;
		uint64_t seq;
		int r;

		/* a new view first: what came after it wakes us */
		call_reader_close(c);
		r = call_reader(c, &rd, e);
		if (r < 0)
			return r;
		seq = rd->ops->last_seq(rd->view);
		exec_done(x);
		r = call_exec(c, id, x, e);
		if (r < 0)
			return r;
		if (x->state != EXEC_RUNNING)
			break;
		call_reader_close(c);
		c->conf->engine.wait_seq(c->conf->engine.ctx, seq,
					 MIN(until - now, V1_EXEC_SLICE_MS));
		now = clock_mono(c->conf->clock) / NS_PER_MS;
	}
	return 0;
}

int v1_exec_wait(struct call *c, struct err *e)
{
	SCOPED(exec_done) struct exec x = { 0 };
	int64_t s;
	int r = call_query_int(c, "timeout", 0, HTTP_WAIT_MAX_S, 30, &s, e);

	if (r == 0)
		r = call_exec(c, c->param[0], &x, e);
	if (r == 0)
		r = v1_exec_await(c, &x, s * 1000, e);
	if (r < 0)
		return r;
	call_reply_json(c, 200, v1_exec_json(&x));
	return 0;
}

/* --- act ------------------------------------------------------------------ */

static const struct {
	const char *name;
	int nr; /* Linux, x86-64: the guest's numbers, not the client's */
} v1_signals[] = {
	{ "HUP", 1 },	{ "INT", 2 },	 { "QUIT", 3 },	 { "ABRT", 6 },
	{ "KILL", 9 },	{ "USR1", 10 },	 { "USR2", 12 }, { "PIPE", 13 },
	{ "ALRM", 14 }, { "TERM", 15 },	 { "CONT", 18 }, { "STOP", 19 },
	{ "TSTP", 20 }, { "WINCH", 28 },
};

static int v1_signal_parse(const json_t *v, int *ret, struct err *e)
{
	const char *name = json_string_value(v);
	json_int_t nr = json_integer_value(v);

	if (json_is_integer(v) && nr >= 1 && nr <= 64) {
		*ret = (int)nr;
		return 0;
	}
	if (name && !strncmp(name, "SIG", 3))
		name += 3;
	for (size_t i = 0; name && i < ARRAY_LEN(v1_signals); i++)
		if (!strcmp(name, v1_signals[i].name)) {
			*ret = v1_signals[i].nr;
			return 0;
		}
	return err_set(e, -EINVAL, ERR_INVALID,
		       "\"signal\" must be a name such as \"TERM\" or a "
		       "number from 1 to 64");
}

int v1_exec_signal(struct call *c, struct err *e)
{
	static const char *const keys[] = { "signal", NULL };
	SCOPED(exec_done) struct exec x = { 0 };
	struct reply re = { 0 };
	struct command *cmd;
	int signal = 0;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r == 0)
		r = v1_signal_parse(json_object_get(c->body, "signal"), &signal,
				    e);
	if (r == 0)
		r = call_exec(c, c->param[0], &x, e);
	if (r == 0)
		r = call_command(c, COMMAND_EXEC_SIGNAL, x.session, &cmd, e);
	if (r < 0)
		return r;
	base_strcpy(cmd->exec, sizeof(cmd->exec), x.id);
	cmd->signal = signal;
	r = call_submit(c, cmd, &re, e);
	if (r == 0)
		call_reply_none(c);
	return r;
}

/* One piece after the other; stops where the process takes no more. */
static int v1_exec_give(struct call *c, const struct exec *x, uint64_t off,
			bool eof, uint64_t *ret_off, struct err *e)
{
	const struct sandbox_port *sb = &c->conf->sandbox;
	const struct buf *b = http_body(c->http);
	size_t at = 0;

	do {
		size_t len = MIN(b->len - at, (size_t)SANDBOX_CHUNK_MAX);
		int r = sb->stdin_write(sb->ctx, x->session, x->id, off,
					len ? b->p + at : NULL, len,
					eof && at + len == b->len, V1_STDIN_MS,
					ret_off, e);

		if (r == -ETIMEDOUT)
			return 0; /* the client sends the rest from *ret_off */
		if (r < 0)
			return r;
		at += len;
		off = off == SANDBOX_APPEND ? off : off + len;
	} while (at < b->len && !http_stopping(c->http));
	return 0;
}

int v1_exec_stdin(struct call *c, struct err *e)
{
	SCOPED(exec_done) struct exec x = { 0 };
	int64_t off;
	uint64_t at = 0;
	bool eof;
	json_t *o;
	int r = call_query_int(c, "offset", 0, INT64_MAX, -1, &off, e);

	if (r == 0)
		r = call_query_bool(c, "eof", false, &eof, e);
	if (r == 0)
		r = call_exec(c, c->param[0], &x, e);
	if (r < 0)
		return r;
	call_reader_close(c);
	if (x.state != EXEC_RUNNING || !x.has_stdin)
		return err_set(e, -EPIPE, ERR_CONFLICT, "exec %s %s", x.id,
			       x.has_stdin ? "has ended; it reads nothing more"
					   : "was started without stdin; start it "
					     "with \"stdin\": true");
	r = v1_exec_give(c, &x, off < 0 ? SANDBOX_APPEND : (uint64_t)off, eof,
			 &at, e);
	if (r < 0)
		return r;
	o = json_object();
	json_put_int(o, "offset", (int64_t)at);
	call_reply_json(c, 200, o);
	return 0;
}
