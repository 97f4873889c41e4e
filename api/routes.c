/*
 * routes: the whole API in one table. openapi.yaml says the same in more
 * words; a test compares them.
 *
 * Invariants: patterns are matched segment by segment, `{x}` takes one
 * non-empty segment; no two rows match the same method and path.
 */
#include "api/routes.h"

#include "api/v1/v1.h"

#include <stdio.h>

#define GET(p, s, q, h, d)                                             \
	{                                                              \
		.method = "GET", .pattern = p, .scope = s, .query = q, \
		.handle = h, .doc = d                                  \
	}
#define POST_(p, s, q, h, d)                                            \
	{                                                               \
		.method = "POST", .pattern = p, .scope = s, .query = q, \
		.body = ROUTE_JSON, .handle = h, .doc = d               \
	}
#define DELETE_(p, s, q, h, d)                                            \
	{                                                                 \
		.method = "DELETE", .pattern = p, .scope = s, .query = q, \
		.handle = h, .doc = d                                     \
	}

const struct route routes[] = {
	GET("/healthz", SCOPE_NONE, "", v1_health_get,
	    "Answers when the daemon can read its log."),
	GET("/v1/node", SCOPE_READ, "", v1_node_get,
	    "What this node is and what its walls are worth."),

	POST_("/v1/sessions", SCOPE_WRITE, "wait", v1_session_create,
	      "Creates a session from a template."),
	GET("/v1/sessions", SCOPE_READ, "limit after", v1_session_list,
	    "Lists sessions."),
	GET("/v1/sessions/{session}", SCOPE_READ, "", v1_session_get,
	    "Shows a session."),
	DELETE_("/v1/sessions/{session}", SCOPE_WRITE, "wait", v1_session_delete,
		"Destroys a session in whatever state it is."),
	POST_("/v1/sessions/{session}/pause", SCOPE_WRITE, "wait",
	      v1_session_pause, "Stops a session's clock; it stays in memory."),
	POST_("/v1/sessions/{session}/suspend", SCOPE_WRITE, "wait",
	      v1_session_suspend, "Takes a durable point and frees the memory."),
	POST_("/v1/sessions/{session}/resume", SCOPE_WRITE, "wait",
	      v1_session_resume,
	      "Goes on from where it stands, or from an earlier moment."),
	POST_("/v1/sessions/{session}/rewind", SCOPE_WRITE, "wait",
	      v1_session_rewind,
	      "Goes back to a moment; the present is kept as a point."),
	POST_("/v1/sessions/{session}/fork", SCOPE_WRITE, "wait", v1_session_fork,
	      "Makes new sessions that start at a moment of this one."),
	POST_("/v1/sessions/{session}/snapshots", SCOPE_WRITE, "wait",
	      v1_point_create, "Takes a point now."),
	GET("/v1/sessions/{session}/snapshots", SCOPE_READ, "limit after",
	    v1_point_list, "Lists a session's points, newest first."),
	GET("/v1/sessions/{session}/points", SCOPE_READ, "limit after",
	    v1_point_list, "The same as snapshots."),
	GET("/v1/sessions/{session}/timeline", SCOPE_READ, "limit",
	    v1_timeline_get, "Points, epochs and forks of a session."),

	POST_("/v1/runs", SCOPE_WRITE | SCOPE_EXEC, "wait", v1_run_create,
	      "Creates a session for one command and starts it."),
	GET("/v1/runs/{run}", SCOPE_READ, "wait", v1_run_get,
	    "Shows a run: its session and its command."),

	POST_("/v1/sessions/{session}/execs", SCOPE_EXEC, "", v1_exec_create,
	      "Starts a command."),
	GET("/v1/sessions/{session}/execs", SCOPE_READ, "limit after",
	    v1_exec_list, "Lists a session's commands."),
	GET("/v1/execs/{exec}", SCOPE_READ, "", v1_exec_get, "Shows a command."),
	GET("/v1/execs/{exec}/output", SCOPE_EXEC, "offset follow",
	    v1_output_get, "A command's output as server-sent events."),
	GET("/v1/execs/{exec}/wait", SCOPE_READ, "timeout", v1_exec_wait,
	    "Waits until a command has ended."),
	POST_("/v1/execs/{exec}/signal", SCOPE_EXEC, "", v1_exec_signal,
	      "Sends a signal to a command's process group."),
	{ .method = "POST",
	  .pattern = "/v1/execs/{exec}/stdin",
	  .scope = SCOPE_EXEC,
	  .body = ROUTE_BYTES,
	  .query = "offset eof",
	  .handle = v1_exec_stdin,
	  .doc = "Gives bytes to a command's standard input." },

	GET("/v1/sessions/{session}/files", SCOPE_EXEC, "path stat",
	    v1_file_get, "Reads a file, or says what it is."),
	{ .method = "PUT",
	  .pattern = "/v1/sessions/{session}/files",
	  .scope = SCOPE_EXEC,
	  .body = ROUTE_UPLOAD,
	  .query = "path mode",
	  .handle = v1_file_put,
	  .begin = v1_file_begin,
	  .piece = v1_file_piece,
	  .doc = "Writes a file; it appears whole." },

	GET("/v1/events", SCOPE_READ, "after session limit follow",
	    v1_event_list, "The log: JSON Lines or server-sent events."),
	GET("/v1/operations/{operation}", SCOPE_READ, "wait", v1_operation_get,
	    "Shows an operation."),
	GET("/v1/templates", SCOPE_READ, "", v1_template_list, "Lists templates."),
	POST_("/v1/templates", SCOPE_ADMIN, "", v1_template_add,
	      "Takes in a template that lies ready in the data folder."),
	POST_("/v1/keys", SCOPE_ADMIN, "", v1_key_create,
	      "Makes an API key; its secret is shown this once."),
	GET("/v1/keys", SCOPE_ADMIN, "", v1_key_list, "Lists API keys."),
	DELETE_("/v1/keys/{key}", SCOPE_ADMIN, "", v1_key_delete,
		"Removes an API key."),
};

