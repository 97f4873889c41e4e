/*
 * host: see host.h. Every name below the data folder is made of ids that
 * were checked, so none of them leaves it.
 *
 * Invariants: 1. a pack's name is durable before its descriptor is handed
 * out. 2. Grants are durable (links and keys) before a fork starts. 3. What
 * purge() removes can be removed again.
 */
#include "tools/cryod/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "store/datadir.h"
#include "store/transcript.h"

#define HEX_LEN 32

static void host_hex(char ret[HEX_LEN + 1], const uint8_t id[16])
{
	for (int i = 0; i < 16; i++)
		snprintf(ret + 2 * i, 3, "%02x", id[i]);
}

/* --- sockets ------------------------------------------------------------------- */

/*
 * The address of a cryo-vm's socket. Through /proc/self/fd, since the data
 * folder's path may be longer than an address can be.
 */
static int host_address(const struct host *h, const char *session, uint32_t slot,
			struct sockaddr_un *ret, int *ret_dir, struct err *e)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/run", h->data);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "open %s", path);
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s.%u",
		 fd, session, slot);
	*ret_dir = fd;
	return 0;
}

static int host_listen(void *ctx, const char *session, uint32_t slot,
		       int *ret_fd, struct err *e)
{
	SCOPED_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	SCOPED_FD int dir = -1;
	struct sockaddr_un a;
	int r = host_address(ctx, session, slot, &a, &dir, e);

	if (r < 0)
		return r;
	unlink(a.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    chmod(a.sun_path, 0600) < 0 || listen(fd, 4) < 0)
		return err_sys(e, errno, "listen for the sandbox of session %s",
			       session);
	*ret_fd = base_steal_fd(&fd);
	return 0;
}

