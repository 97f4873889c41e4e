/*
 * templates: the folders of DATA/templates. Each is named by the digest of
 * its description (template.json without the member `digest`, canonical),
 * which has the digests of its files. Root puts them there; the daemon checks
 * them once, when it takes a template into the log, and trusts them after:
 * nobody but root can change them.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/session_row.h"
#include "store/crypt.h"
#include "tools/cryod/host.h"

#define DESCRIPTION_MAX (64 << 10)

static void template_hex(char ret[DIGEST_TEXT_LEN + 1], const uint8_t hash[32])
{
	for (int i = 0; i < 32; i++)
		snprintf(ret + 2 * i, 3, "%02x", hash[i]);
}

static bool template_digest_valid(const char *s)
{
	return strlen(s) == DIGEST_TEXT_LEN &&
	       strspn(s, "0123456789abcdef") == DIGEST_TEXT_LEN;
}

static void template_path(const struct host *h, const char *digest,
			  const char *file, char ret[PATH_MAX])
{
	if (snprintf(ret, PATH_MAX, "%s/templates/%s/%s", h->data, digest,
		     file) >= PATH_MAX)
		NEVER("the data folder's path was checked to be short");
}

static int template_read(const char *path, struct buf *ret, struct err *e)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 && errno == ENOENT)
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "no such template: %s is missing", path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "open %s", path);
	if (st.st_size < 2 || st.st_size > DESCRIPTION_MAX)
		return err_set(e, -EBADMSG, ERR_CORRUPT, "%s has %lld bytes",
			       path, (long long)st.st_size);
	r = base_pread_all(fd, buf_reserve(ret, (size_t)st.st_size),
			   (size_t)st.st_size, 0);
	ret->len += r == 0 ? (size_t)st.st_size : 0;
	return r < 0 ? err_sys(e, -r, "read %s", path) : 0;
}

/* Does the description hash to its own name? */
static int template_check_name(json_t *o, const char *digest, struct err *e)
{
	SCOPED_JSON json_t *bare = json_copy(o);
	SCOPED(buf_done) struct buf b = { 0 };
	char hex[DIGEST_TEXT_LEN + 1];
	uint8_t hash[32];

	json_object_del(bare, "digest");
	if (json_canonical(&b, bare) < 0)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "template %s: description is not canonical",
			       digest);
	crypt_sha256(hash, b.p, b.len);
	template_hex(hex, hash);
	if (strcmp(hex, digest) != 0)
		return err_set(
			e, -EBADMSG, ERR_CORRUPT,
			"template %s: description has digest %s; build it again",
			digest, hex);
	return 0;
}

int host_template_describe(const struct host *h, const char *digest,
			   json_t **ret, struct err *e)
{
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED_JSON json_t *o = NULL;
	char path[PATH_MAX];
	int r;

	if (!template_digest_valid(digest))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "a template's digest is 64 digits of 0-9a-f");
	template_path(h, digest, "template.json", path);
	r = template_read(path, &b, e);
	if (r == 0)
		r = json_parse(&o, b.p, b.len, e);
	if (r == 0)
		r = template_check_name(o, digest, e);
	if (r < 0)
		return r;
	*ret = STEAL(o);
	return 0;
}

static int template_hash_file(const char *path, char ret[DIGEST_TEXT_LEN + 1],
			      struct err *e)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	SCOPED_FREE uint8_t *chunk = base_alloc(1 << 20);
	struct crypt_hash *hash;
	uint8_t sum[32];
	ssize_t n;

	if (fd < 0)
		return err_sys(e, errno, "open %s", path);
	hash = crypt_hash_new();
	crypt_hash_init(hash);
	while ((n = read(fd, chunk, 1 << 20)) > 0)
		crypt_hash_put(hash, chunk, (size_t)n);
	crypt_hash_end(hash, sum);
	crypt_hash_free(hash);
	template_hex(ret, sum);
	return n < 0 ? err_sys(e, errno, "read %s", path) : 0;
}

