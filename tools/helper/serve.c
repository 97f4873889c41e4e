/*
 * serve: answers cryod's requests, one at a time, each fully.
 *
 * A request is checked as bytes (helper_proto), then against the world: is
 * the slot free, are the descriptors what their roles say. Then one plan for
 * spawn_start() is filled from constants and the checked numbers.
 *
 *  1. cryod chooses slots, sizes and descriptors. Programs, paths, users,
 *     namespaces and limits of processes are chosen here.
 *  2. A failed request leaves the slot as it was.
 *  3. RAM that is not sealed against writing is refused: several VMMs share
 *     one image.
 *
 * A crash in here: what was started is found by the next helper.
 */
#include "tools/helper/helper.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "core/log.h"

#define MIB (1024ull * 1024)

static const struct spawn_limit vm_limits[] = {
	{ RLIMIT_CORE, 0 },	{ RLIMIT_NOFILE, 8192 },
	{ RLIMIT_NPROC, 128 },	{ RLIMIT_MEMLOCK, 512 * MIB },
	{ RLIMIT_MSGQUEUE, 0 },
};

/* QEMU writes no file but its log, which this bounds, too. */
static const struct spawn_limit vmm_limits[] = {
	{ RLIMIT_CORE, 0 },    { RLIMIT_NOFILE, 192 },
	{ RLIMIT_NPROC, 256 }, { RLIMIT_FSIZE, 1 * MIB },
	{ RLIMIT_MEMLOCK, 0 }, { RLIMIT_MSGQUEUE, 0 },
};

static struct spawn plan(const char *name, uint32_t uid)
{
	return (struct spawn){
		.name = name,
		.uid = uid,
		.exec_fd = -1,
		.root_fd = -1,
		.namespaces = true,
		.inside_pidfd = -1,
		.cwd_fd = -1,
	};
}

static int join_cgroup(struct helper *h, struct spawn *s, uint32_t slot,
		       struct err *e)
{
	s->nr_cgroups = h->cgroup.nr;
	return cgroup_open(&h->cgroup, slot, s->cgroups, e);
}

static void leave_cgroup(struct spawn *s)
{
	for (unsigned i = 0; i < s->nr_cgroups; i++)
		base_close_p(&s->cgroups[i]);
}

/*
 * A second pidfd to give away: epoll watches the first one's open file, and
 * would go on doing so after our close, while somebody else has a copy.
 */
static int fresh_pidfd(const struct proc *p, int *ret, struct err *e)
{
	*ret = (int)syscall(SYS_pidfd_open, p->pid, 0);
	return *ret < 0 ? err_sys(e, errno, "pidfd of %d", (int)p->pid) : 0;
}

/* --- cryo-vm -------------------------------------------------------------- */

/*
 * A memfd, opened once write-only (for QEMU) and once for cryo-vm, which
 * could not open it a second time itself: it has no /proc.
 */
static int make_state_file(int *ret_wr, int *ret_rd, struct err *e)
{
	SCOPED_FD int fd = memfd_create("device-state", MFD_CLOEXEC);
	char path[64];
	int wr;

	if (fd < 0 || fchmod(fd, 0600) < 0)
		return err_sys(e, errno, "memfd for device state");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	wr = open(path, O_WRONLY | O_CLOEXEC);
	if (wr < 0)
		return err_sys(e, errno, "open of %s", path);
	*ret_wr = wr;
	*ret_rd = base_steal_fd(&fd);
	return 0;
}

