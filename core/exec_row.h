/*
 * exec_row: one command in a sandbox. `id` is the host's name for it; `tag`
 * is its name inside the guest: the id of the exec as it was first started,
 * which a fork's memory still holds. Output is addressed by (id, epoch,
 * offset).
 */
#ifndef CORE_EXEC_ROW_H
#define CORE_EXEC_ROW_H

#include "core/fields.h"
#include "core/fsm.h"
#include "core/id.h"

#define EXEC_CWD_MAX 4096
#define EXEC_USER_MAX 64
#define EXEC_ARGV_MAX (64u << 10) /* bytes of canonical argv; same for env */
#define EXEC_HELLO_MAX 256 /* execs in one sandbox */

/* running -> exited | lost; back to running when time goes back */
enum exec_state {
	EXEC_STATE_NONE,
	EXEC_RUNNING,
	EXEC_EXITED,
	EXEC_LOST,
	EXEC_STATE_NR
};

struct exec {
	char id[ID_LEN + 1];
	char tag[ID_LEN + 1];
	char session[ID_LEN + 1];
	char tenant[ID_LEN + 1];
	char origin[ID_LEN + 1]; /* fork: the parent's exec, or "" */
	uint64_t epoch; /* in which it runs, or ended */
	enum exec_state state; /* words: running, exited, lost */
	int code; /* exit code; 128 + signal if by signal */
	int signal; /* 0: none */
	uint64_t out, err; /* bytes of output, as claimed at its end */
	uint64_t out_base, err_base; /* offsets where this epoch began */
	int64_t started_ns, ended_ns;
	bool has_stdin, tty;
	json_t *argv; /* array of strings, owned */
	json_t *env; /* array of names, owned; values are nowhere */
	char cwd[256]; /* cut for display if longer */
	char user[EXEC_USER_MAX];
	char why[128]; /* lost: why; exited: error of the start, if any */
};

extern const struct fsm exec_fsm;
extern const struct fields exec_fields;

void exec_encode(struct buf *b, const struct exec *x);
int exec_decode(struct exec *ret, const void *row, size_t len,
		struct err *e); /* zeroes *ret first */
void exec_done(struct exec *x);

#endif
