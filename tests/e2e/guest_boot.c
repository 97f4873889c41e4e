/*
 * Boots the image `tiny` in a bare QEMU, without any other part of cryo, and
 * talks to its agent: execs, files, clock, generator, identity. Then stops
 * the machine under a hold, saves it, and starts it twice from what was
 * saved: streams go on where they were, and clock, random numbers and name
 * are renewed before anything else runs.
 *
 *     guest_boot IMAGE-FOLDER SCRATCH-FOLDER
 */
#include "core/clock.h"
#include "tests/unit/agent_host.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <x86intrin.h>

#define RAM (256u << 20)
#define ARGS_MAX 64

struct vm {
	pid_t pid;
	int qmp;
	struct host h;
};

static char cmdline[1024];
static const char *image, *scratch;

/* --- starting QEMU ------------------------------------------------------------ */

static unsigned tsc_khz(void)
{
	struct timespec t = { .tv_nsec = 50000000 };
	int64_t ns0 = clock_mono(&clock_real), ns1;
	uint64_t c0 = __rdtsc(), c1;

	nanosleep(&t, NULL);
	ns1 = clock_mono(&clock_real);
	c1 = __rdtsc();
	return (unsigned)((c1 - c0) * 1000000 / (uint64_t)(ns1 - ns0));
}

/* The command line of template.json, with what depends on this host. */
static void read_cmdline(void)
{
	static char text[8192];
	char path[PATH_MAX], *at, *end;
	int fd;

	snprintf(path, sizeof(path), "%s/template.json", image);
	fd = open(path, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		bail("%s can't be read: run make image", path);
	close(fd);
	at = strstr(text, "\"cmdline\":\"");
	end = at ? strchr(at + 11, '"') : NULL;
	if (!end)
		bail("%s names no kernel command line", path);
	snprintf(cmdline, sizeof(cmdline), "%.*s tsc_early_khz=%u",
		 (int)(end - at - 11), at + 11, tsc_khz());
}

struct args {
	char *v[ARGS_MAX];
	int n;
};

static PRINTF(2, 3) void arg(struct args *a, const char *fmt, ...)
{
	va_list ap;

	if (a->n + 1 >= ARGS_MAX)
		bail("too many arguments");
	va_start(ap, fmt);
	if (vasprintf(&a->v[a->n++], fmt, ap) < 0)
		bail("no memory");
	va_end(ap);
}

/* `ram`: memfd; `state`: device state to start from, or -1 to boot. */
static void qemu_args(struct args *a, int ram, int state, int agent, int qmp,
		      const char *disk, int cpus)
{
	arg(a, "qemu-system-x86_64");
	arg(a, "-machine");
	arg(a, "microvm,accel=tcg,pit=off,pic=off,rtc=on,memory-backend=ram0");
	arg(a, "-nodefaults");
	arg(a, "-no-user-config");
	arg(a, "-no-reboot");
	arg(a, "-display");
	arg(a, "none");
	arg(a, "-m");
	arg(a, "256");
	arg(a, "-smp");
	arg(a, "%d", cpus);
	arg(a, "-object");
	arg(a,
	    "memory-backend-file,id=ram0,size=256M,share=%s,"
	    "mem-path=/proc/self/fd/%d",
	    state < 0 ? "on" : "off", ram);
	arg(a, "-chardev");
	arg(a, "socket,id=qmp,fd=%d", qmp);
	arg(a, "-mon");
	arg(a, "chardev=qmp,mode=control");
	arg(a, "-chardev");
	arg(a, "socket,id=ch0,fd=%d", agent);
	arg(a, "-device");
	arg(a, "virtio-serial-device,id=vs0,max_ports=2");
	arg(a, "-device");
	arg(a, "virtserialport,chardev=ch0,name=cryo-agent");
	arg(a, "-blockdev");
	arg(a, "driver=file,node-name=f0,filename=%s", disk);
	arg(a, "-blockdev");
	arg(a, "driver=raw,node-name=d0,file=f0");
	arg(a, "-device");
	arg(a, "virtio-blk-device,drive=d0,logical_block_size=4096,"
	       "physical_block_size=4096");
	arg(a, "-object");
	arg(a, "rng-random,id=rng0,filename=/dev/urandom");
	arg(a, "-device");
	arg(a, "virtio-rng-device,rng=rng0");
	if (state < 0) {
		arg(a, "-kernel");
		arg(a, "%s/vmlinux", image);
		arg(a, "-initrd");
		arg(a, "%s/initrd.cpio", image);
		arg(a, "-append");
		arg(a, "%s", cmdline);
	} else {
		arg(a, "-S");
		arg(a, "-global");
		arg(a, "migration.send-configuration=off");
		arg(a, "-incoming");
		arg(a, "fd:%d", state);
	}
}

static char *copy_disk(const char *from, const char *name)
{
	char *to = base_printf("%s/%s", scratch, name);
	char *cmd = base_printf("cp --sparse=always '%s' '%s'", from, to);
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		execl("/bin/sh", "sh", "-c", cmd, (char *)NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	if (status)
		bail("%s failed", cmd);
	free(cmd);
	return to;
}

static void vm_start(struct vm *vm, int ram, int state, const char *disk, int cpus)
{
	struct args a = { .n = 0 };
	int agent[2], qmp[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, agent) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, qmp))
		bail("socketpair");
	fcntl(agent[0], F_SETFD, FD_CLOEXEC);
	fcntl(qmp[0], F_SETFD, FD_CLOEXEC);
	qemu_args(&a, ram, state, agent[1], qmp[1], disk, cpus);
	vm->pid = fork();
	if (!vm->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a bail leaves none */
		execvp(a.v[0], a.v);
		_exit(127);
	}
	close(agent[1]);
	close(qmp[1]);
	for (int i = 0; i < a.n; i++)
		free(a.v[i]);
	vm->qmp = qmp[0];
	memset(&vm->h, 0, sizeof(vm->h));
	host_open(&vm->h, agent[0]);
}

