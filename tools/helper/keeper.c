/*
 * keeper: cryod's life: start, serve, notice its end, start again.
 *
 * cryod's end never touches a sandbox: cryo-vm and QEMU go on. A cryod that
 * died by a signal is started again, after a pause that doubles, at most a
 * number of times; one that ended with a status had its reasons (a port in
 * use, a broken log) and is not.
 *
 *  1. At most one cryod at a time, and none without the lock.
 *  2. SIGTERM, SIGINT and SIGHUP of ours become SIGTERM of cryod; it decides
 *     what becomes of the sandboxes, and is served until it has ended. The
 *     second signal, or GRACE_MS later, ends it the hard way.
 *
 * If the helper dies cryod sees its socket's end; sandboxes go on.
 */
#include "tools/helper/helper.h"

#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"

#define GRACE_MS 120000 /* suspending every session takes its time */
#define PAUSE_MS 200
#define PAUSE_MAX_MS 5000
#define STEADY_NS (60 * NS_PER_S) /* lived this long: count anew */

struct keeper {
	struct helper *h;
	struct proc cryod;
	int sock;
	bool serving;
	bool stopping;
	int64_t kill_at; /* while stopping */
};

static const struct spawn_limit cryod_limits[] = {
	{ RLIMIT_CORE, 0 },
	{ RLIMIT_NOFILE, 65536 },
};

static int start_cryod(struct keeper *k, struct err *e)
{
	struct helper *h = k->h;
	struct spawn s = {
		.name = "cryod",
		.uid = h->uid_base,
		.exec_fd = h->cryod_fd,
		.root_fd = -1,
		.inside_pidfd = -1,
		.cwd_fd = h->data_fd,
		.argv = h->conf->argv,
		.limits = cryod_limits,
		.nr_limits = ARRAY_LEN(cryod_limits),
	};
	char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", level[48];
	char *env[] = { path, NULL, NULL };
	const char *log = getenv("CRYO_LOG");
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "socketpair for cryod");
	if (log) {
		snprintf(level, sizeof(level), "CRYO_LOG=%.32s", log);
		env[1] = level;
	}
	s.env = env;
	spawn_add_fd(&s, h->null_fd, 0);
	spawn_add_fd(&s, 1, 1);
	spawn_add_fd(&s, 2, 2);
	spawn_add_fd(&s, pair[1], HELPER_CRYOD_FD);
	spawn_add_fd(&s, h->vmm_fd, HELPER_CRYOD_LOCK_FD);
	r = spawn_start(&s, &k->cryod, e);
	close(pair[1]);
	if (r < 0)
		close(pair[0]);
	else
		k->sock = pair[0];
	return r;
}

static void watch(struct keeper *k)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = k->sock };

	epoll_ctl(k->h->epoll_fd, EPOLL_CTL_ADD, k->sock, &ev);
	slots_watch(k->h->epoll_fd, &k->cryod);
	k->serving = true;
}

static void stop_serving(struct keeper *k)
{
	if (!k->serving)
		return;
	epoll_ctl(k->h->epoll_fd, EPOLL_CTL_DEL, k->sock, NULL);
	close(k->sock);
	k->serving = false;
}

