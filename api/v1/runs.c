/*
 * runs: one command in a session of its own. A run's id is its session's;
 * the session is `keep: none`, so its time limit ends it even if the client
 * never comes back.
 *
 * How it works: create, wait until it runs, start the command. When the
 * first takes longer than a request may, the answer is "busy": the same
 * request with the same Idempotency-Key goes on where this one stopped,
 * since both commands are remembered under that key.
 *
 * A crash between the two commands leaves a session without a command,
 * which its time limit removes.
 */
#include "api/v1/v1.h"

#define V1_RUN_TTL_NS (3600 * NS_PER_S)
#define V1_RUN_WAIT_MS 50000

static json_t *v1_run_json(struct call *c, const struct session *s,
			   const struct exec *x)
{
	json_t *o = json_object();

	json_put_str(o, "id", s->id);
	json_object_set_new(o, "session", v1_session_json(s, c->conf));
	if (x)
		json_object_set_new(o, "exec", v1_exec_json(x));
	return o;
}

static int v1_run_session(struct call *c, char ret_id[ID_LEN + 1], struct err *e)
{
	SCOPED(operation_done) struct operation op = { 0 };
	struct reply re = { 0 };
	struct command *cmd;
	int r = call_command(c, COMMAND_CREATE, NULL, &cmd, e);

	if (r < 0)
		return r;
	cmd->spec.keep = KEEP_NONE;
	cmd->spec.ttl_ns = V1_RUN_TTL_NS;
	r = v1_session_fill(c, cmd, e);
	if (r < 0) {
		command_free(cmd);
		return r;
	}
	r = call_submit(c, cmd, &re, e);
	if (r == 0)
		r = call_await_operation(c, re.operation, V1_RUN_WAIT_MS, &op, e);
	if (r < 0)
		return r;
	if (op.state == OPERATION_OPEN)
		return err_set(e, -EBUSY, ERR_BUSY,
			       "session %s is not ready yet (%s); repeat the "
			       "request with the same Idempotency-Key",
			       re.session, op.stage);
	if (op.state == OPERATION_BROKEN)
		return err_set(e, -EIO, (enum err_code)op.error_code, "%s",
			       op.error);
	base_strcpy(ret_id, ID_LEN + 1, re.session);
	return 0;
}

static int v1_run_exec(struct call *c, const char *session, struct reply *re,
		       struct err *e)
{
	struct command *cmd;
	int r = call_command(c, COMMAND_EXEC_START, session, &cmd, e);

	if (r < 0)
		return r;
	r = v1_exec_fill(c, cmd, e);
	if (r < 0) {
		command_free(cmd);
		return r;
	}
	return call_submit(c, cmd, re, e);
}

/* Before anything is made: what would be refused later is refused now. */
static int v1_run_check(struct call *c, struct err *e)
{
	static const char *const keys[] = {
		"template", "name",  "memory_mib",     "vcpus", "disk_mib",
		"ttl",	    "keep",  "argv",	       "env",	"cwd",
		"user",	    "stdin", "snapshot_every", NULL
	};
	struct command *probe;
	int r = c->body ? json_only(c->body, keys, e) : 0;

	if (r < 0)
		return r;
	probe = command_new(COMMAND_EXEC_START);
	r = v1_exec_fill(c, probe, e);
	command_free(probe);
	return r;
}

int v1_run_create(struct call *c, struct err *e)
{
	SCOPED(exec_done) struct exec x = { 0 };
	char id[ID_LEN + 1];
	struct reply re = { 0 };
	struct session s;
	int64_t wait_ms = 0;
	int r = call_wait_ms(c, &wait_ms, e);

	if (r == 0)
		r = v1_run_check(c, e);
	if (r == 0)
		r = v1_run_session(c, id, e);
	if (r == 0)
		r = v1_run_exec(c, id, &re, e);
	if (r == 0)
		r = call_exec(c, re.exec, &x, e);
	if (r == 0)
		r = v1_exec_await(c, &x, MIN(wait_ms, 5000), e);
	if (r == 0)
		r = call_session(c, id, &s, e);
	if (r < 0)
		return r;
	call_reply_json(c, 201, v1_run_json(c, &s, &x));
	return 0;
}

int v1_run_get(struct call *c, struct err *e)
{
	const struct reader *rd;
	struct exec *execs = NULL;
	struct session s;
	int64_t wait_ms = 0;
	int nr = 0, first = 0;
	int r = call_wait_ms(c, &wait_ms, e);

	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r == 0)
		r = call_reader(c, &rd, e);
	if (r == 0)
		r = rows_execs(rd, s.id, false, &execs, &nr, e);
	if (r < 0)
		return r;
	for (int i = 1; i < nr; i++) /* the run's own is the oldest */
		if (execs[i].started_ns < execs[first].started_ns)
			first = i;
	if (nr)
		r = v1_exec_await(c, &execs[first], wait_ms, e);
	if (r == 0)
		r = call_session(c, s.id, &s, e);
	if (r == 0)
		call_reply_json(c, 200,
				v1_run_json(c, &s, nr ? &execs[first] : NULL));
	for (int i = 0; i < nr; i++)
		exec_done(&execs[i]);
	free(execs);
	return r;
}
