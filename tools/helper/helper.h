/*
 * helper: what the files of cryo-helper share. One process, one thread, root.
 */
#ifndef TOOLS_HELPER_HELPER_H
#define TOOLS_HELPER_HELPER_H

#include <sys/types.h>

#include "core/backend/helper_proto.h"
#include "core/backend/vmm_root.h"

struct helper_conf {
	const char *data; /* the data folder */
	const char *cryod; /* program */
	const char *vm; /* program cryo-vm */
	const char *qemu; /* program */
	const char *preload; /* cryo-uffd.so */
	uint32_t uid_base; /* 0: the data folder's owner, or a new one */
	unsigned restarts; /* of a cryod that died by a signal */
	bool no_cgroup; /* run without limits when there are none */
	char *const *argv; /* arguments of cryod, NULL-terminated */
};

/* --- cgroup.c: limits of a slot, in layout v1 or v2 ----------------------- */

#define CGROUP_TREES 2 /* v1: memory and pids; v2: one for both */

struct cgroup {
	bool v2;
	unsigned nr; /* trees in use; 0: no limits */
	int trees[CGROUP_TREES]; /* folders "cryo/TAG", one per tree */
	char tag[64];
};

/* Finds the layout and makes our folders. -ENOTSUP: none can be used. */
int cgroup_init(struct cgroup *c, const char *tag, struct err *e);

/* Makes the slot's group with its limits, or sets them anew. */
int cgroup_make(const struct cgroup *c, uint32_t slot, uint64_t memory_max,
		struct err *e);

/* Opens the slot's cgroup.procs files: write "0" to join. */
int cgroup_open(const struct cgroup *c, uint32_t slot,
		int ret_fds[CGROUP_TREES], struct err *e);

/* Removes the slot's group once it is empty. */
void cgroup_remove(const struct cgroup *c, uint32_t slot);

/* Removes the data folder's groups, if no slot is left in them. */
void cgroup_done(struct cgroup *c);

/* --- spawn.c: one confined process ---------------------------------------- */

#define SPAWN_FDS_MAX 16

struct spawn_limit {
	int resource;
	uint64_t value;
};

struct spawn {
	const char *name; /* for errors */
	uint32_t uid; /* and gid */
	int exec_fd; /* the program, or -1: path, inside the root */
	const char *path;
	char *const *argv, *const *env;
	int root_fd; /* becomes the root, read-only; -1: the host's */
	bool with_proc; /* with /proc and a minimal /dev in that root */
	bool with_kvm; /* with a /dev/kvm of its own */
	bool namespaces; /* pid, mount, net, ipc, uts of its own */
	int inside_pidfd; /* pid namespace below this process's; or -1 */
	int cwd_fd; /* working folder; -1: "/" */
	unsigned nr_fds;
	struct {
		int from, to; /* everything else is closed */
	} fds[SPAWN_FDS_MAX];
	unsigned nr_cgroups;
	int cgroups[CGROUP_TREES]; /* cgroup.procs */
	const struct spawn_limit *limits;
	size_t nr_limits;
};

struct proc {
	pid_t pid; /* 0: none */
	int pidfd;
};

/* Returns once the program is executing: its address space is its own. */
int spawn_start(const struct spawn *s, struct proc *ret, struct err *e);

void spawn_add_fd(struct spawn *s, int from, int to);

/* --- slots.c: who is alive ------------------------------------------------ */

struct slot {
	struct proc vm, vmm;
};

/* Finds processes of slots that an earlier helper started. */
int slots_adopt(struct slot *slots, uint32_t uid_base, int vmm_dir,
		struct err *e);

/* Forgets what has ended; true if nothing of the slot is alive. */
bool slots_reap(struct slot *s);

/* Both are dead on return. */
int slots_kill(struct slot *s, struct err *e);

void slots_watch(int epoll_fd, const struct proc *p);

/* --- setup.c: before cryod starts ----------------------------------------- */

struct helper {
	const struct helper_conf *conf;
	uint32_t uid_base;
	int data_fd; /* the data folder */
	int vmm_fd; /* DATA/vmm, root's; its flock is the folder's lock */
	int null_fd; /* /dev/null */
	int cryod_fd; /* the program */
	int uffd_dev; /* /dev/userfaultfd, or -1 */
	int epoll_fd, signal_fd;
	uint8_t vmm_digest[VMM_ROOT_DIGEST];
	uint8_t vm_digest[VMM_ROOT_DIGEST];
	bool has_kvm;
	struct cgroup cgroup;
	struct slot slots[HELPER_SLOTS];
};

/* Returns 0, or an enum helper_exit with e filled. */
int setup_run(struct helper *h, const struct helper_conf *c, struct err *e);

/* --- serve.c: requests of cryod ------------------------------------------- */

/* Takes one request and answers it; -EPIPE: cryod closed its end. */
int serve_one(struct helper *h, int sock);

/* --- keeper.c: cryod's life ----------------------------------------------- */

/* Starts cryod, serves it, starts it again; returns an enum helper_exit. */
int keeper_run(struct helper *h);

#endif
