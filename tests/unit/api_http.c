/*
 * api_http: the door's behaviour as an HTTP server, through its sockets:
 * malformed and oversize requests, Host, keys, methods, limits, many clients
 * at once, clients that vanish.
 */
#include "tests/unit/api_world.h"

static struct world w;

#define JSON_HEAD "Host: localhost\r\nContent-Type: application/json\r\n"

static void is_problem(struct answer *a, int status, const char *word)
{
	char type[64];

	snprintf(type, sizeof(type), "urn:cryo:problem:%s", word);
	is_int(a->status, status, "answered with %d", status);
	is_str(answer_header(a, "Content-Type"), "application/problem+json",
	       "by a problem document");
	is_str(answer_str(a, "type"), type, "of type %s", word);
	ok(strlen(answer_str(a, "detail")) > 20, "that explains: %s",
	   answer_str(a, "detail"));
}

static void health(void)
{
	SCOPED(answer_done) struct answer a = { 0 };

	is_int(world_do(&w, &a, "GET", "/healthz", NULL), 200, "healthy");
	is_str(answer_str(&a, "status"), "ok", "and says so");
	is_str(answer_header(&a, "Cache-Control"), "no-store",
	       "nothing is to be cached");
	is_int((int)strlen(answer_header(&a, "X-Request-Id")), ID_LEN,
	       "a request gets an id");
	is_int(world_do_key(&w, &a, NULL, "GET", "/healthz", NULL), 200,
	       "also without a key");
}

static void heads(void)
{
	SCOPED(answer_done) struct answer a = { 0 };

	world_request(world_connect_unix(&w), &a, "GET", "/healthz",
		      "Host: localhost\r\nX-Request-Id: my-id.7\r\n", NULL, 0);
	is_str(answer_header(&a, "X-Request-Id"), "my-id.7",
	       "a client's own id is kept");
	world_request(world_connect_unix(&w), &a, "GET", "/nothing",
		      "Host: localhost\r\nX-Request-Id: a\"b\r\n", NULL, 0);
	is_str(answer_str(&a, "request"), answer_header(&a, "X-Request-Id"),
	       "a problem names the request");
	ok(!strchr(answer_header(&a, "X-Request-Id"), '"'),
	   "an id that could break a log line is not taken");
	is_int(world_do(&w, &a, "HEAD", "/healthz", NULL), 200, "HEAD");
	is_int((int)a.body.len, 0, "has no body");
	ok(world_nr(answer_header(&a, "Content-Length")) > 0, "but its length");
	is_int(world_do(&w, &a, "OPTIONS", "/v1/sessions", NULL), 204, "OPTIONS");
	is_str(answer_header(&a, "Allow"), "POST, GET, HEAD", "says what");
	world_do(&w, &a, "OPTIONS", "/v1/nowhere", NULL);
	is_problem(&a, 404, "not-found");
}

static void methods(void)
{
	SCOPED(answer_done) struct answer a = { 0 };

	world_do(&w, &a, "GET", "/v2/sessions", NULL);
	is_problem(&a, 404, "not-found");
	world_do(&w, &a, "DELETE", "/v1/sessions", NULL);
	is_problem(&a, 405, "method-not-allowed");
	is_str(answer_header(&a, "Allow"), "POST, GET, HEAD",
	       "and the methods that there are");
	world_do(&w, &a, "BREW", "/healthz", NULL);
	is_problem(&a, 405, "method-not-allowed");
	world_do(&w, &a, "GET", "/v1/sessions?limit=5&lmit=6", NULL);
	is_problem(&a, 400, "invalid");
	ok(strstr(answer_str(&a, "detail"), "lmit") != NULL,
	   "which names the misspelt word");
	world_do(&w, &a, "GET", "/v1/sessions?limit=5x", NULL);
	is_problem(&a, 400, "invalid");
	world_do(&w, &a, "GET", "/v1/sessions?limit=0", NULL);
	is_problem(&a, 400, "invalid");
}

