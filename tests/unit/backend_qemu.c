/*
 * The QEMU driver between an engine, a helper and cryo-vms that are scripted
 * (qemu_world.h): starts and what goes wrong in them, images and grants,
 * captures and their tokens, ends that were asked for and ends that were not.
 * What a daemon finds when it comes back is in backend_qemu_back.c.
 */
#include "tests/unit/qemu_world.h"

#define A "a0000000000000000001"
#define B "b0000000000000000001"
#define C "c0000000000000000001"
#define P "p0000000000000000001"
#define POINT "q0000000000000000001"
#define OP "o0000000000000000001"

static struct fake_vm *boot(const char *session, uint64_t epoch)
{
	give_kind(EFFECT_BOOT, session, epoch);
	got_done(got(COMMAND_STARTED), 0);
	return vm_of(session);
}

static void destroy(const char *session, uint64_t epoch)
{
	give_kind(EFFECT_KILL, session, epoch);
	got(COMMAND_KILLED);
}

/* Nothing comes any more: what would have, has, before this boot's outcome. */
static bool quiet(void)
{
	boot("z0000000000000000001", 1);
	destroy("z0000000000000000001", 1);
	return w.nr_got == w.next;
}

/* The next start from a point materialises it again. */
static void images_reset(void)
{
	images_forget(w.q->images, P);
}

/* --- starts -------------------------------------------------------------- */

static void test_boot(void)
{
	struct command *c;
	struct fake_vm *v;
	int before;

	world_begin();
	before = fds_count();
	give_kind(EFFECT_BOOT, A, 1);
	c = got(COMMAND_STARTED);
	v = vm_of(A);
	ok(c->epoch == 1 && !strcmp(c->session, A) && !strcmp(c->operation, OP),
	   "a boot is reported with session, epoch and operation");
	ok(!strcmp(c->backend, "qemu") && !strcmp(c->accel, "tcg") &&
		   c->agent && c->hello_known && !c->info,
	   "and what it runs on");
	ok(v->epoch == 1 && v->nr[WIRE_SETUP] == 1 && v->nr[WIRE_START] == 1 &&
		   v->nr[WIRE_LOAD] + v->nr[WIRE_IMAGE] == 0,
	   "cryo-vm was set up and started, without an image");
	got_done(c, 0);
	destroy(A, 1);
	ok(!vm_of(A) && w.unlistened == 1, "KILL ends it, socket and all");
	ok(w.op_nr[HELPER_SPAWN_VM] == 1 && w.op_nr[HELPER_SPAWN_VMM] == 1 &&
		   w.op_nr[HELPER_KILL] == 1,
	   "by one request each to the helper");
	destroy(A, 1);
	is_int(w.op_nr[HELPER_KILL], 1, "KILL of nothing is KILLED at once");
	is_int(fds_at_rest(), before, "no descriptor is left");
	world_end();
}

static void test_images(void)
{
	struct fake_vm *b, *c;
	struct command *s;

	world_begin();
	base_strcpy(w.pack_owner, sizeof(w.pack_owner), P);
	give_restore(B, 1, P, POINT);
	s = got(COMMAND_STARTED);
	b = vm_of(B);
	ok(b->nr[WIRE_LOAD] == 1 && !b->nr[WIRE_IMAGE],
	   "the first start from a point materialises it");
	is_str(json_string_value(
		       json_array_get(json_object_get(s->info, "what"), 0)),
	       "rng", "what was renewed is in the report");
	ok(w.nr_granted == 1 && !strcmp(w.last_grant, B "<" P),
	   "the fork is granted the packs that the point uses");
	give_restore(C, 1, P, POINT);
	got(COMMAND_STARTED);
	c = vm_of(C);
	ok(!c->nr[WIRE_LOAD] && c->nr[WIRE_IMAGE] == 1 && w.nr_granted == 2,
	   "the second takes the hot image, with grants of its own");
	give_kind(EFFECT_PURGE, P, 1);
	got(COMMAND_PURGED);
	give_restore(A, 1, P, POINT);
	got(COMMAND_STARTED);
	is_int(vm_of(A)->nr[WIRE_LOAD], 1,
	       "the images of a destroyed session are gone");
	give_restore(P, 2, P, "q0000000000000000002");
	got(COMMAND_STARTED);
	is_int(w.nr_granted, 3, "an own point needs no grant");
	world_end();
}

