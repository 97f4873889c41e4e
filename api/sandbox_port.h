/*
 * sandbox_port: what the door asks of a running sandbox directly, past the
 * engine: bytes of exec output, standard input, files. cryod implements it
 * over its link to the session's cryo-vm; tests have one in memory.
 *
 * All calls block, are safe from any thread, and hold no lock while they
 * wait. A chunk is at most SANDBOX_CHUNK_MAX bytes. `session` and `exec` are
 * ids of rows that exist and that the caller may use: the door has checked
 * that. A session without a sandbox answers -ENOTCONN (ERR_CONFLICT, naming
 * its state), a lost link -EAGAIN (ERR_BUSY); both leave nothing half done.
 */
#ifndef API_SANDBOX_PORT_H
#define API_SANDBOX_PORT_H

#include "core/err.h"

#define SANDBOX_CHUNK_MAX (64u << 10)
#define SANDBOX_PATH_MAX 4096 /* with its NUL */
#define SANDBOX_APPEND UINT64_MAX

enum sandbox_stream { SANDBOX_STDOUT, SANDBOX_STDERR, SANDBOX_STREAM_NR };

/* Where a reader of output stands: next wanted byte of both streams. */
struct sandbox_cursor {
	uint64_t epoch; /* 0: whatever the exec's present epoch is */
	uint64_t off[SANDBOX_STREAM_NR];
};

enum sandbox_chunk_kind {
	SANDBOX_NOTHING, /* the timeout passed; ask again */
	SANDBOX_DATA, /* `len` bytes of `stream` from `off` on */
	SANDBOX_REWOUND, /* the cursor's epoch is over: go on from `at` */
	SANDBOX_EXIT, /* all output was given; `code` or `signal` */
	SANDBOX_LOST, /* ended without a status (its sandbox died) */
};

struct sandbox_chunk {
	enum sandbox_chunk_kind kind;
	enum sandbox_stream stream;
	uint64_t epoch;
	/*
	 * Offset of the first byte. Larger than asked for when the bytes
	 * between are no longer kept; never smaller.
	 */
	uint64_t off;
	size_t len;
	struct sandbox_cursor at; /* REWOUND: where the lines part */
	int code, signal; /* EXIT: signal 0 means `code` counts */
};

enum sandbox_file_kind {
	SANDBOX_FILE_REGULAR,
	SANDBOX_FILE_DIRECTORY,
	SANDBOX_FILE_OTHER,
};

struct sandbox_stat {
	enum sandbox_file_kind kind;
	uint32_t mode; /* permission bits, 07777 */
	uint32_t uid, gid;
	uint64_t size;
	int64_t mtime_ns;
};

struct sandbox_port {
	void *ctx;

	/*
	 * The next piece of output of `exec` after the cursor, into `data`
	 * (`max` <= SANDBOX_CHUNK_MAX). Output that is already there is
	 * given at once; else waits up to `timeout_ms` (0: don't wait).
	 * Works for ended execs as long as their transcript is kept.
	 */
	int (*output)(void *ctx, const char *session, const char *exec,
		      const struct sandbox_cursor *at, void *data, size_t max,
		      int timeout_ms, struct sandbox_chunk *ret, struct err *e);

	/*
	 * Gives `len` bytes (0 is fine) to standard input at offset `off`
	 * (SANDBOX_APPEND: at its end), closing it after them if `eof`.
	 * Bytes before the stream's end were given before and are dropped,
	 * so a repeated call does no harm; a hole is -EINVAL. Waits up to
	 * `timeout_ms` for the process to take them: -ETIMEDOUT. *ret_off
	 * (also on -ETIMEDOUT) is the stream's end now. No stdin was asked
	 * for, or it is closed: -EPIPE, ERR_CONFLICT.
	 */
	int (*stdin_write)(void *ctx, const char *session, const char *exec,
			   uint64_t off, const void *data, size_t len, bool eof,
			   int timeout_ms, uint64_t *ret_off, struct err *e);

	/* Absolute guest paths. No such file: -ENOENT, ERR_NOT_FOUND. */
	int (*file_stat)(void *ctx, const char *session, const char *path,
			 struct sandbox_stat *ret, struct err *e);

	/* Up to `max` bytes at `off`; *ret_len 0 at the end of the file. */
	int (*file_read)(void *ctx, const char *session, const char *path,
			 uint64_t off, void *data, size_t max, size_t *ret_len,
			 struct err *e);

	/*
	 * Writing a file: begin, chunks in order without holes, then commit
	 * or abort, which both end *ret_put. The file appears whole, at
	 * commit, with the permission bits `mode`; never after an abort.
	 * Missing folders above `path` are made. One thread per put.
	 */
	int (*file_begin)(void *ctx, const char *session, const char *path,
			  void **ret_put, struct err *e);
	int (*file_write)(void *put, uint64_t off, const void *data, size_t len,
			  struct err *e);
	int (*file_commit)(void *put, uint32_t mode, struct err *e);
	void (*file_abort)(void *put);
};

#endif
