/*
 * A daemon that ends at some moment, and the next one: what it finds, takes
 * over, tells the engine, and ends. The helper and the cryo-vms live on in
 * between (qemu_world.h).
 */
#include "core/rows.h"

#include "tests/unit/qemu_world.h"

#define A "a0000000000000000001"
#define B "b0000000000000000001"
#define C "c0000000000000000001"
#define P "p0000000000000000001"
#define POINT "q0000000000000000001"
#define OP "o0000000000000000001"
#define X1 "x0000000000000000001"
#define X2 "x0000000000000000002"

static struct fake_vm *boot(const char *session, uint64_t epoch)
{
	give_kind(EFFECT_BOOT, session, epoch);
	got_done(got(COMMAND_STARTED), 0);
	if (!wait_for(driver_idle()))
		bail("no rest");
	return vm_of(session);
}

static const struct backend_live *live(const char *session)
{
	for (int i = 0; i < w.nr_live; i++)
		if (!strcmp(w.live[i].session, session))
			return &w.live[i];
	return NULL;
}

/* --- what is found ------------------------------------------------------- */

static void test_adopt(void)
{
	const struct backend_live *a, *b;
	struct fake_vm *v;
	int before;

	world_begin();
	v = boot(A, 5);
	v->exec[0] = (struct wire_exec_state){ .tag = X1, .out_from = 3 };
	v->exec[1] =
		(struct wire_exec_state){ .tag = X2, .phase = WIRE_EXEC_EXITED };
	v->nr_exec = 2;
	boot(B, 1);
	give_kind(EFFECT_STOP, B, 1);
	got(COMMAND_PAUSED);
	boot(C, 2);
	before = fds_at_rest();
	driver_gone();
	vm_kill(vm_of(C)->slot);
	driver_new();
	a = live(A);
	b = live(B);
	ok(w.nr_live == 2 && a && b, "a new daemon finds what runs");
	ok(a->epoch == 5 && !a->stopped && b->epoch == 1 && b->stopped,
	   "with epoch and whether it stands still");
	ok(a->hello_known && a->nr_hello == 2 && !strcmp(a->hello[0].tag, X1) &&
		   a->hello[0].out == 3 && !a->hello[0].exited &&
		   a->hello[1].exited,
	   "and with the execs in it");
	is_int(w.unlistened, 1, "the socket of one that is dead is removed");
	driver_run();
	give_kind(EFFECT_CONT, B, 1);
	got(COMMAND_CONTINUED);
	ok(true, "what was found takes orders");
	give_kind(EFFECT_KILL, A, 5);
	got(COMMAND_KILLED);
	ok(!vm_of(A), "and can be ended");
	/* listener, event and both ends of the link: of A and of C */
	is_int(fds_at_rest(), before - 2 * 4, "no descriptor is left");
	world_end();
}

static void test_not_adopted(void)
{
	struct fake_vm *v;
	int kills;

	world_begin();
	/* one in the middle of its start, one of nobody, one that says rubbish */
	w.hold[WIRE_START] = true;
	give_kind(EFFECT_BOOT, A, 1);
	wait_for(vm_of(A) && vm_of(A)->nr[WIRE_START]);
	kills = w.op_nr[HELPER_KILL];
	driver_gone();
	ok(w.op_nr[HELPER_KILL] == kills && vm_of(A),
	   "a daemon that ends undoes no start");
	w.hold[WIRE_START] = false;
	wait_for(vm_of(A)->phase == WIRE_PHASE_RUNNING);
	vm_of(A)->phase = WIRE_PHASE_STARTING; /* as if it still did */
	pthread_mutex_lock(&w.lock);
	vm_spawn(9, B, fds_memfd(0, 0)); /* without a socket in the folder */
	pthread_mutex_unlock(&w.lock);
	driver_new();
	ok(w.nr_live == 0 && !vm_of(A), "what had not started is ended");
	ok(!vm_of(B), "and so is what no socket leads to");
	driver_run();
	v = boot(C, 1);
	base_strcpy(v->session, sizeof(v->session), B);
	driver_gone();
	driver_new();
	ok(w.nr_live == 0 && !vm_of(B), "who claims another session is ended");
	driver_run();
	world_end();
}

static void test_deaf(void)
{
	world_begin();
	boot(A, 1);
	driver_gone();
	w.refuse[WIRE_HELLO] = -EINVAL; /* another version, say */
	driver_new();
	ok(w.nr_live == 0 && !vm_of(A), "one that refuses HELLO is ended");
	driver_run();
	world_end();
}