/* A start by force: the guest may be silent, and the report says so. */
static void test_forensic(void)
{
	struct effect *fx;
	struct command *c;

	world_begin();
	base_strcpy(w.pack_owner, sizeof(w.pack_owner), P);
	fx = restore_of(P, 2, P, POINT);
	fx->forensic = true;
	give(fx);
	c = got(COMMAND_STARTED);
	ok(vm_of(P)->start_flags & WIRE_START_FORENSIC, "cryo-vm is told");
	ok(!c->agent, "the start is marked: no agent answered");
	is_int(json_array_size(json_object_get(c->info, "what")), 0,
	       "and nothing was renewed");
	give_restore(B, 1, P, POINT);
	c = got(COMMAND_STARTED);
	ok(!(vm_of(B)->start_flags & WIRE_START_FORENSIC) && c->agent,
	   "others wait for the agent");
	world_end();
}

/* A cryo-vm of another build gives an image that could change later. */
static void test_bad_image(void)
{
	struct effect *fx;
	struct command *c;

	world_begin();
	w.hold[WIRE_LOAD] = true;
	give_restore(B, 1, P, POINT);
	wait_for(vm_of(B) && vm_of(B)->nr[WIRE_LOAD]);
	vm_of(B)->bad_image = true;
	w.hold[WIRE_LOAD] = false;
	c = got(COMMAND_EFFECT_FAILED);
	ok(strstr(c->err.msg, "not sealed"), "an open image is refused: %s",
	   c->err.msg);
	give_restore(B, 2, P, POINT);
	got(COMMAND_STARTED);
	is_int(vm_of(B)->nr[WIRE_LOAD], 1, "and was not kept for others");

	fx = effect_of(EFFECT_RESTORE, C, 1, OP);
	base_strcpy(fx->base.session, sizeof(fx->base.session), C);
	base_strcpy(fx->base.id, sizeof(fx->base.id), POINT);
	give(fx);
	c = got(COMMAND_EFFECT_FAILED);
	ok(c->err.code == ERR_MISMATCH && c->effect == EFFECT_RESTORE && !vm_of(C),
	   "a point of another machine is refused before anything is made");
	world_end();
}

/* Whatever step fails: the outcome says so once, and nothing is left. */
static void fail_and_look(const char *step, const char *why)
{
	struct command *c;
	int kills = w.op_nr[HELPER_KILL];

	give_restore(B, 1, P, POINT);
	c = got(COMMAND_EFFECT_FAILED);
	ok(c->effect == EFFECT_RESTORE && c->epoch == 1 &&
		   !strcmp(c->operation, OP) && strstr(c->err.msg, why),
	   "%s fails: %s", step, c->err.msg);
	ok(!vm_of(B) && w.op_nr[HELPER_KILL] == kills + 1,
	   "%s: and its slot is emptied", step);
}

static void test_failures(void)
{
	static const enum wire_type steps[] = { WIRE_HELLO, WIRE_SETUP,
						WIRE_LOAD, WIRE_START };
	int before;

	world_begin();
	boot(A, 1); /* what the first start opens for good is open now */
	before = fds_at_rest();
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		w.refuse[steps[i]] = -EIO;
		fail_and_look(wire_type_name(steps[i]), "scripted");
		images_reset();
		w.die[steps[i]] = true;
		fail_and_look(wire_type_name(steps[i]), "gone");
		images_reset();
	}
	w.refuse_op[HELPER_SPAWN_VM] = -EAGAIN;
	fail_and_look("a new cryo-vm", "scripted");
	w.refuse_op[HELPER_SPAWN_VMM] = -EAGAIN;
	fail_and_look("the VMM", "scripted");
	images_reset();
	w.refuse_grant = -EIO;
	fail_and_look("the grant", "scripted");
	w.refuse_grant = 0;
	images_reset();
	ok(wait_for(fds_count() == before),
	   "after all of it no descriptor is left");
	give_restore(B, 2, P, POINT);
	got(COMMAND_STARTED);
	ok(vm_of(B)->slot == 1, "and every slot is free");
	world_end();
}

