/*
 * Tests of core/log: the shape of a line, levels, and values that try to
 * make a second line. Standard error is a pipe here.
 */
#include "core/log.h"

#include <fcntl.h>
#include <regex.h>
#include <stdio.h>

#include "tests/tap.h"

static int log_pipe = -1;

/* What was logged since the last call. */
static const char *logged(void)
{
	static char text[8192];
	ssize_t n = read(log_pipe, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static bool matches(const char *text, const char *pattern)
{
	regex_t re;
	bool good;

	if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB))
		bail("bad pattern %s", pattern);
	good = !regexec(&re, text, 0, NULL, 0);
	regfree(&re);
	return good;
}

static void test_shape(void)
{
	const char *text;

	log_init("prog", LOG_LEVEL_INFO);
	log_info("event=vm_started session=%s n=%d", "s1", 7);
	text = logged();
	ok(matches(text, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:"
			 "[0-9]{2}\\.[0-9]{3}Z prog info "
			 "event=vm_started session=s1 n=7\n$"),
	   "a line has time, program, level, message: %.60s", text);
}

static void test_levels(void)
{
	log_init("prog", LOG_LEVEL_WARN);
	log_info("a");
	log_debug("b");
	is_str(logged(), "", "below the level nothing is written");
	log_warn("c");
	ok(matches(logged(), " prog warn c\n$"), "at the level it is");
	log_error("d");
	ok(matches(logged(), " prog error d\n$"), "and above it");
	setenv("CRYO_LOG", "debug", 1);
	log_init("prog", LOG_LEVEL_WARN);
	log_debug("e");
	ok(matches(logged(), " prog debug e\n$"), "CRYO_LOG sets the level");
	setenv("CRYO_LOG", "nonsense", 1);
	log_init("prog", LOG_LEVEL_WARN);
	log_info("f");
	is_str(logged(), "", "a level that is none changes nothing");
	unsetenv("CRYO_LOG");
}

static void test_one_line(void)
{
	const char *text, *newline;

	log_init("prog", LOG_LEVEL_INFO);
	log_info("name=%s", "x\n2026 prog info forged=1\r\x1b[31m\x7f");
	text = logged();
	newline = strchr(text, '\n');
	ok(newline && !newline[1], "a value can't make a second line");
	ok(!strpbrk(text, "\r\x1b\x7f"), "nor drive a terminal");
	ok(strstr(text, "name=x?2026 prog info forged=1??[31m?"),
	   "what was cut out is seen");
	log_info("name=%s", "\xc3\xa9");
	ok(strstr(logged(), "name=\xc3\xa9\n"), "other letters stay");
}

static void test_long(void)
{
	char value[5000];
	const char *text;

	memset(value, 'a', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	log_info("v=%s", value);
	text = logged();
	is_int(strlen(text), 2047, "a long line is cut");
	ok(matches(text, "a\\.\\.\\.\n$"), "and says so");
}

static void test_errno(void)
{
	errno = ENOSPC;
	log_info("x");
	is_int(errno, ENOSPC, "errno is left alone");
	logged();
	close(STDERR_FILENO);
	errno = ENOSPC;
	log_info("x");
	is_int(errno, ENOSPC, "also when the line can't be written");
}

int main(void)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC | O_NONBLOCK))
		bail("pipe: %s", strerror(errno));
	log_pipe = p[0];
	dup2(p[1], STDERR_FILENO);
	test_shape();
	test_levels();
	test_one_line();
	test_long();
	test_errno();
	return tap_done();
}
