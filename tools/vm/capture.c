/*
 * capture: one point of a running (or paused) machine. Theory of operation:
 *
 *   live passes   while more than 2 MiB is dirty: scan with re-protect, feed
 *                 the pages to the packer; what is written meanwhile is
 *                 reported by the next scan
 *   quiesce       the agent finishes its frame and holds the CPUs (100 ms)
 *   stop          QMP: the vCPUs stand, no disk request is in flight
 *   devices       their state, into memory (live:false)
 *   scan          after the save: nothing writes any more
 *   freeze disk   the dirty blocks become a set of their own
 *   copy          the dirty pages that are left, into a fixed staging area
 *   cont          the guest goes on; clock first
 *   pack          behind the guest: hash, dedupe, seal, append, fdatasync
 *   report        the point is durable; the daemon logs it
 *
 * Invariants: 1. memory, disk and devices are of one moment: between `stop`
 * and `cont`. 2. Until the packer has finished, dirty pages and frozen blocks
 * stay in an open epoch; any failure gives them back, and the next capture
 * has them again. 3. The guest goes on whatever happens, unless the point was
 * asked for with WIRE_CAPTURE_STAY and succeeded.
 * A crash of this process loses the open epoch and ends the machine; points
 * that were reported are whole.
 */
#include "tools/vm/vm.h"

#include <sys/mman.h>
#include <time.h>

#include "core/log.h"

#define STAGING_PAGES 16384u /* 64 MiB */
#define LIVE_ENOUGH 512 /* pages: 2 MiB is copied while stopped */
#define LIVE_PASSES 6
#define LIVE_BATCH 256u
#define QUIESCE_MS 100
#define QMP_STOP_MS 30000
#define QMP_CALL_MS 10000
#define PACK_ASK_MS 10000

struct capture {
	struct vm *vm;
	const struct wire_capture *order;
	struct packer_point point;
	struct buf device;
	struct buf execs;
	uint32_t nr_staged;
	bool was_running, stopped, quiesced, frozen;
	int64_t begun_ns, stop_ns, cont_ns;
};

static int64_t capture_wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int capture_ask_pack(struct vm *vm, uint8_t id[PACK_ID_LEN],
			    uint8_t key[CRYPT_KEY_LEN], int *ret_fd,
			    struct err *e)
{
	struct wire_pack p;
	int r = link_ask(vm->link, WIRE_PACK_NEW, NULL, 0, &p, sizeof(p),
			 ret_fd, 1, PACK_ASK_MS, e);

	if (r < 0)
		return r;
	memcpy(id, p.id, PACK_ID_LEN);
	memcpy(key, p.key, CRYPT_KEY_LEN);
	base_wipe(&p, sizeof(p));
	return 0;
}

void capture_refill(struct vm *vm)
{
	struct err e;

	if (vm->spare.have || !link_is_up(vm->link))
		return;
	vm->spare.have = capture_ask_pack(vm, vm->spare.id, vm->spare.key,
					  &vm->spare.fd, &e) == 0;
}

/* The packer's: the spare, so that it doesn't matter who is away. */
static int capture_next_pack(void *ctx, uint8_t id[PACK_ID_LEN],
			     uint8_t key[CRYPT_KEY_LEN], int *ret_fd,
			     struct err *e)
{
	struct vm *vm = ctx;

	if (!vm->spare.have)
		return capture_ask_pack(vm, id, key, ret_fd, e);
	memcpy(id, vm->spare.id, PACK_ID_LEN);
	memcpy(key, vm->spare.key, CRYPT_KEY_LEN);
	*ret_fd = vm->spare.fd;
	base_wipe(&vm->spare, sizeof(vm->spare));
	return 0;
}