static void hosts(void)
{
	static const char *const good[] = {
		"localhost",	  "LOCALHOST:1", "127.0.0.1",
		"127.0.0.1:9999", "[::1]:7070",	 "[::1]",
	};
	static const char *const bad[] = {
		"evil.example", "localhost.evil.example", "127.0.0.1.evil",
		"[::1",		"169.254.169.254",	  "localhost@evil",
		"evil:80:90",
	};
	SCOPED(answer_done) struct answer a = { 0 };
	char head[256];

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		snprintf(head, sizeof(head), "Host: %s\r\n", good[i]);
		world_request(world_connect_tcp(&w), &a, "GET", "/healthz",
			      head, NULL, 0);
		is_int(a.status, 200, "Host: %s", good[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(head, sizeof(head),
			 "Host: %s\r\nAuthorization: Bearer %s\r\n", bad[i],
			 w.token);
		world_request(world_connect_tcp(&w), &a, "GET", "/v1/sessions",
			      head, NULL, 0);
		is_int(a.status, 403, "Host: %s, in spite of a key", bad[i]);
		world_request(world_connect_unix(&w), &a, "OPTIONS",
			      "/v1/sessions", head, NULL, 0);
		is_int(a.status, 403, "nor OPTIONS");
	}
	world_request(world_connect_unix(&w), &a, "GET", "/healthz", "", NULL, 0);
	is_int(a.status, 400, "no Host at all");
}

static void keys(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char wrong[AUTH_TOKEN_LEN + 1], id[ID_LEN + 1];

	world_do_key(&w, &a, NULL, "GET", "/v1/sessions", NULL);
	is_problem(&a, 401, "unauthorized");
	is_str(answer_header(&a, "WWW-Authenticate"), "Bearer", "and how");
	base_strcpy(wrong, sizeof(wrong), w.token);
	wrong[AUTH_TOKEN_LEN - 1] ^= 1;
	world_do_key(&w, &a, wrong, "GET", "/v1/sessions", NULL);
	is_problem(&a, 401, "unauthorized");
	is_int(world_do_key(&w, &a, w.token, "GET", "/v1/sessions", NULL), 200,
	       "a right key");
	world_do_key(&w, &a, w.token, "POST", "/v1/keys",
		     "{\"name\":\"reader\",\"scopes\":[\"read\"]}");
	is_int(a.status, 201, "it has the scope to make another");
	base_strcpy(id, sizeof(id), answer_str(&a, "id"));
	base_strcpy(wrong, sizeof(wrong), answer_str(&a, "token"));
	is_int(world_do_key(&w, &a, wrong, "GET", "/v1/sessions", NULL), 200,
	       "which may read");
	world_do_key(&w, &a, wrong, "POST", "/v1/sessions", "{}");
	is_problem(&a, 403, "forbidden");
	world_do_key(&w, &a, wrong, "GET", "/v1/keys", NULL);
	is_problem(&a, 403, "forbidden");
	is_int(world_do_key(&w, &a, w.other, "GET", "/v1/keys", NULL), 200,
	       "another tenant lists keys");
	ok(!strstr(buf_cstr(&a.body), id), "and doesn't see it");
	ok(!strstr(buf_cstr(&a.body), "hash"), "nor any hash");
	{
		char path[64];

		snprintf(path, sizeof(path), "/v1/keys/%s", id);
		world_do_key(&w, &a, w.other, "DELETE", path, NULL);
		is_problem(&a, 404, "not-found");
		is_int(world_do_key(&w, &a, w.token, "DELETE", path, NULL), 204,
		       "its own tenant removes it");
		world_do_key(&w, &a, wrong, "GET", "/v1/sessions", NULL);
		is_problem(&a, 401, "unauthorized");
		world_do_key(&w, &a, w.token, "DELETE", path, NULL);
		is_problem(&a, 404, "not-found");
	}
}

static void bodies(void)
{
	static const char *const bad[] = {
		"{",
		"{\"a\":1,\"a\":2}",
		"[]",
		"5",
		"{} {}",
		"nonsense",
		"{\"template\":5}",
		"{\"template\":\"tiny\",\"tmplate\":1}",
		"{\"memory_mib\":-1}",
		"{\"memory_mib\":1.5}",
		"{\"ttl\":\"soon\"}",
		"{\"ttl\":\"-5s\"}",
		"{\"keep\":\"maybe\"}",
		"{\"name\":\"a\\u0000b\"}",
	};
	SCOPED(answer_done) struct answer a = { 0 };
	SCOPED_FREE char *big = base_alloc((6u << 20) + 1);

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		world_do(&w, &a, "POST", "/v1/sessions", bad[i]);
		is_problem(&a, 400, "invalid");
	}
	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions",
		      "Host: localhost\r\nContent-Type: text/plain\r\n", "{}", 2);
	is_problem(&a, 415, "invalid");
	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions", NULL,
		      "{}", 2);
	is_int(a.status, 415, "no type is not JSON either");
	memset(big, ' ', 6u << 20);
	big[0] = '{';
	big[(1u << 20) - 1] = '}';
	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions/x/fork",
		      JSON_HEAD, big, 1u << 20);
	is_problem(&a, 404, "not-found"); /* read whole: then no session x */
	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions/x/fork",
		      JSON_HEAD, big, (1u << 20) + 1);
	is_problem(&a, 413, "too-large");
	world_request(world_connect_tcp(&w), &a, "POST", "/v1/sessions",
		      JSON_HEAD, big, 3u << 20);
	is_int(a.status, 401, "who may not is told before what is too large");
	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions/x/fork",
		      JSON_HEAD, big, 6u << 20);
	is_problem(&a, 413, "too-large");
}

