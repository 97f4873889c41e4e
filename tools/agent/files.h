/*
 * files: reading, writing and listing files for the host, on a worker.
 */
#ifndef TOOLS_AGENT_FILES_H
#define TOOLS_AGENT_FILES_H

#include "tools/agent/worker.h"

/* Copies a FILE_* request. */
struct job *files_job(const struct agent_msg *m);

/* worker_fn; ctx: struct files_past, zeroed. Fills j->reply. */
void files_run(void *ctx, struct job *j);

#define FILES_PAST_MAX 128

/* Changes that were made, by request: asked again they are only answered. */
struct files_past {
	uint64_t id[FILES_PAST_MAX];
	int result[FILES_PAST_MAX];
	unsigned next;
};

#endif
