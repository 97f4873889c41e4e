/*
 * exec_row: the row of one command in a sandbox. States move only along
 * exec_fsm; `exited -> running` and `lost -> running` happen when a restore
 * brings back a moment in which the command still ran.
 */
#include "core/exec_row.h"

static const char *const state_words[EXEC_STATE_NR] = {
	[EXEC_STATE_NONE] = "none",
	[EXEC_RUNNING] = "running",
	[EXEC_EXITED] = "exited",
	[EXEC_LOST] = "lost",
};

static const struct fsm_state states[EXEC_STATE_NR] = {
	[EXEC_STATE_NONE] = { "none", FSM_BIT(EXEC_RUNNING) },
	[EXEC_RUNNING] = { "running", FSM_BIT(EXEC_RUNNING) |
					      FSM_BIT(EXEC_EXITED) |
					      FSM_BIT(EXEC_LOST) },
	[EXEC_EXITED] = { "exited", FSM_BIT(EXEC_RUNNING) },
	[EXEC_LOST] = { "lost", FSM_BIT(EXEC_RUNNING) },
};

const struct fsm exec_fsm = { "exec", states, ARRAY_LEN(states) };

static const struct field table[] = {
	FIELD(struct exec, STR, id, "id"),
	FIELD(struct exec, STR, tag, "tag"),
	FIELD(struct exec, STR, session, "session"),
	FIELD(struct exec, STR, tenant, "tenant"),
	FIELD(struct exec, STR, origin, "origin"),
	FIELD(struct exec, U64, epoch, "epoch"),
	FIELD_OF_ENUM(struct exec, state, "state", state_words),
	FIELD(struct exec, I32, code, "code"),
	FIELD(struct exec, I32, signal, "signal"),
	FIELD(struct exec, U64, out, "out"),
	FIELD(struct exec, U64, err, "err"),
	FIELD(struct exec, U64, out_base, "out_base"),
	FIELD(struct exec, U64, err_base, "err_base"),
	FIELD(struct exec, NS, started_ns, "started_ns"),
	FIELD(struct exec, NS, ended_ns, "ended_ns"),
	FIELD(struct exec, BOOL, has_stdin, "stdin"),
	FIELD(struct exec, BOOL, tty, "tty"),
	FIELD(struct exec, JSON, argv, "argv"),
	FIELD(struct exec, JSON, env, "env"),
	FIELD(struct exec, STR, cwd, "cwd"),
	FIELD(struct exec, STR, user, "user"),
	FIELD(struct exec, STR, why, "why"),
};

const struct fields exec_fields = FIELDS(struct exec, table);

void exec_encode(struct buf *b, const struct exec *x)
{
	fields_row_encode(b, &exec_fields, x);
}

int exec_decode(struct exec *ret, const void *row, size_t len, struct err *e)
{
	return fields_row_decode(row, len, &exec_fields, ret, e);
}

void exec_done(struct exec *x)
{
	fields_done(&exec_fields, x);
}
