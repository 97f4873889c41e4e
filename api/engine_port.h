/*
 * engine_port: what the door asks of the engine; the shapes are those of
 * core/engine.h, where they are explained. engine_port_of() gives the real
 * one; tests have a fake. All calls may block and are safe from any thread.
 */
#ifndef API_ENGINE_PORT_H
#define API_ENGINE_PORT_H

#include "core/engine.h"

struct engine_port {
	void *ctx;
	/* Takes ownership of `c` in any case. */
	int (*call)(void *ctx, struct command *c, int64_t timeout_ms,
		    struct reply *ret, struct err *e);
	int (*wait_operation)(void *ctx, const char *id, int64_t timeout_ms,
			      struct operation *ret, struct err *e);
	uint64_t (*wait_seq)(void *ctx, uint64_t after, int64_t timeout_ms);
};

struct engine_port engine_port_of(struct engine *en);

#endif
