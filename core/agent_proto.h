/*
 * agent_proto: what the host and the agent in the guest say to each other,
 * in bytes (docs/adr/0050). One encoder and one decoder, used on both sides;
 * the host's side treats all of it as hostile.
 *
 * A frame is a header of 24 bytes, a body of at most 64 KiB and a trailer of
 * 8 bytes; numbers are little-endian. Requests go to the agent and carry an
 * id; the reply has the same id and the request's type with AGENT_REPLY set,
 * or type FAILED. Types between 0x40 and 0x7f are the agent's own notes and
 * have id 0.
 *
 * Either side may find itself in the middle of a frame whose rest will never
 * come (the machine was restored from a snapshot). So a stream starts with
 * RESET: the host sends AGENT_PAD_LEN zero bytes, which end any half frame
 * without making it valid, then RESET with a fresh random id. The agent
 * drops what came before and answers HELLO with that id; the host ignores
 * every byte before that HELLO.
 *
 * Nothing here touches a descriptor, a clock or a global; any thread, one
 * decoder per thread.
 */
#ifndef CORE_AGENT_PROTO_H
#define CORE_AGENT_PROTO_H

#include "core/buf.h"
#include "core/id.h"

#define AGENT_VERSION 1 /* of the messages; negotiated by RESET and HELLO */
#define AGENT_HEADER_LEN 24
#define AGENT_TRAILER_LEN 8
#define AGENT_BODY_MAX (64u << 10)
#define AGENT_FRAME_MAX (AGENT_HEADER_LEN + AGENT_BODY_MAX + AGENT_TRAILER_LEN)
#define AGENT_PAD_LEN AGENT_FRAME_MAX

/*
 * Most bytes of data in OUT, STDIN, FILE_READ and FILE_WRITE. A virtio
 * console takes at most 32 KiB at once: a frame of OUT fits into one write,
 * so it is never cut in half.
 */
#define AGENT_DATA_MAX (31u << 10)

#define AGENT_EXECS_MAX 256 /* known to an agent at once */
#define AGENT_RING_LEN (1u << 20) /* of output kept, per stream */
#define AGENT_STDIN_WINDOW (64u << 10) /* of stdin not yet in the pipe */
#define AGENT_ARGS_MAX 1024 /* strings in argv, and in env */
#define AGENT_PATH_MAX 4095 /* bytes, without the NUL */
#define AGENT_NAME_MAX 255 /* user, hostname */
#define AGENT_SEED_MIN 32
#define AGENT_SEED_MAX 512

#define AGENT_REPLY 0x80u

/* Types are never reused. 0x15 is kept for a terminal's size. */
enum agent_type {
	AGENT_RESET = 0x01,
	AGENT_PING = 0x02,
	AGENT_EXEC_START = 0x03,
	AGENT_STDIN = 0x04, /* no reply; see STDIN_ACK */
	AGENT_OUT_ACK = 0x05, /* no reply */
	AGENT_EXIT_ACK = 0x06, /* no reply; the agent forgets the exec */
	AGENT_SIGNAL = 0x07,
	AGENT_FILE_STAT = 0x08,
	AGENT_FILE_READ = 0x09,
	AGENT_FILE_WRITE = 0x0a,
	AGENT_FILE_COMMIT = 0x0b,
	AGENT_FILE_ABORT = 0x0c,
	AGENT_FILE_LIST = 0x0d,
	AGENT_FILE_MKDIR = 0x0e,
	AGENT_FILE_REMOVE = 0x0f,
	AGENT_SETTIME = 0x10,
	AGENT_RESEED = 0x11,
	AGENT_GENERATION = 0x12,
	AGENT_QUIESCE = 0x13,
	AGENT_UNQUIESCE = 0x14,

	AGENT_OUT = 0x40,
	AGENT_EXITED = 0x41,
	AGENT_STDIN_ACK = 0x42,

