/*
 * store_help: a folder to test in, bytes from hex, and events to append.
 */
#ifndef TESTS_UNIT_STORE_HELP_H
#define TESTS_UNIT_STORE_HELP_H

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/buf.h"
#include "core/event.h"
#include "tests/tap.h"

#define HELP UNUSED static

static char help_dir[64];

static int help_remove(const char *path, const struct stat *st UNUSED,
		       int type UNUSED, struct FTW *at UNUSED)
{
	return remove(path);
}

HELP void help_rm(const char *path)
{
	nftw(path, help_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static void help_done(void)
{
	help_rm(help_dir);
}

/* A fresh folder, removed at exit. */
HELP const char *help_tmp(void)
{
	if (!help_dir[0]) {
		base_strcpy(help_dir, sizeof(help_dir), "/tmp/cryo-test-XXXXXX");
		if (!mkdtemp(help_dir))
			bail("no folder to test in");
		atexit(help_done);
	}
	return help_dir;
}

/* "FOLDER/NAME"; one of eight buffers in turn. */
HELP const char *help_path(const char *name)
{
	static char path[8][PATH_MAX];
	static unsigned next;
	char *p = path[next++ % 8];

	snprintf(p, PATH_MAX, "%s/%s", help_tmp(), name);
	return p;
}

static struct {
	size_t nr, want;
	const char *ext;
	char path[PATH_MAX];
} help_walk;

static int help_count_one(const char *path, const struct stat *st UNUSED,
			  int type, struct FTW *at UNUSED)
{
	size_t len = strlen(path), ext_len = strlen(help_walk.ext);

	if (type != FTW_F || len < ext_len ||
	    strcmp(path + len - ext_len, help_walk.ext) != 0)
		return 0;
	if (help_walk.nr++ == help_walk.want)
		snprintf(help_walk.path, sizeof(help_walk.path), "%s", path);
	return 0;
}

/* Files below a folder whose names end so; *ret_path: the n-th of them. */
HELP size_t help_files(const char *folder, const char *ext, size_t n,
		       const char **ret_path)
{
	help_walk.nr = 0;
	help_walk.want = n;
	help_walk.ext = ext;
	nftw(folder, help_count_one, 16, FTW_PHYS);
	if (ret_path)
		*ret_path = help_walk.path;
	return help_walk.nr;
}

HELP void help_hex(struct buf *b, const char *hex)
{
	unsigned v;

	for (; hex[0] && hex[1]; hex += 2) {
		sscanf(hex, "%2x", &v);
		buf_put_u8(b, (uint8_t)v);
	}
}

HELP bool help_is_hex(const void *p, size_t len, const char *hex)
{
	SCOPED(buf_done) struct buf want = { 0 };

	help_hex(&want, hex);
	return want.len == len && !memcmp(want.p, p, len);
}

/* first, first + 1, ... */
HELP void help_count(uint8_t *p, size_t len, uint8_t first)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(first + i);
}

HELP void help_read(struct buf *b, const char *path)
{
	int fd = open(path, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		bail("can't read %s", path);
	while ((n = read(fd, buf_reserve(b, 65536), 65536)) > 0)
		b->len += (size_t)n;
	close(fd);
}

HELP void help_write(const char *path, const void *p, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, p, len) != (ssize_t)len)
		bail("can't write %s", path);
	close(fd);
}

/* Flips one bit of a file. */
HELP void help_flip(const char *path, size_t at)
{
	SCOPED(buf_done) struct buf b = { 0 };

	help_read(&b, path);
	if (at >= b.len)
		bail("%s has no byte %zu", path, at);
	b.p[at] ^= 1;
	help_write(path, b.p, b.len);
}

HELP struct event help_event(const char *type, const char *tenant,
			     const char *session, int n)
{
	struct event ev = { .wall_ns = 1767225600000000000, .schema = 1 };

	ev.wall_ns += n;
	ev.mono_ns = 5000 + n;
	help_count(ev.boot_id, sizeof(ev.boot_id), 0xa0);
	ev.type = event_type_parse(type);
	base_strcpy(ev.type_name, sizeof(ev.type_name), type);
	base_strcpy(ev.tenant, sizeof(ev.tenant), tenant);
	base_strcpy(ev.session, sizeof(ev.session), session);
	base_strcpy(ev.actor, sizeof(ev.actor), "system");
	ev.data = json_object();
	json_put_int(ev.data, "n", n);
	return ev;
}

#endif
