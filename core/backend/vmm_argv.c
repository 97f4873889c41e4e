/*
 * vmm_argv: builds QEMU's command line out of a checked spec.
 *
 * The line is data: a few tables of words, appended in a fixed order into
 * one fixed text buffer. What varies is a handful of numbers. Everything
 * that QEMU opens is a descriptor of its own (/proc/self/fd/N) or lies in
 * its private root; no word of the line comes from a guest or a client but
 * the kernel arguments, which are one element and checked to be printable.
 *
 *  1. Boot and incoming lines name the same devices in the same order.
 *  2. Every VMM starts stopped (-S): cryo-vm arms the tracker first.
 *  3. RAM is always a private mapping of the sealed memfd.
 *
 * Pure: a crash leaves nothing behind.
 */
#include "core/backend/vmm_argv.h"

#include <stdarg.h>
#include <stdio.h>

#define TB_MIB 128 /* JIT cache; unbounded it would eat the memory limit */

static const char *const accel_names[] = {
	[VMM_ACCEL_TCG] = "tcg",
	[VMM_ACCEL_KVM] = "kvm",
};

/* What each mode must have and may have. */
static const struct {
	uint32_t must, may;
} mode_fds[] = {
	[VMM_BOOT] = { VMM_FD_BIT(VMM_FD_RAM) | VMM_FD_BIT(VMM_FD_QMP) |
			       VMM_FD_BIT(VMM_FD_KERNEL) |
			       VMM_FD_BIT(VMM_FD_INITRD),
		       VMM_FD_BIT(VMM_FD_AGENT) | VMM_FD_BIT(VMM_FD_NBD) |
			       VMM_FD_BIT(VMM_FD_UFFD_SOCK) |
			       VMM_FD_BIT(VMM_FD_LOG) },
	[VMM_INCOMING] = { VMM_FD_BIT(VMM_FD_RAM) | VMM_FD_BIT(VMM_FD_QMP),
			   VMM_FD_BIT(VMM_FD_AGENT) | VMM_FD_BIT(VMM_FD_NBD) |
				   VMM_FD_BIT(VMM_FD_UFFD_SOCK) |
				   VMM_FD_BIT(VMM_FD_LOG) },
	[VMM_FIRMWARE] = { VMM_FD_BIT(VMM_FD_RAM) | VMM_FD_BIT(VMM_FD_QMP) |
				   VMM_FD_BIT(VMM_FD_KERNEL),
			   VMM_FD_BIT(VMM_FD_AGENT) | VMM_FD_BIT(VMM_FD_NBD) |
				   VMM_FD_BIT(VMM_FD_UFFD_SOCK) |
				   VMM_FD_BIT(VMM_FD_LOG) },
};

const char *vmm_accel_name(enum vmm_accel a)
{
	PRE((size_t)a < ARRAY_LEN(accel_names));
	return accel_names[a];
}

static int check_cmdline(const struct vmm_spec *s, struct err *e)
{
	size_t len = strnlen(s->cmdline, sizeof(s->cmdline));

	if (len == sizeof(s->cmdline))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "kernel arguments are not terminated");
	for (size_t i = 0; i < len; i++)
		if (s->cmdline[i] < ' ' || s->cmdline[i] > '~')
			return err_set(e, -EINVAL, ERR_INVALID,
				       "kernel arguments: byte %zu is not "
				       "printable ASCII",
				       i);
	if (len && s->mode != VMM_BOOT)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "kernel arguments without a kernel to boot");
	return 0;
}

static int check_fds(const struct vmm_spec *s, uint32_t fds, struct err *e)
{
	uint32_t missing = mode_fds[s->mode].must & ~fds;
	uint32_t extra = fds & ~(mode_fds[s->mode].must | mode_fds[s->mode].may);

	if (missing)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "VMM descriptor of role %d is missing",
			       __builtin_ctz(missing));
	if (extra)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "VMM descriptor of role %d is not for mode %d",
			       __builtin_ctz(extra), s->mode);
	return 0;
}

