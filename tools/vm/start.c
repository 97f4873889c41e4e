/*
 * start: brings the machine to life: disk, QMP, dirty tracking, device state,
 * renewal orders, `cont`, and waits until the guest has answered. Also pause,
 * continue and the healing of a machine that its disk has stopped.
 *
 * Order matters: the disk answers first (QEMU connects to it while it
 * starts), tracking is armed before device state is loaded, and the orders
 * wait in the agent's channel before the first instruction runs. A guest
 * that does not acknowledge its fresh randomness is not let go on: the start
 * fails, and the daemon ends the sandbox.
 */
#include "tools/vm/vm.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/backend/helper_proto.h"
#include "core/log.h"
#include "snapshotter/pages.h"

#define QMP_UP_MS 60000 /* QEMU's own start on a busy host */
#define QMP_CALL_MS 10000
#define QMP_STOP_MS 30000 /* waits for the guest's disk requests */
#define UP_RESTORE_MS 30000
#define UP_FORENSIC_MS 5000 /* a silent agent is what one may be after */
#define HEAL_EVERY_NS (2 * 1000000000ll)

/* The preload in QEMU passes the userfaultfd; -ENOENT: it has none. */
static int start_take_uffd(int sock, int *ret_fd, struct err *e)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *c;

	if (poll(&p, 1, QMP_UP_MS) != 1)
		return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
			       "VMM did not pass its userfaultfd in %d ms",
			       QMP_UP_MS);
	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) <= 0)
		return -ENOENT;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(sizeof(int)))
		return -ENOENT;
	memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return 0;
}

static void start_stalled_on_loop(void *ctx);

static void start_on_stalled(void *ctx, const struct err *e)
{
	struct vm *vm = ctx;

	log_warn("event=disk_stalled session=%s why=\"%s\"", vm->setup.session,
		 e->msg);
	loop_post(vm->loop, start_stalled_on_loop, vm);
}

static const struct disk_ops start_disk_ops = {
	.read_base = load_read_base,
	.maps_base = load_maps_base,
	.stalled = start_on_stalled,
};

static int start_disk(struct vm *vm, int nbd_fd, struct err *e)
{
	struct disk_config c = { .nr_blocks = vm->setup.disk_blocks,
				 .template_fd = base_steal_fd(&vm->template_fd),
				 .overlay_fd = base_steal_fd(&vm->overlay_fd),
				 .ops = &start_disk_ops,
				 .ctx = vm };
	int r = disk_new(&vm->disk, &c, e);

	if (r < 0) {
		close(nbd_fd);
		return r;
	}
	return disk_nbd_new(&vm->nbd, vm->disk, nbd_fd, NULL, NULL, e);
}

/* For DIRTY_COMPARE: is this page other than in the image? */
static int start_differs(void *ctx, uint32_t page, const void *bytes)
{
	const struct vm *vm = ctx;
	const struct image_page *p = &vm->image->map[PAGE_MEMORY].page[page];
	uint8_t hash[CRYPT_HASH_LEN];

	if (p->loc == LOC_BASE)
		return !pages_is_zero(bytes);
	crypt_sha256(hash, bytes, CRYO_PAGE);
	return memcmp(hash, p->hash, sizeof(p->hash)) != 0;
}

static int start_tracking(struct vm *vm, struct job *j, struct err *e)
{
	struct dirty_conf c = { .method = DIRTY_UFFD,
				.uffd = -1,
				.differs = start_differs,
				.ctx = vm };
	int r = start_take_uffd(j->fds[WIRE_START_UFFD], &c.uffd, e);

	if (r < 0 && r != -ENOENT)
		return r;
	r = qmp_handshake(vm->qmp, QMP_UP_MS, e);
	if (r == 0)
		r = qmp_set_state_file(vm->qmp, HELPER_VM_STATE_WR_FD,
				       HELPER_VM_STATE_RD_FD, QMP_CALL_MS, e);
	if (r == 0)
		r = guestmem_open(&vm->mem, job_take_fd(j, WIRE_START_MEM),
				  j->fds[WIRE_START_MAPS],
				  j->fds[WIRE_START_RAM], e);
	if (r < 0)
		return r;
	c.pagemap_fd = j->fds[WIRE_START_PAGEMAP];
	c.mem = vm->mem;
	r = c.uffd < 0 ? -EOPNOTSUPP : dirty_open(&vm->dirty, &c, e);
	if (r == 0)
		job_take_fd(j, WIRE_START_PAGEMAP);
	if (r == -EOPNOTSUPP) {
		c.method = DIRTY_COMPARE;
		c.uffd = c.pagemap_fd = -1;
		r = dirty_open(&vm->dirty, &c, e);
	}
	return r == 0 ? dirty_arm(vm->dirty, e) : r;
}

/* --- the machine ends --------------------------------------------------------- */

