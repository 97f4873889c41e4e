/*
 * The engine over the store in memory, the fake driver and a virtual clock:
 * what each request does from beginning to end.
 */
#include "tests/world.h"

static void create(struct world *w, const char *name, char ret_id[ID_LEN + 1])
{
	const struct reply *r = world_do(w, world_create(name));

	if (r->rc)
		bail("create: %s", r->err.msg);
	base_strcpy(ret_id, ID_LEN + 1, r->session);
}

static const char *op_word(struct world *w, const char *id)
{
	return fsm_name(&operation_fsm, (int)world_operation(w, id).state);
}

static struct command *rewind_to(const char *session, const char *point)
{
	struct command *c = world_command(COMMAND_REWIND, session);

	base_strcpy(c->point, sizeof(c->point), point);
	c->undo = !point[0];
	return c;
}

static void snapshot(struct world *w, const char *session, const char *name,
		     char ret_point[ID_LEN + 1])
{
	struct command *c = world_command(COMMAND_SNAPSHOT, session);
	struct operation op;

	base_strcpy(c->name, sizeof(c->name), name);
	world_do(w, c);
	op = world_operation(w, w->reply.operation);
	is_int(op.state, OPERATION_ENDED, "snapshot \"%s\" is done", name);
	base_strcpy(ret_point, ID_LEN + 1, op.point);
}

static void test_create(void)
{
	char one[ID_LEN + 1], two[ID_LEN + 1];
	const struct reply *r;
	struct session s;
	struct world w;

	world_init(&w, 0);
	r = world_ask(&w, world_create("one"));
	is_int(r->rc, 0, "create is accepted");
	base_strcpy(one, sizeof(one), r->session);
	is_str(world_state(&w, one), "creating", "creating");
	is_str(world_operation(&w, r->operation).stage,
	       "building the template's parked snapshot", "and says so");
	world_settle(&w);
	s = world_session(&w, one);
	is_int(s.state, SESSION_RUNNING, "running");
	is_int(s.epoch, 1, "in its first epoch");
	is_str(s.base.session, s.start.session, "from the park's point");
	is_str(op_word(&w, w.reply.operation), "done", "operation done");
	is_int(fake_count(w.fake, EFFECT_BOOT), 1, "one boot");
	is_str(world_state(&w, s.base.session), "suspended", "park at rest");

	create(&w, "two", two);
	is_int(fake_count(w.fake, EFFECT_BOOT), 1, "the second boots nothing");
	is_int(fake_count(w.fake, EFFECT_RESTORE), 2, "it is a restore");
	is_str(world_state(&w, two), "running", "and runs");
	ok(memstore_consistent(&w.m), "folding the log gives the rows");

	r = world_do(&w, world_create("two"));
	is_int(r->err.code, ERR_CONFLICT, "a name is used once");
	r = world_do(&w, world_command(COMMAND_DESTROY, s.base.session));
	is_int(r->err.code, ERR_NOT_FOUND, "the park is nobody's to destroy");
	is_int(world_open_operations(&w), 0, "nothing is open");
	world_done(&w);
}

