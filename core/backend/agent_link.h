/*
 * agent_link: the host's end of the channel to the agent of one guest. Runs
 * in the caller's event loop, never blocks, has no thread and no timer of
 * its own: the caller watches agent_link_fd() for agent_link_events(), calls
 * agent_link_ready() when something happened and agent_link_tick() when
 * agent_link_deadline() has passed.
 *
 * Calls are answered exactly once: by the reply, by FAILED, by their
 * deadline, by a reset or by the end of the link. Callbacks run from inside
 * agent_link_ready(), _tick(), _reset() and _free(), never from inside a
 * sending call; they may send, but not reset or free. What a callback is
 * given lives until it returns.
 *
 * Everything the agent says is a claim. The link checks form, sizes, types
 * and ids; whether an offset or a tag makes sense is for the caller to say.
 */
#ifndef CORE_BACKEND_AGENT_LINK_H
#define CORE_BACKEND_AGENT_LINK_H

#include "core/agent_proto.h"
#include "core/err.h"

struct agent_link;

#define AGENT_LINK_QUEUE_MAX (1u << 20) /* bytes waiting to be sent */
#define AGENT_LINK_CALLS_MAX 256 /* without an answer yet */

struct agent_link_ops {
	/* OUT: bytes of a stream. Ack them once they are safe. */
	void (*out)(void *ctx, const struct agent_out *o);
	/* EXITED; comes again after a reset until agent_link_exit_ack(). */
	void (*exited)(void *ctx, const struct agent_exited *x);
	void (*stdin_ack)(void *ctx, const struct agent_stdin_ack *a);
	/* The link is dead: hang-up or broken protocol. At most once. */
	void (*broken)(void *ctx, const struct err *e);
};

/*
 * The end of a call: `m` is the reply, or NULL and `e` says why. A FAILED
 * from the agent is -errno in `ret` with its text in `e`; -ETIMEDOUT,
 * -ECONNRESET (reset), -EPIPE (broken or freed).
 */
typedef void (*agent_link_fn)(void *ctx, int ret, const struct agent_msg *m,
			      const struct err *e);

/* `fd`: connected stream socket, made non-blocking, closed by _free. */
struct agent_link *agent_link_new(int fd, const struct agent_link_ops *ops,
				  void *ctx);
void agent_link_free(struct agent_link *l); /* takes NULL; ends all calls */

int agent_link_fd(const struct agent_link *l); /* -1 once broken */
uint32_t agent_link_events(const struct agent_link *l); /* EPOLLIN|EPOLLOUT */

/* Reads, delivers, writes; at most 256 KiB each way, then returns. */
void agent_link_ready(struct agent_link *l, uint32_t revents);

/* CLOCK_MONOTONIC ns of the earliest deadline; INT64_MAX: none. */
int64_t agent_link_deadline(const struct agent_link *l);
void agent_link_tick(struct agent_link *l); /* ends calls that are late */

/*
 * Starts the stream (first of all, and after every restore): drops what is
 * queued, ends all calls with -ECONNRESET, sends RESET. `clean`: the channel
 * is known to be between frames (a fresh boot, or a point taken after
 * QUIESCED), so no padding. `fn` gets the HELLO. Calls may follow at once:
 * the agent handles them in order behind the RESET. What callbacks send
 * while their calls are ended by the reset is refused with -EAGAIN.
 */
int agent_link_reset(struct agent_link *l, bool clean, int timeout_ms,
		     agent_link_fn fn, void *ctx, struct err *e);

/* True once the HELLO of the last reset came. */
bool agent_link_up(const struct agent_link *l);

/*
 * Sends a request; `m->id` is chosen by the link. Types without a reply:
 * fn NULL, timeout 0. 0, or the call never happened and fn isn't called:
 * -EAGAIN (queue or call table full: retry later), -EINVAL, -E2BIG, -EPIPE.
 */
int agent_link_call(struct agent_link *l, const struct agent_msg *m,
		    int timeout_ms, agent_link_fn fn, void *ctx, struct err *e);

/* Bytes that still wait to be written to the descriptor. */
size_t agent_link_queued(const struct agent_link *l);

/* --- the common requests, shaped ----------------------------------------- */

/* `argv` and `env` end with NULL; env may be NULL. Reply EXEC_STARTED. */
int agent_link_exec(struct agent_link *l, const char *tag, uint32_t flags,
		    const char *user, const char *cwd, const char *const *argv,
		    const char *const *env, int timeout_ms, agent_link_fn fn,
		    void *ctx, struct err *e);
int agent_link_stdin(struct agent_link *l, const char *tag, uint64_t offset,
		     const void *p, size_t len, bool eof, struct err *e);
int agent_link_out_ack(struct agent_link *l, const char *tag,
		       enum agent_stream stream, uint64_t offset, struct err *e);
int agent_link_exit_ack(struct agent_link *l, const char *tag, struct err *e);
int agent_link_signal(struct agent_link *l, const char *tag, int signal,
		      int timeout_ms, agent_link_fn fn, void *ctx, struct err *e);
/* Reply QUIESCED; its flags say what was reached. */
int agent_link_quiesce(struct agent_link *l, uint32_t flags, int deadline_ms,
		       int hold_ms, int timeout_ms, agent_link_fn fn, void *ctx,
		       struct err *e);
int agent_link_unquiesce(struct agent_link *l, int timeout_ms, agent_link_fn fn,
			 void *ctx, struct err *e);
/* Wall clock only, as after a capture; slews below 500 ms. */
int agent_link_settime(struct agent_link *l, int64_t wall_ns, uint32_t flags,
		       int timeout_ms, agent_link_fn fn, void *ctx,
		       struct err *e);

/* --- renewal -------------------------------------------------------------- */

struct agent_link_renew {
	int64_t wall_ns; /* when the machine goes on */
	uint8_t seed[64]; /* fresh; wiped by the link's caller */
	struct agent_generation generation;
};

#define AGENT_RENEWED_CLOCK 1u
#define AGENT_RENEWED_RNG 2u
#define AGENT_RENEWED_GENERATION 4u
#define AGENT_RENEWED_HOSTNAME 8u
#define AGENT_RENEWED_MACHINE_ID 16u
#define AGENT_RENEWED_HOOKS 32u

struct agent_link_renewed {
	uint32_t renewed; /* AGENT_RENEWED_* */
	int64_t clock_jump_ns;
	bool clock_stepped;
	uint32_t seed_bits;
	int64_t us; /* from agent_link_renew() to the last answer */
	int ret; /* 0, or of the first order that failed */
	struct err err; /* if so */
};

typedef void (*agent_link_renewed_fn)(void *ctx,
				      const struct agent_link_renewed *r);

/*
 * Queues SETTIME (stepping), RESEED, GENERATION and UNQUIESCE, which ends a
 * hold that the point was taken under; fn is called once, when all have
 * ended. After a restore: agent_link_reset(), agent_link_renew(), let the
 * loop write them, then let the machine go on. One at a time (-EBUSY).
 */
int agent_link_renew(struct agent_link *l, const struct agent_link_renew *r,
		     int timeout_ms, agent_link_renewed_fn fn, void *ctx,
		     struct err *e);

#endif
