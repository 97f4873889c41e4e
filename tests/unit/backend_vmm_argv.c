/*
 * QEMU's command line, word for word, and what the spec check refuses.
 */
#include "core/backend/vmm_argv.h"
#include "tests/tap.h"

#define BIT VMM_FD_BIT
#define FULL                                                     \
	(BIT(VMM_FD_RAM) | BIT(VMM_FD_QMP) | BIT(VMM_FD_AGENT) | \
	 BIT(VMM_FD_NBD) | BIT(VMM_FD_UFFD_SOCK) | BIT(VMM_FD_LOG))
#define BOOT (FULL | BIT(VMM_FD_KERNEL) | BIT(VMM_FD_INITRD))

#define HEAD                                                                \
	"qemu -machine microvm,pit=off,pic=off,rtc=on,memory-backend=ram0," \
	"mem-merge=off,dump-guest-core=off,suppress-vmdesc=on "             \
	"-accel tcg,tb-size=128 -cpu qemu64,+arat -m 256M -smp 2 "          \
	"-object memory-backend-file,id=ram0,size=256M,"                    \
	"mem-path=/proc/self/fd/3,share=off "                               \
	"-nodefaults -no-user-config -no-reboot -display none -L /rom "
#define DEVICES                                                           \
	"-chardev socket,id=qmp,fd=4 -mon chardev=qmp,mode=control "      \
	"-chardev socket,id=agent,fd=5 "                                  \
	"-device virtio-serial-device,id=vs0,max_ports=2 "                \
	"-device virtserialport,bus=vs0.0,nr=1,chardev=agent,"            \
	"name=cryo-agent "                                                \
	"-blockdev driver=nbd,node-name=d0,discard=unmap,server.type=fd," \
	"server.str=6 "                                                   \
	"-device virtio-blk-device,drive=d0,logical_block_size=4096,"     \
	"physical_block_size=4096,discard=on,write-zeroes=on,"            \
	"werror=stop,rerror=stop "                                        \
	"-object rng-builtin,id=rng0 "                                    \
	"-device virtio-rng-device,rng=rng0 "                             \
	"-global migration.send-configuration=off "
#define TAIL                                                    \
	" -S -sandbox on,obsolete=deny,elevateprivileges=deny," \
	"spawn=deny,resourcecontrol=deny"

static struct vmm_spec spec(enum vmm_mode mode)
{
	struct vmm_spec s = { .memory_mib = 256,
			      .vcpus = 2,
			      .tsc_khz = 1996245,
			      .mode = (uint8_t)mode };

	if (mode == VMM_BOOT)
		base_strcpy(s.cmdline, sizeof(s.cmdline), "quiet panic=-1");
	return s;
}

static const char *line(const struct vmm_spec *s, uint32_t fds)
{
	static struct vmm_argv a;
	static char text[8192];
	size_t n = 0;

	vmm_argv_build(&a, s, fds);
	for (char **w = a.argv; *w; w++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s",
				      n ? " " : "", *w);
	return text;
}

