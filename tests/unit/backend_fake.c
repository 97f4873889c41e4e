/* The fake driver keeps the rules of backend.h, seen from outside. */
#include "core/backend/fake.h"

#include "tests/tap.h"

struct got {
	int nr;
	struct command *c[32];
};

static void submit(void *ctx, struct command *c)
{
	struct got *g = ctx;

	if (g->nr == 32)
		bail("too many outcomes");
	g->c[g->nr++] = c;
}

static void drop(struct got *g)
{
	for (int i = 0; i < g->nr; i++)
		command_free(g->c[i]);
	g->nr = 0;
}

#define SESSION "s0000000000000000001"
#define CHILD "s0000000000000000002"

static void give(struct fake *f, enum effect_kind kind, const char *session,
		 uint64_t epoch, const char *op)
{
	struct effect *fx = effect_new(kind);

	base_strcpy(fx->session, sizeof(fx->session), session);
	base_strcpy(fx->operation, sizeof(fx->operation), op);
	fx->epoch = epoch;
	fx->point_kind = POINT_MANUAL;
	fake_backend(f)->start(fake_backend(f)->ctx, fx);
}

static void give_restore(struct fake *f, const char *session, uint64_t epoch,
			 const struct point *base)
{
	struct effect *fx = effect_new(EFFECT_RESTORE);

	base_strcpy(fx->session, sizeof(fx->session), session);
	base_strcpy(fx->operation, sizeof(fx->operation), "restore");
	fx->epoch = epoch;
	fx->base = *base;
	fake_backend(f)->start(fake_backend(f)->ctx, fx);
}

static uint64_t counter(const struct fake *f, const char *session)
{
	struct fake_guest g;

	return fake_guest(f, session, &g) ? g.counter : 999;
}

static void test_points(struct fake *f, struct got *g)
{
	struct point first;

	give(f, EFFECT_BOOT, SESSION, 1, "o1");
	is_int(fake_run(f), 1, "one effect carried out");
	is_int(g->nr, 1, "one outcome");
	is_int(g->c[0]->kind, COMMAND_STARTED, "started");
	is_str(g->c[0]->operation, "o1", "with the effect's operation");
	ok(fake_guest_step(f, SESSION, 5), "the guest runs");
	drop(g);

	give(f, EFFECT_CAPTURE, SESSION, 1, "o2");
	fake_run(f);
	is_int(g->c[0]->kind, COMMAND_CAPTURED, "captured");
	first = g->c[0]->made;
	ok(fake_guest_step(f, SESSION, 2), "it goes on behind the capture");
	give(f, EFFECT_CAPTURE, SESSION, 1, "o2");
	fake_run(f);
	is_str(g->c[1]->made.id, first.id, "asked again: the same point");
	drop(g);

	give_restore(f, CHILD, 1, &first);
	fake_run(f);
	is_int(counter(f, CHILD), 5, "a restore has the memory of the point");
	is_int(counter(f, SESSION), 7, "and leaves the parent alone");
	fake_guest_step(f, CHILD, 1);
	give_restore(f, CHILD, 1, &first);
	fake_run(f);
	is_int(counter(f, CHILD), 6, "told twice to restore: done once");
	drop(g);
}

static void test_kill(struct fake *f, struct got *g)
{
	struct fake_guest guest;

	give(f, EFFECT_STOP, SESSION, 1, "o3");
	give(f, EFFECT_KILL, SESSION, 1, "o4");
	fake_run(f);
	is_int(g->nr, 1, "KILL cuts short what was queued before it");
	is_int(g->c[0]->kind, COMMAND_KILLED, "killed");
	drop(g);
	give(f, EFFECT_KILL, SESSION, 1, "o5");
	fake_run(f);
	is_int(g->c[0]->kind, COMMAND_KILLED, "without a sandbox: at once");
	drop(g);
	give(f, EFFECT_STOP, SESSION, 1, "o6");
	fake_run(f);
	is_int(g->c[0]->kind, COMMAND_EFFECT_FAILED, "nothing to stop");
	drop(g);
	give(f, EFFECT_BOOT, SESSION, 3, "o7");
	give(f, EFFECT_KILL, SESSION, 2, "o8");
	fake_run(f);
	fake_guest(f, SESSION, &guest);
	ok(guest.alive && guest.epoch == 3,
	   "KILL of an older epoch leaves the new one alone");
	drop(g);
}

static void test_faults(struct fake *f, struct got *g)
{
	struct backend_live *live;
	int nr;

	fake_fail(f, EFFECT_CAPTURE, 1, ERR_NO_SPACE, "full");
	give(f, EFFECT_CAPTURE, SESSION, 3, "o9");
	give(f, EFFECT_CAPTURE, SESSION, 3, "o9");
	fake_run(f);
	is_int(g->c[0]->kind, COMMAND_CAPTURE_SKIPPED, "fails once");
	is_int(g->c[0]->err.code, ERR_NO_SPACE, "as told");
	is_int(g->c[1]->kind, COMMAND_CAPTURED, "and then works");
	drop(g);
	live = fake_live(f, &nr);
	is_int(nr, 2, "two sandboxes live");
	fake_live_free(live, nr);
	fake_die(f, SESSION, "shot");
	fake_die(f, SESSION, "shot");
	is_int(g->nr, 1, "a death is told once");
	is_int(g->c[0]->kind, COMMAND_DIED, "died");
	drop(g);
}

static void test_delay(struct got *g)
{
	struct clock_virtual v;
	struct fake *f;

	clock_virtual_init(&v, 1000 * NS_PER_S);
	f = fake_new(&v.clock, NS_PER_S);
	fake_set_sink(f, (struct outcome_sink){ g, submit });
	give(f, EFFECT_BOOT, SESSION, 1, "o1");
	is_int(fake_run(f), 0, "nothing before its time");
	is_int(fake_next(f) - clock_mono(&v.clock), NS_PER_S, "due in 1 s");
	clock_virtual_advance(&v, NS_PER_S);
	is_int(fake_run(f), 1, "and then it is");
	give(f, EFFECT_STOP, SESSION, 1, "o2");
	fake_forget(f);
	clock_virtual_advance(&v, NS_PER_S);
	is_int(fake_run(f), 0, "a crash forgets what was not begun");
	drop(g);
	fake_free(f);
}

int main(void)
{
	struct clock_virtual v;
	struct got g = { 0 };
	struct fake *f;

	clock_virtual_init(&v, 1000 * NS_PER_S);
	f = fake_new(&v.clock, 0);
	fake_set_sink(f, (struct outcome_sink){ &g, submit });
	test_points(f, &g);
	test_kill(f, &g);
	test_faults(f, &g);
	fake_free(f);
	test_delay(&g);
	return tap_done();
}
