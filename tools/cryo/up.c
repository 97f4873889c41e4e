/*
 * up: starts a node in the foreground: the helper, which starts the daemon;
 * puts the template that was built beside this program into the data folder;
 * says when the node is ready; ends when the helper does.
 *
 * How it works: one child, watched by waiting for signals. While the daemon
 * is not ready we ask it for its health every READY_STEP_MS.
 *
 * Invariants: what is wrong with the options, the user or the port is said
 * before anything is started; SIGINT and SIGTERM are passed on to the
 * helper; our end is its end. Sandboxes go on running when a node stops.
 */
#include "tools/cryo/beside.h"
#include "tools/cryo/stage.h"

#include "api/listen.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define READY_STEP_MS 100
#define READY_MS 60000
#define UP_ARGS_MAX 20

struct up_opts {
	const char *listen;
	bool insecure_plain, no_cgroup;
	const char *restart, *accel, *provider_key;
};

static const struct args_opt up_options[] = {
	{ .name = "listen",
	  .kind = ARGS_TEXT,
	  .value = "ADDR:PORT",
	  .help = "also serve the API by TCP, for API keys",
	  .at = offsetof(struct up_opts, listen) },
	{ .name = "insecure-plain",
	  .kind = ARGS_FLAG,
	  .help = "allow --listen beyond loopback, without TLS",
	  .at = offsetof(struct up_opts, insecure_plain) },
	{ .name = "no-cgroup",
	  .kind = ARGS_FLAG,
	  .help = "run without memory limits where there are none",
	  .at = offsetof(struct up_opts, no_cgroup) },
	{ .name = "provider-key",
	  .kind = ARGS_TEXT,
	  .value = "FILE",
	  .help = "the key of all keys; default: in the data folder",
	  .at = offsetof(struct up_opts, provider_key) },
	{ .name = "accel",
	  .kind = ARGS_TEXT,
	  .value = "auto|kvm|tcg",
	  .help = "what runs the guests",
	  .at = offsetof(struct up_opts, accel) },
	{ .name = "restart",
	  .kind = ARGS_TEXT,
	  .value = "N",
	  .help = "start a daemon that was killed again, N times",
	  .at = offsetof(struct up_opts, restart) },
};

static const struct args_spec up_spec = {
	.verb = "up",
	.usage = "[--data DIR] [--listen ADDR:PORT]",
	.about = "Starts a node on a data folder and stays in the foreground. "
		 "Stopping it stops no sandbox.",
	.opts = up_options,
	.nr_opts = ARRAY_LEN(up_options),
};

/* The same checks that the daemon makes, where a person sees them. */
static int up_check(const struct up_opts *o, struct err *e)
{
	struct listen_addr addr;
	int fd, r;

	if (geteuid() != 0)
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "a node is started by root: it makes users, "
			       "namespaces and cgroups for its sandboxes; run "
			       "it with sudo");
	if (!o->listen)
		return 0;
	r = listen_addr_parse(&addr, o->listen, e);
	if (r == 0)
		r = listen_tcp(&addr, o->insecure_plain, &fd, e);
	if (r == 0)
		close(fd);
	return r;
}

/*
 * In the child. A node that nobody holds any more could be neither stopped nor
 * started again: the helper is told to stop when we end, however we end.
 */
static void up_exec(const char *helper, const struct up_opts *o,
		    const char *data, pid_t up, const sigset_t *old)
{
	const char *argv[UP_ARGS_MAX];
	int n = 0;

	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != up)
		_exit(127);

	argv[n++] = helper;
	argv[n++] = "--data";
	argv[n++] = data;
	if (o->no_cgroup)
		argv[n++] = "--no-cgroup";
	if (o->restart) {
		argv[n++] = "--restart";
		argv[n++] = o->restart;
	}
	argv[n++] = "--";
	if (o->listen) {
		argv[n++] = "--listen";
		argv[n++] = o->listen;
	}
	if (o->provider_key) {
		argv[n++] = "--provider-key";
		argv[n++] = o->provider_key;
	}
	if (o->accel) {
		argv[n++] = "--accel";
		argv[n++] = o->accel;
	}
	if (o->insecure_plain)
		argv[n++] = "--insecure-plain";
	argv[n] = NULL;
	sigprocmask(SIG_SETMASK, old, NULL);
	signal(SIGPIPE, SIG_DFL);
	execv(helper, (char *const *)(uintptr_t)argv);
	fprintf(stderr, "cryo up: starting %s: %s\n", helper, strerror(errno));
	_exit(127);
}

