/*
 * execs: the execs of this sandbox as the host sees them: their transcripts,
 * standard input in flight, and exits that the daemon has not yet logged.
 * Loop's thread only.
 */
#ifndef TOOLS_VM_EXECS_H
#define TOOLS_VM_EXECS_H

#include "core/backend/agent_link.h"
#include "tools/vm/link.h"

struct execs;

struct execs *execs_new(struct loop *l, struct link *k, uint32_t epoch);

/*
 * The agent's channel, once it is there; NULL when it is gone. `poke` is
 * called when something was queued for it outside of its own callbacks.
 */
void execs_set_agent(struct execs *x, struct agent_link *a, loop_fn poke,
		     void *poke_ctx);

/*
 * What the agent's HELLO told: the execs that are in the guest now. Those
 * that were started and are not among them have ended, nobody knows how.
 */
void execs_hello(struct execs *x, const struct agent_hello *h);

/* For HELLO and START: fills up to max states, returns their number. */
uint32_t execs_states(const struct execs *x, struct wire_exec_state *ret,
		      uint32_t max);

/* Requests of the daemon. */
void execs_start(struct execs *x, struct wire_msg *m);
void execs_attach(struct execs *x, struct wire_msg *m);
void execs_signal(struct execs *x, struct wire_msg *m);
void execs_stdin(struct execs *x, struct wire_msg *m);

/* From the agent link's callbacks. */
void execs_out(struct execs *x, const struct agent_out *o);
void execs_exited(struct execs *x, const struct agent_exited *e);
void execs_stdin_ack(struct execs *x, const struct agent_stdin_ack *a);

/* The daemon is back: tells it again what it has not acknowledged. */
void execs_report(struct execs *x);

/* Before a point is reported: what it counts on is on the disk. */
void execs_sync(struct execs *x);

/*
 * True once: output came that could not be stored then and can now, so the
 * agent has to send it again (agent_link_reset()).
 */
bool execs_wants_reset(struct execs *x);

#endif