/* --- pause, continue ----------------------------------------------------- */

static void test_pause(void)
{
	struct command *c;
	struct fake_vm *v;

	world_begin();
	v = boot(A, 1);
	give_kind(EFFECT_STOP, A, 1);
	give_kind(EFFECT_CONT, A, 1);
	c = got(COMMAND_PAUSED);
	ok(c->epoch == 1 && !strcmp(c->operation, OP), "a pause is reported");
	got(COMMAND_CONTINUED);
	ok(v->nr[WIRE_PAUSE] == 1 && v->nr[WIRE_CONT] == 1, "in order");
	w.refuse[WIRE_PAUSE] = -EIO;
	give_kind(EFFECT_STOP, A, 1);
	c = got(COMMAND_EFFECT_FAILED);
	ok(c->effect == EFFECT_STOP && strstr(c->err.msg, "scripted"),
	   "so is its failure");
	give_kind(EFFECT_STOP, B, 1);
	c = got(COMMAND_EFFECT_FAILED);
	ok(strstr(c->err.msg, "no sandbox"), "and the want of a sandbox");
	world_end();
}

/* --- captures ------------------------------------------------------------ */

static struct wire_captured report(const struct fake_vm *v, uint32_t kind,
				   uint64_t ticket)
{
	struct wire_captured r = { .kind = kind,
				   .epoch = v->epoch,
				   .ticket = ticket,
				   .time_ns = 1000,
				   .depth = 3,
				   .memory_pages = 5,
				   .freeze_us = -1 };

	base_strcpy(r.point, sizeof(r.point), POINT);
	memset(r.name, 'n', sizeof(r.name)); /* not terminated */
	return r;
}

static void test_capture(void)
{
	struct effect *fx;
	struct wire_captured r;
	struct command *c;
	struct fake_vm *v;

	world_begin();
	v = boot(A, 1);
	fx = effect_of(EFFECT_CAPTURE, A, 1, OP);
	fx->point_kind = POINT_MANUAL;
	fx->stay_stopped = true;
	give(fx);
	wait_for(v->capture_nr == 1);
	ok(v->ticket == qemu_ticket(OP) && v->ticket, "the order has a ticket");
	r = report(v, POINT_MANUAL, v->ticket);
	vm_ask(v, WIRE_CAPTURED, 9, &r, sizeof(r));
	c = got(COMMAND_CAPTURED);
	ok(!strcmp(c->operation, OP) && c->epoch == 1 && c->stay_stopped,
	   "the report with that ticket ends the operation");
	ok(!strcmp(c->made.id, POINT) && c->made.kind == POINT_MANUAL &&
		   c->made.time_ns == 1000 && c->made.memory_pages == 5 &&
		   !c->made.keyframe && c->made.freeze_us == 0 &&
		   strlen(c->made.name) == NAME_MAX_LEN,
	   "and says what was made, within bounds");
	ok(!vm_answered(v, 9), "cryo-vm waits until that is in the log");
	got_done(c, 0);
	is_int(vm_status(v, 9), 0, "then it may forget it");

	r.ticket = 0;
	vm_ask(v, WIRE_CAPTURED, 10, &r, sizeof(r));
	c = got(COMMAND_CAPTURED);
	ok(!c->operation[0] && !c->stay_stopped, "others end no operation");
	got_done(c, -ESTALE);
	is_int(vm_status(v, 10), -ESTALE, "a refusal reaches cryo-vm");
	world_end();
}

