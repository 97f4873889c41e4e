/*
 * seccomp: the system calls that our own processes may still use, by role.
 * QEMU brings its own filter (-sandbox). The only user of libseccomp.
 */
#ifndef CORE_BACKEND_SECCOMP_H
#define CORE_BACKEND_SECCOMP_H

#include "core/err.h"

enum seccomp_role {
	SECCOMP_VM, /* cryo-vm: opens nothing, names nothing */
	SECCOMP_CRYOD, /* cryod: files and sockets, no new programs */
	SECCOMP_ROLES,
};

/*
 * Confines all threads of this process, for good: what is not listed answers
 * EPERM; what only an attacker would call (execve, ptrace, mount, bpf, ...)
 * ends the process. Also sets no_new_privs; SECCOMP_VM becomes non-dumpable
 * and can't map executable memory. Needs no privilege.
 *
 * SECCOMP_VM has no io_uring_setup (a new ring could open and connect around
 * the filter): make rings first, then call this, then read foreign bytes.
 */
int seccomp_apply(enum seccomp_role role, struct err *e);

#endif
