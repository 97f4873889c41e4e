/*
 * helper_proto: what cryod and the root helper say to each other over their
 * SEQPACKET socketpair. One fixed-size request, one fixed-size reply, in
 * order; descriptors by SCM_RIGHTS. Both ends are of one build and one host:
 * structs travel as they are, after magic, version and size are checked.
 * The helper trusts nothing in a request.
 */
#ifndef CORE_BACKEND_HELPER_PROTO_H
#define CORE_BACKEND_HELPER_PROTO_H

#include "core/backend/vmm_argv.h"
#include "core/id.h"

#define HELPER_MAGIC 0x6f797263u /* "cryo" */
#define HELPER_VERSION 1
#define HELPER_SLOTS 1024u /* sandboxes at once */
#define HELPER_FDS_MAX 12u
#define HELPER_DIGEST 32u

/*
 * cryod starts with the data folder as its working folder and should use
 * names relative to it (its user may not be able to walk there from "/"),
 * with an environment of PATH and CRYO_LOG, in a session of its own, and
 * with these descriptors open besides 0 (/dev/null), 1 and 2.
 */
#define HELPER_CRYOD_FD 3 /* its end of the socketpair */
#define HELPER_CRYOD_LOCK_FD 4 /* lock of the data folder: keep it open */

/*
 * Descriptors that cryo-vm finds open at its start; 0 and 1 are /dev/null, 2
 * is its log. The state file is a memfd for device state, opened twice: see
 * qmp_set_state_file().
 */
#define HELPER_VM_LISTEN_FD 3 /* its listening socket */
#define HELPER_VM_STATE_WR_FD 4 /* write-only */
#define HELPER_VM_STATE_RD_FD 5 /* read-write */

/*
 * Who is who: cryod has uid_base; slot i has two uids of its own.
 * Group ids are the same numbers.
 */
#define HELPER_UID_BASE 2000000000u
#define HELPER_UID_VM(base, slot) ((base) + 1 + 2 * (slot))
#define HELPER_UID_VMM(base, slot) ((base) + 2 + 2 * (slot))
#define HELPER_UIDS (1 + 2 * HELPER_SLOTS)

/* Exit status of the helper. */
enum helper_exit {
	HELPER_EXIT_OK = 0, /* cryod ended by itself with 0 */
	HELPER_EXIT_USAGE = 64,
	HELPER_EXIT_SETUP = 69, /* could not set up; said on stderr */
	HELPER_EXIT_CRYOD = 70, /* cryod ended with a status other than 0 */
	HELPER_EXIT_KILLED = 71, /* cryod died by a signal, restarts used up */
	HELPER_EXIT_IN_USE = 75, /* another cryo has the data folder */
};

enum helper_op {
	HELPER_INFO = 1, /* no descriptors -> reply.info */
	HELPER_SPAWN_VM, /* listen, log -> reply.pid, {pidfd} */
	HELPER_SPAWN_VMM, /* by vmm.spec and fds -> reply.pid, 4 descriptors */
	HELPER_KILL, /* slot: both processes are gone on reply; idempotent */
	HELPER_LIST, /* -> reply.slots: bit set = a process is alive */
	HELPER_OP_END,
};

/* Roles of the descriptors of HELPER_SPAWN_VM; both are required. */
enum helper_vm_fd { HELPER_VM_LISTEN, HELPER_VM_LOG, HELPER_VM_FDS };

/* Descriptors in the reply to HELPER_SPAWN_VMM, in this order. */
enum helper_vmm_reply {
	HELPER_VMM_PIDFD,
	HELPER_VMM_PAGEMAP, /* /proc/PID/pagemap, read-only */
	HELPER_VMM_MEM, /* /proc/PID/mem, read-only */
	HELPER_VMM_MAPS, /* /proc/PID/maps */
	HELPER_VMM_FDS,
};

struct helper_req {
	uint32_t magic;
	uint16_t version;
	uint16_t op; /* enum helper_op */
	uint32_t size; /* sizeof(struct helper_req) */
	uint32_t fds; /* bit r: role r is attached; in ascending order */
	uint64_t id; /* echoed */
	uint32_t slot;
	uint32_t pad; /* zero */
	union {
		struct {
			char session[ID_LEN + 1];
			uint8_t pad[3];
			uint64_t memory_max; /* bytes, of the whole slot */
		} vm;
		struct {
			/* which VMM build; all zero: the current one */
			uint8_t digest[HELPER_DIGEST];
			struct vmm_spec spec;
		} vmm;
	};
};

struct helper_info {
	uint8_t vmm_digest[HELPER_DIGEST]; /* current VMM build */
	uint32_t uid_base;
	uint8_t has_uffd; /* /dev/userfaultfd opens */
	uint8_t has_kvm; /* /dev/kvm opens and answers API version 12 */
	uint8_t has_cgroup; /* memory and pids are limited */
	uint8_t pad;
};

struct helper_rep {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint32_t size; /* sizeof(struct helper_rep) */
	uint32_t nr_fds;
	uint64_t id;
	int32_t error; /* 0 or -errno; then code and msg say more */
	int32_t pid; /* of the new process, in the helper's pid namespace */
	uint32_t code; /* enum err_code */
	char msg[256]; /* terminated */
	struct helper_info info;
	uint64_t slots[HELPER_SLOTS / 64];
};

static_assert(HELPER_VM_FDS <= HELPER_FDS_MAX, "roles of cryo-vm");
static_assert(VMM_FD_ROLES <= HELPER_FDS_MAX, "roles of the VMM");

/* A zeroed request of this kind with its header filled. */
void helper_req_init(struct helper_req *r, enum helper_op op, uint64_t id,
		     uint32_t slot);

/*
 * Everything about a request of `len` bytes with `nr_fds` descriptors that
 * can be told without looking outside. -EPROTO: not of this protocol;
 * -EINVAL: a field is wrong, named in e.
 */
int helper_req_check(const struct helper_req *r, size_t len, unsigned nr_fds,
		     struct err *e);

/* Same for a reply, which must answer `req`. */
int helper_rep_check(const struct helper_rep *r, size_t len, unsigned nr_fds,
		     const struct helper_req *req, struct err *e);

/*
 * One message with descriptors. helper_recv() takes exactly one message of
 * at most `len` bytes; the descriptors are close-on-exec and the caller's.
 * Returns bytes, 0 at the end of the connection, -EAGAIN, -EPROTO for a
 * message or a descriptor list that is too long (nothing is kept then).
 */
int helper_send(int sock, const void *p, size_t len, const int *fds,
		unsigned nr_fds);
ssize_t helper_recv(int sock, void *p, size_t len, int *ret_fds,
		    unsigned max_fds, unsigned *ret_nr_fds);

#endif
