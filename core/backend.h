/*
 * backend: what the engine needs of a driver. A driver gets effects and
 * answers with outcome commands; it keeps no truth of its own.
 *
 * Rules for drivers
 *  1. start() is called by the engine's thread, after the commit; it takes
 *     ownership, returns at once and never fails: trouble is an outcome.
 *     It may report outcomes from inside start().
 *  2. Effects of one session are carried out in the order given. KILL and
 *     PURGE do not wait for those before them: they cut them short; what
 *     was cut short may stay without an outcome.
 *  3. Each effect but EXEC_START and EXEC_SIGNAL gets exactly one outcome,
 *     within the driver's own deadline, with the effect's session, epoch
 *     and operation.
 *  4. Idempotent by (session, epoch, operation): given again (after a crash
 *     of the daemon), a thing done is reported as done, a thing under way
 *     is not begun a second time. EXEC_START by exec id.
 *  5. CAPTURED comes only when all bytes of the point are durable. The
 *     reply to it (command.done) says whether the point is committed (rc 0:
 *     close the dirty epoch) or must be dropped. A CAPTURE that fails leaves
 *     the VM as it was before: running or stopped.
 *  6. KILL without a sandbox is KILLED at once. A sandbox that ends without
 *     KILL is DIED, once.
 *  7. PURGE removes what only this session needs. Packs that a child's base
 *     reaches stay; the child's keys for them (grants) are made when its
 *     RESTORE is taken, before start() returns, so that a PURGE of the
 *     parent that follows can't overtake it.
 *  8. Values of env are in the effect only; they go to the guest and into
 *     no log, file or message to anyone else.
 *  9. BOOT and RESTORE of an epoch end whatever is left of older epochs of
 *     the session. KILL is for its epoch and those before it, never for a
 *     later one.
 */
#ifndef CORE_BACKEND_H
#define CORE_BACKEND_H

#include "core/command.h"

enum backend_isolation {
	ISOLATION_NONE, /* tests */
	ISOLATION_PROCESS, /* emulated (TCG): not a security boundary */
	ISOLATION_VM, /* hardware */
};

struct backend_caps {
	bool rolling, memory, disk, fork_cow, net;
	enum backend_isolation isolation;
};

/* Where outcomes go; any thread; takes ownership of the command. */
struct outcome_sink {
	void *ctx;
	void (*submit)(void *ctx, struct command *c);
};

/* A sandbox that a driver found alive when the daemon started. */
struct backend_live {
	char session[ID_LEN + 1];
	uint64_t epoch;
	bool stopped; /* its vCPUs stand still */
	bool hello_known;
	int64_t hello_ns;
	int nr_hello;
	struct exec_hello *hello; /* owned by the list's owner */
};

struct backend {
	const char *name; /* "qemu" */
	void *ctx;
	struct backend_caps caps;
	/* Is it usable here? The error says what is missing. */
	int (*probe)(void *ctx, struct err *e);
	void (*start)(void *ctx, struct effect *fx);
	/*
	 * Would a start from this point work on this host as it is (VMM build,
	 * machine, kernel)? Asked before anything is torn down for it. 0, or
	 * -EINVAL with ERR_MISMATCH saying what differs. The engine's thread;
	 * must not wait. NULL: every point fits.
	 */
	int (*fits)(void *ctx, const struct session_spec *spec,
		    const struct point *p, struct err *e);
};

#endif
