/*
 * operation: the row of an accepted request. States only move along
 * operation_fsm: open -> done | failed. No state of its own here.
 */
#include "core/operation.h"

const char *const operation_kind_words[OPERATION_KIND_NR] = {
#define X(name, word) [OPERATION_##name] = word,
	OPERATION_KINDS(X)
#undef X
};

const char *const operation_step_words[STEP_NR] = {
#define X(name, word, text) [STEP_##name] = word,
	OPERATION_STEPS(X)
#undef X
};

static const char *const step_texts[STEP_NR] = {
#define X(name, word, text) [STEP_##name] = text,
	OPERATION_STEPS(X)
#undef X
};

static const char *const state_words[OPERATION_STATE_NR] = {
	[OPERATION_STATE_NONE] = "none",
	[OPERATION_OPEN] = "open",
	[OPERATION_ENDED] = "done",
	[OPERATION_BROKEN] = "failed",
};

static const struct fsm_state states[OPERATION_STATE_NR] = {
	[OPERATION_STATE_NONE] = { "none", FSM_BIT(OPERATION_OPEN) },
	[OPERATION_OPEN] = { "open", FSM_BIT(OPERATION_ENDED) |
					     FSM_BIT(OPERATION_BROKEN) },
	[OPERATION_ENDED] = { "done", 0 },
	[OPERATION_BROKEN] = { "failed", 0 },
};

const struct fsm operation_fsm = { "operation", states, ARRAY_LEN(states) };

static const struct field table[] = {
	FIELD(struct operation, STR, id, "id"),
	FIELD_OF_ENUM(struct operation, kind, "kind", operation_kind_words),
	FIELD_OF_ENUM(struct operation, state, "state", state_words),
	FIELD(struct operation, STR, tenant, "tenant"),
	FIELD(struct operation, STR, session, "session"),
	FIELD(struct operation, STR, actor, "actor"),
	FIELD(struct operation, STR, stage, "stage"),
	FIELD(struct operation, NS, accepted_ns, "accepted_ns"),
	FIELD(struct operation, NS, ended_ns, "ended_ns"),
	FIELD(struct operation, I32, error_code, "error_code"),
	FIELD(struct operation, STR, error, "error"),
	FIELD(struct operation, STR, point, "point"),
	FIELD(struct operation, JSON, sessions, "sessions"),
	FIELD(struct operation, U32, waiting, "waiting"),
	FIELD(struct operation, U32, broken, "broken"),
};

const struct fields operation_fields = FIELDS(struct operation, table);

const char *operation_step_text(enum operation_step s)
{
	PRE(s < STEP_NR);
	return step_texts[s];
}

void operation_encode(struct buf *b, const struct operation *op)
{
	fields_row_encode(b, &operation_fields, op);
}

int operation_decode(struct operation *ret, const void *row, size_t len,
		     struct err *e)
{
	return fields_row_decode(row, len, &operation_fields, ret, e);
}

void operation_done(struct operation *op)
{
	fields_done(&operation_fields, op);
}
