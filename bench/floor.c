/*
 * floor: what the machine below cryo costs by itself, so that the benches can
 * say how much cryo adds. It drives QEMU alone, with the command line that
 * cryo uses and the image that cryo boots, without daemon, walls, tracking,
 * packs or log. Prints raw samples, "CASE VALUE" a line, in milliseconds;
 * bench/floor.sh and the others make tables of them.
 *
 *   floor boot N      from fork to the agent's first word, and to an exec's end
 *   floor freeze N    stop + save device state + cont of an idle guest
 *   floor resume N    the same as boot, by -incoming on a sealed RAM image
 *   floor exec N      an exec of `true` in a running guest, by the agent
 *   floor gaps        reads lines from standard input; prints for each the
 *                     wall clock (ms) and the time since the line before (ms)
 *
 * How: a guest is booted once, stopped, and its RAM copied through /proc into
 * a memfd, which is sealed: every start maps that privately, as cryo does.
 * The disk is cryo's own server; it has no capture here.
 *
 * Needs root (reads the VMM's memory) and the image below CRYO_BUILD. A crash
 * leaves nothing: QEMU ends with its parent, all else is in memory.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/backend/accel_probe.h"
#include "core/backend/agent_link.h"
#include "core/backend/qmp.h"
#include "core/backend/vmm_argv.h"
#include "core/clock.h"
#include "core/json.h"
#include "snapshotter/disk_nbd.h"
#include "snapshotter/guestmem.h"

#define QEMU "qemu-system-x86_64"
#define MEMORY_MIB 256u
#define WAIT_MS 120000

struct image {
	char *folder, *cmdline;
	uint32_t disk_blocks, tsc_khz;
	int ram_fd; /* -1 until taken */
	struct buf state;
};

struct machine {
	pid_t pid;
	int ram_fd;
	struct qmp *qmp;
	struct agent_link *agent;
	struct disk *disk;
	struct disk_nbd *nbd;
	bool hello, exited, broken;
};

_Noreturn static void die(const char *what, const struct err *e)
{
	fprintf(stderr, "floor: %s%s%s\n", what, e ? ": " : "", e ? e->msg : "");
	exit(1);
}

static double now_ms(void)
{
	return (double)clock_mono(&clock_real) / 1e6;
}

static void sample(const char *name, double ms)
{
	printf("%s %.3f\n", name, ms);
	fflush(stdout);
}

/* --- the image ------------------------------------------------------------ */

static int image_open(const struct image *im, const char *name)
{
	SCOPED_FREE char *path = base_printf("%s/%s", im->folder, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		fprintf(stderr, "floor: %s: %s; run `make image` first\n", path,
			strerror(errno));
		exit(1);
	}
	return fd;
}

static void image_load(struct image *im)
{
	const char *build = getenv("CRYO_BUILD"), *cmdline;
	SCOPED_JSON json_t *j = NULL;
	char text[16384];
	int64_t bytes;
	struct err e;
	ssize_t n;
	int fd;

	memset(im, 0, sizeof(*im));
	im->ram_fd = -1;
	im->folder = base_printf("%s/image/tiny", build ? build : "build");
	fd = image_open(im, "template.json");
	n = read(fd, text, sizeof(text));
	close(fd);
	if (n < 0 || json_parse(&j, text, (size_t)n, &e) ||
	    json_get_str(j, "cmdline", &cmdline, &e) ||
	    json_get_int(j, "disk_bytes", DISK_BLOCK, 1ll << 34, &bytes, &e))
		die("template.json", n < 0 ? NULL : &e);
	im->cmdline = base_strdup(cmdline);
	im->disk_blocks = (uint32_t)(bytes / DISK_BLOCK);
	if (accel_tsc_khz(&im->tsc_khz, &e))
		die("clock rate", &e);
}

static void ram_seal(int fd)
{
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
		die("seal the RAM image", NULL);
}

static int ram_new(void)
{
	int fd = memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)MEMORY_MIB << 20))
		die("memfd", NULL);
	return fd;
}

/* --- a machine ------------------------------------------------------------ */

static void on_out(void *ctx, const struct agent_out *o)
{
	(void)ctx;
	(void)o;
}

static void on_exited(void *ctx, const struct agent_exited *x)
{
	struct machine *m = ctx;
	struct err e;

	m->exited = true;
	if (x->code)
		die("the guest's `true` failed", NULL);
	if (agent_link_exit_ack(m->agent, x->tag, &e))
		die("ack", &e);
}

