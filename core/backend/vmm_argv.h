/*
 * vmm_argv: the one place that knows QEMU's command line. Pure: a spec in,
 * an argument vector out. The device list and its order are part of the
 * saved device state's format: a stream saved under one line loads only
 * under the same line (boot and incoming differ in -kernel alone).
 */
#ifndef CORE_BACKEND_VMM_ARGV_H
#define CORE_BACKEND_VMM_ARGV_H

#include "core/base.h"
#include "core/err.h"

#define VMM_MEMORY_MIB_MIN 32u
#define VMM_MEMORY_MIB_MAX 4096u /* page indexes are u32, images 4 GiB */
#define VMM_VCPUS_MAX 16u
#define VMM_CMDLINE_MAX 512u

/*
 * Number of this command line in the compatibility key: grows with every
 * change that shows in device state or to the guest.
 */
#define VMM_ARGV_VERSION 2

/* Where things lie in the VMM's root file system (see vmm_root.h). */
#define VMM_PATH_QEMU "/bin/qemu"
#define VMM_PATH_ROMS "/rom"
#define VMM_PATH_MODULES "/lib/qemu"
#define VMM_PATH_PRELOAD "/lib/cryo-uffd.so"

/* What a VMM uses beside guest RAM: code cache, heap, libraries. */
#define VMM_OVERHEAD_MIB 320u

enum vmm_accel { VMM_ACCEL_TCG, VMM_ACCEL_KVM };

enum vmm_mode {
	VMM_BOOT, /* kernel and initrd; starts stopped, needs `cont` */
	VMM_INCOMING, /* waits for device state by QMP; starts stopped */
	VMM_FIRMWARE, /* a raw 64 KiB firmware as VMM_FD_KERNEL; stopped */
};

/*
 * Descriptors of a VMM, at fixed numbers VMM_FD_NUMBER(role) in its process.
 * 0 is /dev/null; 1 and 2 are the log (or /dev/null).
 */
enum vmm_fd {
	VMM_FD_RAM, /* memfd sealed against write, shrink, grow, seal */
	VMM_FD_QMP, /* connected stream socket */
	VMM_FD_AGENT, /* connected stream socket; optional */
	VMM_FD_NBD, /* connected stream socket; optional (no disk) */
	VMM_FD_KERNEL, /* ELF kernel or firmware; readable by everyone */
	VMM_FD_INITRD, /* initrd; readable by everyone */
	VMM_FD_UFFD_SOCK, /* takes the userfaultfd; optional (no tracking) */
	VMM_FD_LOG, /* standard error; optional */
	VMM_FD_ROLES,
};

#define VMM_FD_BIT(role) (1u << (role))
#define VMM_FD_NUMBER(role) (3 + (int)(role))
#define VMM_FD_UFFD_DEV (3 + (int)VMM_FD_ROLES) /* added by the helper */

/* Fixed size and without pointers: it travels in a request to the helper. */
struct vmm_spec {
	uint32_t memory_mib;
	uint32_t vcpus;
	uint32_t tsc_khz; /* host's TSC; 0: leave it out of the kernel args */
	uint8_t accel; /* enum vmm_accel */
	uint8_t mode; /* enum vmm_mode */
	uint8_t pad[2]; /* zero */
	char cmdline[VMM_CMDLINE_MAX]; /* kernel arguments; boot only, else "" */
};

#define VMM_ARGV_MAX 64
#define VMM_ENV_MAX 6
#define VMM_ARGV_TEXT 6144

struct vmm_argv {
	char *argv[VMM_ARGV_MAX]; /* NULL-terminated, into text */
	char *env[VMM_ENV_MAX]; /* NULL-terminated, into text */
	size_t argc, envc, used;
	char text[VMM_ARGV_TEXT];
};

/*
 * Checks ranges, printable kernel arguments, and that `fds` (VMM_FD_BITs)
 * has what the mode needs and nothing else. -EINVAL names the field.
 */
int vmm_spec_check(const struct vmm_spec *s, uint32_t fds, struct err *e);

/*
 * Fills `ret`; the spec must have passed vmm_spec_check(). The pointers are
 * into `ret` itself: it must not be copied. Any thread.
 */
void vmm_argv_build(struct vmm_argv *ret, const struct vmm_spec *s, uint32_t fds);

const char *vmm_accel_name(enum vmm_accel a); /* "tcg", "kvm" */

#endif
