/*
 * untar: extracts ustar archives (POSIX.1-1988, with GNU's 'L' records for
 * long names) as a stream.
 *
 * Invariants:
 *  1. Names are relative, without "..", and opened by openat2() with
 *     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS: even a link that was there
 *     before can't lead out of the folder.
 *  2. Modes are cut to 0777: no set-id bits come out of a guest.
 *  3. A symbolic link is made only if its target is relative and without
 *     ".."; devices, FIFOs and hard links are counted as skipped.
 *  4. The sum of all files is bounded.
 *
 * A crash leaves the members written so far, the last one perhaps short.
 */
#include "tools/cryo/untar.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define UNTAR_BLOCK 512u

void untar_init(struct untar *u, int dir_fd, uint64_t max_bytes)
{
	*u = (struct untar){ .dir_fd = dir_fd, .max_bytes = max_bytes, .fd = -1 };
}

void untar_done(struct untar *u)
{
	if (u->fd >= 0)
		close(u->fd);
	u->fd = -1;
	buf_done(&u->name);
}

static int untar_bad(struct err *e, const char *what)
{
	return err_set(e, -EINVAL, ERR_INVALID,
		       "the archive from the sandbox is not valid: %s", what);
}

/* --- headers -------------------------------------------------------------- */

static int untar_octal(const uint8_t *p, size_t len, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	while (i < len && p[i] == ' ')
		i++;
	for (; i < len && p[i] >= '0' && p[i] <= '7'; i++) {
		if (v >> 60)
			return -EINVAL;
		v = v << 3 | (uint64_t)(p[i] - '0');
	}
	if (i < len && p[i] && p[i] != ' ')
		return -EINVAL;
	*ret = v;
	return 0;
}

static bool untar_sum_ok(const uint8_t h[512])
{
	uint64_t want, sum = 0;

	for (size_t i = 0; i < UNTAR_BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : h[i];
	return untar_octal(h + 148, 8, &want) == 0 && want == sum;
}

static void untar_name(const struct untar *u, char ret[UNTAR_PATH_MAX])
{
	const char *h = (const char *)u->head;
	size_t at = 0, len;

	if (u->name.len) {
		len = MIN(u->name.len, (size_t)UNTAR_PATH_MAX - 1);
		memcpy(ret, u->name.p, len);
		ret[len] = 0;
		return;
	}
	if (!memcmp(h + 257, "ustar", 5) && h[345]) {
		at = strnlen(h + 345, 155);
		memcpy(ret, h + 345, at);
		ret[at++] = '/';
	}
	len = strnlen(h, 100);
	memcpy(ret + at, h, len);
	ret[at + len] = 0;
}

/* Relative, no "..", no empty end; "./" in front is taken off. */
static bool untar_path_ok(const char **path)
{
	const char *p = *path;

	while (p[0] == '.' && p[1] == '/') {
		p += 2;
		while (*p == '/')
			p++;
	}
	*path = p;
	if (*p == '/')
		return false;
	while (*p) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			return false;
		p += n + (p[n] == '/');
	}
	return true;
}

/* --- writing -------------------------------------------------------------- */

