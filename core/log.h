/*
 * log: one line per thing that happened, to standard error:
 *   2026-01-31T12:00:00.123Z cryod info event=vm_started session=s1 ...
 * The message is an event word followed by key=value pairs. Never guest
 * bytes, never secrets. core, store and snapshotter log at debug only.
 * Safe from any thread: a line is one write(2).
 */
#ifndef CORE_LOG_H
#define CORE_LOG_H

#include "core/base.h"

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG
};

/* `program` is kept by reference. The level comes from CRYO_LOG if set. */
void log_init(const char *program, enum log_level level);
void log_at(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
