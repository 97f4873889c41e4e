/*
 * cryo-helper: the only part of cryo that stays root. It builds walls and
 * starts programs behind them; it reads bytes from nobody but cryod, and
 * from cryod only requests of a fixed size.
 *
 * setup.c prepares, keeper.c keeps cryod alive, serve.c answers it, spawn.c
 * starts processes, slots.c and cgroup.c know them. This file reads options.
 */
#include "tools/helper/helper.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>

#include "core/log.h"

static const char usage[] =
	"usage: cryo-helper --data DIR [options] [-- CRYOD-ARGUMENTS...]\n"
	"Starts cryod and builds the walls of its sandboxes. `cryo up` runs "
	"it.\n"
	"  --data DIR       the data folder; cryod runs in it\n"
	"  --uid-base N     first of 2049 user ids (default: the folder's "
	"owner,\n"
	"                   or a range of its own for a new folder)\n"
	"  --restart N      start cryod again, at most N times (default 5)\n"
	"  --no-cgroup      run without memory limits where there are none\n"
	"  --cryod PATH     default: beside this program\n"
	"  --vm PATH        cryo-vm; default: beside this program\n"
	"  --preload PATH   cryo-uffd.so; default: beside this program\n"
	"  --qemu PATH      default: /usr/bin/qemu-system-x86_64\n";

enum {
	OPT_DATA = 1,
	OPT_UID,
	OPT_RESTART,
	OPT_NO_CGROUP,
	OPT_CRYOD,
	OPT_VM,
	OPT_PRELOAD,
	OPT_QEMU,
	OPT_HELP
};

static const struct option options[] = {
	{ "data", required_argument, NULL, OPT_DATA },
	{ "uid-base", required_argument, NULL, OPT_UID },
	{ "restart", required_argument, NULL, OPT_RESTART },
	{ "no-cgroup", no_argument, NULL, OPT_NO_CGROUP },
	{ "cryod", required_argument, NULL, OPT_CRYOD },
	{ "vm", required_argument, NULL, OPT_VM },
	{ "preload", required_argument, NULL, OPT_PRELOAD },
	{ "qemu", required_argument, NULL, OPT_QEMU },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

/* "DIR/NAME" where DIR is this program's folder; lives as long as we do. */
static char *beside(const char *name)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	if (n < 0)
		return base_strdup(name);
	path[n] = 0;
	slash = strrchr(path, '/');
	if (slash)
		*slash = 0;
	return base_printf("%s/%s", path, name);
}

static bool number(const char *option, const char *text, unsigned long min,
		   unsigned long max, unsigned long *ret)
{
	char *end;

	errno = 0;
	*ret = strtoul(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && !*end && !errno &&
	    *ret >= min && *ret <= max)
		return true;
	fprintf(stderr,
		"cryo-helper: --%s is \"%s\": must be a whole number from %lu to %lu\n",
		option, text, min, max);
	return false;
}

static bool take_option(struct helper_conf *c, int opt, const char *arg)
{
	unsigned long n = 0;

	switch (opt) {
	case OPT_DATA:
		c->data = arg;
		return true;
	case OPT_UID:
		if (!number("uid-base", arg, 65536, UINT32_MAX - 4096, &n))
			return false;
		c->uid_base = (uint32_t)n;
		return true;
	case OPT_RESTART:
		if (!number("restart", arg, 0, 1000, &n))
			return false;
		c->restarts = (unsigned)n;
		return true;
	case OPT_NO_CGROUP:
		c->no_cgroup = true;
		return true;
	case OPT_CRYOD:
		c->cryod = arg;
		return true;
	case OPT_VM:
		c->vm = arg;
		return true;
	case OPT_PRELOAD:
		c->preload = arg;
		return true;
	case OPT_QEMU:
		c->qemu = arg;
		return true;
	default:
		return false;
	}
}

static int parse(struct helper_conf *c, int argc, char **argv)
{
	static char name[] = "cryod";
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == OPT_HELP) {
			fputs(usage, stdout);
			exit(HELPER_EXIT_OK);
		}
		if (!take_option(c, opt, optarg))
			return -EINVAL;
	}
	if (!c->data)
		return -EINVAL;
	/* what is left are cryod's arguments, after its own name */
	argv[optind - 1] = name;
	c->argv = argv + optind - 1;
	return 0;
}

int main(int argc, char **argv)
{
	static struct helper h; /* a table of 1024 slots: not for the stack */
	struct helper_conf c = { .restarts = 5,
				 .qemu = "/usr/bin/qemu-system-x86_64" };
	struct err e = { 0 };
	int r;

	log_init("cryo-helper", LOG_LEVEL_INFO);
	c.cryod = beside("cryod");
	c.vm = beside("cryo-vm");
	c.preload = beside("cryo-uffd.so");
	if (parse(&c, argc, argv) < 0) {
		fputs(usage, stderr);
		return HELPER_EXIT_USAGE;
	}
	r = setup_run(&h, &c, &e);
	if (r != 0) {
		log_error("event=setup_failed why=\"%s\"", e.msg);
		fprintf(stderr, "cryo-helper: %s\n", e.msg);
		return r;
	}
	r = keeper_run(&h);
	cgroup_done(&h.cgroup);
	return r;
}
