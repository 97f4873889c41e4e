/*
 * The walls, with real processes: cryo-helper as root starts this program
 * again as cryod (to ask it for things) and as cryo-vm (to be looked at),
 * and a real QEMU that runs a firmware of our own. What is tested: who has
 * which rights, descriptors and roots; that pages written by a guest are
 * reported exactly, saved and restored; and who outlives whom.
 *
 * CRYO_TEST_ACCEL=kvm runs the same under KVM where there is one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "core/backend/helper_client.h"
#include "core/backend/qmp.h"
#include "core/backend/seccomp.h"
#include "snapshotter/dirty.h"
#include "tests/tap.h"

#define RAM_MIB 32u
#define RAM_LEN ((size_t)RAM_MIB << 20)
#define RAM_PAGES (RAM_LEN / CRYO_PAGE)
#define FIRST_PAGE 0x10u /* the payload counts in pages 0x10 .. 0x4f */
#define NR_PAGES 64u
#define UID_BASE 1900000000u
#define MS 10000

static const char session[] = "a0123456789012345678";

/* --- the guest ------------------------------------------------------------ */

/*
 * 64 KiB at the top of memory. The reset vector jumps to its start, which
 * copies a loop to RAM (a restored VM has another ROM) and goes there; the
 * loop increments the first word of each of 64 pages, for ever.
 */
static int payload(void)
{
	static const uint8_t start[] = {
		0xfa, /* cli */
		0x31, 0xc0, /* xor ax, ax */
		0x8e, 0xc0, /* mov es, ax */
		0xbf, 0x00, 0x90, /* mov di, 0x9000 */
		0xbe, 0x20, 0x00, /* mov si, 0x20 */
		0xb9, 0x20, 0x00, /* mov cx, 32 */
		0xf3, 0x2e, 0xa4, /* rep movsb es:di, cs:si */
		0xea, 0x00, 0x90, 0, 0, /* jmp 0:0x9000 */
	};
	static const uint8_t loop[] = {
		0xbb, 0x00, 0x10, /* 0: mov bx, 0x1000 */
		0xb9, 0x40, 0x00, /* 3: mov cx, 64 */
		0x8e, 0xdb, /* 6: mov ds, bx */
		0xff, 0x06, 0x00, 0x00, /* 8: inc word [0] */
		0x81, 0xc3, 0x00, 0x01, /* 12: add bx, 0x100 */
		0xe2, 0xf4, /* 16: loop 6 */
		0xeb, 0xec, /* 18: jmp 0 */
	};
	static const uint8_t reset[] = { 0xe9, 0x0d, 0x00 }; /* jmp 0 */
	static uint8_t rom[65536];
	int fd = memfd_create("payload", MFD_CLOEXEC);

	memcpy(rom, start, sizeof(start));
	memcpy(rom + 0x20, loop, sizeof(loop));
	memcpy(rom + 0xfff0, reset, sizeof(reset));
	if (fd < 0 || base_write_all(fd, rom, sizeof(rom)) < 0)
		bail("payload: %s", strerror(errno));
	return fd;
}

static int ram_image(const void *bytes, bool sealed)
{
	int fd = memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, RAM_LEN) < 0 ||
	    (bytes && base_pwrite_all(fd, bytes, RAM_LEN, 0) < 0) ||
	    (sealed && fcntl(fd, F_ADD_SEALS,
			     F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW |
				     F_SEAL_SEAL) < 0))
		bail("RAM image: %s", strerror(errno));
	return fd;
}

/* --- cryo-vm, as far as the walls are concerned --------------------------- */

static int play_vm(void)
{
	struct err e = { 0 };

	if (seccomp_apply(SECCOMP_VM, &e) < 0) {
		fprintf(stderr, "cryo-vm: %s\n", e.msg);
		return 1;
	}
	for (;;)
		poll(NULL, 0, -1);
}

/* --- cryod ---------------------------------------------------------------- */

struct vm {
	struct helper_vmm p;
	struct qmp *q;
	struct guestmem *mem;
	struct dirty *dirty;
	int ram;
};

static struct helper_client *helper;
static enum vmm_accel accel;

/* Asks the harness, which is root, for something; waits until it is done. */
static void ask(const char *what)
{
	printf("@%s\n", what);
	fflush(stdout);
	for (int i = 0; i < 1000 && access("go", F_OK) < 0; i++)
		poll(NULL, 0, 20);
	unlink("go");
}

static int listener(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "vm" };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	unlink(a.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(fd, 4) < 0)
		bail("listening socket: %s", strerror(errno));
	return fd;
}

