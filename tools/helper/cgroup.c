/*
 * cgroup: memory and process limits of one slot, in either layout.
 *
 * v2: <mount>/cryo/TAG/SLOT with both controllers. v1: the same below our
 * own group in the memory and in the pids hierarchy. TAG names the data
 * folder, so that two of them on one host don't meet.
 *
 *  1. A slot's processes join before they execute anything foreign.
 *  2. Guest memory is not swapped out: swap is storage, and guest bytes
 *     reach storage only sealed.
 *
 * A crash leaves empty groups; the slot's next use takes them over.
 *
 * Sources: Linux Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/.
 */
#include "tools/helper/helper.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/buf.h"

#define PIDS_MAX "512"
#define FILE_MAX (1u << 20)
#define PATH_LEN 512

static int read_text(const char *path, struct buf *b)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t n = read(fd, buf_reserve(b, 4096), 4096);

		if (n <= 0)
			return n < 0 ? -errno : 0;
		b->len += (size_t)n;
		if (b->len > FILE_MAX)
			return -E2BIG;
	}
}

static int write_at(int dir, const char *file, const char *text)
{
	SCOPED_FD int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return base_write_all(fd, text, strlen(text));
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static bool has_word(const char *list, const char *word, char separator)
{
	size_t len = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += len)
		if ((p == list || p[-1] == separator) &&
		    (p[len] == separator || p[len] == 0 || p[len] == '\n'))
			return true;
	return false;
}

/*
 * Mount point of a cgroup file system: v1 by controller, v2 by NULL.
 * "36 35 98:0 /root /point options ... - type source superoptions"
 */
static bool find_mount(const char *mountinfo, const char *controller,
		       char ret[PATH_LEN])
{
	for (const char *l = mountinfo; l && *l;
	     l = strchr(l, '\n') ? strchr(l, '\n') + 1 : NULL) {
		char point[PATH_LEN], type[32], super[PATH_LEN];
		const char *tail = strstr(l, " - ");
		const char *end = strchr(l, '\n');

		if (!tail || (end && tail > end) ||
		    sscanf(l, "%*d %*d %*s %*s %511s", point) != 1 ||
		    sscanf(tail, " - %31s %*s %511s", type, super) != 2)
			continue;
		if (controller ? strcmp(type, "cgroup") == 0 &&
					 has_word(super, controller, ',')
			       : strcmp(type, "cgroup2") == 0)
			return base_strcpy(ret, PATH_LEN, point);
	}
	return false;
}

/* Our own group in a v1 hierarchy: "4:memory:/path" */
static void own_path(const char *cgroups, const char *controller,
		     char ret[PATH_LEN])
{
	char names[128], path[PATH_LEN];

	base_strcpy(ret, PATH_LEN, "");
	for (const char *l = cgroups; l && *l;
	     l = strchr(l, '\n') ? strchr(l, '\n') + 1 : NULL)
		if (sscanf(l, "%*d:%127[^:]:%511[^\n]", names, path) == 2 &&
		    has_word(names, controller, ','))
			base_strcpy(ret, PATH_LEN,
				    strcmp(path, "/") != 0 ? path : "");
}

/* mkdir and open of "parent/name" */
static int enter(int parent, const char *name, struct err *e)
{
	int fd;

	if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
		return err_sys(e, errno, "mkdir of cgroup %s", name);
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, errno, "open of cgroup %s", name) : fd;
}

/* "base/cryo/TAG"; v2 hands the controllers down on the way. */
static int make_tree(int base, const char *tag, bool v2, struct err *e)
{
	static const char controllers[] = "+memory +pids";
	SCOPED_FD int cryo = -1;
	int tree, r = 0;

	if (v2)
		r = write_at(base, "cgroup.subtree_control", controllers);
	if (r < 0)
		return err_sys(e, -r, "handing down memory and pids in cgroup2");
	cryo = enter(base, "cryo", e);
	if (cryo < 0)
		return cryo;
	if (v2)
		r = write_at(cryo, "cgroup.subtree_control", controllers);
	tree = r < 0 ? r : enter(cryo, tag, e);
	if (tree >= 0 && v2)
		r = write_at(tree, "cgroup.subtree_control", controllers);
	if (r < 0)
		return err_sys(e, -r, "handing down memory and pids in cgroup2");
	return tree;
}

static int init_v2(struct cgroup *c, const char *mount, const char *tag,
		   struct err *e)
{
	SCOPED_FD int base = open_dir(mount);
	int tree;

	if (base < 0)
		return err_sys(e, -base, "open of %s", mount);
	tree = make_tree(base, tag, true, e);
	if (tree < 0)
		return tree;
	c->v2 = true;
	c->nr = 1;
	c->trees[0] = tree;
	return 0;
}

