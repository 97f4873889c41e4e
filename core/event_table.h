/*
 * event_table: every type of event, in one table. A type is named by its
 * word, for ever; its data only gains members. What a member means stands
 * above its row: [a] attested, seen by the host; [c] claimed, told by the
 * guest and worth no more than that. Times are ns as decimal strings.
 *
 *   X(NAME, "word", schema version of the data)
 */
#ifndef CORE_EVENT_TABLE_H
#define CORE_EVENT_TABLE_H

#define EVENT_TYPES(X)                                                      \
	/* version [a], platform [a]: digest of VMM and kernel in use */    \
	X(NODE_STARTED, "node.started", 1)                                  \
	/* id, name [a] */                                                  \
	X(TENANT_CREATED, "tenant.created", 1)                              \
	/* id, name, hash, scopes [a] */                                    \
	X(KEY_CREATED, "key.created", 1)                                    \
	/* id [a] */                                                        \
	X(KEY_REMOVED, "key.removed", 1)                                    \
	/* name, digest, info [a] */                                        \
	X(TEMPLATE_ADDED, "template.added", 1)                              \
	/* park_key, point [a]; the event's session is the park session */  \
	X(TEMPLATE_PARKED, "template.parked", 1)                            \
	/* spec; lineage: parent, base; operation: id, kind, step; name;    \
	   waits_on, park, park_key [a] */                                  \
	X(SESSION_CREATED, "session.created", 1)                            \
	/* base: the point that a waiting creation was waiting for [a] */   \
	X(SESSION_BASED, "session.based", 1)                                \
	/* epoch, backend, accel, us, agent, operation [a]; renewed [c] */  \
	X(SESSION_STARTED, "session.started", 1)                            \
	/* operation [a] */                                                 \
	X(SESSION_PAUSED, "session.paused", 1)                              \
	/* operation [a] */                                                 \
	X(SESSION_CONTINUED, "session.continued", 1)                        \
	/* point, operation [a] */                                          \
	X(SESSION_SUSPENDED, "session.suspended", 1)                        \
	/* epoch, point, operation [a] */                                   \
	X(SESSION_RESUMING, "session.resuming", 1)                          \
	/* epoch, point, left: the point of the present, operation [a] */   \
	X(SESSION_REWINDING, "session.rewinding", 1)                        \
	/* children, point, operation [a]; on the parent */                 \
	X(SESSION_FORKED, "session.forked", 1)                              \
	/* why, code, epoch, operation [a] */                               \
	X(SESSION_FAILED, "session.failed", 1)                              \
	/* operation, ended: the operation it ends [a]; the tombstone */    \
	X(SESSION_STOPPING, "session.stopping", 1)                          \
	/* nothing; the last event of a session */                          \
	X(SESSION_DESTROYED, "session.destroyed", 1)                        \
	/* why [a] */                                                       \
	X(SESSION_STALLED, "session.stalled", 1)                            \
	/* nothing */                                                       \
	X(SESSION_HEALED, "session.healed", 1)                              \
	/* the members of a point row (point.c), operation [a] */           \
	X(SNAPSHOT_COMMITTED, "snapshot.committed", 1)                      \
	/* why, code, kind, operation [a] */                                \
	X(SNAPSHOT_SKIPPED, "snapshot.skipped", 1)                          \
	/* point, name [a] */                                               \
	X(SNAPSHOT_NAMED, "snapshot.named", 1)                              \
	/* id, tag, epoch, argv, cwd, user, env: names, env_digest: keyed,  \
	   stdin, tty, idempotency [a] */                                   \
	X(EXEC_STARTED, "exec.started", 1)                                  \
	/* id [a]; code, signal, out, err, error [c] */                     \
	X(EXEC_EXITED, "exec.exited", 1)                                    \
	/* id, why [a] */                                                   \
	X(EXEC_LOST, "exec.lost", 1)                                        \
	/* id, tag, origin, epoch, argv, cwd, user [a]; out, err [c]: where \
	   the new line's output begins */                                  \
	X(EXEC_ADOPTED, "exec.adopted", 1)                                  \
	/* id, signal [a] */                                                \
	X(EXEC_SIGNALLED, "exec.signalled", 1)                              \
	/* operation, kind, step, target, name, sessions, forensic,         \
	   idempotency [a] */                                               \
	X(OPERATION_ACCEPTED, "operation.accepted", 1)                      \
	/* operation, point [a] */                                          \
	X(OPERATION_DONE, "operation.done", 1)                              \
	/* operation, code, why [a] */                                      \
	X(OPERATION_FAILED, "operation.failed", 1)                          \
	/* ttl_ns, then: suspend | destroy [a] */                           \
	X(LIMIT_TTL, "limit.ttl", 1)

enum event_type {
	EVENT_UNKNOWN, /* a type that this build doesn't know: kept as it is */
#define X(name, word, schema) EVENT_##name,
	EVENT_TYPES(X)
#undef X
		EVENT_NR
};

#endif
