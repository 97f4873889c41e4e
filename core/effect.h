/*
 * effect: something to be done in the world because an event was committed.
 * Effects are handed to the driver after the commit, in order per session.
 * Each is idempotent by (session, epoch, operation): the engine gives it
 * again after a crash, and a driver that has done it already just reports
 * the outcome again.
 */
#ifndef CORE_EFFECT_H
#define CORE_EFFECT_H

#include "core/exec_row.h"
#include "core/session_row.h"

/*   kind          outcome commands (command.h) */
#define EFFECTS(X)                                                     \
	X(BOOT, "boot") /* started | failed */                         \
	X(RESTORE, "restore") /* started | failed */                   \
	X(STOP, "stop") /* paused | failed */                          \
	X(CONT, "cont") /* continued | failed */                       \
	X(CAPTURE, "capture") /* captured | capture_skipped */         \
	X(KILL, "kill") /* killed | failed; also without a sandbox */  \
	X(PURGE, "purge") /* purged | failed; keys, packs, overlay */  \
	X(EXEC_START, "exec_start") /* exec_exited, sooner or later */ \
	X(EXEC_SIGNAL, "exec_signal") /* none */

enum effect_kind {
#define X(name, word) EFFECT_##name,
	EFFECTS(X)
#undef X
		EFFECT_NR
};

struct effect {
	enum effect_kind kind;
	char session[ID_LEN + 1];
	char tenant[ID_LEN + 1];
	char operation[ID_LEN + 1]; /* "": of no operation */
	uint64_t epoch;

	/* BOOT, RESTORE */
	struct session_spec spec; /* snapshot_every_ns 0: no rolling points */
	struct point base; /* RESTORE: the point to start from */
	bool fork; /* base is another session's: renew identity, grants */
	/*
	 * RESTORE: whom it was forked from, or "". May read the base's packs
	 * as well, also when the base's own session is gone.
	 */
	char parent[ID_LEN + 1];
	bool park; /* BOOT for a park: take no rolling points */
	bool forensic; /* start even if the agent stays silent */
	int64_t newest_ns; /* times of new points must be later than this */
	char name[NAME_MAX_LEN + 1]; /* the session's, for the hostname */

	/* CAPTURE */
	enum point_kind point_kind;
	char point_name[NAME_MAX_LEN + 1];
	char point_parent[ID_LEN + 1]; /* head of the line, or "" */
	bool stay_stopped; /* leave the VM stopped behind the capture */

	/* EXEC_START, EXEC_SIGNAL */
	char exec[ID_LEN + 1], tag[ID_LEN + 1];
	json_t *argv; /* array of strings; owned */
	json_t *env; /* object of strings: values live only here; owned */
	char *cwd; /* owned, or NULL */
	char user[EXEC_USER_MAX];
	bool has_stdin, tty;
	int signal;
};

struct effect *effect_new(enum effect_kind kind); /* zeroed otherwise */
void effect_free(struct effect *fx); /* takes NULL */
const char *effect_word(enum effect_kind kind);

#endif