static bool up_healthy(struct client *c)
{
	struct err e;

	return client_call(c, "GET", "/healthz", NULL, NULL, &e) == 0;
}

static int up_status(int status, const char *data, struct err *e)
{
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	if (WIFSIGNALED(status))
		return err_set(e, -EIO, ERR_INTERNAL,
			       "the helper was killed by signal %d; sandboxes "
			       "go on, start the node again",
			       WTERMSIG(status));
	return err_set(e, -EIO, ERR_INTERNAL,
		       "the node on %s ended with status %d; see the lines "
		       "above",
		       data, WEXITSTATUS(status));
}

struct up {
	pid_t helper;
	struct client *client;
	const char *data;
	int waited_ms;
	bool ready, late, staged;
	char digest[STAGE_DIGEST_LEN + 1]; /* of the template put in place */
};

/*
 * Puts our template into the data folder as soon as there is one: a daemon
 * that has to try out KVM waits for it. What goes wrong is said, and the node
 * goes on without.
 */
static void up_stage(struct up *u)
{
	SCOPED_FREE char *folder = base_printf("%s/templates", u->data);
	SCOPED_FREE char *from = beside_path("image/tiny");
	SCOPED_FREE char *json = base_printf("%s/template.json", from);
	struct err e = { 0 };

	if (u->staged || access(folder, F_OK) < 0)
		return;
	u->staged = true;
	if (access(json, R_OK) < 0)
		return;
	if (stage_template(u->data, from, u->digest, &e) < 0) {
		u->digest[0] = 0;
		fprintf(stderr, "cryo up: the template in %s: %s\n", from, e.msg);
	}
}

static void up_register(struct up *u)
{
	struct err e = { 0 };

	if (u->digest[0] && stage_register(u->client, u->digest, &e) < 0)
		fprintf(stderr, "cryo up: template %s: %s\n", u->digest, e.msg);
}

static void up_look(struct up *u)
{
	u->waited_ms += READY_STEP_MS;
	up_stage(u);
	if (up_healthy(u->client)) {
		u->ready = true;
		up_register(u);
		fprintf(stderr, "cryo up: ready on %s\n", u->data);
	} else if (u->waited_ms >= READY_MS && !u->late) {
		u->late = true;
		fprintf(stderr,
			"cryo up: the daemon is not ready after %d s; "
			"still waiting\n",
			READY_MS / 1000);
	}
}

static int up_watch(struct up *u, const sigset_t *set, struct err *e)
{
	struct timespec step = { 0, READY_STEP_MS * 1000000L };

	for (;;) {
		int nr = u->ready ? sigwaitinfo(set, NULL)
				  : sigtimedwait(set, NULL, &step);
		int status;

		if (nr < 0 && errno == EAGAIN) {
			up_look(u);
		} else if (nr == SIGCHLD) {
			if (waitpid(u->helper, &status, WNOHANG) == u->helper)
				return up_status(status, u->data, e);
		} else if (nr > 0) {
			kill(u->helper, SIGTERM);
		}
	}
}

static int up_run(struct cryo *x, const void *opts, struct err *e)
{
	SCOPED_FREE char *data = beside_data(x->args.data), *helper = NULL;
	SCOPED_CLIENT struct client *client = NULL;
	struct up u = { .data = data };
	sigset_t set, old;
	pid_t up = getpid();
	int r = up_check(opts, e);

	if (r == 0)
		r = beside_program("cryo-helper", &helper, e);
	if (r == 0)
		r = client_new(&client, data, e);
	if (r < 0)
		return r;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &old);
	u.helper = fork();
	if (u.helper < 0)
		return err_sys(e, errno, "starting a process");
	if (u.helper == 0)
		up_exec(helper, opts, data, up, &old);
	u.client = client;
	return up_watch(&u, &set, e);
}

const struct verb verb_up = {
	.spec = &up_spec,
	.summary = "start a node in the foreground",
	.opts_size = sizeof(struct up_opts),
	.offline = true,
	.run = up_run,
};