static const char *environment(uint32_t fds)
{
	static struct vmm_argv a;
	static char text[512];
	struct vmm_spec s = spec(VMM_INCOMING);
	size_t n = 0;

	vmm_argv_build(&a, &s, fds);
	text[0] = 0;
	for (char **w = a.env; *w; w++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s ", *w);
	return text;
}

static void lines(void)
{
	struct vmm_spec s = spec(VMM_BOOT);

	is_str(line(&s, BOOT),
	       HEAD DEVICES "-kernel /proc/self/fd/7 -initrd /proc/self/fd/8 "
			    "-append quiet panic=-1 tsc_early_khz=1996245 "
			    "tsc=reliable" TAIL,
	       "a boot's line");
	s.tsc_khz = 0;
	ok(strstr(line(&s, BOOT), "-append quiet panic=-1 -S"),
	   "no rate, no tsc arguments");
	s = spec(VMM_INCOMING);
	is_str(line(&s, FULL), HEAD DEVICES "-incoming defer" TAIL,
	       "an incoming line: the same devices");
	s.accel = VMM_ACCEL_KVM;
	ok(strstr(line(&s, FULL), " -accel kvm -cpu host,-arch-capabilities "),
	   "under KVM the host's CPU");
	s = spec(VMM_FIRMWARE);
	ok(strstr(line(&s, BIT(VMM_FD_RAM) | BIT(VMM_FD_QMP) | BIT(VMM_FD_KERNEL)),
		  " -bios /proc/self/fd/7 -S"),
	   "a firmware's line");
	ok(!strstr(line(&s,
			BIT(VMM_FD_RAM) | BIT(VMM_FD_QMP) | BIT(VMM_FD_KERNEL)),
		   "nbd"),
	   "no disk without a descriptor for it");
	is_str(environment(FULL),
	       "QEMU_MODULE_DIR=/lib/qemu LD_PRELOAD=/lib/cryo-uffd.so "
	       "CRYO_UFFD_DEV=11 CRYO_UFFD_SOCK=9 ",
	       "environment with tracking");
	is_str(environment(FULL & ~BIT(VMM_FD_UFFD_SOCK)),
	       "QEMU_MODULE_DIR=/lib/qemu ", "and without");
	memset(s.cmdline, 'x', sizeof(s.cmdline) - 1);
	s.mode = VMM_BOOT;
	s.tsc_khz = UINT32_MAX;
	ok(strlen(line(&s, BOOT)) > VMM_CMDLINE_MAX,
	   "the longest line fits its buffer");
}

static void refused(const char *what, const struct vmm_spec *s, uint32_t fds,
		    const char *word)
{
	struct err e = { 0 };

	is_int(vmm_spec_check(s, fds, &e), -EINVAL, "%s is refused", what);
	ok(strstr(e.msg, word), "and named: %s", e.msg);
}

static void checks(void)
{
	struct vmm_spec s = spec(VMM_BOOT), good = s;
	struct err e;

	is_int(vmm_spec_check(&s, BOOT, &e), 0, "a boot's spec is good");
	s = spec(VMM_INCOMING);
	is_int(vmm_spec_check(&s, FULL, &e), 0, "an incoming one, too");
	refused("a kernel for incoming", &s, BOOT, "role 4");
	is_int(vmm_spec_check(&s, BIT(VMM_FD_RAM) | BIT(VMM_FD_QMP), &e), 0,
	       "RAM and QMP are enough");
	refused("no QMP", &s, BIT(VMM_FD_RAM), "role 1 is missing");
	base_strcpy(s.cmdline, sizeof(s.cmdline), "x");
	refused("arguments without a kernel", &s, FULL, "without a kernel");
	s = good;
	refused("no initrd", &s, BOOT & ~BIT(VMM_FD_INITRD), "role 5");
	refused("a role that does not exist", &s, BOOT | 1u << 20, "role 20");
	s.memory_mib = 31;
	refused("31 MiB", &s, BOOT, "31 MiB");
	s.memory_mib = 4097;
	refused("4097 MiB", &s, BOOT, "4097 MiB");
	s = good;
	s.vcpus = 0;
	refused("no vCPU", &s, BOOT, "0 vCPUs");
	s.vcpus = 17;
	refused("17 vCPUs", &s, BOOT, "17 vCPUs");
	s = good;
	s.accel = 2;
	refused("another accelerator", &s, BOOT, "accelerator 2");
	s = good;
	s.mode = 3;
	refused("another mode", &s, BOOT, "mode 3");
	s = good;
	s.pad[1] = 1;
	refused("padding", &s, BOOT, "padding");
	s = good;
	base_strcpy(s.cmdline, sizeof(s.cmdline), "a\nb");
	refused("a line feed", &s, BOOT, "byte 1");
	memset(s.cmdline, 'x', sizeof(s.cmdline));
	refused("arguments without an end", &s, BOOT, "terminated");
}

int main(void)
{
	lines();
	checks();
	is_str(vmm_accel_name(VMM_ACCEL_TCG), "tcg", "name of TCG");
	is_str(vmm_accel_name(VMM_ACCEL_KVM), "kvm", "name of KVM");
	return tap_done();
}
