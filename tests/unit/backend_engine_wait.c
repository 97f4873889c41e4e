/*
 * The engine with its thread: calls from many threads, limits, waits, and a
 * store that fails.
 */
#include "tests/world.h"

#include <signal.h>
#include <sys/wait.h>

/* --- a driver on a thread of its own ------------------------------------- */

struct live_node {
	struct memstore m;
	struct fake *fake;
	struct engine *en;
	struct backend backend; /* the fake one, under a lock */
	pthread_mutex_t lock;
	pthread_t thread;
	bool stop, hold;
};

static void locked_start(void *ctx, struct effect *fx)
{
	struct live_node *n = ctx;
	const struct backend *b = fake_backend(n->fake);

	pthread_mutex_lock(&n->lock);
	b->start(b->ctx, fx);
	pthread_mutex_unlock(&n->lock);
}

static void *driver_main(void *arg)
{
	struct live_node *n = arg;
	bool stop = false;

	while (!stop) {
		pthread_mutex_lock(&n->lock);
		stop = n->stop;
		if (!n->hold)
			fake_run(n->fake);
		pthread_mutex_unlock(&n->lock);
		usleep(500);
	}
	return NULL;
}

static void hold(struct live_node *n, bool on)
{
	pthread_mutex_lock(&n->lock);
	n->hold = on;
	pthread_mutex_unlock(&n->lock);
}

static void node_start(struct live_node *n, uint32_t queue_max)
{
	struct engine_conf conf = { .store = &n->m.port,
				    .views = &n->m.views,
				    .clock = &clock_real,
				    .backend = &n->backend,
				    .limits = limits_default,
				    .queue_max = queue_max };
	struct command *c;
	struct reply r;
	struct err e;

	memset(n, 0, sizeof(*n));
	memstore_init(&n->m);
	pthread_mutex_init(&n->lock, NULL);
	n->fake = fake_new(&clock_real, 0);
	n->backend = *fake_backend(n->fake);
	n->backend.ctx = n;
	n->backend.start = locked_start;
	n->backend.fits = NULL; /* it takes another ctx */
	n->en = engine_new(&conf);
	fake_set_sink(n->fake, engine_sink(n->en));
	if (engine_recover(n->en, NULL, 0, &e) || engine_run(n->en, &e))
		bail("engine: %s", e.msg);
	if (pthread_create(&n->thread, NULL, driver_main, n))
		bail("no thread");
	c = world_command(COMMAND_TEMPLATE_ADD, "");
	c->admin = true;
	base_strcpy(c->digest, sizeof(c->digest), DIGEST64);
	if (engine_call(n->en, c, 10000, &r, &e))
		bail("template: %s", e.msg);
}

static void node_stop(struct live_node *n)
{
	pthread_mutex_lock(&n->lock);
	n->stop = true;
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
	engine_free(n->en);
	fake_free(n->fake);
	pthread_mutex_destroy(&n->lock);
	memstore_done(&n->m);
}

/* --- many at once -------------------------------------------------------- */

#define THREADS 8
#define ROUNDS 10

struct client {
	struct live_node *n;
	pthread_t thread;
	int good;
};

static bool follow(struct live_node *n, struct command *c,
		   char ret_session[ID_LEN + 1])
{
	struct operation op;
	struct reply r;
	struct err e;
	bool good;

	if (engine_call(n->en, c, 10000, &r, &e)) {
		printf("# call: %s\n", e.msg);
		return false;
	}
	base_strcpy(ret_session, ID_LEN + 1, r.session);
	if (engine_wait_operation(n->en, r.operation, 10000, &op, &e)) {
		printf("# wait: %s\n", e.msg);
		return false;
	}
	good = op.state == OPERATION_ENDED;
	operation_done(&op);
	return good;
}

static void *client_main(void *arg)
{
	struct client *k = arg;

	for (int i = 0; i < ROUNDS; i++) {
		char id[ID_LEN + 1];
		bool good = follow(k->n, world_create(""), id);

		good = good &&
		       follow(k->n, world_command(COMMAND_SUSPEND, id), id);
		good = good &&
		       follow(k->n, world_command(COMMAND_RESUME, id), id);
		good = good &&
		       follow(k->n, world_command(COMMAND_DESTROY, id), id);
		k->good += good;
	}
	return NULL;
}

