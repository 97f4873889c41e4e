/*
 * agent: process 1 of the guest, the only one that talks to the host.
 *
 * One thread (`main`) owns struct agent and never blocks; it runs at
 * real-time priority, so that orders of the host are carried out before any
 * user process gets on. What may block (files, sync) runs on two worker
 * threads at normal priority, see worker.h. Processes it starts are normal.
 *
 *     main.c     options, loop         boot.c   mounts, modules, root
 *     channel.c  frames in and out     exec.c   execs and their streams
 *     spawn.c    fork, user, exec      files.c  files, on a worker
 *     machine.c  clock, RNG, identity  hold.c   keeps all CPUs
 */
#ifndef TOOLS_AGENT_AGENT_H
#define TOOLS_AGENT_AGENT_H

#include "core/agent_proto.h"
#include "tools/agent/exec.h"
#include "tools/agent/hold.h"
#include "tools/agent/worker.h"

#define RUN_DIR "/run/cryo" /* on a tmpfs; made at boot */
#define NS_PER_MS 1000000ll

/* What an epoll event is about; the low byte of its data. */
enum agent_watch {
	WATCH_PORT,
	WATCH_CHILD,
	WATCH_WORKER,
	WATCH_STDOUT, /* these four: exec slot and generation in the rest */
	WATCH_STDERR,
	WATCH_STDIN,
	WATCH_STATUS,
	WATCH_DRAIN, /* descriptor in the rest */
};

/* A QUIESCE that waits for its sync. */
struct agent_quieting {
	bool pending;
	uint64_t id;
	uint32_t want, got; /* AGENT_QUIESCE_* */
	uint32_t hold_ms;
	int64_t deadline;
};

#define AGENT_PAST_MAX 256

/* Requests that must not happen twice, and how they ended. */
struct agent_past {
	uint64_t id[AGENT_PAST_MAX];
	int error[AGENT_PAST_MAX];
	unsigned next;
};

struct agent {
	int epoll, port;
	bool machine; /* process 1: may set clock, name, generator */
	bool port_hup; /* nobody at the other end; retry at port_retry */
	int64_t port_retry;
	uint8_t boot_id[16];
	uint32_t nr_cpus;
	uint64_t generation;

	struct agent_dec dec;
	bool up; /* a RESET came: the host listens */
	uint32_t stream; /* counts RESETs; replies of older ones are dropped */
	struct buf ctl; /* replies and notes, waiting */
	size_t ctl_at;
	size_t ctl_quiet; /* quiesced: nothing from here on is written */
	struct buf frame; /* one OUT, being written */
	size_t frame_at;
	bool want_write; /* the port was full */

	int64_t quiet_until; /* 0: not quiesced */
	struct agent_quieting quieting;
	struct hold *hold;

	struct execs execs;
	struct agent_past past;
	struct worker *files, *sync;
	bool syncing; /* a sync is on its way, or hangs */
};

int64_t agent_now(void); /* CLOCK_MONOTONIC, ns */

/* Watches a descriptor; data as in enum agent_watch. Panics when it can't. */
void agent_watch(struct agent *a, int fd, uint32_t events, uint64_t data);
void agent_rewatch(struct agent *a, int fd, uint32_t events, uint64_t data);
void agent_unwatch(struct agent *a, int fd);

/* 1 and the result if this id was done before. */
int past_find(const struct agent_past *p, uint64_t id, int *ret_error);
void past_add(struct agent_past *p, uint64_t id, int error);

/* --- channel.c ------------------------------------------------------------ */

/* Reads and carries out all that the host has sent. */
void channel_in(struct agent *a);
/* Writes replies, then output, until done or the port is full. */
void channel_out(struct agent *a);
/* Queues a message for the host. */
void channel_send(struct agent *a, const struct agent_msg *m);
void channel_fail(struct agent *a, uint64_t id, int error, const char *fmt, ...)
	PRINTF(4, 5);
/* 0 or the -errno of an operation, as the bodiless reply `type` or FAILED. */
void channel_result(struct agent *a, uint64_t id, enum agent_type type,
		    int result, const char *what);
/* A job of a worker is done. */
void channel_job_done(struct agent *a, struct job *j);

/* --- machine.c ------------------------------------------------------------ */

void machine_settime(struct agent *a, const struct agent_msg *m);
void machine_reseed(struct agent *a, const struct agent_msg *m);
void machine_generation(struct agent *a, const struct agent_msg *m);
void machine_quiesce(struct agent *a, const struct agent_msg *m);
void machine_unquiesce(struct agent *a, const struct agent_msg *m);
/* The sync of a QUIESCE has ended. */
void machine_synced(struct agent *a);
/* Ends waits whose time has come; returns the next such time (INT64_MAX). */
int64_t machine_tick(struct agent *a, int64_t now);

/* --- boot.c --------------------------------------------------------------- */

/* From the initramfs to the root disk; returns the port. Exits on failure. */
int boot_machine(void);

#endif
