/*
 * exec: the processes that the host started, with their streams.
 *
 * Output is addressed by (tag, stream, offset). Each stream has a ring that
 * keeps what the host has not acknowledged; when it is full its pipe isn't
 * read and the process waits. Nothing is lost, nothing overtakes.
 */
#ifndef TOOLS_AGENT_EXEC_H
#define TOOLS_AGENT_EXEC_H

#include "core/agent_proto.h"
#include "tools/agent/ring.h"

#include <sys/resource.h>

struct agent;

enum exec_phase {
	EXEC_NONE, /* the slot is free */
	EXEC_STARTING, /* forked; execve(2) has not succeeded yet */
	EXEC_RUNNING,
	EXEC_DEAD, /* reaped; output may still come */
	EXEC_FINAL, /* all output is in the rings; totals are known */
};

struct exec_stream {
	int fd; /* read end; -1 once it ended or was given up */
	bool watched; /* in epoll; not while the ring is full */
	struct ring ring;
	uint64_t base; /* offset of the ring's first byte: what is acked */
	uint64_t sent; /* up to here it is on its way to the host */
};

struct exec_stdin {
	int fd; /* write end; -1: closed */
	bool watched;
	bool eof; /* the host has sent all */
	bool closed; /* nobody reads it any more */
	bool ack_due;
	struct ring ring;
	uint64_t received; /* next offset wanted from the host */
};

struct exec {
	enum exec_phase phase;
	uint32_t generation; /* of the slot, so that stale events are known */
	char tag[ID_LEN + 1];
	pid_t pid;
	int status; /* pipe that tells how execve(2) went; -1 */
	uint64_t start_id; /* request that waits for it */
	struct exec_stream out[2]; /* [stream - 1] */
	struct exec_stdin in;
	int wait_status;
	struct rusage usage;
	int64_t give_up; /* DEAD: when to stop waiting for the pipes' ends */
	bool exit_sent;
};

#define EXEC_DRAINS_MAX 256
#define EXEC_TAGS_MAX 256

struct execs {
	struct exec *slot; /* AGENT_EXECS_MAX of them */
	unsigned top; /* all slots from here on are free */
	unsigned turn; /* whose output goes next */
	/* pipes of finished execs that others still write to: read, dropped */
	int drain[EXEC_DRAINS_MAX];
	unsigned nr_drains;
	/* tags that are over: they can't be started again */
	char past[EXEC_TAGS_MAX][ID_LEN + 1];
	unsigned past_next;
};

void exec_init(struct agent *a);

/* The requests of the same names. */
void exec_start(struct agent *a, const struct agent_msg *m);
void exec_stdin(struct agent *a, const struct agent_msg *m);
void exec_out_ack(struct agent *a, const struct agent_msg *m);
void exec_exit_ack(struct agent *a, const struct agent_msg *m);
void exec_signal(struct agent *a, const struct agent_msg *m);

/* RESET: everything not acknowledged is to be sent again. */
void exec_rewind(struct agent *a);
/* Appends all execs in the form of HELLO, returns how many. */
uint32_t exec_list(struct agent *a, struct buf *raw);

/* An epoll event; `data` is the event's. */
void exec_event(struct agent *a, uint64_t data);
/* SIGCHLD: reaps all that ended, ours or orphans. */
void exec_reap(struct agent *a);
/* Ends waits whose time has come; returns the next such time (INT64_MAX). */
int64_t exec_tick(struct agent *a, int64_t now);

/* Puts the next OUT into `b`; false if there is none. */
bool exec_next_out(struct agent *a, struct buf *b);
/* Queues STDIN_ACK and EXITED that are due. */
void exec_notes(struct agent *a);

/* --- stream.c: one exec's pipes; `slot` is its number --------------------- */

#define STREAM_TURN (256u << 10) /* bytes read at once: others wait too */

uint64_t stream_data(const struct exec *x, unsigned slot, unsigned kind);
void stream_open(struct agent *a, struct exec *x, unsigned slot, int fd[3]);
/* Reads what a pipe holds, up to the ring's room. */
void stream_read(struct agent *a, struct exec *x, unsigned slot, unsigned stream);
/* The host has everything before `offset`. */
void stream_acked(struct agent *a, struct exec *x, unsigned slot,
		  unsigned stream, uint64_t offset);
/* No more is read into the ring; a pipe that others hold is drained. */
void stream_give_up(struct agent *a, struct exec *x, unsigned stream);
void stream_drain(struct agent *a, int fd);
/* Moves stdin from its ring to the pipe. */
void stream_write(struct agent *a, struct exec *x, unsigned slot);
/* Nobody reads stdin any more: what the host still sends is dropped. */
void stream_close_stdin(struct agent *a, struct exec *x);
void stream_free(struct agent *a, struct exec *x);

static inline uint64_t stream_end(const struct exec_stream *s)
{
	return s->base + s->ring.len;
}

/* --- spawn.c -------------------------------------------------------------- */

/* What a child gets; all of it made before fork(2). */
struct spawn {
	char **argv, **env;
	const char *cwd;
	bool cwd_given; /* else failure to enter it is no error */
	uint32_t uid, gid;
	gid_t groups[64];
	int nr_groups;
	int in, out, err, status;
};

/*
 * Makes the child; in `status` (closed on exec) it writes two ints, errno and
 * enum spawn_stage, if it can't become the program.
 */
int spawn_fork(const struct spawn *s, pid_t *ret_pid);

enum spawn_stage { SPAWN_SETUP, SPAWN_USER, SPAWN_CWD, SPAWN_EXEC };

/*
 * Fills argv, env, cwd, user from a request. -errno and a text for the host.
 * spawn_done() frees.
 */
int spawn_prepare(struct spawn *s, const struct agent_exec_start *r,
		  char *ret_why, size_t len);
void spawn_done(struct spawn *s);

/*
 * Runs the programs of a folder, at most 64, in the background, by name one
 * after the other, each for at most 10 s. Any thread.
 */
void spawn_hooks(const char *folder);

#endif
