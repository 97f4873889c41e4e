/*
 * session_row: everything the service knows about a session, as a struct of
 * fixed size and as its row in TABLE_SESSIONS.
 *
 *                 +--------- paused <--------+
 *                 v   |                      |
 *   creating -> running ---> suspended -> resuming -> failed
 *       |         |  \___________________/^    ^_________|
 *       v         v
 *   (any) ---> stopping -> destroyed       running, paused -> failed
 *
 * creating   rows exist, the first start is under way
 * running    a sandbox of `epoch` runs      paused  it is resident, stopped
 * suspended  points only, no process        failed  no process; why is known
 * resuming   a sandbox of `epoch` is being made from the point `start`
 * stopping   tombstone: nothing may begin; resources are being removed
 * destroyed  last: the rows are gone
 */
#ifndef CORE_SESSION_ROW_H
#define CORE_SESSION_ROW_H

#include "core/event.h"
#include "core/fsm.h"
#include "core/operation.h"
#include "core/point.h"

enum session_state {
	SESSION_NONE,
	SESSION_CREATING,
	SESSION_RUNNING,
	SESSION_PAUSED,
	SESSION_SUSPENDED,
	SESSION_RESUMING,
	SESSION_STOPPING,
	SESSION_FAILED,
	SESSION_DESTROYED,
	SESSION_STATE_NR
};

enum session_keep { KEEP_DURABLE, KEEP_NONE, KEEP_NR };

#define TEMPLATE_NAME_LEN 96
#define DIGEST_TEXT_LEN 64 /* hex of SHA-256 */
#define PARK_KEY_LEN 191 /* "digest/memory/vcpus/disk/platform" */

struct session_spec {
	char template[TEMPLATE_NAME_LEN + 1]; /* "tiny:latest" */
	char template_digest[DIGEST_TEXT_LEN + 1];
	uint32_t memory_mib, vcpus, disk_mib;
	int64_t snapshot_every_ns; /* 0: no rolling points */
	int64_t ttl_ns; /* 0: no limit */
	enum session_keep keep; /* words: durable, none */
};

/* The operation that holds the session, if any. */
struct session_op {
	char id[ID_LEN + 1]; /* "": none */
	enum operation_kind kind;
	enum operation_step step;
	struct point_ref target; /* rewind: where to */
	char name[NAME_MAX_LEN + 1]; /* of the point being made */
	bool forensic; /* start even if the agent stays silent */
};

struct session {
	char id[ID_LEN + 1];
	char tenant[ID_LEN + 1]; /* "": the node's own */
	char name[NAME_MAX_LEN + 1];
	enum session_state state;
	uint64_t epoch; /* of the present or last incarnation; first is 1 */
	struct session_spec spec;
	bool park; /* hidden: holds a template's parked snapshot */
	char park_key[PARK_KEY_LEN + 1];
	char parent[ID_LEN + 1]; /* forked from, or "" */
	struct point base; /* where its line begins (another's point) */
	struct point_ref start; /* what the present epoch started from */
	struct point_ref head; /* newest point of the current line */
	struct point_ref undo; /* the present that the last rewind left */
	int64_t newest_ns; /* time of its newest point on any line */
	uint64_t rewinds; /* before-rewind-N: the last N used */
	uint64_t points, stored_bytes;
	uint64_t children; /* forks of it so far */
	struct session_op op;
	char waits_on[ID_LEN + 1]; /* creating: operation that makes the base */
	int64_t created_ns, changed_ns, started_ns;
	char actor[EVENT_ACTOR_LEN]; /* who created it */
	char backend[24], accel[16]; /* "qemu", "tcg" */
	bool agent; /* the guest's agent answered */
	bool stalled; /* stopped by trouble under its disk */
	char stall_why[160];
	int fail_code; /* enum err_code; meaningful when failed */
	char fail_why[256];
	int64_t ttl_used_ns; /* running time before this stretch */
	int64_t running_since_ns; /* monotonic; 0: not running */
	uint8_t running_boot[16]; /* boot id of that clock */
};

extern const struct fsm session_fsm; /* also the words of the states */
extern const struct fields session_fields, session_spec_fields, session_op_fields;
extern const char *const session_keep_words[KEEP_NR];

void session_encode(struct buf *b, const struct session *s);
int session_decode(struct session *ret, const void *row, size_t len,
		   struct err *e); /* zeroes *ret first */

static inline const char *session_state_word(enum session_state s)
{
	return fsm_name(&session_fsm, (int)s);
}

/* Is a point of the present being made on behalf of an operation? */
static inline bool session_capturing(const struct session *s)
{
	return s->op.step == STEP_CAPTURE;
}

/*
 * Running time left of its limit at this moment, in ns; INT64_MAX when it
 * has none. May be negative. mono_ns is CLOCK_BOOTTIME.
 */
int64_t session_ttl_left(const struct session *s, int64_t mono_ns,
			 const uint8_t boot_id[16]);

#endif
