/*
 * fake: a driver of simulated sandboxes, for tests and simulation. A sandbox
 * is a counter that grows by one with each step of its guest while it runs;
 * a point holds the counter and the execs, so a test can tell what a restore
 * brought back. Single-threaded: nothing happens but in fake_run().
 */
#ifndef CORE_BACKEND_FAKE_H
#define CORE_BACKEND_FAKE_H

#include "core/backend.h"
#include "core/clock.h"

#define FAKE_EXECS 16

struct fake_exec {
	char tag[ID_LEN + 1];
	bool exited;
	uint64_t out;
};

/* What a test sees of a sandbox. */
struct fake_guest {
	bool alive, stopped;
	uint64_t epoch;
	uint64_t counter; /* its memory */
	int nr_execs;
	struct fake_exec execs[FAKE_EXECS];
};

struct fake;

/* delay_ns: every outcome comes so much later by `clock`; 0: at once. */
struct fake *fake_new(const struct clock *clock, int64_t delay_ns);
void fake_free(struct fake *f);

const struct backend *fake_backend(struct fake *f);

/* Where outcomes go; may change (a new engine after a "crash"). */
void fake_set_sink(struct fake *f, struct outcome_sink sink);

/*
 * Carries out the effects whose time has come, in order; returns how many.
 * Outcomes are submitted from here.
 */
int fake_run(struct fake *f);

/* When the next effect is due by the monotonic clock, or INT64_MAX. */
int64_t fake_next(const struct fake *f);

/* The next `times` effects of this kind fail with err's code and text. */
void fake_fail(struct fake *f, enum effect_kind kind, int times,
	       enum err_code code, const char *why);

/* Lets a guest live for n steps; false if none runs. */
bool fake_guest_step(struct fake *f, const char *session, uint64_t n);

/* The guest of a session as it is; false if there never was one. */
bool fake_guest(const struct fake *f, const char *session,
		struct fake_guest *ret);

/* The VMM dies: DIED is reported. */
void fake_die(struct fake *f, const char *session, const char *why);

/* A rolling point, as the sandbox's own timer would take it. */
void fake_roll(struct fake *f, const char *session);

/* An exec ends by itself. */
void fake_exit(struct fake *f, const char *session, const char *tag, int code);

/* The daemon is killed: effects not yet carried out are forgotten, guests
 * live on. */
void fake_forget(struct fake *f);

/* What lives, for engine_recover(); the caller frees it. */
struct backend_live *fake_live(const struct fake *f, int *ret_nr);
void fake_live_free(struct backend_live *live, int nr);

/* Effects carried out so far, by kind. */
int fake_count(const struct fake *f, enum effect_kind kind);

/* Sessions that were purged and have nothing left. */
bool fake_purged(const struct fake *f, const char *session);

/* From now on no point can be started from (or again all can). */
void fake_misfit(struct fake *f, bool misfit);

#endif
