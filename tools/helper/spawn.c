/*
 * spawn: starts one process behind its walls.
 *
 * The parent clones with all namespaces at once. The child, still root,
 * joins its cgroup, mounts its root (a read-only clone of a vmm_root folder,
 * for QEMU with a /proc of its own pid namespace and a /dev of four nodes),
 * pivots into it, and then gives up everything: groups, ids, capabilities
 * (also the bounding set), descriptors. The last thing it does as our code
 * is execve. A close-on-exec pipe tells the parent: bytes say what failed,
 * the bare end says that the program runs.
 *
 * A process for a nested pid namespace is made by two middlemen, who enter
 * the outer namespace and clone with CLONE_PARENT, so that the new process is
 * the helper's own child.
 *
 *  1. The pipe's end comes after the new address space is in place (execve
 *     closes descriptors after it): /proc/PID/mem opened now is the
 *     program's.
 *  2. The program has exactly the descriptors of the plan.
 *  3. Whatever fails in the child ends the child: no half-built walls.
 *
 * If the helper dies in here the child goes on and is found by slots_adopt()
 * or, not yet in its root, ends at the missing parent's first error.
 *
 * Sources: clone(2), pivot_root(2), capabilities(7), mount_setattr(2).
 */
#include "tools/helper/helper.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <linux/sched.h>

#define EXEC_TIMEOUT_MS 15000
#define HIGH_FD 200 /* above every number in a plan */

/* What a child says when it fails. */
struct failure {
	int error;
	char what[60];
};

void spawn_add_fd(struct spawn *s, int from, int to)
{
	PRE(s->nr_fds < SPAWN_FDS_MAX && to < HIGH_FD);
	s->fds[s->nr_fds].from = from;
	s->fds[s->nr_fds++].to = to;
}

/* --- in the child --------------------------------------------------------- */

_Noreturn static void fail(int pipe_fd, const char *what)
{
	struct failure f = { .error = errno };

	base_strcpy(f.what, sizeof(f.what), what);
	base_write_all(pipe_fd, &f, sizeof(f));
	_exit(127);
}

#define TRY(call)                             \
	do {                                  \
		if ((call) < 0)               \
			fail(pipe_fd, #call); \
	} while (0)

static void join_cgroups(const struct spawn *s, int pipe_fd)
{
	for (unsigned i = 0; i < s->nr_cgroups; i++)
		if (write(s->cgroups[i], "0", 1) != 1)
			fail(pipe_fd, "join of the slot's cgroup");
	if (s->namespaces)
		TRY(unshare(CLONE_NEWCGROUP));
}

static void make_node(const char *path, unsigned major_nr, unsigned minor_nr,
		      int pipe_fd)
{
	TRY(mknod(path, S_IFCHR | 0666, makedev(major_nr, minor_nr)));
	TRY(chmod(path, 0666));
}

/* Relative to the new root, where the child stands. */
static void make_dev(const struct spawn *s, int pipe_fd)
{
	TRY(mount("tmpfs", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC,
		  "size=64k,nr_inodes=16,mode=755"));
	make_node("dev/null", 1, 3, pipe_fd);
	make_node("dev/zero", 1, 5, pipe_fd);
	make_node("dev/urandom", 1, 9, pipe_fd);
	if (s->with_kvm)
		make_node("dev/kvm", 10, 232, pipe_fd);
	TRY(mount(NULL, "dev", NULL,
		  MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL));
	TRY(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "subset=pid,hidepid=invisible"));
}

static void change_root(const struct spawn *s, int tree, int pipe_fd)
{
	TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	/* anywhere will do: everything below the old root goes next */
	TRY(move_mount(tree, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH));
	TRY(fchdir(tree));
	if (s->with_proc)
		make_dev(s, pipe_fd);
	TRY((int)syscall(SYS_pivot_root, ".", "."));
	TRY(umount2(".", MNT_DETACH));
	TRY(chdir("/"));
}

/* Never above the hard limit: to raise it some hosts' root lacks the right. */
static void set_limits(const struct spawn *s, int pipe_fd)
{
	for (size_t i = 0; i < s->nr_limits; i++) {
		__rlimit_resource_t what =
			(__rlimit_resource_t)s->limits[i].resource;
		struct rlimit r;

		TRY(getrlimit(what, &r));
		r.rlim_max = MIN(r.rlim_max, s->limits[i].value);
		r.rlim_cur = r.rlim_max;
		TRY(setrlimit(what, &r));
	}
}

static void drop_privilege(const struct spawn *s, int pipe_fd)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3
	};
	struct __user_cap_data_struct caps[2];

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		TRY(prctl(PR_CAPBSET_DROP, cap));
	TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
	TRY(setgroups(0, NULL));
	TRY(setresgid(s->uid, s->uid, s->uid));
	TRY(setresuid(s->uid, s->uid, s->uid));
	memset(caps, 0, sizeof(caps)); /* inheritable ones outlive setuid */
	TRY((int)syscall(SYS_capset, &head, caps));
	TRY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