static int start_vm(struct helper *h, const struct helper_req *req,
		    const int *fds, struct slot *slot, struct err *e)
{
	struct spawn s = plan("cryo-vm", HELPER_UID_VM(h->uid_base, req->slot));
	char number[16], level[48];
	char *argv[] = { (char[]){ "cryo-vm" },
			 (char[]){ "--slot" },
			 number,
			 (char[]){ "--session" },
			 NULL,
			 NULL };
	char *env[] = { NULL, NULL };
	char session[ID_LEN + 1];
	const char *log = getenv("CRYO_LOG");
	SCOPED_FD int root = -1, wr = -1, rd = -1;
	int r = vmm_root_open(h->vmm_fd, h->vm_digest, &root, e);

	if (r == 0)
		r = make_state_file(&wr, &rd, e);
	if (r == 0)
		r = join_cgroup(h, &s, req->slot, e);
	if (r < 0)
		return r;
	snprintf(number, sizeof(number), "%u", req->slot);
	base_strcpy(session, sizeof(session), req->vm.session);
	argv[4] = session;
	if (log) {
		snprintf(level, sizeof(level), "CRYO_LOG=%.32s", log);
		env[0] = level;
	}
	s.root_fd = root;
	s.path = "/bin/cryo-vm";
	s.argv = argv;
	s.env = env;
	s.limits = vm_limits;
	s.nr_limits = ARRAY_LEN(vm_limits);
	spawn_add_fd(&s, h->null_fd, 0);
	spawn_add_fd(&s, h->null_fd, 1);
	spawn_add_fd(&s, fds[HELPER_VM_LOG], 2);
	spawn_add_fd(&s, fds[HELPER_VM_LISTEN], HELPER_VM_LISTEN_FD);
	spawn_add_fd(&s, wr, HELPER_VM_STATE_WR_FD);
	spawn_add_fd(&s, rd, HELPER_VM_STATE_RD_FD);
	r = spawn_start(&s, &slot->vm, e);
	leave_cgroup(&s);
	return r;
}

static int spawn_vm(struct helper *h, const struct helper_req *req,
		    const int *fds, struct helper_rep *rep, int *ret_fd,
		    struct err *e)
{
	struct slot *slot = &h->slots[req->slot];
	struct stat st;
	int r;

	if (!slots_reap(slot))
		return err_set(e, -EBUSY, ERR_CONFLICT,
			       "slot %u has a live process", req->slot);
	if (fstat(fds[HELPER_VM_LISTEN], &st) < 0 || !S_ISSOCK(st.st_mode))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "slot %u: what cryo-vm should listen on is no "
			       "socket",
			       req->slot);
	r = cgroup_make(&h->cgroup, req->slot, req->vm.memory_max, e);
	if (r == 0)
		r = start_vm(h, req, fds, slot, e);
	if (r < 0) {
		cgroup_remove(&h->cgroup, req->slot);
		return r;
	}
	slots_watch(h->epoll_fd, &slot->vm);
	rep->pid = slot->vm.pid;
	return fresh_pidfd(&slot->vm, ret_fd, e);
}

/* --- the VMM -------------------------------------------------------------- */

/* Puts the attached descriptors in their roles' places; -1 elsewhere. */
static void sort_fds(uint32_t mask, const int *fds, int ret[VMM_FD_ROLES])
{
	unsigned next = 0;

	for (unsigned i = 0; i < VMM_FD_ROLES; i++)
		ret[i] = mask & VMM_FD_BIT(i) ? fds[next++] : -1;
}

static int check_ram(int fd, const struct vmm_spec *spec, struct err *e)
{
	const int want = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & want) != want)
		return err_set(e, -EPERM, ERR_INVALID,
			       "the RAM image is not a memfd sealed against "
			       "write, shrink, grow and seal");
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != spec->memory_mib * MIB)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "the RAM image is not of %u MiB",
			       spec->memory_mib);
	return 0;
}

static int check_fds(const int by_role[VMM_FD_ROLES],
		     const struct vmm_spec *spec, struct err *e)
{
	static const mode_t types[VMM_FD_ROLES] = {
		[VMM_FD_QMP] = S_IFSOCK,   [VMM_FD_AGENT] = S_IFSOCK,
		[VMM_FD_NBD] = S_IFSOCK,   [VMM_FD_UFFD_SOCK] = S_IFSOCK,
		[VMM_FD_KERNEL] = S_IFREG, [VMM_FD_INITRD] = S_IFREG,
	};
	struct stat st;

	for (unsigned i = 0; i < VMM_FD_ROLES; i++)
		if (by_role[i] >= 0 && types[i] &&
		    (fstat(by_role[i], &st) < 0 ||
		     (st.st_mode & S_IFMT) != types[i]))
			return err_set(e, -EINVAL, ERR_INVALID,
				       "VMM descriptor of role %u is not of "
				       "its type",
				       i);
	return check_ram(by_role[VMM_FD_RAM], spec, e);
}