static void on_stdin_ack(void *ctx, const struct agent_stdin_ack *a)
{
	(void)ctx;
	(void)a;
}

static void on_broken(void *ctx, const struct err *e)
{
	struct machine *m = ctx;

	m->broken = true;
	fprintf(stderr, "floor: agent: %s\n", e->msg);
}

static const struct agent_link_ops agent_ops = { on_out, on_exited,
						 on_stdin_ack, on_broken };
static const struct disk_ops disk_ops = { NULL, NULL, NULL };

static void pair(int sv[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		die("socketpair", NULL);
}

/*
 * In the child: `fds[role]` to the number that the command line names. All
 * are moved out of the way first.
 */
_Noreturn static void qemu_exec(const struct vmm_argv *a,
				const int fds[VMM_FD_ROLES], bool quiet)
{
	int high[VMM_FD_ROLES], log = open("/dev/null", O_RDWR);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < VMM_FD_ROLES; i++)
		high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD, 64);
	for (int i = 0; i < VMM_FD_ROLES; i++)
		if (high[i] >= 0)
			dup2(high[i], VMM_FD_NUMBER(i));
	dup2(log, 0);
	dup2(log, 1);
	if (quiet) /* a stream without description is what we give it */
		dup2(log, 2);
	close_range(64, ~0u, 0);
	execvp(QEMU, a->argv);
	_exit(127);
}

static pid_t qemu_start(const struct image *im, enum vmm_mode mode,
			const int fds[VMM_FD_ROLES])
{
	struct vmm_spec s = { .memory_mib = MEMORY_MIB,
			      .vcpus = 1,
			      .accel = VMM_ACCEL_TCG,
			      .mode = (uint8_t)mode };
	struct vmm_argv a;
	uint32_t have = 0;
	struct err e;
	pid_t pid;

	if (mode == VMM_BOOT) {
		s.tsc_khz = im->tsc_khz;
		base_strcpy(s.cmdline, sizeof(s.cmdline), im->cmdline);
	}
	for (int i = 0; i < VMM_FD_ROLES; i++)
		have |= fds[i] < 0 ? 0 : VMM_FD_BIT(i);
	if (vmm_spec_check(&s, have, &e))
		die("command line", &e);
	vmm_argv_build(&a, &s, have);
	pid = fork();
	if (pid < 0)
		die("fork", NULL);
	if (!pid)
		qemu_exec(&a, fds, mode == VMM_INCOMING);
	return pid;
}

static void machine_disk(struct machine *m, const struct image *im, int sock)
{
	struct disk_config c = { .nr_blocks = im->disk_blocks,
				 .template_fd = image_open(im, "disk.img"),
				 .overlay_fd =
					 memfd_create("overlay", MFD_CLOEXEC),
				 .ops = &disk_ops };
	struct err e;

	if (disk_new(&m->disk, &c, &e) ||
	    disk_nbd_new(&m->nbd, m->disk, sock, NULL, NULL, &e))
		die("disk", &e);
}

/* Where QEMU saves device state to: a memfd, write-only for it. */
static void machine_state_file(struct machine *m)
{
	int rd = memfd_create("state", MFD_CLOEXEC), wr;
	SCOPED_FREE char *path = base_printf("/proc/self/fd/%d", rd);
	struct err e;

	wr = open(path, O_WRONLY | O_CLOEXEC);
	if (rd < 0 || wr < 0)
		die("memfd", NULL);
	if (qmp_set_state_file(m->qmp, wr, rd, WAIT_MS, &e))
		die("state file", &e);
}

/* `ram_fd` is sealed and stays the caller's. */
static void machine_start(struct machine *m, const struct image *im,
			  enum vmm_mode mode, int ram_fd)
{
	int fds[VMM_FD_ROLES], qmp[2], agent[2], nbd[2];
	struct err e;

