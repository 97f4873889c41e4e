/*
 * api_world: what the tests of the door stand on: the real engine on a store
 * in memory with the simulated driver, a sandbox port in memory, the real
 * HTTP server on a unix and a TCP socket, and a small raw HTTP client that
 * shares no code with the server. Included by test programs.
 */
#ifndef TESTS_UNIT_API_WORLD_H
#define TESTS_UNIT_API_WORLD_H

#include "api/api.h"
#include "api/auth.h"
#include "api/listen.h"
#include "core/backend/fake.h"
#include "store/crypt.h"

#include "tests/memstore.h"
#include "tests/tap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define WORLD_UNUSED __attribute__((unused))
#define WORLD_DELAY_NS (20 * NS_PER_MS) /* of each effect */
#define WORLD_EXECS 32
#define WORLD_FILES 8
#define WORLD_TENANT "tenant00000000000001"
#define WORLD_OTHER "tenant00000000000002"

/* --- a sandbox in memory -------------------------------------------------- */

struct world_exec {
	char id[ID_LEN + 1];
	struct buf out[2], in;
	uint64_t kept[2]; /* bytes before this offset are gone */
	uint64_t epoch;
	bool exited, in_closed, rewound;
	struct sandbox_cursor rewound_to;
	int code, signal;
	size_t in_room; /* how much stdin it takes; 0: all */
};

struct world_file {
	char path[128];
	struct buf bytes;
	uint32_t mode;
	bool there;
};

struct world {
	struct memstore store;
	struct fake *fake;
	struct engine *engine;
	struct api *api;
	pthread_t pump;
	pthread_mutex_t pumping; /* take it to touch `fake` */
	atomic_bool stop;
	char dir[32], socket[64];
	int unix_fd, tcp_fd;
	uint16_t port;
	char host[32];
	char token[AUTH_TOKEN_LEN + 1]; /* of WORLD_TENANT, all scopes */
	char other[AUTH_TOKEN_LEN + 1]; /* of WORLD_OTHER */

	pthread_mutex_t lock;
	pthread_cond_t grown;
	struct world_exec execs[WORLD_EXECS];
	struct world_file files[WORLD_FILES];
	atomic_int begun, aborted, committed;
	atomic_int reading; /* threads inside output() */
	int fail_output; /* answer BUSY so many times */
	/* plays a command when its output is first asked for; under lock */
	void (*play)(struct world *w, struct world_exec *x);
};

static struct world_exec *world_exec(struct world *w, const char *id)
{
	for (int i = 0; i < WORLD_EXECS; i++) {
		struct world_exec *x = &w->execs[i];

		if (!x->id[0]) {
			base_strcpy(x->id, sizeof(x->id), id);
			x->epoch = 1;
			if (w->play)
				w->play(w, x);
		}
		if (!strcmp(x->id, id))
			return x;
	}
	bail("the test uses too many execs");
}

WORLD_UNUSED static void world_say(struct world *w, const char *exec,
				   int stream, const void *p, size_t len)
{
	pthread_mutex_lock(&w->lock);
	buf_put(&world_exec(w, exec)->out[stream], p, len);
	pthread_cond_broadcast(&w->grown);
	pthread_mutex_unlock(&w->lock);
}

WORLD_UNUSED static void world_exit(struct world *w, const char *exec, int code,
				    int sig)
{
	struct world_exec *x;

	pthread_mutex_lock(&w->lock);
	x = world_exec(w, exec);
	x->exited = true;
	x->code = code;
	x->signal = sig;
	pthread_cond_broadcast(&w->grown);
	pthread_mutex_unlock(&w->lock);
}

