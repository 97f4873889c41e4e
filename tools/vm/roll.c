/*
 * roll: the rolling schedule of one session: a timer, a token of the daemon
 * (so that a hundred sessions don't storm one second), a capture. While the
 * daemon is away captures go on without a token. The first one is staggered
 * by a random part of the interval.
 *
 * A token is given back by the report that ends the capture (CAPTURED or
 * SKIPPED with kind ROLLING), so every token leads to exactly one report.
 */
#include "tools/vm/vm.h"

static void roll_due(void *ctx);

static void roll_arm(struct vm *vm, int64_t in_ns)
{
	loop_arm(vm->loop, &vm->roll_timer, in_ns, roll_due, vm);
}

void roll_start(struct vm *vm)
{
	uint32_t random;

	if (!(vm->setup.flags & WIRE_KEEP_ROLLING) || vm->every_ns <= 0)
		return;
	base_random(&random, sizeof(random));
	roll_arm(vm, vm->every_ns / 2 +
			     (int64_t)(random % 1024) * (vm->every_ns / 2048));
}

void roll_stop(struct vm *vm)
{
	loop_disarm(vm->loop, &vm->roll_timer);
}

static void roll_go(struct vm *vm)
{
	struct wire_capture order = { .kind = POINT_ROLLING };

	vm->capturing = true;
	worker_capture(vm, &order);
}

static void roll_token(void *ctx, struct wire_msg *m)
{
	struct vm *vm = ctx;
	bool granted = !m || m->status == 0;

	vm->token_asked = false;
	if (!granted)
		return;
	if (vm->phase == WIRE_PHASE_RUNNING)
		roll_go(vm);
	else if (m)
		report_skipped(vm, POINT_ROLLING, 0, "the machine does not run");
}

static void roll_due(void *ctx)
{
	struct vm *vm = ctx;

	roll_arm(vm, vm->every_ns);
	if (vm->phase != WIRE_PHASE_RUNNING || vm->capturing || vm->token_asked)
		return;
	vm->token_asked = true;
	link_ask_later(vm->link, WIRE_TOKEN, NULL, 0, roll_token, vm);
}

void roll_done(struct vm *vm)
{
	vm->capturing = false;
}
