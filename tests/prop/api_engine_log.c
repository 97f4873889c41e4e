/*
 * The engine over the real log, with a driver of simulated sandboxes, under
 * a seeded generator: random requests, deaths, rolling points, failures and
 * kills of the daemon. In the end, and after each restart:
 *   - folding the log into empty tables gives the log's own rows;
 *   - every operation that was accepted has ended;
 *   - a restored guest has the memory of the point it was restored from.
 */
#include "core/backend/fake.h"
#include "core/engine.h"
#include "core/rows.h"
#include "store/view.h"

#include "tests/memstore.h"
#include "tests/unit/store_help.h"

#define TENANT "t0000000000000000001"
#define DIGEST64 \
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SESSIONS_MAX 12
#define STEPS 400

struct node {
	struct keys *keys;
	struct evlog *log;
	struct store_port port;
	struct view_port views;
	struct clock_virtual clock;
	struct fake *fake;
	struct engine *en;
	struct reply reply;
	int refused;
};

static struct node n;
static uint64_t seed;
static char sessions[SESSIONS_MAX][ID_LEN + 1];
static int nr_sessions;

/* --- the node ------------------------------------------------------------ */

static void open_log(void)
{
	struct err e;

	if (keys_open(&n.keys, help_path("data"), NULL, false, &clock_real, &e) ||
	    evlog_open(&n.log, help_path("data"), n.keys, EVLOG_WRITE, &e))
		bail("log: %s", e.msg);
	view_store_port(n.log, &n.port);
	view_read_port(n.log, &n.views);
}

static void close_log(void)
{
	evlog_close(n.log);
	keys_close(n.keys);
}

static void start_engine(void)
{
	struct engine_conf conf = { .store = &n.port,
				    .views = &n.views,
				    .clock = &n.clock.clock,
				    .backend = fake_backend(n.fake),
				    .limits = limits_default,
				    .boot_id = { 3 } };
	struct backend_live *live;
	struct err e;
	int nr;

	n.en = engine_new(&conf);
	fake_set_sink(n.fake, engine_sink(n.en));
	live = fake_live(n.fake, &nr);
	if (engine_recover(n.en, live, nr, &e))
		bail("recovery: %s", e.msg);
	fake_live_free(live, nr);
}

static void settle(void)
{
	for (int i = 0; i < 10000; i++)
		if (!engine_step(n.en) && !fake_run(n.fake))
			return;
	bail("the node does not come to rest");
}

static void crash(void)
{
	fake_forget(n.fake);
	engine_free(n.en);
	close_log();
	open_log();
	clock_virtual_advance(&n.clock, NS_PER_S);
	start_engine();
}

static void replied(UNUSED void *ctx, const struct reply *r)
{
	n.reply = *r;
	n.refused += r->rc != 0;
}

static void submit(struct command *c)
{
	c->done = replied;
	base_strcpy(c->tenant, sizeof(c->tenant), TENANT);
	base_strcpy(c->actor, sizeof(c->actor), "key:prop");
	engine_submit(n.en, c);
}

/* --- what happens -------------------------------------------------------- */

static const char *any_session(void)
{
	return nr_sessions ? sessions[tap_rand(&seed) % (uint64_t)nr_sessions]
			   : "s0000000000000000000";
}

static struct session row(const char *id)
{
	struct session s = { .state = SESSION_NONE };
	struct reader r = { .ops = n.views.ops };
	struct err e;

	if (n.views.open(n.views.ctx, &r.view, &e))
		bail("view: %s", e.msg);
	rows_session(&r, id, &s, &e);
	n.views.close(r.view);
	return s;
}

static void remember(const char *id)
{
	if (nr_sessions < SESSIONS_MAX)
		base_strcpy(sessions[nr_sessions++], ID_LEN + 1, id);
}

static void forget_destroyed(void)
{
	for (int i = 0; i < nr_sessions; i++)
		if (row(sessions[i]).state == SESSION_NONE)
			memmove(sessions[i], sessions[--nr_sessions], ID_LEN + 1);
}