/* A body without a length: dropped where it gets too large. */
static void endless(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	SCOPED_FREE char *piece = base_alloc(65536);
	int fd = world_connect_unix(&w), i;
	static const char head[] = "POST /v1/sessions HTTP/1.1\r\n" JSON_HEAD
				   "Transfer-Encoding: chunked\r\n\r\n";

	world_send(fd, head, sizeof(head) - 1);
	memset(piece, ' ', 65536);
	for (i = 0; i < 1000; i++) { /* 64 MB, if anyone takes them */
		char size[] = "10000\r\n";

		if (send(fd, size, 7, MSG_NOSIGNAL) < 0 ||
		    send(fd, piece, 65536, MSG_NOSIGNAL) < 0 ||
		    send(fd, "\r\n", 2, MSG_NOSIGNAL) < 0)
			break;
	}
	ok(i < 200, "the server closed after %d of 1000 pieces", i);
	close(fd);
	is_int(world_do(&w, &a, "GET", "/healthz", NULL), 200, "and lives");
}

static void garbage(uint64_t seed)
{
	static const char *const lines[] = {
		"\r\n\r\n\r\n",
		"GET\r\n\r\n",
		"GET / HTTP/9.9\r\n\r\n",
		"GET /\x01\x02 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Length: -5\r\n\r\n",
		"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Length: 99999999999999999999999\r\n\r\n",
		"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Type: application/json\r\n"
		"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
	};
	SCOPED(answer_done) struct answer a = { 0 };
	int served = 0;

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		int fd = world_connect_unix(&w);

		world_send(fd, lines[i], strlen(lines[i]));
		shutdown(fd, SHUT_WR);
		world_receive(fd, &b, NULL);
		served += strstr(buf_cstr(&b), "HTTP/1.1 2") != NULL;
		close(fd);
	}
	for (int i = 0; i < 50; i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		uint8_t noise[256];
		int fd = world_connect_unix(&w);

		for (size_t k = 0; k < sizeof(noise); k++)
			noise[k] = (uint8_t)tap_rand(&seed);
		world_send(fd, noise, sizeof(noise));
		shutdown(fd, SHUT_WR);
		world_receive(fd, &b, NULL);
		served += strstr(buf_cstr(&b), "HTTP/1.1 2") != NULL;
		close(fd);
	}
	is_int(served, 0, "nothing malformed is served");
	is_int(world_do(&w, &a, "GET", "/healthz", NULL), 200, "all is well");
}