/* Two sandboxes of one session: a crash between a KILL and what came next. */
static void test_two_epochs(void)
{
	char path[108];
	int listen_fd;
	struct err e;

	world_begin();
	boot(A, 1);
	if (host_listen(NULL, A, 7, &listen_fd, &e) < 0)
		bail("%s", e.msg);
	driver_gone();
	pthread_mutex_lock(&w.lock);
	vm_spawn(7, A, listen_fd);
	w.vm[7].epoch = 2;
	w.vm[7].phase = WIRE_PHASE_RUNNING;
	pthread_mutex_unlock(&w.lock);
	driver_new();
	driver_run();
	ok(vm_of(A) == &w.vm[7] && !w.vm[0].alive,
	   "of two sandboxes of a session the newer stays");
	give_kind(EFFECT_KILL, A, 1);
	got(COMMAND_KILLED);
	ok(vm_of(A) == &w.vm[7], "the KILL of the older means the older");
	give_kind(EFFECT_STOP, A, 2);
	got(COMMAND_PAUSED);
	ok(true, "and the newer takes orders");
	host_path(path, A, 7);
	unlink(path);
	world_end();
}

/* --- starts given again -------------------------------------------------- */

static void test_start_again(void)
{
	struct fake_vm *v;
	struct command *c;

	world_begin();
	v = boot(A, 1);
	v->exec[0] = (struct wire_exec_state){ .tag = X1 };
	v->nr_exec = 1;
	driver_gone();
	driver_new();
	/* the engine, before qemu_run(): its event was not yet in the log */
	give_kind(EFFECT_BOOT, A, 1);
	driver_run();
	c = got(COMMAND_STARTED);
	ok(c->epoch == 1 && !strcmp(c->operation, OP) && c->nr_hello == 1,
	   "a start that was done is reported as done");
	is_int(w.op_nr[HELPER_SPAWN_VM], 1, "and not done again");
	got_done(c, 0);
	driver_again();
	give_kind(EFFECT_BOOT, A, 2);
	got(COMMAND_STARTED);
	ok(vm_of(A)->epoch == 2 && w.op_nr[HELPER_SPAWN_VM] == 2,
	   "one of a new epoch ends the old and is done");
	world_end();
}

/* --- captures ------------------------------------------------------------ */

static void order_capture(void)
{
	struct effect *fx = effect_of(EFFECT_CAPTURE, A, 3, OP);

	fx->point_kind = POINT_SUSPEND;
	fx->stay_stopped = true;
	give(fx);
}

/* It ended while the daemon was away; the report comes before the engine. */
static void test_report_before_run(void)
{
	struct fake_vm *v;
	struct command *c;

	world_begin();
	v = boot(A, 3);
	order_capture();
	wait_for(v->capture_nr == 1 && driver_idle());
	driver_gone();
	v->report = (struct wire_captured){ .kind = POINT_SUSPEND,
					    .epoch = 3,
					    .ticket = v->ticket,
					    .point = POINT };
	v->has_report = true;
	v->hello_done = false;
	driver_new();
	wait_for(v->hello_done);
	order_capture(); /* by the engine, which recovers */
	/* the hub has it: the answer to a later question is there */
	vm_ask(v, WIRE_PACK_NEW, 20, NULL, 0);
	vm_status(v, 20);
	driver_run();
	c = got(COMMAND_CAPTURED);
	ok(!strcmp(c->operation, OP) && c->stay_stopped && c->epoch == 3,
	   "a report that waited ends the operation that was begun before");
	got_done(c, 0);
	is_int(vm_status(v, 1), 0, "and is acknowledged");
	if (!wait_for(driver_idle()))
		bail("no rest");
	is_int(v->nr[WIRE_CAPTURE], 1, "no second capture is ordered for it");
	ok(w.nr_got == w.next, "and nothing else comes");
	world_end();
}

/* It is still under way: the order comes again, under the same ticket. */
static void test_capture_under_way(void)
{
	struct wire_captured r = { .kind = POINT_SUSPEND, .point = POINT };
	struct fake_vm *v;
	struct command *c;

	world_begin();
	v = boot(A, 3);
	order_capture();
	wait_for(v->capture_nr == 1 && driver_idle());
	driver_gone();
	driver_new();
	order_capture();
	driver_run();
	wait_for(v->nr[WIRE_CAPTURE] == 2 && driver_idle());
	is_int(v->capture_nr, 1, "the same ticket: cryo-vm knows it");
	r.ticket = v->ticket;
	vm_ask(v, WIRE_CAPTURED, 2, &r, sizeof(r));
	c = got(COMMAND_CAPTURED);
	ok(!strcmp(c->operation, OP) && c->stay_stopped,
	   "and its report ends the operation");
	world_end();
}