/*
 * First out of each other's way, then to their places. The program's
 * descriptor and the pipe stay above, close-on-exec.
 */
static void place_fds(const struct spawn *s, int *exec_fd, int *pipe_fd_p)
{
	int high[SPAWN_FDS_MAX], pipe_fd = *pipe_fd_p;

	TRY(pipe_fd = fcntl(pipe_fd, F_DUPFD_CLOEXEC, HIGH_FD));
	if (*exec_fd >= 0)
		TRY(*exec_fd = fcntl(*exec_fd, F_DUPFD_CLOEXEC, HIGH_FD));
	for (unsigned i = 0; i < s->nr_fds; i++)
		TRY(high[i] = fcntl(s->fds[i].from, F_DUPFD_CLOEXEC, HIGH_FD));
	TRY(close_range(0, HIGH_FD - 1, 0));
	for (unsigned i = 0; i < s->nr_fds; i++)
		TRY(dup2(high[i], s->fds[i].to));
	*pipe_fd_p = pipe_fd;
}

static void reset_signals(int pipe_fd)
{
	sigset_t none;

	for (int i = 1; i < SIGRTMIN; i++)
		signal(i, SIG_DFL); /* fails for two, and for nothing else */
	signal(SIGXFSZ, SIG_IGN); /* a full log is an error, not the end */
	sigemptyset(&none);
	TRY(sigprocmask(SIG_SETMASK, &none, NULL));
}

_Noreturn static void child(const struct spawn *s, int tree, int pipe_fd)
{
	int exec_fd = s->exec_fd;

	join_cgroups(s, pipe_fd);
	if (tree >= 0)
		change_root(s, tree, pipe_fd);
	if (s->cwd_fd >= 0)
		TRY(fchdir(s->cwd_fd));
	TRY(setsid()); /* the terminal's signals are not for us */
	umask(077);
	place_fds(s, &exec_fd, &pipe_fd);
	reset_signals(pipe_fd);
	set_limits(s, pipe_fd);
	drop_privilege(s, pipe_fd);
	if (exec_fd >= 0)
		execveat(exec_fd, "", s->argv, s->env, AT_EMPTY_PATH);
	else
		execve(s->path, s->argv, s->env);
	fail(pipe_fd, "execve");
}

/* --- in the parent -------------------------------------------------------- */