static bool spawn_vm(uint32_t slot)
{
	int fd = listener(), pid = 0, pidfd = -1, r;
	struct err e = { 0 };

	r = helper_client_spawn_vm(helper, slot, session, 1ull << 30, fd, 2,
				   &pid, &pidfd, &e);
	is_int(r, 0, "a cryo-vm starts in slot %u (%s)", slot, e.msg);
	close(fd);
	base_close_p(&pidfd);
	return r == 0;
}

static int take_uffd(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	unsigned nr = 0;
	char byte = 0;
	int fd = -1;

	if (poll(&p, 1, MS) != 1 || helper_recv(sock, &byte, 1, &fd, 1, &nr) != 1)
		return -1;
	return nr == 1 && byte == 'U' ? fd : -1;
}

/* Here cryod plays cryo-vm's part, which gets these from the helper. */
static int give_state_file(struct qmp *q, struct err *e)
{
	int rd = memfd_create("device-state", MFD_CLOEXEC);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", rd);
	return qmp_set_state_file(q, open(path, O_WRONLY | O_CLOEXEC), rd, MS, e);
}

/* Starts a VMM and gets hold of everything; false if it could not. */
static bool spawn_vmm(struct vm *v, uint32_t slot, enum vmm_mode mode, int ram)
{
	struct vmm_spec s = { .memory_mib = RAM_MIB,
			      .vcpus = 1,
			      .accel = (uint8_t)accel,
			      .mode = (uint8_t)mode };
	struct dirty_conf c = { .method = DIRTY_UFFD };
	int qmp[2], uffd[2], r, fds[VMM_FD_ROLES];
	struct err e = { 0 };

	*v = (struct vm){ .ram = ram };
	for (int i = 0; i < VMM_FD_ROLES; i++)
		fds[i] = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, qmp) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, uffd) < 0)
		bail("socketpair: %s", strerror(errno));
	fds[VMM_FD_RAM] = ram;
	fds[VMM_FD_QMP] = qmp[1];
	fds[VMM_FD_UFFD_SOCK] = uffd[1];
	fds[VMM_FD_LOG] = 2;
	if (mode == VMM_FIRMWARE)
		fds[VMM_FD_KERNEL] = payload();
	r = helper_client_spawn_vmm(helper, slot, &s, NULL, fds, &v->p, &e);
	is_int(r, 0, "a VMM starts in slot %u (%s)", slot, e.msg);
	close(qmp[1]);
	close(uffd[1]);
	base_close_p(&fds[VMM_FD_KERNEL]);
	if (r < 0)
		return false;
	c.uffd = take_uffd(uffd[0]);
	close(uffd[0]);
	ok(c.uffd >= 0, "the VMM sends its userfaultfd");
	v->q = qmp_new(qmp[0], NULL, NULL);
	r = qmp_handshake(v->q, MS, &e);
	is_int(r, 0, "QMP greets (%s)", e.msg);
	if (r == 0)
		r = give_state_file(v->q, &e);
	is_int(r, 0, "QEMU takes the file for its state (%s)", e.msg);
	if (r == 0)
		r = guestmem_open(&v->mem, v->p.mem_fd, v->p.maps_fd, ram, &e);
	is_int(r, 0, "guest RAM is found (%s)", e.msg);
	if (r < 0)
		return false;
	c.pagemap_fd = v->p.pagemap_fd;
	c.mem = v->mem;
	r = dirty_open(&v->dirty, &c, &e);
	is_int(r, 0, "tracking opens without a capability (%s)", e.msg);
	if (r == 0)
		r = dirty_arm(v->dirty, &e);
	is_int(r, 0, "tracking is armed (%s)", e.msg);
	return r == 0;
}

static void drop_vm(struct vm *v)
{
	dirty_free(v->dirty);
	guestmem_free(v->mem);
	qmp_free(v->q);
	base_close_p(&v->p.pidfd);
	base_close_p(&v->p.maps_fd);
	base_close_p(&v->ram);
}

static void read_ram(const struct vm *v, uint8_t *to)
{
	struct err e = { 0 };

	if (guestmem_read(v->mem, 0, RAM_PAGES, to, &e) < 0)
		bail("RAM: %s", e.msg);
}

/*
 * Waits until the last page was counted up twice: then every page was, at
 * least once, wherever in the loop the VM had been stopped.
 */