	memset(m, 0, sizeof(*m));
	for (int i = 0; i < VMM_FD_ROLES; i++)
		fds[i] = -1;
	pair(qmp);
	pair(agent);
	pair(nbd);
	machine_disk(m, im, nbd[0]);
	fds[VMM_FD_RAM] = m->ram_fd = ram_fd;
	fds[VMM_FD_QMP] = qmp[1];
	fds[VMM_FD_AGENT] = agent[1];
	fds[VMM_FD_NBD] = nbd[1];
	if (mode == VMM_BOOT) {
		fds[VMM_FD_KERNEL] = image_open(im, "vmlinux");
		fds[VMM_FD_INITRD] = image_open(im, "initrd.cpio");
	}
	m->pid = qemu_start(im, mode, fds);
	for (int i = 0; i < VMM_FD_ROLES; i++)
		if (i != VMM_FD_RAM && fds[i] >= 0)
			close(fds[i]);
	m->qmp = qmp_new(qmp[0], NULL, NULL);
	m->agent = agent_link_new(agent[0], &agent_ops, m);
	if (qmp_handshake(m->qmp, WAIT_MS, &e))
		die("QEMU does not greet", &e);
}

static void machine_end(struct machine *m)
{
	kill(m->pid, SIGKILL);
	waitpid(m->pid, NULL, 0);
	agent_link_free(m->agent);
	qmp_free(m->qmp);
	disk_nbd_free(m->nbd);
	disk_free(m->disk);
}

/* Serves the agent's channel until *flag. */
static void machine_until(struct machine *m, const bool *flag)
{
	double end = now_ms() + WAIT_MS;

	while (!*flag) {
		struct pollfd p = { .fd = agent_link_fd(m->agent) };
		uint32_t events = agent_link_events(m->agent);

		if (m->broken || now_ms() > end)
			die("the agent does not answer", NULL);
		p.events = (short)((events & EPOLLIN ? POLLIN : 0) |
				   (events & EPOLLOUT ? POLLOUT : 0));
		poll(&p, 1, 100);
		agent_link_ready(m->agent,
				 (p.revents & POLLIN ? EPOLLIN : 0u) |
					 (p.revents & POLLOUT ? EPOLLOUT : 0u) |
					 (p.revents & POLLHUP ? EPOLLHUP : 0u));
		agent_link_tick(m->agent);
	}
}

static void on_hello(void *ctx, int ret, const struct agent_msg *msg,
		     const struct err *e)
{
	struct machine *m = ctx;

	(void)msg;
	if (ret)
		die("hello", e);
	m->hello = true;
}

static void on_started(void *ctx, int ret, const struct agent_msg *msg,
		       const struct err *e)
{
	(void)ctx;
	(void)msg;
	if (ret)
		die("exec", e);
}

/* Asks for the agent's hello, lets the machine go, waits for the answer. */
static void machine_go(struct machine *m, bool clean)
{
	struct err e;

	if (agent_link_reset(m->agent, clean, WAIT_MS, on_hello, m, &e))
		die("reset", &e);
	agent_link_ready(m->agent, EPOLLOUT);
	if (qmp_vm_cont(m->qmp, WAIT_MS, &e))
		die("cont", &e);
	machine_until(m, &m->hello);
}

static void machine_exec(struct machine *m)
{
	static const char *const argv[] = { "/bin/true", NULL };
	struct id tag;
	struct err e;

	id_new(&tag);
	m->exited = false;
	if (agent_link_exec(m->agent, tag.s, 0, "root", "/", argv, NULL,
			    WAIT_MS, on_started, m, &e))
		die("exec", &e);
	machine_until(m, &m->exited);
}

/* --- the RAM image -------------------------------------------------------- */

