/*
 * api: from a request's head to its handler and back.
 *
 * How it works: api_begin() sees the head. In this order it checks Host,
 * the route, who asks, what they may, the query and the type of the body;
 * the first that fails becomes a problem document. api_finish() parses the
 * body and calls the handler.
 *
 * Invariants: no handler runs for a request that failed one of the checks;
 * query strings and headers are never logged, nor is any path: the log
 * names the route's pattern; each failure of ours (5xx) is logged once.
 *
 * A crash leaves nothing behind.
 */
#include "api/api.h"

#include "api/call.h"
#include "api/routes.h"

#include "core/log.h"

#include <stdio.h>

#define API_CONNECTIONS 256
#define API_FILE_MAX (1ull << 30)
#define API_HOST_MAX 128

struct api {
	struct api_conf conf;
	struct http_server *http;
};

/* --- checks of the head --------------------------------------------------- */

/* Host without port and brackets; false if it doesn't fit */
static bool api_host_bare(const char *host, char ret[API_HOST_MAX])
{
	const char *end = host + strlen(host), *colon = strrchr(host, ':');

	if (*host == '[') {
		const char *close = strchr(host, ']');

		if (!close || (close[1] && close[1] != ':'))
			return false;
		host++;
		end = close;
	} else if (colon && strchr(host, ':') == colon) {
		end = colon;
	}
	if ((size_t)(end - host) >= API_HOST_MAX)
		return false;
	memcpy(ret, host, (size_t)(end - host));
	ret[end - host] = 0;
	return true;
}

static bool api_host_ok(const struct api_listener *l, const char *host)
{
	static const char *const ours[] = { "localhost", "127.0.0.1", "::1" };
	char bare[API_HOST_MAX], listen[API_HOST_MAX];

	if (!api_host_bare(host, bare))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (!strcasecmp(bare, ours[i]))
			return true;
	return l->host && api_host_bare(l->host, listen) &&
	       !strcasecmp(bare, listen);
}

/*
 * A web page can make a browser send requests to 127.0.0.1 under a name of
 * its own; then Host is that name.
 */
static int api_check_host(const struct call *c, struct err *e)
{
	const char *host = http_header(c->http, "Host");

	if (!host)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "the request has no Host header");
	if (!api_host_ok(http_listen_tag(c->http), host))
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "this server does not answer to the name in "
			       "the Host header; use localhost or the address "
			       "it listens on");
	return 0;
}

static int api_check_route(struct call *c, struct err *e)
{
	char allow[ROUTES_ALLOW_MAX];
	int r = routes_find(http_method(c->http), http_path(c->http), &c->route,
			    c->param, allow);

	if (r == -ENOENT)
		return err_set(e, r, ERR_NOT_FOUND,
			       "there is nothing at this path; the API's "
			       "resources begin with /v1/");
	if (r == -EOPNOTSUPP) {
		http_reply_header(c->http, "Allow", allow);
		return err_set(e, r, ERR_METHOD, "this path takes only: %s",
			       allow);
	}
	return r;
}

static int api_check_who(struct call *c, struct err *e)
{
	const struct api_listener *l = http_listen_tag(c->http);
	const struct reader *rd;
	uid_t uid = 0;
	int r;

	if (c->route->scope == SCOPE_NONE)
		return 0;
	if (l->local) {
		r = http_peer_uid(c->http, &uid);
		if (r < 0)
			return err_sys(e, -r, "asking who the peer is");
		r = auth_local(&c->who, uid, c->conf->owner_uid,
			       c->conf->default_tenant, e);
	} else {
		r = call_reader(c, &rd, e);
		if (r == 0)
			r = auth_bearer(&c->who, rd,
					http_header(c->http, "Authorization"),
					c->conf->sha256, e);
	}
	if (r < 0)
		return r;
	if ((c->who.scopes & c->route->scope) != c->route->scope)
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "this API key lacks a scope for %s %s; make "
			       "one that has it",
			       c->route->method, c->route->pattern);
	return 0;
}