static bool counts(const struct vm *v)
{
	uint8_t a[CRYO_PAGE], b[CRYO_PAGE];
	struct err e = { 0 };

	if (guestmem_read(v->mem, FIRST_PAGE + NR_PAGES - 1, 1, a, &e) < 0)
		return false;
	for (int i = 0; i < 500; i++) {
		poll(NULL, 0, 10);
		if (guestmem_read(v->mem, FIRST_PAGE + NR_PAGES - 1, 1, b, &e) ==
			    0 &&
		    (uint16_t)(get_u16(b) - get_u16(a)) >= 2)
			return true;
	}
	return false;
}

static bool is_payload_set(const uint64_t *bits)
{
	for (uint32_t p = 0; p < RAM_PAGES; p++)
		if ((bits[p / 64] >> (p % 64) & 1) !=
		    (p >= FIRST_PAGE && p < FIRST_PAGE + NR_PAGES))
			return false;
	return true;
}

/* Pages that differ although the tracker said nothing. */
static unsigned missed(const uint8_t *before, const uint8_t *after,
		       const uint64_t *bits, unsigned *ret_changed)
{
	unsigned nr = 0;

	*ret_changed = 0;
	for (uint32_t p = 0; p < RAM_PAGES; p++) {
		size_t at = (size_t)p * CRYO_PAGE;
		bool changed = memcmp(before + at, after + at, CRYO_PAGE) != 0;

		*ret_changed += changed;
		nr += changed && !(bits[p / 64] >> (p % 64) & 1);
	}
	return nr;
}

/* One round: run a little, stop, scan; leaves the VM stopped. */
static void round_of(struct vm *v, int nr, uint8_t *before, uint8_t *after)
{
	uint64_t bits[RAM_PAGES / 64] = { 0 };
	struct err e = { 0 };
	unsigned changed = 0;
	int64_t n;

	is_int(qmp_vm_cont(v->q, MS, &e), 0, "round %d: cont (%s)", nr, e.msg);
	ok(counts(v), "round %d: the payload runs", nr);
	is_int(qmp_vm_stop(v->q, MS, &e), 0, "round %d: stop (%s)", nr, e.msg);
	dirty_begin(v->dirty);
	n = dirty_scan(v->dirty, bits, &e);
	read_ram(v, after);
	if (nr == 1) /* the payload copied itself to RAM */
		bits[9 / 64] &= ~(1ull << 9);
	is_int(n - (nr == 1), NR_PAGES, "round %d: 64 pages reported (%s)", nr,
	       e.msg);
	ok(is_payload_set(bits), "round %d: the payload's pages", nr);
	if (nr > 1)
		is_int(missed(before, after, bits, &changed), 0,
		       "round %d: no changed page was missed", nr);
	if (nr > 1)
		is_int(changed, NR_PAGES, "round %d: 64 pages changed", nr);
	dirty_commit(v->dirty);
	dirty_begin(v->dirty);
	is_int(dirty_scan(v->dirty, bits, &e), 0,
	       "round %d: nothing more while stopped", nr);
	dirty_commit(v->dirty);
	memcpy(before, after, RAM_LEN);
}

/* Saves three times in one pause: the states are equal. */
static void save(struct vm *v, struct buf *state)
{
	struct buf again = { 0 };
	struct err e = { 0 };
	uint64_t bits[RAM_PAGES / 64] = { 0 };

	is_int(qmp_vm_save_devices(v->q, state, MS, &e), 0, "save (%s)", e.msg);
	ok(state->len > 1000, "device state of %zu bytes", state->len);
	for (int i = 0; i < 2; i++) {
		buf_reset(&again);
		is_int(qmp_vm_save_devices(v->q, &again, MS, &e), 0,
		       "another save in the same pause (%s)", e.msg);
		is_int(again.len, state->len, "of the same size");
	}
	buf_done(&again);
	dirty_begin(v->dirty);
	is_int(dirty_scan(v->dirty, bits, &e), 0, "saving writes no RAM");
	dirty_commit(v->dirty);
}

