/*
 * wire: messages between `cryod` and the `cryo-vm` of one sandbox, over a
 * SEQPACKET unix socket: one message a packet, descriptors beside it
 * (SCM_RIGHTS, unix(7)). Both run on one host, so bodies are fixed structs in
 * host order; a new daemon may meet an older `cryo-vm`, so the header carries
 * a version and a mismatch is answered, never guessed.
 *
 * A request carries a call number chosen by its sender; the reply repeats
 * type and number with WIRE_REPLY set and a status (0 or -errno; then the
 * body is the text of the error). Notes have call number 0 and no reply.
 * Both sides treat the other's bytes as hostile: sizes and descriptor counts
 * are checked against the table below before anything is looked at.
 */
#ifndef CORE_WIRE_H
#define CORE_WIRE_H

#include "core/err.h"
#include "core/id.h"
#include "core/point.h"

#define WIRE_MAGIC 0x4f595243u /* "CRYO" */
#define WIRE_VERSION 1
#define WIRE_BODY_MAX (80u << 10)
#define WIRE_CHUNK_MAX (31u << 10) /* bytes of a file or of stdin */
#define WIRE_FDS_MAX 9
#define WIRE_NAME_MAX 64
#define WIRE_EXECS_MAX 256

/*
 * name, direction (D: cryod asks, V: cryo-vm asks), fixed request bytes,
 * whether a tail may follow, descriptors with the request, descriptors with
 * the reply.
 */
#define WIRE_TYPES(X)                                                         \
	/* who are you, where do you stand -> wire_status */                  \
	X(HELLO, D, sizeof(struct wire_hello), 0, 0, 0)                       \
	/* what to be; fds: template image, overlay file */                   \
	X(SETUP, D, sizeof(struct wire_setup), 0, 2, 0)                       \
	/* materialise a point -> wire_loaded + tail; fds: its parts */       \
	X(LOAD, D, sizeof(struct wire_load), 0, 0, WIRE_IMAGE_FDS)            \
	/* take a hot image as the base; fds: its parts */                    \
	X(IMAGE, D, sizeof(struct wire_load), 0, WIRE_IMAGE_FDS, 0)           \
	/* the VMM is there: go; fds in enum wire_start_fd */                 \
	X(START, D, sizeof(struct wire_start), 0, WIRE_START_FDS, 0)          \
	X(PAUSE, D, 0, 0, 0, 0)                                               \
	X(CONT, D, 0, 0, 0, 0)                                                \
	/* the reply says accepted; the end is CAPTURED or SKIPPED */         \
	X(CAPTURE, D, sizeof(struct wire_capture), 0, 0, 0)                   \
	/* tail: argv and env as NUL-ended strings; fd: transcript */         \
	X(EXEC, D, sizeof(struct wire_exec), 1, 1, 0)                         \
	/* a transcript for an exec that a restore brought back */            \
	X(ATTACH, D, sizeof(struct wire_attach), 0, 1, 0)                     \
	X(SIGNAL, D, sizeof(struct wire_signal), 0, 0, 0)                     \
	/* tail: bytes -> wire_stdin_ack */                                   \
	X(STDIN, D, sizeof(struct wire_stdin), 1, 0, 0)                       \
	/* tail: path NUL, then bytes of a write -> wire_file_reply + tail */ \
	X(FILE, D, sizeof(struct wire_file), 1, 0, 0)                         \
	X(QUIT, D, 0, 0, 0, 0)                                                \
	/* descriptor and key of a pack -> wire_pack; fd */                   \
	X(PACK_OPEN, V, sizeof(struct wire_pack_id), 0, 0, 1)                 \
	X(PACK_NEW, V, 0, 0, 0, 1)                                            \
	/* may I capture now? the reply is the token */                       \
	X(TOKEN, V, 0, 0, 0, 0)                                               \
	/* a point is durable -> reply once its event is */                   \
	X(CAPTURED, V, sizeof(struct wire_captured), 0, 0, 0)                 \
	X(SKIPPED, V, sizeof(struct wire_skipped), 0, 0, 0)                   \
	X(EXITED, V, sizeof(struct wire_exited), 0, 0, 0)                     \
	/* note: a transcript has grown */                                    \
	X(OUTPUT, V, sizeof(struct wire_output), 0, 0, 0)                     \
	X(DIED, V, sizeof(struct wire_died), 0, 0, 0)                         \
	/* note: the guest's disk stopped it, or it goes on */                \
	X(STALLED, V, sizeof(struct wire_stalled), 0, 0, 0)

enum wire_type {
	WIRE_NONE,
#define X(name, ...) WIRE_##name,
	WIRE_TYPES(X)
#undef X
		WIRE_NR
};

#define WIRE_REPLY 1u /* flag in the header */