static int init_v1(struct cgroup *c, const char *mountinfo, const char *cgroups,
		   const char *tag, struct err *e)
{
	static const char *const controllers[CGROUP_TREES] = { "memory", "pids" };

	for (unsigned i = 0; i < CGROUP_TREES; i++) {
		char mount[PATH_LEN], own[PATH_LEN], path[2 * PATH_LEN];
		SCOPED_FD int base = -1;
		int tree;

		if (!find_mount(mountinfo, controllers[i], mount))
			return err_set(e, -ENOTSUP, ERR_INVALID,
				       "no cgroup hierarchy with %s is "
				       "mounted",
				       controllers[i]);
		own_path(cgroups, controllers[i], own);
		snprintf(path, sizeof(path), "%s%s", mount, own);
		base = open_dir(path);
		if (base < 0) /* our path is outside of this namespace */
			base = open_dir(mount);
		if (base < 0)
			return err_sys(e, -base, "open of %s", mount);
		tree = make_tree(base, tag, false, e);
		if (tree < 0)
			return tree;
		c->trees[c->nr++] = tree;
	}
	return 0;
}

int cgroup_init(struct cgroup *c, const char *tag, struct err *e)
{
	SCOPED(buf_done) struct buf info = { 0 }, own = { 0 }, list = { 0 };
	char mount[PATH_LEN], path[PATH_LEN + 32];
	int r = read_text("/proc/self/mountinfo", &info);

	*c = (struct cgroup){ .trees = { -1, -1 } };
	base_strcpy(c->tag, sizeof(c->tag), tag);
	if (r == 0)
		r = read_text("/proc/self/cgroup", &own);
	if (r < 0)
		return err_sys(e, -r, "read of our cgroups below /proc/self");
	if (find_mount(buf_cstr(&info), NULL, mount)) {
		snprintf(path, sizeof(path), "%s/cgroup.controllers", mount);
		if (read_text(path, &list) == 0 &&
		    has_word(buf_cstr(&list), "memory", ' ') &&
		    has_word(buf_cstr(&list), "pids", ' '))
			return init_v2(c, mount, tag, e);
	}
	return init_v1(c, buf_cstr(&info), buf_cstr(&own), tag, e);
}

/* --- a slot --------------------------------------------------------------- */

static const struct {
	unsigned tree;
	bool v2;
	bool optional; /* not every kernel has it */
	const char *file, *value; /* NULL: the memory limit */
} settings[] = {
	{ 0, true, false, "memory.max", NULL },
	{ 0, true, true, "memory.swap.max", "0" },
	{ 0, true, false, "memory.oom.group", "1" },
	{ 0, true, false, "pids.max", PIDS_MAX },
	{ 0, false, false, "memory.limit_in_bytes", NULL },
	{ 0, false, true, "memory.swappiness", "0" },
	{ 1, false, false, "pids.max", PIDS_MAX },
};

static void slot_name(char ret[16], uint32_t slot)
{
	snprintf(ret, 16, "slot-%u", slot);
}

int cgroup_make(const struct cgroup *c, uint32_t slot, uint64_t memory_max,
		struct err *e)
{
	int groups[CGROUP_TREES] = { -1, -1 }, r = 0;
	char name[16], limit[32];

	slot_name(name, slot);
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)memory_max);
	for (unsigned i = 0; r >= 0 && i < c->nr; i++)
		groups[i] = r = enter(c->trees[i], name, e);
	for (size_t i = 0; c->nr && r >= 0 && i < ARRAY_LEN(settings); i++) {
		const char *v = settings[i].value;

		if (settings[i].v2 != c->v2)
			continue;
		r = write_at(groups[settings[i].tree], settings[i].file,
			     v ? v : limit);
		if (r < 0 && settings[i].optional)
			r = 0;
		if (r < 0)
			err_sys(e, -r, "%s of cgroup %s", settings[i].file, name);
	}
	for (unsigned i = 0; i < CGROUP_TREES; i++)
		base_close_p(&groups[i]);
	return MIN(r, 0);
}

int cgroup_open(const struct cgroup *c, uint32_t slot,
		int ret_fds[CGROUP_TREES], struct err *e)
{
	int fds[CGROUP_TREES] = { -1, -1 };
	char path[64], name[16];

	slot_name(name, slot);
	snprintf(path, sizeof(path), "%s/cgroup.procs", name);
	for (unsigned i = 0; i < c->nr; i++) {
		fds[i] = openat(c->trees[i], path, O_WRONLY | O_CLOEXEC);
		if (fds[i] < 0) {
			int en = errno;

			base_close_p(&fds[0]);
			return err_sys(e, en, "open of cgroup %s", name);
		}
	}
	memcpy(ret_fds, fds, sizeof(fds));
	return 0;
}

void cgroup_remove(const struct cgroup *c, uint32_t slot)
{
	char name[16];

	slot_name(name, slot);
	for (unsigned i = 0; i < c->nr; i++)
		unlinkat(c->trees[i], name, AT_REMOVEDIR);
}

void cgroup_done(struct cgroup *c)
{
	for (unsigned i = 0; i < c->nr; i++) {
		int parent = openat(c->trees[i], "..",
				    O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		close(c->trees[i]);
		if (parent >= 0)
			unlinkat(parent, c->tag, AT_REMOVEDIR);
		base_close_p(&parent);
	}
	c->nr = 0;
}
