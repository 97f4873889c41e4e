/*
 * cryo-vm: the keeper of one sandbox. Started by the helper as pid 1 of its
 * own pid namespace, with a listening socket and nothing else: whatever it
 * works on is handed to it by cryod. It outlives cryod; when it ends, the
 * kernel ends its VMM with it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/backend/helper_proto.h"
#include "core/backend/seccomp.h"
#include "core/log.h"
#include "snapshotter/ring.h"
#include "tools/vm/vm.h"

static int main_supply_pack(void *ctx, const uint8_t id[PACK_ID_LEN], int *ret_fd,
			    uint8_t ret_key[CRYPT_KEY_LEN], struct err *e)
{
	struct vm *vm = ctx;
	struct wire_pack_id q;
	struct wire_pack p;
	int r;

	memcpy(q.id, id, sizeof(q.id));
	r = link_ask(vm->link, WIRE_PACK_OPEN, &q, sizeof(q), &p, sizeof(p),
		     ret_fd, 1, -1, e);
	if (r < 0)
		return r;
	memcpy(ret_key, p.key, CRYPT_KEY_LEN);
	base_wipe(&p, sizeof(p));
	return 0;
}

/* --- requests of the daemon ---------------------------------------------------- */

static void main_hello(struct vm *vm, struct wire_msg *m)
{
	struct wire_exec_state states[WIRE_EXECS_MAX];
	struct wire_status s = { .epoch = vm->setup.epoch,
				 .phase = vm->phase,
				 .unreported = report_count(vm) };

	memcpy(s.session, vm->setup.session, sizeof(s.session));
	if (vm->execs)
		s.nr_execs = execs_states(vm->execs, states, WIRE_EXECS_MAX);
	link_greet(vm->link, link_from(vm->link, m), &s, sizeof(s), states,
		   s.nr_execs * sizeof(states[0]));
}

static const char *main_setup_complaint(const struct vm *vm, struct wire_setup *s)
{
	if (vm->phase != WIRE_PHASE_NEW)
		return "SETUP comes once";
	if (!WIRE_TEXT(s->session) || !id_valid(s->session))
		return "session id";
	if (s->memory_mib < 1 || s->memory_mib > PAGE_MEMORY_MAX >> 8)
		return "memory size";
	if (s->disk_blocks < 1 || s->disk_blocks > DISK_BLOCKS_MAX)
		return "disk size";
	return NULL;
}

static void main_setup(struct vm *vm, struct wire_msg *m)
{
	struct link_from to = link_from(vm->link, m);
	struct wire_setup s;
	const char *bad;
	struct err e;

	wire_body(m, &s, sizeof(s));
	bad = main_setup_complaint(vm, &s);
	if (bad) {
		err_set(&e, -EINVAL, ERR_INTERNAL, "SETUP refused: %s", bad);
		link_reply_err(vm->link, to, -EINVAL, &e);
		return;
	}
	vm->setup = s;
	vm->every_ns = s.snapshot_every_ns;
	vm->last_point_ns = s.last_point_ns;
	vm->template_fd = wire_take_fd(m, 0);
	vm->overlay_fd = wire_take_fd(m, 1);
	vm->execs = execs_new(vm->loop, vm->link, s.epoch);
	vm->phase = WIRE_PHASE_SETUP;
	link_reply(vm->link, to, NULL, 0, NULL, 0, NULL, 0);
}

static void main_capture(struct vm *vm, struct wire_msg *m)
{
	struct link_from to = link_from(vm->link, m);
	struct wire_capture c;
	struct err e;

	wire_body(m, &c, sizeof(c));
	if (!WIRE_TEXT(c.name) || c.kind >= POINT_KIND_NR) {
		err_set(&e, -EINVAL, ERR_INTERNAL, "malformed CAPTURE");
		link_reply_err(vm->link, to, -EINVAL, &e);
		return;
	}
	/* a new daemon asks again for what the last one had asked for */
	if (!c.ticket || c.ticket != vm->ticket) {
		vm->ticket = c.ticket;
		vm->capturing = true;
		worker_capture(vm, &c);
	}
	link_reply(vm->link, to, NULL, 0, NULL, 0, NULL, 0);
}

static void main_exec(struct vm *vm, struct wire_msg *m)
{
	execs_start(vm->execs, m);
}

static void main_attach(struct vm *vm, struct wire_msg *m)
{
	execs_attach(vm->execs, m);
}

static void main_signal(struct vm *vm, struct wire_msg *m)
{
	execs_signal(vm->execs, m);
}