static void vm_kill(struct vm *vm)
{
	host_close(&vm->h);
	kill(vm->pid, SIGKILL);
	waitpid(vm->pid, NULL, 0);
	close(vm->qmp);
}

/* --- QMP: one command, its answer; events are passed over ------------------- */

static bool qmp_answer(int fd)
{
	char line[65536];
	size_t len = 0;

	while (len + 1 < sizeof(line)) {
		if (read(fd, line + len, 1) != 1)
			return false;
		if (line[len++] != '\n')
			continue;
		line[len] = '\0';
		if (!strncmp(line, "{\"return\"", 9))
			return true;
		if (!strncmp(line, "{\"error\"", 8)) {
			printf("# %s", line);
			return false;
		}
		len = 0;
	}
	return false;
}

static bool qmp(struct vm *vm, const char *text)
{
	return base_write_all(vm->qmp, text, strlen(text)) == 0 &&
	       qmp_answer(vm->qmp);
}

/* --- what is checked ---------------------------------------------------------- */

static void check_boot(struct vm *vm)
{
	int64_t t0 = host_ms();
	struct host *h = &vm->h;
	struct host_exec *x;

	is_int(host_reset(h, true), 0, "the agent answers");
	printf("# agent ready after %lld ms\n", (long long)(host_ms() - t0));
	is_int(h->reply.hello.nr_cpus, 1, "one CPU");
	is_int(h->reply.hello.generation, 0, "no generation yet");
	x = host_run(h, "",
		     "echo hi; id -u; cat /proc/1/comm; hostname; "
		     "stat -fc %T /; exit 5");
	ok(x, "a command ran");
	is_str(host_out(x, AGENT_STDOUT), "hi\n0\ninit\ntiny\next2/ext3\n",
	       "as root, under the agent, on ext4, on host tiny");
	is_int(x->exit.code, 5, "its exit code");
	x = host_run(h, "user",
		     "id -un; pwd; cd; pwd; touch x && stat -c %u x; "
		     "cat /sys/block/vda/queue/logical_block_size");
	is_str(host_out(x, AGENT_STDOUT), "user\n/\n/home/user\n1000\n4096\n",
	       "as user, at home, on 4096-byte sectors");
	x = host_run(h, "",
		     "ping -c 1 -W 1 127.0.0.1 >/dev/null && echo up; "
		     "stat -c %a /tmp; echo x > /dev/stderr; "
		     "dmesg | grep -ci 'error\\|segfault'");
	is_str(host_out(x, AGENT_STDOUT), "up\n1777\n0\n",
	       "loopback is up, /tmp is sticky, no error in the log");
	is_str(host_out(x, AGENT_STDERR), "x\n", "/dev/stderr works");
}

