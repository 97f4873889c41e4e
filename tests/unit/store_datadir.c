/*
 * The data folder: layout, refusals, lock, levels of free space, ballast.
 */
#include "store/datadir.h"

#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/store_help.h"

static void test_create(void)
{
	static const char *const names[] = {
		"log",	     "keys/tenant", "keys/session", "keys/tmp", "packs",
		"templates", "overlays",    "transcripts",  "run",	"tmp",
	};
	struct err e = { 0 };
	struct stat st;
	const char *data = help_path("data");

	is_int(datadir_create(data, (uid_t)-1, (gid_t)-1, &e), 0, "create: %s",
	       e.msg);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char path[PATH_MAX];

		snprintf(path, sizeof(path), "%s/%s", data, names[i]);
		ok(!stat(path, &st) && S_ISDIR(st.st_mode) &&
			   (st.st_mode & 07777) == 0700,
		   "%s is a folder, 0700", names[i]);
	}
	chmod(data, 0755);
	is_int(datadir_create(data, (uid_t)-1, (gid_t)-1, &e), 0, "again");
	stat(data, &st);
	is_int(st.st_mode & 07777, 0700, "closes a folder left open");
	is_int(datadir_create("", 0, 0, &e), -EINVAL, "no path");
	is_int(datadir_create("/nowhere/at/all", (uid_t)-1, (gid_t)-1, &e),
	       -ENOENT, "no parent: %s", e.msg);
	help_write(help_path("file"), "", 0);
	is_int(datadir_create(help_path("file"), (uid_t)-1, (gid_t)-1, &e),
	       -ENOTDIR, "a file: %s", e.msg);
	if (symlink(data, help_path("link")))
		bail("symlink");
	ok(datadir_create(help_path("link"), (uid_t)-1, (gid_t)-1, &e) < 0,
	   "a link is not followed: %s", e.msg);
	rmdir(help_path("data/run"));
	if (symlink("/tmp", help_path("data/run")))
		bail("symlink");
	ok(datadir_create(data, (uid_t)-1, (gid_t)-1, &e) < 0,
	   "nor one inside: %s", e.msg);
	unlink(help_path("data/run"));
}

static void test_owner(void)
{
	const char *data = help_path("owned");
	struct err e = { 0 };
	struct stat st;

	if (geteuid()) {
		printf("# not root: handing over is not tested\n");
		return;
	}
	is_int(datadir_create(data, 12345, 23456, &e), 0, "hand over: %s", e.msg);
	stat(data, &st);
	ok(st.st_uid == 12345 && st.st_gid == 23456, "the folder");
	stat(help_path("owned/keys/session"), &st);
	ok(st.st_uid == 12345 && st.st_gid == 23456, "and what is below");
	is_int(datadir_create(data, 12345, 23456, &e), 0, "again");
	is_int(datadir_create(data, 999, 999, &e), -EPERM,
	       "not from one user to another: %s", e.msg);
	if (chown(help_path("owned/packs"), 777, 777))
		bail("chown");
	is_int(datadir_create(data, 12345, 23456, &e), -EPERM,
	       "a stranger's folder inside: %s", e.msg);
}

static void test_ids(void)
{
	const char *data = help_path("data");
	char path[PATH_MAX];
	struct err e = { 0 };
	struct stat st;

	datadir_id_path(path, "/d", "packs", "abcdefghij0123456789");
	is_str(path, "/d/packs/ab/abcdefghij0123456789", "path of an id");
	is_int(datadir_id_mkdir(data, "packs", "abcdefghij0123456789", &e), 0,
	       "make it: %s", e.msg);
	is_int(datadir_id_mkdir(data, "packs", "abcdefghij0123456789", &e), 0,
	       "again");
	is_int(datadir_id_mkdir(data, "packs", "abzzzzzzzz0123456789", &e), 0,
	       "a neighbour");
	datadir_id_path(path, data, "packs", "abcdefghij0123456789");
	ok(!stat(path, &st) && (st.st_mode & 07777) == 0700, "is there, 0700");
	is_int(datadir_sync(path, &e), 0, "sync it");
	is_int(datadir_sync(help_path("nothing"), &e), -ENOENT,
	       "sync nothing: %s", e.msg);
}

static void test_tmp(void)
{
	struct err e = { 0 };
	struct stat st;

	help_write(help_path("data/tmp/file"), "x", 1);
	mkdir(help_path("data/tmp/dir"), 0700);
	help_write(help_path("data/tmp/dir/file"), "x", 1);
	help_write(help_path("outside"), "x", 1);
	if (symlink(help_path("outside"), help_path("data/tmp/dir/link")))
		bail("symlink");
	is_int(datadir_tmp_clean(help_path("data"), &e), 0, "empty tmp: %s",
	       e.msg);
	stat(help_path("data/tmp"), &st);
	is_int(st.st_nlink, 2, "no folder is left in it");
	ok(access(help_path("data/tmp/file"), F_OK) != 0, "nor a file");
	ok(!access(help_path("outside"), F_OK), "links are not followed");
}

