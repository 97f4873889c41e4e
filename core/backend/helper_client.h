/*
 * helper_client: cryod's side of the helper's socket. One request at a time
 * under a lock; every call has a deadline. After a timeout or a protocol
 * error the connection is broken for good (-ENOTCONN): the helper is gone or
 * hangs, and only new sandboxes depend on it.
 */
#ifndef CORE_BACKEND_HELPER_CLIENT_H
#define CORE_BACKEND_HELPER_CLIENT_H

#include "core/backend/helper_proto.h"

struct helper_client;

/* Takes the socket (HELPER_CRYOD_FD). Any thread may call the rest. */
struct helper_client *helper_client_new(int sock);
void helper_client_free(struct helper_client *c);

/* For poll: readable with no call open means that the helper is gone. */
int helper_client_fd(const struct helper_client *c);

int helper_client_info(struct helper_client *c, struct helper_info *ret,
		       struct err *e);

/*
 * Starts a cryo-vm in `slot`, as pid 1 of namespaces of its own. Borrows
 * `listen_fd` (its SEQPACKET listening socket, bound by the caller) and
 * `log_fd` (its stderr). memory_max limits all of the slot's processes, in
 * bytes: RAM + image under materialisation + VMM_OVERHEAD_MIB + staging.
 * The caller owns *ret_pidfd. -EBUSY: the slot has a live process.
 */
int helper_client_spawn_vm(struct helper_client *c, uint32_t slot,
			   const char *session, uint64_t memory_max,
			   int listen_fd, int log_fd, int *ret_pid,
			   int *ret_pidfd, struct err *e);

struct helper_vmm {
	int pid, pidfd, pagemap_fd, mem_fd, maps_fd; /* the caller's */
};

/*
 * Starts the slot's VMM below its cryo-vm. fds[role] is borrowed, -1 when
 * absent (see enum vmm_fd); digest NULL means the current build. Returns
 * after its exec succeeded: QEMU then still waits for the NBD handshake
 * before it greets on QMP. -ESRCH: the slot has no cryo-vm.
 */
int helper_client_spawn_vmm(struct helper_client *c, uint32_t slot,
			    const struct vmm_spec *spec, const uint8_t *digest,
			    const int fds[VMM_FD_ROLES], struct helper_vmm *ret,
			    struct err *e);

/* Both processes of the slot are dead on return; none there: 0. */
int helper_client_kill(struct helper_client *c, uint32_t slot, struct err *e);

/* Slots with a live process, also of an earlier helper. */
int helper_client_list(struct helper_client *c,
		       uint64_t ret_slots[HELPER_SLOTS / 64], struct err *e);

#endif
