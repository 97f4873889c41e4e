/*
 * report: what the daemon must log: finished captures, skipped ones, the end
 * of the machine. Reports wait in order, one is under way at a time, and each
 * leaves the queue when the daemon has acknowledged it, so a daemon that was
 * away gets all of them when it is back. After the machine's end and the last
 * report this process ends.
 *
 * What the daemon can't take now (it is stopping, its disk is full) is told
 * again a second later; what it refuses for good is dropped.
 *
 * The queue is bounded: past REPORTS_MAX skips are dropped (they tell of
 * nothing durable), and rolling captures stop until the daemon is back.
 */
#include "tools/vm/vm.h"

#include "core/log.h"

#define RETRY_NS 1000000000ll
#define REPORTS_MAX 512 /* captures; eight hours of minutes */

struct report {
	struct report *next;
	enum wire_type type;
	union {
		struct wire_captured captured;
		struct wire_skipped skipped;
		struct wire_died died;
	};
};

static void report_send(struct vm *vm);

static size_t report_len(const struct report *r)
{
	if (r->type == WIRE_CAPTURED)
		return sizeof(r->captured);
	return r->type == WIRE_SKIPPED ? sizeof(r->skipped) : sizeof(r->died);
}

static void report_retry(void *ctx)
{
	report_send(ctx);
}

/* Refused for now only? */
static bool report_later(int status)
{
	return status == -EBUSY || status == -EAGAIN || status == -ENOSPC ||
	       status == -EIO || status == -ETIMEDOUT;
}

static void report_answered(void *ctx, struct wire_msg *m)
{
	struct vm *vm = ctx;
	struct report *r = vm->reports;

	vm->reporting = false;
	if (!m)
		return; /* the daemon went; it hears it when it is back */
	if (report_later(m->status)) {
		loop_arm(vm->loop, &vm->report_timer, RETRY_NS, report_retry, vm);
		return;
	}
	if (m->status < 0)
		log_warn("event=report_refused type=%s why=\"%.*s\"",
			 wire_type_name(r->type), (int)m->len,
			 (const char *)m->body);
	vm->reports = r->next;
	if (!vm->reports)
		vm->last_report = &vm->reports;
	if (r->type == WIRE_DIED)
		loop_stop(vm->loop);
	free(r);
	report_send(vm);
}

static void report_send(struct vm *vm)
{
	struct report *r = vm->reports;

	if (!r || vm->reporting || !link_is_up(vm->link))
		return;
	vm->reporting = true;
	link_ask_later(vm->link, r->type, &r->captured, report_len(r),
		       report_answered, vm);
}

static void report_put(struct vm *vm, struct report *r)
{
	*vm->last_report = r;
	vm->last_report = &r->next;
	report_send(vm);
}

uint32_t report_count(const struct vm *vm)
{
	uint32_t n = 0;

	for (const struct report *r = vm->reports; r; r = r->next)
		n++;
	return n;
}

void report_captured(struct vm *vm, const struct wire_captured *c)
{
	struct report *r = base_alloc(sizeof(*r));

	r->type = WIRE_CAPTURED;
	r->captured = *c;
	report_put(vm, r);
	if (report_count(vm) >= REPORTS_MAX)
		roll_stop(vm);
}

void report_skipped(struct vm *vm, uint32_t kind, uint64_t ticket, const char *why)
{
	struct report *r;

	if (report_count(vm) >= REPORTS_MAX)
		return;
	r = base_alloc(sizeof(*r));
	r->type = WIRE_SKIPPED;
	r->skipped.kind = kind;
	r->skipped.ticket = ticket;
	base_strcpy(r->skipped.why, sizeof(r->skipped.why), why);
	report_put(vm, r);
}

void report_died(struct vm *vm, const char *why)
{
	struct report *r = base_alloc(sizeof(*r));

	r->type = WIRE_DIED;
	base_strcpy(r->died.why, sizeof(r->died.why), why);
	report_put(vm, r);
}

void report_flush(struct vm *vm)
{
	report_send(vm);
	if (vm->phase == WIRE_PHASE_RUNNING && !vm->roll_timer.at_ns)
		roll_start(vm);
}
