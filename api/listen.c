/*
 * listen: sockets for the door.
 *
 * Invariants: a TCP socket beyond loopback is never opened without being
 * asked for twice (the address, and insecure_plain); a live unix socket is
 * never unlinked; every descriptor is close-on-exec and non-blocking, as an
 * accept loop needs it.
 *
 * A crash leaves the unix socket's file behind; the next start replaces it.
 */
#include "api/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define LISTEN_BACKLOG 128

static int listen_bad_addr(const char *text, struct err *e)
{
	return err_set(e, -EINVAL, ERR_INVALID,
		       "\"%.80s\" is not an address to listen on; write "
		       "ADDR:PORT, such as 127.0.0.1:7070 or [::1]:7070",
		       text);
}

static int listen_port_parse(const char *s, uint16_t *ret)
{
	unsigned v = 0;

	if (!*s || strlen(s) > 5)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		v = v * 10 + (unsigned)(*s - '0');
	}
	if (v > 65535)
		return -EINVAL;
	*ret = (uint16_t)v;
	return 0;
}

/* Splits at the last colon, takes brackets off. */
static int listen_addr_split(struct listen_addr *a, const char *text)
{
	const char *colon = strrchr(text, ':');
	const char *from = text, *to = colon;

	if (!colon || listen_port_parse(colon + 1, &a->port) < 0)
		return -EINVAL;
	if (*text == '[') {
		if (to < text + 2 || to[-1] != ']')
			return -EINVAL;
		a->ipv6 = true;
		from++;
		to--;
	}
	if (to == from || (size_t)(to - from) >= sizeof(a->host))
		return -EINVAL;
	memcpy(a->host, from, (size_t)(to - from));
	if (!strcmp(a->host, "localhost"))
		base_strcpy(a->host, sizeof(a->host), "127.0.0.1");
	return 0;
}

int listen_addr_parse(struct listen_addr *ret, const char *text, struct err *e)
{
	struct listen_addr a = { 0 };
	struct in_addr v4;
	struct in6_addr v6;

	if (listen_addr_split(&a, text) < 0)
		return listen_bad_addr(text, e);
	if (a.ipv6) {
		if (inet_pton(AF_INET6, a.host, &v6) != 1)
			return listen_bad_addr(text, e);
		a.loopback = IN6_IS_ADDR_LOOPBACK(&v6);
	} else {
		if (inet_pton(AF_INET, a.host, &v4) != 1)
			return listen_bad_addr(text, e);
		a.loopback = ntohl(v4.s_addr) >> 24 == 127;
	}
	*ret = a;
	return 0;
}

static socklen_t listen_sockaddr(const struct listen_addr *a,
				 struct sockaddr_storage *ss)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (a->ipv6) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(a->port);
		inet_pton(AF_INET6, a->host, &v6->sin6_addr);
		return sizeof(*v6);
	}
	v4->sin_family = AF_INET;
	v4->sin_port = htons(a->port);
	inet_pton(AF_INET, a->host, &v4->sin_addr);
	return sizeof(*v4);
}

static int listen_tcp_error(const struct listen_addr *a, int en, struct err *e)
{
	if (en == EADDRINUSE)
		return err_set(e, -en, ERR_CONFLICT,
			       "port %u on %s is in use by another program; "
			       "end that one or give another port by --listen",
			       a->port, a->host);
	if (en == EACCES)
		return err_set(e, -en, ERR_FORBIDDEN,
			       "port %u may not be bound by this user; take "
			       "one above 1023",
			       a->port);
	if (en == EADDRNOTAVAIL)
		return err_set(e, -en, ERR_INVALID,
			       "%s is not an address of this machine", a->host);
	return err_sys(e, en, "listening on %s port %u", a->host, a->port);
}

int listen_tcp(struct listen_addr *addr, bool insecure_plain, int *ret_fd,
	       struct err *e)
{
	SCOPED_FD int fd = -1;
	struct sockaddr_storage ss;
	socklen_t len = listen_sockaddr(addr, &ss);
	int one = 1;

	if (!addr->loopback && !insecure_plain)
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "%s is not a loopback address and this port "
			       "has no TLS: keys would travel in the clear; "
			       "listen on 127.0.0.1 behind a TLS proxy, or "
			       "give --insecure-plain",
			       addr->host);
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return listen_tcp_error(addr, errno, e);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&ss, len) < 0 ||
	    listen(fd, LISTEN_BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return listen_tcp_error(addr, errno, e);
	/* both families keep the port at the same place */
	addr->port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	*ret_fd = base_steal_fd(&fd);
	return 0;
}

/* 0: nobody listens there any more (or no file); -EADDRINUSE: alive. */
static int listen_unix_probe(const struct sockaddr_un *un, struct err *e)
{
	SCOPED_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct stat st;

	if (fd < 0)
		return err_sys(e, errno, "making a unix socket");
	if (connect(fd, (const struct sockaddr *)un, sizeof(*un)) == 0)
		return err_set(e, -EADDRINUSE, ERR_CONFLICT,
			       "another cryod answers on %s; stop it first, "
			       "or use another data folder",
			       un->sun_path);
	if (errno == ENOENT)
		return 0;
	if (errno != ECONNREFUSED)
		return err_sys(e, errno, "looking for a daemon at %s",
			       un->sun_path);
	if (lstat(un->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return err_set(e, -EEXIST, ERR_CONFLICT,
			       "%s is there and is no socket; move it away",
			       un->sun_path);
	if (unlink(un->sun_path) < 0 && errno != ENOENT)
		return err_sys(e, errno, "removing the stale socket %s",
			       un->sun_path);
	return 0;
}

int listen_unix(const char *path, int *ret_fd, struct err *e)
{
	SCOPED_FD int fd = -1;
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int r;

	if (!base_strcpy(un.sun_path, sizeof(un.sun_path), path))
		return err_set(e, -ENAMETOOLONG, ERR_INVALID,
			       "the socket path %.80s... has more than %zu "
			       "characters; use a data folder with a shorter "
			       "name",
			       path, sizeof(un.sun_path) - 1);
	r = listen_unix_probe(&un, e);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, errno, "making a unix socket");
	/* on Linux the mode of an unbound socket becomes that of its file */
	if (fchmod(fd, 0600) < 0 ||
	    bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 ||
	    chmod(path, 0600) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		return err_sys(e, errno, "listening on %s", path);
	*ret_fd = base_steal_fd(&fd);
	return 0;
}