const size_t routes_nr = ARRAY_LEN(routes);

/* Matches one pattern; parameters too long for their place don't match. */
static bool routes_match(const char *pattern, const char *path,
			 char param[2][CALL_PARAM_MAX])
{
	int nr = 0;

	while (*pattern && *path) {
		if (*pattern == '{') {
			size_t len = strcspn(path, "/");

			PRE(nr < 2);
			if (len == 0 || len >= CALL_PARAM_MAX)
				return false;
			memcpy(param[nr], path, len);
			param[nr++][len] = 0;
			path += len;
			pattern = strchr(pattern, '}') + 1;
		} else if (*pattern++ != *path++) {
			return false;
		}
	}
	return !*pattern && !*path;
}

static void routes_allow(char allow[ROUTES_ALLOW_MAX], const char *method)
{
	size_t len = strlen(allow);

	snprintf(allow + len, ROUTES_ALLOW_MAX - len, "%s%s", len ? ", " : "",
		 method);
}

int routes_find(const char *method, const char *path, const struct route **ret,
		char param[2][CALL_PARAM_MAX], char ret_allow[ROUTES_ALLOW_MAX])
{
	bool head = !strcmp(method, "HEAD");

	ret_allow[0] = 0;
	for (size_t i = 0; i < routes_nr; i++) {
		const struct route *r = &routes[i];

		if (!routes_match(r->pattern, path, param))
			continue;
		if (!strcmp(r->method, head ? "GET" : method)) {
			*ret = r;
			return 0;
		}
		routes_allow(ret_allow, r->method);
		if (!strcmp(r->method, "GET"))
			routes_allow(ret_allow, "HEAD");
	}
	return ret_allow[0] ? -EOPNOTSUPP : -ENOENT;
}

bool routes_query_known(const struct route *r, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = r->query; *p;) {
		size_t n = strcspn(p, " ");

		if (n == len && !memcmp(p, name, n))
			return true;
		p += n;
		p += *p == ' ';
	}
	return false;
}