static void start_vmm_ended(void *ctx, uint32_t events UNUSED)
{
	struct vm *vm = ctx;

	loop_unwatch(vm->loop, &vm->pidfd_watch);
	roll_stop(vm);
	loop_disarm(vm->loop, &vm->heal_timer);
	vm->phase = WIRE_PHASE_DEAD;
	report_died(vm, "the virtual machine monitor ended");
}

static void start_watch_pidfd(void *ctx)
{
	struct vm *vm = ctx;

	loop_watch(vm->loop, &vm->pidfd_watch, vm->pidfd, EPOLLIN,
		   start_vmm_ended, vm);
}

static void start_running_on_loop(void *ctx)
{
	roll_start(ctx);
}

/* --- start --------------------------------------------------------------------- */

static int start_devices(struct vm *vm, struct job *j, const struct wire_start *q,
			 struct wire_started *ret, struct err *e)
{
	int64_t since = loop_now_ns();
	int r = 0;

	if (!(q->flags & WIRE_START_BOOT))
		r = qmp_vm_load_devices(vm->qmp, vm->device.p, vm->device.len,
					QMP_CALL_MS, e);
	ret->load_us = (loop_now_ns() - since) / 1000;
	if (r < 0)
		return r;
	vm->agent =
		agent_new(vm->loop, job_take_fd(j, WIRE_START_AGENT), vm->execs);
	r = agent_prepare(vm->agent, q, vm->setup.session,
			  q->flags & WIRE_START_CLEAN, e);
	return r == 0 ? qmp_vm_cont(vm->qmp, QMP_CALL_MS, e) : r;
}

static void start_answer(struct vm *vm, struct job *j,
			 struct wire_started *started)
{
	struct wire_exec_state states[WIRE_EXECS_MAX];

	started->nr_execs = execs_states(vm->execs, states, WIRE_EXECS_MAX);
	link_reply(vm->link, j->from, started, sizeof(*started), states,
		   started->nr_execs * sizeof(states[0]), NULL, 0);
}

/* The image of a plain boot: nothing but the template below it. */
static void start_empty_image(struct vm *vm)
{
	uint32_t pages = vm->setup.memory_mib << 8;

	vm->image = image_new(pages, vm->setup.disk_blocks);
	vm->base_reader = packset_reader_new(vm->packs);
}

/*
 * Until the guest has renewed itself. Who looks into a point by force gets it
 * without that: marked, and with whatever randomness it had.
 */
static int start_wait_agent(struct vm *vm, const struct wire_start *q,
			    struct wire_started *ret, struct err *e)
{
	bool forensic = q->flags & WIRE_START_FORENSIC;
	int ms = q->flags & WIRE_START_BOOT ? AGENT_UP_MS
		 : forensic		    ? UP_FORENSIC_MS
					    : UP_RESTORE_MS;
	int r = agent_wait_up(vm->agent, ms, ret, e);

	if (r == 0 || !forensic)
		return r;
	log_warn("event=forensic_start session=%s why=\"%s\"",
		 vm->setup.session, e->msg);
	*ret = (struct wire_started){ .load_us = ret->load_us, .silent = 1 };
	return 0;
}

static int start_all(struct vm *vm, struct job *j, const struct wire_start *q,
		     struct wire_started *ret, struct err *e)
{
	bool boot = q->flags & WIRE_START_BOOT;
	enum wire_phase was = WIRE_PHASE_STARTING;
	int r;

	if (vm->phase != (boot ? WIRE_PHASE_SETUP : WIRE_PHASE_LOADED))
		return err_set(e, -EINVAL, ERR_INTERNAL,
			       "START in the wrong phase");
	vm->phase = WIRE_PHASE_STARTING;
	vm->pidfd = job_take_fd(j, WIRE_START_PIDFD);
	loop_call(vm->loop, start_watch_pidfd, vm);
	if (boot)
		start_empty_image(vm);
	vm->qmp = qmp_new(job_take_fd(j, WIRE_START_QMP), NULL, NULL);
	r = start_disk(vm, job_take_fd(j, WIRE_START_NBD), e);
	if (r == 0)
		r = start_tracking(vm, j, e);
	/* QEMU has put the kernel into RAM before tracking was armed */
	if (r == 0 && boot)
		dirty_forget(vm->dirty);
	if (r == 0)
		r = start_devices(vm, j, q, ret, e);
	if (r == 0)
		r = start_wait_agent(vm, q, ret, e);
	if (r < 0)
		return r;
	/* the loop may have seen the VMM's end meanwhile: that stays */
	if (!atomic_compare_exchange_strong(&vm->phase, &was, WIRE_PHASE_RUNNING))
		return err_set(e, -EPIPE, ERR_INTERNAL,
			       "the virtual machine monitor ended");
	buf_done(&vm->device);
	return 0;
}

