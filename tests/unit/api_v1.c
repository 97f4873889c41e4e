/*
 * api_v1: the resources: sessions through their whole life, points, forks,
 * rewinds, commands, runs, files, operations, the rights of tenants and
 * idempotency; on the real engine.
 */
#include "tests/unit/api_world.h"

static struct world w;

static void is_problem(struct answer *a, int status, const char *word)
{
	char type[64];

	snprintf(type, sizeof(type), "urn:cryo:problem:%s", word);
	is_int(a->status, status, "answered with %d", status);
	is_str(answer_str(a, "type"), type, "%s: %s", word,
	       answer_str(a, "detail"));
}

static int PRINTF(4, 5) call(struct answer *a, const char *method,
			     const char *json, const char *fmt, ...)
{
	char path[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	return world_do(&w, a, method, path, json);
}

/* A running session; its id in static memory of the caller. */
static void make(char ret[ID_LEN + 1], const char *json)
{
	SCOPED(answer_done) struct answer a = { 0 };

	is_int(call(&a, "POST", json, "/v1/sessions?wait=10"), 200,
	       "a session is made");
	is_str(answer_str(&a, "state"), "done", "and runs");
	base_strcpy(ret, ID_LEN + 1, answer_str(&a, "session"));
}

static void create(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char id[ID_LEN + 1], op[ID_LEN + 1], where[64];

	is_int(call(&a, "POST",
		    "{\"name\":\"first\",\"ttl\":\"1h\","
		    "\"snapshot_every\":\"90s\"}",
		    "/v1/sessions"),
	       202, "accepted at once without ?wait");
	base_strcpy(op, sizeof(op), answer_str(&a, "id"));
	base_strcpy(id, sizeof(id), answer_str(&a, "session"));
	snprintf(where, sizeof(where), "/v1/operations/%s", op);
	is_str(answer_header(&a, "Location"), where, "with where to look");
	is_str(answer_str(&a, "kind"), "create", "of its kind");
	is_int(call(&a, "GET", NULL, "/v1/operations/%s?wait=10", op), 200,
	       "the operation");
	is_str(answer_str(&a, "state"), "done", "is waited for");
	is_int(call(&a, "GET", NULL, "/v1/sessions/%s", id), 200, "by id");
	is_str(answer_str(&a, "state"), "running", "it runs");
	is_str(answer_str(&a, "name"), "first", "under its name");
	is_str(answer_str(&a, "template"), "tiny:latest", "from the template");
	is_str(answer_str(&a, "ttl"), "1h", "with its limit");
	is_str(answer_str(&a, "snapshot_every"), "1m30s", "and interval");
	is_str(answer_str(&a, "epoch"), "1", "in its first epoch");
	is_str(answer_str(&a, "tenant"), WORLD_TENANT, "of the local tenant");
	is_int(call(&a, "GET", NULL, "/v1/sessions/first"), 200, "by name");
	is_str(answer_str(&a, "id"), id, "the same");
	call(&a, "POST", "{\"name\":\"first\"}", "/v1/sessions");
	is_problem(&a, 409, "conflict");
	call(&a, "POST", "{\"template\":\"nothing\"}", "/v1/sessions");
	is_problem(&a, 404, "not-found");
	call(&a, "POST", "{\"memory_mib\":1}", "/v1/sessions");
	is_problem(&a, 400, "invalid");
	is_int(call(&a, "GET", NULL, "/v1/operations/%s", id), 404,
	       "a session's id is no operation's");
	is_int(call(&a, "GET", NULL, "/v1/operations/%s?wait=61", op), 400,
	       "nobody waits for longer than a minute");
}

static void states(void)
{
	SCOPED(answer_done) struct answer a = { 0 };

	is_int(call(&a, "POST", NULL, "/v1/sessions/first/pause?wait=5"), 200,
	       "pause");
	call(&a, "GET", NULL, "/v1/sessions/first");
	is_str(answer_str(&a, "state"), "paused", "it is paused");
	is_int(call(&a, "POST", NULL, "/v1/sessions/first/resume?wait=5"), 200,
	       "resume");
	is_str(answer_str(&a, "kind"), "continue", "continues in memory");
	is_int(call(&a, "POST", NULL, "/v1/sessions/first/suspend?wait=5"), 200,
	       "suspend");
	is_int((int)strlen(answer_str(&a, "point")), ID_LEN, "ends with a point");
	call(&a, "GET", NULL, "/v1/sessions/first");
	is_str(answer_str(&a, "state"), "suspended", "it is suspended");
	call(&a, "POST", NULL, "/v1/sessions/first/pause?wait=5");
	is_problem(&a, 409, "conflict");
	is_int(call(&a, "POST", "{}", "/v1/sessions/first/resume?wait=5"), 200,
	       "resume");
	is_str(answer_str(&a, "kind"), "resume", "restores a point");
	call(&a, "GET", NULL, "/v1/sessions/first");
	is_str(answer_str(&a, "epoch"), "2", "in a new epoch");
}

static void points(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char first[ID_LEN + 1], next[64];
	char id[ID_LEN + 1];

	make(id, "{\"name\":\"pointed\"}");
	is_int(call(&a, "POST", "{\"name\":\"alpha\"}",
		    "/v1/sessions/pointed/snapshots?wait=5"),
	       200, "a point");
	base_strcpy(first, sizeof(first), answer_str(&a, "point"));
	call(&a, "POST", "{\"name\":\"alpha\"}",
	     "/v1/sessions/pointed/snapshots?wait=5");
	is_problem(&a, 409, "conflict");
	for (int i = 0; i < 3; i++)
		is_int(call(&a, "POST", NULL,
			    "/v1/sessions/pointed/snapshots?wait=5"),
		       200, "another");
	is_int(call(&a, "GET", NULL, "/v1/sessions/pointed/snapshots"), 200,
	       "the list");
	is_str(answer_str(&a, "items"), "[4]", "has four");
	is_str(answer_str(&a, "items.3.id"), first, "newest first");
	is_str(answer_str(&a, "items.3.name"), "alpha", "with names");
	is_str(answer_str(&a, "items.3.kind"), "manual", "and kinds");
	is_str(answer_str(&a, "items.0.on_line"), "true", "on the line");
	is_str(answer_str(&a, "next"), "(none)", "all on one page");
	call(&a, "GET", NULL, "/v1/sessions/pointed/points?limit=3");
	is_str(answer_str(&a, "items"), "[3]", "a page of three");
	base_strcpy(next, sizeof(next), answer_str(&a, "next"));
	call(&a, "GET", NULL, "/v1/sessions/%s/points?limit=3&after=%s", id,
	     next);
	is_str(answer_str(&a, "items"), "[1]", "then one");
	is_str(answer_str(&a, "items.0.id"), first, "the oldest");
	is_int(call(&a, "GET", NULL, "/v1/sessions/%s/points?after=x", id), 400,
	       "a cursor that is none");
}

static void rewind_and_undo(void)
{
	SCOPED(answer_done) struct answer a = { 0 };

	call(&a, "POST", "{}", "/v1/sessions/pointed/rewind?wait=5");
	is_problem(&a, 400, "invalid");
	call(&a, "POST", "{\"at\":\"alpha\",\"undo\":true}",
	     "/v1/sessions/pointed/rewind?wait=5");
	is_problem(&a, 400, "invalid");
	call(&a, "POST", "{\"undo\":true}", "/v1/sessions/pointed/rewind?wait=5");
	ok(a.status >= 400, "nothing to undo yet: %s", answer_str(&a, "detail"));
	call(&a, "POST", "{\"at\":\"2020-01-01T00:00:00Z\"}",
	     "/v1/sessions/pointed/rewind?wait=5");
	is_problem(&a, 404, "not-found");
	call(&a, "POST", "{\"at\":\"yesterday\"}",
	     "/v1/sessions/pointed/rewind?wait=5");
	ok(a.status == 400 || a.status == 404, "no moment: %s",
	   answer_str(&a, "detail"));
	is_int(call(&a, "POST", "{\"at\":\"alpha\"}",
		    "/v1/sessions/pointed/rewind?wait=5"),
	       200, "back to a name");
	is_str(answer_str(&a, "found.name"), "alpha", "which is found");
	is_str(answer_str(&a, "found.on_line"), "true", "on the line");
	call(&a, "GET", NULL, "/v1/sessions/pointed");
	is_str(answer_str(&a, "epoch"), "2", "a new epoch");
	call(&a, "GET", NULL, "/v1/sessions/pointed/snapshots");
	is_str(answer_str(&a, "items.0.kind"), "before-rewind",
	       "the present was kept");
	is_str(answer_str(&a, "items.0.on_line"), "false", "off the line");
	is_str(answer_str(&a, "items.4.on_line"), "true", "alpha is on it");
	is_int(call(&a, "POST", "{\"undo\":true}",
		    "/v1/sessions/pointed/rewind?wait=5"),
	       200, "undo");
	is_int(call(&a, "GET", NULL, "/v1/sessions/pointed/timeline"), 200,
	       "the timeline");
	is_str(answer_str(&a, "epochs"), "[3]", "has three epochs");
	is_str(answer_str(&a, "epochs.1.start.id"),
	       answer_str(&a, "points.5.id"), "the second began at alpha");
	is_str(answer_str(&a, "session.epoch"), "3", "and the session");
	is_str(answer_str(&a, "more"), "false", "nothing was left out");
}

static void forks(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char child[ID_LEN + 1];

	is_int(call(&a, "POST",
		    "{\"at\":\"alpha\",\"count\":3,\"names\":[\"kid\"]}",
		    "/v1/sessions/pointed/fork?wait=5"),
	       200, "three forks of a moment");
	is_str(answer_str(&a, "sessions"), "[3]", "are named");
	base_strcpy(child, sizeof(child), answer_str(&a, "sessions.0"));
	is_int(call(&a, "GET", NULL, "/v1/sessions/kid"), 200, "by name");
	is_str(answer_str(&a, "id"), child, "in the order given");
	is_str(answer_str(&a, "state"), "running", "they run");
	ok(strlen(answer_str(&a, "parent")) == ID_LEN, "and know their parent");
	is_str(answer_str(&a, "base.session"), answer_str(&a, "parent"),
	       "whose point they started from");
	call(&a, "GET", NULL, "/v1/sessions/pointed/timeline");
	is_str(answer_str(&a, "forks"), "[3]", "the timeline shows them");
	call(&a, "POST", "{\"count\":0}", "/v1/sessions/pointed/fork");
	is_problem(&a, 400, "invalid");
	call(&a, "POST", "{\"count\":65}", "/v1/sessions/pointed/fork");
	is_problem(&a, 400, "invalid");
	call(&a, "POST", "{\"names\":[\"a\",\"b\"]}",
	     "/v1/sessions/pointed/fork");
	is_problem(&a, 400, "invalid");
	is_int(call(&a, "POST", NULL, "/v1/sessions/pointed/fork?wait=5"), 200,
	       "a fork of the present");
	is_str(answer_str(&a, "sessions"), "[1]", "one, if nothing is said");
}

static void idempotency(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	static const char head[] =
		"Host: localhost\r\nContent-Type: application/json\r\n"
		"Idempotency-Key: once\r\n";
	char id[ID_LEN + 1];

	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions?wait=5",
		      head, "{\"name\":\"idem\"}", 15);
	is_int(a.status, 200, "with an Idempotency-Key");
	ok(!answer_header(&a, "Idempotency-Replayed"), "for the first time");
	base_strcpy(id, sizeof(id), answer_str(&a, "session"));
	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions?wait=5",
		      head, "{\"name\":\"idem\"}", 15);
	is_int(a.status, 200, "and again");
	is_str(answer_str(&a, "session"), id, "the same session");
	is_str(answer_header(&a, "Idempotency-Replayed"), "true", "is told");
	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions", head,
		      "{\"name\":\"ider\"}", 15);
	is_problem(&a, 422, "mismatch");
	world_request(world_connect_unix(&w), &a, "POST",
		      "/v1/sessions/idem/pause?wait=5", head, NULL, 0);
	is_int(a.status, 200, "for another path it is another key");
	is_str(answer_str(&a, "kind"), "pause", "of its own");
	world_request(world_connect_unix(&w), &a, "POST", "/v1/sessions",
		      "Host: localhost\r\nIdempotency-Key: \r\n", NULL, 0);
	is_problem(&a, 400, "invalid");
}

