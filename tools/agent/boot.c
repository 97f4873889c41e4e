/*
 * boot: from the kernel's first process to a machine with a root disk and a
 * port to the host.
 *
 * In the initramfs: /modules/order lists the modules of /modules, one a line,
 * in an order in which each finds what it needs; they are loaded and deleted.
 * Then the disk /dev/vda is mounted and becomes the root (the initramfs
 * itself can't be left, switch_root(8) does the same), and the port named
 * cryo-agent is opened.
 *
 * There is nothing to fall back on: what fails is told to the kernel's log
 * and process 1 ends, which panics the kernel and so ends the machine.
 */
#include "tools/agent/agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define PORT_NAME "cryo-agent"
#define DISK "/dev/vda"
#define WAIT_MAX (10000 * NS_PER_MS)

static _Noreturn PRINTF(1, 2) void boot_fail(const char *fmt, ...)
{
	char line[512] = "cryo-agent: ";
	size_t at = strlen(line);
	va_list ap;
	int fd;

	va_start(ap, fmt);
	vsnprintf(line + at, sizeof(line) - at - 1, fmt, ap);
	va_end(ap);
	at = strlen(line);
	line[at] = '\n'; /* the array is zeroed behind it */
	fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		fputs(line, stderr);
	_exit(1);
}

static void nap(void)
{
	const struct timespec t = { .tv_nsec = 2 * NS_PER_MS };

	nanosleep(&t, NULL);
}

static void mount_must(const char *type, const char *at, unsigned long flags,
		       const char *options)
{
	mkdir(at, 0755);
	if (mount(type, at, type, flags, options))
		boot_fail("mount %s on %s: %s", type, at, strerror(errno));
}

static void load_module(const char *name)
{
	SCOPED_FREE char *path = base_printf("/modules/%s", name);
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		boot_fail("open %s: %s", path, strerror(errno));
	if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)
		boot_fail("load %s: %s", path, strerror(errno));
	unlink(path); /* its memory back */
}

static void load_modules(void)
{
	SCOPED_FD int fd = open("/modules/order", O_RDONLY | O_CLOEXEC);
	char text[8192], *rest = text, *name;
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n < 0)
		boot_fail("read /modules/order: %s", strerror(errno));
	text[n] = '\0';
	while ((name = strsep(&rest, "\n")))
		if (*name)
			load_module(name);
}

static void mount_disk(void)
{
	int64_t end = agent_now() + WAIT_MAX;
	int r;

	mkdir("/disk", 0755);
	while ((r = mount(DISK, "/disk", "ext4", MS_NOATIME, NULL)) &&
	       (errno == ENOENT || errno == ENXIO) && agent_now() < end)
		nap();
	if (r)
		boot_fail("mount %s: %s", DISK, strerror(errno));
}

static void enter_disk(void)
{
	static const char *const moved[] = { "/dev", "/proc", "/sys" };

	for (size_t i = 0; i < ARRAY_LEN(moved); i++) {
		SCOPED_FREE char *to = base_printf("/disk%s", moved[i]);

		mkdir(to, 0755);
		if (mount(moved[i], to, NULL, MS_MOVE, NULL))
			boot_fail("move %s: %s", moved[i], strerror(errno));
	}
	unlink("/init");
	if (chdir("/disk") || mount(".", "/", NULL, MS_MOVE, NULL) ||
	    chroot(".") || chdir("/"))
		boot_fail("enter %s: %s", DISK, strerror(errno));
}

static void mount_rest(void)
{
	mount_must("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=755");
	mount_must("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC,
		   "gid=5,mode=620,ptmxmode=666");
	mount_must("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
	/* what devtmpfs lacks */
	if (symlink("/proc/self/fd", "/dev/fd") ||
	    symlink("/proc/self/fd/0", "/dev/stdin") ||
	    symlink("/proc/self/fd/1", "/dev/stdout") ||
	    symlink("/proc/self/fd/2", "/dev/stderr"))
		boot_fail("make links in /dev: %s", strerror(errno));
}

/*
 * A name that changes with each fork is kept in /run/cryo and mounted over
 * its file: to change it is then quick, and leaves the root disk alone.
 */
static void cover(const char *name)
{
	SCOPED_FREE char *from = base_printf("/etc/%s", name);
	SCOPED_FREE char *to = base_printf(RUN_DIR "/%s", name);
	SCOPED_FD int in = open(from, O_RDONLY | O_CLOEXEC);
	SCOPED_FD int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	char text[512];
	ssize_t n = in < 0 ? 0 : read(in, text, sizeof(text));

	if (out < 0 || n < 0 || write(out, text, (size_t)n) != n)
		boot_fail("copy %s to %s: %s", from, to, strerror(errno));
	/* an image without the file: /run/cryo alone has it */
	if (in >= 0 && mount(to, from, NULL, MS_BIND, NULL))
		boot_fail("mount %s on %s: %s", to, from, strerror(errno));
}

static void loopback_up(void)
{
	SCOPED_FD int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };

	if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r))
		boot_fail("bring up lo: %s", strerror(errno));
}

static void first_hostname(void)
{
	SCOPED_FD int fd = open("/etc/hostname", O_RDONLY | O_CLOEXEC);
	char name[65] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof(name) - 1);

	name[strcspn(name, "\n")] = '\0';
	if (n > 0 && sethostname(name, strlen(name)))
		boot_fail("set the hostname: %s", strerror(errno));
}

/* Opens the port of this name if the host's device has shown it yet. */
static int find_port(void)
{
	DIR *d = opendir("/sys/class/virtio-ports");
	struct dirent *en;
	int port = -1;

	while (d && port < 0 && (en = readdir(d))) {
		SCOPED_FREE char *attr = base_printf(
			"/sys/class/virtio-ports/%s/name", en->d_name);
		SCOPED_FREE char *dev = base_printf("/dev/%s", en->d_name);
		SCOPED_FD int fd = open(attr, O_RDONLY | O_CLOEXEC);
		char name[64] = "";

		if (fd < 0 || read(fd, name, sizeof(name) - 1) <= 0)
			continue;
		name[strcspn(name, "\n")] = '\0';
		if (!strcmp(name, PORT_NAME))
			port = open(dev, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	}
	if (d)
		closedir(d);
	return port;
}

static int wait_port(void)
{
	int64_t end = agent_now() + WAIT_MAX;
	int port;

	while ((port = find_port()) < 0 && agent_now() < end)
		nap();
	if (port < 0)
		boot_fail("no virtio-serial port named %s", PORT_NAME);
	return port;
}

int boot_machine(void)
{
	mount_must("devtmpfs", "/dev", MS_NOSUID, "mode=755");
	mount_must("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	mount_must("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	load_modules();
	mount_disk();
	enter_disk();
	mount_rest();
	mkdir(RUN_DIR, 0755);
	cover("hostname");
	cover("machine-id");
	loopback_up();
	first_hostname();
	umask(022);
	return wait_port();
}