static void test_create_together(void)
{
	char id[3][ID_LEN + 1];
	struct world w;

	world_init(&w, NS_PER_S);
	for (int i = 0; i < 3; i++) {
		world_ask(&w, world_create(""));
		base_strcpy(id[i], ID_LEN + 1, w.reply.session);
	}
	for (int i = 0; i < 10; i++)
		world_advance(&w, NS_PER_S);
	is_int(fake_count(w.fake, EFFECT_BOOT), 1, "three creates, one boot");
	for (int i = 0; i < 3; i++)
		is_str(world_state(&w, id[i]), "running", "number %d runs", i);
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

static void test_create_fails(void)
{
	const struct reply *r;
	char id[ID_LEN + 1];
	struct command *c;
	struct session s;
	struct world w;

	world_init(&w, 0);
	c = world_create("x");
	base_strcpy(c->spec.template, sizeof(c->spec.template), "nix");
	r = world_do(&w, c);
	is_int(r->err.code, ERR_NOT_FOUND, "no such template");
	ok(strstr(r->err.msg, "nix:latest"), "it is named");
	c = world_create("x");
	c->spec.memory_mib = 1;
	is_int(world_do(&w, c)->err.code, ERR_INVALID, "too little memory");

	fake_fail(w.fake, EFFECT_BOOT, 1, ERR_INTERNAL, "kernel panic");
	create(&w, "x", id);
	s = world_session(&w, id);
	is_int(s.state, SESSION_FAILED, "boot fails: the session failed");
	is_str(s.fail_why, "kernel panic", "why is known");
	is_str(op_word(&w, w.reply.operation), "failed", "so did its create");
	is_int(world_open_operations(&w), 0, "nothing is open");
	r = world_simple(&w, COMMAND_RESUME, id);
	is_int(r->err.code, ERR_CONFLICT, "nothing to resume from");
	world_simple(&w, COMMAND_DESTROY, id);
	is_str(world_state(&w, id), "none", "it can be removed");
	create(&w, "x", id);
	is_str(world_state(&w, id), "running", "the next create boots again");
	is_int(fake_count(w.fake, EFFECT_BOOT), 2, "a second boot");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

static void test_pause(struct world *w, const char *id)
{
	const struct reply *r = world_simple(w, COMMAND_PAUSE, id);
	struct command *c;

	is_str(op_word(w, r->operation), "done", "pause");
	is_str(world_state(w, id), "paused", "paused");
	ok(!fake_guest_step(w->fake, id, 1), "the guest stands still");
	r = world_simple(w, COMMAND_PAUSE, id);
	is_str(op_word(w, r->operation), "done", "pause again: as it is");
	c = world_command(COMMAND_EXEC_START, id);
	c->argv = json_pack("[s]", "true");
	is_int(world_do(w, c)->err.code, ERR_CONFLICT, "no exec while paused");
	world_simple(w, COMMAND_RESUME, id);
	is_str(world_state(w, id), "running", "resume lets it go on");
	ok(fake_guest_step(w->fake, id, 1), "the guest runs");
	is_int(world_session(w, id).epoch, 1, "still in the same epoch");
}

static void test_suspend(struct world *w, const char *id)
{
	uint64_t was = world_counter(w, id);
	struct fake_guest g;
	struct session s;

	world_simple(w, COMMAND_SUSPEND, id);
	s = world_session(w, id);
	is_int(s.state, SESSION_SUSPENDED, "suspended");
	ok(fake_guest(w->fake, id, &g) && !g.alive, "no process is left");
	is_str(s.head.session, id, "a point of its own is its head");
	world_simple(w, COMMAND_RESUME, id);
	s = world_session(w, id);
	is_int(s.state, SESSION_RUNNING, "resumed");
	is_int(s.epoch, 2, "in a new epoch");
	is_int(world_counter(w, id), was, "exactly where it was");

	fake_fail(w->fake, EFFECT_CAPTURE, 1, ERR_NO_SPACE, "disk is full");
	world_simple(w, COMMAND_SUSPEND, id);
	is_str(op_word(w, w->reply.operation), "failed", "suspend fails");
	is_str(world_operation(w, w->reply.operation).error, "disk is full",
	       "it says why");
	is_str(world_state(w, id), "running", "the session runs on");
	ok(fake_guest_step(w->fake, id, 1), "so does the guest");
}

static void test_rewind(struct world *w, const char *id)
{
	char a[ID_LEN + 1], b[ID_LEN + 1];
	uint64_t was;
	struct session s;

	snapshot(w, id, "a", a);
	was = world_counter(w, id);
	world_advance(w, NS_PER_S);
	fake_guest_step(w->fake, id, 10);
	snapshot(w, id, "b", b);
	world_advance(w, NS_PER_S);
	fake_guest_step(w->fake, id, 7);
	world_do(w, rewind_to(id, a));
	s = world_session(w, id);
	is_int(s.state, SESSION_RUNNING, "rewound");
	is_int(world_counter(w, id), was, "its memory is that of the point");
	is_str(s.head.id, a, "the line goes on from there");
	is_int(s.rewinds, 1, "before-rewind-1 was made");
	world_do(w, rewind_to(id, ""));
	is_int(world_counter(w, id), was + 17, "undo: as before the rewind");
	is_int(world_session(w, id).rewinds, 2, "which was kept as well");
	world_simple(w, COMMAND_SUSPEND, id);
	world_do(w, rewind_to(id, b));
	is_int(world_counter(w, id), was + 10, "from suspended");
	is_str(world_state(w, id), "running", "it runs");
	is_int(world_do(w, rewind_to(id, "zzzzzzzzzzzzzzzzzzzz"))->err.code,
	       ERR_NOT_FOUND, "no such point");
}

static void test_fork(struct world *w, const char *id)
{
	struct command *c = world_command(COMMAND_FORK, id);
	struct reply r;
	struct session s;
	uint64_t was;

	fake_guest_step(w->fake, id, 3);
	was = world_counter(w, id);
	c->nr_children = 8;
	r = *world_do(w, c);
	is_int(r.nr_children, 8, "eight forks");
	is_str(op_word(w, r.operation), "done", "all of them run");
	is_int(world_counter(w, r.children[7]), was, "with its memory");
	is_str(world_session(w, r.children[0]).parent, id, "it is the parent");
	is_int(world_session(w, id).children, 8, "who knows of eight");
	fake_guest_step(w->fake, r.children[0], 5);
	is_int(world_counter(w, id), was, "a fork's life is its own");

	fake_fail(w->fake, EFFECT_RESTORE, 1, ERR_INTERNAL, "bad page");
	c = world_command(COMMAND_FORK, id);
	c->nr_children = 2;
	r = *world_do(w, c);
	is_str(op_word(w, r.operation), "failed", "one of two forks fails");
	ok(strstr(world_operation(w, r.operation).error, "1 of the 2"),
	   "how many failed is said");
	is_str(world_state(w, r.children[1]), "running", "the other runs");

	fake_fail(w->fake, EFFECT_CAPTURE, 1, ERR_NO_SPACE, "full");
	c = world_command(COMMAND_FORK, id);
	c->nr_children = 2;
	r = *world_do(w, c);
	is_str(op_word(w, r.operation), "failed", "no point: no fork");
	is_str(world_state(w, r.children[0]), "none", "and no session left");
	s = world_session(w, id);
	ok(s.state == SESSION_RUNNING && !s.op.id[0], "the parent is free");
}

/* A point of another host or build is refused before anything is ended. */
static void test_misfit(struct world *w, const char *id)
{
	char a[ID_LEN + 1];
	uint64_t was, epoch;

	snapshot(w, id, "fit", a);
	was = world_counter(w, id);
	epoch = world_session(w, id).epoch;
	fake_misfit(w->fake, true);
	is_int(world_do(w, rewind_to(id, a))->err.code, ERR_MISMATCH,
	       "rewind to a point that doesn't fit this host");
	is_str(world_state(w, id), "running", "the session runs on");
	is_int(world_session(w, id).epoch, epoch, "in the same epoch");
	is_int(world_counter(w, id), was, "untouched");
	world_simple(w, COMMAND_SUSPEND, id);
	is_int(world_simple(w, COMMAND_RESUME, id)->err.code, ERR_MISMATCH,
	       "resume from one");
	is_str(world_state(w, id), "suspended", "it is not failed by that");
	fake_misfit(w->fake, false);
	world_simple(w, COMMAND_RESUME, id);
	is_str(world_state(w, id), "running", "resumes when it fits again");
}

static void test_life(void)
{
	char id[ID_LEN + 1];
	struct world w;

	world_init(&w, 0);
	create(&w, "life", id);
	test_pause(&w, id);
	test_suspend(&w, id);
	test_rewind(&w, id);
	test_fork(&w, id);
	test_misfit(&w, id);
	ok(memstore_consistent(&w.m), "fold equals rows after all of it");
	is_int(world_open_operations(&w), 0, "nothing is open");
	world_done(&w);
}

static void test_parent_destroyed(void)
{
	char id[ID_LEN + 1], child[ID_LEN + 1];
	struct command *c;
	struct world w;

	world_init(&w, 0);
	create(&w, "parent", id);
	fake_guest_step(w.fake, id, 42);
	c = world_command(COMMAND_FORK, id);
	c->nr_children = 1;
	base_strcpy(c->children[0].name, NAME_MAX_LEN, "child");
	world_do(&w, c);
	base_strcpy(child, sizeof(child), w.reply.children[0]);
	world_simple(&w, COMMAND_DESTROY, id);
	is_str(world_state(&w, id), "none", "the parent is gone");
	ok(fake_purged(w.fake, id), "with all that it had");
	fake_die(w.fake, child, "VMM crashed");
	world_settle(&w);
	is_str(world_state(&w, child), "failed", "the child's VMM dies");
	is_str(world_session(&w, child).fail_why, "VMM crashed", "why");
	world_simple(&w, COMMAND_RESUME, child);
	is_int(world_counter(&w, child), 42,
	       "it resumes from the point of a parent that is gone");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

static void test_busy(void)
{
	char id[ID_LEN + 1];
	const struct reply *r;
	struct command *c;
	struct world w;
	int replies;

	world_init(&w, NS_PER_S);
	world_ask(&w, world_create("b"));
	base_strcpy(id, sizeof(id), w.reply.session);
	replies = w.replies;
	world_ask(&w, world_command(COMMAND_PAUSE, id));
	is_int(w.replies, replies, "a pause waits until it is created");
	c = world_command(COMMAND_PAUSE, id);
	c->no_wait = true;
	r = world_ask(&w, c);
	is_int(r->err.code, ERR_BUSY, "unless it must not wait");
	for (int i = 0; i < 8; i++)
		world_advance(&w, NS_PER_S);
	is_str(world_state(&w, id), "paused", "then it is paused");
	for (int i = 0; i < 12; i++)
		world_ask(&w, world_command(COMMAND_SUSPEND, id));
	is_int(w.reply.err.code, ERR_BUSY, "only so many may wait");
	world_ask(&w, world_command(COMMAND_DESTROY, id));
	is_str(world_state(&w, id), "stopping", "destroy always gets through");
	is_int(w.reply.err.code, ERR_GONE, "those who waited are told");
	for (int i = 0; i < 4; i++)
		world_advance(&w, NS_PER_S);
	is_str(world_state(&w, id), "none", "destroyed");
	is_int(world_open_operations(&w), 0, "every operation has ended");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

static void start_exec(struct world *w, const char *id, char ret[ID_LEN + 1])
{
	struct command *c = world_command(COMMAND_EXEC_START, id);

	c->argv = json_pack("[ss]", "sleep", "1000");
	c->env = json_pack("{ss}", "TOKEN", "very-secret");
	world_do(w, c);
	if (w->reply.rc)
		bail("exec: %s", w->reply.err.msg);
	base_strcpy(ret, ID_LEN + 1, w->reply.exec);
}

static bool log_has(struct world *w, const char *text)
{
	for (size_t i = 0; i < w->m.now.nr_events; i++) {
		struct buf *b = &w->m.now.event[i]->body;

		if (memmem(b->p, b->len, text, strlen(text)))
			return true;
	}
	return false;
}

static void test_exec(void)
{
	char id[ID_LEN + 1], before[ID_LEN + 1], after[ID_LEN + 1];
	char p[ID_LEN + 1], child[ID_LEN + 1];
	struct exec *list = NULL;
	struct reader rd;
	struct err e;
	struct command *c;
	struct world w;
	int nr = 0;

	world_init(&w, 0);
	create(&w, "e", id);
	start_exec(&w, id, before);
	ok(log_has(&w, "TOKEN"), "the log has the names of env");
	ok(!log_has(&w, "very-secret"), "and none of its values");
	snapshot(&w, id, "p", p);
	world_advance(&w, NS_PER_S);
	start_exec(&w, id, after);
	fake_exit(w.fake, id, before, 3);
	world_settle(&w);
	is_int(world_exec(&w, before).state, EXEC_EXITED, "one exits");
	is_int(world_exec(&w, before).code, 3, "with its code");
	world_do(&w, rewind_to(id, p));
	is_int(world_exec(&w, before).state, EXEC_RUNNING,
	       "after the rewind it runs again");
	is_int(world_exec(&w, before).epoch, 2, "in the new epoch");
	is_int(world_exec(&w, after).state, EXEC_LOST,
	       "what began after the point is lost");

	c = world_command(COMMAND_FORK, id);
	c->nr_children = 1;
	world_do(&w, c);
	base_strcpy(child, sizeof(child), w.reply.children[0]);
	rd = (struct reader){ &mem_ops, &w.m };
	mem_begin(&w.m, &e);
	rows_execs(&rd, child, false, &list, &nr, &e);
	mem_abort(&w.m);
	is_int(nr, 1, "a fork has an exec of its own");
	if (nr != 1)
		bail("no exec in the fork");
	is_str(list[0].origin, before, "whose origin is named");
	is_str(list[0].tag, before, "and whose tag is the guest's");
	ok(strcmp(list[0].id, before), "under a new id");
	is_int(json_array_size(list[0].argv), 2, "with its argv");

	c = world_command(COMMAND_EXEC_SIGNAL, child);
	base_strcpy(c->exec, sizeof(c->exec), list[0].id);
	c->signal = 9;
	world_do(&w, c);
	is_int(world_exec(&w, list[0].id).code, 137, "a signal ends it");
	is_int(world_exec(&w, before).state, EXEC_RUNNING, "there only");
	exec_done(&list[0]);
	free(list);
	fake_die(w.fake, id, "x");
	world_settle(&w);
	is_int(world_exec(&w, before).state, EXEC_LOST, "a death loses it");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

static void test_ttl(void)
{
	char id[ID_LEN + 1], none[ID_LEN + 1];
	struct command *c = world_create("t");
	struct world w;

	world_init(&w, 0);
	c->spec.ttl_ns = 100 * NS_PER_S;
	world_do(&w, c);
	base_strcpy(id, sizeof(id), w.reply.session);
	world_advance(&w, 60 * NS_PER_S);
	world_simple(&w, COMMAND_PAUSE, id);
	world_advance(&w, 1000 * NS_PER_S);
	is_str(world_state(&w, id), "paused", "the limit's clock stood still");
	world_simple(&w, COMMAND_RESUME, id);
	world_advance(&w, 39 * NS_PER_S);
	is_str(world_state(&w, id), "running", "a second is left");
	world_advance(&w, NS_PER_S);
	is_str(world_state(&w, id), "suspended", "then it is suspended");
	is_int(world_count(&w, EVENT_LIMIT_TTL), 1, "an event says so");
	world_simple(&w, COMMAND_RESUME, id);
	world_advance(&w, 99 * NS_PER_S);
	is_str(world_state(&w, id), "running", "resumed: a new stretch");

	c = world_create("n");
	c->spec.ttl_ns = 10 * NS_PER_S;
	c->spec.keep = KEEP_NONE;
	world_do(&w, c);
	base_strcpy(none, sizeof(none), w.reply.session);
	is_int(world_session(&w, none).spec.snapshot_every_ns, 0,
	       "keep none: no rolling points");
	world_advance(&w, 10 * NS_PER_S);
	is_str(world_state(&w, none), "none", "keep none: destroyed");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

static struct command *with_key(struct command *c, uint8_t key, uint8_t body)
{
	c->idem.given = true;
	c->idem.scope[0] = key;
	c->idem.body[0] = body;
	return c;
}

static void test_idempotency(void)
{
	struct reply first, again;
	struct command *c;
	struct world w;

	world_init(&w, 0);
	first = *world_do(&w, with_key(world_create("i"), 1, 1));
	again = *world_do(&w, with_key(world_create("i"), 1, 1));
	is_int(again.rc, 0, "the same request again");
	is_str(again.session, first.session, "gives the same session");
	is_str(again.operation, first.operation, "and operation");
	ok(again.replayed && !first.replayed, "and says that it is a replay");
	again = *world_do(&w, with_key(world_create("j"), 1, 2));
	is_int(again.err.code, ERR_MISMATCH, "another body: refused");
	c = world_command(COMMAND_FORK, first.session);
	c->nr_children = 3;
	first = *world_do(&w, with_key(c, 2, 1));
	c = world_command(COMMAND_FORK, first.session);
	c->nr_children = 3;
	again = *world_do(&w, with_key(c, 2, 1));
	is_int(again.nr_children, 3, "a fork's children");
	is_str(again.children[2], first.children[2], "are the same");
	world_crash(&w);
	world_settle(&w);
	again = *world_do(&w, with_key(world_create("i"), 1, 1));
	ok(again.replayed, "a restart forgets nothing");
	clock_virtual_advance(&w.clock, 25 * 3600 * NS_PER_S);
	again = *world_do(&w, with_key(world_create("k"), 1, 3));
	is_int(again.rc, 0, "after a day the key is free");
	ok(!again.replayed, "and the request new");
	ok(memstore_consistent(&w.m), "fold equals rows");
	world_done(&w);
}

static void test_tenants(void)
{
	char id[ID_LEN + 1], text[256];
	const struct reply *r;
	struct command *c;
	struct world w;

	world_init(&w, 0);
	create(&w, "mine", id);
	c = world_command(COMMAND_PAUSE, id);
	base_strcpy(c->tenant, sizeof(c->tenant), OTHER);
	r = world_do(&w, c);
	is_int(r->err.code, ERR_NOT_FOUND, "another tenant's is not found");
	base_strcpy(text, sizeof(text), strstr(r->err.msg, ": `"));
	c = world_command(COMMAND_PAUSE, "zzzzzzzzzzzzzzzzzzzz");
	r = world_do(&w, c);
	is_str(strstr(r->err.msg, ": `"), text, "like one that is not there");
	c = world_command(COMMAND_PAUSE, id);
	base_strcpy(c->tenant, sizeof(c->tenant), OTHER);
	c->admin = true;
	is_int(world_do(&w, c)->rc, 0, "local administration sees all");
	c = world_command(COMMAND_KEY_CREATE, "");
	base_strcpy(c->id, sizeof(c->id), "k0000000000000000001");
	is_int(world_do(&w, c)->err.code, ERR_FORBIDDEN, "not anyone's keys");
	world_done(&w);
}

int main(void)
{
	test_create();
	test_create_together();
	test_create_fails();
	test_life();
	test_parent_destroyed();
	test_busy();
	test_exec();
	test_ttl();
	test_idempotency();
	test_tenants();
	return tap_done();
}