static bool world_output_now(struct world_exec *x,
			     const struct sandbox_cursor *at, void *data,
			     size_t max, struct sandbox_chunk *ret)
{
	if (x->rewound && at->epoch && at->epoch != x->epoch) {
		ret->kind = SANDBOX_REWOUND;
		ret->at = x->rewound_to;
		return true;
	}
	for (int s = 0; s < 2; s++) {
		uint64_t off = MAX(at->off[s], x->kept[s]);

		if (off >= x->out[s].len)
			continue;
		ret->kind = SANDBOX_DATA;
		ret->stream = (enum sandbox_stream)s;
		ret->epoch = x->epoch;
		ret->off = off;
		ret->len = MIN(max, (size_t)(x->out[s].len - off));
		memcpy(data, x->out[s].p + off, ret->len);
		return true;
	}
	if (!x->exited)
		return false;
	ret->kind = SANDBOX_EXIT;
	ret->code = x->code;
	ret->signal = x->signal;
	return true;
}

static int world_output(void *ctx, const char *session, const char *exec,
			const struct sandbox_cursor *at, void *data, size_t max,
			int timeout_ms, struct sandbox_chunk *ret, struct err *e)
{
	struct world *w = ctx;
	struct timespec t;

	(void)session;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += timeout_ms % 1000 * 1000000L;
	t.tv_sec += timeout_ms / 1000 + t.tv_nsec / 1000000000L;
	t.tv_nsec %= 1000000000L;
	*ret = (struct sandbox_chunk){ .kind = SANDBOX_NOTHING };
	atomic_fetch_add(&w->reading, 1);
	pthread_mutex_lock(&w->lock);
	if (w->fail_output) {
		w->fail_output--;
		pthread_mutex_unlock(&w->lock);
		atomic_fetch_sub(&w->reading, 1);
		return err_set(e, -EAGAIN, ERR_BUSY, "the link is away");
	}
	while (!world_output_now(world_exec(w, exec), at, data, max, ret) &&
	       timeout_ms && pthread_cond_timedwait(&w->grown, &w->lock, &t) == 0)
		;
	pthread_mutex_unlock(&w->lock);
	atomic_fetch_sub(&w->reading, 1);
	return 0;
}

static int world_stdin(void *ctx, const char *session, const char *exec,
		       uint64_t off, const void *data, size_t len, bool eof,
		       int timeout_ms, uint64_t *ret_off, struct err *e)
{
	struct world *w = ctx;
	struct world_exec *x;
	size_t skip, room;
	int r = 0;

	(void)session;
	(void)timeout_ms;
	pthread_mutex_lock(&w->lock);
	x = world_exec(w, exec);
	if (off == SANDBOX_APPEND)
		off = x->in.len;
	if (off > x->in.len) {
		r = err_set(e, -EINVAL, ERR_INVALID, "a hole before %llu",
			    (unsigned long long)off);
		goto out;
	}
	skip = MIN(len, (size_t)(x->in.len - off));
	room = x->in_room ? x->in_room - MIN(x->in_room, x->in.len) : len;
	if (len - skip > room)
		r = -ETIMEDOUT;
	if (MIN(len - skip, room))
		buf_put(&x->in, (const char *)data + skip, MIN(len - skip, room));
	if (!r && eof)
		x->in_closed = true;
	*ret_off = x->in.len;
out:
	pthread_mutex_unlock(&w->lock);
	return r;
}

static struct world_file *world_file(struct world *w, const char *path)
{
	for (int i = 0; i < WORLD_FILES; i++) {
		struct world_file *f = &w->files[i];

		if (!f->path[0])
			base_strcpy(f->path, sizeof(f->path), path);
		if (!strcmp(f->path, path))
			return f;
	}
	bail("the test uses too many files");
}

static int world_no_file(const char *path, struct err *e)
{
	return err_set(e, -ENOENT, ERR_NOT_FOUND, "no file %s", path);
}

static int world_stat(void *ctx, const char *session, const char *path,
		      struct sandbox_stat *ret, struct err *e)
{
	struct world_file *f = world_file(ctx, path);

