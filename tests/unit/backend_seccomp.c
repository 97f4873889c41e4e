/*
 * The filters, call by call: each in a child of its own, which applies the
 * role and makes the call; what comes of it is its exit status or signal.
 */
#include "core/backend/seccomp.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define GOOD 200 /* the call worked; else its errno */

typedef long (*call_fn)(void);

static long do_write(void)
{
	return write(1, "", 0);
}

static long do_open(void)
{
	return open("/dev/null", O_RDONLY);
}

static long do_openat2(void)
{
	return syscall(SYS_openat2, AT_FDCWD, "/", NULL, 0);
}

static long do_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static long do_connect(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	return connect(0, (struct sockaddr *)&a, sizeof(a));
}

static long do_bind(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	return bind(0, (struct sockaddr *)&a, sizeof(a));
}

static long do_unlink(void)
{
	return unlink("/nothing");
}

static long do_exec(void)
{
	return execl("/bin/true", "true", (char *)NULL);
}

static long do_ptrace(void)
{
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static long do_mount(void)
{
	return syscall(SYS_mount, "a", "b", "c", 0, NULL);
}

static long do_unshare(void)
{
	return syscall(SYS_unshare, 0);
}

static long do_bpf(void)
{
	return syscall(SYS_bpf, 0, NULL, 0);
}

static long do_setuid(void)
{
	return syscall(SYS_setuid, 12345);
}

static long do_fork(void)
{
	return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static long do_clone3(void)
{
	return syscall(SYS_clone3, NULL, 0);
}

static void *nothing(void *arg)
{
	return arg;
}

static long do_thread(void)
{
	pthread_t t;

	errno = pthread_create(&t, NULL, nothing, NULL);
	return errno ? -1 : pthread_join(t, NULL);
}

static long do_memfd(void)
{
	return memfd_create("x", 0);
}

static long do_malloc(void)
{
	void *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : 0;
}

static long do_exec_memory(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : 0;
}

static long do_ring(void)
{
	char params[120] = { 0 };

	return syscall(SYS_io_uring_setup, 2, params);
}

static long do_winsize(void)
{
	return ioctl(0, TIOCSTI, "x");
}

static long do_fionread(void)
{
	int p[2], n;

	return pipe2(p, 0) < 0 ? -1 : ioctl(p[0], FIONREAD, &n);
}

static long do_dumpable(void)
{
	errno = prctl(PR_GET_DUMPABLE);
	return errno ? -1 : 0;
}

static long do_mode(void)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strcmp(line, "Seccomp:\t2\n"))
			return 0;
	errno = ENOENT;
	return -1;
}

static const struct {
	const char *name;
	call_fn fn;
	int vm, cryod; /* GOOD, an errno, or -SIGSYS */
} calls[] = {
	{ "write", do_write, GOOD, GOOD },
	{ "memfd_create", do_memfd, GOOD, GOOD },
	{ "mmap", do_malloc, GOOD, GOOD },
	{ "a thread", do_thread, GOOD, GOOD },
	{ "ioctl FIONREAD", do_fionread, GOOD, GOOD },
	{ "open", do_open, EPERM, GOOD },
	{ "openat2", do_openat2, EPERM, EINVAL },
	{ "unlink", do_unlink, EPERM, ENOENT },
	{ "socket", do_socket, EPERM, GOOD },
	{ "connect", do_connect, EPERM, ENOTSOCK },
	{ "bind", do_bind, EPERM, ENOTSOCK },
	{ "io_uring_setup", do_ring, EPERM, GOOD },
	{ "executable memory", do_exec_memory, EPERM, GOOD },
	{ "PR_GET_DUMPABLE is 0", do_dumpable, GOOD, 1 },
	{ "ioctl TIOCSTI", do_winsize, EPERM, EPERM },
	{ "clone3", do_clone3, ENOSYS, ENOSYS },
	{ "clone of a process", do_fork, EPERM, EPERM },
	{ "execve", do_exec, -SIGSYS, -SIGSYS },
	{ "ptrace", do_ptrace, -SIGSYS, -SIGSYS },
	{ "mount", do_mount, -SIGSYS, -SIGSYS },
	{ "unshare", do_unshare, -SIGSYS, -SIGSYS },
	{ "bpf", do_bpf, -SIGSYS, -SIGSYS },
	{ "setuid", do_setuid, -SIGSYS, -SIGSYS },
};

/* -1: no filter at all */
static int outcome(int role, call_fn fn)
{
	int status = 0;
	struct err e;
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDONLY);

		dup2(null, 0);
		if (role >= 0 && seccomp_apply((enum seccomp_role)role, &e) < 0)
			_exit(201);
		_exit(fn() < 0 ? errno : GOOD);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A thread that was there before is confined, too. */
static int pipe_fds[2];

static void *late(void *arg)
{
	char c;

	(void)arg;
	if (read(pipe_fds[0], &c, 1) != 1)
		return NULL;
	_exit(do_open() < 0 ? errno : GOOD);
}

static long do_other_thread(void)
{
	struct err e;
	pthread_t t;

	if (pipe2(pipe_fds, 0) < 0 || pthread_create(&t, NULL, late, NULL) ||
	    seccomp_apply(SECCOMP_VM, &e) < 0 || write(pipe_fds[1], "", 1) != 1)
		return -1;
	pthread_join(t, NULL);
	return 0;
}

int main(void)
{
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		is_int(outcome(SECCOMP_VM, calls[i].fn), calls[i].vm,
		       "cryo-vm: %s", calls[i].name);
		is_int(outcome(SECCOMP_CRYOD, calls[i].fn), calls[i].cryod,
		       "cryod: %s", calls[i].name);
	}
	is_int(outcome(-1, do_open), GOOD, "without a filter open works");
	is_int(outcome(-1, do_exec), 0, "and so does execve");
	is_int(outcome(SECCOMP_CRYOD, do_mode), GOOD, "the kernel agrees");
	is_int(outcome(-1, do_other_thread), EPERM,
	       "threads that were there before are confined");
	return tap_done();
}
