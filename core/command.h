/*
 * command: what a client, a timer or a driver asks. Made by command_new(),
 * filled in, handed to the engine, which owns it from then on and answers
 * through `done`. Which members count stands beside each kind; all others
 * stay zero.
 */
#ifndef CORE_COMMAND_H
#define CORE_COMMAND_H

#include "core/effect.h"
#include "core/exec_row.h"
#include "core/operation.h"
#include "core/session_row.h"

#define COMMANDS(X)                                                         \
	/* --- asked by clients: tenant, actor, session --- */              \
	X(CREATE, "create") /* name, spec; [session: its id] */             \
	X(FORK, "fork") /* [point], children, [ttl..] */                    \
	X(PAUSE, "pause")                                                   \
	X(CONTINUE, "continue")                                             \
	X(SUSPEND, "suspend")                                               \
	X(RESUME, "resume") /* [point], [forensic] */                       \
	X(REWIND, "rewind") /* point or undo */                             \
	X(SNAPSHOT, "snapshot") /* [name] */                                \
	X(DESTROY, "destroy")                                               \
	X(EXEC_START, "exec_start") /* argv env cwd user has_stdin tty */   \
	X(EXEC_SIGNAL, "exec_signal") /* exec, signal */                    \
	X(TENANT_CREATE, "tenant_create") /* id, name */                    \
	X(KEY_CREATE, "key_create") /* id, name, digest, info */            \
	X(KEY_REMOVE, "key_remove") /* id */                                \
	X(TEMPLATE_ADD, "template_add") /* spec.template, digest, info */   \
	/* --- the engine's own --- */                                      \
	X(NODE_START, "node_start")                                         \
	X(TTL, "ttl") /* the session's time is over */                      \
	X(OVERDUE, "overdue") /* operation: took too long */                \
	X(BASE, "base") /* point: what it waited for */                     \
	X(BASE_FAILED, "base_failed") /* err */                             \
	X(RECOVER, "recover") /* live, stopped, [hello] */                  \
	/* --- outcomes, by the driver: session, epoch, operation --- */    \
	X(STARTED, "started") /* backend accel us info agent [hello] */     \
	X(PAUSED, "paused")                                                 \
	X(CONTINUED, "continued")                                           \
	X(CAPTURED, "captured") /* made, stay_stopped */                    \
	X(CAPTURE_SKIPPED, "capture_skipped") /* made.kind, err */          \
	X(KILLED, "killed")                                                 \
	X(PURGED, "purged")                                                 \
	X(EFFECT_FAILED, "effect_failed") /* effect, err */                 \
	X(DIED, "died") /* err */                                           \
	X(STALLED, "stalled") /* err */                                     \
	X(HEALED, "healed")                                                 \
	X(EXEC_EXITED, "exec_exited") /* tag code signal out_len err_len */ \
	X(EXEC_HELLO, "exec_hello") /* hello: a late or new agent */

enum command_kind {
#define X(name, word) COMMAND_##name,
	COMMANDS(X)
#undef X
		COMMAND_NR
};

/* What the guest says is alive in it (claimed). */
struct exec_hello {
	char tag[ID_LEN + 1];
	bool exited; /* ended, and its exit will be told again */
	uint64_t out, err; /* next offsets of its output */
};

struct command_child {
	char id[ID_LEN + 1]; /* "": the engine makes one */
	char name[NAME_MAX_LEN + 1];
};

/* Of Idempotency-Key: both digests are the API's. */
struct command_idem {
	bool given;
	uint8_t scope[32]; /* over (API key, route, Idempotency-Key) */
	uint8_t body[32]; /* over the request's body */
};

/* How the engine answers. Borrowed by the callback. */
struct reply {
	int rc; /* 0, or -errno with err filled in */
	struct err err;
	char operation[ID_LEN + 1]; /* follow it; "" if there is none */
	char session[ID_LEN + 1];
	char exec[ID_LEN + 1];
	char point[ID_LEN + 1];
	int nr_children;
	char children[FORK_MAX][ID_LEN + 1]; /* of a fork */
	bool replayed; /* the answer to an earlier request of this key */
	uint64_t seq; /* last event that it made; 0: none */
};

/*
 * Called once per command by the engine's thread, after the commit. Must
 * not block nor call engine_call(); engine_submit() is fine.
 */
typedef void (*command_done_fn)(void *ctx, const struct reply *r);

struct facts; /* what decide() needs from other rows: session.h */

struct command {
	enum command_kind kind;
	command_done_fn done; /* or NULL */
	void *done_ctx;

	char tenant[ID_LEN + 1]; /* who asks; "": the node itself */
	bool admin; /* local administration: any tenant */
	char actor[EVENT_ACTOR_LEN];
	char session[ID_LEN + 1];
	char operation[ID_LEN + 1]; /* outcome: the effect's; else leave it */
	uint64_t epoch; /* outcome: the effect's */
	struct command_idem idem;
	bool no_wait; /* refuse with BUSY instead of queueing behind another */

	/* what clients say */
	char id[ID_LEN + 1]; /* of a tenant or key to make or remove */
	char name[NAME_MAX_LEN + 1];
	char digest[DIGEST_TEXT_LEN + 1];
	json_t *info; /* key: scopes; template: description; renewed; owned */
	struct session_spec spec; /* zeros: defaults, or the parent's */
	char point[ID_LEN + 1]; /* a point's id, as timespec resolved it */
	bool undo, forensic;
	int nr_children;
	struct command_child children[FORK_MAX];
	char exec[ID_LEN + 1];
	json_t *argv; /* array of strings; owned */
	json_t *env; /* object of strings; owned */
	char *cwd; /* owned */
	char user[EXEC_USER_MAX];
	bool has_stdin, tty;
	int signal;

	/* what drivers say */
	struct err err;
	enum effect_kind effect;
	char backend[24], accel[16];
	uint64_t us; /* how long the start took */
	bool agent;
	bool live; /* RECOVER: a sandbox of `epoch` is there */
	bool stopped; /* RECOVER: its vCPUs stand still */
	bool stay_stopped; /* CAPTURED: as the effect asked */
	struct point made; /* CAPTURED: session, epoch, seq are filled in */
	char tag[ID_LEN + 1];
	int code;
	uint64_t out_len, err_len;
	bool hello_known; /* else the list says nothing */
	int64_t hello_ns; /* wall clock when the agent made the list */
	int nr_hello;
	struct exec_hello *hello; /* owned */

	/* the engine's */
	int64_t wall_ns, mono_ns;
	uint8_t boot_id[16];
	char fresh[ID_LEN + 1]; /* an id for a point, exec or session */
	char park[ID_LEN + 1]; /* id for a park session, if needed */
	char park_op[ID_LEN + 1]; /* and for its operation */
	char env_digest[DIGEST_TEXT_LEN + 1];
	struct command *next;
};

struct command *command_new(enum command_kind kind);
void command_free(struct command *c); /* takes NULL */
const char *command_word(enum command_kind kind);

/* Room for `nr` (at most EXEC_HELLO_MAX) entries; sets hello_known. */
struct exec_hello *command_hello(struct command *c, int nr);

/* Asked by a client (bounded queue, may wait) rather than by ourselves? */
bool command_is_client(enum command_kind kind);

#endif