/* --- commands ------------------------------------------------------------- */

static void execs(void)
{
	static const char *const bad[] = {
		"{}",
		"{\"argv\":[]}",
		"{\"argv\":\"ls\"}",
		"{\"argv\":[1]}",
		"{\"argv\":[\"ls\"],\"env\":[]}",
		"{\"argv\":[\"ls\"],\"env\":{\"A=B\":\"c\"}}",
		"{\"argv\":[\"ls\"],\"env\":{\"\":\"c\"}}",
		"{\"argv\":[\"ls\"],\"env\":{\"A\":1}}",
		"{\"argv\":[\"ls\"],\"cwd\":\"here\"}",
		"{\"argv\":[\"ls\"],\"shell\":true}",
	};
	SCOPED(answer_done) struct answer a = { 0 };
	char x[ID_LEN + 1];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		call(&a, "POST", bad[i], "/v1/sessions/first/execs");
		is_problem(&a, 400, "invalid");
	}
	is_int(call(&a, "POST",
		    "{\"argv\":[\"cat\",\"-n\"],\"env\":{\"K\":\"s3cret\"},"
		    "\"cwd\":\"/tmp\",\"user\":\"user\",\"stdin\":true}",
		    "/v1/sessions/first/execs"),
	       201, "a command is started");
	ok(!strstr(buf_cstr(&a.body), "s3cret"),
	   "values of env are not told back");
	is_str(answer_str(&a, "env.0"), "K", "their names are");
	is_str(answer_str(&a, "state"), "running", "it runs");
	is_str(answer_str(&a, "argv.1"), "-n", "as asked for");
	base_strcpy(x, sizeof(x), answer_str(&a, "id"));
	is_int(call(&a, "GET", NULL, "/v1/execs/%s", x), 200, "by its id");
	is_str(answer_str(&a, "cwd"), "/tmp", "where asked for");
	is_int(call(&a, "GET", NULL, "/v1/sessions/first/execs"), 200, "list");
	is_str(answer_str(&a, "items.0.id"), x, "with it");
	is_int(call(&a, "GET", NULL, "/v1/execs/%s/wait?timeout=1", x), 200,
	       "waiting");
	is_str(answer_str(&a, "state"), "running", "for too short");
	call(&a, "POST", "{\"signal\":\"NONSENSE\"}", "/v1/execs/%s/signal", x);
	is_problem(&a, 400, "invalid");
	call(&a, "POST", "{\"signal\":65}", "/v1/execs/%s/signal", x);
	is_problem(&a, 400, "invalid");
	is_int(call(&a, "POST", "{\"signal\":\"SIGTERM\"}",
		    "/v1/execs/%s/signal", x),
	       204, "a signal is sent");
	is_int(call(&a, "GET", NULL, "/v1/execs/aaaaaaaaaaaaaaaaaaaa"), 404,
	       "an unknown command");
}