static int proc_open(pid_t pid, const char *name)
{
	SCOPED_FREE char *path = base_printf("/proc/%d/%s", pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die("open the VMM's memory (are you root?)", NULL);
	return fd;
}

static bool page_is_zero(const uint8_t *page)
{
	return !page[0] && !memcmp(page, page + 1, CRYO_PAGE - 1);
}

/* The stopped machine's RAM into a sealed memfd; zero pages stay holes. */
static int ram_copy(const struct machine *m)
{
	SCOPED_FD int maps = proc_open(m->pid, "maps");
	static uint8_t chunk[256 * CRYO_PAGE];
	int to = ram_new(), mem = proc_open(m->pid, "mem");
	struct guestmem *g;
	struct err e;

	if (guestmem_open(&g, mem, maps, m->ram_fd, &e))
		die("guest memory", &e);
	for (uint32_t p = 0; p < guestmem_pages(g); p += 256) {
		if (guestmem_read(g, p, 256, chunk, &e))
			die("guest memory", &e);
		for (uint32_t i = 0; i < 256; i++)
			if (!page_is_zero(chunk + i * CRYO_PAGE) &&
			    base_pwrite_all(to, chunk + i * CRYO_PAGE, CRYO_PAGE,
					    (uint64_t)(p + i) * CRYO_PAGE))
				die("copy guest memory", NULL);
	}
	guestmem_free(g);
	ram_seal(to);
	return to;
}

static void machine_boot(struct machine *m, const struct image *im)
{
	int ram = ram_new();

	ram_seal(ram);
	machine_start(m, im, VMM_BOOT, ram);
	machine_go(m, true);
}

/* Boots once and keeps RAM and device state, as a park does. */
static void image_park(struct image *im)
{
	struct machine m;
	struct err e;

	machine_boot(&m, im);
	machine_state_file(&m);
	machine_exec(&m);
	if (qmp_vm_stop(m.qmp, WAIT_MS, &e) ||
	    qmp_vm_save_devices(m.qmp, &im->state, WAIT_MS, &e))
		die("save", &e);
	im->ram_fd = ram_copy(&m);
	close(m.ram_fd);
	machine_end(&m);
}

/* --- the measurements ----------------------------------------------------- */

static void do_boot(struct image *im, int n)
{
	for (int i = 0; i < n; i++) {
		double start = now_ms();
		struct machine m;

		machine_boot(&m, im);
		sample("floor-boot-reply", now_ms() - start);
		machine_exec(&m);
		sample("floor-boot-exec", now_ms() - start);
		close(m.ram_fd);
		machine_end(&m);
	}
}

static void do_resume(struct image *im, int n)
{
	struct err e;

	image_park(im);
	for (int i = 0; i < n; i++) {
		double start = now_ms();
		struct machine m;

		machine_start(&m, im, VMM_INCOMING, im->ram_fd);
		sample("floor-start", now_ms() - start);
		if (qmp_vm_load_devices(m.qmp, im->state.p, im->state.len,
					WAIT_MS, &e))
			die("load", &e);
		machine_go(&m, false);
		sample("floor-resume-reply", now_ms() - start);
		machine_exec(&m);
		sample("floor-resume-exec", now_ms() - start);
		machine_end(&m);
	}
}

static void freeze_once(struct machine *m)
{
	SCOPED(buf_done) struct buf state = { 0 };
	double t[4] = { now_ms() };
	struct err e;

	if (qmp_vm_stop(m->qmp, WAIT_MS, &e))
		die("stop", &e);
	t[1] = now_ms();
	if (qmp_vm_save_devices(m->qmp, &state, WAIT_MS, &e))
		die("save", &e);
	t[2] = now_ms();
	if (qmp_vm_cont(m->qmp, WAIT_MS, &e))
		die("cont", &e);
	t[3] = now_ms();
	sample("floor-stop", t[1] - t[0]);
	sample("floor-save", t[2] - t[1]);
	sample("floor-cont", t[3] - t[2]);
	sample("floor-freeze", t[3] - t[0]);
}

static void do_freeze(struct image *im, int n)
{
	struct machine m;

	machine_boot(&m, im);
	machine_state_file(&m);
	for (int i = 0; i < n; i++) {
		machine_exec(&m); /* the guest has run in between */
		freeze_once(&m);
	}
	close(m.ram_fd);
	machine_end(&m);
}

static void do_exec(struct image *im, int n)
{
	struct machine m;

	machine_boot(&m, im);
	machine_exec(&m);
	for (int i = 0; i < n; i++) {
		double start = now_ms();

		machine_exec(&m);
		sample("floor-exec", now_ms() - start);
	}
	close(m.ram_fd);
	machine_end(&m);
}

static int do_gaps(void)
{
	double last = now_ms();
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		double now = now_ms();

		printf("%lld %.3f\n",
		       (long long)(clock_wall(&clock_real) / NS_PER_MS),
		       now - last);
		fflush(stdout);
		last = now;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*fn)(struct image *im, int n);
	} cases[] = { { "boot", do_boot },
		      { "freeze", do_freeze },
		      { "resume", do_resume },
		      { "exec", do_exec } };
	int n = argc == 3 ? (int)strtol(argv[2], NULL, 10) : 0;
	struct image im;

	if (argc == 2 && !strcmp(argv[1], "gaps"))
		return do_gaps();
	for (size_t i = 0; i < ARRAY_LEN(cases) && n > 0; i++)
		if (!strcmp(argv[1], cases[i].name)) {
			signal(SIGPIPE, SIG_IGN);
			image_load(&im);
			cases[i].fn(&im, n);
			return 0;
		}
	fprintf(stderr, "usage: floor boot|freeze|resume|exec N, floor gaps\n");
	return 2;
}