struct wire_hdr {
	uint32_t magic;
	uint16_t version, type;
	uint32_t flags;
	int32_t status;
	uint64_t call;
	uint32_t len; /* of what follows */
	uint32_t reserved;
};

struct wire_msg {
	enum wire_type type;
	bool reply;
	int status;
	uint64_t call;
	const uint8_t *body; /* borrowed from the connection's buffer */
	size_t len;
	int fds[WIRE_FDS_MAX]; /* owned by the receiver; -1 once taken */
	int nr_fds;
};

/* --- bodies: text is always NUL-terminated within its array -------------- */

enum wire_phase {
	WIRE_PHASE_NEW, /* no SETUP yet */
	WIRE_PHASE_SETUP,
	WIRE_PHASE_LOADED,
	WIRE_PHASE_STARTING,
	WIRE_PHASE_RUNNING,
	WIRE_PHASE_PAUSED,
	WIRE_PHASE_STALLED, /* stopped by its disk; heals by itself */
	WIRE_PHASE_DEAD, /* the VMM is gone; unreported points may wait */
	WIRE_PHASE_NR
};

struct wire_hello {
	uint64_t now_wall_ns;
};

struct wire_status {
	char session[ID_LEN + 1];
	uint32_t epoch;
	uint32_t phase;
	uint32_t unreported; /* finished captures not yet in the log */
	uint32_t nr_execs; /* a tail of wire_exec_state follows */
};

enum wire_exec_phase { WIRE_EXEC_RUNNING, WIRE_EXEC_EXITED };

struct wire_exec_state {
	char tag[ID_LEN + 1];
	uint32_t phase, code, signal;
	uint32_t attached; /* it has its transcript */
	uint64_t out_from, err_from; /* this epoch's transcript starts here */
	uint64_t out_end, err_end; /* what the guest has produced so far */
};

#define WIRE_KEEP_ROLLING 1u /* capture by the timer */

struct wire_setup {
	char session[ID_LEN + 1];
	uint32_t epoch;
	uint32_t memory_mib, vcpus;
	uint32_t disk_blocks;
	uint32_t flags;
	int64_t snapshot_every_ns;
	int64_t last_point_ns; /* point times grow from here */
	uint8_t compat[32];
	char point_session[ID_LEN + 1]; /* whose point the base is, or "" */
};

struct wire_load {
	char point[ID_LEN + 1];
	uint8_t pack[16];
	uint64_t offset; /* of the manifest's frame */
	uint8_t root[32]; /* what the log says it must be */
};

#define WIRE_IMAGE_FDS 3 /* RAM, page table, device state: all sealed */

#define WIRE_PACKS_MAX 4096 /* that one point may use */

struct wire_loaded {
	int64_t us;
	uint32_t nr_packs; /* ids of 16 bytes that it uses: the tail */
	uint32_t memory_pages; /* that are not zero */
};

enum wire_start_fd {
	WIRE_START_QMP,
	WIRE_START_AGENT,
	WIRE_START_NBD,
	WIRE_START_UFFD, /* socket on which the preload passes the userfaultfd */
	WIRE_START_PAGEMAP,
	WIRE_START_MEM,
	WIRE_START_MAPS,
	WIRE_START_PIDFD,
	WIRE_START_RAM, /* the memfd that the VMM's RAM maps */
	WIRE_START_FDS
};

#define WIRE_START_BOOT 1u /* from the kernel, not from device state */
#define WIRE_START_FORK 2u /* identity in the guest is renewed */
#define WIRE_START_CLEAN \
	4u /* the agent was quiet: no half frame is in its channel */

#define WIRE_START_FORENSIC 8u /* go on even if the agent stays silent */

struct wire_start {
	uint32_t flags;
	uint32_t generation;
	char hostname[WIRE_NAME_MAX];
	char machine_id[33];
};

#define WIRE_RENEWED_CLOCK 1u
#define WIRE_RENEWED_RNG 2u
#define WIRE_RENEWED_IDENTITY 4u
#define WIRE_RENEWED_HOOKS 8u

struct wire_started {
	uint32_t renewed;
	uint32_t nr_execs; /* a tail of wire_exec_state follows */
	uint32_t silent; /* WIRE_START_FORENSIC, and the agent was */
	uint32_t reserved;
	int64_t clock_jump_ns;
	int64_t load_us, renew_us; /* device state; orders until answered */
};

#define WIRE_CAPTURE_STAY 1u /* leave the VM stopped: it will be killed */

struct wire_capture {
	uint32_t kind; /* enum point_kind */
	uint32_t flags;
	uint64_t ticket; /* comes back in CAPTURED or SKIPPED */
	char name[WIRE_NAME_MAX];
};