static void main_stdin(struct vm *vm, struct wire_msg *m)
{
	execs_stdin(vm->execs, m);
}

/* Jobs of the worker; the rest is done here, on the loop. */
static void (*const main_jobs[WIRE_NR])(struct vm *vm, struct job *j) = {
	[WIRE_LOAD] = load_point,     [WIRE_IMAGE] = load_image,
	[WIRE_START] = start_machine, [WIRE_PAUSE] = start_pause,
	[WIRE_CONT] = start_cont,
};

static void (*const main_calls[WIRE_NR])(struct vm *vm, struct wire_msg *m) = {
	[WIRE_CAPTURE] = main_capture, [WIRE_EXEC] = main_exec,
	[WIRE_ATTACH] = main_attach,   [WIRE_SIGNAL] = main_signal,
	[WIRE_STDIN] = main_stdin,     [WIRE_FILE] = files_request,
};

static void main_request(void *ctx, struct wire_msg *m)
{
	struct vm *vm = ctx;

	if (m->type == WIRE_HELLO) {
		main_hello(vm, m);
	} else if (m->type == WIRE_SETUP) {
		main_setup(vm, m);
	} else if (m->type == WIRE_QUIT) {
		link_reply(vm->link, link_from(vm->link, m), NULL, 0, NULL, 0,
			   NULL, 0);
		loop_stop(vm->loop);
	} else if (vm->phase == WIRE_PHASE_NEW) {
		struct err e;

		err_set(&e, -EINVAL, ERR_INTERNAL, "%s before SETUP",
			wire_type_name(m->type));
		link_reply_err(vm->link, link_from(vm->link, m), -EINVAL, &e);
	} else if (main_jobs[m->type]) {
		worker_submit(vm, m, main_jobs[m->type]);
	} else {
		/* wire_recv() lets only requests of the daemon through */
		PRE(main_calls[m->type]);
		main_calls[m->type](vm, m);
		agent_poke(vm->agent);
	}
}

static void main_up(void *ctx)
{
	struct vm *vm = ctx;

	if (vm->execs)
		execs_report(vm->execs);
	report_flush(vm);
	if (vm->agent)
		start_tell_stalled(vm);
	agent_poke(vm->agent);
}

static void main_down(void *ctx)
{
	struct vm *vm = ctx;

	log_info("event=link_down session=%s", vm->setup.session);
}

static const struct link_ops main_link_ops = {
	.request = main_request,
	.up = main_up,
	.down = main_down,
};

/* --- start ------------------------------------------------------------------------ */

static int main_init(struct vm *vm, struct err *e)
{
	struct stat st;
	int r;

	*vm = (struct vm){ .template_fd = -1,
			   .overlay_fd = -1,
			   .ram_fd = -1,
			   .pidfd = -1,
			   .base_lock = PTHREAD_MUTEX_INITIALIZER,
			   .job_lock = PTHREAD_MUTEX_INITIALIZER,
			   .job_ready = PTHREAD_COND_INITIALIZER };
	vm->last_job = &vm->jobs;
	vm->last_report = &vm->reports;
	/* the daemon made the socket, so its owner is the daemon's user */
	if (fstat(HELPER_VM_LISTEN_FD, &st) < 0)
		return err_sys(e, errno, "look at descriptor %d",
			       HELPER_VM_LISTEN_FD);
	fcntl(HELPER_VM_LISTEN_FD, F_SETFL, O_NONBLOCK);
	vm->io = ring_or_plain_new();
	vm->packs = packset_new(vm->io, main_supply_pack, vm);
	r = loop_new(&vm->loop, e);
	if (r == 0)
		r = link_new(&vm->link, vm->loop, HELPER_VM_LISTEN_FD,
			     st.st_uid, &main_link_ops, vm, e);
	if (r == 0)
		r = seccomp_apply(SECCOMP_VM, e);
	return r == 0 ? worker_start(vm, e) : r;
}

int main(void)
{
	struct vm *vm = base_alloc(sizeof(*vm));
	struct err e;
	int r;

	log_init("cryo-vm", LOG_LEVEL_INFO);
	signal(SIGPIPE, SIG_IGN);
	r = main_init(vm, &e);
	if (r < 0) {
		log_error("event=vm_start_failed why=\"%s\"", e.msg);
		return 1;
	}
	loop_run(vm->loop);
	/* pid 1 of its namespace: the kernel ends the VMM with us */
	return 0;
}
