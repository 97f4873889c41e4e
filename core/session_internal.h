/*
 * session_internal: what the files of decide() share. A `struct decide` is
 * one call: what is known, and the decision being built.
 */
#ifndef CORE_SESSION_INTERNAL_H
#define CORE_SESSION_INTERNAL_H

#include "core/clock.h"
#include "core/session.h"

struct decide {
	const struct session *s; /* or NULL */
	const struct command *c;
	const struct facts *f;
	struct decision *d;
};

/* An event about the command's session; returns its data, to be filled in */
json_t *decide_event(struct decide *x, enum event_type type);
json_t *decide_event_on(struct decide *x, enum event_type type,
			const char *session, const char *tenant);

/* An effect on the command's session, for its present operation and epoch */
struct effect *decide_effect(struct decide *x, enum effect_kind kind);

/* Refuses: drops what was decided so far and keeps only the error. */
void decide_refuse(struct decide *x, int ret, enum err_code code,
		   const char *fmt, ...) PRINTF(4, 5);

/* The same, but the command may wait until the session is free. */
void decide_busy(struct decide *x);

bool decide_refused(const struct decide *x);

/* operation.accepted for c->operation; returns its data. Goes in the slot
 * of the session unless step is STEP_NONE. */
json_t *decide_accept(struct decide *x, enum operation_kind kind,
		      enum operation_step step);

/* Ends the operation in the slot well. `point` may be "". */
void decide_done(struct decide *x, const char *point);

/* The operation in the slot fails; the session goes on. */
void decide_fail_operation(struct decide *x, enum err_code code, const char *why);

/* session.failed, and what follows from it for operation and waiters */
void decide_fail(struct decide *x, enum err_code code, const char *why);

/* Fills a BOOT or RESTORE effect. `base` NULL: boot. */
struct effect *decide_start(struct decide *x, const struct session *s,
			    const char *operation, uint64_t epoch,
			    const struct point *base);

/* A CAPTURE for an operation of this kind. */
void decide_capture(struct decide *x, enum operation_kind kind,
		    const char *operation, const char *name);

void decide_kill(struct decide *x, const char *operation, uint64_t epoch);

/* Is this outcome for the operation in the slot, at this step? */
bool decide_awaited(const struct decide *x, enum operation_step step);

/* Adds {scope, body} of Idempotency-Key to an event's data. */
void decide_put_idem(struct decide *x, json_t *data);

void decide_put_ref(json_t *o, const char *key, const struct point_ref *r);

/* --- the parts ----------------------------------------------------------- */

void decide_create(struct decide *x);
void decide_fork(struct decide *x);
void decide_pause(struct decide *x);
void decide_continue(struct decide *x);
void decide_suspend(struct decide *x);
void decide_resume(struct decide *x);
void decide_rewind(struct decide *x);
void decide_snapshot(struct decide *x);
void decide_destroy(struct decide *x);
void decide_ttl(struct decide *x);
void decide_exec_start(struct decide *x);
void decide_exec_signal(struct decide *x);
void decide_exec_exited(struct decide *x);

/* Rows of execs against what the guest says is alive; `starting`: in a
 * sandbox that has just been made. */
void decide_hello(struct decide *x, bool starting);

void decide_tenant_create(struct decide *x);
void decide_key_create(struct decide *x);
void decide_key_remove(struct decide *x);
void decide_template_add(struct decide *x);
void decide_node_start(struct decide *x);

void decide_base(struct decide *x);
void decide_base_failed(struct decide *x);
void decide_started(struct decide *x);
void decide_paused(struct decide *x);
void decide_continued(struct decide *x);
void decide_captured(struct decide *x);
void decide_capture_skipped(struct decide *x);
void decide_killed(struct decide *x);
void decide_purged(struct decide *x);
void decide_effect_failed(struct decide *x);
void decide_died(struct decide *x);
void decide_stalled(struct decide *x);
void decide_healed(struct decide *x);
void decide_overdue(struct decide *x);
void decide_recover(struct decide *x);

#endif
