/* The state machines, against lists written from the design. */
#include "core/exec_row.h"
#include "core/operation.h"
#include "core/session_row.h"

#include "tests/tap.h"

/* from -> to, all that is allowed */
static const char *const session_moves[] = { "none creating",
					     "creating running",
					     "creating failed",
					     "creating stopping",
					     "running paused",
					     "running suspended",
					     "running resuming",
					     "running failed",
					     "running stopping",
					     "paused running",
					     "paused suspended",
					     "paused resuming",
					     "paused failed",
					     "paused stopping",
					     "suspended resuming",
					     "suspended stopping",
					     "resuming running",
					     "resuming failed",
					     "resuming stopping",
					     "stopping destroyed",
					     "failed resuming",
					     "failed stopping",
					     NULL };

static const char *const operation_moves[] = { "none open", "open done",
					       "open failed", NULL };

static const char *const exec_moves[] = { "none running",
					  "running running",
					  "running exited",
					  "running lost",
					  "exited running",
					  "lost running",
					  NULL };

static bool listed(const char *const *moves, const char *from, const char *to)
{
	char text[64];

	snprintf(text, sizeof(text), "%s %s", from, to);
	for (; *moves; moves++)
		if (!strcmp(*moves, text))
			return true;
	return false;
}

static void test_table(const struct fsm *m, const char *const *moves)
{
	int wrong = 0, moved = 0, nr = 0;

	for (int from = 0; from < m->nr; from++)
		for (int to = 0; to < m->nr; to++) {
			bool want = listed(moves, fsm_name(m, from),
					   fsm_name(m, to));
			int state = from;
			int r = fsm_move(m, &state, to);

			wrong += fsm_may(m, from, to) != want;
			wrong += r != (want ? 0 : -EPROTO);
			wrong += state != (want ? to : from);
			moved += !r;
		}
	while (moves[nr])
		nr++;
	is_int(wrong, 0, "%s: only along the arrows", m->name);
	is_int(moved, nr, "%s: along all of them", m->name);
}

static void test_words(void)
{
	is_int(fsm_parse(&session_fsm, "suspended"), SESSION_SUSPENDED, "a word");
	is_int(fsm_parse(&session_fsm, "asleep"), -1, "no word");
	is_str(fsm_name(&session_fsm, SESSION_STATE_NR), "?", "out of range");
	ok(!fsm_may(&session_fsm, -1, 0) &&
		   !fsm_may(&session_fsm, 0, SESSION_STATE_NR),
	   "out of range goes nowhere");
}

/* Whatever the state, the way to the end is short and needs no resume. */
static void test_destroy(void)
{
	for (int s = SESSION_CREATING; s < SESSION_STOPPING; s++)
		ok(fsm_may(&session_fsm, s, SESSION_STOPPING),
		   "%s may be destroyed", fsm_name(&session_fsm, s));
	ok(fsm_may(&session_fsm, SESSION_FAILED, SESSION_STOPPING),
	   "failed may be destroyed");
}

int main(void)
{
	test_table(&session_fsm, session_moves);
	test_table(&operation_fsm, operation_moves);
	test_table(&exec_fsm, exec_moves);
	test_words();
	test_destroy();
	return tap_done();
}
