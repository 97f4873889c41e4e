/*
 * v1: the handlers of the native API, one file per resource, and the
 * documents that they answer with. Handlers are called through the route
 * table only.
 */
#ifndef API_V1_V1_H
#define API_V1_V1_H

#include "api/call.h"

#include "core/timespec.h"

int v1_session_create(struct call *c, struct err *e);
int v1_session_list(struct call *c, struct err *e);
int v1_session_get(struct call *c, struct err *e);
int v1_session_delete(struct call *c, struct err *e);
int v1_session_pause(struct call *c, struct err *e);
int v1_session_suspend(struct call *c, struct err *e);
int v1_session_resume(struct call *c, struct err *e);
int v1_session_rewind(struct call *c, struct err *e);
int v1_session_fork(struct call *c, struct err *e);

int v1_point_create(struct call *c, struct err *e);
int v1_point_list(struct call *c, struct err *e);
int v1_timeline_get(struct call *c, struct err *e);

int v1_run_create(struct call *c, struct err *e);
int v1_run_get(struct call *c, struct err *e);

int v1_exec_create(struct call *c, struct err *e);
int v1_exec_list(struct call *c, struct err *e);
int v1_exec_get(struct call *c, struct err *e);
int v1_exec_wait(struct call *c, struct err *e);
int v1_exec_signal(struct call *c, struct err *e);
int v1_exec_stdin(struct call *c, struct err *e);
int v1_output_get(struct call *c, struct err *e);

int v1_file_get(struct call *c, struct err *e);
int v1_file_begin(struct call *c, struct err *e);
int v1_file_piece(struct call *c, const void *p, size_t len, struct err *e);
int v1_file_put(struct call *c, struct err *e);

int v1_event_list(struct call *c, struct err *e);
int v1_operation_get(struct call *c, struct err *e);
int v1_template_list(struct call *c, struct err *e);
int v1_template_add(struct call *c, struct err *e);
int v1_key_create(struct call *c, struct err *e);
int v1_key_list(struct call *c, struct err *e);
int v1_key_delete(struct call *c, struct err *e);
int v1_node_get(struct call *c, struct err *e);
int v1_health_get(struct call *c, struct err *e);

/* Documents; owned by the caller. */
json_t *v1_session_json(const struct session *s, const struct api_conf *conf);
json_t *v1_point_json(const struct point *p, bool on_line);
json_t *v1_exec_json(const struct exec *x);
json_t *v1_operation_json(const struct operation *op);

/* A time in ns as RFC 3339; zero is left out. */
void v1_put_time(json_t *o, const char *key, int64_t wall_ns);
void v1_put_duration(json_t *o, const char *key, int64_t ns);
void v1_rename_time(json_t *o, const char *from, const char *to);

/* "exec_start" members of a body into a command; shared with runs. */
int v1_exec_fill(struct call *c, struct command *cmd, struct err *e);
/* Members of a body that say what a session shall be; shared with runs. */
int v1_session_fill(struct call *c, struct command *cmd, struct err *e);
/* Body member `key` ("at") resolved to a point id; "" if it isn't there. */
int v1_session_at(struct call *c, const struct session *s, const char *key,
		  char ret_point[ID_LEN + 1], json_t **ret_found, struct err *e);
/* Waits for an exec to end; what it was when the time was over is in *x. */
int v1_exec_await(struct call *c, struct exec *x, int64_t timeout_ms,
		  struct err *e);

#endif
