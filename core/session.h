/*
 * session: what can happen to a session and what it means. Two pure
 * functions; everything else is machinery around them.
 */
#ifndef CORE_SESSION_H
#define CORE_SESSION_H

#include "core/command.h"
#include "core/session_row.h"

/* Bounds and defaults, the same for every command of one engine. */
struct limits {
	uint32_t memory_min_mib, memory_max_mib, memory_mib;
	uint32_t vcpus_max;
	uint32_t disk_min_mib, disk_max_mib, disk_mib;
	int64_t snapshot_every_ns, snapshot_min_ns;
	uint32_t sessions_max; /* per tenant, hidden ones not counted */
	uint32_t execs_max; /* running at once in a session */
	char template[TEMPLATE_NAME_LEN + 1]; /* when none is named */
	char platform[33]; /* part of every park key */
};

extern const struct limits limits_default;

enum park_state { PARK_NONE, PARK_BUILDING, PARK_READY };

/*
 * Rows besides the session's own that a decision may depend on. The engine
 * reads them in the same transaction (engine_facts.c).
 */
struct facts {
	const struct limits *limits;
	bool name_taken; /* by another session, or by a point */
	int child_taken; /* fork: 1 + index of a child whose name is taken ... */
	bool child_id_taken; /* ... or whose id is */
	uint32_t sessions; /* CREATE, FORK: sessions of the tenant */
	bool exists; /* admin commands: there is such a row */
	bool have_template; /* spec.template is known, as: */
	char template_digest[DIGEST_TEXT_LEN + 1];
	enum park_state park; /* CREATE: for this template and shape */
	char park_id[ID_LEN + 1];
	char park_op[ID_LEN + 1]; /* PARK_BUILDING: what to wait for */
	bool have_point; /* the point that the command is about */
	struct point point;
	bool unfit; /* the driver could not start from it: */
	struct err unfit_why;
	bool have_op; /* the operation in the session's slot */
	struct operation op;
	bool have_exec; /* EXEC_START: its id is taken; SIGNAL, EXITED */
	struct exec exec;
	int nr_execs; /* STARTED, RECOVER, EXEC_HELLO: own execs */
	struct exec *execs;
	int nr_origins; /* same: execs of the parent */
	struct exec *origins;
	uint32_t running; /* EXEC_START: own execs that run */
	struct id *ids; /* as many fresh ids as hello has entries */
};

void facts_done(struct facts *f);

struct decision {
	int rc; /* 0, or -errno: refused, err says why, nothing else is set */
	struct err err;
	bool wait; /* refused only because another operation is under way */
	struct event *events;
	int nr_events, cap_events;
	struct effect **effects;
	int nr_effects, cap_effects;
	char operation[ID_LEN + 1]; /* for the reply */
	char session[ID_LEN + 1];
	char exec[ID_LEN + 1];
	char point[ID_LEN + 1];
	/* sessions that wait for this operation may go on from wake_point, or
	 * (not wake_ok) must give up: err says why, rc is 0 all the same */
	char wake[ID_LEN + 1]; /* operation id, or "" */
	bool wake_ok;
	char wake_point[ID_LEN + 1];
};

void decision_done(struct decision *d);

/*
 * Pure. `s` is the row of the command's session, or NULL if there is none.
 * Events have everything but seq. Out of date outcomes are accepted and
 * answered with nothing: rc 0 and no events; for CAPTURED they are refused,
 * so that the driver drops the capture. *ret needs decision_done().
 */
void session_decide(const struct session *s, const struct command *c,
		    const struct facts *f, struct decision *ret);

/*
 * Pure and total. *s zeroed stands for "no such session". -EPROTO if the
 * event cannot follow the state, which is then unchanged: a broken log.
 * Events about other things leave the session as it is.
 */
int session_evolve(struct session *s, const struct event *ev);

/* Puts defaults where a spec says nothing: ":latest", sizes, interval. */
void session_spec_fill(struct session_spec *spec, const struct limits *l);

/* Key of a template's parked snapshot for a shape of machine. */
void session_park_key(char ret_key[PARK_KEY_LEN + 1],
		      const struct session_spec *spec, const struct limits *l);

#endif