static void test_many(void)
{
	struct client k[THREADS] = { 0 };
	struct live_node n;
	int good = 0, commits;

	node_start(&n, 0);
	for (int i = 0; i < THREADS; i++) {
		k[i].n = &n;
		pthread_create(&k[i].thread, NULL, client_main, &k[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(k[i].thread, NULL);
		good += k[i].good;
	}
	is_int(good, THREADS * ROUNDS, "all went through their lives");
	commits = n.m.commits;
	ok((uint64_t)commits < n.m.now.nr_events,
	   "%d commits for %zu events: they are grouped", commits,
	   n.m.now.nr_events);
	ok(memstore_consistent(&n.m), "fold equals rows");
	node_stop(&n);
}

static void test_waits(void)
{
	char id[ID_LEN + 1];
	struct live_node n;
	struct operation op;
	struct command *c;
	struct reply r;
	struct err e;
	uint64_t seq;

	node_start(&n, 0);
	seq = engine_wait_seq(n.en, 0, 0);
	ok(seq > 0, "the last event's number");
	is_int(engine_wait_seq(n.en, seq, 20), (long long)seq,
	       "waiting in vain ends");
	ok(follow(&n, world_create(""), id), "created");
	ok(engine_wait_seq(n.en, seq, 0) > seq, "there is news");

	hold(&n, true);
	c = world_command(COMMAND_SUSPEND, id);
	is_int(engine_call(n.en, c, 10000, &r, &e), 0, "accepted");
	is_int(engine_wait_operation(n.en, r.operation, 20, &op, &e), 0,
	       "a wait that is over");
	is_int(op.state, OPERATION_OPEN, "finds it open");
	operation_done(&op);
	c = world_command(COMMAND_PAUSE, id);
	is_int(engine_call(n.en, c, 50, &r, &e), -ETIMEDOUT,
	       "a call behind it gives up");
	is_int(e.code, ERR_TIMEOUT, "as a timeout");
	ok(strstr(e.msg, "nothing was changed"), "that was taken back");
	hold(&n, false);
	c = world_command(COMMAND_RESUME, id);
	is_int(engine_call(n.en, c, 10000, &r, &e), 0, "the next waits its turn");
	is_int(engine_wait_operation(n.en, r.operation, 10000, &op, &e), 0,
	       "and");
	is_int(op.state, OPERATION_ENDED, "comes true");
	operation_done(&op);
	is_int(engine_wait_operation(n.en, "nonsense", 0, &op, &e), -ENOENT,
	       "no such operation");
	is_int(engine_call(n.en, world_command(COMMAND_PAUSE, "nonsense"),
			   10000, &r, &e),
	       -ENOENT, "no such session");
	node_stop(&n);
}

/* --- limits -------------------------------------------------------------- */

static void test_full(void)
{
	struct world w;
	struct engine_conf conf;
	struct engine *en;

	world_init(&w, 0);
	conf = (struct engine_conf){ .store = &w.m.port,
				     .clock = &w.clock.clock,
				     .backend = fake_backend(w.fake),
				     .limits = limits_default,
				     .queue_max = 3 };
	en = engine_new(&conf);
	w.replies = 0;
	for (int i = 0; i < 5; i++) {
		struct command *c = world_create("");

		c->done = world_done_fn;
		c->done_ctx = &w;
		engine_submit(en, c);
	}
	is_int(w.replies, 2, "over the limit: refused at once");
	is_int(w.reply.err.code, ERR_BUSY, "as busy");
	engine_free(en);
	is_int(w.replies, 5, "the end of the engine answers the others");
	ok(strstr(w.reply.err.msg, "stopping"), "and says why");
	world_done(&w);
}

/* --- a store that fails -------------------------------------------------- */

static void test_no_space(void)
{
	char id[ID_LEN + 1];
	struct world w;
	int events;

	world_init(&w, 0);
	world_do(&w, world_create(""));
	base_strcpy(id, sizeof(id), w.reply.session);
	events = (int)w.m.now.nr_events;
	for (int at = 1; at < 6; at++) {
		w.m.fail_in = at;
		world_ask(&w, world_command(COMMAND_PAUSE, id));
		if (!w.reply.rc)
			break;
		is_int(w.reply.err.code, ERR_NO_SPACE,
		       "write %d fails: the client is told", at);
		is_int((int)w.m.now.nr_events, events, "nothing is written");
		is_str(world_state(&w, id), "running", "nothing is changed");
	}
	w.m.fail_in = 0;
	ok(memstore_consistent(&w.m), "fold equals rows");

	/* two at once: one is refused, the other goes through */
	world_submit(&w, world_command(COMMAND_PAUSE, id));
	world_submit(&w, world_command(COMMAND_DESTROY, id));
	world_settle(&w);
	is_str(world_state(&w, id), "none", "and it goes on");
	world_done(&w);
}

static void test_outcome_waits_for_space(void)
{
	char id[ID_LEN + 1];
	struct world w;

	world_init(&w, 0);
	world_do(&w, world_create(""));
	base_strcpy(id, sizeof(id), w.reply.session);
	world_ask(&w, world_command(COMMAND_SUSPEND, id));
	fake_run(w.fake); /* captured is queued */
	w.m.fail_in = 1;
	engine_step(w.en);
	is_int(world_session(&w, id).op.step, STEP_CAPTURE,
	       "no space for the outcome");
	is_int(engine_step(w.en), 0, "it is not tried at once again");
	world_settle(&w);
	is_str(world_state(&w, id), "running", "still not");
	world_advance(&w, NS_PER_S);
	is_str(world_state(&w, id), "suspended", "a second later it is");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

static void test_commit_fails(void)
{
	struct world w;
	int status;
	pid_t pid;

	world_init(&w, 0);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		w.m.fail_commit = true;
		world_ask(&w, world_create(""));
		_exit(w.replies > 1 ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	is_int(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 70,
	       "a commit that fails ends the process, unanswered");
	world_done(&w);
}

/* A disk that is full is no broken one: nothing ends, nothing is lost. */
static void test_commit_full(void)
{
	struct world w;
	const struct reply *r;
	char id[ID_LEN + 1];

	world_init(&w, 0);
	r = world_ask(&w, world_create("first"));
	base_strcpy(id, sizeof(id), r->session);
	world_settle(&w);
	w.m.full_commits = 1;
	r = world_ask(&w, world_command(COMMAND_PAUSE, id));
	is_int(r->rc, -ENOSPC, "a client's command is refused: %s", r->err.msg);
	is_int(r->err.code, ERR_NO_SPACE, "for want of space");
	r = world_ask(&w, world_command(COMMAND_PAUSE, id));
	is_int(r->rc, 0, "the next one has space again");
	w.m.full_commits = 2;
	world_settle(&w);
	is_str(world_state(&w, id), "running", "an outcome waits");
	world_advance(&w, NS_PER_S);
	world_advance(&w, NS_PER_S);
	is_str(world_state(&w, id), "paused", "until it can be written");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

/* --- operations that nobody answers -------------------------------------- */

static void test_overdue(void)
{
	char id[ID_LEN + 1];
	struct operation op;
	struct world w;

	world_init(&w, 0);
	world_do(&w, world_create(""));
	base_strcpy(id, sizeof(id), w.reply.session);
	world_ask(&w, world_command(COMMAND_PAUSE, id));
	fake_forget(w.fake); /* a driver that sleeps */
	clock_virtual_advance(&w.clock, 14 * 60 * NS_PER_S);
	world_settle(&w);
	is_int(world_open_operations(&w), 1, "within its time");
	world_advance(&w, 61 * NS_PER_S);
	op = world_operation(&w, w.reply.operation);
	is_int(op.state, OPERATION_BROKEN, "over its time: failed");
	is_int(op.error_code, ERR_TIMEOUT, "as a timeout");
	is_str(world_state(&w, id), "running", "the session is as it was");
	world_simple(&w, COMMAND_PAUSE, id);
	is_str(world_state(&w, id), "paused", "and free");
	world_done(&w);
}

int main(void)
{
	test_many();
	test_waits();
	test_full();
	test_no_space();
	test_outcome_waits_for_space();
	test_commit_fails();
	test_commit_full();
	test_overdue();
	return tap_done();
}
