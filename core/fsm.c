/*
 * fsm: state machines as tables; see fsm.h. Invariant: a state variable
 * changes only along an arrow of its table. No state of its own.
 */
#include "core/fsm.h"

static bool in_range(const struct fsm *m, int s)
{
	return s >= 0 && s < m->nr;
}

bool fsm_may(const struct fsm *m, int from, int to)
{
	return in_range(m, from) && in_range(m, to) &&
	       (m->states[from].next & FSM_BIT(to));
}

int fsm_move(const struct fsm *m, int *state, int to)
{
	if (!fsm_may(m, *state, to))
		return -EPROTO;
	*state = to;
	return 0;
}

const char *fsm_name(const struct fsm *m, int state)
{
	return in_range(m, state) ? m->states[state].name : "?";
}

int fsm_parse(const struct fsm *m, const char *word)
{
	for (int i = 0; i < m->nr; i++)
		if (!strcmp(m->states[i].name, word))
			return i;
	return -1;
}