static void *exit_soon(void *ctx)
{
	const char *tag = ctx;
	SCOPED(answer_done) struct answer a = { 0 };
	char id[ID_LEN + 1];

	poll(NULL, 0, 200);
	world_do(&w, &a, "GET", "/v1/sessions/first", NULL);
	base_strcpy(id, sizeof(id), answer_str(&a, "id"));
	pthread_mutex_lock(&w.pumping);
	fake_exit(w.fake, id, tag, 7);
	pthread_mutex_unlock(&w.pumping);
	return NULL;
}

static void exec_end(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	int64_t before = clock_mono(&clock_real), took;
	char x[ID_LEN + 1];
	pthread_t t;

	call(&a, "POST", "{\"argv\":[\"sleep\"]}", "/v1/sessions/first/execs");
	base_strcpy(x, sizeof(x), answer_str(&a, "id"));
	pthread_create(&t, NULL, exit_soon, x);
	is_int(call(&a, "GET", NULL, "/v1/execs/%s/wait?timeout=20", x), 200,
	       "waiting for the end");
	took = (clock_mono(&clock_real) - before) / NS_PER_MS;
	pthread_join(t, NULL);
	is_str(answer_str(&a, "state"), "exited", "it came");
	is_str(answer_str(&a, "code"), "7", "with the code");
	ok(took < 5000, "at once (%lld ms)", (long long)took);
	call(&a, "POST", "{\"signal\":9}", "/v1/execs/%s/signal", x);
	ok(a.status >= 400, "no signal to what has ended: %s",
	   answer_str(&a, "detail"));
}