/* proc(5): fields 40 and 41 of stat are real-time priority and policy */
static void check_priority(struct host *h)
{
	struct host_exec *x =
		host_run(h, "",
			 "cut -d ' ' -f 40,41 /proc/1/stat /proc/self/stat; "
			 "cat /proc/1/oom_score_adj /proc/self/oom_score_adj; "
			 "ulimit -n");

	is_str(host_out(x, AGENT_STDOUT), "50 1\n0 0\n-1000\n0\n1024\n",
	       "the agent has SCHED_FIFO 50 and is spared, others are normal");
}

static void check_files(struct host *h)
{
	struct host_exec *x;

	is_int(host_put(h, "/root/script", "#!/bin/sh\necho from a file\n", 0755),
	       0, "a script is put");
	x = host_run(h, "", "/root/script");
	is_str(host_out(x, AGENT_STDOUT), "from a file\n", "and runs");
	is_int(host_get(h, "/etc/os-release", 0), 0, "a file is got");
	ok(strstr(buf_cstr(&h->data), "ID=cryo-tiny"), "with its content");
}

static void check_output(struct host *h)
{
	int64_t t0;
	struct host_exec *x;
	double s;

	t0 = host_ms();
	x = host_run(h, "", "dd if=/dev/zero bs=64k count=512 2>/dev/null");
	s = (double)(host_ms() - t0) / 1e3;
	is_int(x->out[0].len, 32 << 20, "32 MiB of output arrive");
	ok(!x->wrong, "in order");
	printf("# output: %.1f MB/s\n", 33.6 / s);
}

static void check_orphans(struct host *h)
{
	struct host_exec *x =
		host_run(h, "",
			 "for i in 1 2 3; do (sleep 0.1 &) ; done; sleep 1; "
			 "ps -o stat | grep -c Z");

	is_str(host_out(x, AGENT_STDOUT), "0\n", "orphans are reaped");
}

static int set_time(struct host *h, int64_t wall_ns)
{
	struct agent_msg m = { .type = AGENT_SETTIME };

	m.settime.wall_ns = (uint64_t)wall_ns;
	return host_call(h, &m);
}

static void check_clock(struct host *h)
{
	const int64_t then = 1900000000 * NS_PER_S;
	struct agent_msg ping = { .type = AGENT_PING };
	int64_t off;

	is_int(set_time(h, then), 0, "the clock is set");
	ok(h->reply.settime_done.stepped, "by a step: it was years off");
	is_int(host_call(h, &ping), 0, "and read");
	off = (int64_t)h->reply.pong.wall_ns - then;
	ok(off > 0 && off < 60 * NS_PER_S, "it shows it");
	host_call(h, &ping);
	is_int(set_time(h, (int64_t)h->reply.pong.wall_ns + 100 * NS_PER_MS), 0,
	       "100 ms later");
	ok(!h->reply.settime_done.stepped, "is slewed");
	ok(h->reply.settime_done.jump_ns > -400 * NS_PER_MS &&
		   h->reply.settime_done.jump_ns < 100 * NS_PER_MS,
	   "by less than 100 ms: %lld us",
	   (long long)h->reply.settime_done.jump_ns / 1000);
}

/*
 * A hold that ends before its spinner has run: the spinner's word comes when
 * nobody waits for it, and must not keep the agent awake.
 */
