/*
 * cryod: the daemon. Started by cryo-helper, unprivileged, with the data
 * folder as its working folder, the helper's socket as descriptor 3 and the
 * folder's lock as 4. Serves until SIGTERM; sandboxes go on without it.
 */
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include "core/log.h"
#include "tools/cryod/daemon.h"

#define TICK_MS 10000

static const char usage[] =
	"usage: cryod [options]     (started by `cryo up` through cryo-helper)\n"
	"  --listen ADDR:PORT   also serve the API by TCP, with API keys\n"
	"  --insecure-plain     allow --listen on an address that others reach\n"
	"  --provider-key FILE  key of all keys; default: in the data folder\n"
	"  --accel auto|kvm|tcg what runs the guests; default: auto\n"
	"  --help\n";

enum { OPT_LISTEN = 256, OPT_PLAIN, OPT_KEY, OPT_ACCEL, OPT_HELP };

/* 0, or the process's exit status + 1. */
static int main_parse(struct daemon_options *o, int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, OPT_LISTEN },
		{ "insecure-plain", no_argument, NULL, OPT_PLAIN },
		{ "provider-key", required_argument, NULL, OPT_KEY },
		{ "accel", required_argument, NULL, OPT_ACCEL },
		{ "help", no_argument, NULL, OPT_HELP },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == OPT_HELP) {
			fputs(usage, stdout);
			return 1;
		}
		o->listen = c == OPT_LISTEN ? optarg : o->listen;
		o->provider_key = c == OPT_KEY ? optarg : o->provider_key;
		o->insecure_plain = o->insecure_plain || c == OPT_PLAIN;
		if (c == OPT_ACCEL) {
			o->want_kvm = !strcmp(optarg, "kvm");
			o->want_tcg = !strcmp(optarg, "tcg");
		}
		if (c == '?' || (c == OPT_ACCEL && strcmp(optarg, "auto") &&
				 !o->want_kvm && !o->want_tcg)) {
			fputs(usage, stderr);
			return 3;
		}
	}
	if (optind < argc) {
		fputs(usage, stderr);
		return 3;
	}
	return 0;
}

/* Until a signal, or the helper's end: without it nothing can start. */
static void main_serve(struct daemon *d, int signal_fd)
{
	struct pollfd p[2] = {
		{ .fd = signal_fd, .events = POLLIN },
		{ .fd = helper_client_fd(d->helper), .events = POLLHUP },
	};

	for (;;) {
		int n = poll(p, 2, TICK_MS);

		if (n < 0 && errno != EINTR)
			return;
		daemon_tick(d);
		if (n > 0 && p[0].revents) {
			log_info("event=stopping why=signal");
			return;
		}
		if (n > 0 && p[1].revents & POLLHUP) {
			log_error("event=stopping why=\"cryo-helper ended\"");
			return;
		}
	}
}

int main(int argc, char **argv)
{
	struct daemon_options o = { 0 };
	struct daemon *d = base_alloc(sizeof(*d));
	char cwd[PATH_MAX / 2];
	sigset_t set;
	struct err e;
	int r = main_parse(&o, argc, argv), signal_fd;

	if (r)
		return r - 1;
	/* started by a descriptor, whose number older kernels make the name */
	prctl(PR_SET_NAME, "cryod");
	log_init("cryod", LOG_LEVEL_INFO);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (!getcwd(cwd, sizeof(cwd)) || signal_fd < 0) {
		log_error("event=start_failed why=\"%s\"", strerror(errno));
		return 1;
	}
	/* relative: our user may not be able to walk there from the root */
	o.data = ".";
	o.data_name = cwd;
	r = daemon_start(d, &o, &e);
	if (r < 0) {
		log_error("event=start_failed why=\"%s\"", e.msg);
		fprintf(stderr, "cryod: %s\n", e.msg);
	} else {
		log_info("event=serving data=%s listen=%s", cwd,
			 o.listen ? d->host_name : "none");
		main_serve(d, signal_fd);
	}
	daemon_stop(d);
	return r < 0;
}
