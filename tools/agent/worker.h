/*
 * worker: a thread that carries out jobs that may block, one after the other
 * in the order they came, and tells the main thread by an eventfd.
 */
#ifndef TOOLS_AGENT_WORKER_H
#define TOOLS_AGENT_WORKER_H

#include "core/agent_proto.h"

#define WORKER_JOBS_MAX 64

struct worker;

/* A request, copied out of the channel's buffer, and its reply. */
struct job {
	struct job *next;
	enum agent_type type;
	uint64_t id;
	uint32_t stream; /* of the channel, when it came */
	char tag[ID_LEN + 1];
	char *path; /* owned */
	uint8_t *data; /* owned */
	size_t len;
	uint64_t offset; /* or the cursor, or the size of a commit */
	uint32_t mode, uid, gid, flags;
	struct buf reply; /* one frame; empty if nothing is to be said */
};

typedef void (*worker_fn)(void *ctx, struct job *j);

/* `fn` runs on the thread; ctx is its own. Panics if there is no thread. */
struct worker *worker_new(worker_fn fn, void *ctx);

/* Hands a job over. -EBUSY if WORKER_JOBS_MAX wait; then it stays yours. */
int worker_submit(struct worker *w, struct job *j);

/* A finished job, now yours, or NULL. */
struct job *worker_done(struct worker *w);

int worker_fd(const struct worker *w); /* readable when one may be done */

struct job *job_new(enum agent_type type, uint64_t id);
void job_free(struct job *j);

#endif