static void ask_create(void)
{
	struct command *c = command_new(COMMAND_CREATE);

	if (nr_sessions == SESSIONS_MAX) {
		command_free(c);
		return;
	}
	c->spec.memory_mib = tap_rand(&seed) % 2 ? 128 : 256;
	c->spec.keep = tap_rand(&seed) % 4 ? KEEP_DURABLE : KEEP_NONE;
	submit(c);
	engine_step(n.en);
	if (!n.reply.rc)
		remember(n.reply.session);
}

static void ask_fork(void)
{
	struct command *c = command_new(COMMAND_FORK);
	struct session s = row(any_session());

	base_strcpy(c->session, sizeof(c->session), s.id);
	if (tap_rand(&seed) % 2)
		base_strcpy(c->point, sizeof(c->point), s.head.id);
	c->nr_children = 1 + (int)(tap_rand(&seed) % 3);
	n.reply.nr_children = 0;
	submit(c);
	engine_step(n.en);
	for (int i = 0; !n.reply.rc && i < n.reply.nr_children; i++)
		remember(n.reply.children[i]);
}

static void ask(enum command_kind kind)
{
	struct command *c = command_new(kind);
	struct session s = row(any_session());

	base_strcpy(c->session, sizeof(c->session), s.id);
	if (kind == COMMAND_REWIND) {
		c->undo = s.undo.id[0] && tap_rand(&seed) % 2;
		base_strcpy(c->point, sizeof(c->point),
			    tap_rand(&seed) % 2 ? s.head.id : s.base.id);
	}
	if (kind == COMMAND_EXEC_START)
		c->argv = json_pack("[ss]", "sleep", "1");
	submit(c);
}

static void happen(void)
{
	static const enum command_kind kinds[] = {
		COMMAND_PAUSE,	    COMMAND_CONTINUE, COMMAND_SUSPEND,
		COMMAND_RESUME,	    COMMAND_RESUME,   COMMAND_REWIND,
		COMMAND_REWIND,	    COMMAND_SNAPSHOT, COMMAND_DESTROY,
		COMMAND_EXEC_START,
	};

	switch (tap_rand(&seed) % 12) {
	case 0:
		ask_create();
		break;
	case 1:
		ask_fork();
		break;
	case 2:
		fake_die(n.fake, any_session(), "shot");
		break;
	case 3:
	case 4:
		fake_roll(n.fake, any_session());
		break;
	case 5:
		fake_fail(n.fake, (enum effect_kind)(tap_rand(&seed) % 7), 1,
			  ERR_INTERNAL, "bad luck");
		break;
	case 6:
		fake_guest_step(n.fake, any_session(), tap_rand(&seed) % 9);
		break;
	default:
		ask(kinds[tap_rand(&seed) % ARRAY_LEN(kinds)]);
	}
	if (tap_rand(&seed) % 3)
		engine_step(n.en);
	if (tap_rand(&seed) % 3)
		fake_run(n.fake);
	clock_virtual_advance(&n.clock, (int64_t)(tap_rand(&seed) % 100));
}

/* --- what must hold ------------------------------------------------------ */

static int fold_event(void *ctx, const struct event *ev)
{
	struct memstore *m = ctx;
	struct err e;
	int r = project_apply(&m->port, ev, &e);

	if (r)
		printf("#   %s\n", e.msg);
	return r;
}

static int copy_row(void *ctx, const void *key, size_t key_len,
		    const void *value, size_t len)
{
	struct err e;
	void **x = ctx;

	return mem_put(x[0], *(enum table *)x[1], key, key_len, value, len, &e);
}

