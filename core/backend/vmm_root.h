/*
 * vmm_root: root file systems that hold one program and what it needs, and
 * nothing else: the program, its shared libraries, a few data files. Built
 * once per content, named by digest, read-only ever after:
 *
 *   DIR/<64 hex digits>/bin/..., /lib/..., /rom/..., empty /dev and /proc
 *
 * The digest of QEMU's root is the VMM build digest of the compatibility
 * key; the copy keeps points loadable when the host's package is updated.
 */
#ifndef CORE_BACKEND_VMM_ROOT_H
#define CORE_BACKEND_VMM_ROOT_H

#include "core/err.h"

#define VMM_ROOT_DIGEST 32u
#define VMM_ROOT_NAME (2 * VMM_ROOT_DIGEST + 1) /* as a folder's name */
#define VMM_ROOT_FILES_MAX 256u

/* SHA-256 is handed in: the crypto library lives above this folder. */
typedef void (*vmm_root_sha256_fn)(uint8_t ret[VMM_ROOT_DIGEST], const void *p,
				   size_t len);

struct vmm_root_file {
	const char *src; /* on the host */
	const char *dst; /* in the root, absolute */
	bool program; /* executable: its libraries come along */
};

/*
 * Makes sure that the root of these files is below `dir_fd` and gives its
 * digest. What is there already is reused after a check of names, sizes and
 * owners. Runs the dynamic loader (--list) on each program. Needs write
 * access to dir_fd. A crash leaves a ".new-*" folder which the next call
 * removes.
 */
int vmm_root_build(int dir_fd, const struct vmm_root_file *files, size_t nr,
		   vmm_root_sha256_fn sha256, uint8_t ret[VMM_ROOT_DIGEST],
		   struct err *e);

/* The same for QEMU: program, libraries, modules, ROMs and our preload. */
int vmm_root_build_qemu(int dir_fd, const char *qemu, const char *preload,
			vmm_root_sha256_fn sha256, uint8_t ret[VMM_ROOT_DIGEST],
			struct err *e);

void vmm_root_name(char ret[VMM_ROOT_NAME],
		   const uint8_t digest[VMM_ROOT_DIGEST]);

/* O_PATH descriptor of a built root; -ENOENT when this build is not kept. */
int vmm_root_open(int dir_fd, const uint8_t digest[VMM_ROOT_DIGEST],
		  int *ret_fd, struct err *e);

#endif