/* A VM from the other's RAM and state goes on where that one stopped. */
static void restore(uint32_t slot, const uint8_t *image, struct buf *state)
{
	uint8_t *now = malloc(RAM_LEN), *base = malloc(RAM_LEN);
	char status[32] = "";
	struct err e = { 0 };
	struct vm v;

	if (!spawn_vm(slot) ||
	    !spawn_vmm(&v, slot, VMM_INCOMING, ram_image(image, true)))
		bail("no second VM");
	is_int(qmp_vm_load_devices(v.q, state->p, state->len, MS, &e), 0,
	       "device state loads (%s)", e.msg);
	qmp_vm_status(v.q, status, sizeof(status), MS, &e);
	is_str(status, "paused", "and the VM waits");
	read_ram(&v, now);
	is_mem(now, image, RAM_LEN, "its RAM is the image");
	is_int(qmp_vm_cont(v.q, MS, &e), 0, "cont after a load (%s)", e.msg);
	ok(counts(&v), "the payload goes on");
	is_int(qmp_vm_stop(v.q, MS, &e), 0, "stop (%s)", e.msg);
	read_ram(&v, now);
	if (base_pread_all(v.ram, base, RAM_LEN, 0) < 0)
		bail("image");
	is_mem(base, image, RAM_LEN, "the shared image is untouched");
	ok(memcmp(now, image, RAM_LEN) != 0, "the VM's own RAM is not");
	free(now);
	free(base);
	ask("kill-vm");
	{
		struct pollfd p = { .fd = v.p.pidfd, .events = POLLIN };

		is_int(poll(&p, 1, MS), 1,
		       "cryo-vm is killed: the kernel ends its VMM");
	}
	drop_vm(&v);
}

static bool listed(uint32_t slot)
{
	uint64_t slots[HELPER_SLOTS / 64] = { 0 };
	struct err e = { 0 };

	if (helper_client_list(helper, slots, &e) < 0)
		return false;
	return slots[slot / 64] >> (slot % 64) & 1;
}

static void refusals(void)
{
	struct vmm_spec s = { .memory_mib = RAM_MIB, .vcpus = 1 };
	int fds[VMM_FD_ROLES], p[2], pid, pidfd, null = open("/dev/null", 2);
	struct helper_vmm ret;
	struct err e = { 0 };

	for (int i = 0; i < VMM_FD_ROLES; i++)
		fds[i] = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
		bail("socketpair");
	s.mode = VMM_INCOMING;
	fds[VMM_FD_QMP] = p[0];
	fds[VMM_FD_RAM] = ram_image(NULL, true);
	is_int(helper_client_spawn_vmm(helper, 5, &s, NULL, fds, &ret, &e),
	       -ESRCH, "no VMM without a cryo-vm: %s", e.msg);
	is_int(helper_client_spawn_vm(helper, 5, session, 1ull << 30, null, 2,
				      &pid, &pidfd, &e),
	       -EINVAL, "not a socket: %s", e.msg);
	is_int(helper_client_spawn_vm(helper, 5, "Bad", 1ull << 30, p[1], 2,
				      &pid, &pidfd, &e),
	       -EINVAL, "not an id: %s", e.msg);
	if (!spawn_vm(5))
		bail("no cryo-vm");
	is_int(helper_client_spawn_vm(helper, 5, session, 1ull << 30, p[1], 2,
				      &pid, &pidfd, &e),
	       -EBUSY, "a slot is taken once: %s", e.msg);
	close(fds[VMM_FD_RAM]);
	fds[VMM_FD_RAM] = ram_image(NULL, false);
	is_int(helper_client_spawn_vmm(helper, 5, &s, NULL, fds, &ret, &e),
	       -EPERM, "RAM must be sealed: %s", e.msg);
	close(fds[VMM_FD_RAM]);
	fds[VMM_FD_RAM] = ram_image(NULL, true);
	s.memory_mib = 64;
	is_int(helper_client_spawn_vmm(helper, 5, &s, NULL, fds, &ret, &e),
	       -EINVAL, "RAM must be of its size: %s", e.msg);
	s.memory_mib = RAM_MIB;
	is_int(helper_client_spawn_vmm(helper, 5, &s, (const uint8_t *)session,
				       fds, &ret, &e),
	       -EINVAL + EINVAL - ENOENT, "an unknown VMM build: %s", e.msg);
	ok(listed(5), "the slot still has its cryo-vm");
	is_int(helper_client_kill(helper, 5, &e), 0, "kill (%s)", e.msg);
	ok(!listed(5), "and then it has not");
	close(fds[VMM_FD_RAM]);
	close(p[0]);
	close(p[1]);
	close(null);
}

