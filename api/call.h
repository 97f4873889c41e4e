/*
 * call: one request on its way through a handler: who asks, which route,
 * its parameters, and how to answer. Handlers use this and never http.h's
 * server side. A handler returns 0 after it has replied, or -errno with `e`
 * filled in, which becomes a problem document.
 */
#ifndef API_CALL_H
#define API_CALL_H

#include "api/api.h"
#include "api/auth.h"
#include "api/http.h"

#include "core/rows.h"

#define CALL_PARAM_MAX 64 /* longest value of a path parameter, with NUL */
#define CALL_REQUEST_MAX 64

struct route;

struct call {
	const struct api_conf *conf;
	struct http_request *http;
	const struct route *route;
	struct principal who;
	char request[CALL_REQUEST_MAX + 1]; /* X-Request-Id */
	char param[2][CALL_PARAM_MAX]; /* of {..} in the pattern, in order */
	json_t *body; /* an object, or NULL: no body was sent */
	int64_t begun_ns; /* monotonic */

	/* private to call.c */
	void *view;
	struct reader reader;
	/* of streamed uploads: the handler's, see v1/files.c */
	void *upload;
	void (*upload_free)(void *upload);
};

/* --- reading -------------------------------------------------------------- */

/*
 * A read view for this call, opened at the first use. It is one moment:
 * call_reader_close() before waiting, so that the next use sees the news.
 */
int call_reader(struct call *c, const struct reader **ret, struct err *e);
void call_reader_close(struct call *c);

/*
 * Things by id (sessions also by name) that this caller may see; others
 * answer exactly like unknown ones: NOT_FOUND.
 */
int call_session(struct call *c, const char *id_or_name, struct session *ret,
		 struct err *e);
int call_exec(struct call *c, const char *id, struct exec *ret,
	      struct err *e); /* exec_done(ret) */
int call_operation(struct call *c, const char *id, struct operation *ret,
		   struct err *e); /* operation_done(ret) */
bool call_may_see(const struct call *c, const char *tenant);

/* --- parameters ----------------------------------------------------------- */

/* Whole number in min..max from the query; `dflt` if it isn't there. */
int call_query_int(const struct call *c, const char *name, int64_t min,
		   int64_t max, int64_t dflt, int64_t *ret, struct err *e);
/* "1", "true", "" are true; "0", "false" false. */
int call_query_bool(const struct call *c, const char *name, bool dflt,
		    bool *ret, struct err *e);
/* ?wait=SECONDS in ms, at most HTTP_WAIT_MAX_S; 0 if it isn't there */
int call_wait_ms(const struct call *c, int64_t *ret, struct err *e);

/*
 * Members of the body, all optional: missing leaves *ret alone and is 0,
 * wrong is INVALID naming the member. Durations are text ("60s", "1h30m").
 */
int call_body_str(const struct call *c, const char *key, const char **ret,
		  struct err *e);
int call_body_u32(const struct call *c, const char *key, uint32_t min,
		  uint32_t max, uint32_t *ret, struct err *e);
int call_body_bool(const struct call *c, const char *key, bool *ret,
		   struct err *e);
int call_body_duration(const struct call *c, const char *key, int64_t *ret,
		       struct err *e);
/* Copies into a field; INVALID if it doesn't fit. */
int call_body_copy(const struct call *c, const char *key, char *dst, size_t len,
		   struct err *e);

/* --- commands ------------------------------------------------------------- */

/* A command of this caller: tenant, actor, idempotency are filled in. */
int call_command(struct call *c, enum command_kind kind, const char *session,
		 struct command **ret, struct err *e);
/* Hands it to the engine, which owns it; waits for its answer. */
int call_submit(struct call *c, struct command *cmd, struct reply *ret,
		struct err *e);
/*
 * Submits, waits as ?wait says, and replies with the operation: 200 if it
 * has ended, else 202.
 */
int call_operate(struct call *c, struct command *cmd, struct err *e);
/* The same; `found` (taken over, or NULL) tells which point "at" meant. */
int call_operate_found(struct call *c, struct command *cmd, json_t *found,
		       struct err *e);
/* Waits until an operation ends, the time is over, or nobody listens. */
int call_await_operation(struct call *c, const char *id, int64_t timeout_ms,
			 struct operation *ret, struct err *e);

/* --- replies -------------------------------------------------------------- */

/* Takes `j` over. */
void call_reply_json(struct call *c, unsigned status, json_t *j);
void call_reply_none(struct call *c); /* 204 */
void call_reply_problem(struct call *c, const struct err *e);

/*
 * A page of a list: {"items":[...],"next":cursor}. Handlers append items,
 * and set `next` when there is more. Query: limit (1..1000, 100), after.
 */
struct call_page {
	json_t *items;
	int64_t limit;
	const char *after; /* cursor, or NULL */
	char next[CALL_PARAM_MAX]; /* "" at the end */
};
int call_page_init(struct call *c, struct call_page *p, struct err *e);
void call_page_done(struct call_page *p); /* fits SCOPED() */
void call_page_reply(struct call *c, struct call_page *p);

#endif
