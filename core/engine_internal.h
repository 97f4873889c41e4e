/*
 * engine_internal: what the engine's files share.
 */
#ifndef CORE_ENGINE_INTERNAL_H
#define CORE_ENGINE_INTERNAL_H

#include "core/engine.h"
#include "core/rows.h"

#include <pthread.h>

/* One command on its way through a batch. */
struct job {
	struct command *c;
	struct decision d;
	struct reply reply;
	bool defer; /* waits until its session is free */
	bool have_after; /* the session's row after its events: */
	struct session after;
	struct buf wakes; /* ids of sessions that may go on, ID_LEN each */
};

enum timer_kind { TIMER_TTL, TIMER_OVERDUE };

struct timer {
	enum timer_kind kind;
	char id[ID_LEN + 1]; /* TTL: session; OVERDUE: operation */
	int64_t at_ns; /* monotonic */
};

struct engine {
	struct engine_conf conf;
	struct reader rows; /* of the store, inside a transaction */

	/* the engine's thread alone */
	struct job *jobs; /* batch_max of them */
	struct timer *timers;
	int nr_timers, cap_timers;
	uint32_t singly; /* so many commands get a transaction of their own */

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t work, news;
	struct command *first, *last; /* the queue */
	struct command *held, *held_last; /* waiting for their session */
	uint32_t clients; /* client commands in both */
	uint64_t last_seq;
	int64_t retry_ns; /* monotonic: the store failed, not before then */
	bool stop;
	bool has_thread;
	pthread_t thread;
};

/* A call that waits for its reply; freed by whoever is last. */
struct call {
	struct reply reply;
	bool finished, abandoned;
};

/* engine_facts.c: the rows that a decision may depend on; in transaction */
int engine_facts(const struct reader *r, const struct limits *l,
		 const struct command *c, const struct session *s,
		 void (*new_id)(struct id *ret), struct facts *ret,
		 struct err *e);

/* Waiting sessions for which operation `id` makes the base; ids to ret. */
int engine_waiters(const struct reader *r, const char *id, struct buf *ret,
		   struct err *e);

/* engine_timer.c: the engine's thread */
void engine_timer_set(struct engine *en, enum timer_kind kind, const char *id,
		      int64_t at_ns);
void engine_timer_drop(struct engine *en, enum timer_kind kind, const char *id);
void engine_timers_fire(struct engine *en);
int64_t engine_timers_next(const struct engine *en); /* or INT64_MAX */
void engine_timers_follow(struct engine *en, const struct job *j);
void engine_timer_of_session(struct engine *en, const struct session *s);

/* engine_prepare.c: ids, times, defaults; once per command */
void engine_prepare(struct engine *en, struct command *c);

/* engine_batch.c */
int engine_batch(struct engine *en, int nr);

/* engine.c: the queue */
void engine_push(struct engine *en, struct command *c);
void engine_push_front(struct engine *en, struct command *c);
void engine_answer(struct engine *en, struct command *c,
		   const struct reply *r); /* and frees it */
void engine_answer_err(struct engine *en, struct command *c, int rc,
		       const struct err *e);

#endif
