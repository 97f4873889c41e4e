/*
 * The daemon is killed at every step of every operation and starts again:
 * what was under way is completed or undone, nothing acknowledged is lost,
 * sandboxes that nobody owns are killed.
 */
#include "tests/world.h"

static void create(struct world *w, char ret_id[ID_LEN + 1])
{
	world_do(w, world_create(""));
	if (w->reply.rc)
		bail("create: %s", w->reply.err.msg);
	base_strcpy(ret_id, ID_LEN + 1, w->reply.session);
}

static struct command *request(enum command_kind kind, const char *id)
{
	struct command *c = world_command(kind, id);

	if (kind == COMMAND_FORK)
		c->nr_children = 3;
	return c;
}

/* Lets `steps` commands through, kills the daemon, starts it, waits. */
static void crash_after(struct world *w, struct command *c, int steps)
{
	world_submit(w, c);
	engine_step(w->en);
	for (int i = 0; i < steps; i++) {
		fake_run(w->fake);
		engine_step(w->en);
	}
	world_crash(w);
	for (int i = 0; i < 10; i++)
		world_advance(w, NS_PER_S);
}

struct scenario {
	enum command_kind kind;
	enum session_state from, to;
};

/* What a request leads to, whenever the daemon was killed meanwhile. */
static const struct scenario scenarios[] = {
	{ COMMAND_PAUSE, SESSION_RUNNING, SESSION_PAUSED },
	{ COMMAND_CONTINUE, SESSION_PAUSED, SESSION_RUNNING },
	{ COMMAND_SUSPEND, SESSION_RUNNING, SESSION_SUSPENDED },
	{ COMMAND_SUSPEND, SESSION_PAUSED, SESSION_SUSPENDED },
	{ COMMAND_RESUME, SESSION_SUSPENDED, SESSION_RUNNING },
	{ COMMAND_SNAPSHOT, SESSION_RUNNING, SESSION_RUNNING },
	{ COMMAND_FORK, SESSION_RUNNING, SESSION_RUNNING },
	{ COMMAND_FORK, SESSION_PAUSED, SESSION_PAUSED },
	{ COMMAND_DESTROY, SESSION_RUNNING, SESSION_NONE },
	{ COMMAND_DESTROY, SESSION_SUSPENDED, SESSION_NONE },
};

static void bring_to(struct world *w, const char *id, enum session_state s)
{
	if (s == SESSION_PAUSED)
		world_simple(w, COMMAND_PAUSE, id);
	if (s == SESSION_SUSPENDED)
		world_simple(w, COMMAND_SUSPEND, id);
}

static void check_forks(struct world *w, const char *name)
{
	const struct reply *r = &w->reply;

	for (int i = 0; i < r->nr_children; i++) {
		is_str(world_state(w, r->children[i]), "running",
		       "%s: fork %d runs", name, i);
		is_int(world_counter(w, r->children[i]), 17,
		       "%s: with the parent's memory", name);
	}
}

static void run_scenario(const struct scenario *sc, int steps)
{
	char id[ID_LEN + 1], name[64];
	struct operation op;
	struct world w;

	world_init(&w, 0);
	create(&w, id);
	fake_guest_step(w.fake, id, 17);
	bring_to(&w, id, sc->from);
	snprintf(name, sizeof(name), "%s of %s, killed after %d",
		 command_word(sc->kind), session_state_word(sc->from), steps);
	crash_after(&w, request(sc->kind, id), steps);
	is_int(w.reply.rc, 0, "%s: was accepted", name);
	is_str(world_state(&w, id), session_state_word(sc->to),
	       "%s: comes true", name);
	op = world_operation(&w, w.reply.operation);
	is_int(op.state, OPERATION_ENDED, "%s: operation done", name);
	is_int(world_open_operations(&w), 0, "%s: nothing is open", name);
	if (sc->to == SESSION_RUNNING || sc->to == SESSION_PAUSED)
		is_int(world_counter(&w, id), 17, "%s: memory kept", name);
	if (sc->kind == COMMAND_FORK)
		check_forks(&w, name);
	if (sc->kind == COMMAND_DESTROY)
		ok(fake_purged(w.fake, id), "%s: nothing is left", name);
	ok(memstore_consistent(&w.m), "%s: fold equals rows", name);
	world_done(&w);
}

/* kill -9 of the daemon while the template is booted for the first time */
static void test_create(void)
{
	for (int steps = 0; steps < 6; steps++) {
		const char *state;
		struct world w;

		world_init(&w, 0);
		crash_after(&w, world_create("first"), steps);
		state = world_state(&w, w.reply.session);
		is_str(state, "running", "create killed after %d: runs", steps);
		is_int(world_open_operations(&w), 0, "nothing is open");
		ok(memstore_consistent(&w.m), "fold equals rows");
		world_done(&w);
	}
}

static void test_rewind(void)
{
	for (int steps = 0; steps < 5; steps++) {
		char id[ID_LEN + 1], point[ID_LEN + 1];
		struct command *c;
		struct world w;

		world_init(&w, 0);
		create(&w, id);
		fake_guest_step(w.fake, id, 5);
		world_simple(&w, COMMAND_SNAPSHOT, id);
		base_strcpy(point, sizeof(point),
			    world_operation(&w, w.reply.operation).point);
		fake_guest_step(w.fake, id, 6);
		c = world_command(COMMAND_REWIND, id);
		base_strcpy(c->point, sizeof(c->point), point);
		crash_after(&w, c, steps);
		is_int(world_counter(&w, id), 5, "rewind killed after %d", steps);
		c = world_command(COMMAND_REWIND, id);
		c->undo = true;
		world_do(&w, c);
		is_int(world_counter(&w, id), 11, "and undone");
		ok(memstore_consistent(&w.m), "fold equals rows");
		world_done(&w);
	}
}