static int cryod_main(void)
{
	uint8_t *before = calloc(1, RAM_LEN), *after = malloc(RAM_LEN);
	struct helper_info info = { 0 };
	struct buf state = { 0 };
	struct err e = { 0 };
	struct vm v;

	is_int(helper_client_info(helper, &info, &e), 0, "info (%s)", e.msg);
	is_int(info.uid_base, UID_BASE, "the user ids' base");
	is_int(getuid(), UID_BASE, "cryod is that user");
	is_int(access("/proc/1/environ", R_OK), -1, "and no other");
	ok(info.has_cgroup, "there are limits");
	ok(info.has_uffd, "the host has a userfaultfd device");
	refusals();
	if (!spawn_vm(0) ||
	    !spawn_vmm(&v, 0, VMM_FIRMWARE, ram_image(NULL, true)))
		return tap_failed ? 1 : 2;
	ask("inspect");
	for (int i = 1; i <= 4; i++)
		round_of(&v, i, before, after);
	save(&v, &state);
	round_of(&v, 5, before, after); /* cont works after saves */
	buf_reset(&state);
	save(&v, &state);
	restore(1, after, &state);
	for (int i = 0; i < 250 && listed(1); i++)
		poll(NULL, 0, 20);
	ok(!listed(1), "the helper saw both end");
	ok(listed(0), "the first VM lives on");
	is_int(helper_client_kill(helper, 0, &e), 0, "kill (%s)", e.msg);
	is_int(helper_client_kill(helper, 0, &e), 0, "kill again (%s)", e.msg);
	ok(!listed(0), "nothing is left");
	is_int(qmp_vm_stop(v.q, MS, &e), -EPIPE, "QMP ends: %s", e.msg);
	ok(guestmem_read(v.mem, 0, 1, after, &e) < 0, "RAM ends: %s", e.msg);
	drop_vm(&v);
	buf_done(&state);
	free(before);
	free(after);
	return tap_failed ? 1 : 0;
}

/* Dies twice with a VM alive; the third one finds and ends it. */
static int cryod_lives(void)
{
	int n = 0, fd = open("life", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct err e = { 0 };
	struct vm v;

	if (pread(fd, &n, sizeof(n), 0) < 0)
		bail("life");
	n++;
	if (pwrite(fd, &n, sizeof(n), 0) < 0)
		bail("life");
	if (n == 1) {
		if (!spawn_vm(3) ||
		    !spawn_vmm(&v, 3, VMM_FIRMWARE, ram_image(NULL, true)))
			return 1;
		is_int(qmp_vm_cont(v.q, MS, &e), 0, "life 1: VM runs");
		qmp_free(v.q); /* QEMU goes on without */
		kill(getpid(), SIGKILL);
	}
	ok(listed(3), "life %d: the VM is there", n);
	if (n == 2)
		kill(getpid(), SIGKILL);
	is_int(helper_client_kill(helper, 3, &e), 0,
	       "life %d: kill of what an earlier helper started (%s)", n, e.msg);
	ok(!listed(3), "life %d: it is gone", n);
	return tap_failed ? 1 : 0;
}

/* Waits for the helper's end; the folder's lock is held until then. */
static int cryod_orphan(void)
{
	struct pollfd p = { .fd = HELPER_CRYOD_FD, .events = POLLIN };

	printf("@orphan\n");
	fflush(stdout);
	poll(&p, 1, 30000);
	for (int i = 0; i < 1000 && access("go", F_OK) < 0; i++)
		poll(NULL, 0, 20);
	unlink("go");
	return 0;
}

static int play_cryod(char **argv)
{
	helper = helper_client_new(HELPER_CRYOD_FD);
	accel = !strcmp(argv[3], "kvm") ? VMM_ACCEL_KVM : VMM_ACCEL_TCG;
	if (!strcmp(argv[2], "lives"))
		return cryod_lives();
	if (!strcmp(argv[2], "orphan"))
		return cryod_orphan();
	if (!strcmp(argv[2], "status"))
		return 3;
	return cryod_main();
}

/* --- the harness ---------------------------------------------------------- */

static char data[] = "/tmp/cryo-walls-XXXXXX";
static char build[PATH_MAX]; /* folder of the programs */
static const char *accel_word = "tcg";

static void path_of(char *ret, const char *name)
{
	snprintf(ret, PATH_MAX + 64, "%s/%s", data, name);
}

static void go(void)
{
	char path[PATH_MAX + 64];

	path_of(path, "go");
	close(open(path, O_WRONLY | O_CREAT, 0644));
}

/* One field of /proc/PID/status as text; "" if there is none. */
static const char *status_of(int pid, const char *field)
{
	static char line[512];
	char path[64];
	size_t len = strlen(field);
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, field, len) != 0 || line[len] != ':')
			continue;
		fclose(f);
		line[strcspn(line, "\n")] = 0;
		return line + len + 1 + strspn(line + len + 1, " \t");
	}
	if (f)
		fclose(f);
	return "";
}

static unsigned uid_of(int pid)
{
	return (unsigned)strtoul(status_of(pid, "Uid"), NULL, 10);
}