	AGENT_HELLO = 0x81,
	AGENT_PONG = 0x82,
	AGENT_EXEC_STARTED = 0x83,
	AGENT_SIGNAL_DONE = 0x87,
	AGENT_FILE_INFO = 0x88,
	AGENT_FILE_DATA = 0x89,
	AGENT_FILE_WRITTEN = 0x8a,
	AGENT_FILE_COMMITTED = 0x8b,
	AGENT_FILE_ABORTED = 0x8c,
	AGENT_FILE_ENTRIES = 0x8d,
	AGENT_FILE_MKDIR_DONE = 0x8e,
	AGENT_FILE_REMOVED = 0x8f,
	AGENT_SETTIME_DONE = 0x90,
	AGENT_RESEED_DONE = 0x91,
	AGENT_GENERATION_DONE = 0x92,
	AGENT_QUIESCED = 0x93,
	AGENT_UNQUIESCED = 0x94,
	AGENT_FAILED = 0xff,
};

enum agent_stream { AGENT_STDOUT = 1, AGENT_STDERR = 2 };

/* --- bodies --------------------------------------------------------------
 * Strings are NUL-terminated and never NULL once decoded; they, lists and
 * data point into the frame that was decoded. When encoding, NULL is "".
 * A tag names an exec or a half-written file: 20 characters as in id.h.
 */

struct agent_bytes {
	const uint8_t *p;
	uint32_t len;
};

/* A list of strings: built by agent_strs_add(), read by agent_strs_get() */
struct agent_strs {
	uint32_t nr;
	struct agent_bytes raw;
};

struct agent_reset {
	uint16_t version_min, version_max; /* what the host speaks */
};

struct agent_hello {
	uint16_t version; /* the highest that both speak */
	struct agent_bytes boot_id; /* 16 bytes; constant until a reboot */
	uint64_t mono_ns; /* CLOCK_BOOTTIME of the guest */
	uint64_t generation; /* last order GENERATION; 0: none yet */
	uint32_t nr_cpus;
	const char *agent; /* build, for people */
	uint32_t nr_execs; /* in `execs`, see agent_exec_next() */
	struct agent_bytes execs; /* AGENT_EXEC_LEN bytes each */
};

struct agent_pong {
	uint64_t wall_ns, mono_ns;
};

#define AGENT_EXEC_STDIN 1u /* else /dev/null */

struct agent_exec_start {
	const char *tag;
	uint32_t flags;
	const char *user; /* "", "name", "uid" or "uid:gid"; "" is root */
	const char *cwd; /* "": the user's home */
	struct agent_strs argv;
	struct agent_strs env; /* added to PATH HOME USER LOGNAME */
};

struct agent_exec_started {
	uint32_t pid;
};

struct agent_stdin {
	const char *tag;
	uint64_t offset; /* of data; what is known already is skipped */
	uint8_t eof; /* nothing follows after data */
	struct agent_bytes data;
};

struct agent_stdin_ack {
	const char *tag;
	uint64_t offset; /* all before it is in the pipe, or was dropped */
	uint8_t closed; /* the process reads no more */
};

struct agent_out_ack {
	const char *tag;
	uint8_t stream;
	uint64_t offset; /* all before it is safe and may be forgotten */
};

struct agent_exit_ack {
	const char *tag;
};

struct agent_out {
	const char *tag;
	uint8_t stream;
	uint64_t offset; /* of data in the stream, from the exec's start */
	struct agent_bytes data;
};

/* Sent once all output was read; again after each RESET until EXIT_ACK. */
struct agent_exited {
	const char *tag;
	uint32_t code; /* exit status; 128 + signal if killed by one */
	uint32_t signal; /* 0: it exited by itself */
	uint64_t out_total, err_total; /* where the streams end */
	uint64_t user_us, sys_us; /* CPU time of it and what it waited for */
};

struct agent_signal {
	const char *tag;
	uint32_t signal; /* 1..64, to the whole process group */
};

#define AGENT_FILE_NOFOLLOW 1u /* a link at the end is itself the object */

struct agent_file_stat {
	const char *path;
	uint32_t flags;
};

struct agent_file_info {
	uint32_t mode; /* as st_mode of Linux, type and permissions */
	uint32_t uid, gid;
	uint64_t size, inode;
	int64_t mtime_ns;
	const char *link; /* where a symbolic link points, else "" */
};

