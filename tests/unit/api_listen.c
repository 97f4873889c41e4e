/*
 * api_listen: addresses as they are written; sockets that are in use; what
 * is refused for safety.
 */
#include "api/listen.h"

#include "tests/tap.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static void addresses(void)
{
	static const struct {
		const char *text, *host;
		unsigned port;
		bool ipv6, loopback;
	} good[] = {
		{ "127.0.0.1:7070", "127.0.0.1", 7070, false, true },
		{ "127.9.8.7:1", "127.9.8.7", 1, false, true },
		{ "localhost:80", "127.0.0.1", 80, false, true },
		{ "[::1]:65535", "::1", 65535, true, true },
		{ "0.0.0.0:0", "0.0.0.0", 0, false, false },
		{ "192.0.2.7:8080", "192.0.2.7", 8080, false, false },
		{ "[2001:db8::1]:9", "2001:db8::1", 9, true, false },
	};
	static const char *const bad[] = {
		"",
		"7070",
		":7070",
		"127.0.0.1",
		"127.0.0.1:",
		"127.0.0.1:x",
		"1.2.3:4",
		"127.0.0.1:65536",
		"127.0.0.1:-1",
		"::1:7070",
		"[::1]",
		"[]:1",
		"[::1:7070",
		"example.org:80",
		"[127.0.0.1]:80",
		"127.0.0.1:999999999999",
	};
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct listen_addr a;

		is_int(listen_addr_parse(&a, good[i].text, &e), 0, "%s",
		       good[i].text);
		is_str(a.host, good[i].host, "host");
		is_int(a.port, good[i].port, "port");
		ok(a.ipv6 == good[i].ipv6 && a.loopback == good[i].loopback,
		   "family and reach");
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct listen_addr a = { .port = 5 };

		is_int(listen_addr_parse(&a, bad[i], &e), -EINVAL,
		       "refuses \"%s\"", bad[i]);
		is_int(a.port, 5, "and gives nothing");
	}
}

static void tcp(void)
{
	struct listen_addr a, b;
	SCOPED_FD int fd = -1, other = -1;
	struct err e = { 0 };

	listen_addr_parse(&a, "127.0.0.1:0", &e);
	is_int(listen_tcp(&a, false, &fd, &e), 0, "a free port");
	ok(a.port > 0, "is named");
	ok(fcntl(fd, F_GETFD) & FD_CLOEXEC, "and not inherited");
	b = a;
	is_int(listen_tcp(&b, false, &other, &e), -EADDRINUSE,
	       "a port in use is refused");
	ok(strstr(e.msg, "in use") && strstr(e.msg, "--listen"),
	   "and the text says what to do: %s", e.msg);
	listen_addr_parse(&b, "192.0.2.7:8080", &e);
	is_int(listen_tcp(&b, false, &other, &e), -EPERM,
	       "beyond loopback only when asked for");
	ok(strstr(e.msg, "--insecure-plain") != NULL, "which is named");
	is_int(listen_tcp(&b, true, &other, &e), -EADDRNOTAVAIL,
	       "then an address that isn't ours says so");
	listen_addr_parse(&b, "0.0.0.0:0", &e);
	is_int(listen_tcp(&b, false, &other, &e), -EPERM,
	       "any address counts as beyond loopback");
}

static void unix_socket(void)
{
	char dir[] = "/tmp/cryo-listen-XXXXXX", path[64], long_path[200];
	struct err e = { 0 };
	struct stat st;
	int fd = -1, other = -1;

	if (!mkdtemp(dir))
		bail("making a folder");
	snprintf(path, sizeof(path), "%s/s", dir);
	is_int(listen_unix(path, &fd, &e), 0, "a unix socket");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600,
	   "is its owner's alone");
	is_int(listen_unix(path, &other, &e), -EADDRINUSE,
	       "a live one is not replaced");
	ok(strstr(e.msg, path) != NULL, "and named: %s", e.msg);
	close(fd);
	is_int(listen_unix(path, &other, &e), 0, "a dead one's file is");
	close(other);
	memset(long_path, 'a', sizeof(long_path) - 1);
	long_path[0] = '/';
	long_path[sizeof(long_path) - 1] = 0;
	is_int(listen_unix(long_path, &other, &e), -ENAMETOOLONG,
	       "a path that no socket can have is refused");
	unlink(path);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	is_int(listen_unix(path, &other, &e), -EEXIST,
	       "a file that is no socket is left alone");
	ok(stat(path, &st) == 0 && S_ISREG(st.st_mode), "and still there");
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	addresses();
	tcp();
	unix_socket();
	return tap_done();
}