/* Holds the lock in a child until told; returns its pid. */
static pid_t hold(const char *data, int *ret_wr)
{
	int ready[2], end[2], fd;
	pid_t pid;
	char c;

	if (pipe(ready) || pipe(end))
		bail("pipe");
	pid = fork();
	if (!pid) {
		close(end[1]);
		c = datadir_lock(data, &fd, NULL) ? 'n' : 'y';
		if (write(ready[1], &c, 1) != 1 || read(end[0], &c, 1))
			_exit(1);
		_exit(0);
	}
	close(end[0]);
	if (read(ready[0], &c, 1) != 1 || c != 'y')
		bail("the child got no lock");
	close(ready[0]);
	close(ready[1]);
	*ret_wr = end[1];
	return pid;
}

static void test_lock(void)
{
	const char *data = help_path("data");
	struct err e = { 0 };
	char want[64];
	int fd = -1, end, status;
	pid_t pid, holder = -1;

	is_int(datadir_lock_holder(data, &holder, &e), 0, "ask");
	is_int(holder, 0, "nobody holds it");
	pid = hold(data, &end);
	is_int(datadir_lock_holder(data, &holder, &e), 0, "ask again");
	is_int(holder, pid, "a child does");
	is_int(datadir_lock(data, &fd, &e), -EBUSY, "a second: %s", e.msg);
	is_int(e.code, ERR_BUSY, "is busy");
	snprintf(want, sizeof(want), "in use by process %d", pid);
	ok(strstr(e.msg, want) && strstr(e.msg, "--data"),
	   "names the holder and what to do");
	is_int(fd, -1, "and gives no descriptor");
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(end);
	is_int(datadir_lock(data, &fd, &e), 0, "its death frees the lock");
	datadir_lock_holder(data, &holder, &e);
	is_int(holder, getpid(), "now it is ours");

	/* Inherited: the child keeps it, and puts its own pid in. */
	pid = fork();
	if (!pid) {
		if (datadir_lock_adopt(fd, &e))
			_exit(1);
		pause();
		_exit(0);
	}
	for (int i = 0; i < 500 && holder != pid; i++) {
		datadir_lock_holder(data, &holder, &e);
		usleep(10000);
	}
	is_int(holder, pid, "an heir writes its pid");
	close(fd);
	is_int(datadir_lock(data, &fd, &e), -EBUSY, "and holds the lock");
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	is_int(datadir_lock(data, &fd, &e), 0, "until it dies");
	close(fd);
	is_int(datadir_lock(help_path("nothing"), &fd, &e), -ENOENT,
	       "no folder: %s", e.msg);
}

static void test_levels(void)
{
	struct datadir_space s;
	struct err e = { 0 };

	is_int(datadir_level(100, 1000), DATADIR_FINE, "10 %% is fine");
	is_int(datadir_level(99, 1000), DATADIR_NO_CAPTURE, "9.9 %%: captures");
	is_int(datadir_level(50, 1000), DATADIR_NO_CAPTURE, "5 %%");
	is_int(datadir_level(49, 1000), DATADIR_NO_COLLECT, "4.9 %%: collection");
	is_int(datadir_level(0, 1000), DATADIR_NO_COLLECT, "nothing left");
	is_int(datadir_level(UINT64_MAX / 2, UINT64_MAX), DATADIR_FINE,
	       "no overflow");
	is_int(datadir_level(UINT64_MAX / 50, UINT64_MAX), DATADIR_NO_COLLECT,
	       "nor at 2 %%");
	is_int(datadir_space(help_path("data"), &s, &e), 0, "ask: %s", e.msg);
	ok(s.total > 0 && s.avail <= s.total, "sensible numbers");
	is_int(datadir_space(help_path("nothing"), &s, &e), -ENOENT,
	       "of nothing: %s", e.msg);
}

static void test_ballast(void)
{
	const char *data = help_path("data");
	struct datadir_space s;
	struct err e = { 0 };
	struct stat st;

	datadir_space(data, &s, &e);
	is_int(datadir_ballast_ensure(data, s.avail, &e), 1,
	       "ballast as large as the disk is not made");
	is_int(datadir_ballast_ensure(data, s.total * 2, &e), 1,
	       "nor a larger one");
	ok(access(help_path("data/log/ballast"), F_OK) != 0, "nothing is there");
	if (s.level != DATADIR_FINE) {
		printf("# disk too full to test the ballast\n");
		return;
	}
	is_int(datadir_ballast_ensure(data, 1 << 20, &e), 0, "1 MiB: %s", e.msg);
	ok(!stat(help_path("data/log/ballast"), &st) &&
		   st.st_blocks * 512 >= 1 << 20,
	   "is really allocated");
	if (truncate(help_path("data/log/ballast"), 4096))
		bail("truncate");
	is_int(datadir_ballast_ensure(data, 1 << 20, &e), 0, "half-made:");
	stat(help_path("data/log/ballast"), &st);
	ok(st.st_blocks * 512 >= 1 << 20, "made whole");
	is_int(datadir_ballast_release(data, &e), 0, "given back");
	ok(access(help_path("data/log/ballast"), F_OK) != 0, "gone");
	is_int(datadir_ballast_release(data, &e), 0, "again: fine");
}

int main(void)
{
	test_create();
	test_owner();
	is_int(datadir_create(help_path("data"), (uid_t)-1, (gid_t)-1, NULL), 0,
	       "whole again");
	test_ids();
	test_tmp();
	test_lock();
	test_levels();
	test_ballast();
	return tap_done();
}
