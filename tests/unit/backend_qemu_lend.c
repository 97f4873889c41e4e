/*
 * A fork whose base is a point of a session that is gone: whom it was forked
 * from has the right to its packs, and lends them.
 */
#include "tests/unit/qemu_world.h"

#define CHILD "c0000000000000000001"
#define PARENT "p0000000000000000001"
#define GONE "g0000000000000000001" /* made the point; destroyed */
#define POINT "q0000000000000000001"

static void give_fork(const char *parent)
{
	struct effect *fx = restore_of(CHILD, 1, GONE, POINT);

	base_strcpy(fx->parent, sizeof(fx->parent), parent);
	give(fx);
}

static void test_lends(void)
{
	struct wire_pack_id id = { .id = { 1 } };
	struct fake_vm *v;

	world_begin();
	base_strcpy(w.pack_owner, sizeof(w.pack_owner), PARENT);
	w.hold[WIRE_LOAD] = true;
	give_fork(PARENT);
	give_kind(EFFECT_PURGE, PARENT, 1);
	wait_for(vm_of(CHILD) && vm_of(CHILD)->nr[WIRE_LOAD] == 1);
	v = vm_of(CHILD);
	vm_ask(v, WIRE_PACK_OPEN, 3, &id, sizeof(id));
	is_int(vm_status(v, 3), 0, "its parent lends the packs of the base");
	is_int(w.nr_purged, 0, "and is not purged meanwhile");
	w.hold[WIRE_LOAD] = false;
	/* in either order */
	ok(wait_for(w.nr_got == w.next + 2) &&
		   w.got[w.next]->kind + w.got[w.next + 1]->kind ==
			   COMMAND_STARTED + COMMAND_PURGED,
	   "the fork starts, and the parent goes");
	is_str(w.last_grant, CHILD "<" PARENT, "the grants are of the parent");
	world_end();
}

static void test_nobody_lends(void)
{
	struct command *c;

	world_begin();
	base_strcpy(w.pack_owner, sizeof(w.pack_owner), "nobody");
	give_restore(CHILD, 1, GONE, POINT);
	c = got(COMMAND_EFFECT_FAILED);
	is_int(c->effect, EFFECT_RESTORE, "without a parent it fails");
	ok(strstr(c->err.msg, GONE), "and says whose packs are missing: %s",
	   c->err.msg);
	world_end();
}

int main(void)
{
	int before = fds_count();

	test_lends();
	test_nobody_lends();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