static void test_capture_trouble(void)
{
	struct wire_skipped s = { .kind = 999 };
	struct command *c;
	struct fake_vm *v;

	world_begin();
	v = boot(A, 1);
	w.refuse_space = 1;
	give_kind(EFFECT_CAPTURE, A, 1);
	c = got(COMMAND_CAPTURE_SKIPPED);
	ok(c->err.code == ERR_NO_SPACE && !strcmp(c->operation, OP) &&
		   !v->nr[WIRE_CAPTURE],
	   "without space no capture is begun");
	vm_ask(v, WIRE_TOKEN, 1, NULL, 0);
	c = got(COMMAND_CAPTURE_SKIPPED);
	ok(c->err.code == ERR_NO_SPACE && c->made.kind == POINT_ROLLING,
	   "nor a rolling one, which the log hears of");
	is_int(vm_status(v, 1), -ENOSPC, "and cryo-vm too");
	w.refuse_space = 0;
	w.refuse[WIRE_CAPTURE] = -EIO;
	give_kind(EFFECT_CAPTURE, A, 1);
	c = got(COMMAND_CAPTURE_SKIPPED);
	ok(!strcmp(c->operation, OP), "an order that is refused is skipped");
	give_kind(EFFECT_CAPTURE, A, 1);
	wait_for(v->nr[WIRE_CAPTURE] == 2);
	s.ticket = qemu_ticket(OP);
	memset(s.why, 'y', sizeof(s.why));
	vm_ask(v, WIRE_SKIPPED, 2, &s, sizeof(s));
	c = got(COMMAND_CAPTURE_SKIPPED);
	ok(!strcmp(c->operation, OP) && c->made.kind == POINT_ROLLING &&
		   strlen(c->err.msg) == sizeof(s.why) - 1,
	   "a skip ends its operation; unknown kinds and endless text are cut");
	got_done(c, 0);
	is_int(vm_status(v, 2), 0, "and is acknowledged");
	give_kind(EFFECT_CAPTURE, B, 1);
	c = got(COMMAND_CAPTURE_SKIPPED);
	ok(strstr(c->err.msg, "no sandbox"), "no sandbox, no capture");
	world_end();
}

static void test_tokens(void)
{
	struct fake_vm *a, *b, *c;
	struct wire_skipped s = { .kind = POINT_ROLLING };

	world_begin();
	a = boot(A, 1);
	b = boot(B, 1);
	c = boot(C, 1);
	vm_ask(a, WIRE_TOKEN, 1, NULL, 0);
	is_int(vm_status(a, 1), 0, "the first rolling capture may run");
	vm_ask(a, WIRE_TOKEN, 2, NULL, 0);
	is_int(vm_status(a, 2), 0, "who asks twice is answered twice");
	vm_ask(b, WIRE_TOKEN, 1, NULL, 0);
	is_int(vm_status(b, 1), 0, "and holds one token: a second may run");
	vm_ask(c, WIRE_TOKEN, 1, NULL, 0);
	vm_ask(c, WIRE_PACK_NEW, 2, NULL, 0);
	is_int(vm_status(c, 2), 0, "the third goes on with other things");
	ok(!vm_answered(c, 1), "but waits for its token");
	vm_ask(a, WIRE_SKIPPED, 3, &s, sizeof(s));
	got_done(got(COMMAND_CAPTURE_SKIPPED), 0);
	is_int(vm_status(c, 1), 0, "which it gets when the first has ended");
	vm_ask(a, WIRE_TOKEN, 4, NULL, 0);
	vm_ask(a, WIRE_PACK_NEW, 5, NULL, 0);
	vm_status(a, 5);
	ok(!vm_answered(a, 4), "two are out");
	vm_kill(c->slot);
	got(COMMAND_DIED);
	is_int(vm_status(a, 4), 0, "a token dies with its holder");
	world_end();
}

/* --- ends ---------------------------------------------------------------- */

static void test_died(void)
{
	struct wire_died d = { .why = "the guest is no more" };
	struct command *c;
	struct fake_vm *v;
	int before;

	world_begin();
	boot(B, 1);
	before = fds_at_rest();
	v = boot(A, 1);
	vm_kill(v->slot);
	c = got(COMMAND_DIED);
	ok(!strcmp(c->session, A) && c->epoch == 1, "a cryo-vm's death is told");
	ok(wait_for(w.unlistened == 1 && fds_count() == before),
	   "and what it left is cleaned up");
	v = boot(A, 2);
	vm_ask(v, WIRE_DIED, 1, &d, sizeof(d));
	c = got(COMMAND_DIED);
	ok(c->epoch == 2 && !strcmp(c->err.msg, d.why), "so is the VMM's");
	ok(quiet(), "once");
	got_done(c, 0);
	ok(wait_for(!vm_of(A)), "and cleaned up as well");
	world_end();
}