static int by_uid(unsigned uid)
{
	DIR *d = opendir("/proc");
	struct dirent *n;
	int found = 0;

	while ((n = readdir(d))) {
		int pid = (int)strtol(n->d_name, NULL, 10);

		if (pid > 0 && uid_of(pid) == uid &&
		    strcmp(status_of(pid, "State"), "Z (zombie)") != 0)
			found = pid;
	}
	closedir(d);
	return found;
}

static void inspect_rights(const char *who, int pid, unsigned uid,
			   const char *seccomp)
{
	static const char *const caps[] = { "CapInh", "CapPrm", "CapEff",
					    "CapBnd", "CapAmb" };
	char want[64];

	snprintf(want, sizeof(want), "%u\t%u\t%u\t%u", uid, uid, uid, uid);
	is_str(status_of(pid, "Uid"), want, "%s: user", who);
	is_str(status_of(pid, "Gid"), want, "%s: group", who);
	is_str(status_of(pid, "Groups"), "", "%s: no other group", who);
	for (size_t i = 0; i < ARRAY_LEN(caps); i++)
		is_str(status_of(pid, caps[i]), "0000000000000000", "%s: %s",
		       who, caps[i]);
	is_str(status_of(pid, "NoNewPrivs"), "1", "%s: no_new_privs", who);
	is_str(status_of(pid, "Seccomp"), seccomp, "%s: seccomp", who);
}

/*
 * Descriptors by what they are: `want` is a sorted list of kinds; the kinds
 * in `any` may stand as often as they like.
 */
static void inspect_fds(const char *who, int pid, const char *const *want,
			const char *const *any)
{
	char path[64], link[PATH_MAX], text[64];
	unsigned seen[16] = { 0 };
	struct dirent *n;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	while (d && (n = readdir(d))) {
		ssize_t len =
			readlinkat(dirfd(d), n->d_name, link, sizeof(link) - 1);
		bool known = len < 0;
		unsigned i;

		link[MAX(len, 0)] = 0;
		for (i = 0; want[i] && !known; i++)
			if (!strncmp(link, want[i], strlen(want[i]))) {
				seen[i]++;
				known = true;
			}
		for (i = 0; any[i] && !known; i++)
			known = !strncmp(link, any[i], strlen(any[i]));
		snprintf(text, sizeof(text), "%.60s", link);
		if (!known)
			ok(false, "%s: descriptor %s is %s", who, n->d_name,
			   text);
	}
	if (d)
		closedir(d);
	for (unsigned i = 0; want[i]; i++)
		ok(seen[i] > 0, "%s: has %s", who, want[i]);
}

/* Lines of /proc/PID/cgroup that name the slot's group. */
static unsigned limited(int pid, const char *slot)
{
	char path[64], line[512];
	unsigned nr = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		nr += strstr(line, "/cryo/") && strstr(line, slot);
	if (f)
		fclose(f);
	return nr;
}

static ino_t ns_of(int pid, const char *ns)
{
	char path[64];
	struct stat st = { 0 };

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, ns);
	stat(path, &st);
	return st.st_ino;
}

static unsigned entries(int pid, const char *dir)
{
	char path[128];
	struct dirent *n;
	unsigned nr = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/root/%s", pid, dir);
	d = opendir(path);
	while (d && (n = readdir(d)))
		nr += n->d_name[0] != '.';
	if (d)
		closedir(d);
	return nr;
}

static void inspect_walls(const char *who, int pid, const char *const *spaces)
{
	char path[128];

	for (; *spaces; spaces++)
		ok(ns_of(pid, *spaces) &&
			   ns_of(pid, *spaces) != ns_of(getpid(), *spaces),
		   "%s: %s namespace of its own", who, *spaces);
	snprintf(path, sizeof(path), "/proc/%d/root/etc", pid);
	is_int(access(path, F_OK), -1, "%s: no /etc in its root", who);
	snprintf(path, sizeof(path), "/proc/%d/root/bin/x", pid);
	is_int(open(path, O_WRONLY | O_CREAT, 0644), -1,
	       "%s: its root is read-only even for root", who);
	is_int(errno, EROFS, "%s: by its mount", who);
}