static int untar_open(int dir_fd, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	long fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* The folder that holds the last part of `path`, made as needed. */
static int untar_parent(int dir_fd, const char *path, const char **ret_last)
{
	int fd = untar_open(dir_fd, ".", O_PATH | O_DIRECTORY, 0);

	while (fd >= 0) {
		char part[UNTAR_PATH_MAX];
		size_t n = strcspn(path, "/");
		int next;

		if (!path[n] || !path[n + strspn(path + n, "/")])
			break;
		memcpy(part, path, n);
		part[n] = 0;
		path += n + strspn(path + n, "/");
		if (mkdirat(fd, part, 0777) < 0 && errno != EEXIST)
			next = -errno;
		else
			next = untar_open(fd, part, O_PATH | O_DIRECTORY, 0);
		close(fd);
		fd = next;
	}
	*ret_last = path;
	return fd;
}

static int untar_file(struct untar *u, const char *path, mode_t mode,
		      struct err *e)
{
	const char *last;
	SCOPED_FD int parent = untar_parent(u->dir_fd, path, &last);
	int fd = parent;

	if (parent >= 0) {
		/* what is there is replaced, not written through */
		unlinkat(parent, last, 0);
		fd = untar_open(parent, last, O_WRONLY | O_CREAT | O_EXCL,
				mode & 0777);
	}
	if (fd < 0)
		return err_sys(e, -fd, "writing %.150s", path);
	u->fd = fd;
	u->files++;
	return 0;
}

static int untar_dir(struct untar *u, const char *path, struct err *e)
{
	const char *last;
	char name[UNTAR_PATH_MAX];
	SCOPED_FD int parent = untar_parent(u->dir_fd, path, &last);
	SCOPED_FD int fd = -1;

	if (parent < 0)
		return err_sys(e, -parent, "making the folder %.150s", path);
	base_strcpy(name, sizeof(name), last);
	name[strcspn(name, "/")] = 0;
	if (!name[0] || !strcmp(name, "."))
		return 0;
	if (mkdirat(parent, name, 0777) < 0 && errno != EEXIST)
		return err_sys(e, errno, "making the folder %.150s", path);
	fd = untar_open(parent, name, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return err_sys(e, -fd, "making the folder %.150s", path);
	u->dirs++;
	return 0;
}

static int untar_link(struct untar *u, const char *path, struct err *e)
{
	const char *last, *target = (const char *)u->head + 157;
	char to[101];
	SCOPED_FD int parent = -1;

	memcpy(to, target, 100);
	to[100] = 0;
	target = to;
	if (!*target || !untar_path_ok(&target)) {
		u->skipped++;
		return 0;
	}
	parent = untar_parent(u->dir_fd, path, &last);
	if (parent < 0)
		return err_sys(e, -parent, "making the link %.150s", path);
	unlinkat(parent, last, 0);
	if (symlinkat(to, parent, last) < 0)
		return err_sys(e, errno, "making the link %.150s", path);
	u->links++;
	return 0;
}

/* --- members -------------------------------------------------------------- */

static int untar_start(struct untar *u, char type, const char *path,
		       mode_t mode, struct err *e)
{
	if (!untar_path_ok(&path))
		return untar_bad(e, "a name in it leads out of the folder");
	if (!*path)
		return 0;
	switch (type) {
	case 0:
	case '0':
	case '7':
		if (u->left > u->max_bytes - u->bytes)
			return err_set(e, -EFBIG, ERR_TOO_LARGE,
				       "the files from the sandbox have more "
				       "than %llu bytes",
				       (unsigned long long)u->max_bytes);
		u->bytes += u->left;
		return untar_file(u, path, mode, e);
	case '5':
		return untar_dir(u, path, e);
	case '2':
		return untar_link(u, path, e);
	default:
		u->skipped++;
		return 0;
	}
}

static int untar_member(struct untar *u, struct err *e)
{
	static const uint8_t zeros[UNTAR_BLOCK];
	char path[UNTAR_PATH_MAX], type = (char)u->head[156];
	uint64_t mode;
	int r;

	if (!memcmp(u->head, zeros, UNTAR_BLOCK)) {
		u->ended = true;
		return 0;
	}
	if (!untar_sum_ok(u->head))
		return untar_bad(e, "a header has a wrong checksum");
	if (untar_octal(u->head + 124, 12, &u->left) < 0 ||
	    untar_octal(u->head + 100, 8, &mode) < 0)
		return untar_bad(e, "a number in a header is wrong");
	u->pad = (UNTAR_BLOCK - u->left % UNTAR_BLOCK) % UNTAR_BLOCK;
	if (type == 'L') {
		if (u->left > UNTAR_PATH_MAX)
			return untar_bad(e, "a name is too long");
		buf_reset(&u->name);
		u->meta = true;
		return 0;
	}
	untar_name(u, path);
	buf_reset(&u->name);
	r = untar_start(u, type, path, (mode_t)mode, e);
	return r;
}

/* The member's bytes are all there. */
static int untar_close(struct untar *u, struct err *e)
{
	int fd = base_steal_fd(&u->fd);

	u->meta = false;
	if (fd >= 0 && close(fd) < 0)
		return err_sys(e, errno, "closing a file");
	return 0;
}

static int untar_content(struct untar *u, const uint8_t *p, size_t len,
			 struct err *e)
{
	int r;

	if (u->meta) {
		buf_put(&u->name, p, strnlen((const char *)p, len));
	} else if (u->fd >= 0) {
		r = base_write_all(u->fd, p, len);
		if (r < 0)
			return err_sys(e, -r, "writing a file");
	}
	u->left -= len;
	return 0;
}

int untar_put(struct untar *u, const void *data, size_t len, struct err *e)
{
	const uint8_t *p = data;
	int r = 0;

	while (len && !u->ended && r == 0) {
		size_t n;

		if (u->left) {
			n = (size_t)MIN((uint64_t)len, u->left);
			r = untar_content(u, p, n, e);
			if (r == 0 && !u->left)
				r = untar_close(u, e);
		} else if (u->pad) {
			n = (size_t)MIN((uint64_t)len, u->pad);
			u->pad -= n;
		} else {
			n = MIN(len, UNTAR_BLOCK - u->have);
			memcpy(u->head + u->have, p, n);
			u->have += n;
			if (u->have == UNTAR_BLOCK) {
				u->have = 0;
				r = untar_member(u, e);
				if (r == 0 && !u->left && !u->ended)
					r = untar_close(u, e);
			}
		}
		p += n;
		len -= n;
	}
	return r;
}

int untar_end(const struct untar *u, struct err *e)
{
	return u->ended ? 0 : untar_bad(e, "it ends in the middle");
}