	(void)session;
	if (!strcmp(path, "/tmp")) {
		*ret = (struct sandbox_stat){ .kind = SANDBOX_FILE_DIRECTORY,
					      .mode = 01777 };
		return 0;
	}
	if (!f->there)
		return world_no_file(path, e);
	*ret = (struct sandbox_stat){ .kind = SANDBOX_FILE_REGULAR,
				      .mode = f->mode,
				      .size = f->bytes.len };
	return 0;
}

static int world_read(void *ctx, const char *session, const char *path,
		      uint64_t off, void *data, size_t max, size_t *ret_len,
		      struct err *e)
{
	struct world_file *f = world_file(ctx, path);

	(void)session;
	if (!f->there)
		return world_no_file(path, e);
	*ret_len = (size_t)MIN((uint64_t)max,
			       f->bytes.len - MIN(off, f->bytes.len));
	if (*ret_len)
		memcpy(data, f->bytes.p + off, *ret_len);
	return 0;
}

struct world_put {
	struct world *w;
	char path[128];
	struct buf bytes;
};

static int world_begin(void *ctx, const char *session, const char *path,
		       void **ret, struct err *e)
{
	struct world_put *p;

	(void)session;
	if (!strcmp(path, "/readonly"))
		return err_set(e, -EROFS, ERR_CONFLICT, "read-only");
	p = base_alloc(sizeof(*p));
	p->w = ctx;
	base_strcpy(p->path, sizeof(p->path), path);
	atomic_fetch_add(&p->w->begun, 1);
	*ret = p;
	return 0;
}

static int world_write(void *put, uint64_t off, const void *data, size_t len,
		       struct err *e)
{
	struct world_put *p = put;

	if (off != p->bytes.len || len > SANDBOX_CHUNK_MAX)
		return err_set(e, -EINVAL, ERR_INVALID, "a hole");
	buf_put(&p->bytes, data, len);
	if (p->bytes.len > 300000 && !strcmp(p->path, "/full"))
		return err_set(e, -ENOSPC, ERR_NO_SPACE, "no space there");
	return 0;
}

static void world_put_free(struct world_put *p)
{
	buf_done(&p->bytes);
	free(p);
}

static int world_commit(void *put, uint32_t mode, struct err *e)
{
	struct world_put *p = put;
	struct world_file *f = world_file(p->w, p->path);

	(void)e;
	buf_reset(&f->bytes);
	if (p->bytes.len)
		buf_put(&f->bytes, p->bytes.p, p->bytes.len);
	f->mode = mode;
	f->there = true;
	atomic_fetch_add(&p->w->committed, 1);
	world_put_free(p);
	return 0;
}

static void world_abort(void *put)
{
	struct world_put *p = put;

	atomic_fetch_add(&p->w->aborted, 1);
	world_put_free(p);
}

static int world_template_add(void *ctx, const char *digest, const char *actor,
			      struct err *e)
{
	(void)ctx;
	(void)actor;
	if (digest[0] == 'f')
		return err_set(e, -ENOENT, ERR_NOT_FOUND, "no such folder");
	return 0;
}

/* --- the engine ----------------------------------------------------------- */

static void *world_pump(void *ctx)
{
	struct world *w = ctx;
	struct timespec t = { 0, 1000000 };

	while (!atomic_load(&w->stop)) {
		int did = 0;

		pthread_mutex_lock(&w->pumping);
		did = engine_step(w->engine) + fake_run(w->fake);
		pthread_mutex_unlock(&w->pumping);
		if (!did)
			nanosleep(&t, NULL);
	}
	return NULL;
}

static void world_command(struct world *w, struct command *c)
{
	struct reply re;
	struct err e = { 0 };

	base_strcpy(c->actor, sizeof(c->actor), "local:0");
	c->admin = true;
	if (engine_call(w->engine, c, 5000, &re, &e) < 0)
		bail("setting up: %s", e.msg);
}