/* Rows of the log, and rows folded from its events. */
static bool rows_are_the_fold(void)
{
	struct memstore rows, fold;
	struct reader r = { .ops = n.views.ops };
	struct err e = { .msg = "" };
	bool same;
	int rc = 0;

	memstore_init(&rows);
	memstore_init(&fold);
	mem_begin(&rows, &e);
	mem_begin(&fold, &e);
	if (n.views.open(n.views.ctx, &r.view, &e))
		bail("view: %s", e.msg);
	for (enum table t = 0; !rc && t < TABLE_NR; t++)
		rc = r.ops->scan(r.view, t, NULL, 0, NULL, 0, false, copy_row,
				 (void *[]){ &rows, &t }, &e);
	if (!rc)
		rc = r.ops->events(r.view, NULL, 0, fold_event, &fold, &e);
	n.views.close(r.view);
	if (rc)
		printf("#   %d: %s\n", rc, e.msg);
	same = !rc && memstore_same_rows(&rows, &fold);
	mem_abort(&rows);
	mem_abort(&fold);
	memstore_done(&rows);
	memstore_done(&fold);
	return same;
}

static int count_row(void *ctx, UNUSED const void *key, UNUSED size_t key_len,
		     UNUSED const void *value, UNUSED size_t len)
{
	++*(int *)ctx;
	return 0;
}

static int open_operations(void)
{
	struct reader r = { .ops = n.views.ops };
	struct err e;
	int nr = 0;

	if (n.views.open(n.views.ctx, &r.view, &e))
		bail("view: %s", e.msg);
	r.ops->scan(r.view, TABLE_OPERATIONS_OPEN, NULL, 0, NULL, 0, false,
		    count_row, &nr, &e);
	n.views.close(r.view);
	return nr;
}

/* Suspends and resumes what can be: the memory is what it was. */
static void check_memory(void)
{
	int wrong = 0, tried = 0;

	for (int i = 0; i < nr_sessions; i++) {
		struct fake_guest before, after;

		if (row(sessions[i]).state != SESSION_RUNNING)
			continue;
		fake_guest_step(n.fake, sessions[i], 3);
		fake_guest(n.fake, sessions[i], &before);
		for (int k = 0; k < 2; k++) {
			struct command *c = command_new(k ? COMMAND_RESUME
							  : COMMAND_SUSPEND);

			base_strcpy(c->session, sizeof(c->session), sessions[i]);
			submit(c);
			settle();
		}
		fake_guest(n.fake, sessions[i], &after);
		tried++;
		wrong += !after.alive || after.counter != before.counter ||
			 after.epoch != before.epoch + 1;
	}
	is_int(wrong, 0, "%d sessions come back with their memory", tried);
}

static void add_template(void)
{
	struct command *c = command_new(COMMAND_TEMPLATE_ADD);

	c->admin = true;
	base_strcpy(c->digest, sizeof(c->digest), DIGEST64);
	submit(c);
	settle();
}

int main(void)
{
	static const enum effect_kind all[] = { EFFECT_BOOT,	EFFECT_RESTORE,
						EFFECT_STOP,	EFFECT_CONT,
						EFFECT_CAPTURE, EFFECT_KILL,
						EFFECT_PURGE };

	seed = tap_seed();
	mkdir(help_path("data"), 0700);
	mkdir(help_path("data/log"), 0700);
	mkdir(help_path("data/keys"), 0700);
	clock_virtual_init(&n.clock, 1700000000 * NS_PER_S);
	clock_virtual_advance(&n.clock, NS_PER_S);
	n.fake = fake_new(&n.clock.clock, 0);
	open_log();
	start_engine();
	add_template();
	for (int i = 1; i <= STEPS; i++) {
		happen();
		if (i % 100)
			continue;
		crash();
		ok(rows_are_the_fold(), "step %d: fold equals rows", i);
	}
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		fake_fail(n.fake, all[i], 0, ERR_INTERNAL, "");
	settle();
	forget_destroyed();
	is_int(open_operations(), 0, "every operation has ended");
	check_memory();
	ok(rows_are_the_fold(), "fold equals rows in the end");
	ok(n.refused > 0, "some requests were refused (%d)", n.refused);
	engine_free(n.en);
	close_log();
	fake_free(n.fake);
	return tap_done();
}