static void names(void)
{
	static const char *const ids[] = {
		"nobody",	 "aaaaaaaaaaaaaaaaaaaa",
		"..%2f..%2fetc", "a%00b",
		"%ff%fe",	 "%zz",
		"a%2Fb",	 "-",
		"%0d%0aX: y",
	};
	SCOPED(answer_done) struct answer a = { 0 };
	char path[128];

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		snprintf(path, sizeof(path), "/v1/sessions/%s", ids[i]);
		world_do(&w, &a, "GET", path, NULL);
		is_int(a.status, 404, "no session %s", ids[i]);
		ok(!answer_header(&a, "X"), "and no header of the client's");
	}
}

/* --- many at once --------------------------------------------------------- */

#define CLIENTS 50

static void *client(void *ctx)
{
	int *bad = ctx;
	SCOPED(answer_done) struct answer a = { 0 };

	for (int i = 0; i < 10; i++) {
		int status = world_do(&w, &a, "GET",
				      i % 2 ? "/v1/sessions" : "/v1/node", NULL);

		if (status == 200 && a.whole)
			continue;
		printf("# status %d: %s\n", status, buf_cstr(&a.raw));
		++*bad;
	}
	return NULL;
}

static void crowd(void)
{
	pthread_t t[CLIENTS];
	int bad[CLIENTS] = { 0 }, sum = 0;

	for (int i = 0; i < CLIENTS; i++)
		pthread_create(&t[i], NULL, client, &bad[i]);
	for (int i = 0; i < CLIENTS; i++) {
		pthread_join(t[i], NULL);
		sum += bad[i];
	}
	is_int(sum, 0, "500 requests of 50 clients at once");
}

static void limit(void)
{
	static const char text[] = "GET /healthz HTTP/1.1\r\n"
				   "Host: localhost\r\n\r\n";
	SCOPED(answer_done) struct answer a = { 0 };
	SCOPED(buf_done) struct buf b = { 0 };
	static struct world small;
	int fd[4], status = 0;

	world_start(&small, 4);
	for (int i = 0; i < 4; i++) {
		buf_reset(&b);
		fd[i] = world_connect_unix(&small);
		world_send(fd[i], text, sizeof(text) - 1);
		world_receive(fd[i], &b, "ok\"}\n");
		status += strstr(buf_cstr(&b), "200 OK") != NULL;
	}
	is_int(status, 4, "as many connections as allowed, kept open");
	world_do(&small, &a, "GET", "/healthz", NULL);
	is_problem(&a, 503, "busy");
	is_str(answer_header(&a, "Retry-After"), "1", "with a time to wait");
	buf_reset(&b);
	world_send(fd[0], text, sizeof(text) - 1);
	world_receive(fd[0], &b, "ok\"}\n");
	ok(strstr(buf_cstr(&b), "200 OK") != NULL,
	   "those that were there are still served");
	for (int i = 0; i < 4; i++)
		close(fd[i]);
	for (int i = 0; i < 100 && status != 200; i++) {
		status = world_do(&small, &a, "GET", "/healthz", NULL);
		poll(NULL, 0, 20);
	}
	is_int(status, 200, "and others again once they are gone");
	world_stop(&small);
}

int main(void)
{
	world_start(&w, 128);
	health();
	heads();
	methods();
	hosts();
	keys();
	bodies();
	endless();
	garbage(tap_seed());
	names();
	crowd();
	limit();
	world_stop(&w);
	return tap_done();
}