static int check_vmm(struct helper *h, const struct helper_req *req,
		     const int by_role[VMM_FD_ROLES], struct err *e)
{
	struct slot *slot = &h->slots[req->slot];

	slots_reap(slot);
	if (!slot->vm.pid)
		return err_set(e, -ESRCH, ERR_CONFLICT,
			       "slot %u has no cryo-vm", req->slot);
	if (slot->vmm.pid)
		return err_set(e, -EBUSY, ERR_CONFLICT,
			       "slot %u has a VMM already", req->slot);
	if (req->vmm.spec.accel == VMM_ACCEL_KVM && !h->has_kvm)
		return err_set(e, -ENODEV, ERR_INVALID,
			       "no usable /dev/kvm on this host");
	if (by_role[VMM_FD_UFFD_SOCK] >= 0 && h->uffd_dev < 0)
		return err_set(e, -EOPNOTSUPP, ERR_INVALID,
			       "no /dev/userfaultfd on this host");
	return check_fds(by_role, &req->vmm.spec, e);
}

static void plan_vmm_fds(const struct helper *h, struct spawn *s,
			 const int by_role[VMM_FD_ROLES])
{
	int log = by_role[VMM_FD_LOG] >= 0 ? by_role[VMM_FD_LOG] : h->null_fd;

	spawn_add_fd(s, h->null_fd, 0);
	spawn_add_fd(s, log, 1);
	spawn_add_fd(s, log, 2);
	for (unsigned i = 0; i < VMM_FD_LOG; i++)
		if (by_role[i] >= 0)
			spawn_add_fd(s, by_role[i], VMM_FD_NUMBER(i));
	if (by_role[VMM_FD_UFFD_SOCK] >= 0)
		spawn_add_fd(s, h->uffd_dev, VMM_FD_UFFD_DEV);
}

static int start_vmm(struct helper *h, const struct helper_req *req,
		     const int by_role[VMM_FD_ROLES], struct err *e)
{
	static const uint8_t current[HELPER_DIGEST];
	struct spawn s = plan("QEMU", HELPER_UID_VMM(h->uid_base, req->slot));
	struct slot *slot = &h->slots[req->slot];
	const uint8_t *digest = req->vmm.digest;
	SCOPED_FREE struct vmm_argv *a = base_alloc(sizeof(*a));
	SCOPED_FD int root = -1;
	int r;

	if (!memcmp(digest, current, sizeof(current)))
		digest = h->vmm_digest;
	r = vmm_root_open(h->vmm_fd, digest, &root, e);
	if (r == 0)
		r = join_cgroup(h, &s, req->slot, e);
	if (r < 0)
		return r;
	vmm_argv_build(a, &req->vmm.spec, req->fds);
	s.root_fd = root;
	s.with_proc = true;
	s.with_kvm = req->vmm.spec.accel == VMM_ACCEL_KVM;
	s.inside_pidfd = slot->vm.pidfd;
	s.path = VMM_PATH_QEMU;
	s.argv = a->argv;
	s.env = a->env;
	s.limits = vmm_limits;
	s.nr_limits = ARRAY_LEN(vmm_limits);
	plan_vmm_fds(h, &s, by_role);
	r = spawn_start(&s, &slot->vmm, e);
	leave_cgroup(&s);
	return r;
}

static int open_proc(const struct proc *p, enum helper_vmm_reply what,
		     const char *file, int ret_fds[HELPER_VMM_FDS], struct err *e)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)p->pid, file);
	ret_fds[what] = open(path, O_RDONLY | O_CLOEXEC);
	if (ret_fds[what] < 0)
		return err_sys(e, errno, "open of %s (it needs CAP_SYS_PTRACE)",
			       path);
	return 0;
}

/* What cryo-vm watches the VMM through; all or nothing. */
static int open_watch(const struct proc *p, int ret_fds[HELPER_VMM_FDS],
		      struct err *e)
{
	int r;

	for (int i = 0; i < HELPER_VMM_FDS; i++)
		ret_fds[i] = -1;
	r = fresh_pidfd(p, &ret_fds[HELPER_VMM_PIDFD], e);
	if (r == 0)
		r = open_proc(p, HELPER_VMM_PAGEMAP, "pagemap", ret_fds, e);
	if (r == 0)
		r = open_proc(p, HELPER_VMM_MEM, "mem", ret_fds, e);
	if (r == 0)
		r = open_proc(p, HELPER_VMM_MAPS, "maps", ret_fds, e);
	for (int i = 0; r < 0 && i < HELPER_VMM_FDS; i++)
		base_close_p(&ret_fds[i]);
	return r;
}

