/*
 * uffd: a shared object that is loaded into QEMU before its main() and makes
 * the userfaultfd of its address space, for the tracker in another process.
 *
 * The helper has opened /dev/userfaultfd (root alone may) and left it at
 * descriptor $CRYO_UFFD_DEV; a connected socket is at $CRYO_UFFD_SOCK. The
 * constructor asks the device for a userfaultfd, sends it over the socket,
 * and closes device and socket.
 *
 *  1. QEMU keeps its own copy of the userfaultfd open for its whole life:
 *     when the tracker dies, its registration stays and nothing is lost.
 *  2. It runs before QEMU's system call filter is on.
 *  3. Anything that fails ends the process: a VM whose writes go unseen
 *     must not run.
 *
 * The only code of ours inside the VMM. Source: userfaultfd(2), unix(7).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

#define EXIT_NO_TRACKER 97

static void give_up(const char *what)
{
	fprintf(stderr, "cryo-uffd: %s: %s\n", what, strerror(errno));
	_exit(EXIT_NO_TRACKER);
}

static int fd_of(const char *name)
{
	const char *s = getenv(name);
	char *end = NULL;
	long v = s ? strtol(s, &end, 10) : -1;

	if (v < 0 || v > 1023 || *end) {
		errno = EINVAL;
		give_up(name);
	}
	return (int)v;
}

static void send_fd(int sock, int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} c = { .bytes = { 0 } };
	char byte = 'U'; /* a stream socket carries no message without one */
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = c.bytes,
			    .msg_controllen = sizeof(c.bytes) };

	c.head.cmsg_level = SOL_SOCKET;
	c.head.cmsg_type = SCM_RIGHTS;
	c.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&c.head), &fd, sizeof(fd));
	if (sendmsg(sock, &m, MSG_NOSIGNAL) != 1)
		give_up("sending the userfaultfd");
}

__attribute__((constructor)) static void make_uffd(void)
{
	int dev = fd_of("CRYO_UFFD_DEV");
	int sock = fd_of("CRYO_UFFD_SOCK");
	int uffd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);

	if (uffd < 0)
		give_up("USERFAULTFD_IOC_NEW");
	send_fd(sock, uffd);
	close(dev);
	close(sock);
	unsetenv("LD_PRELOAD");
	unsetenv("CRYO_UFFD_DEV");
	unsetenv("CRYO_UFFD_SOCK");
}