struct agent_file_read {
	const char *path;
	uint64_t offset;
	uint32_t len; /* at most AGENT_DATA_MAX */
};

struct agent_file_data {
	uint64_t size, inode; /* a reader checks that these stay */
	int64_t mtime_ns;
	struct agent_bytes data; /* shorter than asked only at the end */
};

/* Writes to a file beside `path`, made if it isn't there. */
struct agent_file_write {
	const char *tag;
	const char *path;
	uint64_t offset; /* at most where the last write ended */
	struct agent_bytes data;
};

struct agent_file_written {
	uint64_t size;
};

/* Makes what was written into `path`, over what was there, or fails. */
struct agent_file_commit {
	const char *tag;
	const char *path;
	uint32_t mode, uid, gid;
	uint64_t size; /* that was sent; another size is refused */
};

struct agent_file_abort {
	const char *tag;
	const char *path;
};

struct agent_file_list {
	const char *path;
	uint64_t cursor; /* 0, then `next` of the reply before */
};

struct agent_file_entries {
	uint64_t next; /* 0: this was the last */
	uint32_t nr;
	struct agent_bytes entries; /* see agent_entry_next() */
};

struct agent_file_mkdir {
	const char *path;
	uint32_t mode, uid, gid;
	uint8_t parents; /* make these too; and one that exists is no error */
};

struct agent_file_remove {
	const char *path; /* a file, or an empty folder */
};

#define AGENT_TIME_STEP 1u /* step also if less than 500 ms off */

struct agent_settime {
	uint64_t wall_ns;
	uint32_t flags;
};

struct agent_settime_done {
	int64_t jump_ns; /* new minus old */
	uint8_t stepped; /* else slewed */
};

struct agent_reseed {
	struct agent_bytes seed;
};

struct agent_reseed_done {
	uint32_t bits; /* credited and in use */
};

#define AGENT_GENERATION_FORK 1u /* also identity and hooks */

struct agent_generation {
	uint64_t number; /* grows with every restore */
	uint32_t flags;
	const char *session;
	const char *hostname; /* "": keep */
	const char *machine_id; /* 32 hex digits; "": keep */
};

#define AGENT_DONE_FILE 1u /* /run/cryo/generation */
#define AGENT_DONE_HOSTNAME 2u
#define AGENT_DONE_MACHINE_ID 4u
#define AGENT_DONE_HOOKS 8u /* are being started, if there are any */

struct agent_generation_done {
	uint32_t done; /* AGENT_DONE_* */
};

#define AGENT_QUIESCE_SYNC 1u /* write the guest's dirty pages first */
#define AGENT_QUIESCE_HOLD 2u /* then keep all CPUs from user processes */

/*
 * After the reply the agent says nothing until UNQUIESCE, RESET or 10 s.
 * With HOLD it also keeps every CPU to itself, until then or for `hold_ms`
 * of guest time (at most 200): what a restore finds running is the agent.
 */
struct agent_quiesce {
	uint32_t flags;
	uint32_t deadline_ms; /* for the sync; at most 10000 */
	uint32_t hold_ms;
};

struct agent_quiesced {
	uint32_t flags; /* of those asked for, what was reached in time */
};

struct agent_failed {
	uint32_t error; /* errno of Linux */
	const char *what;
};

/* One message. Requests and replies without a member here have no body. */
struct agent_msg {
	enum agent_type type;
	uint64_t id; /* of the request; 0 for notes; RESET: the nonce */
	union {
		struct agent_reset reset;
		struct agent_hello hello;
		struct agent_pong pong;
		struct agent_exec_start exec_start;
		struct agent_exec_started exec_started;
		struct agent_stdin stdin_data;
		struct agent_stdin_ack stdin_ack;
		struct agent_out_ack out_ack;
		struct agent_exit_ack exit_ack;
		struct agent_out out;
		struct agent_exited exited;
		struct agent_signal signal;
		struct agent_file_stat file_stat;
		struct agent_file_info file_info;
		struct agent_file_read file_read;
		struct agent_file_data file_data;
		struct agent_file_write file_write;
		struct agent_file_written file_written;
		struct agent_file_commit file_commit;
		struct agent_file_abort file_abort;
		struct agent_file_list file_list;
		struct agent_file_entries file_entries;
		struct agent_file_mkdir file_mkdir;
		struct agent_file_remove file_remove;
		struct agent_settime settime;
		struct agent_settime_done settime_done;
		struct agent_reseed reseed;
		struct agent_reseed_done reseed_done;
		struct agent_generation generation;
		struct agent_generation_done generation_done;
		struct agent_quiesce quiesce;
		struct agent_quiesced quiesced;
		struct agent_failed failed;
	};
};

