/*
 * world: a whole small node for tests: the engine without a thread, the
 * store in memory, the fake driver and a virtual clock. Single-threaded and
 * the same for the same calls. Everything is static; programs that include
 * it link the backend library.
 */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include "core/backend/fake.h"
#include "core/engine.h"
#include "core/rows.h"

#include "tests/memstore.h"
#include "tests/tap.h"

#define TENANT "t0000000000000000001"
#define OTHER "t0000000000000000002"
#define DIGEST64 \
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct world {
	struct memstore m;
	struct clock_virtual clock;
	struct fake *fake;
	struct engine *en;
	struct reply reply; /* the last one */
	int replies;
};

static uint64_t world_ids;

static void world_new_id(struct id *ret)
{
	snprintf(ret->s, sizeof(ret->s), "w%019llu",
		 (unsigned long long)++world_ids);
}

static void world_engine(struct world *w)
{
	struct engine_conf conf = {
		.store = &w->m.port,
		.views = &w->m.views,
		.clock = &w->clock.clock,
		.backend = fake_backend(w->fake),
		.limits = limits_default,
		.new_id = world_new_id,
		.boot_id = { 1 },
	};

	w->en = engine_new(&conf);
	fake_set_sink(w->fake, engine_sink(w->en));
}

/* Runs engine and driver until neither has anything to do now. */
static void world_settle(struct world *w)
{
	for (int i = 0; i < 10000; i++)
		if (!engine_step(w->en) && !fake_run(w->fake))
			return;
	bail("the world does not come to rest");
}

static void world_advance(struct world *w, int64_t ns)
{
	clock_virtual_advance(&w->clock, ns);
	world_settle(w);
}

static void world_done_fn(void *ctx, const struct reply *r)
{
	struct world *w = ctx;

	w->reply = *r;
	w->replies++;
}

static struct command *world_command(enum command_kind kind, const char *session)
{
	struct command *c = command_new(kind);

	base_strcpy(c->tenant, sizeof(c->tenant), TENANT);
	base_strcpy(c->actor, sizeof(c->actor), "key:test");
	base_strcpy(c->session, sizeof(c->session), session);
	return c;
}

static void world_submit(struct world *w, struct command *c)
{
	c->done = world_done_fn;
	c->done_ctx = w;
	engine_submit(w->en, c);
}

/* Submits, lets the engine decide, but nothing happen in the world. */
static const struct reply *world_ask(struct world *w, struct command *c)
{
	world_submit(w, c);
	while (engine_step(w->en))
		;
	return &w->reply;
}

/* Submits and lets all that follows happen. */
static const struct reply *world_do(struct world *w, struct command *c)
{
	world_submit(w, c);
	world_settle(w);
	return &w->reply;
}

MEM_UNUSED static const struct reply *
world_simple(struct world *w, enum command_kind kind, const char *session)
{
	return world_do(w, world_command(kind, session));
}

static struct command *world_create(const char *name)
{
	struct command *c = world_command(COMMAND_CREATE, "");

	base_strcpy(c->name, sizeof(c->name), name);
	return c;
}

static void world_template(struct world *w)
{
	struct command *c = world_command(COMMAND_TEMPLATE_ADD, "");

	c->admin = true;
	base_strcpy(c->spec.template, sizeof(c->spec.template), "tiny");
	base_strcpy(c->digest, sizeof(c->digest), DIGEST64);
	world_do(w, c);
}

MEM_UNUSED static void world_init(struct world *w, int64_t delay_ns)
{
	memset(w, 0, sizeof(*w));
	memstore_init(&w->m);
	clock_virtual_init(&w->clock, 1700000000 * NS_PER_S);
	clock_virtual_advance(&w->clock, NS_PER_S);
	w->fake = fake_new(&w->clock.clock, delay_ns);
	world_engine(w);
	world_template(w);
}

MEM_UNUSED static void world_done(struct world *w)
{
	engine_free(w->en);
	fake_free(w->fake);
	memstore_done(&w->m);
}

/* The daemon is killed and starts again; guests live on. */
MEM_UNUSED static void world_crash(struct world *w)
{
	struct backend_live *live;
	struct err e = { .msg = "" };
	int nr;

	fake_forget(w->fake);
	engine_free(w->en);
	clock_virtual_advance(&w->clock, NS_PER_S);
	world_engine(w);
	live = fake_live(w->fake, &nr);
	if (engine_recover(w->en, live, nr, &e))
		bail("recovery: %s", e.msg);
	fake_live_free(live, nr);
}

/* Rows; state SESSION_NONE if there is none */
static struct session world_session(struct world *w, const char *id)
{
	struct reader r = { &mem_ops, &w->m };
	struct session s = { .state = SESSION_NONE };
	struct err e = { .msg = "" };

	mem_begin(&w->m, &e);
	rows_session(&r, id, &s, &e);
	mem_abort(&w->m);
	return s;
}

MEM_UNUSED static struct operation world_operation(struct world *w, const char *id)
{
	struct reader r = { &mem_ops, &w->m };
	struct operation op = { .state = OPERATION_STATE_NONE };
	struct err e = { .msg = "" };

	mem_begin(&w->m, &e);
	rows_operation(&r, id, &op, &e);
	mem_abort(&w->m);
	json_decref(STEAL(op.sessions));
	return op;
}

MEM_UNUSED static struct exec world_exec(struct world *w, const char *id)
{
	struct reader r = { &mem_ops, &w->m };
	struct exec x = { .state = EXEC_STATE_NONE };
	struct err e = { .msg = "" };

	mem_begin(&w->m, &e);
	rows_exec(&r, id, &x, &e);
	mem_abort(&w->m);
	json_decref(STEAL(x.argv));
	json_decref(STEAL(x.env));
	return x;
}

MEM_UNUSED static const char *world_state(struct world *w, const char *id)
{
	return session_state_word(world_session(w, id).state);
}

MEM_UNUSED static uint64_t world_counter(struct world *w, const char *id)
{
	struct fake_guest g;

	return fake_guest(w->fake, id, &g) && g.alive ? g.counter : 0;
}

MEM_UNUSED static size_t world_open_operations(struct world *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->m.now.nr; i++)
		n += w->m.now.row[i]->table == TABLE_OPERATIONS_OPEN;
	return n;
}

/* How many events of this type the log has. */
MEM_UNUSED static int world_count(struct world *w, enum event_type t)
{
	int n = 0;

	for (size_t i = 0; i < w->m.now.nr_events; i++)
		n += w->m.now.event[i]->ev.type == t;
	return n;
}

#endif
