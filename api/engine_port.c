/*
 * engine_port: the real engine behind the door's port. Holds no state.
 */
#include "api/engine_port.h"

static int engine_port_call(void *ctx, struct command *c, int64_t timeout_ms,
			    struct reply *ret, struct err *e)
{
	return engine_call(ctx, c, timeout_ms, ret, e);
}

static int engine_port_wait_operation(void *ctx, const char *id,
				      int64_t timeout_ms, struct operation *ret,
				      struct err *e)
{
	return engine_wait_operation(ctx, id, timeout_ms, ret, e);
}

static uint64_t engine_port_wait_seq(void *ctx, uint64_t after, int64_t timeout_ms)
{
	return engine_wait_seq(ctx, after, timeout_ms);
}

struct engine_port engine_port_of(struct engine *en)
{
	return (struct engine_port){
		.ctx = en,
		.call = engine_port_call,
		.wait_operation = engine_port_wait_operation,
		.wait_seq = engine_port_wait_seq,
	};
}