static void stdin_of(const char *x, const char *query, const char *body,
		     struct answer *a)
{
	char path[128];

	snprintf(path, sizeof(path), "/v1/execs/%s/stdin%s", x, query);
	world_request(world_connect_unix(&w), a, "POST", path,
		      "Host: localhost\r\n"
		      "Content-Type: application/octet-stream\r\n",
		      body, strlen(body));
}

static void input(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	struct world_exec *in;
	char x[ID_LEN + 1];

	call(&a, "POST", "{\"argv\":[\"cat\"],\"stdin\":true}",
	     "/v1/sessions/first/execs");
	base_strcpy(x, sizeof(x), answer_str(&a, "id"));
	stdin_of(x, "?offset=0", "hello ", &a);
	is_str(answer_str(&a, "offset"), "6", "six bytes are taken");
	stdin_of(x, "?offset=3", "lo world", &a);
	is_str(answer_str(&a, "offset"), "11", "what overlaps is dropped");
	stdin_of(x, "?offset=50", "hole", &a);
	is_problem(&a, 400, "invalid");
	stdin_of(x, "", "!", &a);
	is_str(answer_str(&a, "offset"), "12", "without an offset: at the end");
	in = world_exec(&w, x);
	is_str(buf_cstr(&in->in), "hello world!", "each byte came once");
	in->in_room = 14;
	stdin_of(x, "?offset=12", "1234", &a);
	is_int(a.status, 200, "a process that takes less");
	is_str(answer_str(&a, "offset"), "14", "says how much");
	in->in_room = 0;
	stdin_of(x, "?offset=14&eof=1", "34", &a);
	ok(in->in_closed && !strcmp(buf_cstr(&in->in), "hello world!1234"),
	   "the rest, then the end");
	call(&a, "POST", "{\"argv\":[\"cat\"]}", "/v1/sessions/first/execs");
	base_strcpy(x, sizeof(x), answer_str(&a, "id"));
	stdin_of(x, "", "x", &a);
	is_problem(&a, 409, "conflict");
}

