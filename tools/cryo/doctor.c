/*
 * doctor: looks at what a node needs on this machine, and at the node if one
 * runs. Each line says what is so and, where it is not good, what to do.
 */
#include "tools/cryo/beside.h"
#include "tools/cryo/cryo.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/statfs.h>
#include <sys/utsname.h>

#define DOCTOR_FREE_MIN (2ull << 30)

static const struct args_spec doctor_spec = {
	.verb = "doctor",
	.usage = "[--data DIR]",
	.about = "Checks this machine and the node on the data folder. Fails "
		 "if something that is needed is missing.",
};

enum doctor_grade { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_BAD };

struct doctor {
	struct cryo *x;
	const char *data;
	int bad;
	json_t *all; /* with --json */
};

static void PRINTF(4, 5) doctor_say(struct doctor *d, enum doctor_grade g,
				    const char *what, const char *fmt, ...)
{
	static const char *const words[] = { "ok", "note", "bad" };
	char text[256];
	va_list ap;
	json_t *o;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->bad += g == DOCTOR_BAD;
	if (!d->x->args.json) {
		printf("%-5s %-14s %s\n", words[g], what, text);
		return;
	}
	o = json_object();
	json_put_str(o, "check", what);
	json_put_str(o, "grade", words[g]);
	json_put_str(o, "text", text);
	json_array_append_new(d->all, o);
}

static void doctor_kernel(struct doctor *d)
{
	struct utsname u;
	unsigned major = 0, minor = 0;

	uname(&u);
	if (sscanf(u.release, "%u.%u", &major, &minor) != 2 || major < 6 ||
	    (major == 6 && minor < 1))
		doctor_say(d, DOCTOR_BAD, "kernel",
			   "%s: 6.1 or newer is needed", u.release);
	else if (major == 6 && minor < 7)
		doctor_say(d, DOCTOR_NOTE, "kernel",
			   "%s: dirty pages are found by comparison, which is "
			   "slower; 6.7 tracks them",
			   u.release);
	else
		doctor_say(d, DOCTOR_OK, "kernel", "%s", u.release);
}

static void doctor_root(struct doctor *d)
{
	if (geteuid() == 0)
		doctor_say(d, DOCTOR_OK, "user", "root");
	else
		doctor_say(d, DOCTOR_NOTE, "user",
			   "not root: `cryo up` needs it, and some checks "
			   "below could not look");
}

static void doctor_device(struct doctor *d, const char *what, const char *path,
			  const char *without)
{
	SCOPED_FD int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		doctor_say(d, DOCTOR_OK, what, "%s opens", path);
	else
		doctor_say(d, DOCTOR_NOTE, what, "%s: %s; %s", path,
			   strerror(errno), without);
}

static void doctor_program(struct doctor *d, const char *what, const char *path,
			   const char *get)
{
	if (access(path, X_OK) == 0)
		doctor_say(d, DOCTOR_OK, what, "%s", path);
	else
		doctor_say(d, DOCTOR_BAD, what, "%s: %s; %s", path,
			   strerror(errno), get);
}

static void doctor_siblings(struct doctor *d)
{
	static const char *const names[] = { "cryo-helper", "cryod", "cryo-vm",
					     "cryo-verify", "cryo-uffd.so" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		SCOPED_FREE char *path = beside_path(names[i]);

		if (access(path, R_OK) < 0) {
			doctor_say(d, DOCTOR_BAD, "programs",
				   "%s: %s; build with `make`", path,
				   strerror(errno));
			return;
		}
	}
	doctor_say(d, DOCTOR_OK, "programs", "all beside this one");
}

static void doctor_cgroup(struct doctor *d)
{
	struct statfs fs;

	if (access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0)
		doctor_say(d, DOCTOR_OK, "cgroup", "version 2");
	else if (statfs("/sys/fs/cgroup/memory", &fs) == 0 &&
		 fs.f_type == CGROUP_SUPER_MAGIC)
		doctor_say(d, DOCTOR_OK, "cgroup", "version 1");
	else
		doctor_say(d, DOCTOR_NOTE, "cgroup",
			   "none found: sandboxes have no memory limit and "
			   "`cryo up` wants --no-cgroup");
}

static void doctor_space(struct doctor *d)
{
	SCOPED_FREE char *dir = base_strdup(d->data);
	struct statfs fs;
	unsigned long long avail;
	char *slash;

	/* the data folder may not be there yet: look where it would be */
	while (statfs(dir, &fs) < 0) {
		slash = strrchr(dir, '/');
		if (!slash || slash == dir) {
			base_strcpy(dir, strlen(dir) + 1, "/");
			if (statfs(dir, &fs) < 0)
				return;
			break;
		}
		*slash = 0;
	}
	avail = (unsigned long long)fs.f_bavail * (unsigned long long)fs.f_bsize;
	doctor_say(d, avail < DOCTOR_FREE_MIN ? DOCTOR_BAD : DOCTOR_OK, "space",
		   "%llu MiB free under %s%s", avail >> 20, dir,
		   avail < DOCTOR_FREE_MIN ? ": 2 GiB are needed" : "");
}

static void doctor_node(struct doctor *d)
{
	SCOPED_JSON json_t *node = NULL;
	struct err e = { 0 };

	if (client_call(d->x->client, "GET", "/v1/node", NULL, &node, &e) < 0) {
		doctor_say(d, DOCTOR_NOTE, "node", "%s", e.msg);
		return;
	}
	doctor_say(d, DOCTOR_OK, "node", "version %s, backend %s (%s)",
		   cryo_text(node, "version"), cryo_text(node, "backend"),
		   cryo_text(node, "accel"));
	doctor_say(d,
		   strcmp(cryo_text(node, "accel"), "kvm") ? DOCTOR_NOTE
							   : DOCTOR_OK,
		   "isolation", "%s", cryo_text(node, "isolation"));
}

static int doctor_run(struct cryo *x, const void *opts, struct err *e)
{
	SCOPED_FREE char *data = beside_data(x->args.data);
	struct doctor d = { .x = x, .data = data };
	SCOPED_JSON json_t *all = json_array();

	(void)opts;
	(void)e;
	d.all = all;
	doctor_root(&d);
	doctor_kernel(&d);
	doctor_program(&d, "qemu", "/usr/bin/qemu-system-x86_64",
		       "install qemu-system-x86");
	doctor_device(&d, "kvm", "/dev/kvm",
		      "sandboxes are emulated (TCG), which is slow and no "
		      "wall against an attacker");
	doctor_device(&d, "userfaultfd", "/dev/userfaultfd",
		      "dirty pages are found by comparison");
	doctor_cgroup(&d);
	doctor_siblings(&d);
	doctor_space(&d);
	doctor_node(&d);
	if (x->args.json)
		cryo_print_json(all);
	return d.bad ? CRYO_EXIT_FAILED : 0;
}

const struct verb verb_doctor = {
	.spec = &doctor_spec,
	.summary = "check this machine and the node",
	.run = doctor_run,
};
