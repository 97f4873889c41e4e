/*
 * seccomp: turns a role's tables into a filter and loads it for all threads.
 *
 * Three layers of tables: what every role may do (memory, time, threads,
 * descriptors it has), what a role may do besides, and what nobody has a
 * reason to do, where the process ends at once. Everything else answers
 * EPERM, so that a library's optional call fails softly. Some calls are
 * allowed by argument only: clone for threads, ioctl by request, prctl by
 * option, in cryo-vm memory that can't be executed. clone3 hides its flags
 * behind a pointer: it answers ENOSYS and glibc takes clone.
 *
 *  1. No role can start a program, trace, mount, or load kernel code.
 *  2. cryo-vm can't open, create or connect by name or address.
 *  3. A filter is loaded whole or the call fails.
 *
 * Sources: seccomp(2), seccomp_rule_add(3).
 */
#include "core/backend/seccomp.h"

#include <linux/userfaultfd.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif
/* ioctl of /proc/PID/pagemap, Linux 6.7: _IOWR('f', 16, 96 bytes) */
#define PAGEMAP_SCAN_REQUEST 0xc0606610u

#define S(name) SCMP_SYS(name)

/* tables by subject, several to a line */
/* clang-format off */
static const int everyone[] = {
	/* descriptors in hand */
	S(read), S(write), S(readv), S(writev), S(pread64), S(pwrite64),
	S(preadv), S(pwritev), S(preadv2), S(pwritev2), S(lseek), S(close),
	S(close_range), S(fstat), S(newfstatat), S(dup), S(dup2), S(dup3),
	S(fcntl), S(ftruncate), S(fallocate), S(fsync), S(fdatasync),
	S(sync_file_range), S(fadvise64), S(copy_file_range), S(sendfile),
	S(pipe2), S(eventfd2), S(memfd_create), S(socketpair), S(splice),
	/* messages on connected or listening sockets */
	S(sendmsg), S(recvmsg), S(sendmmsg), S(recvmmsg), S(sendto),
	S(recvfrom), S(accept), S(accept4), S(shutdown), S(getsockopt),
	S(setsockopt), S(getsockname), S(getpeername),
	/* waiting and time */
	S(poll), S(ppoll), S(select), S(pselect6), S(epoll_create1),
	S(epoll_ctl), S(epoll_wait), S(epoll_pwait), S(epoll_pwait2),
	S(timerfd_create), S(timerfd_settime), S(timerfd_gettime),
	S(signalfd4), S(clock_gettime), S(clock_getres), S(clock_nanosleep),
	S(nanosleep), S(gettimeofday), S(time), S(restart_syscall),
	/* memory */
	S(munmap), S(mremap), S(madvise), S(brk), S(mlock), S(mlock2),
	S(munlock), S(msync), S(mincore),
	/* threads and signals of our own */
	S(futex), S(futex_waitv), S(set_robust_list), S(get_robust_list),
	S(rseq), S(set_tid_address), S(membarrier), S(sched_yield),
	S(sched_getaffinity), S(sched_setaffinity), S(getcpu), S(exit),
	S(exit_group), S(rt_sigaction), S(rt_sigprocmask), S(rt_sigreturn),
	S(rt_sigtimedwait), S(rt_sigpending), S(rt_sigsuspend),
	S(sigaltstack), S(tgkill), S(pidfd_send_signal), S(wait4), S(waitid),
	S(fstatfs), /* how much room there is */
	/* who and what am I */
	S(getpid), S(gettid), S(getppid), S(getuid), S(geteuid), S(getgid),
	S(getegid), S(getrandom), S(uname), S(sysinfo), S(getrusage),
	S(times), S(getrlimit), S(prlimit64),
	/* the ring, made before the filter in cryo-vm */
	S(io_uring_enter), S(io_uring_register),
};

static const int cryod_only[] = {
	/* files by name: cryod is the only one who names them */
	S(open), S(openat), S(openat2), S(creat), S(stat), S(lstat),
	S(statx), S(access), S(faccessat), S(faccessat2), S(readlink),
	S(readlinkat), S(getdents64), S(mkdir), S(mkdirat), S(rmdir),
	S(unlink), S(unlinkat), S(rename), S(renameat), S(renameat2),
	S(link), S(linkat), S(symlink), S(symlinkat), S(chmod), S(fchmod),
	S(fchmodat), S(truncate), S(utimensat), S(umask), S(getcwd),
	S(chdir), S(fchdir), S(flock), S(statfs), S(syncfs),
	S(getxattr), S(fgetxattr), S(pipe), S(fchown), S(fchownat),
	S(inotify_init1), S(inotify_add_watch), S(inotify_rm_watch),
	/* sockets by address */
	S(socket), S(bind), S(listen), S(connect),
	/* the rest */
	S(io_uring_setup), S(pidfd_open), S(kill), S(clock_adjtime),
	S(sched_setscheduler), S(sched_getscheduler), S(sched_getparam),
	S(getpriority), S(setpriority), S(getpgrp), S(getpgid), S(getsid),
	S(epoll_create), S(eventfd), S(semget), S(semop), S(semctl),
	S(semtimedop), S(readahead), S(mprotect), S(mmap),
};