static void runs(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char run[ID_LEN + 1];

	call(&a, "POST", "{\"template\":\"tiny:latest\"}", "/v1/runs");
	is_problem(&a, 400, "invalid");
	call(&a, "GET", NULL, "/v1/sessions?limit=1000");
	is_int(call(&a, "POST", "{\"argv\":[\"true\"],\"ttl\":\"5m\"}",
		    "/v1/runs"),
	       201, "a run");
	is_str(answer_str(&a, "session.keep"), "none", "keeps nothing");
	is_str(answer_str(&a, "session.ttl"), "5m", "and has a limit");
	is_str(answer_str(&a, "exec.argv.0"), "true", "its command");
	base_strcpy(run, sizeof(run), answer_str(&a, "id"));
	is_int(call(&a, "GET", NULL, "/v1/runs/%s?wait=0", run), 200, "shown");
	is_str(answer_str(&a, "exec.state"), "running", "with its state");
	is_int(call(&a, "DELETE", NULL, "/v1/sessions/%s?wait=5", run), 200,
	       "and removed");
	is_int(call(&a, "GET", NULL, "/v1/runs/%s", run), 404, "is gone");
}

/* --- files ---------------------------------------------------------------- */

static void put_file(struct answer *a, const char *query, const void *p,
		     size_t len)
{
	char path[256];

	snprintf(path, sizeof(path), "/v1/sessions/first/files?%s", query);
	world_request(world_connect_unix(&w), a, "PUT", path,
		      "Host: localhost\r\n"
		      "Content-Type: application/octet-stream\r\n",
		      p, len);
}