static void inspect(int helper_pid)
{
	static const char *const spaces[] = { "pid", "mnt",    "net", "ipc",
					      "uts", "cgroup", NULL };
	static const char *const none[] = { NULL };
	static const char *const vm_fds[] = { "/dev/null", "socket:", "pipe:",
					      "/memfd:device-state", NULL };
	static const char *const cryod_fds[] = { "/dev/null",
						 "pipe:",
						 "socket:",
						 data,
						 "anon_inode:[pidfd]",
						 "anon_inode:[userfaultfd]",
						 "/memfd:",
						 "/proc/",
						 NULL };
	static const char *const vmm_fds[] = { "/dev/null",
					       "socket:",
					       "pipe:",
					       "/memfd:ram",
					       "/memfd:payload",
					       "anon_inode:[userfaultfd]",
					       "/memfd:device-state",
					       NULL };
	static const char *const vmm_own[] = { "anon_inode:[event",
					       "anon_inode:[signalfd",
					       "anon_inode:kvm", "/dev/kvm",
					       NULL };
	int vm = by_uid(HELPER_UID_VM(UID_BASE, 0));
	int vmm = by_uid(HELPER_UID_VMM(UID_BASE, 0));
	int cryod = by_uid(UID_BASE);

	inspect_rights("cryod", cryod, UID_BASE, "0"); /* filters itself */
	inspect_rights("cryo-vm", vm, HELPER_UID_VM(UID_BASE, 0), "2");
	inspect_rights("QEMU", vmm, HELPER_UID_VMM(UID_BASE, 0), "2");
	inspect_fds("cryod", cryod, cryod_fds, none);
	inspect_fds("cryo-vm", vm, vm_fds, none);
	inspect_fds("QEMU", vmm, vmm_fds, vmm_own);
	inspect_walls("cryo-vm", vm, spaces);
	inspect_walls("QEMU", vmm, spaces);
	ok(limited(vm, "/slot-0") > 0, "cryo-vm: in the slot's cgroup");
	is_int(limited(vmm, "/slot-0"), limited(vm, "/slot-0"),
	       "QEMU: in the same cgroup");
	ok(ns_of(vm, "pid") != ns_of(vmm, "pid") &&
		   ns_of(vm, "net") != ns_of(vmm, "net"),
	   "cryo-vm and QEMU share no namespace");
	is_int(entries(vmm, "dev"), strcmp(accel_word, "kvm") ? 3 : 4,
	       "QEMU: a /dev of null, zero, urandom (and kvm)");
	is_int(entries(vm, "dev"), 0, "cryo-vm: an empty /dev");
	is_int(uid_of(helper_pid), 0, "the helper is root");
	ok(strstr(status_of(vmm, "NSpid"), "\t1"), "QEMU: pid 1 (%s)",
	   status_of(vmm, "NSpid"));
}

/* Passes the inner program's lines on; obeys its '@' lines. */
static void obey(int helper_pid, const char *line)
{
	if (!strncmp(line, "ok ", 3)) {
		const char *name = strstr(line, " - ");

		ok(true, "%s", name ? name + 3 : line);
	} else if (!strncmp(line, "not ok ", 7)) {
		const char *name = strstr(line, " - ");

		ok(false, "%s", name ? name + 3 : line);
	} else if (!strcmp(line, "@inspect")) {
		inspect(helper_pid);
		go();
	} else if (!strcmp(line, "@kill-vm")) {
		kill(by_uid(HELPER_UID_VM(UID_BASE, 1)), SIGKILL);
		go();
	} else if (!strcmp(line, "@orphan")) {
		kill(helper_pid, SIGKILL);
	} else if (line[0] == '#' || line[0] == 'B') {
		printf("%s\n", line);
	}
}

static int start_helper(const char *scenario, const char *restarts, int out)
{
	char path[PATH_MAX + 32], so[PATH_MAX + 32], self[PATH_MAX] = "";
	char base[16];
	pid_t pid;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		bail("exe");
	snprintf(path, sizeof(path), "%s/cryo-helper", build);
	snprintf(so, sizeof(so), "%s/cryo-uffd.so", build);
	snprintf(base, sizeof(base), "%u", UID_BASE);
	pid = fork();
	if (pid)
		return pid;
	dup2(out, 1);
	dup2(out, 2);
	open("/etc/passwd", O_RDONLY); /* leaks into the helper: no further */
	execl(path, path, "--data", data, "--uid-base", base, "--restart",
	      restarts, "--cryod", self, "--vm", self, "--preload", so, "--",
	      "play-cryod", scenario, accel_word, (char *)NULL);
	_exit(127);
}

/* The last thing that a run says, although a VM keeps the pipe open. */
static bool is_last(const char *line)
{
	return !strcmp(line, "@orphan") || (strstr(line, "event=cryod_killed") &&
					    strstr(line, "restarts_left=0"));
}