struct api_query {
	const struct call *call;
	struct err *e;
	int r;
};

static bool api_check_one_query(void *ctx, const char *name)
{
	struct api_query *q = ctx;

	if (routes_query_known(q->call->route, name))
		return true;
	q->r = err_set(q->e, -EINVAL, ERR_INVALID,
		       "?%.40s means nothing here; %s %s knows: %s", name,
		       q->call->route->method, q->call->route->pattern,
		       *q->call->route->query ? q->call->route->query : "none");
	return false;
}

static int api_check_query(const struct call *c, struct err *e)
{
	struct api_query q = { c, e, 0 };

	http_query_each(c->http, api_check_one_query, &q);
	return q.r;
}

static int api_check_type(const struct call *c, struct err *e)
{
	const char *have = http_header(c->http, "Content-Type");
	const char *want = c->route->body == ROUTE_JSON
				   ? "application/json"
				   : "application/octet-stream";
	size_t len = strlen(want);

	if (c->route->body == ROUTE_NO_BODY || !http_has_body(c->http))
		return 0;
	if (have && !strncasecmp(have, want, len) &&
	    (!have[len] || have[len] == ';' || have[len] == ' '))
		return 0;
	return err_set(e, -EINVAL, ERR_INVALID,
		       "the body's Content-Type must be %s", want);
}

static int api_check(struct call *c, struct err *e)
{
	int r = api_check_host(c, e);

	if (r == 0)
		r = api_check_route(c, e);
	if (r == 0)
		r = api_check_who(c, e);
	if (r == 0)
		r = api_check_query(c, e);
	return r;
}

/* --- the stages of a request ---------------------------------------------- */

static void api_name_request(struct call *c)
{
	const char *given = http_header(c->http, "X-Request-Id");
	size_t len = given ? strlen(given) : 0;
	struct id id;

	for (size_t i = 0; i < len; i++)
		if (given[i] <= ' ' || given[i] > '~' || given[i] == '"' ||
		    given[i] == '\\')
			len = 0;
	if (len && len <= CALL_REQUEST_MAX) {
		base_strcpy(c->request, sizeof(c->request), given);
	} else {
		id_new(&id);
		base_strcpy(c->request, sizeof(c->request), id.s);
	}
	http_reply_header(c->http, "X-Request-Id", c->request);
}

static void api_fail(struct call *c, const struct err *e)
{
	if (err_http_status(e->code) == 500)
		log_error("event=http_failed request=%s route=\"%s\" "
			  "error=\"%s\" at=%s:%d",
			  c->request, c->route ? c->route->pattern : "", e->msg,
			  e->file, e->line);
	call_reply_problem(c, e);
}

/* 415 has no word of its own in the table of errors. */
static void api_fail_type(struct call *c, const struct err *e)
{
	static const char format[] =
		"{\"detail\":\"%s\",\"request\":\"%s\",\"status\":415,"
		"\"title\":\"Unsupported media type\","
		"\"type\":\"urn:cryo:problem:invalid\"}\n";
	char text[512];
	int len = snprintf(text, sizeof(text), format, e->msg, c->request);

	http_reply(c->http, 415, "application/problem+json", text, (size_t)len);
}

static bool api_answer_options(struct call *c)
{
	char allow[ROUTES_ALLOW_MAX];
	const struct route *r;

	if (strcmp(http_method(c->http), "OPTIONS") ||
	    routes_find("OPTIONS", http_path(c->http), &r, c->param, allow) !=
		    -EOPNOTSUPP)
		return false;
	http_reply_header(c->http, "Allow", allow);
	call_reply_none(c);
	return true;
}

