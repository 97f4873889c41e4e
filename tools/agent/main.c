/*
 * cryo-agent: process 1 of the guest.
 *
 *     cryo-agent            boots the machine, then serves its port
 *     cryo-agent --fd N     serves a connected socket (tests, other drivers)
 *
 * The loop: read and carry out what the host says; then children, workers and
 * pipes; then what time has come for; then write. The host comes first in
 * each turn: after a restore its orders wait there.
 *
 * A crash of process 1 panics the guest's kernel, which ends the machine; the
 * session resumes from its last point.
 */
#include "tools/agent/agent.h"
#include "tools/agent/files.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>

#define EVENTS_MAX 64
#define PRIORITY 50
#define HUP_RETRY (100 * NS_PER_MS)

int64_t agent_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* --- epoll ------------------------------------------------------------------- */

static void agent_epoll(struct agent *a, int op, int fd, uint32_t events,
			uint64_t data)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };

	if (epoll_ctl(a->epoll, op, fd, &ev))
		base_panic("epoll", strerror(errno), __FILE__, __LINE__);
}

void agent_watch(struct agent *a, int fd, uint32_t events, uint64_t data)
{
	agent_epoll(a, EPOLL_CTL_ADD, fd, events, data);
}

void agent_rewatch(struct agent *a, int fd, uint32_t events, uint64_t data)
{
	agent_epoll(a, EPOLL_CTL_MOD, fd, events, data);
}

void agent_unwatch(struct agent *a, int fd)
{
	agent_epoll(a, EPOLL_CTL_DEL, fd, 0, 0);
}

/* --- requests that are over -------------------------------------------------- */

int past_find(const struct agent_past *p, uint64_t id, int *ret_error)
{
	for (unsigned i = 0; i < AGENT_PAST_MAX; i++)
		if (p->id[i] == id) {
			*ret_error = p->error[i];
			return 1;
		}
	return 0;
}

void past_add(struct agent_past *p, uint64_t id, int error)
{
	unsigned at = p->next++ % AGENT_PAST_MAX;

	p->id[at] = id;
	p->error[at] = error;
}

/* --- start -------------------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
	SCOPED_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		return; /* as good as not there */
}

static void read_boot_id(uint8_t ret[16])
{
	SCOPED_FD int fd =
		open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	char text[64] = "";
	unsigned nr = 0;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 36)
		return;
	for (const char *p = text; *p && nr < 32; p++) {
		const char *hex = "0123456789abcdef", *at = strchr(hex, *p);

		if (!at)
			continue;
		ret[nr / 2] = (uint8_t)(ret[nr / 2] << 4 | (at - hex));
		nr++;
	}
}

/* A new process must not find its pipes among 0, 1 and 2. */
static void fill_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	if (fd >= 3)
		close(fd);
}

static void sync_run(void *ctx, struct job *j)
{
	(void)ctx;
	(void)j;
	sync();
}

static void raise_priority(void)
{
	const struct sched_param p = { .sched_priority = PRIORITY };

	write_text("/proc/self/oom_score_adj", "-1000");
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &p))
		write_text("/dev/kmsg", "cryo-agent: no real-time priority\n");
}

static void start(struct agent *a)
{
	const struct rlimit files = { 8192, 524288 };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	a->nr_cpus = cpus > 0 && cpus <= 4096 ? (uint32_t)cpus : 1;
	setrlimit(RLIMIT_NOFILE, &files);
	fcntl(a->port, F_SETFD, FD_CLOEXEC);
	fcntl(a->port, F_SETFL, O_NONBLOCK);
	read_boot_id(a->boot_id);
	a->epoll = epoll_create1(EPOLL_CLOEXEC);
	agent_dec_init(&a->dec, AGENT_GUEST);
	exec_init(a);
	a->files = worker_new(files_run, base_alloc(sizeof(struct files_past)));
	a->sync = worker_new(sync_run, NULL);
	agent_watch(a, worker_fd(a->files), EPOLLIN, WATCH_WORKER);
	agent_watch(a, worker_fd(a->sync), EPOLLIN, WATCH_WORKER);
	agent_watch(a, a->port, EPOLLIN, WATCH_PORT);
	if (!a->machine)
		return;
	raise_priority();
	a->hold = hold_new(a->nr_cpus);
	agent_watch(a, hold_fd(a->hold), EPOLLIN, WATCH_WORKER);
}