/* Who reads: decides which types are legal. */
enum agent_side { AGENT_HOST, AGENT_GUEST };

/* "EXEC_START"; NULL if there is no such type */
const char *agent_type_name(enum agent_type type);

/*
 * Appends one frame to `b`. -EINVAL: a string with bad length or characters,
 * a tag that is none, data over AGENT_DATA_MAX; -E2BIG: body over 64 KiB.
 * On failure `b` is as before.
 */
int agent_msg_encode(struct buf *b, const struct agent_msg *m);

/* --- lists inside bodies ------------------------------------------------- */

/* Appends one string to the raw form of a list; the caller counts. */
void agent_strs_add(struct buf *raw, const char *s);

/*
 * Fills `ret` with pointers into the list and a NULL behind them; `max`
 * counts the NULL. Returns the number of strings; -E2BIG.
 */
int agent_strs_get(const struct agent_strs *l, const char **ret, size_t max);

#define AGENT_EXEC_LEN 66

enum agent_exec_phase { AGENT_EXEC_RUNNING = 1, AGENT_EXEC_EXITED = 2 };

/* An exec as HELLO tells it; EXITED is sent again as well. */
struct agent_exec_state {
	char tag[ID_LEN + 1];
	uint8_t phase;
	uint32_t pid;
	uint64_t stdin_offset; /* the next byte the agent wants */
	uint64_t out_acked, out_end; /* what is kept lies between */
	uint64_t err_acked, err_end;
};

void agent_exec_add(struct buf *raw, const struct agent_exec_state *x);

/* 1 and the next state, 0 at the end, -EPROTO. Start: the hello's bytes. */
int agent_exec_next(struct agent_bytes *rest, struct agent_exec_state *ret);

/* An entry of a folder, as lstat(2) sees it. */
struct agent_entry {
	uint32_t mode, uid, gid;
	uint64_t size;
	int64_t mtime_ns;
	const char *name; /* any byte but NUL and '/'; 1..255 bytes */
};

void agent_entry_add(struct buf *raw, const struct agent_entry *x);
int agent_entry_next(struct agent_bytes *rest, struct agent_entry *ret);

/* --- decoder ------------------------------------------------------------- */

struct agent_dec {
	enum agent_side side;
	bool synced;
	uint64_t nonce; /* host, not synced: of the HELLO it waits for */
	uint8_t *p; /* room for two frames */
	size_t at, len; /* unread bytes are [at, len) */
	uint64_t skipped; /* bytes thrown away while not synced */
};

/* Starts out of step: the guest waits for a RESET, the host for a HELLO. */
void agent_dec_init(struct agent_dec *d, enum agent_side side);
void agent_dec_done(struct agent_dec *d);

/* The host has sent RESET with this nonce: only its HELLO counts. */
void agent_dec_resync(struct agent_dec *d, uint64_t nonce);

/*
 * Where the next bytes go and how many fit (at least one); ends the life of
 * the message returned last. Then agent_dec_fed() with how many came.
 */
void *agent_dec_room(struct agent_dec *d, size_t *ret_len);
void agent_dec_fed(struct agent_dec *d, size_t len);

/*
 * The next message: 1 and it, 0 when more bytes are needed, -EPROTO when the
 * other side broke the protocol. A guest's decoder then waits for the next
 * RESET and may be called on; a host's is finished until agent_dec_resync().
 * What it returns points into the decoder and lives until agent_dec_room().
 */
int agent_dec_next(struct agent_dec *d, struct agent_msg *ret);

#endif
