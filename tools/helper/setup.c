/*
 * setup: everything that must stand before cryod starts: the data folder
 * with its owner, the lock, the roots of VMM and cryo-vm, the cgroups.
 *
 * The data folder belongs to cryod's user, but for one folder in it, vmm/,
 * which is root's: programs that run as other users lie there, and the lock
 * is a flock on it. The user of an existing data folder is its owner; a new
 * one gets a range of user ids of its own, so that two data folders on one
 * host share none.
 *
 *  1. Nothing that cryod's user can write is executed or trusted here.
 *  2. The lock is shared with cryod: while either lives the folder is taken.
 *
 * A crash leaves at most a half-built root, which the next start removes.
 */
#include "tools/helper/helper.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "core/log.h"
#include "store/crypt.h"

#define UID_STRIDE 4096u
#define UID_RANGES 65536u

static_assert(HELPER_UIDS <= UID_STRIDE, "ranges of two data folders");

static bool is_empty(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *d;
	bool empty = true;

	while (list && (d = readdir(list)))
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			empty = false;
	if (list)
		closedir(list);
	return list && empty;
}

static uint32_t new_uid_base(void)
{
	uint16_t range;

	base_random(&range, sizeof(range));
	return HELPER_UID_BASE + range % UID_RANGES * UID_STRIDE;
}

/* Decides whose the folder is; a new one gets its owner. */
static int own_folder(struct helper *h, struct err *e)
{
	const struct helper_conf *c = h->conf;
	struct stat st;

	if (fstat(h->data_fd, &st) < 0)
		return err_sys(e, errno, "stat of %s", c->data);
	if (st.st_uid == 0) {
		if (!is_empty(h->data_fd))
			return err_set(e, -ENOTEMPTY, ERR_INVALID,
				       "%s is not empty and not a data folder "
				       "of cryo: name another with --data",
				       c->data);
		h->uid_base = c->uid_base ? c->uid_base : new_uid_base();
		if (fchown(h->data_fd, h->uid_base, h->uid_base) < 0 ||
		    fchmod(h->data_fd, 0700) < 0)
			return err_sys(e, errno, "chown of %s", c->data);
		return 0;
	}
	h->uid_base = st.st_uid;
	if (c->uid_base && c->uid_base != st.st_uid)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "%s belongs to user %u, not to --uid-base %u",
			       c->data, st.st_uid, c->uid_base);
	if (h->uid_base < 65536 || h->uid_base > UINT32_MAX - UID_STRIDE)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "%s belongs to user %u: not a data folder of "
			       "cryo; name another with --data",
			       c->data, st.st_uid);
	return 0;
}

