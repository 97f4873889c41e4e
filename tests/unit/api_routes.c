/*
 * api_routes: the table itself, finding in it, and openapi.yaml against it:
 * the same paths, methods, summaries, parameters and scopes, no more and no
 * less.
 */
#include "api/routes.h"

#include "tests/tap.h"

#include <stdio.h>

static void table(void)
{
	for (size_t i = 0; i < routes_nr; i++) {
		const struct route *a = &routes[i];
		bool unique = true;

		for (size_t k = 0; k < i; k++)
			unique &= strcmp(a->method, routes[k].method) ||
				  strcmp(a->pattern, routes[k].pattern);
		ok(unique && a->handle && a->doc && a->query &&
			   (a->body == ROUTE_UPLOAD) == (a->begin != NULL) &&
			   (a->begin != NULL) == (a->piece != NULL),
		   "%s %s is whole and there once", a->method, a->pattern);
		if (a->scope == SCOPE_NONE)
			is_str(a->pattern, "/healthz",
			       "only the health is open to everyone");
	}
}

static void find(void)
{
	static const struct {
		const char *method, *path, *pattern, *param;
	} good[] = {
		{ "GET", "/healthz", "/healthz", "" },
		{ "GET", "/v1/sessions", "/v1/sessions", "" },
		{ "GET", "/v1/sessions/x", "/v1/sessions/{session}", "x" },
		{ "HEAD", "/v1/sessions/x", "/v1/sessions/{session}", "x" },
		{ "POST", "/v1/sessions/my-name/fork",
		  "/v1/sessions/{session}/fork", "my-name" },
		{ "PUT", "/v1/sessions/x/files", "/v1/sessions/{session}/files",
		  "x" },
	};
	static const char *const unknown[] = {
		"",
		"/",
		"/v1",
		"/v1/",
		"/v1/sessions/",
		"/v1/sessions//fork",
		"/v1/sessions/x/",
		"/v1/sessions/x/nothing",
		"/v1/sessions/x/fork/y",
		"/V1/sessions",
		"/healthz/",
		"//healthz",
		"/v1/sessions/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	};
	char param[2][CALL_PARAM_MAX], allow[ROUTES_ALLOW_MAX];
	const struct route *r = NULL;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		param[0][0] = 0;
		is_int(routes_find(good[i].method, good[i].path, &r, param, allow),
		       0, "%s %s", good[i].method, good[i].path);
		is_str(r->pattern, good[i].pattern, "its pattern");
		is_str(param[0], good[i].param, "its parameter");
	}
	for (size_t i = 0; i < ARRAY_LEN(unknown); i++)
		is_int(routes_find("GET", unknown[i], &r, param, allow),
		       -ENOENT, "nothing at \"%s\"", unknown[i]);
	is_int(routes_find("PATCH", "/v1/sessions/x", &r, param, allow),
	       -EOPNOTSUPP, "a method that the path hasn't");
	is_str(allow, "GET, HEAD, DELETE", "those it has are told");
	ok(routes_query_known(&routes[3], "limit") &&
		   routes_query_known(&routes[3], "after") &&
		   !routes_query_known(&routes[3], "aft") &&
		   !routes_query_known(&routes[3], "limit after") &&
		   !routes_query_known(&routes[3], ""),
	   "query members are whole words");
}

/* --- openapi.yaml --------------------------------------------------------- */

struct doc_op {
	char method[8], path[96], summary[160], scopes[64];
	char params[256]; /* " name name " */
};

static struct doc_op ops[128];
static size_t nr_ops;

/* "#/components/parameters/NAME" -> what it is called in a request */
static const char *param_name(const char *ref)
{
	static const char *const other[][2] = {
		{ "afterSeq", "after" },
		{ "ofSession", "session?" },
		{ "inputOffset", "offset" },
	};

	for (size_t i = 0; i < ARRAY_LEN(other); i++)
		if (!strcmp(ref, other[i][0]))
			return other[i][1];
	return ref;
}

