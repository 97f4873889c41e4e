/*
 * A small NBD client for tests, over one end of a socketpair. Numbers and
 * layouts are written out here from the protocol's text, not shared with the
 * server. Any transport failure ends the test program.
 */
#ifndef TESTS_UNIT_SNAPSHOTTER_DISK_CLIENT_H
#define TESTS_UNIT_SNAPSHOTTER_DISK_CLIENT_H

#include <sys/socket.h>

#include "core/base.h"
#include "tests/tap.h"

UNUSED static void be_put(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * (bytes - 1 - i)));
}

UNUSED static uint64_t be_get(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v = v << 8 | p[i];
	return v;
}

UNUSED static void client_send(int fd, const void *p, size_t len)
{
	const uint8_t *at = p;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n <= 0)
			bail("client: send: %s", strerror(errno));
		at += n;
		len -= (size_t)n;
	}
}

UNUSED static void client_recv(int fd, void *p, size_t len)
{
	if (len && recv(fd, p, len, MSG_WAITALL) != (ssize_t)len)
		bail("client: the server closed too early");
}

/* True if the server has closed its end and sent nothing more. */
UNUSED static bool client_closed(int fd)
{
	uint8_t b;

	return recv(fd, &b, 1, 0) <= 0;
}

UNUSED static void client_option(int fd, uint32_t option, const void *data,
				 uint32_t len)
{
	uint8_t head[16] = "IHAVEOPT";

	be_put(head + 8, option, 4);
	be_put(head + 12, len, 4);
	client_send(fd, head, sizeof(head));
	client_send(fd, data, len);
}

/* One reply to an option: its type; its data into buf[128]. */
UNUSED static uint32_t client_option_reply(int fd, uint32_t option,
					   uint8_t *buf, uint32_t *ret_len)
{
	static const uint8_t magic[8] = { 0x00, 0x03, 0xe8, 0x89,
					  0x04, 0x55, 0x65, 0xa9 };
	uint8_t head[20];
	uint32_t len;

	client_recv(fd, head, sizeof(head));
	if (memcmp(head, magic, 8) || be_get(head + 8, 4) != option)
		bail("client: not a reply to option %u", option);
	len = (uint32_t)be_get(head + 16, 4);
	if (len > 128)
		bail("client: a reply of %u bytes", len);
	client_recv(fd, buf, len);
	if (ret_len)
		*ret_len = len;
	return (uint32_t)be_get(head + 12, 4);
}

/* Greeting and flags; the client wants no zeroes. */
UNUSED static void client_hello(int fd)
{
	static const uint8_t flags[4] = { 0, 0, 0, 3 };
	uint8_t hello[18];

	client_recv(fd, hello, sizeof(hello));
	if (memcmp(hello, "NBDMAGICIHAVEOPT\0\3", 18))
		bail("client: not the greeting");
	client_send(fd, flags, 4);
}

/* GO for the export "" with INFO_BLOCK_SIZE wanted. */
UNUSED static void client_go(int fd)
{
	static const uint8_t want[8] = { 0, 0, 0, 0, 0, 1, 0, 3 };
	uint8_t buf[128];
	uint32_t type;

	client_option(fd, 7, want, sizeof(want));
	do {
		type = client_option_reply(fd, 7, buf, NULL);
	} while (type == 3);
	if (type != 1)
		bail("client: GO was answered %#x", type);
}

UNUSED static void client_request(int fd, uint16_t flags, uint16_t type,
				  uint64_t handle, uint64_t offset, uint32_t len)
{
	uint8_t head[28] = { 0x25, 0x60, 0x95, 0x13 };

	be_put(head + 4, flags, 2);
	be_put(head + 6, type, 2);
	be_put(head + 8, handle, 8);
	be_put(head + 16, offset, 8);
	be_put(head + 24, len, 4);
	client_send(fd, head, sizeof(head));
}

/* The error of the simple reply to `handle`. */
UNUSED static uint32_t client_reply(int fd, uint64_t handle)
{
	static const uint8_t magic[4] = { 0x67, 0x44, 0x66, 0x98 };
	uint8_t head[16];

	client_recv(fd, head, sizeof(head));
	if (memcmp(head, magic, 4) || be_get(head + 8, 8) != handle)
		bail("client: not the reply to request %" PRIu64, handle);
	return (uint32_t)be_get(head + 4, 4);
}

/* A request without payload and its answer. */
UNUSED static uint32_t client_call(int fd, uint16_t flags, uint16_t type,
				   uint64_t offset, uint32_t len)
{
	client_request(fd, flags, type, 0x0123456789abcdef, offset, len);
	return client_reply(fd, 0x0123456789abcdef);
}

UNUSED static uint32_t client_read(int fd, uint64_t offset, uint32_t len,
				   void *ret)
{
	uint32_t error = client_call(fd, 0, 0, offset, len);

	if (!error)
		client_recv(fd, ret, len);
	return error;
}

UNUSED static uint32_t client_write(int fd, uint64_t offset, uint32_t len,
				    const void *p)
{
	client_request(fd, 0, 1, 77, offset, len);
	client_send(fd, p, len);
	return client_reply(fd, 77);
}

#endif