/* The daemon goes between a report and its event: cryo-vm is told so. */
static void test_report_unanswered(void)
{
	struct fake_vm *v;

	world_begin();
	v = boot(A, 3);
	v->report =
		(struct wire_captured){ .kind = POINT_ROLLING, .point = POINT };
	v->has_report = true;
	driver_gone();
	driver_new(); /* takes the report; and goes before qemu_run() */
	driver_gone();
	ok(v->has_report, "a report that no event has is not acknowledged");
	driver_new();
	driver_run();
	got_done(got(COMMAND_CAPTURED), 0);
	ok(wait_for(!v->has_report), "it is told again, and then it is");
	world_end();
}

/* --- execs --------------------------------------------------------------- */

static void put_exec(const char *id, uint64_t epoch)
{
	const struct store_port *s = &w.store.port;
	struct exec x = { .epoch = epoch, .state = EXEC_RUNNING };
	char key[2 * ID_LEN + 1];
	struct err e;

	snprintf(key, sizeof(key), "%s%s", A, id);
	base_strcpy(x.id, sizeof(x.id), id);
	base_strcpy(x.tag, sizeof(x.tag), id);
	base_strcpy(x.session, sizeof(x.session), A);
	x.argv = json_array();
	if (s->begin(s->ctx, &e) < 0 || rows_put_exec(s, &x, &e) < 0 ||
	    s->put(s->ctx, TABLE_EXECS_BY_SESSION, key, 2 * ID_LEN, "", 0, &e) < 0)
		bail("%s", e.msg);
	s->commit(s->ctx, &e);
	exec_done(&x);
}

/*
 * Of two execs that a restore brought back, the last daemon had given one its
 * transcript; the new one gives the other.
 */
static void test_attach(void)
{
	struct fake_vm *v;

	world_begin();
	v = boot(A, 1);
	put_exec(X1, 1);
	put_exec(X2, 1);
	v->exec[0] = (struct wire_exec_state){ .tag = X1, .attached = 1 };
	v->exec[1] = (struct wire_exec_state){ .tag = X2 };
	v->nr_exec = 2;
	driver_again();
	wait_for(driver_idle());
	ok(w.nr_transcripts == 1 && v->nr[WIRE_ATTACH] == 1,
	   "an exec without a transcript gets one, one that has it none");
	w.transcript_exists = 1;
	driver_again();
	wait_for(driver_idle());
	is_int(v->nr[WIRE_ATTACH], 1,
	       "a transcript with output is not given again");
	world_end();
}

/* --- the daemon goes in the middle
 * ------------------------------------------------------------ */

static void test_gone_in_calls(void)
{
	struct fake_vm *v;
	int64_t since;

	world_begin();
	v = boot(A, 1);
	w.hold[WIRE_PAUSE] = true;
	give_kind(EFFECT_STOP, A, 1);
	wait_for(v->nr[WIRE_PAUSE] == 1);
	w.hold[WIRE_LOAD] = true;
	give_restore(B, 1, P, POINT);
	wait_for(vm_of(B) && vm_of(B)->nr[WIRE_LOAD] == 1);
	give_restore(C, 1, P, POINT); /* waits for the image of B */
	wait_for(vm_of(C) && vm_of(C)->nr[WIRE_SETUP] == 1);
	give_kind(EFFECT_PURGE, P, 1); /* waits for both */
	since = fds_now_ns();
	driver_gone();
	ok(fds_now_ns() - since < 5000000000ll,
	   "a daemon that ends waits for nobody");
	ok(w.nr_purged == 0 && vm_of(A) && vm_of(B) && vm_of(C),
	   "and leaves everything as it is");
	w.hold[WIRE_PAUSE] = w.hold[WIRE_LOAD] = false;
	driver_new();
	ok(w.nr_live == 1 && live(A), "the next one keeps what runs");
	driver_run();
	world_end();
}

int main(void)
{
	int before = fds_count();

	test_adopt();
	test_not_adopted();
	test_deaf();
	test_two_epochs();
	test_start_again();
	test_report_before_run();
	test_capture_under_way();
	test_report_unanswered();
	test_attach();
	test_gone_in_calls();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