static void take_signal(struct keeper *k)
{
	struct signalfd_siginfo si;
	int64_t now = clock_mono(&clock_real);

	if (read(k->h->signal_fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	if (k->stopping)
		k->kill_at = now;
	else
		k->kill_at = now + GRACE_MS * NS_PER_MS;
	k->stopping = true;
	if (k->cryod.pid)
		syscall(SYS_pidfd_send_signal, k->cryod.pidfd,
			k->kill_at <= now ? SIGKILL : SIGTERM, NULL, 0);
}

/* Some process of a slot has ended: forget it, free its group. */
static void tidy_slots(struct helper *h, int pidfd)
{
	for (unsigned i = 0; i < HELPER_SLOTS; i++) {
		struct slot *s = &h->slots[i];

		if (!(s->vm.pid && s->vm.pidfd == pidfd) &&
		    !(s->vmm.pid && s->vmm.pidfd == pidfd))
			continue;
		if (slots_reap(s))
			cgroup_remove(&h->cgroup, i);
		return;
	}
}

static void dispatch(struct keeper *k, int fd)
{
	if (fd == k->h->signal_fd)
		take_signal(k);
	else if (k->serving && fd == k->sock) {
		if (serve_one(k->h, k->sock) < 0)
			stop_serving(k);
	} else if (fd != k->cryod.pidfd)
		tidy_slots(k->h, fd);
}

/* How long epoll may sleep: until a stopping cryod's patience ends. */
static int sleep_ms(const struct keeper *k)
{
	int64_t left;

	if (!k->stopping)
		return -1;
	left = k->kill_at - clock_mono(&clock_real);
	return left <= 0 ? 1000 : (int)(left / NS_PER_MS) + 1;
}

/* Serves until cryod has ended; returns its wait status. */
static int live(struct keeper *k)
{
	siginfo_t si = { 0 };

	for (;;) {
		struct epoll_event ev[16];
		int n = epoll_wait(k->h->epoll_fd, ev, 16, sleep_ms(k));

		for (int i = 0; i < n; i++)
			dispatch(k, ev[i].data.fd);
		if (k->stopping && clock_mono(&clock_real) >= k->kill_at)
			syscall(SYS_pidfd_send_signal, k->cryod.pidfd, SIGKILL,
				NULL, 0);
		if (waitid(P_PIDFD, (id_t)k->cryod.pidfd, &si,
			   WEXITED | WNOHANG) == 0 &&
		    si.si_pid)
			break;
	}
	stop_serving(k);
	close(k->cryod.pidfd);
	k->cryod = (struct proc){ .pidfd = -1 };
	return si.si_code == CLD_EXITED ? si.si_status : 128 + si.si_status;
}

/* Sleeps unless told to stop; sandboxes that end are tidied meanwhile. */
static void pause_ms(struct keeper *k, int ms)
{
	int64_t end = clock_mono(&clock_real) + ms * NS_PER_MS;

	while (!k->stopping && clock_mono(&clock_real) < end) {
		struct epoll_event ev[16];
		int n = epoll_wait(k->h->epoll_fd, ev, 16, ms);

		for (int i = 0; i < n; i++)
			dispatch(k, ev[i].data.fd);
	}
}

/* The exit status that cryod's end means, or -1: start it again. */
static int judge(const struct keeper *k, int status, unsigned used)
{
	if (status == 0)
		return HELPER_EXIT_OK;
	if (status < 128) {
		log_error("event=cryod_ended status=%d", status);
		return HELPER_EXIT_CRYOD;
	}
	log_error("event=cryod_killed signal=%d restarts_left=%u", status - 128,
		  k->h->conf->restarts - used);
	if (k->stopping || used >= k->h->conf->restarts)
		return HELPER_EXIT_KILLED;
	return -1;
}

int keeper_run(struct helper *h)
{
	struct keeper k = { .h = h, .cryod.pidfd = -1 };
	int pause = PAUSE_MS, verdict = -1;
	unsigned used = 0;

	while (verdict < 0) {
		int64_t born = clock_mono(&clock_real);
		struct err e = { 0 };

		if (start_cryod(&k, &e) < 0) {
			log_error("event=cryod_start_failed why=\"%s\"", e.msg);
			return HELPER_EXIT_SETUP;
		}
		watch(&k);
		log_info("event=cryod_started pid=%d uid=%u", (int)k.cryod.pid,
			 h->uid_base);
		verdict = judge(&k, live(&k), used);
		if (verdict >= 0)
			break;
		if (clock_mono(&clock_real) - born > STEADY_NS) {
			used = 0;
			pause = PAUSE_MS;
		}
		used++;
		pause_ms(&k, pause);
		pause = MIN(pause * 2, PAUSE_MAX_MS);
		if (k.stopping)
			verdict = HELPER_EXIT_KILLED;
	}
	return verdict;
}