static int child_signal_fd(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* --- loop --------------------------------------------------------------------- */

static void on_child(struct agent *a, int fd)
{
	struct signalfd_siginfo si;

	while (read(fd, &si, sizeof(si)) > 0)
		;
	exec_reap(a);
}

static void on_workers(struct agent *a)
{
	struct job *j;

	while ((j = worker_done(a->files)))
		channel_job_done(a, j);
	machine_synced(a);
}

static void dispatch(struct agent *a, uint64_t data, int child)
{
	switch ((enum agent_watch)(data & 0xff)) {
	case WATCH_PORT:
		break; /* read already; writing comes last */
	case WATCH_CHILD:
		on_child(a, child);
		break;
	case WATCH_WORKER:
		on_workers(a);
		break;
	case WATCH_DRAIN:
		stream_drain(a, (int)(data >> 8));
		break;
	case WATCH_STDOUT:
	case WATCH_STDERR:
	case WATCH_STDIN:
	case WATCH_STATUS:
		exec_event(a, data);
		break;
	}
}

/* Nobody at the other end of the port: look again in a while. */
static void port_hup(struct agent *a, int64_t now)
{
	if (!a->machine)
		exit(0); /* our socket has ended */
	if (!a->port_retry) {
		agent_unwatch(a, a->port);
		a->port_retry = now + HUP_RETRY;
	} else if (now >= a->port_retry) {
		a->port_retry = 0;
		a->port_hup = false;
		agent_watch(a, a->port, EPOLLIN, WATCH_PORT);
	}
}

static int wait_ms(struct agent *a)
{
	int64_t now = agent_now();
	int64_t next = MIN(exec_tick(a, now), machine_tick(a, now));

	if (a->port_hup)
		port_hup(a, now);
	if (a->port_retry)
		next = MIN(next, a->port_retry);
	if (next == INT64_MAX)
		return -1;
	return next <= now ? 0 : (int)((next - now) / NS_PER_MS) + 1;
}

static _Noreturn void serve(struct agent *a, int child)
{
	struct epoll_event ev[EVENTS_MAX];
	bool writing = false;

	for (;;) {
		int timeout = wait_ms(a), n;

		channel_out(a);
		if (!a->port_hup && writing != a->want_write) {
			writing = a->want_write;
			agent_rewatch(a, a->port,
				      EPOLLIN | (writing ? EPOLLOUT : 0),
				      WATCH_PORT);
		}
		n = epoll_wait(a->epoll, ev, EVENTS_MAX, timeout);
		channel_in(a);
		for (int i = 0; i < n; i++)
			dispatch(a, ev[i].data.u64, child);
	}
}

static int parse_fd(int argc, char **argv)
{
	char *end;
	long fd;

	if (argc != 3 || strcmp(argv[1], "--fd"))
		return -1;
	fd = strtol(argv[2], &end, 10);
	return *argv[2] && !*end && fd >= 0 && fd < 65536 ? (int)fd : -1;
}

int main(int argc, char **argv)
{
	static struct agent a; /* one per process, too large for a stack */
	int child;

	a.machine = getpid() == 1 && argc == 1;
	a.port = a.machine ? boot_machine() : parse_fd(argc, argv);
	if (a.port < 0) {
		fprintf(stderr, "cryo-agent: runs as process 1 of a guest, or as "
				"'cryo-agent --fd N' on a connected socket\n");
		return 2;
	}
	fill_standard_fds();
	child = child_signal_fd();
	start(&a);
	agent_watch(&a, child, EPOLLIN, WATCH_CHILD);
	serve(&a, child);
}