static int open_data(struct helper *h, struct err *e)
{
	const char *data = h->conf->data;

	if (mkdir(data, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "mkdir of %s", data);
	h->data_fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (h->data_fd < 0)
		return err_sys(e, errno, "open of data folder %s", data);
	return own_folder(h, e);
}

/* DATA/vmm must be root's alone: cryod's user could have put it there. */
static int open_vmm(struct helper *h, struct err *e)
{
	struct stat st;

	if (mkdirat(h->data_fd, "vmm", 0755) < 0 && errno != EEXIST)
		return err_sys(e, errno, "mkdir of %s/vmm", h->conf->data);
	h->vmm_fd = openat(h->data_fd, "vmm",
			   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (h->vmm_fd < 0 || fstat(h->vmm_fd, &st) < 0)
		return err_sys(e, errno, "open of %s/vmm", h->conf->data);
	if (st.st_uid != 0 || (st.st_mode & 0022))
		return err_set(e, -EPERM, ERR_CORRUPT,
			       "%s/vmm does not belong to root alone: somebody "
			       "replaced it; remove it and start again",
			       h->conf->data);
	if (flock(h->vmm_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno == EWOULDBLOCK)
		return err_set(e, -EBUSY, ERR_CONFLICT,
			       "data folder %s is in use by another cryo: stop "
			       "that one, or name another folder with --data",
			       h->conf->data);
	return err_sys(e, errno, "flock of %s/vmm", h->conf->data);
}

static void sha256(uint8_t ret[VMM_ROOT_DIGEST], const void *p, size_t len)
{
	crypt_sha256(ret, p, len);
}

static int build_roots(struct helper *h, struct err *e)
{
	const struct helper_conf *c = h->conf;
	const struct vmm_root_file vm = { c->vm, "/bin/cryo-vm", true };
	int r = vmm_root_build_qemu(h->vmm_fd, c->qemu, c->preload, sha256,
				    h->vmm_digest, e);

	if (r < 0)
		return err_wrap(e, r, "root of the VMM");
	r = vmm_root_build(h->vmm_fd, &vm, 1, sha256, h->vm_digest, e);
	return r < 0 ? err_wrap(e, r, "root of cryo-vm") : 0;
}

static int init_cgroups(struct helper *h, struct err *e)
{
	struct stat st;
	char tag[64];
	int r;

	if (fstat(h->data_fd, &st) < 0)
		return err_sys(e, errno, "stat of %s", h->conf->data);
	snprintf(tag, sizeof(tag), "%llx-%llx", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	r = cgroup_init(&h->cgroup, tag, e);
	if (r == 0)
		return 0;
	h->cgroup.nr = 0;
	if (!h->conf->no_cgroup)
		return err_wrap(e, r,
				"no usable cgroup, so one guest could take "
				"all memory (--no-cgroup runs without limits)");
	log_warn("event=no_cgroup why=\"%s\"", e->msg);
	return 0;
}

static bool probe_kvm(void)
{
	SCOPED_FD int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	return fd >= 0 && ioctl(fd, KVM_GET_API_VERSION, 0) == KVM_API_VERSION;
}

static int open_devices(struct helper *h, struct err *e)
{
	h->uffd_dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	h->has_kvm = probe_kvm();
	h->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	h->cryod_fd = open(h->conf->cryod, O_RDONLY | O_CLOEXEC);
	if (h->null_fd < 0)
		return err_sys(e, errno, "open of /dev/null");
	if (h->cryod_fd < 0)
		return err_sys(e, errno, "open of %s", h->conf->cryod);
	return 0;
}

static int init_loop(struct helper *h, struct err *e)
{
	struct epoll_event ev = { .events = EPOLLIN };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	h->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ev.data.fd = h->signal_fd;
	if (h->signal_fd < 0 || h->epoll_fd < 0 ||
	    epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->signal_fd, &ev) < 0)
		return err_sys(e, errno, "epoll of cryo-helper");
	return 0;
}

static int adopt(struct helper *h, struct err *e)
{
	int r = slots_adopt(h->slots, h->uid_base, h->vmm_fd, e);

	for (unsigned i = 0; r == 0 && i < HELPER_SLOTS; i++) {
		struct slot *s = &h->slots[i];

		if (s->vm.pid)
			slots_watch(h->epoll_fd, &s->vm);
		if (s->vmm.pid)
			slots_watch(h->epoll_fd, &s->vmm);
		if (s->vm.pid || s->vmm.pid)
			log_info("event=slot_found slot=%u vm=%d vmm=%d", i,
				 (int)s->vm.pid, (int)s->vmm.pid);
	}
	return r;
}

int setup_run(struct helper *h, const struct helper_conf *c, struct err *e)
{
	int r;

	*h = (struct helper){ .conf = c };
	umask(022);
	if (geteuid() != 0) {
		err_set(e, -EPERM, ERR_FORBIDDEN,
			"cryo-helper needs root: it makes users' walls");
		return HELPER_EXIT_SETUP;
	}
	r = open_data(h, e);
	if (r == 0)
		r = open_vmm(h, e);
	if (r == -EBUSY)
		return HELPER_EXIT_IN_USE;
	if (r == 0)
		r = open_devices(h, e);
	if (r == 0)
		r = build_roots(h, e);
	if (r == 0)
		r = init_cgroups(h, e);
	if (r == 0)
		r = init_loop(h, e);
	if (r == 0)
		r = adopt(h, e);
	return r < 0 ? HELPER_EXIT_SETUP : 0;
}