static void world_tenant(struct world *w, const char *id, char *ret_token)
{
	struct command *c = command_new(COMMAND_TENANT_CREATE);
	struct id key;

	base_strcpy(c->id, sizeof(c->id), id);
	base_strcpy(c->name, sizeof(c->name), "tenant");
	world_command(w, c);
	id_new(&key);
	c = command_new(COMMAND_KEY_CREATE);
	base_strcpy(c->tenant, sizeof(c->tenant), id);
	base_strcpy(c->id, sizeof(c->id), key.s);
	auth_token_new(ret_token, c->digest, key.s, crypt_sha256);
	c->info = auth_scopes_to_json(SCOPE_ALL);
	world_command(w, c);
}

static void world_start_engine(struct world *w)
{
	struct engine_conf conf = { .store = &w->store.port,
				    .views = &w->store.views,
				    .clock = &clock_real,
				    .limits = limits_default,
				    .version = CRYO_VERSION };
	struct command *c;
	struct err e = { 0 };

	memstore_init(&w->store);
	w->fake = fake_new(&clock_real, WORLD_DELAY_NS);
	conf.backend = fake_backend(w->fake);
	w->engine = engine_new(&conf);
	fake_set_sink(w->fake, engine_sink(w->engine));
	if (engine_recover(w->engine, NULL, 0, &e) < 0)
		bail("recovering: %s", e.msg);
	pthread_create(&w->pump, NULL, world_pump, w);
	world_tenant(w, WORLD_TENANT, w->token);
	world_tenant(w, WORLD_OTHER, w->other);
	c = command_new(COMMAND_TEMPLATE_ADD);
	base_strcpy(c->spec.template, sizeof(c->spec.template), "tiny:latest");
	memset(c->digest, 'a', DIGEST_TEXT_LEN);
	world_command(w, c);
}

/* --- the whole ------------------------------------------------------------ */

/* Starts, or after api_stop() starts again, the door on the sockets. */
static void world_open(struct world *w, unsigned max_connections)
{
	struct err e = { 0 };
	struct api_conf conf = {
		.engine = engine_port_of(w->engine),
		.view = w->store.views,
		.sandbox = { .ctx = w,
			     .output = world_output,
			     .stdin_write = world_stdin,
			     .file_stat = world_stat,
			     .file_read = world_read,
			     .file_begin = world_begin,
			     .file_write = world_write,
			     .file_commit = world_commit,
			     .file_abort = world_abort },
		.templates = { .ctx = w, .add = world_template_add },
		.clock = &clock_real,
		.sha256 = crypt_sha256,
		.node = { .version = CRYO_VERSION,
			  .backend = "fake",
			  .accel = "none",
			  .isolation = "none at all",
			  .boot_id = "boot",
			  .data_dir = "/data" },
		.owner_uid = geteuid(),
		.default_tenant = WORLD_TENANT,
		.nr_listeners = 2,
		.max_connections = max_connections,
		.max_file_bytes = 2u << 20,
	};

	conf.listeners[0] = (struct api_listener){ w->unix_fd, true, NULL };
	conf.listeners[1] = (struct api_listener){ w->tcp_fd, false, w->host };
	if (api_start(&w->api, &conf, &e) < 0)
		bail("starting: %s", e.msg);
}

static void world_listen(struct world *w)
{
	struct listen_addr addr;
	struct err e = { 0 };

	snprintf(w->dir, sizeof(w->dir), "/tmp/cryo-api-XXXXXX");
	if (!mkdtemp(w->dir))
		bail("making a folder");
	snprintf(w->socket, sizeof(w->socket), "%s/run", w->dir);
	mkdir(w->socket, 0700);
	snprintf(w->socket, sizeof(w->socket), "%s/run/api.sock", w->dir);
	if (listen_unix(w->socket, &w->unix_fd, &e) < 0 ||
	    listen_addr_parse(&addr, "127.0.0.1:0", &e) < 0 ||
	    listen_tcp(&addr, false, &w->tcp_fd, &e) < 0)
		bail("listening: %s", e.msg);
	w->port = addr.port;
	snprintf(w->host, sizeof(w->host), "127.0.0.1:%u", addr.port);
}