/* Where the file lies that member `key` names. */
static int template_file(const struct host *h, const char *digest,
			 const json_t *o, const char *key, char ret[PATH_MAX],
			 struct err *e)
{
	const char *file;
	int r = json_get_str(o, key, &file, e);

	if (r < 0)
		return r;
	if (!file[0] || file[0] == '.' || strchr(file, '/') ||
	    strlen(file) > NAME_MAX)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "template %s: bad name of its %s", digest, key);
	template_path(h, digest, file, ret);
	return 0;
}

/* The file that member `key` names has the digest of member `key`_sha256. */
static int template_check_file(const struct host *h, const char *digest,
			       const json_t *o, const char *key, struct err *e)
{
	char path[PATH_MAX], hex[DIGEST_TEXT_LEN + 1], member[32];
	const char *want;
	int r = template_file(h, digest, o, key, path, e);

	snprintf(member, sizeof(member), "%s_sha256", key);
	if (r == 0)
		r = json_get_str(o, member, &want, e);
	if (r == 0)
		r = template_hash_file(path, hex, e);
	if (r == 0 && strcmp(hex, want) != 0)
		r = err_set(e, -EBADMSG, ERR_CORRUPT,
			    "template %s: its %s is damaged; build it again",
			    digest, key);
	return r;
}

int host_template_check(const struct host *h, const char *digest, json_t **ret,
			struct err *e)
{
	SCOPED_JSON json_t *o = NULL;
	int r = host_template_describe(h, digest, &o, e);

	if (r == 0)
		r = template_check_file(h, digest, o, "kernel", e);
	if (r == 0)
		r = template_check_file(h, digest, o, "initrd", e);
	if (r == 0)
		r = template_check_file(h, digest, o, "disk", e);
	if (r == 0)
		*ret = STEAL(o);
	return r;
}

int host_templates(const struct host *h,
		   void (*fn)(void *ctx, const char *digest), void *ctx,
		   struct err *e)
{
	char path[PATH_MAX];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/templates", h->data);
	dir = opendir(path);
	if (!dir)
		return err_sys(e, errno, "open %s", path);
	while ((d = readdir(dir)))
		if (template_digest_valid(d->d_name))
			fn(ctx, d->d_name);
	closedir(dir);
	return 0;
}

static int template_open_file(const struct host *h, const char *digest,
			      const json_t *o, const char *key, int *ret_fd,
			      struct err *e)
{
	char path[PATH_MAX];
	int r = template_file(h, digest, o, key, path, e);

	if (r < 0)
		return r;
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? err_sys(e, errno, "open %s", path) : 0;
}

int host_template_open(void *ctx, const char *digest, struct qemu_template *ret,
		       struct err *e)
{
	const struct host *h = ctx;
	SCOPED_JSON json_t *o = NULL;
	struct qemu_template t = { -1, -1, -1, { 0 }, { 0 } };
	const char *cmdline = "";
	int r = host_template_describe(h, digest, &o, e);

	if (r == 0)
		r = json_get_str(o, "cmdline", &cmdline, e);
	if (r == 0 && !base_strcpy(t.cmdline, sizeof(t.cmdline), cmdline))
		r = err_set(e, -EBADMSG, ERR_CORRUPT,
			    "template %s: cmdline is too long", digest);
	if (r == 0)
		r = json_get_hex(o, "kernel_sha256", t.kernel_digest,
				 sizeof(t.kernel_digest), e);
	if (r == 0)
		r = template_open_file(h, digest, o, "kernel", &t.kernel_fd, e);
	if (r == 0)
		r = template_open_file(h, digest, o, "initrd", &t.initrd_fd, e);
	if (r == 0)
		r = template_open_file(h, digest, o, "disk", &t.disk_fd, e);
	if (r < 0) {
		base_close_p(&t.kernel_fd);
		base_close_p(&t.initrd_fd);
		base_close_p(&t.disk_fd);
		return r;
	}
	*ret = t;
	return 0;
}
