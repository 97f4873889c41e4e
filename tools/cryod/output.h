/*
 * output: what execs wrote, out of their transcripts, for any number of
 * readers, each with its own cursor. An exec's output lies in one file per
 * epoch of its line; see output.c.
 */
#ifndef TOOLS_CRYOD_OUTPUT_H
#define TOOLS_CRYOD_OUTPUT_H

#include "api/sandbox_port.h"
#include "tools/cryod/host.h"

struct output;

struct output *output_new(struct host *h, const struct view_port *views);
void output_free(struct output *o);

/* Something may be new: a transcript grew, an event was committed. */
void output_poke(struct output *o);

/* As sandbox_port.output. */
int output_read(struct output *o, const char *exec,
		const struct sandbox_cursor *at, void *data, size_t max,
		int timeout_ms, struct sandbox_chunk *ret, struct err *e);

#endif