static void world_start(struct world *w, unsigned max_connections)
{
	memset(w, 0, sizeof(*w));
	signal(SIGPIPE, SIG_IGN);
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->pumping, NULL);
	pthread_cond_init(&w->grown, NULL);
	world_start_engine(w);
	world_listen(w);
	world_open(w, max_connections);
}

static void world_stop(struct world *w)
{
	api_stop(w->api);
	atomic_store(&w->stop, true);
	pthread_join(w->pump, NULL);
	engine_free(w->engine);
	fake_free(w->fake);
	memstore_done(&w->store);
	for (int i = 0; i < WORLD_EXECS; i++) {
		buf_done(&w->execs[i].out[0]);
		buf_done(&w->execs[i].out[1]);
		buf_done(&w->execs[i].in);
	}
	for (int i = 0; i < WORLD_FILES; i++)
		buf_done(&w->files[i].bytes);
	close(w->unix_fd);
	close(w->tcp_fd);
	unlink(w->socket);
	w->socket[strlen(w->dir) + 4] = 0; /* DIR/run */
	rmdir(w->socket);
	rmdir(w->dir);
}

/* Until *counter is at least `want`; false after 10 s. */
WORLD_UNUSED static bool world_wait(atomic_int *counter, int want)
{
	for (int i = 0; i < 1000 && atomic_load(counter) < want; i++)
		poll(NULL, 0, 10);
	return atomic_load(counter) >= want;
}

/* --- a client ------------------------------------------------------------- */

static int world_connect_unix(const struct world *w)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", w->socket);
	if (connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0)
		bail("connecting to %s", w->socket);
	return fd;
}

WORLD_UNUSED static int world_connect_tcp(const struct world *w)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(w->port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect(fd, (struct sockaddr *)&in, sizeof(in)) < 0)
		bail("connecting to port %u", w->port);
	return fd;
}

static void world_send(int fd, const void *p, size_t len)
{
	/* a server that closes early is part of some tests */
	(void)!base_write_all(fd, p, len);
}

/* Reads until the other side closes, `until` is there, or 10 s pass. */
static void world_receive(int fd, struct buf *b, const char *until)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (poll(&p, 1, 10000) > 0) {
		ssize_t n = read(fd, buf_reserve(b, 65536), 65536);

		if (n <= 0)
			return;
		b->len += (size_t)n;
		if (until && strstr(buf_cstr(b), until))
			return;
	}
	printf("# nothing came for 10 s\n");
}

struct answer {
	int status;
	struct buf raw; /* as it came */
	struct buf body; /* chunks put together */
	bool whole; /* the body has its proper end */
};

static void answer_done(struct answer *a)
{
	buf_done(&a->raw);
	buf_done(&a->body);
	*a = (struct answer){ 0 };
}

/* Value of a header, or NULL; in a static buffer per thread. */
static const char *answer_header(struct answer *a, const char *name)
{
	static _Thread_local char value[512];
	const char *p = buf_cstr(&a->raw), *end = strstr(p, "\r\n\r\n");
	size_t len = strlen(name);

	for (p = strstr(p, "\r\n"); p && p < end; p = strstr(p + 2, "\r\n")) {
		if (strncasecmp(p + 2, name, len) || p[2 + len] != ':')
			continue;
		snprintf(value, sizeof(value), "%.*s",
			 (int)strcspn(p + 4 + len, "\r"), p + 4 + len);
		return value;
	}
	return NULL;
}

static void answer_unchunk(struct answer *a, const char *p, const char *end)
{
	while (p < end) {
		char *at;
		unsigned long n = strtoul(p, &at, 16);

		if (at == p || at + 2 > end)
			return;
		if (!n) {
			a->whole = true;
			return;
		}
		p = at + 2;
		if (p + n > end)
			n = (unsigned long)(end - p);
		buf_put(&a->body, p, n);
		p += n + 2;
	}
}