void start_machine(struct vm *vm, struct job *j)
{
	struct wire_started started = { 0 };
	struct wire_start q;
	struct err e;
	int r;

	memcpy(&q, j->body, sizeof(q));
	WIRE_TEXT(q.hostname);
	WIRE_TEXT(q.machine_id);
	r = start_all(vm, j, &q, &started, &e);
	if (r < 0) {
		link_reply_err(vm->link, j->from, r, &e);
		return;
	}
	log_info("event=started session=%s epoch=%u tracking=%s load_us=%lld renew_us=%lld",
		 vm->setup.session, vm->setup.epoch, dirty_method_name(vm->dirty),
		 (long long)started.load_us, (long long)started.renew_us);
	start_answer(vm, j, &started);
	loop_post(vm->loop, start_running_on_loop, vm);
	load_open_packs(vm);
	if (vm->setup.flags & WIRE_KEEP_ROLLING)
		capture_refill(vm);
}

/* --- pause, continue, heal ------------------------------------------------------- */

static void start_done(struct vm *vm, struct job *j, int r, const struct err *e)
{
	if (r < 0)
		link_reply_err(vm->link, j->from, r, e);
	else
		link_reply(vm->link, j->from, NULL, 0, NULL, 0, NULL, 0);
}

void start_pause(struct vm *vm, struct job *j)
{
	struct err e;
	int r = 0;

	if (vm->phase == WIRE_PHASE_RUNNING || vm->phase == WIRE_PHASE_STALLED)
		r = qmp_vm_stop(vm->qmp, QMP_STOP_MS, &e);
	else if (vm->phase != WIRE_PHASE_PAUSED)
		r = err_set(&e, -EINVAL, ERR_CONFLICT, "not running");
	if (r == 0)
		vm->phase = WIRE_PHASE_PAUSED;
	start_done(vm, j, r, &e);
}

void start_cont(struct vm *vm, struct job *j)
{
	struct err e;
	int r = 0;

	if (vm->phase == WIRE_PHASE_PAUSED) {
		r = qmp_vm_cont(vm->qmp, QMP_CALL_MS, &e);
		if (r == 0)
			vm->phase = WIRE_PHASE_RUNNING;
		agent_release(vm->agent);
	} else if (vm->phase != WIRE_PHASE_RUNNING) {
		r = err_set(&e, -EINVAL, ERR_CONFLICT, "not paused");
	}
	start_done(vm, j, r, &e);
}

static void start_heal_later(void *ctx)
{
	worker_submit(ctx, NULL, start_heal);
}

void start_tell_stalled(struct vm *vm)
{
	struct wire_stalled n = { .stalled = vm->stalled };

	base_strcpy(n.why, sizeof(n.why),
		    vm->stalled ? "the host could not write the guest's disk"
				: "");
	link_note(vm->link, WIRE_STALLED, &n, sizeof(n));
}

static void start_note_stalled(struct vm *vm, bool stalled)
{
	if (vm->stalled == stalled)
		return;
	vm->stalled = stalled;
	start_tell_stalled(vm);
}

static void start_stalled_on_loop(void *ctx)
{
	struct vm *vm = ctx;

	if (vm->phase == WIRE_PHASE_RUNNING) {
		vm->phase = WIRE_PHASE_STALLED;
		start_note_stalled(vm, true);
	}
	if (vm->phase == WIRE_PHASE_STALLED && !vm->heal_timer.at_ns)
		loop_arm(vm->loop, &vm->heal_timer, HEAL_EVERY_NS,
			 start_heal_later, vm);
}

/* Still running a while after it was let go: it has healed. */
static void start_healed(void *ctx)
{
	struct vm *vm = ctx;

	if (vm->phase == WIRE_PHASE_STALLED)
		worker_submit(vm, NULL, start_heal);
	else
		start_note_stalled(vm, false);
}

static void start_healed_on_loop(void *ctx)
{
	struct vm *vm = ctx;

	loop_arm(vm->loop, &vm->heal_timer, HEAL_EVERY_NS, start_healed, vm);
}

/*
 * Lets a machine that stopped for want of disk space try again; QEMU repeats
 * the request. If it stalls again at once, that is no news for the daemon:
 * while the disk is full there is one event, not one each try.
 */
void start_heal(struct vm *vm, struct job *j UNUSED)
{
	char status[32] = "";
	struct err e;

	if (vm->phase != WIRE_PHASE_STALLED)
		return;
	if (qmp_vm_status(vm->qmp, status, sizeof(status), QMP_CALL_MS, &e) < 0)
		return;
	vm->phase = WIRE_PHASE_RUNNING;
	if (strcmp(status, "running") != 0 &&
	    qmp_vm_cont(vm->qmp, QMP_CALL_MS, &e) < 0) {
		loop_post(vm->loop, start_stalled_on_loop, vm);
		return;
	}
	agent_release(vm->agent);
	loop_post(vm->loop, start_healed_on_loop, vm);
}
