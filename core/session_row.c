/*
 * session_row: the row of a session and the table of its states. The diagram
 * and what holds in each state stand in the header. No state of its own.
 */
#include "core/session_row.h"

#define S(name) FSM_BIT(SESSION_##name)

static const struct fsm_state states[SESSION_STATE_NR] = {
	[SESSION_NONE] = { "none", S(CREATING) },
	[SESSION_CREATING] = { "creating", S(RUNNING) | S(FAILED) | S(STOPPING) },
	[SESSION_RUNNING] = { "running", S(PAUSED) | S(SUSPENDED) | S(RESUMING) |
						 S(FAILED) | S(STOPPING) },
	[SESSION_PAUSED] = { "paused", S(RUNNING) | S(SUSPENDED) | S(RESUMING) |
					       S(FAILED) | S(STOPPING) },
	[SESSION_SUSPENDED] = { "suspended", S(RESUMING) | S(STOPPING) },
	[SESSION_RESUMING] = { "resuming", S(RUNNING) | S(FAILED) | S(STOPPING) },
	[SESSION_STOPPING] = { "stopping", S(DESTROYED) },
	[SESSION_FAILED] = { "failed", S(RESUMING) | S(STOPPING) },
	[SESSION_DESTROYED] = { "destroyed", 0 },
};

const struct fsm session_fsm = { "session", states, ARRAY_LEN(states) };

static const char *const state_words[SESSION_STATE_NR] = {
	[SESSION_NONE] = "none",	   [SESSION_CREATING] = "creating",
	[SESSION_RUNNING] = "running",	   [SESSION_PAUSED] = "paused",
	[SESSION_SUSPENDED] = "suspended", [SESSION_RESUMING] = "resuming",
	[SESSION_STOPPING] = "stopping",   [SESSION_FAILED] = "failed",
	[SESSION_DESTROYED] = "destroyed",
};

const char *const session_keep_words[KEEP_NR] = {
	[KEEP_DURABLE] = "durable",
	[KEEP_NONE] = "none",
};

static const struct field spec_table[] = {
	FIELD(struct session_spec, STR, template, "template"),
	FIELD(struct session_spec, STR, template_digest, "template_digest"),
	FIELD(struct session_spec, U32, memory_mib, "memory_mib"),
	FIELD(struct session_spec, U32, vcpus, "vcpus"),
	FIELD(struct session_spec, U32, disk_mib, "disk_mib"),
	FIELD(struct session_spec, NS, snapshot_every_ns, "snapshot_every_ns"),
	FIELD(struct session_spec, NS, ttl_ns, "ttl_ns"),
	FIELD_OF_ENUM(struct session_spec, keep, "keep", session_keep_words),
};

const struct fields session_spec_fields = FIELDS(struct session_spec, spec_table);

static const struct field op_table[] = {
	FIELD(struct session_op, STR, id, "id"),
	FIELD_OF_ENUM(struct session_op, kind, "kind", operation_kind_words),
	FIELD_OF_ENUM(struct session_op, step, "step", operation_step_words),
	FIELD_OF_PART(struct session_op, target, "target", point_ref_fields),
	FIELD(struct session_op, STR, name, "name"),
	FIELD(struct session_op, BOOL, forensic, "forensic"),
};

const struct fields session_op_fields = FIELDS(struct session_op, op_table);

static const struct field table[] = {
	FIELD(struct session, STR, id, "id"),
	FIELD(struct session, STR, tenant, "tenant"),
	FIELD(struct session, STR, name, "name"),
	FIELD_OF_ENUM(struct session, state, "state", state_words),
	FIELD(struct session, U64, epoch, "epoch"),
	FIELD_OF_PART(struct session, spec, "spec", session_spec_fields),
	FIELD(struct session, BOOL, park, "park"),
	FIELD(struct session, STR, park_key, "park_key"),
	FIELD(struct session, STR, parent, "parent"),
	FIELD_OF_PART(struct session, base, "base", point_fields),
	FIELD_OF_PART(struct session, start, "start", point_ref_fields),
	FIELD_OF_PART(struct session, head, "head", point_ref_fields),
	FIELD_OF_PART(struct session, undo, "undo", point_ref_fields),
	FIELD(struct session, NS, newest_ns, "newest_ns"),
	FIELD(struct session, U64, rewinds, "rewinds"),
	FIELD(struct session, U64, points, "points"),
	FIELD(struct session, U64, stored_bytes, "stored_bytes"),
	FIELD(struct session, U64, children, "children"),
	FIELD_OF_PART(struct session, op, "operation", session_op_fields),
	FIELD(struct session, STR, waits_on, "waits_on"),
	FIELD(struct session, NS, created_ns, "created_ns"),
	FIELD(struct session, NS, changed_ns, "changed_ns"),
	FIELD(struct session, NS, started_ns, "started_ns"),
	FIELD(struct session, STR, actor, "actor"),
	FIELD(struct session, STR, backend, "backend"),
	FIELD(struct session, STR, accel, "accel"),
	FIELD(struct session, BOOL, agent, "agent"),
	FIELD(struct session, BOOL, stalled, "stalled"),
	FIELD(struct session, STR, stall_why, "stall_why"),
	FIELD(struct session, I32, fail_code, "fail_code"),
	FIELD(struct session, STR, fail_why, "fail_why"),
	FIELD(struct session, NS, ttl_used_ns, "ttl_used_ns"),
	FIELD(struct session, NS, running_since_ns, "running_since_ns"),
	FIELD(struct session, HEX, running_boot, "running_boot"),
};

const struct fields session_fields = FIELDS(struct session, table);

void session_encode(struct buf *b, const struct session *s)
{
	fields_row_encode(b, &session_fields, s);
}

int session_decode(struct session *ret, const void *row, size_t len,
		   struct err *e)
{
	return fields_row_decode(row, len, &session_fields, ret, e);
}

int64_t session_ttl_left(const struct session *s, int64_t mono_ns,
			 const uint8_t boot_id[16])
{
	int64_t used = s->ttl_used_ns;

	if (!s->spec.ttl_ns)
		return INT64_MAX;
	if (s->running_since_ns && !memcmp(s->running_boot, boot_id, 16))
		used += MAX(0, mono_ns - s->running_since_ns);
	return s->spec.ttl_ns - used;
}