/* A sandbox that ends while it is being killed, or started, is no news. */
static void test_died_unnoticed(void)
{
	struct wire_died d = { .why = "it ends" };
	struct command *c;
	struct fake_vm *v;

	world_begin();
	boot(A, 1);
	w.hold_op[HELPER_KILL] = true;
	give_kind(EFFECT_KILL, A, 1);
	wait_for(w.op_nr[HELPER_KILL] == 1);
	w.hold_op[HELPER_KILL] = false;
	got(COMMAND_KILLED);
	w.hold[WIRE_START] = true;
	give_kind(EFFECT_BOOT, A, 2);
	wait_for(vm_of(A) && vm_of(A)->nr[WIRE_START] == 1);
	v = vm_of(A);
	vm_ask(v, WIRE_DIED, 1, &d, sizeof(d));
	w.die[WIRE_START] = true;
	w.hold[WIRE_START] = false;
	c = got(COMMAND_EFFECT_FAILED);
	is_int(c->effect, EFFECT_BOOT, "it is the start that fails");
	ok(quiet(), "and nothing else is said");
	world_end();
}

static const enum wire_type held[] = { WIRE_HELLO, WIRE_SETUP, WIRE_LOAD,
				       WIRE_START };

/* KILL in the middle of each step of a start: KILLED, soon, and only that. */
static void test_kill_in_start(void)
{
	uint64_t epoch = 1;
	int before;

	world_begin();
	boot(A, 1);
	before = fds_at_rest();
	for (size_t i = 0; i < ARRAY_LEN(held); i++, epoch++) {
		struct command *c;

		w.hold[held[i]] = true;
		give_restore(B, epoch, P, POINT);
		wait_for(vm_of(B) && vm_of(B)->nr[held[i]] == 1);
		give_kind(EFFECT_KILL, B, epoch);
		c = got(COMMAND_KILLED);
		ok(c->epoch == epoch && !vm_of(B), "a start is cut short at %s",
		   wire_type_name(held[i]));
		w.hold[held[i]] = false;
		images_reset();
	}
	ok(quiet(), "a start that was cut short has no outcome");
	ok(wait_for(fds_count() == before), "and leaves nothing");
	world_end();
}

/* Behind a start that hangs other effects wait; KILL takes them along. */
static void test_kill_drops(void)
{
	struct command *c;

	world_begin();
	w.hold[WIRE_LOAD] = true;
	give_restore(A, 1, P, POINT);
	wait_for(vm_of(A) && vm_of(A)->nr[WIRE_LOAD] == 1);
	give_restore(A, 1, P, POINT);
	give_kind(EFFECT_STOP, A, 1);
	give_kind(EFFECT_KILL, A, 1);
	give_kind(EFFECT_STOP, A, 2);
	got(COMMAND_KILLED);
	c = got(COMMAND_EFFECT_FAILED);
	ok(c->effect == EFFECT_STOP && c->epoch == 2,
	   "what waited before a KILL is gone, what came after it is not");
	ok(!vm_of(A), "no start comes after it");
	w.hold[WIRE_LOAD] = false;
	world_end();
}

static void test_epochs(void)
{
	struct command *c;
	struct fake_vm *v;

	world_begin();
	boot(A, 1);
	v = boot(A, 2);
	ok(v->epoch == 2 && w.op_nr[HELPER_KILL] == 1,
	   "a start ends what is left of an older epoch");
	give_kind(EFFECT_KILL, A, 1);
	c = got(COMMAND_KILLED);
	ok(c->epoch == 1 && vm_of(A) && w.op_nr[HELPER_KILL] == 1,
	   "a KILL of that one leaves the newer alone");
	ok(quiet(), "and nothing is said of it");
	w.refuse_op[HELPER_KILL] = -EIO;
	give_kind(EFFECT_KILL, A, 2);
	c = got(COMMAND_EFFECT_FAILED);
	is_int(c->effect, EFFECT_KILL, "a KILL that the helper refuses fails");
	v = boot(B, 1);
	ok(v->slot != 0, "and its slot is not given to another");
	world_end();
}