static void doc_line(const char *line, char *path)
{
	struct doc_op *op = nr_ops ? &ops[nr_ops - 1] : NULL;
	char word[160];

	if (sscanf(line, "  /%95[^:]:", word) == 1 && line[2] == '/') {
		path[0] = '/';
		base_strcpy(path + 1, 95, word);
	} else if (path[0] && !strncmp(line, "    ", 4) && line[4] != ' ' &&
		   sscanf(line, "    %7[a-z]:", word) == 1) {
		op = &ops[nr_ops++];
		for (char *p = word; *p; p++)
			*p = (char)(*p - 'a' + 'A');
		base_strcpy(op->method, sizeof(op->method), word);
		base_strcpy(op->path, sizeof(op->path), path);
		base_strcpy(op->params, sizeof(op->params), " ");
	} else if (sscanf(line, "      summary: \"%159[^\"]", word) == 1) {
		base_strcpy(op->summary, sizeof(op->summary), word);
	} else if (sscanf(line, "      x-cryo-scopes: [%63[^]]", word) == 1) {
		base_strcpy(op->scopes, sizeof(op->scopes), word);
	} else if (sscanf(line,
			  "        - $ref: \"#/components/parameters/%63[^\"]",
			  word) == 1) {
		size_t at = strlen(op->params);

		snprintf(op->params + at, sizeof(op->params) - at, "%s ",
			 param_name(word));
	}
}

static void doc_read(void)
{
	FILE *f = fopen("api/openapi.yaml", "re");
	char line[512], path[96] = "";

	if (!f)
		bail("api/openapi.yaml can't be read: run from the top");
	while (fgets(line, sizeof(line), f) && strcmp(line, "components:\n") != 0)
		doc_line(line, path);
	fclose(f);
}

static const struct doc_op *doc_find(const struct route *r)
{
	for (size_t i = 0; i < nr_ops; i++)
		if (!strcmp(ops[i].method, r->method) &&
		    !strcmp(ops[i].path, r->pattern))
			return &ops[i];
	return NULL;
}

static bool doc_has(const struct doc_op *op, const char *name, size_t len)
{
	char want[80];

	snprintf(want, sizeof(want), " %.*s ", (int)len, name);
	if (strstr(op->params, want))
		return true;
	snprintf(want, sizeof(want), " %.*s? ", (int)len, name);
	return strstr(op->params, want) != NULL;
}

/* Parameters of the pattern and of the query, all in the document. */
static int doc_params(const struct doc_op *op, const struct route *r)
{
	int nr = 0;

	for (const char *p = strchr(r->pattern, '{'); p;
	     p = strchr(p + 1, '{'), nr++)
		ok(doc_has(op, p + 1, strcspn(p + 1, "}")),
		   "%s %s: its path parameter", r->method, r->pattern);
	for (const char *p = r->query; *p; nr++) {
		size_t n = strcspn(p, " ");

		ok(doc_has(op, p, n), "%s %s: ?%.*s", r->method, r->pattern,
		   (int)n, p);
		p += n + (p[n] == ' ');
	}
	return nr;
}

static int doc_count(const struct doc_op *op)
{
	int nr = 0;

	for (const char *p = op->params + 1; *p; p = strchr(p, ' ') + 1)
		nr += strncmp(p, "idempotencyKey ", 15) &&
		      strncmp(p, "lastEventId ", 12);
	return nr;
}

static void doc_scopes(const struct doc_op *op, const struct route *r)
{
	SCOPED_JSON json_t *list = auth_scopes_to_json(r->scope);
	char want[64] = "";
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) {
		size_t at = strlen(want);

		snprintf(want + at, sizeof(want) - at, "%s%s", i ? ", " : "",
			 json_string_value(item));
	}
	is_str(op->scopes, want, "%s %s: scopes", r->method, r->pattern);
}

static void documented(void)
{
	doc_read();
	is_int((int)nr_ops, (int)routes_nr, "as many operations as routes");
	for (size_t i = 0; i < routes_nr; i++) {
		const struct doc_op *op = doc_find(&routes[i]);

		if (!ok(op != NULL, "%s %s is documented", routes[i].method,
			routes[i].pattern))
			continue;
		is_str(op->summary, routes[i].doc, "in the same words");
		is_int(doc_count(op), doc_params(op, &routes[i]),
		       "%s %s: no further parameters", routes[i].method,
		       routes[i].pattern);
		doc_scopes(op, &routes[i]);
	}
}

int main(void)
{
	table();
	find();
	documented();
	return tap_done();
}
