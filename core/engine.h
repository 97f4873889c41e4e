/*
 * engine: the only writer. Takes whatever commands wait, decides each,
 * appends events and rows in one transaction, syncs once for all, then
 * acknowledges and starts the effects.
 */
#ifndef CORE_ENGINE_H
#define CORE_ENGINE_H

#include "core/backend.h"
#include "core/clock.h"
#include "core/ports.h"
#include "core/session.h"

struct engine_conf {
	const struct store_port *store;
	const struct view_port *views; /* for the waits; NULL: none possible */
	const struct clock *clock;
	const struct backend *backend;
	uint8_t boot_id[16];
	struct limits limits; /* start from limits_default */
	uint32_t queue_max; /* client commands waiting; 0: 1024 */
	uint32_t batch_max; /* commands per transaction; 0: 64 */
	uint32_t deferred_max; /* waiting behind one session; 0: 8 */
	int64_t overdue_ns; /* an operation takes at most; 0: 15 min */
	const char *version; /* for node.started */
	/* keyed digest of env values for the log; NULL: none is recorded */
	void (*env_digest)(void *ctx, const char *tenant, const void *p,
			   size_t len, uint8_t ret[32]);
	void *env_digest_ctx;
	/* called after each commit by the engine's thread; or NULL */
	void (*on_commit)(void *ctx, uint64_t last_seq);
	void *on_commit_ctx;
	void (*new_id)(struct id *ret); /* NULL: id_new(); tests fix it */
};

struct engine;

/* Copies conf; borrows what it points to. Starts nothing. */
struct engine *engine_new(const struct engine_conf *conf);

/* Stops the thread, answers what still waits with BUSY, frees. */
void engine_free(struct engine *en);

/*
 * Once, before engine_run(): the rows against what really lives. Completes,
 * re-issues or undoes what the last process left; sandboxes that no row
 * owns are killed. Borrows `live`.
 */
int engine_recover(struct engine *en, const struct backend_live *live, int nr,
		   struct err *e);

/* Starts the engine's thread. */
int engine_run(struct engine *en, struct err *e);

/*
 * Without a thread, for tests and simulation: carries out what waits, one
 * batch; returns how many commands it took (0: idle). Timers fire by clock.
 */
int engine_step(struct engine *en);

/*
 * Any thread. Takes ownership of c in any case; c->done is called exactly
 * once, perhaps with BUSY when the queue is full.
 */
void engine_submit(struct engine *en, struct command *c);

/* The engine as the place where a driver's outcomes go. */
struct outcome_sink engine_sink(struct engine *en);

/*
 * Any thread but the engine's: submits and waits for the reply. rc of the
 * reply, with e filled in; ERR_TIMEOUT: it was taken back, or (`e` says so)
 * has begun and may still come true.
 */
int engine_call(struct engine *en, struct command *c, int64_t timeout_ms,
		struct reply *ret, struct err *e);

/*
 * Any thread: waits until the operation has ended, or the time is over;
 * then *ret (operation_done it) is its row as it stands: look at state.
 * NOT_FOUND if there is none.
 */
int engine_wait_operation(struct engine *en, const char *id, int64_t timeout_ms,
			  struct operation *ret, struct err *e);

/* Any thread: waits until an event after `after` is committed or the time
 * is over; returns the last committed seq. */
uint64_t engine_wait_seq(struct engine *en, uint64_t after, int64_t timeout_ms);

#endif
