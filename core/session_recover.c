/*
 * session_recover: after a restart of the daemon, each session is compared
 * with what really lives. What is done already counts as done; what was
 * under way is given to the driver again, which knows it by (session, epoch,
 * operation); what can't be completed is failed.
 *
 *   row says             a sandbox of the epoch lives    none lives
 *   running, paused      adopt; repeat the step          failed; if it was
 *                                                        being killed: killed
 *   creating, resuming   repeat the start                repeat the start
 *   creating, waiting    -                               looked at again
 *   suspended, failed    kill it                         -
 *   stopping             kill, purge                     kill, purge
 */
#include "core/session_internal.h"

static bool lives(const struct decide *x)
{
	return x->c->live && x->c->epoch == x->s->epoch;
}

/* vCPUs should be as the row says, unless an operation is about it. */
static void align_vcpus(struct decide *x)
{
	const struct session *s = x->s;

	if (s->op.id[0] || s->stalled)
		return;
	if (s->state == SESSION_RUNNING && x->c->stopped)
		decide_effect(x, EFFECT_CONT);
	else if (s->state == SESSION_PAUSED && !x->c->stopped)
		decide_effect(x, EFFECT_STOP);
}

static void repeat_step(struct decide *x)
{
	const struct session *s = x->s;

	switch (s->op.step) {
	case STEP_STOP:
		decide_effect(x, EFFECT_STOP);
		return;
	case STEP_CONT:
		decide_effect(x, EFFECT_CONT);
		return;
	case STEP_CAPTURE:
		decide_capture(x, s->op.kind, s->op.id, s->op.name);
		return;
	case STEP_KILL:
		decide_kill(x, s->op.id, s->epoch);
		return;
	case STEP_NONE:
	case STEP_WAIT_BASE:
	case STEP_BOOT:
	case STEP_RESTORE:
	case STEP_NR:
		return;
	}
}

static void recover_resident(struct decide *x)
{
	if (lives(x)) {
		decide_hello(x, false);
		align_vcpus(x);
		repeat_step(x);
	} else if (x->s->op.step == STEP_KILL) {
		decide_killed(x);
	} else {
		decide_fail(x, ERR_GONE,
			    "its sandbox was gone when the daemon started");
	}
}

static void recover_start(struct decide *x)
{
	const struct session *s = x->s;

	if (s->op.step == STEP_BOOT)
		decide_start(x, s, s->op.id, s->epoch, NULL);
	else if (s->op.step == STEP_RESTORE && x->f->have_point)
		decide_start(x, s, s->op.id, s->epoch, &x->f->point);
	else if (s->op.step != STEP_WAIT_BASE)
		decide_fail(x, ERR_NOT_FOUND,
			    "the point that it was starting from is gone");
}

/* The driver keeps nothing over a restart: it is told to clean up again. */
static void recover_stopping(struct decide *x)
{
	decide_kill(x, x->s->op.id, x->s->epoch);
}

void decide_recover(struct decide *x)
{
	const struct session *s = x->s;

	if (x->c->live && (!s || x->c->epoch != s->epoch))
		decide_kill(x, "", x->c->epoch); /* nobody owns it */
	if (!s)
		return;
	switch (s->state) {
	case SESSION_RUNNING:
	case SESSION_PAUSED:
		recover_resident(x);
		return;
	case SESSION_CREATING:
	case SESSION_RESUMING:
		recover_start(x);
		return;
	case SESSION_STOPPING:
		recover_stopping(x);
		return;
	case SESSION_SUSPENDED:
	case SESSION_FAILED:
		if (lives(x))
			decide_kill(x, "", x->c->epoch);
		return;
	case SESSION_NONE:
	case SESSION_DESTROYED:
	case SESSION_STATE_NR:
		return;
	}
}