/* Does not wait: a cryo-vm that accepts nobody is as good as none. */
static int host_connect(void *ctx, const char *session, uint32_t slot,
			int *ret_fd, struct err *e)
{
	SCOPED_FD int fd = socket(
		AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	SCOPED_FD int dir = -1;
	struct sockaddr_un a;
	int r = host_address(ctx, session, slot, &a, &dir, e);

	if (r < 0)
		return r;
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return err_sys(e, errno, "connect to the sandbox of session %s",
			       session);
	*ret_fd = base_steal_fd(&fd);
	return 0;
}

static void host_unlisten(void *ctx, const char *session, uint32_t slot)
{
	SCOPED_FD int dir = -1;
	struct sockaddr_un a;
	struct err e;

	if (host_address(ctx, session, slot, &a, &dir, &e) == 0)
		unlink(a.sun_path);
}

static int host_sockets(void *ctx,
			void (*fn)(void *arg, const char *session, uint32_t slot),
			void *arg, struct err *e)
{
	const struct host *h = ctx;
	char path[PATH_MAX], session[ID_LEN + 1];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/run", h->data);
	dir = opendir(path);
	if (!dir)
		return err_sys(e, errno, "open %s", path);
	while ((d = readdir(dir))) {
		unsigned slot;
		char end;

		if (sscanf(d->d_name, "%20[a-z0-9].%u%c", session, &slot,
			   &end) == 2 &&
		    id_valid(session))
			fn(arg, session, slot);
	}
	closedir(dir);
	return 0;
}

/* --- packs --------------------------------------------------------------------- */

static void host_pack_path(const struct host *h, const char *session, bool own,
			   const uint8_t id[16], char ret[PATH_MAX])
{
	char folder[PATH_MAX], hex[HEX_LEN + 1];

	datadir_id_path(folder, h->data, "packs", session);
	host_hex(hex, id);
	if (snprintf(ret, PATH_MAX, "%s/%s%s.pack", folder, own ? "" : "base/",
		     hex) >= PATH_MAX)
		NEVER("the data folder's path was checked to be short");
}

static int host_sync_parent(const char *path, struct err *e)
{
	char folder[PATH_MAX];

	base_strcpy(folder, sizeof(folder), path);
	*strrchr(folder, '/') = 0;
	return datadir_sync(folder, e);
}

static int host_pack_new(void *ctx, const char *session, uint8_t ret_id[16],
			 uint8_t ret_key[32], int *ret_fd, struct err *e)
{
	struct host *h = ctx;
	SCOPED_FD int fd = -1;
	char path[PATH_MAX];
	int r;

	base_random(ret_id, 16);
	/* the key first: a destroyed session gets no folder again */
	r = keys_pack_key(h->keys, session, ret_id, true, ret_key, e);
	if (r == -ENOENT)
		return err_set(e, r, ERR_GONE, "session %s has no key any more",
			       session);
	if (r == 0)
		r = datadir_id_mkdir(h->data, "packs", session, e);
	if (r < 0)
		return r;
	host_pack_path(h, session, true, ret_id, path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "make pack %s", path);
	r = host_sync_parent(path, e);
	if (r < 0)
		unlink(path);
	else
		*ret_fd = base_steal_fd(&fd);
	return r;
}

/* -ENOENT without touching e: no such file, or no right to it. */
static int host_pack_try(struct host *h, const char *session, bool own,
			 const uint8_t id[16], uint8_t ret_key[32], int *ret_fd,
			 struct err *e)
{
	SCOPED_FD int fd = -1;
	char path[PATH_MAX];
	struct err why;
	int r;

	host_pack_path(h, session, own, id, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT
				       : err_sys(e, errno, "open pack %s", path);
	r = keys_pack_key(h->keys, session, id, own, ret_key, &why);
	if (r == 0)
		*ret_fd = base_steal_fd(&fd);
	else if (r != -ENOENT && e)
		*e = why;
	return r;
}

static int host_pack_open(void *ctx, const char *session, const uint8_t id[16],
			  uint8_t ret_key[32], int *ret_fd, struct err *e)
{
	char hex[HEX_LEN + 1];
	int r = host_pack_try(ctx, session, true, id, ret_key, ret_fd, e);

	if (r == -ENOENT)
		r = host_pack_try(ctx, session, false, id, ret_key, ret_fd, e);
	if (r != -ENOENT)
		return r;
	host_hex(hex, id);
	return err_set(e, r, ERR_NOT_FOUND,
		       "session %s has no pack %s, or its key is destroyed",
		       session, hex);
}

/* From an earlier start: `from` need not be there any more. */
static bool host_has_grant(struct host *h, const char *session,
			   const uint8_t id[16], struct keys_grant *ret)
{
	char path[PATH_MAX];
	struct err e;

	host_pack_path(h, session, false, id, path);
	return access(path, F_OK) == 0 &&
	       keys_pack_key(h->keys, session, id, false, ret->key, &e) == 0;
}

/* One pack of `from` becomes readable for `session`: link and key. */
static int host_grant_one(struct host *h, const char *session, const char *from,
			  const uint8_t id[16], struct keys_grant *ret,
			  struct err *e)
{
	char source[PATH_MAX], link_path[PATH_MAX];
	bool own;
	int r;

	memcpy(ret->pack, id, sizeof(ret->pack));
	if (host_has_grant(h, session, id, ret))
		return 0;
	host_pack_path(h, session, false, id, link_path);
	host_pack_path(h, from, true, id, source);
	own = access(source, F_OK) == 0;
	if (!own)
		host_pack_path(h, from, false, id, source);
	if (link(source, link_path) < 0 && errno != EEXIST)
		return err_sys(e, errno, "link pack %s for session %s", source,
			       session);
	r = keys_pack_key(h->keys, from, id, own, ret->key, e);
	return r == -ENOENT ? err_set(e, r, ERR_GONE,
				      "session %s has no key any more", from)
			    : r;
}

static int host_grant(void *ctx, const char *session, const char *from,
		      const uint8_t (*ids)[16], uint32_t nr, struct err *e)
{
	struct host *h = ctx;
	SCOPED_FREE struct keys_grant *g = base_alloc((nr + 1) * sizeof(*g));
	char folder[PATH_MAX], base[PATH_MAX + 8];
	int r = datadir_id_mkdir(h->data, "packs", session, e);

	if (r < 0)
		return r;
	datadir_id_path(folder, h->data, "packs", session);
	snprintf(base, sizeof(base), "%s/base", folder);
	if (mkdir(base, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "make %s", base);
	for (uint32_t i = 0; i < nr && r == 0; i++)
		r = host_grant_one(h, session, from, ids[i], &g[i], e);
	if (r == 0)
		r = datadir_sync(base, e);
	if (r == 0)
		r = datadir_sync(folder, e);
	if (r == 0)
		r = keys_grant_add(h->keys, session, g, nr, e);
	base_wipe(g, (nr + 1) * sizeof(*g));
	return r;
}

/* --- overlays, transcripts --------------------------------------------------------- */

static int host_overlay(void *ctx, const char *session, int *ret_fd,
			struct err *e)
{
	const struct host *h = ctx;
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/overlays", h->data);
	fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "make the overlay of session %s in %s",
			       session, path);
	*ret_fd = fd;
	return 0;
}

static void host_transcript_path(const struct host *h, const char *session,
				 const char *exec, uint32_t epoch,
				 char ret[PATH_MAX])
{
	char folder[PATH_MAX];

	datadir_id_path(folder, h->data, "transcripts", session);
	if (snprintf(ret, PATH_MAX, "%s/%s.%u", folder, exec, epoch) >= PATH_MAX)
		NEVER("the data folder's path was checked to be short");
}

static int host_transcript_key(struct host *h, const char *session,
			       const char *exec, uint32_t epoch,
			       uint8_t ret_key[32], struct err *e)
{
	uint8_t extra[ID_LEN + 4];
	int r;

	memcpy(extra, exec, ID_LEN);
	put_u32(extra + ID_LEN, epoch);
	r = keys_session_derive(h->keys, session, "cryo-transcript-v1", extra,
				sizeof(extra), ret_key, 32, e);
	return r == -ENOENT ? err_set(e, r, ERR_GONE,
				      "session %s has no key any more", session)
			    : r;
}

/*
 * Opens the file, empty. One that was made and never written to is left by a
 * daemon that ended before it could give it away (a cryo-vm that has one says
 * so, and is not given another): no number of its key was used.
 */
static int host_transcript_make(const char *path, int *ret_fd, struct err *e)
{
	SCOPED_FD int fd =
		open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
		     0600);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "make transcript %s", path);
	if (st.st_size > TRANSCRIPT_HEADER_LEN)
		return err_set(e, -EEXIST, ERR_CONFLICT,
			       "transcript %s has %lld bytes already", path,
			       (long long)st.st_size);
	if (st.st_size > 0 && ftruncate(fd, 0) < 0)
		return err_sys(e, errno, "empty transcript %s", path);
	*ret_fd = base_steal_fd(&fd);
	return 0;
}