static void test_guest_never_notices(void)
{
	char id[ID_LEN + 1];
	struct session before, after;
	struct world w;
	int starts;

	world_init(&w, 0);
	create(&w, id);
	starts = fake_count(w.fake, EFFECT_RESTORE);
	fake_guest_step(w.fake, id, 9);
	before = world_session(&w, id);
	world_crash(&w);
	fake_guest_step(w.fake, id, 1);
	world_settle(&w);
	after = world_session(&w, id);
	is_int(world_counter(&w, id), 10, "the guest ran on");
	is_int(after.epoch, before.epoch, "in the same epoch");
	is_int(fake_count(w.fake, EFFECT_RESTORE), starts, "no restore");
	is_int(fake_count(w.fake, EFFECT_KILL), 1, "no kill but the park's");
	is_int(world_count(&w, EVENT_NODE_STARTED), 1, "an event says so");

	/* a guest that stands still though nobody asked for it */
	for (int i = 0; i < 2; i++) {
		struct effect *fx = effect_new(i ? EFFECT_CONT : EFFECT_STOP);

		base_strcpy(fx->session, sizeof(fx->session), id);
		fx->epoch = after.epoch;
		fake_backend(w.fake)->start(fake_backend(w.fake)->ctx, fx);
		fake_run(w.fake);
		world_crash(&w);
		world_settle(&w);
		ok(fake_guest_step(w.fake, id, 1), "it is let go on");
		if (!i)
			world_simple(&w, COMMAND_PAUSE, id);
		if (!i)
			world_simple(&w, COMMAND_RESUME, id);
	}
	world_done(&w);
}

static void test_gone(void)
{
	char id[ID_LEN + 1];
	struct fake_guest g;
	struct session s;
	struct world w;
	struct effect *fx;

	world_init(&w, 0);
	create(&w, id);
	world_simple(&w, COMMAND_SNAPSHOT, id);
	fx = effect_new(EFFECT_KILL);
	base_strcpy(fx->session, sizeof(fx->session), id);
	fx->epoch = 1;
	engine_free(w.en); /* nobody hears of it */
	world_engine(&w);
	fake_set_sink(w.fake, engine_sink(w.en));
	fake_backend(w.fake)->start(fake_backend(w.fake)->ctx, fx);
	fake_run(w.fake);
	world_crash(&w);
	s = world_session(&w, id);
	is_int(s.state, SESSION_FAILED, "its sandbox is gone: failed");
	ok(strstr(s.fail_why, "gone"), "it says so");
	world_simple(&w, COMMAND_RESUME, id);
	is_str(world_state(&w, id), "running", "it resumes");

	fx = effect_new(EFFECT_BOOT);
	base_strcpy(fx->session, sizeof(fx->session), "s0000000000000000009");
	fx->epoch = 4;
	fake_backend(w.fake)->start(fake_backend(w.fake)->ctx, fx);
	fake_run(w.fake);
	world_crash(&w);
	world_settle(&w);
	ok(fake_guest(w.fake, "s0000000000000000009", &g) && !g.alive,
	   "a sandbox that no row owns is killed");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

/* The VMM is found dead while the daemon was to suspend the session. */
static void test_suspend_killed_both(void)
{
	char id[ID_LEN + 1];
	struct world w;

	world_init(&w, 0);
	create(&w, id);
	fake_guest_step(w.fake, id, 3);
	world_ask(&w, world_command(COMMAND_SUSPEND, id));
	fake_run(w.fake);
	engine_step(w.en); /* captured and committed; KILL is given */
	fake_run(w.fake); /* it is dead; the daemon dies before it hears */
	world_crash(&w);
	world_settle(&w);
	is_str(world_state(&w, id), "suspended",
	       "dead as it should be: suspended, not failed");
	world_simple(&w, COMMAND_RESUME, id);
	is_int(world_counter(&w, id), 3, "and nothing was lost");
	world_done(&w);
}

/* A capture is reported again, because the acknowledgement was lost. */
static void test_told_again(void)
{
	char id[ID_LEN + 1];
	struct command *c;
	struct world w;
	struct point p = { .id = "p0000000000000000777" };
	int points;

	world_init(&w, 0);
	create(&w, id);
	for (int i = 0; i < 2; i++) {
		c = command_new(COMMAND_CAPTURED);
		base_strcpy(c->session, sizeof(c->session), id);
		c->epoch = 1;
		c->made = p;
		c->made.kind = POINT_ROLLING;
		c->made.time_ns = clock_wall(&w.clock.clock);
		world_do(&w, c);
		is_int(w.reply.rc, 0, "told %d times: acknowledged", i + 1);
		points = world_count(&w, EVENT_SNAPSHOT_COMMITTED);
	}
	is_int(points, 2, "committed once (the other is the park's)");
	c = command_new(COMMAND_CAPTURED);
	base_strcpy(c->session, sizeof(c->session), id);
	c->epoch = 7;
	base_strcpy(c->made.id, sizeof(c->made.id), "p0000000000000000778");
	world_do(&w, c);
	is_int(w.reply.err.code, ERR_GONE, "of another epoch: to be dropped");
	world_done(&w);
}

int main(void)
{
	for (size_t i = 0; i < ARRAY_LEN(scenarios); i++)
		for (int steps = 0; steps < 5; steps++)
			run_scenario(&scenarios[i], steps);
	test_create();
	test_rewind();
	test_guest_never_notices();
	test_gone();
	test_suspend_killed_both();
	test_told_again();
	return tap_done();
}