int vmm_spec_check(const struct vmm_spec *s, uint32_t fds, struct err *e)
{
	int r;

	if (s->memory_mib < VMM_MEMORY_MIB_MIN ||
	    s->memory_mib > VMM_MEMORY_MIB_MAX)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "memory of %u MiB: give %u to %u", s->memory_mib,
			       VMM_MEMORY_MIB_MIN, VMM_MEMORY_MIB_MAX);
	if (s->vcpus < 1 || s->vcpus > VMM_VCPUS_MAX)
		return err_set(e, -EINVAL, ERR_INVALID, "%u vCPUs: give 1 to %u",
			       s->vcpus, VMM_VCPUS_MAX);
	if (s->accel >= ARRAY_LEN(accel_names))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "accelerator %u is unknown", s->accel);
	if (s->mode >= ARRAY_LEN(mode_fds))
		return err_set(e, -EINVAL, ERR_INVALID, "mode %u is unknown",
			       s->mode);
	if (s->pad[0] || s->pad[1])
		return err_set(e, -EINVAL, ERR_INVALID,
			       "padding of the VMM spec is not zero");
	r = check_cmdline(s, e);
	return r < 0 ? r : check_fds(s, fds, e);
}

/* --- the text buffer ------------------------------------------------------ */

PRINTF(2, 0)
static char *put_text(struct vmm_argv *a, const char *fmt, va_list ap)
{
	size_t left = sizeof(a->text) - a->used;
	char *p = a->text + a->used;
	int n = vsnprintf(p, left, fmt, ap);

	PRE(n >= 0 && (size_t)n < left);
	a->used += (size_t)n + 1;
	return p;
}

PRINTF(2, 3)
static void arg(struct vmm_argv *a, const char *fmt, ...)
{
	va_list ap;

	PRE(a->argc + 1 < VMM_ARGV_MAX);
	va_start(ap, fmt);
	a->argv[a->argc++] = put_text(a, fmt, ap);
	va_end(ap);
}

PRINTF(2, 3)
static void env(struct vmm_argv *a, const char *fmt, ...)
{
	va_list ap;

	PRE(a->envc + 1 < VMM_ENV_MAX);
	va_start(ap, fmt);
	a->env[a->envc++] = put_text(a, fmt, ap);
	va_end(ap);
}

/* --- the parts of the line ------------------------------------------------ */

static bool has(uint32_t fds, enum vmm_fd role)
{
	return fds & VMM_FD_BIT(role);
}

static void put_machine(struct vmm_argv *a, const struct vmm_spec *s)
{
	arg(a, "-machine");
	arg(a, "microvm,pit=off,pic=off,rtc=on,memory-backend=ram0,"
	       "mem-merge=off,dump-guest-core=off,suppress-vmdesc=on");
	arg(a, "-accel");
	if (s->accel == VMM_ACCEL_KVM) {
		arg(a, "kvm");
		arg(a, "-cpu");
		/* some hosts' KVM fails on the MSR behind this feature */
		arg(a, "host,-arch-capabilities");
	} else {
		arg(a, "tcg,tb-size=%d", TB_MIB);
		arg(a, "-cpu");
		/*
		 * arat: the local timer never stops. Without it Linux looks
		 * for another timer to wake it, finds none on this machine,
		 * and ticks 250 times a second for ever; on a busy host the
		 * ticks that were missed are replayed and leave no CPU.
		 */
		arg(a, "qemu64,+arat");
	}
	arg(a, "-m");
	arg(a, "%uM", s->memory_mib);
	arg(a, "-smp");
	arg(a, "%u", s->vcpus);
	arg(a, "-object");
	arg(a,
	    "memory-backend-file,id=ram0,size=%uM,mem-path=/proc/self/fd/%d,"
	    "share=off",
	    s->memory_mib, VMM_FD_NUMBER(VMM_FD_RAM));
}

