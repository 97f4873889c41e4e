/*
 * qemu_impl: what the files of the QEMU driver share.
 *
 * Threads: the engine calls start(); 16 workers carry out effects, one per
 * session at a time, KILL and PURGE besides; two more serve what cryo-vms ask
 * (packs), so that a worker that waits for a cryo-vm never stands in its way;
 * the hub's thread receives. `lock` guards everything below it.
 */
#ifndef CORE_BACKEND_QEMU_IMPL_H
#define CORE_BACKEND_QEMU_IMPL_H

#include <pthread.h>

#include "core/backend/images.h"
#include "core/backend/qemu.h"

#define QEMU_SERVERS 2

enum sandbox_state { SANDBOX_STARTING, SANDBOX_UP, SANDBOX_GONE };

/* One running (or starting) sandbox. */
struct sandbox {
	struct sandbox *next;
	char session[ID_LEN + 1];
	uint32_t epoch, slot;
	enum sandbox_state state;
	bool kill; /* asked to end: its end is no news */
	bool told; /* STARTED went to the engine, so an end is news to it */
	bool stopped;
	bool token; /* holds one of the capture tokens */
	struct hub_link *link; /* one reference, or NULL */
	char capture_op[ID_LEN + 1]; /* operation of the capture under way */
	uint64_t capture_ticket;
	bool capture_stay;
	uint32_t nr_hello; /* what the guest had when it was found */
	struct wire_exec_state *hello;
};

enum work_kind {
	WORK_EFFECT,
	WORK_CLEAN, /* a sandbox ended by itself: free its slot */
	WORK_ATTACH, /* transcripts for execs that a restore brought back */
};

struct work {
	struct work *next;
	enum work_kind kind;
	struct effect *fx; /* owned */
	char session[ID_LEN + 1];
	uint64_t epoch;
	bool ended; /* PURGE: nothing runs any more; waits for its borrowers */
};

/* What a worker is at. */
struct at_work {
	char session[ID_LEN + 1]; /* "": idle */
	uint64_t epoch;
	bool cut; /* a KILL or PURGE */
};

/* What came before the engine was there to hear it. */
struct news {
	struct news *next;
	struct command *c; /* owned */
	uint64_t ticket; /* of the capture that it ends, or 0 */
};

/* A question of a cryo-vm that has to touch the disk. */
struct query {
	struct query *next;
	struct hub_link *link; /* one reference */
	enum wire_type type;
	uint64_t call;
	uint8_t pack[16];
};

struct waiting_token {
	struct waiting_token *next;
	struct hub_link *link; /* one reference */
	uint64_t call;
};

/*
 * A fork that starts may read packs of its lenders until it has grants: the
 * base's session, and the one that it was forked from.
 */
struct borrow {
	struct borrow *next;
	uint64_t epoch; /* of the start */
	char child[ID_LEN + 1], lender[ID_LEN + 1];
};

struct qemu {
	struct qemu_conf conf;
	struct backend backend;
	struct outcome_sink sink;
	struct hub *hub;
	struct images *images;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* work, queries, busy sessions, borrows */
	bool running, stop;
	struct sandbox *sandboxes;
	uint64_t slots[HELPER_SLOTS / 64];
	struct work *work, **last_work;
	struct query *queries, **last_query;
	struct borrow *borrows;
	struct at_work at[QEMU_WORKERS];
	uint32_t tokens; /* in use */
	struct waiting_token *token_queue, **last_token;
	struct news *early, **last_early; /* before qemu_run() */
	pthread_t workers[QEMU_WORKERS], servers[QEMU_SERVERS];
	int nr_workers, nr_servers;
};

/* qemu.c */
struct sandbox *qemu_sandbox(struct qemu *q, const char *session); /* locked */
void qemu_work_put(struct qemu *q, enum work_kind kind, const char *session,
		   uint64_t epoch, struct effect *fx); /* locked */
void qemu_outcome(struct qemu *q, struct command *c);
/* An outcome that ends the capture of this ticket, if it isn't 0. */
void qemu_capture_outcome(struct qemu *q, struct command *c, uint64_t ticket);
/* Fills in the operation of the capture that c ends; locked. */
void qemu_capture_match(struct qemu *q, struct command *c, uint64_t ticket);
struct command *qemu_command(const struct effect *fx, enum command_kind kind);
void qemu_effect_failed(struct qemu *q, const struct effect *fx,
			const struct err *e);
/* Has somebody asked for the end of this epoch? Locked. */
bool qemu_is_cut(const struct qemu *q, const char *session, uint64_t epoch);
/*
 * Ends both processes, forgets the sandbox and frees its slot, which stays
 * taken if the helper can't say that they are gone. Only by the worker that
 * is at the session, and before qemu_run().
 */
int qemu_sandbox_end(struct qemu *q, struct sandbox *s, struct err *e);
/* Ends what a session has of this epoch and those before; 0 if nothing. */
int qemu_session_end(struct qemu *q, const char *session, uint64_t epoch,
		     struct err *e);
void qemu_borrow_end(struct qemu *q, const char *child, uint64_t epoch);
/* The sandbox ended without being asked to; locked. True: DIED is due. */
bool qemu_sandbox_died(struct qemu *q, struct sandbox *s);
void qemu_report_died(struct qemu *q, const char *session, uint64_t epoch,
		      const char *why);
uint64_t qemu_ticket(const char *operation);

/* qemu_start.c: BOOT and RESTORE, on a worker */
int qemu_fits(void *ctx, const struct session_spec *spec, const struct point *p,
	      struct err *e);
void qemu_start_run(struct qemu *q, struct effect *fx);

/* qemu_requests.c */
void qemu_request(void *ctx, struct hub_link *k, struct wire_msg *m);
void qemu_down(void *ctx, struct hub_link *k);
void *qemu_server_main(void *ctx);
void qemu_token_release(struct qemu *q, struct sandbox *s); /* locked */

/* qemu_exec.c */
void qemu_exec_start(struct qemu *q, struct effect *fx);
void qemu_exec_signal(struct qemu *q, struct effect *fx);
void qemu_exec_attach(struct qemu *q, const char *session);

#endif
