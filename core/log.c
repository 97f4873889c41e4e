/*
 * log: one line per thing that happened.
 *
 * How it works: the line is built on the stack and leaves by one write(2),
 * so lines of several threads and processes never mix.
 *
 * Invariants:
 *  1. One call is one line: control characters in a value are replaced, so
 *     no value can forge a second line or drive a terminal.
 *  2. A line is at most LOG_LINE_MAX bytes; what is cut ends in "...".
 *  3. errno is unchanged, so a line may be logged before it is read.
 *
 * The one mutable global of the house is here: program and level, set once
 * by log_init() before there are threads.
 */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/clock.h"

#define LOG_LINE_MAX 2048

static const char *const log_words[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

static struct {
	const char *program;
	enum log_level level;
} log_state = { "cryo", LOG_LEVEL_INFO };

void log_init(const char *program, enum log_level level)
{
	const char *want = getenv("CRYO_LOG");

	log_state.program = program;
	log_state.level = level;
	for (size_t i = 0; want && i < ARRAY_LEN(log_words); i++)
		if (!strcmp(want, log_words[i]))
			log_state.level = (enum log_level)i;
}

/* "2026-01-31T12:00:00.123Z program level "; returns its length */
static size_t log_head(char *line, size_t cap, enum log_level level)
{
	char text[CLOCK_TEXT_LEN];
	int64_t now = clock_wall(&clock_real);
	int64_t ms = now / NS_PER_MS % 1000;
	int n;

	/* whole seconds have no fraction, so ours goes before the Z */
	clock_format(text, now - now % NS_PER_S);
	text[strlen(text) - 1] = '\0';
	n = snprintf(line, cap, "%s.%03dZ %s %s ", text, (int)ms,
		     log_state.program, log_words[level]);
	return n < 0 ? 0 : MIN((size_t)n, cap - 1);
}

void log_at(enum log_level level, const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	size_t cap = sizeof(line) - 1, head, len; /* room for the newline */
	int saved = errno, n;
	va_list ap;

	if (level > log_state.level)
		return;
	head = log_head(line, cap, level);
	va_start(ap, fmt);
	n = vsnprintf(line + head, cap - head, fmt, ap);
	va_end(ap);
	len = head + (n < 0 ? 0 : (size_t)n);
	if (len >= cap) {
		len = cap - 1;
		memcpy(line + len - 3, "...", 3);
	}
	for (size_t i = head; i < len; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	line[len++] = '\n';
	/* who can't write a log line has nobody to tell */
	if (write(STDERR_FILENO, line, len) < 0)
		errno = saved;
	errno = saved;
}