/* --- purge --------------------------------------------------------------- */

static void test_purge_waits(void)
{
	struct wire_pack_id id = { .id = { 1 } };
	struct command *c;
	struct fake_vm *v;

	world_begin();
	base_strcpy(w.pack_owner, sizeof(w.pack_owner), P);
	w.hold[WIRE_LOAD] = true;
	give_restore(B, 1, P, POINT);
	give_kind(EFFECT_PURGE, P, 1);
	wait_for(vm_of(B) && vm_of(B)->nr[WIRE_LOAD] == 1);
	v = vm_of(B);
	vm_ask(v, WIRE_PACK_OPEN, 3, &id, sizeof(id));
	ok(vm_status(v, 3) == 0 && v->answer[3].nr_fds == 1 &&
		   v->answer[3].pack.key[0] == 0x33,
	   "a fork that starts may read its parent's packs");
	ok(quiet() && w.nr_purged == 0, "its parent's PURGE waits meanwhile");
	w.hold[WIRE_START] = true;
	w.hold[WIRE_LOAD] = false;
	c = got(COMMAND_PURGED);
	ok(!strcmp(c->session, P) && w.nr_granted == 1 && w.nr_purged == 1,
	   "and comes right after the grants");
	w.hold[WIRE_START] = false;
	got(COMMAND_STARTED);
	vm_ask(v, WIRE_PACK_OPEN, 4, &id, sizeof(id));
	is_int(vm_status(v, 4), -ENOENT, "what was lent is given back");
	world_end();
}

/* More destroyed parents than workers, all with a fork that starts. */
static void test_purge_starves_nobody(void)
{
	enum { NR = QEMU_WORKERS + 4 };
	char child[NR][ID_LEN + 1], parent[NR][ID_LEN + 1];
	int started = 0;

	world_begin();
	w.hold_op[HELPER_SPAWN_VM] = true; /* until all are given */
	for (int i = 0; i < NR; i++) {
		snprintf(child[i], sizeof(child[i]), "c%019d", i);
		snprintf(parent[i], sizeof(parent[i]), "p%019d", i);
		give_restore(child[i], 1, parent[i], parent[i]);
	}
	for (int i = 0; i < NR; i++)
		give_kind(EFFECT_PURGE, parent[i], 1);
	w.hold_op[HELPER_SPAWN_VM] = false;
	ok(wait_for(w.nr_got == 2 * NR), "all come to their end");
	for (int i = 0; i < NR * 2; i++)
		started += w.got[i]->kind == COMMAND_STARTED;
	is_int(started, NR, "each fork and each purge");
	world_end();
}

/* A fork that is killed, or fails, lends nothing any more. */
static void test_borrow_ends(void)
{
	world_begin();
	w.hold[WIRE_LOAD] = true;
	give_restore(B, 1, P, POINT);
	wait_for(vm_of(B) && vm_of(B)->nr[WIRE_LOAD] == 1);
	give_kind(EFFECT_PURGE, P, 1);
	give_kind(EFFECT_KILL, B, 1);
	/* in either order */
	ok(wait_for(w.nr_got == w.next + 2) &&
		   w.got[w.next]->kind + w.got[w.next + 1]->kind ==
			   COMMAND_KILLED + COMMAND_PURGED,
	   "a fork that is killed does not keep its parent");
	w.next += 2;
	w.hold[WIRE_LOAD] = false;
	w.refuse[WIRE_LOAD] = -EIO;
	give_restore(B, 2, P, POINT);
	got(COMMAND_EFFECT_FAILED);
	give_kind(EFFECT_PURGE, P, 1);
	got(COMMAND_PURGED);
	ok(true, "nor does one that fails");
	world_end();
}

/* --- packs, execs -------------------------------------------------------- */