static void files(uint64_t seed)
{
	SCOPED(answer_done) struct answer a = { 0 };
	size_t len = 500000;
	int before;
	SCOPED_FREE uint8_t *bytes = base_alloc(3u << 20);

	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)tap_rand(&seed);
	put_file(&a, "path=/data%20file&mode=0755", bytes, len);
	is_int(a.status, 200, "a file goes in");
	is_str(answer_str(&a, "size"), "500000", "whole");
	is_int((int)world_file(&w, "/data file")->mode, 0755, "with its mode");
	is_int(call(&a, "GET", NULL,
		    "/v1/sessions/first/files?path=/data%%20file"),
	       200, "and out");
	ok(a.whole && a.body.len == len && !memcmp(a.body.p, bytes, len),
	   "the same bytes");
	is_str(answer_header(&a, "X-Cryo-Mode"), "0755", "and mode");
	call(&a, "GET", NULL, "/v1/sessions/first/files?path=/data%%20file&stat");
	is_str(answer_str(&a, "size"), "500000", "its size only");
	is_str(answer_str(&a, "kind"), "file", "and kind");
	put_file(&a, "path=/empty", NULL, 0);
	is_int(a.status, 200, "an empty file");
	call(&a, "GET", NULL, "/v1/sessions/first/files?path=/empty");
	ok(a.status == 200 && a.whole && !a.body.len, "stays empty");
	call(&a, "GET", NULL, "/v1/sessions/first/files?path=/none");
	is_problem(&a, 404, "not-found");
	call(&a, "GET", NULL, "/v1/sessions/first/files?path=/tmp");
	is_problem(&a, 409, "conflict");
	call(&a, "GET", NULL, "/v1/sessions/first/files?path=relative");
	is_problem(&a, 400, "invalid");
	call(&a, "GET", NULL, "/v1/sessions/first/files");
	is_problem(&a, 400, "invalid");
	put_file(&a, "path=/x&mode=9", bytes, 1);
	is_problem(&a, 400, "invalid");
	put_file(&a, "path=/readonly", bytes, len);
	is_problem(&a, 409, "conflict");
	before = atomic_load(&w.committed);
	put_file(&a, "path=/full", bytes, len);
	is_problem(&a, 507, "no-space");
	put_file(&a, "path=/big", bytes, (2u << 20) + 1);
	is_problem(&a, 413, "too-large");
	is_int(atomic_load(&w.committed), before, "nothing was put in place");
	ok(world_wait(&w.aborted, 1), "what was begun is aborted");
	is_int(atomic_load(&w.aborted), 1, "once");
}

/* The client goes away in the middle of an upload. */
static void cut_upload(void)
{
	static const char head[] =
		"PUT /v1/sessions/first/files?path=/cut HTTP/1.1\r\n"
		"Host: localhost\r\nContent-Length: 1000000\r\n"
		"Content-Type: application/octet-stream\r\n\r\n";
	int fd = world_connect_unix(&w);
	int begun = atomic_load(&w.begun), aborted = atomic_load(&w.aborted);
	char piece[1000] = "some";

	world_send(fd, head, sizeof(head) - 1);
	world_send(fd, piece, sizeof(piece));
	ok(world_wait(&w.begun, begun + 1), "an upload has begun");
	close(fd);
	ok(world_wait(&w.aborted, aborted + 1), "cut off, it is aborted");
	ok(!world_file(&w, "/cut")->there, "and no file appears");
}

/* --- tenants and the node ------------------------------------------------- */

static void tenants(void)
{
	static const char *const gets[] = {
		"", "/snapshots", "/timeline", "/execs", "/files?path=/x",
	};
	static const char *const posts[] = { "/pause", "/fork", "/suspend",
					     "/snapshots", "/resume" };
	SCOPED(answer_done) struct answer a = { 0 };
	char id[ID_LEN + 1], path[128], unknown[300];

	call(&a, "GET", NULL, "/v1/sessions/first");
	base_strcpy(id, sizeof(id), answer_str(&a, "id"));
	is_int(world_do_key(&w, &a, w.token, "GET", "/v1/sessions/first", NULL),
	       200, "its own tenant sees it by a key");
	for (size_t i = 0; i < ARRAY_LEN(gets); i++) {
		snprintf(path, sizeof(path), "/v1/sessions/%s%s",
			 "bbbbbbbbbbbbbbbbbbbb", gets[i]);
		world_do_key(&w, &a, w.other, "GET", path, NULL);
		base_strcpy(unknown, sizeof(unknown), answer_str(&a, "detail"));
		snprintf(path, sizeof(path), "/v1/sessions/%s%s", id, gets[i]);
		world_do_key(&w, &a, w.other, "GET", path, NULL);
		is_int(a.status, 404, "another tenant: no %s", path);
		memcpy(strstr(unknown, "bbbb"), id, ID_LEN);
		is_str(answer_str(&a, "detail"), unknown,
		       "in the words for what does not exist");
	}
	for (size_t i = 0; i < ARRAY_LEN(posts); i++) {
		snprintf(path, sizeof(path), "/v1/sessions/%s%s", id, posts[i]);
		world_do_key(&w, &a, w.other, "POST", path, "{}");
		is_int(a.status, 404, "nor POST %s", posts[i]);
	}
	snprintf(path, sizeof(path), "/v1/sessions/%s", id);
	is_int(world_do_key(&w, &a, w.other, "DELETE", path, NULL), 404,
	       "nor DELETE");
	is_int(world_do_key(&w, &a, w.other, "GET", "/v1/sessions", NULL), 200,
	       "its list");
	is_str(answer_str(&a, "items"), "[0]", "is empty");
	call(&a, "GET", NULL, "/v1/sessions/first/execs");
	snprintf(path, sizeof(path), "/v1/execs/%s/output",
		 answer_str(&a, "items.0.id"));
	is_int(world_do_key(&w, &a, w.other, "GET", path, NULL), 404,
	       "nor any output");
}

