/*
 * agent: the agent link hung into this process's loop: descriptor, timer,
 * callbacks; and the few orders that the worker gives and waits for.
 */
#ifndef TOOLS_VM_AGENT_H
#define TOOLS_VM_AGENT_H

#include "core/backend/agent_link.h"
#include "core/backend/loop.h"
#include "core/wire.h"

#define AGENT_UP_MS 120000 /* a boot under TCG on a busy host */

struct agent;
struct execs;

/* Loop or worker, once, before the machine runs. Takes fd. */
struct agent *agent_new(struct loop *l, int fd, struct execs *x);

/* Loop: NULL while there is no channel. */
struct agent_link *agent_get_link(struct agent *a);

/* Loop: after execs_attach() and the like: sends what is due. */
void agent_poke(struct agent *a);

/* --- worker: each waits for its end --------------------------------------- */

/*
 * Puts RESET and, unless `start` says a plain boot, the renewal orders into
 * the channel; they wait there for the machine.
 */
int agent_prepare(struct agent *a, const struct wire_start *start,
		  const char *session, bool clean, struct err *e);

/* The machine runs: until HELLO and the renewal's answers are there. */
int agent_wait_up(struct agent *a, int timeout_ms, struct wire_started *ret,
		  struct err *e);

/* 0 if the guest is quiet and holds still; -errno else. */
int agent_quiesce(struct agent *a, int deadline_ms);

/* After `cont`: the clock first, then go on. Doesn't wait. */
void agent_release(struct agent *a);

#endif