/* Like fork(), with flags. */
static pid_t clone_child(uint64_t flags, int exit_signal)
{
	struct clone_args a = { .flags = flags,
				.exit_signal = (unsigned)exit_signal };

	return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

#define NAMESPACES \
	(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

/*
 * The way into a nested namespace. A process can make a pid namespace only
 * below the one that it lives in itself, and setns() moves only children: so
 * the first middleman enters, the second lives there and clones. Both share
 * the helper's descriptors, so that the pidfd which the clone returns is the
 * helper's; both use CLONE_PARENT, so that all are the helper's children.
 */
enum middleman { FIRST, SECOND, MIDDLEMEN };

struct report {
	enum middleman from;
	int number; /* FIRST: pid of the second; SECOND: the pidfd */
};

static void tell(int report, enum middleman from, int number)
{
	struct report m = { from, number };

	base_write_all(report, &m, sizeof(m));
}

_Noreturn static void second_middleman(const struct spawn *s, int tree,
				       int report, int pipe_fd)
{
	int pidfd = -1;
	struct clone_args a = { .flags = NAMESPACES | CLONE_PARENT | CLONE_PIDFD,
				.pidfd = (uintptr_t)&pidfd };
	long pid = syscall(SYS_clone3, &a, sizeof(a));

	if (pid == 0)
		child(s, tree, pipe_fd);
	if (pid < 0)
		fail(pipe_fd, "clone inside cryo-vm's pid namespace");
	tell(report, SECOND, pidfd);
	_exit(0);
}

_Noreturn static void first_middleman(const struct spawn *s, int tree,
				      int report, int pipe_fd)
{
	pid_t second;

	if (setns(s->inside_pidfd, CLONE_NEWPID) < 0)
		fail(pipe_fd, "entering cryo-vm's pid namespace");
	second = clone_child(CLONE_FILES | CLONE_PARENT, 0);
	if (second == 0)
		second_middleman(s, tree, report, pipe_fd);
	if (second < 0)
		fail(pipe_fd, "clone into cryo-vm's pid namespace");
	tell(report, FIRST, second);
	_exit(0);
}

/*
 * Waits for a middleman and takes what has been reported by then, in
 * whatever order: the second may have been faster than the first.
 */
static void await(pid_t pid, int report, int numbers[MIDDLEMEN])
{
	struct report m;

	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	while (read(report, &m, sizeof(m)) == (ssize_t)sizeof(m))
		numbers[m.from] = m.number;
}

/* The pid, in our namespace, of a process that may have ended by now. */
static pid_t pid_of(int pidfd)
{
	char path[64], line[128];
	pid_t pid = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	if (f)
		fclose(f);
	return pid;
}

/* ret->pid stays 0 if a middleman failed; the reason is in pipe_fd. */
static int start_nested(const struct spawn *s, int tree, int pipe_fd,
			struct proc *ret, struct err *e)
{
	int p[2], first, n[MIDDLEMEN] = { -1, -1 };

	if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_sys(e, errno, "pipe for %s", s->name);
	first = clone_child(CLONE_FILES, SIGCHLD);
	if (first == 0)
		first_middleman(s, tree, p[1], pipe_fd);
	if (first < 0)
		err_sys(e, errno, "clone for %s", s->name);
	else
		await(first, p[0], n);
	if (n[FIRST] > 0)
		await(n[FIRST], p[0], n);
	close(p[0]);
	close(p[1]);
	if (first < 0)
		return -EAGAIN;
	if (n[SECOND] >= 0)
		*ret = (struct proc){ .pid = pid_of(n[SECOND]),
				      .pidfd = n[SECOND] };
	return 0;
}

static int start_plain(const struct spawn *s, int tree, int pipe_fd,
		       struct proc *ret, struct err *e)
{
	struct proc n = { .pid = clone_child(s->namespaces ? NAMESPACES : 0,
					     SIGCHLD) };

	if (n.pid == 0)
		child(s, tree, pipe_fd);
	if (n.pid < 0)
		return err_sys(e, errno, "clone for %s", s->name);
	n.pidfd = (int)syscall(SYS_pidfd_open, n.pid, 0);
	*ret = n;
	return n.pidfd < 0 ? err_sys(e, errno, "pidfd of %s", s->name) : 0;
}

/* Waits for the pipe's end; anything else is a failure. */
static int wait_exec(const struct spawn *s, int pipe_fd, struct err *e)
{
	struct pollfd p = { .fd = pipe_fd, .events = POLLIN };
	struct failure f;
	ssize_t n;
	int r;

	do
		r = poll(&p, 1, EXEC_TIMEOUT_MS);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
			       "%s did not start within %d s", s->name,
			       EXEC_TIMEOUT_MS / 1000);
	n = read(pipe_fd, &f, sizeof(f));
	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(f) || f.error <= 0)
		return err_set(e, -EIO, ERR_INTERNAL,
			       "%s died before it started", s->name);
	f.what[sizeof(f.what) - 1] = 0;
	return err_sys(e, f.error, "start of %s: %s", s->name, f.what);
}

/* Ends what was started, by its pidfd if its pid is not known. */
static void put_down(struct proc *p)
{
	siginfo_t info;

	if (p->pidfd < 0 && p->pid > 0) {
		kill(p->pid, SIGKILL);
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (p->pidfd < 0)
		return;
	syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	while (waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED) < 0 &&
	       errno == EINTR)
		;
	close(p->pidfd);
}

/*
 * The root as a mount of its own that is nowhere yet. Made here, since a
 * descriptor's mount is of this namespace and not of the child's.
 */
static int clone_root(const struct spawn *s, int *ret, struct err *e)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY |
					     MOUNT_ATTR_NOSUID |
					     MOUNT_ATTR_NODEV };
	SCOPED_FD int tree = -1;

	if (s->root_fd < 0)
		return 0;
	tree = open_tree(s->root_fd, "",
			 AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (tree < 0 ||
	    mount_setattr(tree, "", AT_EMPTY_PATH, &ro, sizeof(ro)) < 0)
		return err_sys(e, errno, "root of %s", s->name);
	*ret = base_steal_fd(&tree);
	return 0;
}

int spawn_start(const struct spawn *s, struct proc *ret, struct err *e)
{
	SCOPED_FD int reader = -1, tree = -1;
	struct proc n = { .pidfd = -1 };
	int p[2], r = clone_root(s, &tree, e);

	if (r < 0)
		return r;
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "pipe for %s", s->name);
	reader = p[0];
	if (s->inside_pidfd >= 0)
		r = start_nested(s, tree, p[1], &n, e);
	else
		r = start_plain(s, tree, p[1], &n, e);
	close(p[1]);
	if (r == 0)
		r = wait_exec(s, reader, e);
	if (r == 0 && n.pid <= 0)
		r = err_set(e, -EIO, ERR_INTERNAL, "%s has no pid", s->name);
	if (r < 0)
		put_down(&n);
	else
		*ret = n;
	return r;
}
