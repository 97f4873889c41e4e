/*
 * fsm: state machines as tables. A machine is a list of states with a name
 * and a set of allowed successors; only fsm_move() changes a state variable.
 */
#ifndef CORE_FSM_H
#define CORE_FSM_H

#include "core/base.h"

#define FSM_BIT(s) (1u << (s))

struct fsm_state {
	const char *name;
	uint32_t next; /* FSM_BIT() of each allowed successor */
};

struct fsm {
	const char *name; /* "session", for messages */
	const struct fsm_state *states;
	int nr;
};

/* May the machine go from one to the other? False out of range. */
bool fsm_may(const struct fsm *m, int from, int to);

/* Moves *state; -EPROTO (and no change) if the table does not allow it. */
int fsm_move(const struct fsm *m, int *state, int to);

const char *fsm_name(const struct fsm *m, int state);

/* -1 if there is no such word */
int fsm_parse(const struct fsm *m, const char *word);

#endif
