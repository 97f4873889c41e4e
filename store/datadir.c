/*
 * datadir: makes the data folder, locks it, watches its space.
 *
 * `cryo up` makes the folders as root and hands them to the daemon's user;
 * from then on root follows no name below them that the daemon could have
 * changed: folders are opened one by one without following links, and owner
 * and mode are set on the descriptor.
 *
 * Invariants:
 *  1. All folders are 0700 and of one owner.
 *  2. The lock is the open file, not its existence: it ends with the last
 *     process that holds the descriptor, however that dies.
 *  3. The ballast is made only where its loss of space does no harm.
 *
 * A crash leaves a lock file that nobody holds, perhaps a smaller ballast
 * (made whole by the next ensure), and what was in tmp/.
 */
#include "store/datadir.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>

static const char *const folders[] = {
	"log",	       "keys",	"keys/tenant", "keys/session",
	"keys/tmp",    "packs", "templates",   "overlays",
	"transcripts", "run",	"tmp",
};

static void join(char ret[PATH_MAX], const char *data, const char *name)
{
	if (snprintf(ret, PATH_MAX, "%s/%s", data, name) >= PATH_MAX)
		ret[0] = 0; /* every use of it fails with ENOENT */
}

/* --- layout --------------------------------------------------------------- */

static bool owner_fine(uid_t owner, uid_t uid)
{
	return owner == 0 || owner == geteuid() ||
	       (uid != (uid_t)-1 && owner == uid);
}

/* Makes `name` below dir_fd if need be, checks whose it is, hands it over. */
static int make_folder(int dir_fd, const char *name, const char *path,
		       uid_t uid, gid_t gid, struct err *e)
{
	SCOPED_FD int fd = -1;
	struct stat st;

	if (mkdirat(dir_fd, name, 0700) && errno != EEXIST)
		return err_sys(e, errno, "make folder %s", path);
	fd = openat(dir_fd, name,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return err_sys(e, errno, "open folder %s", path);
	if (!owner_fine(st.st_uid, uid))
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "folder %s belongs to user %u: give a folder "
			       "that is yours, or remove it",
			       path, st.st_uid);
	if ((st.st_mode & 07777) != 0700 && fchmod(fd, 0700))
		return err_sys(e, errno, "chmod 700 %s", path);
	if (uid != (uid_t)-1 && (st.st_uid != uid || st.st_gid != gid) &&
	    fchown(fd, uid, gid))
		return err_sys(e, errno, "give %s to user %u", path, uid);
	return fsync(fd) ? err_sys(e, errno, "sync %s", path) : 0;
}

/* Folder `name` of at most two parts, below the open data folder. */
static int make_below(int data_fd, const char *data, const char *name,
		      uid_t uid, gid_t gid, struct err *e)
{
	SCOPED_FD int parent = -1;
	const char *slash = strchr(name, '/');
	char path[PATH_MAX], first[32];

	join(path, data, name);
	if (!slash)
		return make_folder(data_fd, name, path, uid, gid, e);
	snprintf(first, sizeof(first), "%.*s", (int)(slash - name), name);
	parent = openat(data_fd, first,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (parent < 0)
		return err_sys(e, errno, "open folder %s/%s", data, first);
	return make_folder(parent, slash + 1, path, uid, gid, e);
}

int datadir_create(const char *data, uid_t uid, gid_t gid, struct err *e)
{
	SCOPED_FD int fd = -1;
	int r;

	if (!data[0] || strlen(data) > PATH_MAX - 256)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "data folder: give a path of 1 to %d bytes",
			       PATH_MAX - 256);
	r = make_folder(AT_FDCWD, data, data, uid, gid, e);
	if (r)
		return r;
	fd = open(data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "open data folder %s", data);
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		r = make_below(fd, data, folders[i], uid, gid, e);
		if (r)
			return r;
	}
	return fsync(fd) ? err_sys(e, errno, "sync %s", data) : 0;
}

void datadir_id_path(char ret[PATH_MAX], const char *data, const char *kind,
		     const char *id)
{
	if (snprintf(ret, PATH_MAX, "%s/%s/%.2s/%s", data, kind, id, id) >=
	    PATH_MAX)
		ret[0] = 0;
}

int datadir_sync(const char *path, struct err *e)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, errno, "open folder %s", path);
	return fsync(fd) ? err_sys(e, errno, "sync folder %s", path) : 0;
}

/* Makes one folder; its parent is synced if it was not there. */
static int make_synced(const char *path, const char *parent, struct err *e)
{
	if (!mkdir(path, 0700))
		return datadir_sync(parent, e);
	return errno == EEXIST ? 0 : err_sys(e, errno, "make folder %s", path);
}

int datadir_id_mkdir(const char *data, const char *kind, const char *id,
		     struct err *e)
{
	char top[PATH_MAX], mid[PATH_MAX], path[PATH_MAX];
	char *slash;
	int r;

	PRE(strlen(id) >= 2);
	join(top, data, kind);
	datadir_id_path(path, data, kind, id);
	if (!path[0])
		return err_set(e, -ENAMETOOLONG, ERR_INVALID,
			       "data folder: path too long");
	memcpy(mid, path, sizeof(mid));
	slash = strrchr(mid, '/');
	*slash = 0;
	r = make_synced(mid, top, e);
	return r ? r : make_synced(path, mid, e);
}

