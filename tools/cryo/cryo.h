/*
 * cryo: what the verbs of the command line share.
 */
#ifndef TOOLS_CRYO_CRYO_H
#define TOOLS_CRYO_CRYO_H

#include "core/json.h"

#include "tools/cryo/args.h"
#include "tools/cryo/client.h"

struct cryo {
	struct args args;
	struct client *client; /* NULL for verbs that are `offline` */
	bool usage; /* set by cryo_usage(): the exit status says so */
};

struct verb {
	const struct args_spec *spec;
	const char *summary; /* one line for `cryo help` */
	size_t opts_size;
	bool offline;
	/*
	 * `opts` is the verb's own struct, filled in from its table.
	 * Returns the exit status, or -errno with `e` filled in.
	 */
	int (*run)(struct cryo *x, const void *opts, struct err *e);
};

extern const struct verb verb_up, verb_doctor, verb_template, verb_run,
	verb_create, verb_ls, verb_show, verb_exec, verb_logs, verb_cp,
	verb_pause, verb_suspend, verb_resume, verb_rewind, verb_fork,
	verb_snapshot, verb_snapshots, verb_timeline, verb_events, verb_key,
	verb_verify, verb_rm;

#define CRYO_EXIT_FAILED 1
#define CRYO_EXIT_USAGE 2

/*
 * Sends a command and waits until its operation has ended, however long it
 * takes; says on standard error what is being waited for when it is long.
 * 0: *ret is the operation document (owned). -errno: refused; or it was
 * accepted and failed: then *ret is set as well. Give a NULL in *ret.
 */
int cryo_operate(struct cryo *x, const char *method, const char *path,
		 const json_t *body, json_t **ret, struct err *e);

/* POST /v1/sessions/ID/VERB; for most of the state-changing verbs. */
int cryo_session_verb(struct cryo *x, const char *session, const char *verb,
		      const json_t *body, json_t **ret, struct err *e);

/* "/v1/sessions/ID" appended, escaped. */
void cryo_session_path(struct buf *b, const char *session, const char *rest);

/*
 * All items of a list, following its cursors: calls `fn` for each. `path`
 * may have a query already. fn's nonzero result ends the walk and is given.
 */
typedef int (*cryo_item_fn)(void *ctx, json_t *item);
int cryo_list(struct cryo *x, const char *path, cryo_item_fn fn, void *ctx,
	      struct err *e);

/* Prints a document as one line of canonical JSON. */
void cryo_print_json(const json_t *j);

/* A member as text for people: strings as they are, "-" if missing. */
const char *cryo_text(const json_t *o, const char *key);
int64_t cryo_int(const json_t *o, const char *key); /* 0 if missing */
bool cryo_bool(const json_t *o, const char *key);

/* What was written is not how the verb is used; returns -EINVAL. */
int cryo_usage(struct cryo *x, const struct args_spec *spec, struct err *e);

/* Flushes standard output; a full disk or closed pipe is an error. */
int cryo_flush(struct err *e);

#endif
