/*
 * fds: for tests of what handles descriptors and threads: how many
 * descriptors are open, and waiting for something with a deadline.
 */
#ifndef TESTS_FDS_H
#define TESTS_FDS_H

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Open descriptors of this process. */
__attribute__((unused)) static int fds_count(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 3; /* ".", ".." and the folder's own */
}

/* Do two descriptors mean the same file? */
__attribute__((unused)) static bool fds_same(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

__attribute__((unused)) static int64_t fds_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* A memfd with these seals; the content is zeros. */
__attribute__((unused)) static int fds_memfd(off_t len, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, len) < 0 ||
	    (seals && fcntl(fd, F_ADD_SEALS, seals) < 0))
		return -1;
	return fd;
}

#define FDS_SEALED (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* True as soon as `cond` is, false after a minute. */
#define wait_for(cond)                                                     \
	({                                                                 \
		int64_t end_ = fds_now_ns() + 60 * 1000000000ll;           \
		bool good_;                                                \
		while (!(good_ = (cond)) && fds_now_ns() < end_)           \
			nanosleep(&(struct timespec){ .tv_nsec = 500000 }, \
				  NULL);                                   \
		good_;                                                     \
	})

#endif