struct wire_captured {
	char point[ID_LEN + 1], parent[ID_LEN + 1];
	uint32_t kind, epoch;
	uint64_t ticket;
	int64_t time_ns; /* host's wall clock at the stop */
	uint8_t pack[16];
	uint64_t offset;
	uint32_t depth; /* captures since the keyframe */
	uint32_t unquiesced; /* the agent did not answer in time */
	uint8_t root[32], compat[32];
	uint32_t memory_pages, disk_pages; /* changed since the parent */
	uint64_t stored_bytes;
	int64_t freeze_us, capture_us;
	char name[WIRE_NAME_MAX];
};

struct wire_skipped {
	uint32_t kind, reserved;
	uint64_t ticket;
	char why[160];
};

#define WIRE_EXEC_STDIN 1u

struct wire_exec {
	char tag[ID_LEN + 1];
	uint32_t flags, nr_argv, nr_env;
	char user[WIRE_NAME_MAX];
	char cwd[1024];
	uint8_t key[32]; /* of the transcript */
};

struct wire_attach {
	char tag[ID_LEN + 1];
	uint8_t key[32];
};

struct wire_signal {
	char tag[ID_LEN + 1];
	uint32_t signal;
};

struct wire_stdin {
	char tag[ID_LEN + 1];
	uint32_t eof;
	uint64_t offset;
};

struct wire_stdin_ack {
	uint64_t offset; /* all before it is in the guest's pipe */
	uint64_t end; /* of what was given so far */
};

enum wire_file_op {
	WIRE_FILE_STAT,
	WIRE_FILE_READ,
	WIRE_FILE_WRITE, /* to a file beside the target, named by handle */
	WIRE_FILE_COMMIT, /* rename it over the target */
	WIRE_FILE_ABORT,
	WIRE_FILE_MKDIR, /* with those above it; one that exists is fine */
	WIRE_FILE_NR
};

struct wire_file {
	uint32_t op, len;
	uint64_t offset;
	uint64_t handle;
	uint32_t mode, uid, gid, path_len;
};

struct wire_file_reply {
	uint64_t size;
	int64_t mtime_ns;
	uint32_t mode, uid, gid, len;
};

struct wire_pack_id {
	uint8_t id[16];
};

struct wire_pack {
	uint8_t id[16], key[32];
};

struct wire_exited {
	char tag[ID_LEN + 1];
	uint32_t code, signal;
	uint64_t out_total, err_total;
	uint8_t lost; /* the guest no longer knows it */
	uint8_t refused; /* it could not be started; code says how */
};

struct wire_output {
	char tag[ID_LEN + 1];
	uint8_t full; /* the transcript's limit is reached */
	uint64_t out_end, err_end; /* in the transcript */
};

struct wire_died {
	char why[160];
};

struct wire_stalled {
	uint32_t stalled; /* 0: healed */
	char why[160];
};

/* --- connection ---------------------------------------------------------- */

/*
 * Sends one message; a full socket blocks up to 5 s (-ETIMEDOUT). Body is
 * `fixed` then `tail`. Safe from several threads at once: a packet is atomic.
 */
int wire_send(int fd, enum wire_type type, uint64_t call, bool reply,
	      int status, const void *fixed, size_t fixed_len, const void *tail,
	      size_t tail_len, const int *fds, int nr_fds);

/* The same without waiting: -EAGAIN when the socket is full. */
int wire_send_now(int fd, enum wire_type type, uint64_t call, bool reply,
		  int status, const void *fixed, size_t fixed_len,
		  const void *tail, size_t tail_len, const int *fds, int nr_fds);

/* Room for one message. */
struct wire_buf {
	_Alignas(16) uint8_t bytes[sizeof(struct wire_hdr) + WIRE_BODY_MAX];
};

/*
 * Receives one message and checks it against the table: magic, version,
 * size, number of descriptors, direction (`from_daemon`: we are cryo-vm).
 * -EPIPE at the end, -EAGAIN if non-blocking and empty, -EPROTO if it is
 * not a message of ours (its descriptors are closed; hang up).
 */
int wire_recv(int fd, bool from_daemon, struct wire_buf *b,
	      struct wire_msg *ret_msg, struct err *e);

/* Closes descriptors that nobody took. */
void wire_msg_done(struct wire_msg *m);

/* Takes descriptor i out of the message. */
int wire_take_fd(struct wire_msg *m, int i);

/*
 * The fixed part of a request or reply, copied out; -EPROTO if too short or
 * if a text array inside isn't terminated is for the caller: see wire_text().
 */
int wire_body(const struct wire_msg *m, void *ret, size_t len);

/* Terminates a text array that came from outside; true if it had been. */
bool wire_text(char *s, size_t len);
#define WIRE_TEXT(a) wire_text(a, sizeof(a))

const char *wire_type_name(enum wire_type t);

#endif
