/*
 * listen: opens the sockets that the door listens on, with errors a person
 * can act on (port in use, not ours to bind, not a loopback address).
 */
#ifndef API_LISTEN_H
#define API_LISTEN_H

#include "core/err.h"

#define LISTEN_HOST_MAX 64

struct listen_addr {
	char host[LISTEN_HOST_MAX]; /* numeric, without brackets */
	uint16_t port;
	bool ipv6, loopback;
};

/* "127.0.0.1:7070", "[::1]:7070", "localhost:7070"; -EINVAL */
int listen_addr_parse(struct listen_addr *ret, const char *text, struct err *e);

/*
 * A listening TCP socket, close-on-exec; caller owns it. An address that is
 * not loopback is refused (-EPERM) unless `insecure_plain`: there is no TLS
 * on this socket. Port 0 takes a free one, which `addr->port` then names.
 */
int listen_tcp(struct listen_addr *addr, bool insecure_plain, int *ret_fd,
	       struct err *e);

/*
 * A listening unix socket at `path`, mode 0600. A socket file left by a dead
 * process is replaced; a live one is -EADDRINUSE. Who connects is checked by
 * SO_PEERCRED as well: the mode alone is not trusted.
 */
int listen_unix(const char *path, int *ret_fd, struct err *e);

#endif