/* Nobody of ours has a reason to call these: an attack is under way. */
static const int hostile[] = {
	S(execve), S(execveat), S(fork), S(vfork), S(ptrace),
	S(process_vm_readv), S(process_vm_writev), S(mount), S(umount2),
	S(pivot_root), S(chroot), S(move_mount), S(open_tree), S(fsopen),
	S(fsconfig), S(fsmount), S(mount_setattr), S(setns), S(unshare),
	S(bpf), S(perf_event_open), S(kexec_load), S(kexec_file_load),
	S(init_module), S(finit_module), S(delete_module), S(userfaultfd),
	S(keyctl), S(add_key), S(request_key), S(open_by_handle_at),
	S(name_to_handle_at), S(setuid), S(setgid), S(setreuid), S(setregid),
	S(setresuid), S(setresgid), S(setfsuid), S(setfsgid), S(setgroups),
	S(capset), S(personality), S(iopl), S(ioperm), S(modify_ldt),
	S(reboot), S(swapon), S(swapoff), S(acct), S(settimeofday),
	S(clock_settime), S(adjtimex), S(sethostname), S(setdomainname),
	S(quotactl), S(syslog), S(vhangup), S(pidfd_getfd),
	S(lookup_dcookie), S(nfsservctl), S(mknod), S(mknodat), S(kcmp),
	S(process_madvise),
};
/* clang-format on */

static const unsigned vm_ioctls[] = {
	UFFDIO_API,
	UFFDIO_REGISTER,
	UFFDIO_UNREGISTER,
	UFFDIO_WAKE,
	UFFDIO_COPY,
	UFFDIO_ZEROPAGE,
	UFFDIO_CONTINUE,
	UFFDIO_WRITEPROTECT,
	PAGEMAP_SCAN_REQUEST,
	FIONREAD,
	FIONBIO,
};

static const unsigned cryod_ioctls[] = { FIONREAD, FIONBIO, TIOCGWINSZ, TCGETS };

static const unsigned prctls[] = { PR_SET_NAME,	    PR_GET_NAME,
				   PR_SET_VMA,	    PR_GET_DUMPABLE,
				   PR_SET_DUMPABLE, PR_SET_TIMERSLACK };

static const struct role {
	const char *name;
	const int *calls;
	size_t nr_calls;
	const unsigned *ioctls;
	size_t nr_ioctls;
	bool no_exec_memory;
	bool non_dumpable;
} roles[SECCOMP_ROLES] = {
	[SECCOMP_VM] = { "cryo-vm", NULL, 0, vm_ioctls, ARRAY_LEN(vm_ioctls),
			 true, true },
	[SECCOMP_CRYOD] = { "cryod", cryod_only, ARRAY_LEN(cryod_only),
			    cryod_ioctls, ARRAY_LEN(cryod_ioctls), false, false },
};

/* A call that this machine's ABI doesn't have is nothing to refuse. */
static int add(scmp_filter_ctx f, uint32_t action, int call, unsigned nr,
	       struct scmp_arg_cmp *args)
{
	int r = seccomp_rule_add_array(f, action, call, nr, args);

	return r == -EDOM || r == -EOPNOTSUPP ? 0 : r;
}

static int add_list(scmp_filter_ctx f, uint32_t action, const int *calls,
		    size_t nr)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < nr; i++)
		r = add(f, action, calls[i], 0, NULL);
	return r;
}

/* Allows `call` where the low 32 bits of argument `arg` are one of these. */
static int add_values(scmp_filter_ctx f, int call, unsigned arg,
		      const unsigned *values, size_t nr)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < nr; i++)
		r = add(f, SCMP_ACT_ALLOW, call, 1,
			&SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, 0xffffffffu,
				  values[i]));
	return r;
}

static int add_threads(scmp_filter_ctx f)
{
	int r = add(f, SCMP_ACT_ALLOW, S(clone), 1,
		    &SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));

	if (r == 0)
		r = add(f, SCMP_ACT_ERRNO(ENOSYS), S(clone3), 0, NULL);
	return r;
}

static int add_memory(scmp_filter_ctx f, bool no_exec)
{
	static const int calls[] = { S(mmap), S(mprotect) };
	int r = 0;

	if (!no_exec)
		return 0; /* in the role's list */
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(calls); i++)
		r = add(f, SCMP_ACT_ALLOW, calls[i], 1,
			&SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	return r;
}

static int fill(scmp_filter_ctx f, const struct role *role)
{
	int r = add_list(f, SCMP_ACT_ALLOW, everyone, ARRAY_LEN(everyone));

	if (r == 0)
		r = add_list(f, SCMP_ACT_ALLOW, role->calls, role->nr_calls);
	if (r == 0)
		r = add_list(f, SCMP_ACT_KILL_PROCESS, hostile,
			     ARRAY_LEN(hostile));
	if (r == 0)
		r = add_values(f, S(ioctl), 1, role->ioctls, role->nr_ioctls);
	if (r == 0)
		r = add_values(f, S(prctl), 0, prctls, ARRAY_LEN(prctls));
	if (r == 0)
		r = add_threads(f);
	return r < 0 ? r : add_memory(f, role->no_exec_memory);
}

static int load(const struct role *role)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!f)
		return -ENOMEM;
	r = seccomp_attr_set(f, SCMP_FLTATR_CTL_NNP, 1);
	if (r == 0)
		r = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r == 0)
		r = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = fill(f, role);
	if (r == 0)
		r = seccomp_load(f);
	seccomp_release(f);
	return r;
}

int seccomp_apply(enum seccomp_role role, struct err *e)
{
	const struct role *t;
	int r;

	PRE((unsigned)role < SECCOMP_ROLES);
	t = &roles[role];
	if (t->non_dumpable && prctl(PR_SET_DUMPABLE, 0) < 0)
		return err_sys(e, errno, "PR_SET_DUMPABLE of %s", t->name);
	r = load(t);
	if (r < 0)
		return err_sys(e, -r,
			       "system call filter of %s (the host's kernel "
			       "needs CONFIG_SECCOMP_FILTER)",
			       t->name);
	return 0;
}