static void check_short_hold(struct host *h)
{
	struct agent_msg m = { .type = AGENT_UNQUIESCE };
	struct host_exec *x;
	long before = 0, after = 0;
	struct err e;

	h->answered = false;
	agent_link_quiesce(h->l, AGENT_QUIESCE_HOLD, 0, 100, HOST_WAIT_MS,
			   host_on_reply, h, &e);
	agent_link_call(h->l, &m, 0, NULL, NULL, &e); /* no need to know */
	host_wait(h, &h->answered);
	is_int(h->ret, -ECANCELED, "a QUIESCE that was overtaken says so");
	x = host_run(h, "",
		     "ticks() { read -r _ _ _ _ _ _ _ _ _ _ _ _ _ "
		     "u s _ < /proc/1/stat; echo $((u + s)); }; "
		     "ticks; sleep 2; ticks");
	sscanf(host_out(x, AGENT_STDOUT), "%ld %ld", &before, &after);
	ok(after > 0 && after - before < 50,
	   "the agent sleeps: %ld ticks in 2 s", after - before);
}

/* --- save and restore ----------------------------------------------------------- */

static const char random_loop[] =
	"trap '' HUP; i=0; while :; do i=$((i+1)); "
	"echo $i $(head -c 16 /dev/urandom | md5sum | cut -c 1-16) "
	"$(date +%s) $(hostname); done";

static void save(struct vm *vm, int state)
{
	struct host *h = &vm->h;
	struct iovec io = { (char[]){ "x" }, 1 };
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = { { 0 } };
	struct msghdr mh = { .msg_iov = &io,
			     .msg_iovlen = 1,
			     .msg_control = u.buf,
			     .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
	char path[64], cmd[64] = "{\"execute\":\"add-fd\",\"arguments\":"
				 "{\"fdset-id\":1}}\n";
	int out;
	struct err e;
	int64_t t0 = host_ms();

	h->answered = false;
	agent_link_quiesce(h->l, AGENT_QUIESCE_SYNC | AGENT_QUIESCE_HOLD, 5000,
			   200, HOST_WAIT_MS, host_on_reply, h, &e);
	host_wait(h, &h->answered);
	ok(qmp(vm, "{\"execute\":\"stop\"}\n"), "the machine is stopped");
	printf("# quiesce, sync, hold and stop: %lld ms\n",
	       (long long)(host_ms() - t0));
	is_int(h->reply.quiesced.flags, AGENT_QUIESCE_SYNC | AGENT_QUIESCE_HOLD,
	       "it was synced and held");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", state);
	out = open(path, O_WRONLY);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &out, sizeof(int));
	io.iov_base = cmd;
	io.iov_len = strlen(cmd);
	ok(sendmsg(vm->qmp, &mh, 0) > 0 && qmp_answer(vm->qmp), "add-fd");
	close(out);
	ok(qmp(vm, "{\"execute\":\"xen-save-devices-state\",\"arguments\":"
		   "{\"filename\":\"/dev/fdset/1\",\"live\":false}}\n"),
	   "its devices are saved");
}

static int copy_ram(int ram)
{
	int copy = memfd_create("image", 0);
	void *from = mmap(NULL, RAM, PROT_READ, MAP_SHARED, ram, 0), *to;

	if (copy < 0 || ftruncate(copy, RAM) || from == MAP_FAILED)
		bail("copy of RAM");
	to = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
	if (to == MAP_FAILED)
		bail("copy of RAM");
	memcpy(to, from, RAM);
	munmap(to, RAM);
	munmap(from, RAM);
	return copy;
}

static void on_renewed(void *ctx, const struct agent_link_renewed *r)
{
	struct host *h = ctx;

	h->renewed = *r;
	h->renewed_done = true;
}

