/*
 * Tests of core/base: byte order against written-out bytes, whole transfers
 * over pipes that break, panics in a child.
 */
#include "core/base.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/tap.h"

static void test_byte_order(void)
{
	static const uint8_t little[] = { 0x08, 0x07, 0x06, 0x05,
					  0x04, 0x03, 0x02, 0x01 };
	static const uint8_t big[] = { 0x01, 0x02, 0x03, 0x04,
				       0x05, 0x06, 0x07, 0x08 };
	uint8_t b[9]; /* one more, to be unaligned */

	put_u64(b + 1, 0x0102030405060708u);
	ok(!memcmp(b + 1, little, 8), "u64 is stored low byte first");
	ok(get_u64(b + 1) == 0x0102030405060708u, "and read back");
	put_u32(b + 1, 0xfffefdfcu);
	ok(!memcmp(b + 1, "\xfc\xfd\xfe\xff", 4), "u32 low byte first");
	ok(get_u32(b + 1) == 0xfffefdfcu, "a high bit does not spread");
	put_u16(b + 1, 0xff01);
	ok(!memcmp(b + 1, "\x01\xff", 2), "u16 low byte first");
	is_int(get_u16(b + 1), 0xff01, "and read back");
	put_be64(b, 0x0102030405060708u);
	ok(!memcmp(b, big, 8), "keys are stored high byte first");
	ok(get_be64(b) == 0x0102030405060708u, "and read back");
}

static void law_be64_sorts(uint64_t *rng)
{
	int wrong = 0;

	for (int i = 0; i < 10000; i++) {
		uint64_t x = tap_rand(rng) >> (tap_rand(rng) % 64);
		uint64_t y = tap_rand(rng) >> (tap_rand(rng) % 64);
		uint8_t a[8], b[8];
		int c;

		put_be64(a, x);
		put_be64(b, y);
		c = memcmp(a, b, 8);
		wrong += (c < 0) != (x < y) || (c == 0) != (x == y);
	}
	is_int(wrong, 0, "bytes of big-endian keys sort as the numbers do");
}

static void test_strings(void)
{
	SCOPED_FREE char *dup = base_strdup("abc");
	SCOPED_FREE char *made = base_printf("%s-%d", "x", 42);
	char small[4] = "###";

	is_str(dup, "abc", "strdup");
	is_str(made, "x-42", "printf");
	ok(base_strcpy(small, 4, "abc"), "three characters fit in four bytes");
	is_str(small, "abc", "and are there");
	ok(!base_strcpy(small, 4, "abcd"), "four do not");
	is_str(small, "abc", "and are cut, terminated");
	ok(base_strcpy(small, 4, ""), "the empty string fits");
	is_str(small, "", "and is empty");
}

static void test_memory(void)
{
	SCOPED_FREE uint8_t *p = base_alloc(4096);
	SCOPED_FREE char *kept = base_strdup("kept"), *stolen;
	uint8_t sum = 0;
	int fd = 7;

	for (int i = 0; i < 4096; i++)
		sum |= p[i];
	is_int(sum, 0, "memory comes zeroed");
	p[0] = 9;
	p = base_realloc(p, 1u << 20);
	is_int(p[0], 9, "growing keeps what was there");
	stolen = STEAL(kept);
	ok(!kept && !strcmp(stolen, "kept"), "STEAL leaves NULL behind");
	is_int(base_steal_fd(&fd), 7, "a stolen descriptor");
	is_int(fd, -1, "leaves -1 behind");
}

static void test_scoped_fd(void)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC))
		bail("pipe: %s", strerror(errno));
	{
		SCOPED_FD int w = p[1];

		ok(fcntl(w, F_GETFD) >= 0, "open inside its scope");
	}
	ok(fcntl(p[1], F_GETFD) < 0 && errno == EBADF, "closed after it");
	close(p[0]);
}

static void test_pipes(void)
{
	char got[8] = { 0 };
	int p[2];

	if (pipe2(p, O_CLOEXEC))
		bail("pipe: %s", strerror(errno));
	is_int(base_write_all(p[1], "hello", 5), 0, "five bytes written");
	is_int(base_read_all(p[0], got, 5), 0, "five bytes read");
	is_str(got, "hello", "the same ones");
	is_int(base_write_all(p[1], "abc", 3), 0, "three bytes written");
	close(p[1]);
	is_int(base_read_all(p[0], got, 5), -EPIPE, "five can't be read");
	close(p[0]);
	is_int(base_read_all(-1, got, 1), -EBADF, "errors are forwarded");
	is_int(base_write_all(-1, got, 0), 0, "nothing to do is done");
}

