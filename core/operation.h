/*
 * operation: an accepted asynchronous request, followed by id, ended by an
 * event. A session has at most one at a time, in its slot (session_row.h).
 */
#ifndef CORE_OPERATION_H
#define CORE_OPERATION_H

#include "core/event.h"
#include "core/fsm.h"
#include "core/point.h"

#define FORK_MAX 64 /* children of one fork */

#define OPERATION_KINDS(X)      \
	X(NONE, "none")         \
	X(CREATE, "create")     \
	X(PARK, "park")         \
	X(PAUSE, "pause")       \
	X(CONTINUE, "continue") \
	X(SUSPEND, "suspend")   \
	X(RESUME, "resume")     \
	X(REWIND, "rewind")     \
	X(FORK, "fork")         \
	X(SNAPSHOT, "snapshot") \
	X(DESTROY, "destroy")

enum operation_kind {
#define X(name, word) OPERATION_##name,
	OPERATION_KINDS(X)
#undef X
		OPERATION_KIND_NR
};

/* What the operation in a session's slot waits for. */
#define OPERATION_STEPS(X)                                          \
	X(NONE, "none", "")                                         \
	X(WAIT_BASE, "wait-base", "waiting for its first snapshot") \
	X(BOOT, "boot", "booting")                                  \
	X(RESTORE, "restore", "restoring")                          \
	X(STOP, "stop", "pausing")                                  \
	X(CONT, "cont", "continuing")                               \
	X(CAPTURE, "capture", "taking a snapshot")                  \
	X(KILL, "kill", "stopping the sandbox")

enum operation_step {
#define X(name, word, text) STEP_##name,
	OPERATION_STEPS(X)
#undef X
		STEP_NR
};

/* open -> done | failed */
enum operation_state {
	OPERATION_STATE_NONE,
	OPERATION_OPEN,
	OPERATION_ENDED,
	OPERATION_BROKEN,
	OPERATION_STATE_NR
};

struct operation {
	char id[ID_LEN + 1];
	enum operation_kind kind;
	enum operation_state state; /* words: open, done, failed */
	char tenant[ID_LEN + 1];
	char session[ID_LEN + 1]; /* the one it was asked of */
	char actor[EVENT_ACTOR_LEN];
	char stage[64]; /* for people: what it waits for */
	int64_t accepted_ns, ended_ns;
	int error_code; /* enum err_code; meaningful when failed */
	char error[256];
	char point[ID_LEN + 1]; /* result: the point made, or "" */
	json_t *sessions; /* result: ids of sessions created; or NULL; owned */
	uint32_t waiting; /* fork: children not yet started or failed */
	uint32_t broken; /* fork: children that failed */
};

extern const struct fsm operation_fsm;
extern const struct fields operation_fields;
extern const char *const operation_kind_words[OPERATION_KIND_NR];
extern const char *const operation_step_words[STEP_NR];

const char *operation_step_text(enum operation_step s);

/* Rows of TABLE_OPERATIONS. decode zeroes *ret first; free with _done. */
void operation_encode(struct buf *b, const struct operation *op);
int operation_decode(struct operation *ret, const void *row, size_t len,
		     struct err *e);
void operation_done(struct operation *op);

#endif
