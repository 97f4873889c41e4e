/*
 * slots: which processes each slot has, and how they end.
 *
 * A slot has at most two: cryo-vm and, nested in its pid namespace, the VMM.
 * Processes are held by pidfd; a pidfd that polls readable has ended. Those
 * of an earlier helper are found by what nobody can forge without privilege:
 * a user id of the slot's and, as root folder, one of our vmm_root folders.
 *
 *  1. A pid is acted on only through a pidfd that was checked after it was
 *     opened.
 *  2. The VMM goes first: cryo-vm, pid 1 of the namespace around it, can't
 *     end before the VMM was reaped, and reaping it is our duty.
 */
#include "tools/helper/helper.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define KILL_TIMEOUT_MS 20000

void slots_watch(int epoll_fd, const struct proc *p)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = p->pidfd };

	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, p->pidfd, &ev);
}

/* True if it has ended (or never was); then it is forgotten. */
static bool reap(struct proc *p, int timeout_ms)
{
	struct pollfd fd = { .fd = p->pidfd, .events = POLLIN };
	siginfo_t info;

	if (!p->pid)
		return true;
	if (poll(&fd, 1, timeout_ms) <= 0)
		return false;
	/* fails for those that an earlier helper started: init has them */
	waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED);
	close(p->pidfd);
	*p = (struct proc){ .pidfd = -1 };
	return true;
}

bool slots_reap(struct slot *s)
{
	bool vmm = reap(&s->vmm, 0);

	return reap(&s->vm, 0) && vmm;
}

static int end(struct proc *p, const char *what, struct err *e)
{
	if (!p->pid)
		return 0;
	if (syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0) < 0 &&
	    errno != ESRCH)
		return err_sys(e, errno, "kill of %s", what);
	if (!reap(p, KILL_TIMEOUT_MS))
		return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
			       "%s (pid %d) does not end after SIGKILL", what,
			       (int)p->pid);
	return 0;
}

int slots_kill(struct slot *s, struct err *e)
{
	int r;

	/* at once, so that cryo-vm sees no dead VMM and reports nothing */
	if (s->vm.pid)
		syscall(SYS_pidfd_send_signal, s->vm.pidfd, SIGKILL, NULL, 0);
	r = end(&s->vmm, "the VMM", e);
	return r < 0 ? r : end(&s->vm, "cryo-vm", e);
}

/* --- what an earlier helper left ------------------------------------------ */

static bool read_uid(const char *pid, uint32_t *ret)
{
	char path[300], line[256];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/status", pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, "Uid: %u", ret) == 1;
	if (f)
		fclose(f);
	return found;
}

/* Is the process's root one of the folders below `vmm_dir`? */
static bool has_our_root(const char *pid, int vmm_dir)
{
	int fd = openat(vmm_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
	struct stat root, st;
	bool found = false;
	char path[300];
	struct dirent *d;

	snprintf(path, sizeof(path), "/proc/%s/root", pid);
	if (stat(path, &root) < 0)
		list = list ? (closedir(list), NULL) : NULL;
	while (list && !found && (d = readdir(list)))
		found = d->d_name[0] != '.' &&
			fstatat(vmm_dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) ==
				0 &&
			st.st_ino == root.st_ino && st.st_dev == root.st_dev;
	if (list)
		closedir(list);
	return found;
}

static void adopt(struct slot *slots, uint32_t uid_base, int vmm_dir,
		  const char *name)
{
	uint32_t uid = 0, again = 0, nr;
	struct proc *p;
	int pidfd;

	if (!read_uid(name, &uid) || uid <= uid_base ||
	    uid >= uid_base + HELPER_UIDS)
		return;
	pidfd = (int)syscall(SYS_pidfd_open, (pid_t)strtol(name, NULL, 10), 0);
	if (pidfd < 0)
		return;
	nr = uid - uid_base - 1;
	p = nr % 2 ? &slots[nr / 2].vmm : &slots[nr / 2].vm;
	if (!read_uid(name, &again) || again != uid || p->pid ||
	    !has_our_root(name, vmm_dir)) {
		close(pidfd);
		return;
	}
	p->pid = (pid_t)strtol(name, NULL, 10);
	p->pidfd = pidfd;
}

int slots_adopt(struct slot *slots, uint32_t uid_base, int vmm_dir, struct err *e)
{
	DIR *list = opendir("/proc");
	struct dirent *d;

	if (!list)
		return err_sys(e, errno, "open of /proc");
	while ((d = readdir(list)))
		if (d->d_name[0] >= '1' && d->d_name[0] <= '9')
			adopt(slots, uid_base, vmm_dir, d->d_name);
	closedir(list);
	return 0;
}