/* A pipe holds 64 KiB, so a MiB arrives in many pieces both ways. */
static void test_pieces(void)
{
	enum { LEN = 1 << 20 };
	SCOPED_FREE uint8_t *out = base_alloc(LEN), *in = base_alloc(LEN);
	int p[2], status;
	pid_t pid;

	for (size_t i = 0; i < LEN; i++)
		out[i] = (uint8_t)(i * 31 + i / 251);
	if (pipe2(p, O_CLOEXEC))
		bail("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		bail("fork: %s", strerror(errno));
	if (!pid)
		_exit(base_write_all(p[1], out, LEN) ? 1 : 0);
	close(p[1]);
	is_int(base_read_all(p[0], in, LEN), 0, "a MiB through a pipe");
	ok(!memcmp(in, out, LEN), "arrives unchanged");
	ok(waitpid(pid, &status, 0) == pid && !status, "and was all written");
	close(p[0]);
}

static void test_positioned(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	char got[5] = { 0 };

	if (fd < 0)
		bail("memfd_create: %s", strerror(errno));
	is_int(base_pwrite_all(fd, "abcd", 4, 4096), 0, "written at a page");
	is_int(base_pread_all(fd, got, 4, 4096), 0, "read from there");
	is_str(got, "abcd", "unchanged");
	is_int(base_pread_all(fd, got, 4, 4098), -EPIPE, "not past the end");
	is_int(base_pwrite_all(fd, "a", 1, INT64_MAX), -EOVERFLOW,
	       "not past what a file can hold");
	is_int(base_pread_all(fd, got, 1, UINT64_MAX), -EOVERFLOW,
	       "an offset that would be negative is refused");
	close(fd);
}

static void test_secrets(void)
{
	uint8_t a[32], b[32], zero[32] = { 0 };

	base_random(a, 32);
	base_random(b, 32);
	ok(memcmp(a, b, 32) != 0, "two draws differ");
	memcpy(b, a, 32);
	ok(base_same_secret(a, b, 32), "equal secrets are equal");
	b[31] ^= 0x80;
	ok(!base_same_secret(a, b, 32), "one bit at the end is seen");
	b[31] ^= 0x80;
	b[0] ^= 1;
	ok(!base_same_secret(a, b, 32), "one bit at the start is seen");
	ok(base_same_secret(a, b, 0), "nothing equals nothing");
	base_wipe(a, 32);
	ok(!memcmp(a, zero, 32), "a wiped secret is gone");
}

/* Runs one bad function; gives what it printed, and its wait status. */
static int panic_of(void (*fn)(void), char *text, size_t len)
{
	const struct rlimit none = { 0, 0 };
	ssize_t n;
	int p[2], status;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		bail("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		bail("fork: %s", strerror(errno));
	if (!pid) {
		setrlimit(RLIMIT_CORE, &none);
		dup2(p[1], STDERR_FILENO);
		fn();
		_exit(0);
	}
	close(p[1]);
	n = read(p[0], text, len - 1);
	text[n > 0 ? n : 0] = '\0';
	close(p[0]);
	waitpid(pid, &status, 0);
	return status;
}

static volatile int zero_int;

static void bad_pre(void)
{
	PRE(zero_int == 1);
}

static void bad_never(void)
{
	NEVER("because");
}

static void good_all(void)
{
	PRE(zero_int == 0);
	POST(IMPLIES(zero_int, false));
	POST(IMPLIES(true, !zero_int));
}

static void test_panics(void)
{
	char text[600];
	int status = panic_of(bad_pre, text, sizeof(text));

	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
	   "a failed precondition aborts");
	ok(strstr(text, "panic: precondition at ") &&
		   strstr(text, "core_base.c:") &&
		   strstr(text, "zero_int == 1\n"),
	   "and says which, and where: %.60s", text);
	status = panic_of(bad_never, text, sizeof(text));
	ok(WIFSIGNALED(status) && strstr(text, ": because\n"), "NEVER says why");
	status = panic_of(good_all, text, sizeof(text));
	ok(!status && !*text, "assertions that hold say nothing");
}

static void test_macros(void)
{
	struct outer {
		int a, b;
	} o = { 1, 2 };
	int *b = &o.b;

	ok(CONTAINER_OF(b, struct outer, b) == &o, "CONTAINER_OF");
	is_int(MIN(2, 3) + MAX(2, 3) * 10, 32, "MIN and MAX");
	is_int(ARRAY_LEN(((int[7]){ 0 })), 7, "ARRAY_LEN");
}

int main(void)
{
	uint64_t rng = tap_seed();

	signal(SIGPIPE, SIG_IGN);
	test_byte_order();
	law_be64_sorts(&rng);
	test_strings();
	test_memory();
	test_scoped_fd();
	test_pipes();
	test_pieces();
	test_positioned();
	test_secrets();
	test_panics();
	test_macros();
	return tap_done();
}