static int remove_one(const char *path, const struct stat *st UNUSED,
		      int type UNUSED, struct FTW *at)
{
	return at->level && remove(path) ? -errno : 0;
}

int datadir_tmp_clean(const char *data, struct err *e)
{
	char path[PATH_MAX];
	int r;

	join(path, data, "tmp");
	r = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	if (r == -1)
		r = -errno;
	return r ? err_sys(e, -r, "empty folder %s", path) : 0;
}

/* --- lock ----------------------------------------------------------------- */

static pid_t read_pid(int fd)
{
	char text[24] = { 0 };
	long pid;

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return 0;
	pid = strtol(text, NULL, 10);
	return pid > 0 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

int datadir_lock_adopt(int fd, struct err *e)
{
	char text[24];
	int len = snprintf(text, sizeof(text), "%d\n", getpid());
	int r = 0;

	if (ftruncate(fd, 0))
		r = -errno;
	if (!r)
		r = base_pwrite_all(fd, text, (size_t)len, 0);
	return r ? err_sys(e, -r, "write the data folder's lock") : 0;
}

static int lock_busy(const char *data, int fd, struct err *e)
{
	pid_t pid = read_pid(fd);

	if (pid && (!kill(pid, 0) || errno == EPERM))
		return err_set(e, -EBUSY, ERR_BUSY,
			       "data folder %s is in use by process %d: stop "
			       "that one first, or use another --data",
			       data, pid);
	return err_set(e, -EBUSY, ERR_BUSY,
		       "data folder %s is in use by a child of process %d, "
		       "which is gone: see who holds it by fuser %s/lock, or "
		       "use another --data",
		       data, pid, data);
}

int datadir_lock(const char *data, int *ret_fd, struct err *e)
{
	/* A holder's question holds it shared for a moment: ask again. */
	static const struct timespec moment = { .tv_nsec = 20000000 };
	SCOPED_FD int fd = -1;
	char path[PATH_MAX];
	int r = -1;

	join(path, data, "lock");
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "open %s", path);
	for (int i = 0; r && i < 5; i++) {
		if (i)
			nanosleep(&moment, NULL);
		r = flock(fd, LOCK_EX | LOCK_NB);
		if (r && errno != EWOULDBLOCK)
			return err_sys(e, errno, "lock %s", path);
	}
	if (r)
		return lock_busy(data, fd, e);
	r = datadir_lock_adopt(fd, e);
	if (!r)
		*ret_fd = base_steal_fd(&fd);
	return r;
}

int datadir_lock_holder(const char *data, pid_t *ret_pid, struct err *e)
{
	SCOPED_FD int fd = -1;
	char path[PATH_MAX];

	join(path, data, "lock");
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT)
		return err_sys(e, errno, "open %s", path);
	if (fd < 0 || !flock(fd, LOCK_SH | LOCK_NB))
		*ret_pid = 0;
	else if (errno == EWOULDBLOCK)
		*ret_pid = read_pid(fd);
	else
		return err_sys(e, errno, "ask for lock %s", path);
	return 0;
}

/* --- space ---------------------------------------------------------------- */

enum datadir_level datadir_level(uint64_t avail, uint64_t total)
{
	/* In hundredths without overflow for any 64-bit size. */
	uint64_t part = total / 100;

	if (avail < part * DATADIR_COLLECT_STOP_PERCENT)
		return DATADIR_NO_COLLECT;
	if (avail < part * DATADIR_CAPTURE_STOP_PERCENT)
		return DATADIR_NO_CAPTURE;
	return DATADIR_FINE;
}

int datadir_space(const char *data, struct datadir_space *ret, struct err *e)
{
	struct statvfs st;

	if (statvfs(data, &st))
		return err_sys(e, errno, "ask for the space of %s", data);
	ret->total = (uint64_t)st.f_blocks * st.f_frsize;
	ret->avail = (uint64_t)st.f_bavail * st.f_frsize;
	ret->level = datadir_level(ret->avail, ret->total);
	return 0;
}

int datadir_room(int fd, uint64_t leave)
{
	struct statfs st;

	/* no blocks at all: memory, which has no such limit */
	if (fstatfs(fd, &st) < 0 || !st.f_blocks)
		return 0;
	return (uint64_t)st.f_bavail * (uint64_t)st.f_bsize <= leave ? -ENOSPC
								     : 0;
}

int datadir_ballast_ensure(const char *data, uint64_t len, struct err *e)
{
	SCOPED_FD int fd = -1;
	struct datadir_space space;
	char path[PATH_MAX];
	struct stat st;
	int r;

	join(path, data, "log/ballast");
	if (!stat(path, &st) && (uint64_t)st.st_blocks * 512 >= len)
		return 0;
	r = datadir_space(data, &space, e);
	if (r)
		return r;
	if (space.avail < len ||
	    datadir_level(space.avail - len, space.total) != DATADIR_FINE)
		return 1;
	fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "make %s", path);
	r = posix_fallocate(fd, 0, (off_t)len);
	if (r)
		return err_sys(e, r, "allocate %s", path);
	return fsync(fd) ? err_sys(e, errno, "sync %s", path) : 0;
}

int datadir_ballast_release(const char *data, struct err *e)
{
	char path[PATH_MAX];

	join(path, data, "log/ballast");
	if (unlink(path) && errno != ENOENT)
		return err_sys(e, errno, "remove %s", path);
	return 0;
}
