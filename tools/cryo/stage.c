/*
 * stage: templates into the data folder.
 *
 * How it works: a folder ".new-PID" is filled, synced and renamed to the
 * digest that template.json names. Zero blocks are left out, so that a disk
 * image stays sparse.
 *
 * Invariants: we are root and the data folder is the daemon's: no name in it
 * is followed as a link, files are made with O_EXCL; a template is under its
 * digest whole or not at all. Whether the digest is true is checked by the
 * daemon, which trusts nobody in this.
 *
 * A crash leaves a ".new-*" folder, which nobody reads.
 */
#include "tools/cryo/stage.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define STAGE_JSON_MAX (64u << 10)
#define STAGE_BLOCK 4096u

static const char stage_json[] = "template.json";

struct stage {
	const char *from;
	int dir; /* DATA/templates */
	int tmp; /* the folder that is being filled */
	char name[32];
	struct err *e;
};

static int stage_describe(const char *from, json_t **ret, struct err *e)
{
	SCOPED_FREE char *path = base_printf("%s/%s", from, stage_json);
	SCOPED_FREE char *text = base_alloc(STAGE_JSON_MAX);
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return err_set(e, -errno, ERR_NOT_FOUND,
			       "%s can't be read (%s); build the template "
			       "first: make image",
			       path, strerror(errno));
	n = read(fd, text, STAGE_JSON_MAX);
	if (n < 0)
		return err_sys(e, errno, "reading %s", path);
	if (json_parse(ret, text, (size_t)n, e) < 0)
		return err_wrap(e, -EINVAL, "%s", path);
	return 0;
}

static int stage_digest(const json_t *o, char ret[STAGE_DIGEST_LEN + 1],
			struct err *e)
{
	const char *s = json_string_value(json_object_get(o, "digest"));

	if (!s || strlen(s) != STAGE_DIGEST_LEN ||
	    strspn(s, "0123456789abcdef") != STAGE_DIGEST_LEN)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "template.json has no digest of 64 hex digits; "
			       "build it again");
	memcpy(ret, s, STAGE_DIGEST_LEN + 1);
	return 0;
}

static int stage_copy_fd(int in, int out)
{
	static const uint8_t zeros[STAGE_BLOCK];
	uint8_t block[STAGE_BLOCK];
	uint64_t at = 0;
	ssize_t n;

	while ((n = read(in, block, sizeof(block))) > 0) {
		if (n < (ssize_t)STAGE_BLOCK ||
		    memcmp(block, zeros, STAGE_BLOCK) != 0) {
			int r = base_pwrite_all(out, block, (size_t)n, at);

			if (r < 0)
				return r;
		}
		at += (uint64_t)n;
	}
	if (n < 0 || ftruncate(out, (off_t)at) < 0 || fsync(out) < 0)
		return -errno;
	return 0;
}

static int stage_copy(struct stage *s, const char *file)
{
	SCOPED_FREE char *path = base_printf("%s/%s", s->from, file);
	SCOPED_FD int in = -1, out = -1;
	int r;

	if (!*file || strchr(file, '/') || file[0] == '.')
		return err_set(s->e, -EINVAL, ERR_INVALID,
			       "template.json names a file \"%.40s\" outside "
			       "of its folder",
			       file);
	in = open(path, O_RDONLY | O_CLOEXEC);
	if (in < 0)
		return err_sys(s->e, errno, "reading %s", path);
	out = openat(s->tmp, file,
		     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (out < 0 || fchmod(out, 0644) < 0)
		return err_sys(s->e, errno, "making %s in the data folder", file);
	r = stage_copy_fd(in, out);
	return r < 0 ? err_sys(s->e, -r, "copying %s into the data folder", path)
		     : 0;
}

static int stage_fill(struct stage *s, const json_t *o)
{
	static const char *const keys[] = { "kernel", "initrd", "disk" };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(keys); i++) {
		const char *file;

		r = json_get_str(o, keys[i], &file, s->e);
		if (r == 0)
			r = stage_copy(s, file);
	}
	if (r == 0)
		r = stage_copy(s, stage_json);
	if (r == 0 && fsync(s->tmp) < 0)
		r = err_sys(s->e, errno, "syncing the template");
	return r;
}

static int stage_open(struct stage *s, const char *data)
{
	SCOPED_FD int top =
		open(data, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (top >= 0)
		s->dir = openat(top, "templates",
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->dir < 0)
		return err_set(s->e, -errno, ERR_NOT_FOUND,
			       "%s/templates can't be opened (%s); start the "
			       "daemon on this data folder first: cryo up",
			       data, strerror(errno));
	snprintf(s->name, sizeof(s->name), ".new-%d", (int)getpid());
	if (mkdirat(s->dir, s->name, 0755) < 0)
		return err_sys(s->e, errno, "making a folder in %s/templates",
			       data);
	s->tmp = openat(s->dir, s->name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->tmp < 0 || fchmod(s->tmp, 0755) < 0)
		return err_sys(s->e, errno, "opening a folder in %s/templates",
			       data);
	return 0;
}

static void stage_drop(struct stage *s)
{
	static const char *const files[] = { "vmlinux", "initrd.cpio",
					     "disk.img", stage_json };

	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		unlinkat(s->tmp, files[i], 0);
	unlinkat(s->dir, s->name, AT_REMOVEDIR);
}

int stage_template(const char *data, const char *from,
		   char ret_digest[STAGE_DIGEST_LEN + 1], struct err *e)
{
	struct stage s = { .from = from, .dir = -1, .tmp = -1, .e = e };
	SCOPED_JSON json_t *o = NULL;
	bool placed = false;
	struct stat st;
	int r = stage_describe(from, &o, e);

	if (r == 0)
		r = stage_digest(o, ret_digest, e);
	if (r == 0)
		r = stage_open(&s, data);
	if (r == 0 && fstatat(s.dir, ret_digest, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		r = stage_fill(&s, o);
		placed = r == 0 &&
			 renameat(s.dir, s.name, s.dir, ret_digest) == 0;
		if (r == 0 && (!placed || fsync(s.dir) < 0))
			r = err_sys(e, errno, "putting template %s in place",
				    ret_digest);
	}
	if (s.tmp >= 0 && !placed) /* s.tmp is the template once it is placed */
		stage_drop(&s);
	base_close_p(&s.tmp);
	base_close_p(&s.dir);
	return r;
}

int stage_register(struct client *c, const char *digest, struct err *e)
{
	SCOPED_JSON json_t *body = json_object();

	json_put_str(body, "digest", digest);
	return client_call(c, "POST", "/v1/templates", body, NULL, e);
}
