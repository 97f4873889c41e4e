/*
 * routes: the whole API in one table (routes.c). openapi.yaml is checked
 * against it.
 */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include "api/call.h"

enum route_body {
	ROUTE_NO_BODY, /* any body is ignored */
	ROUTE_JSON, /* an object of application/json, or none */
	ROUTE_BYTES, /* application/octet-stream, kept whole */
	ROUTE_UPLOAD, /* application/octet-stream, given piece by piece */
};

struct route {
	const char *method;
	const char *pattern; /* "/v1/sessions/{session}" */
	enum scope scope;
	enum route_body body;
	const char *query; /* names of its query members, by spaces */
	int (*handle)(struct call *c, struct err *e);
	/* ROUTE_UPLOAD: before the body, and for each piece of it */
	int (*begin)(struct call *c, struct err *e);
	int (*piece)(struct call *c, const void *p, size_t len, struct err *e);
	const char *doc; /* one sentence */
};

extern const struct route routes[];
extern const size_t routes_nr;

/*
 * Finds the route of a request; fills in the parameters. HEAD finds GET.
 * -ENOENT: no such path. -EOPNOTSUPP: the path has other methods, which
 * `ret_allow` then lists ("GET, POST").
 */
#define ROUTES_ALLOW_MAX 64
int routes_find(const char *method, const char *path, const struct route **ret,
		char param[2][CALL_PARAM_MAX], char ret_allow[ROUTES_ALLOW_MAX]);

/* Is this query member known to the route? */
bool routes_query_known(const struct route *r, const char *name);

#endif