static void test_packs(void)
{
	struct wire_pack_id id = { .id = { 9 } };
	struct fake_vm *v;

	world_begin();
	base_strcpy(w.pack_owner, sizeof(w.pack_owner), A);
	v = boot(A, 1);
	vm_ask(v, WIRE_PACK_NEW, 1, NULL, 0);
	ok(vm_status(v, 1) == 0 && v->answer[1].nr_fds == 1 &&
		   v->answer[1].pack.id[0] == 0x11 &&
		   v->answer[1].pack.key[0] == 0x22,
	   "cryo-vm gets a new pack: id, key, descriptor");
	vm_ask(v, WIRE_PACK_OPEN, 2, &id, sizeof(id));
	ok(vm_status(v, 2) == 0 && v->answer[2].pack.id[0] == 9, "or an old one");
	w.refuse_pack = -ENOSPC;
	vm_ask(v, WIRE_PACK_NEW, 3, NULL, 0);
	is_int(vm_status(v, 3), -ENOSPC, "or an error");
	v = boot(B, 1);
	vm_ask(v, WIRE_PACK_OPEN, 4, &id, sizeof(id));
	is_int(vm_status(v, 4), -ENOENT, "and none of another session");
	world_end();
}

static void give_exec(const char *session, const char *exec)
{
	struct effect *fx = effect_of(EFFECT_EXEC_START, session, 1, "");

	base_strcpy(fx->exec, sizeof(fx->exec), exec);
	base_strcpy(fx->tag, sizeof(fx->tag), exec);
	fx->argv = json_pack("[ss]", "/bin/true", "");
	fx->env = json_pack("{ss}", "K", "V");
	give(fx);
}

#define X1 "x0000000000000000001"

static void test_execs(void)
{
	struct wire_exited x = { .tag = X1, .code = 999, .signal = 999 };
	struct command *c;
	struct fake_vm *v;

	world_begin();
	v = boot(A, 1);
	give_exec(A, X1);
	ok(wait_for(v->nr[WIRE_EXEC] == 1) && w.nr_transcripts == 1,
	   "an exec is started with a transcript");
	x.out_total = 5;
	vm_ask(v, WIRE_EXITED, 1, &x, sizeof(x));
	c = got(COMMAND_EXEC_EXITED);
	ok(!strcmp(c->tag, X1) && c->code == 255 && c->signal == 64 &&
		   c->out_len == 5 && !c->err.msg[0],
	   "its exit comes within bounds");
	got_done(c, -EBUSY);
	is_int(vm_status(v, 1), -EBUSY, "and is acknowledged as the engine says");
	x.lost = 1;
	vm_ask(v, WIRE_EXITED, 2, &x, sizeof(x));
	c = got(COMMAND_EXEC_EXITED);
	ok(strstr(c->err.msg, "no longer knows"), "a lost one says so");
	w.refuse[WIRE_EXEC] = -ENOENT;
	give_exec(A, X1);
	is_int(got(COMMAND_EXEC_EXITED)->code, 127, "no such program: 127");
	w.refuse[WIRE_EXEC] = -EPIPE;
	give_exec(A, X1);
	is_int(got(COMMAND_EXEC_EXITED)->code, 126, "another refusal: 126");
	w.transcript_exists = 1;
	give_exec(A, X1);
	c = got(COMMAND_EXEC_EXITED);
	ok(c->code == 126 && strstr(c->err.msg, "records"),
	   "a transcript that is used is not used again");
	w.transcript_exists = 0;
	give_exec(B, X1);
	ok(quiet(), "an exec without a sandbox ends with the sandbox");
	w.die[WIRE_EXEC] = true;
	give_exec(A, X1);
	got(COMMAND_DIED);
	ok(quiet(), "and so does one whose sandbox dies over it");
	world_end();
}

int main(void)
{
	int before = fds_count();

	test_boot();
	test_images();
	test_forensic();
	test_bad_image();
	test_failures();
	test_pause();
	test_capture();
	test_capture_trouble();
	test_tokens();
	test_died();
	test_died_unnoticed();
	test_kill_in_start();
	test_kill_drops();
	test_epochs();
	test_purge_waits();
	test_purge_starves_nobody();
	test_borrow_ends();
	test_packs();
	test_execs();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