/* Takes the lines of `text`; leaves the begun one at its start. */
static bool take_lines(int pid, char *text, size_t *len)
{
	bool last = false;
	char *nl;

	while (!last && (nl = memchr(text, '\n', *len))) {
		*nl = 0;
		if (!strchr("o@nB#", text[0]))
			printf("# %s\n", text);
		obey(pid, text);
		last = is_last(text);
		*len -= (size_t)(nl + 1 - text);
		memmove(text, nl + 1, *len);
	}
	return last;
}

/* Runs a helper to its end; returns its exit status, or -signal. */
static int run_helper(const char *scenario, const char *restarts)
{
	char text[4096];
	int p[2], pid, status = 0;
	struct pollfd in;
	bool ended = false;
	size_t len = 0;

	if (pipe2(p, O_CLOEXEC) < 0)
		bail("pipe");
	pid = start_helper(scenario, restarts, p[1]);
	close(p[1]);
	in = (struct pollfd){ .fd = p[0], .events = POLLIN };
	for (;;) {
		ssize_t n = 0;

		/* what it wrote before its end is in the pipe by then */
		ended = ended || waitpid(pid, &status, WNOHANG) == pid;
		if (poll(&in, 1, ended ? 0 : 200) > 0)
			n = read(p[0], text + len, sizeof(text) - len);
		len += (size_t)MAX(n, 0);
		if (len == sizeof(text))
			bail("a line of %zu bytes", len);
		if (take_lines(pid, text, &len) || (n <= 0 && ended))
			break;
	}
	close(p[0]);
	if (!ended)
		waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void survival(void)
{
	unsigned vm = HELPER_UID_VM(UID_BASE, 3);
	unsigned vmm = HELPER_UID_VMM(UID_BASE, 3);

	is_int(run_helper("lives", "1"), HELPER_EXIT_KILLED,
	       "cryod killed twice with one restart: a status of its own");
	ok(by_uid(vm) && by_uid(vmm), "cryo-vm and QEMU outlive both");
	is_int(run_helper("lives", "0"), HELPER_EXIT_OK,
	       "a new helper adopts and ends them");
	ok(!by_uid(vm) && !by_uid(vmm), "nothing is left");
	is_int(run_helper("status", "5"), HELPER_EXIT_CRYOD,
	       "a cryod that ends with a status is not started again");
	is_int(run_helper("orphan", "0"), -SIGKILL, "a helper is killed");
	is_int(run_helper("main", "0"), HELPER_EXIT_IN_USE,
	       "its cryod still has the data folder");
	go();
	for (int i = 0; i < 500 && by_uid(UID_BASE); i++)
		poll(NULL, 0, 20);
	is_int(run_helper("status", "0"), HELPER_EXIT_CRYOD,
	       "once it ended the folder is free");
}

static bool has_kvm(void)
{
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	bool good = fd >= 0 &&
		    ioctl(fd, KVM_GET_API_VERSION, 0) == KVM_API_VERSION;

	base_close_p(&fd);
	return good;
}

static int skip(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	return 0;
}

int main(int argc, char **argv)
{
	const char *word = getenv("CRYO_TEST_ACCEL");
	char cmd[PATH_MAX + 64];

	if (strstr(argv[0], "cryo-vm"))
		return play_vm();
	if (argc == 4 && !strcmp(argv[1], "play-cryod"))
		return play_cryod(argv);
	if (geteuid() != 0)
		return skip("the walls need root");
	if (word && !strcmp(word, "kvm")) {
		accel_word = "kvm";
		if (!has_kvm())
			return skip("no usable /dev/kvm");
	}
	if (readlink("/proc/self/exe", build, sizeof(build) - 1) < 0)
		bail("exe");
	for (int i = 0; i < 3; i++)
		*strrchr(build, '/') = 0; /* BUILD/tests/crash/NAME */
	signal(SIGPIPE, SIG_IGN);
	if (!mkdtemp(data))
		bail("mkdtemp");
	is_int(run_helper("main", "0"), HELPER_EXIT_OK, "all of it ended well");
	survival();
	for (unsigned uid = UID_BASE; uid < UID_BASE + 16; uid++)
		for (int pid; (pid = by_uid(uid)); poll(NULL, 0, 20))
			kill(pid, SIGKILL); /* left by a failed test */
	snprintf(cmd, sizeof(cmd), "%s", data);
	if (fork() == 0)
		execlp("rm", "rm", "-rf", cmd, (char *)NULL);
	wait(NULL);
	return tap_done();
}