static void lists(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char next[64] = "", path[128];
	int pages = 0, all = 0, total;

	call(&a, "GET", NULL, "/v1/sessions?limit=1000");
	total = (int)world_nr(answer_str(&a, "items"));
	ok(total > 4, "there are %d sessions", total);
	ok(!strstr(buf_cstr(&a.body), "\"park"), "hidden ones are not shown");
	do {
		snprintf(path, sizeof(path), "/v1/sessions?limit=2%s%s",
			 next[0] ? "&after=" : "", next);
		is_int(world_do(&w, &a, "GET", path, NULL), 200, "a page");
		all += (int)world_nr(answer_str(&a, "items"));
		base_strcpy(next, sizeof(next), answer_str(&a, "next"));
	} while (strcmp(next, "(none)") && ++pages < 50);
	is_int(all, total, "the pages together have them all");
	is_int(world_do_key(&w, &a, w.token, "GET", "/v1/sessions?limit=1000",
			    NULL),
	       200, "by a key");
	is_int((int)world_nr(answer_str(&a, "items")), total, "the same");
}

static void node(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char digest[65], json[100];

	call(&a, "GET", NULL, "/v1/node");
	is_str(answer_str(&a, "backend"), "fake", "what drives the sandboxes");
	is_str(answer_str(&a, "data_dir"), "/data", "told locally");
	ok(world_nr(answer_str(&a, "seq")) > 10, "how long the log is");
	world_do_key(&w, &a, w.token, "GET", "/v1/node", NULL);
	is_str(answer_str(&a, "data_dir"), "(none)", "not told by TCP");
	call(&a, "GET", NULL, "/v1/templates");
	is_str(answer_str(&a, "items.0.name"), "tiny:latest", "a template");
	memset(digest, 'a', 64);
	digest[64] = 0;
	snprintf(json, sizeof(json), "{\"digest\":\"%s\"}", digest);
	is_int(call(&a, "POST", json, "/v1/templates"), 201, "is taken in");
	is_int(world_do_key(&w, &a, w.token, "POST", "/v1/templates", json),
	       403, "only locally");
	json[15] = '/';
	call(&a, "POST", json, "/v1/templates");
	is_problem(&a, 400, "invalid");
	call(&a, "GET", NULL, "/v1/keys");
	ok((int)world_nr(answer_str(&a, "items")) >= 2 &&
		   !strstr(buf_cstr(&a.body), "hash"),
	   "keys without their hashes");
	ok(strstr(answer_str(&a, "items.0.created"), "T") != NULL,
	   "with their time");
}

static void destroy(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char id[ID_LEN + 1];

	call(&a, "GET", NULL, "/v1/sessions/pointed");
	base_strcpy(id, sizeof(id), answer_str(&a, "id"));
	is_int(call(&a, "DELETE", NULL, "/v1/sessions/pointed?wait=5"), 200,
	       "a session is destroyed");
	is_str(answer_str(&a, "state"), "done", "for good");
	is_int(call(&a, "GET", NULL, "/v1/sessions/%s", id), 404, "it's gone");
	is_int(call(&a, "GET", NULL, "/v1/sessions/kid"), 200,
	       "its fork lives on");
	is_int(call(&a, "GET", NULL, "/v1/events?session=%s", id), 200,
	       "its events are still there");
	ok(strstr(buf_cstr(&a.body), "session.destroyed") != NULL,
	   "up to the last");
}

int main(void)
{
	uint64_t seed = tap_seed();

	world_start(&w, 64);
	create();
	states();
	points();
	rewind_and_undo();
	forks();
	idempotency();
	execs();
	exec_end();
	input();
	runs();
	files(seed);
	cut_upload();
	tenants();
	lists();
	node();
	destroy();
	world_stop(&w);
	return tap_done();
}