/* What the first capture needs and later ones keep. */
static int capture_prepare(struct vm *vm, struct err *e)
{
	struct packer_config c = { .io = vm->io,
				   .ps = vm->packs,
				   .img = vm->image,
				   .clock = &clock_real,
				   .next_pack = capture_next_pack,
				   .ctx = vm };

	if (vm->packer)
		return 0;
	vm->staging = mmap(NULL, (size_t)STAGING_PAGES * CRYO_PAGE,
			   PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (vm->staging == MAP_FAILED) {
		vm->staging = NULL;
		return err_sys(e, errno, "map the staging area");
	}
	vm->staging_pages = base_alloc(STAGING_PAGES * sizeof(uint32_t));
	vm->bits = base_alloc(dirty_words(vm->dirty) * sizeof(uint64_t));
	vm->packer = packer_new(&c);
	return 0;
}

static void capture_clear_bits(struct vm *vm)
{
	memset(vm->bits, 0, dirty_words(vm->dirty) * sizeof(uint64_t));
}

/* Feeds the pages of `bits` to the packer, straight from the running guest. */
static int capture_feed_live(struct capture *c, struct err *e)
{
	struct vm *vm = c->vm;
	uint32_t cursor = 0;
	int n;

	while ((n = guestmem_gather(vm->mem, vm->bits, &cursor, LIVE_BATCH,
				    vm->staging_pages, vm->staging, e)) > 0) {
		for (int i = 0; i < n; i++) {
			int r = packer_page(
				vm->packer, PAGE_MEMORY, vm->staging_pages[i],
				vm->staging + (size_t)i * CRYO_PAGE, e);

			if (r < 0)
				return r;
		}
	}
	return n;
}

/*
 * Shrinks what is left for the pause. The last scan's pages are not fed:
 * they stay in `bits`, together with what the scan in the pause adds.
 */
static int capture_live(struct capture *c, struct err *e)
{
	struct vm *vm = c->vm;

	capture_clear_bits(vm);
	if (!c->was_running || !dirty_is_incremental(vm->dirty))
		return 0;
	for (int pass = 0; pass < LIVE_PASSES; pass++) {
		int64_t n = dirty_scan(vm->dirty, vm->bits, e);
		int r;

		if (n < 0)
			return (int)n;
		if (n <= LIVE_ENOUGH)
			return 0;
		r = capture_feed_live(c, e);
		if (r < 0)
			return r;
		capture_clear_bits(vm);
	}
	return 0;
}

/* Everything that must be of one moment. The machine stands. */
static int capture_moment(struct capture *c, struct err *e)
{
	struct vm *vm = c->vm;
	uint32_t cursor = 0;
	int64_t n;
	int r;

	r = qmp_vm_save_devices(vm->qmp, &c->device, QMP_CALL_MS, e);
	if (r < 0)
		return r;
	n = dirty_scan(vm->dirty, vm->bits, e);
	if (n < 0)
		return (int)n;
	disk_freeze(vm->disk);
	c->frozen = true;
	/*
	 * A machine that stays stopped needs no hurry: its pages are read
	 * in place, however many.
	 */
	if (c->order->flags & WIRE_CAPTURE_STAY || !c->was_running)
		return capture_feed_live(c, e);
	r = guestmem_gather(vm->mem, vm->bits, &cursor, STAGING_PAGES,
			    vm->staging_pages, vm->staging, e);
	if (r < 0)
		return r;
	c->nr_staged = (uint32_t)r;
	r = guestmem_gather(vm->mem, vm->bits, &cursor, 1,
			    vm->staging_pages + STAGING_PAGES - 1,
			    vm->staging + (size_t)(STAGING_PAGES - 1) * CRYO_PAGE,
			    e);
	if (r > 0)
		return err_set(e, -EAGAIN, ERR_BUSY,
			       "guest writes more than %u MiB while a capture runs",
			       STAGING_PAGES >> 8);
	return r;
}

static int capture_cont(struct capture *c, struct err *e)
{
	int r = 0;

	if (c->was_running)
		r = qmp_vm_cont(c->vm->qmp, QMP_CALL_MS, e);
	c->stopped = r < 0;
	c->cont_ns = loop_now_ns();
	return r;
}

static int capture_stop(struct capture *c, struct err *e)
{
	struct vm *vm = c->vm;
	int r;

	if (!c->was_running) {
		c->stop_ns = loop_now_ns();
		c->quiesced = true;
	} else {
		c->quiesced = agent_quiesce(vm->agent, QUIESCE_MS) == 0;
		c->stop_ns = loop_now_ns();
		c->stopped = true; /* also if only the answer was late */
		r = qmp_vm_stop(vm->qmp, QMP_STOP_MS, e);
		if (r < 0)
			return r;
	}
	c->point.time_ns = MAX(capture_wall_ns(), vm->last_point_ns + 1);
	packer_set_time(vm->packer, c->point.time_ns);
	return 0;
}

/* The pages and blocks of the moment, behind the running guest. */
static int capture_pack(struct capture *c, struct packer_result *ret,
			struct err *e)
{
	struct vm *vm = c->vm;
	_Alignas(8) uint8_t block[CRYO_PAGE];
	uint32_t index;
	int r;

	for (uint32_t i = 0; i < c->nr_staged; i++) {
		r = packer_page(vm->packer, PAGE_MEMORY, vm->staging_pages[i],
				vm->staging + (size_t)i * CRYO_PAGE, e);
		if (r < 0)
			return r;
	}
	while ((r = disk_frozen_next(vm->disk, &index, block, e)) > 0) {
		r = packer_page(vm->packer, PAGE_DISK, index, block, e);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	return packer_finish(vm->packer, c->device.p, c->device.len, c->execs.p,
			     c->execs.len, ret, e);
}

/* --- exec states, as the manifest keeps them (docs/adr/0080) ------------------- */

struct execs_call {
	struct vm *vm;
	struct buf *b;
};

static void capture_execs_on_loop(void *ctx)
{
	struct execs_call *c = ctx;
	struct wire_exec_state s[WIRE_EXECS_MAX];
	uint32_t n = execs_states(c->vm->execs, s, WIRE_EXECS_MAX);

	buf_put_u16(c->b, 1);
	buf_put_u16(c->b, (uint16_t)n);
	for (uint32_t i = 0; i < n; i++) {
		buf_put(c->b, s[i].tag, ID_LEN);
		buf_put_u8(c->b, (uint8_t)s[i].phase);
		buf_put_u32(c->b, s[i].code);
		buf_put_u32(c->b, s[i].signal);
		buf_put_u64(c->b, s[i].out_from);
		buf_put_u64(c->b, s[i].err_from);
		buf_put_u64(c->b, s[i].out_end);
		buf_put_u64(c->b, s[i].err_end);
	}
}

/* --- reports ------------------------------------------------------------------- */

struct report_call {
	struct vm *vm;
	struct wire_captured captured;
	uint32_t kind;
	uint64_t ticket;
	const char *why; /* skipped */
};

static void capture_report_on_loop(void *ctx)
{
	struct report_call *r = ctx;

	if (r->why)
		report_skipped(r->vm, r->kind, r->ticket, r->why);
	else
		report_captured(r->vm, &r->captured);
	roll_done(r->vm);
}

static void capture_report_skipped(struct vm *vm, const struct wire_capture *o,
				   const char *why)
{
	struct report_call r = {
		.vm = vm, .kind = o->kind, .ticket = o->ticket, .why = why
	};

	log_info("event=capture_skipped session=%s why=\"%s\"",
		 vm->setup.session, why);
	loop_call(vm->loop, capture_report_on_loop, &r);
}

static void capture_report(struct capture *c, const struct packer_result *p,
			   const char *parent)
{
	struct report_call r = { .vm = c->vm };
	struct wire_captured *w = &r.captured;

	memcpy(w->point, c->point.id, sizeof(w->point));
	base_strcpy(w->parent, sizeof(w->parent), parent);
	base_strcpy(w->name, sizeof(w->name), c->order->name);
	w->kind = c->order->kind;
	w->epoch = c->vm->setup.epoch;
	w->ticket = c->order->ticket;
	w->time_ns = c->point.time_ns;
	memcpy(w->pack, p->at.id, sizeof(w->pack));
	w->offset = p->at.offset;
	w->depth = p->depth;
	memcpy(w->root, p->root, sizeof(w->root));
	memcpy(w->compat, c->point.compat, sizeof(w->compat));
	w->memory_pages = p->changed[PAGE_MEMORY];
	w->disk_pages = p->changed[PAGE_DISK];
	w->stored_bytes = p->bytes;
	w->freeze_us = (c->cont_ns - c->stop_ns) / 1000;
	w->capture_us = (loop_now_ns() - c->begun_ns) / 1000;
	w->unquiesced = !c->quiesced;
	loop_call(c->vm->loop, capture_report_on_loop, &r);
}

/* --- all of it ------------------------------------------------------------------- */

static int capture_steps(struct capture *c, struct packer_result *ret,
			 struct err *e)
{
	struct execs_call ex = { .vm = c->vm, .b = &c->execs };
	bool stay = c->order->flags & WIRE_CAPTURE_STAY;
	int r, rc = 0;

	r = packer_begin(c->vm->packer, &c->point, e);
	if (r == 0)
		r = capture_live(c, e);
	if (r == 0)
		r = capture_stop(c, e);
	if (r < 0)
		return r;
	r = capture_moment(c, e);
	if (!stay) {
		struct err e2;

		rc = capture_cont(c, r < 0 ? &e2 : e);
	}
	/* still of the moment: the agent is silent until it is released */
	loop_call(c->vm->loop, capture_execs_on_loop, &ex);
	if (!stay && c->was_running)
		agent_release(c->vm->agent);
	if (r < 0 || rc < 0)
		return r < 0 ? r : rc;
	r = capture_pack(c, ret, e);
	if (stay && r == 0)
		c->cont_ns = loop_now_ns();
	return r;
}

static void capture_init(struct capture *c, struct vm *vm,
			 const struct wire_capture *order)
{
	struct id id;

	*c = (struct capture){ .vm = vm,
			       .order = order,
			       .was_running = vm->phase == WIRE_PHASE_RUNNING,
			       .begun_ns = loop_now_ns() };
	id_new(&id);
	memcpy(c->point.id, id.s, sizeof(c->point.id));
	memcpy(c->point.session, vm->setup.session, sizeof(c->point.session));
	c->point.epoch = vm->setup.epoch;
	c->point.kind = (uint8_t)order->kind;
	memcpy(c->point.compat, vm->setup.compat, sizeof(c->point.compat));
}

/* Gives everything back to the next capture; the guest goes on. */
static void capture_undo(struct capture *c)
{
	struct err e;

	if (c->stopped) {
		capture_cont(c, &e);
		agent_release(c->vm->agent);
	}
	packer_abort(c->vm->packer);
	dirty_abort(c->vm->dirty);
	if (c->frozen)
		disk_abort(c->vm->disk);
}

void capture_run(struct vm *vm, struct job *j)
{
	const struct wire_capture *order = &j->capture;
	struct packer_result result = { 0 };
	struct capture c;
	char parent[ID_LEN + 1];
	struct err e;
	int r;

	if (vm->phase != WIRE_PHASE_RUNNING && vm->phase != WIRE_PHASE_PAUSED) {
		capture_report_skipped(vm, order, "the machine does not run");
		return;
	}
	r = capture_prepare(vm, &e);
	if (r < 0) {
		capture_report_skipped(vm, order, e.msg);
		return;
	}
	capture_init(&c, vm, order);
	base_strcpy(parent, sizeof(parent), vm->image->point.id);
	dirty_begin(vm->dirty);
	r = capture_steps(&c, &result, &e);
	if (r < 0) {
		capture_undo(&c);
		capture_report_skipped(vm, order, e.msg);
	} else {
		dirty_commit(vm->dirty);
		disk_commit(vm->disk);
		vm->last_point_ns = c.point.time_ns;
		if (order->flags & WIRE_CAPTURE_STAY)
			vm->phase = WIRE_PHASE_PAUSED;
		capture_report(&c, &result, parent);
	}
	buf_done(&c.execs);
	buf_done(&c.device);
	if (!(order->flags & WIRE_CAPTURE_STAY))
		capture_refill(vm);
}