/* Orders first, then the machine goes on. */
static void resume(struct vm *vm, const char *name)
{
	struct agent_link_renew r = { .wall_ns = clock_wall(&clock_real) };
	struct host *h = &vm->h;
	char id[33];
	struct err e;
	int64_t t0;

	snprintf(id, sizeof(id), "%032x", (unsigned)(getpid() + name[0]));
	base_random(r.seed, sizeof(r.seed));
	r.generation = (struct agent_generation){ 7, AGENT_GENERATION_FORK, "s",
						  name, id };
	h->answered = false;
	is_int(agent_link_reset(h->l, false, HOST_WAIT_MS, host_on_reply, h, &e),
	       0, "RESET is queued");
	is_int(agent_link_renew(h->l, &r, HOST_WAIT_MS, on_renewed, h, &e), 0,
	       "and the orders");
	host_turn(h, 0);
	t0 = host_ms();
	ok(qmp(vm, "{\"execute\":\"cont\"}\n"), "%s goes on", name);
	ok(host_wait(h, &h->answered) && !h->ret, "its agent says HELLO");
	printf("# %s: HELLO after %lld ms\n", name, (long long)(host_ms() - t0));
	ok(host_wait(h, &h->renewed_done), "and has renewed");
	is_int(h->renewed.ret, 0, "without failure");
	is_int(h->renewed.renewed,
	       AGENT_RENEWED_CLOCK | AGENT_RENEWED_RNG |
		       AGENT_RENEWED_GENERATION | AGENT_RENEWED_HOSTNAME |
		       AGENT_RENEWED_MACHINE_ID | AGENT_RENEWED_HOOKS,
	       "clock, generator, generation, name, id, hooks");
	is_int(h->renewed.seed_bits, 512, "512 bits");
	printf("# %s: renewed %lld us after the orders were queued\n", name,
	       (long long)h->renewed.us);
}

/*
 * The third line that the loop printed in this fork. The first may have been
 * begun before the save, with numbers drawn then.
 */