static void put_channels(struct vmm_argv *a, uint32_t fds)
{
	arg(a, "-chardev");
	arg(a, "socket,id=qmp,fd=%d", VMM_FD_NUMBER(VMM_FD_QMP));
	arg(a, "-mon");
	arg(a, "chardev=qmp,mode=control");
	if (!has(fds, VMM_FD_AGENT))
		return;
	arg(a, "-chardev");
	arg(a, "socket,id=agent,fd=%d", VMM_FD_NUMBER(VMM_FD_AGENT));
	arg(a, "-device");
	arg(a, "virtio-serial-device,id=vs0,max_ports=2");
	arg(a, "-device");
	arg(a, "virtserialport,bus=vs0.0,nr=1,chardev=agent,name=cryo-agent");
}

/*
 * Trouble of the disk stops the VM instead of reaching the guest: one `cont`
 * heals it. Discards reach our server, which treats them as writes.
 */
static void put_disk(struct vmm_argv *a, uint32_t fds)
{
	if (!has(fds, VMM_FD_NBD))
		return;
	arg(a, "-blockdev");
	arg(a,
	    "driver=nbd,node-name=d0,discard=unmap,server.type=fd,"
	    "server.str=%d",
	    VMM_FD_NUMBER(VMM_FD_NBD));
	arg(a, "-device");
	arg(a, "virtio-blk-device,drive=d0,logical_block_size=4096,"
	       "physical_block_size=4096,discard=on,write-zeroes=on,"
	       "werror=stop,rerror=stop");
}

static void put_start(struct vmm_argv *a, const struct vmm_spec *s)
{
	int kernel = VMM_FD_NUMBER(VMM_FD_KERNEL);

	if (s->mode == VMM_FIRMWARE) {
		arg(a, "-bios");
		arg(a, "/proc/self/fd/%d", kernel);
	} else if (s->mode == VMM_INCOMING) {
		arg(a, "-incoming");
		arg(a, "defer");
	} else {
		arg(a, "-kernel");
		arg(a, "/proc/self/fd/%d", kernel);
		arg(a, "-initrd");
		arg(a, "/proc/self/fd/%d", VMM_FD_NUMBER(VMM_FD_INITRD));
		arg(a, "-append");
		if (s->tsc_khz)
			arg(a, "%s tsc_early_khz=%u tsc=reliable", s->cmdline,
			    s->tsc_khz);
		else
			arg(a, "%s", s->cmdline);
	}
}

static void put_walls(struct vmm_argv *a)
{
	arg(a, "-sandbox");
	arg(a, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,"
	       "resourcecontrol=deny");
}

/* Without the tracker QEMU runs without our preload, too. */
static void put_env(struct vmm_argv *a, uint32_t fds)
{
	env(a, "QEMU_MODULE_DIR=" VMM_PATH_MODULES);
	if (!has(fds, VMM_FD_UFFD_SOCK))
		return;
	env(a, "LD_PRELOAD=" VMM_PATH_PRELOAD);
	env(a, "CRYO_UFFD_DEV=%d", VMM_FD_UFFD_DEV);
	env(a, "CRYO_UFFD_SOCK=%d", VMM_FD_NUMBER(VMM_FD_UFFD_SOCK));
}

void vmm_argv_build(struct vmm_argv *ret, const struct vmm_spec *s, uint32_t fds)
{
	memset(ret, 0, sizeof(*ret));
	arg(ret, "qemu");
	put_machine(ret, s);
	arg(ret, "-nodefaults");
	arg(ret, "-no-user-config");
	arg(ret, "-no-reboot");
	arg(ret, "-display");
	arg(ret, "none");
	arg(ret, "-L");
	arg(ret, VMM_PATH_ROMS);
	put_channels(ret, fds);
	put_disk(ret, fds);
	arg(ret, "-object");
	arg(ret, "rng-builtin,id=rng0");
	arg(ret, "-device");
	arg(ret, "virtio-rng-device,rng=rng0");
	arg(ret, "-global");
	arg(ret, "migration.send-configuration=off");
	put_start(ret, s);
	arg(ret, "-S");
	put_walls(ret);
	put_env(ret, fds);
	POST(ret->argv[ret->argc] == NULL && ret->env[ret->envc] == NULL);
}
