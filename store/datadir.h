/*
 * datadir: the data folder: its layout, its lock, its free space and the
 * ballast that keeps the log alive on a full disk.
 *
 *   DATA/lock                       held by flock while a daemon owns it
 *   DATA/log/                       LMDB; ballast
 *   DATA/keys/{tenant,session,tmp}/ wrapped keys; provider.key
 *   DATA/packs/ab/SESSION/          packs of a session; base/: granted ones
 *   DATA/templates/                 images, by digest
 *   DATA/overlays/                  sealed disks of running sandboxes
 *   DATA/transcripts/               sealed output of execs
 *   DATA/run/                       sockets, one folder per running sandbox
 *   DATA/tmp/                       emptied at start
 */
#ifndef STORE_DATADIR_H
#define STORE_DATADIR_H

#include <limits.h>
#include <sys/types.h>

#include "core/err.h"
#include "core/id.h"

#define DATADIR_BALLAST (256ull << 20)
/*
 * What others leave free, so that the log always has room: disks and packs
 * more than EVLOG_RESERVE, or a guest could eat the ballast, too; transcripts
 * less, since without them no command ends; so do disks that were hardly
 * written to.
 */
#define DATADIR_LEAVE_BULK (64ull << 20)
#define DATADIR_LEAVE_OUTPUT (16ull << 20)
#define DATADIR_CAPTURE_STOP_PERCENT 10 /* below: no new capture */
#define DATADIR_COLLECT_STOP_PERCENT 5 /* below: log and overlays only */

/*
 * Makes DATA and its folders, 0700, owned by uid:gid (-1: as they are).
 * Refuses a folder that others could have prepared: a symbolic link, or one
 * of another owner than root, the caller or uid. Can be repeated.
 */
int datadir_create(const char *data, uid_t uid, gid_t gid, struct err *e);

/*
 * Takes DATA/lock; the descriptor is the lock, also when inherited, and the
 * last close frees it. -EBUSY names the process that holds it.
 */
int datadir_lock(const char *data, int *ret_fd, struct err *e);
/* Writes the caller's pid into a lock that it inherited. */
int datadir_lock_adopt(int fd, struct err *e);
/* Pid of the holder, 0 if nobody holds it. */
int datadir_lock_holder(const char *data, pid_t *ret_pid, struct err *e);

/* "DATA/KIND/ab/ID"; KIND: "packs", "overlays" ... The folder of one id. */
void datadir_id_path(char ret[PATH_MAX], const char *data, const char *kind,
		     const char *id);
/* Makes that folder, synced up to KIND; 0700. */
int datadir_id_mkdir(const char *data, const char *kind, const char *id,
		     struct err *e);
/* fsync of a folder, so that names made in it survive a power cut. */
int datadir_sync(const char *path, struct err *e);
/* Removes what is left in DATA/tmp; at start, under the lock. */
int datadir_tmp_clean(const char *data, struct err *e);

/*
 * May a file of a guest grow on the file system of `fd`? -ENOSPC: no more than
 * `leave` bytes are free. Where there is no telling it may. Any thread.
 */
int datadir_room(int fd, uint64_t leave);

enum datadir_level {
	DATADIR_FINE,
	DATADIR_NO_CAPTURE, /* < 10 %: captures stop */
	DATADIR_NO_COLLECT, /* < 5 %: what is left is for log and overlays */
};

struct datadir_space {
	uint64_t total, avail; /* bytes; avail is what an ordinary user gets */
	enum datadir_level level;
};

int datadir_space(const char *data, struct datadir_space *ret, struct err *e);
enum datadir_level datadir_level(uint64_t avail, uint64_t total);

/*
 * DATA/log/ballast: `len` bytes that are really allocated, given back when
 * the disk is full. ensure: made only while space is DATADIR_FINE without it
 * (else 1); release: its bytes given back, 0 also if there was none.
 */
int datadir_ballast_ensure(const char *data, uint64_t len, struct err *e);
int datadir_ballast_release(const char *data, struct err *e);

#endif