static void third_line(struct host_exec *x, char *ret, size_t len)
{
	const char *at = host_out(x, AGENT_STDOUT);

	for (int i = 0; i < 2 && at; i++) {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	snprintf(ret, len, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

static void check_fork(struct vm *vm, const char *tag, uint64_t from,
		       const char *name, char *ret_line, size_t len)
{
	struct host *h = &vm->h;
	struct host_exec *x = &h->exec[h->nr_execs++], *y;
	char cat[64];
	long long stamp = 0;

	memset(x, 0, sizeof(*x));
	memcpy(x->tag, tag, ID_LEN + 1);
	resume(vm, name);
	host_wait_out(h, x, AGENT_STDOUT, 250);
	ok(x->from[0] <= from && x->next[0] > from && !x->wrong,
	   "its exec goes on at the offset where it was");
	third_line(x, ret_line, len);
	printf("# %s: %s\n", name, ret_line);
	sscanf(ret_line, "%*s %*s %lld", &stamp);
	ok(llabs(stamp - (long long)time(NULL)) < 30, "with the new time");
	y = host_run(h, "",
		     "hostname; cat /etc/machine-id | wc -c; "
		     "while [ ! -s /tmp/hook ]; do sleep 0.1; done; "
		     "cat /run/cryo/generation /tmp/hook");
	snprintf(cat, sizeof(cat),
		 "%s\n33\ngeneration=7\nsession=s\nfork=1\nran\n", name);
	is_str(host_out(y, AGENT_STDOUT), cat, "its identity is new");
}

static void check_restore(struct vm *vm, int ram, const char *disk)
{
	struct host *h = &vm->h;
	struct host_exec *x = host_sh(h, "user", 0, random_loop);
	int state = memfd_create("state", 0), image_fd;
	char line[2][256], name[16];
	struct vm fork_vm;
	uint64_t from;

	is_int(host_put(h, "/etc/cryo/fork.d/10-test",
			"#!/bin/sh\necho ran > /tmp/hook\n", 0755),
	       0, "a hook is put");
	ok(x && host_wait_out(h, x, AGENT_STDOUT, 1),
	   "a loop draws random numbers");
	save(vm, state);
	host_turn(h, 0);
	from = x->next[0];
	image_fd = copy_ram(ram);
	for (int i = 0; i < 2; i++) {
		char *own;

		snprintf(name, sizeof(name), "fork-%d", i);
		own = copy_disk(disk, name);
		lseek(state, 0, SEEK_SET);
		vm_start(&fork_vm, image_fd, state, own, 1);
		if (!qmp(&fork_vm, "{\"execute\":\"qmp_capabilities\"}\n"))
			bail("QMP");
		check_fork(&fork_vm, x->tag, from, name, line[i],
			   sizeof(line[i]));
		vm_kill(&fork_vm);
		free(own);
	}
	ok(strcmp(line[0], line[1]), "two forks draw different numbers");
	close(state);
	close(image_fd);
}

/* --- two CPUs ------------------------------------------------------------------- */

/* Prints the guest's uptime in hundredths as often as it can. */
static const char uptime_loop[] =
	"while read u rest < /proc/uptime; do echo $u; done";

/*
 * The longest time between two lines of [from, to], in ms; -1 if there is no
 * line behind `to` yet. The first line may be a piece of one.
 */
static long longest_gap(struct host_exec *x, double from, double to)
{
	const char *at = strchr(host_out(x, AGENT_STDOUT), '\n');
	double last = from, now, gap = 0;

	for (; at && strchr(at + 1, '\n') && sscanf(at, "%lf", &now) == 1;
	     at = strchr(at + 1, '\n')) {
		if (now > from && now - last > gap)
			gap = MIN(now, to) - last;
		if (now > to)
			return (long)(gap * 1000);
		last = MAX(now, from);
	}
	return -1;
}

static double uptime(struct host *h)
{
	struct agent_msg m = { .type = AGENT_PING };

	is_int(host_call(h, &m), 0, "PING");
	return (double)h->reply.pong.mono_ns / 1e9;
}

/* Held, no CPU runs user processes: all of them miss that time. */
static void check_hold(int ram, const char *disk)
{
	struct host_exec *x[4];
	struct vm vm;
	struct host *h = &vm.h;
	double from, to;
	long gap;
	struct err e;

	vm_start(&vm, ram, -1, disk, 2);
	if (!qmp(&vm, "{\"execute\":\"qmp_capabilities\"}\n"))
		bail("QMP");
	is_int(host_reset(h, true), 0, "a machine with two CPUs");
	is_int(h->reply.hello.nr_cpus, 2, "it has two");
	for (int i = 0; i < 4; i++)
		if (!(x[i] = host_sh(h, "user", 0, uptime_loop)))
			bail("loop");
	for (int i = 0; i < 4; i++)
		host_wait_out(h, x[i], AGENT_STDOUT, 100);
	from = uptime(h);
	h->answered = false;
	agent_link_quiesce(h->l, AGENT_QUIESCE_HOLD, 0, 200, HOST_WAIT_MS,
			   host_on_reply, h, &e);
	host_wait(h, &h->answered);
	is_int(h->reply.quiesced.flags, AGENT_QUIESCE_HOLD, "both are held");
	/* nobody ends it: it must end by itself */
	usleep(300000);
	h->answered = false;
	agent_link_unquiesce(h->l, HOST_WAIT_MS, host_on_reply, h, &e);
	ok(host_wait(h, &h->answered) && !h->ret, "the agent goes on");
	to = uptime(h);
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < 2000 && longest_gap(x[i], from, to) < 0; k++)
			host_turn(h, 50);
		gap = longest_gap(x[i], from, to);
		ok(gap >= 180 && !x[i]->wrong, "loop %d stood still for %ld ms",
		   i, gap);
	}
	vm_kill(&vm);
}

int main(int argc, char **argv)
{
	int ram = memfd_create("ram", 0);
	char path[PATH_MAX], *disk;
	struct vm vm;

	if (argc != 3)
		bail("usage: guest_boot IMAGE-FOLDER SCRATCH-FOLDER");
	image = argv[1];
	scratch = argv[2];
	signal(SIGPIPE, SIG_IGN);
	read_cmdline();
	if (ram < 0 || ftruncate(ram, RAM))
		bail("memfd");
	snprintf(path, sizeof(path), "%s/disk.img", image);
	disk = copy_disk(path, "boot.img");
	vm_start(&vm, ram, -1, disk, 1);
	if (!qmp(&vm, "{\"execute\":\"qmp_capabilities\"}\n"))
		bail("QMP");
	check_boot(&vm);
	if (vm.h.broken)
		bail("no agent: %s", vm.h.err.msg);
	check_priority(&vm.h);
	check_files(&vm.h);
	check_output(&vm.h);
	check_orphans(&vm.h);
	check_clock(&vm.h);
	check_short_hold(&vm.h);
	check_restore(&vm, ram, disk);
	vm_kill(&vm);
	check_hold(ram, disk);
	free(disk);
	return tap_done();
}