static int host_transcript(void *ctx, const char *session, const char *exec,
			   uint32_t epoch, uint8_t ret_key[32], int *ret_fd,
			   struct err *e)
{
	struct host *h = ctx;
	char path[PATH_MAX];
	/* the key first: a destroyed session gets no folder again */
	int r = host_transcript_key(h, session, exec, epoch, ret_key, e);

	if (r == 0)
		r = datadir_id_mkdir(h->data, "transcripts", session, e);
	if (r < 0)
		return r;
	host_transcript_path(h, session, exec, epoch, path);
	return host_transcript_make(path, ret_fd, e);
}

int host_transcript_read(struct host *h, const char *session, const char *exec,
			 uint32_t epoch, uint8_t ret_key[32], int *ret_fd,
			 struct err *e)
{
	SCOPED_FD int fd = -1;
	char path[PATH_MAX];
	int r;

	host_transcript_path(h, session, exec, epoch, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT
				       : err_sys(e, errno, "open %s", path);
	r = host_transcript_key(h, session, exec, epoch, ret_key, e);
	if (r == 0)
		*ret_fd = base_steal_fd(&fd);
	return r;
}

/* --- space, ends ---------------------------------------------------------------------- */

static int host_capture_allowed(void *ctx, struct err *e)
{
	const struct host *h = ctx;
	struct datadir_space s;
	int r = datadir_space(h->data, &s, e);

	if (r < 0 || s.level == DATADIR_FINE)
		return r;
	return err_set(e, -ENOSPC, ERR_NO_SPACE,
		       "no snapshot: %llu MiB of %llu are free on the data "
		       "folder's file system, %d %% must be; make room "
		       "there, or remove sessions",
		       (unsigned long long)(s.avail >> 20),
		       (unsigned long long)(s.total >> 20),
		       DATADIR_CAPTURE_STOP_PERCENT);
}

/* Removes the files of a folder, one level of folders in it, and itself. */
static int host_remove_folder(const char *path, bool deeper, struct err *e)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	int r = 0;

	if (!dir)
		return errno == ENOENT ? 0 : err_sys(e, errno, "open %s", path);
	while (r == 0 && (d = readdir(dir))) {
		char sub[PATH_MAX];

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (unlinkat(dirfd(dir), d->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR || !deeper)
			r = err_sys(e, errno, "remove %s/%s", path, d->d_name);
		else if (snprintf(sub, sizeof(sub), "%s/%s", path, d->d_name) <
			 (int)sizeof(sub))
			r = host_remove_folder(sub, false, e);
	}
	closedir(dir);
	if (r == 0 && rmdir(path) < 0 && errno != ENOENT)
		r = err_sys(e, errno, "remove %s", path);
	return r;
}

static int host_purge(void *ctx, const char *session, struct err *e)
{
	struct host *h = ctx;
	char path[PATH_MAX];
	int r = keys_session_destroy(h->keys, session, e);

	datadir_id_path(path, h->data, "packs", session);
	if (r == 0)
		r = host_remove_folder(path, true, e);
	datadir_id_path(path, h->data, "transcripts", session);
	if (r == 0)
		r = host_remove_folder(path, false, e);
	return r;
}

void host_init(struct host *h, const char *data, struct keys *keys)
{
	*h = (struct host){
		.data = data,
		.keys = keys,
		.port = { .ctx = h,
			  .listen = host_listen,
			  .connect = host_connect,
			  .unlisten = host_unlisten,
			  .sockets = host_sockets,
			  .template_open = host_template_open,
			  .overlay = host_overlay,
			  .pack_new = host_pack_new,
			  .pack_open = host_pack_open,
			  .grant = host_grant,
			  .transcript = host_transcript,
			  .capture_allowed = host_capture_allowed,
			  .purge = host_purge,
			  .log_fd = STDERR_FILENO },
	};
}