static int spawn_vmm(struct helper *h, const struct helper_req *req,
		     const int *fds, struct helper_rep *rep, int *ret_fds,
		     struct err *e)
{
	struct slot *slot = &h->slots[req->slot];
	int by_role[VMM_FD_ROLES], r;
	struct err ignored;

	sort_fds(req->fds, fds, by_role);
	r = check_vmm(h, req, by_role, e);
	if (r == 0)
		r = start_vmm(h, req, by_role, e);
	if (r < 0)
		return r;
	slots_watch(h->epoll_fd, &slot->vmm);
	rep->pid = slot->vmm.pid;
	r = open_watch(&slot->vmm, ret_fds, e);
	if (r < 0) /* nobody could look after it */
		slots_kill(slot, &ignored);
	return r;
}

/* --- the rest ------------------------------------------------------------- */

static int kill_slot(struct helper *h, const struct helper_req *req,
		     struct err *e)
{
	int r = slots_kill(&h->slots[req->slot], e);

	if (r == 0)
		cgroup_remove(&h->cgroup, req->slot);
	return r;
}

static void list_slots(struct helper *h, struct helper_rep *rep)
{
	for (unsigned i = 0; i < HELPER_SLOTS; i++)
		if (!slots_reap(&h->slots[i]))
			rep->slots[i / 64] |= 1ull << (i % 64);
}

static void tell_info(const struct helper *h, struct helper_rep *rep)
{
	memcpy(rep->info.vmm_digest, h->vmm_digest, HELPER_DIGEST);
	rep->info.uid_base = h->uid_base;
	rep->info.has_uffd = h->uffd_dev >= 0;
	rep->info.has_kvm = h->has_kvm;
	rep->info.has_cgroup = h->cgroup.nr > 0;
}

/* The request was checked. Fills the reply's part that its kind has. */
static int answer(struct helper *h, const struct helper_req *req, const int *fds,
		  struct helper_rep *rep, int *ret_fds, struct err *e)
{
	int r = 0;

	switch ((enum helper_op)req->op) {
	case HELPER_INFO:
		tell_info(h, rep);
		break;
	case HELPER_SPAWN_VM:
		r = spawn_vm(h, req, fds, rep, ret_fds, e);
		rep->nr_fds = r == 0;
		break;
	case HELPER_SPAWN_VMM:
		r = spawn_vmm(h, req, fds, rep, ret_fds, e);
		rep->nr_fds = r == 0 ? HELPER_VMM_FDS : 0;
		break;
	case HELPER_KILL:
		r = kill_slot(h, req, e);
		break;
	case HELPER_LIST:
		list_slots(h, rep);
		break;
	case HELPER_OP_END:
		NEVER("helper_req_check() let it through");
	}
	return r;
}

static void close_fds(const int *fds, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		close(fds[i]);
}

int serve_one(struct helper *h, int sock)
{
	int fds[HELPER_FDS_MAX], out[HELPER_FDS_MAX], r;
	unsigned nr = 0;
	struct helper_req req;
	struct helper_rep rep;
	struct err e = { 0 };
	ssize_t n =
		helper_recv(sock, &req, sizeof(req), fds, HELPER_FDS_MAX, &nr);

	if (n <= 0)
		return n == -EAGAIN ? 0 : -EPIPE;
	memset(&rep, 0, sizeof(rep));
	r = helper_req_check(&req, (size_t)n, nr, &e);
	if (r == -EPROTO) {
		close_fds(fds, nr);
		log_error("event=bad_request why=\"%s\"", e.msg);
		return -EPIPE;
	}
	rep.magic = HELPER_MAGIC;
	rep.version = HELPER_VERSION;
	rep.op = req.op;
	rep.size = sizeof(rep);
	rep.id = req.id;
	if (r == 0)
		r = answer(h, &req, fds, &rep, out, &e);
	close_fds(fds, nr);
	if (r < 0) {
		rep.error = r;
		rep.code = (uint32_t)e.code;
		base_strcpy(rep.msg, sizeof(rep.msg), e.msg);
		log_warn("event=refused op=%u slot=%u why=\"%s\"", req.op,
			 req.slot, e.msg);
	}
	r = helper_send(sock, &rep, sizeof(rep), out, rep.nr_fds);
	close_fds(out, rep.nr_fds);
	return r < 0 ? -EPIPE : 0;
}