static void answer_parse(struct answer *a)
{
	const char *text = buf_cstr(&a->raw), *end = text + a->raw.len;
	const char *body = strstr(text, "\r\n\r\n"), *v;

	a->status = 0;
	buf_reset(&a->body);
	a->whole = false;
	if (!body || sscanf(text, "HTTP/1.1 %d", &a->status) != 1)
		return;
	body += 4;
	v = answer_header(a, "Transfer-Encoding");
	if (v && !strcmp(v, "chunked")) {
		answer_unchunk(a, body, end);
		return;
	}
	if (body < end)
		buf_put(&a->body, body, (size_t)(end - body));
	v = answer_header(a, "Content-Length");
	a->whole = v && strtoul(v, NULL, 10) == a->body.len;
}

/* One request on a connection of its own; `head` are further header lines. */
static void world_request(int fd, struct answer *a, const char *method,
			  const char *target, const char *head,
			  const void *body, size_t len)
{
	SCOPED(buf_done) struct buf b = { 0 };

	answer_done(a);
	buf_printf(&b, "%s %s HTTP/1.1\r\nConnection: close\r\n%s", method,
		   target, head ? head : "Host: localhost\r\n");
	if (body)
		buf_printf(&b, "Content-Length: %zu\r\n", len);
	buf_put_str(&b, "\r\n");
	if (len)
		buf_put(&b, body, len);
	world_send(fd, b.p, b.len);
	world_receive(fd, &a->raw, NULL);
	close(fd);
	answer_parse(a);
}

/* As local administration, with a JSON body or NULL. */
WORLD_UNUSED static int world_do(struct world *w, struct answer *a,
				 const char *method, const char *target,
				 const char *json)
{
	world_request(world_connect_unix(w), a, method, target,
		      json ? "Host: localhost\r\nContent-Type: "
			     "application/json\r\n"
			   : NULL,
		      json, json ? strlen(json) : 0);
	return a->status;
}

/* With an API key by TCP. */
WORLD_UNUSED static int world_do_key(struct world *w, struct answer *a,
				     const char *token, const char *method,
				     const char *target, const char *json)
{
	SCOPED(buf_done) struct buf head = { 0 };

	buf_printf(&head, "Host: %s\r\n", w->host);
	if (token)
		buf_printf(&head, "Authorization: Bearer %s\r\n", token);
	if (json)
		buf_put_str(&head, "Content-Type: application/json\r\n");
	world_request(world_connect_tcp(w), a, method, target, buf_cstr(&head),
		      json, json ? strlen(json) : 0);
	return a->status;
}

WORLD_UNUSED static long long world_nr(const char *s)
{
	return strtoll(s + (*s == '['), NULL, 10); /* "[3]": so many items */
}

/* Member of the answer's document by a path of keys "a.b"; buffers per thread. */
WORLD_UNUSED static const char *answer_str(struct answer *a, const char *path)
{
	static _Thread_local char text[8][512];
	static _Thread_local int nr;
	SCOPED_JSON json_t *j = NULL;
	const json_t *at;
	char *out = text[nr++ % 8];
	struct err e;

	if (json_parse(&j, a->body.p, a->body.len, &e) < 0)
		return "(not JSON)";
	at = j;
	while (at && *path) {
		char key[64];
		size_t n = strcspn(path, ".");

		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		at = json_is_array(at)
			     ? json_array_get(at, strtoul(key, NULL, 10))
			     : json_object_get(at, key);
		path += n + (path[n] == '.');
	}
	if (json_is_string(at))
		snprintf(out, 512, "%s", json_string_value(at));
	else if (json_is_integer(at))
		snprintf(out, 512, "%lld", (long long)json_integer_value(at));
	else if (json_is_boolean(at))
		snprintf(out, 512, "%s", json_is_true(at) ? "true" : "false");
	else if (json_is_array(at))
		snprintf(out, 512, "[%zu]", json_array_size(at));
	else
		snprintf(out, 512, "(none)");
	return out;
}

#endif