static void api_begin_checks(struct call *c)
{
	struct err e = { 0 };

	if (api_check_host(c, &e) == 0 && api_answer_options(c))
		return;
	if (api_check(c, &e) < 0) {
		api_fail(c, &e);
		return;
	}
	if (api_check_type(c, &e) < 0) {
		api_fail_type(c, &e);
		return;
	}
	if (c->route->begin && c->route->begin(c, &e) < 0)
		api_fail(c, &e);
}

static enum http_body api_begin(struct http_request *r)
{
	struct api *a = http_ctx(r);
	struct call *c = base_alloc(sizeof(*c));

	c->conf = &a->conf;
	c->http = r;
	c->begun_ns = clock_mono(a->conf.clock);
	http_set_data(r, c);
	api_name_request(c);
	api_begin_checks(c);
	call_reader_close(c); /* the body may take its time */
	return c->route && c->route->body == ROUTE_UPLOAD ? HTTP_BODY_STREAM
							  : HTTP_BODY_KEEP;
}

static void api_chunk(struct http_request *r, const void *p, size_t len)
{
	struct call *c = http_data(r);
	struct err e = { 0 };

	if (c->route->piece(c, p, len, &e) < 0)
		api_fail(c, &e);
}

static int api_parse_body(struct call *c, struct err *e)
{
	const struct buf *b = http_body(c->http);
	SCOPED_JSON json_t *j = NULL;
	int r;

	if (c->route->body != ROUTE_JSON || !b->len)
		return 0;
	r = json_parse(&j, b->p, b->len, e);
	if (r < 0) {
		e->code = ERR_INVALID;
		return err_wrap(e, r, "the body is not valid JSON");
	}
	if (!json_is_object(j))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "the body must be a JSON object");
	c->body = STEAL(j);
	return 0;
}

static void api_finish(struct http_request *r)
{
	struct call *c = http_data(r);
	struct err e = { 0 };
	int n = api_parse_body(c, &e);

	if (n == 0)
		n = c->route->handle(c, &e);
	call_reader_close(c);
	if (n < 0)
		api_fail(c, &e);
	else
		POST(http_replied(r));
}

static void api_done(struct http_request *r)
{
	struct call *c = http_data(r);
	int64_t us = (clock_mono(c->conf->clock) - c->begun_ns) / 1000;

	log_debug("event=http_request request=%s method=%s route=\"%s\" "
		  "status=%u actor=%s us=%lld",
		  c->request, c->route ? c->route->method : "-",
		  c->route ? c->route->pattern : "-", http_status(r),
		  c->who.actor, (long long)us);
	if (c->upload)
		c->upload_free(c->upload);
	call_reader_close(c);
	json_decref(c->body);
	free(c);
}

/* --- start and stop ------------------------------------------------------- */

static const struct http_ops api_ops = {
	.begin = api_begin,
	.chunk = api_chunk,
	.finish = api_finish,
	.done = api_done,
};

int api_start(struct api **ret, const struct api_conf *conf, struct err *e)
{
	struct http_listen listen[API_LISTENERS_MAX];
	struct api *a = base_alloc(sizeof(*a));
	int r;

	PRE(conf->nr_listeners > 0 && conf->nr_listeners <= API_LISTENERS_MAX);
	PRE(conf->clock && conf->sha256 && conf->default_tenant);
	a->conf = *conf;
	if (!a->conf.max_connections)
		a->conf.max_connections = API_CONNECTIONS;
	if (!a->conf.max_file_bytes)
		a->conf.max_file_bytes = API_FILE_MAX;
	for (unsigned i = 0; i < conf->nr_listeners; i++) {
		listen[i].fd = conf->listeners[i].fd;
		listen[i].tag = &a->conf.listeners[i];
	}
	r = http_start(&a->http,
		       &(struct http_conf){ .ops = &api_ops,
					    .ctx = a,
					    .listen = listen,
					    .nr_listen = conf->nr_listeners,
					    .max_connections =
						    a->conf.max_connections },
		       e);
	if (r < 0) {
		free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void api_stop(struct api *a)
{
	if (!a)
		return;
	http_stop(a->http);
	free(a);
}
