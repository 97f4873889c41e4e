/*
 * client: requests to the daemon through libcurl.
 *
 * How it works: one easy handle per client, reused so that connections are
 * kept. A reply of 2xx goes to the caller; anything else is gathered (within
 * CLIENT_REPLY_MAX) and turned back into the error that the server had.
 *
 * Invariants: keys are only ever sent to CRYO_URL, never followed through a
 * redirect; a request that may have happened is repeated only with the same
 * Idempotency-Key; memory for a reply is bounded.
 */
#include "tools/cryo/client.h"

#include "api/problem.h"
#include "core/id.h"

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/un.h>
#include <time.h>

#define CLIENT_DATA_DEFAULT "/var/lib/cryo"
#define CLIENT_REPLY_MAX (64u << 20)
#define CLIENT_CONNECT_MS 10000L
#define CLIENT_CALL_S 150L /* beyond the longest wait of the server */
#define CLIENT_SILENT_S 45L /* three missed pings of a stream */

struct client {
	CURL *curl;
	char *base; /* "http://localhost" or CRYO_URL */
	char *socket; /* path, or NULL */
	char *auth; /* header line, or NULL */
	char *where; /* for errors */
	struct curl_slist *headers;
	atomic_bool cancel;

	/* the transfer at hand */
	client_fn fn;
	void *ctx;
	struct buf body; /* reply without fn, or an error's document */
	int stopped; /* what fn said */
	const uint8_t *up;
	size_t up_len;
	int up_fd;
	uint64_t up_left;
};

/* --- finding the daemon --------------------------------------------------- */

static int client_init_unix(struct client *c, const char *data, struct err *e)
{
	struct sockaddr_un un;

	c->socket = base_printf("%s/run/api.sock", data);
	if (strlen(c->socket) >= sizeof(un.sun_path))
		return err_set(e, -ENAMETOOLONG, ERR_INVALID,
			       "the socket path %.80s... is longer than a "
			       "unix socket may be; use a shorter --data",
			       c->socket);
	c->base = base_strdup("http://localhost");
	c->where = base_printf("%s", c->socket);
	return 0;
}

static int client_init_url(struct client *c, const char *url, struct err *e)
{
	const char *key = getenv("CRYO_KEY");
	size_t len = strlen(url);

	if (strncmp(url, "http://", 7) && strncmp(url, "https://", 8))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "CRYO_URL is \"%.80s\"; it must begin with "
			       "http:// or https://",
			       url);
	if (!key || !*key)
		return err_set(e, -EINVAL, ERR_UNAUTHORIZED,
			       "CRYO_URL is set but CRYO_KEY is not; make a "
			       "key with `cryo key create` on the host");
	if (strpbrk(key, "\r\n"))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "CRYO_KEY has a line break in it");
	c->base = base_strdup(url);
	while (len && c->base[len - 1] == '/')
		c->base[--len] = 0;
	c->auth = base_printf("Authorization: Bearer %s", key);
	c->where = base_strdup(c->base);
	return 0;
}

static int client_init(struct client *c, const char *data, struct err *e)
{
	const char *url = getenv("CRYO_URL"), *env = getenv("CRYO_DATA");

	if (data)
		return client_init_unix(c, data, e);
	if (url && *url)
		return client_init_url(c, url, e);
	if (env && *env)
		return client_init_unix(c, env, e);
	return client_init_unix(c, CLIENT_DATA_DEFAULT, e);
}

int client_new(struct client **ret, const char *data, struct err *e)
{
	struct client *c = base_alloc(sizeof(*c));
	int r;

	c->up_fd = -1;
	r = client_init(c, data, e);
	if (r == 0) {
		c->curl = curl_easy_init();
		if (!c->curl)
			r = err_set(e, -ENOMEM, ERR_INTERNAL,
				    "libcurl could not be started");
	}
	if (r < 0) {
		client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct client *client_clone(const struct client *c)
{
	struct client *n = base_alloc(sizeof(*n));

	n->up_fd = -1;
	n->base = base_strdup(c->base);
	n->where = base_strdup(c->where);
	n->socket = c->socket ? base_strdup(c->socket) : NULL;
	n->auth = c->auth ? base_strdup(c->auth) : NULL;
	n->curl = curl_easy_init();
	if (!n->curl)
		NEVER("libcurl has no memory for a second handle");
	return n;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	curl_slist_free_all(c->headers);
	if (c->curl)
		curl_easy_cleanup(c->curl);
	if (c->auth)
		base_wipe(c->auth, strlen(c->auth));
	free(c->auth);
	free(c->base);
	free(c->socket);
	free(c->where);
	buf_done(&c->body);
	free(c);
}

/* --- paths ---------------------------------------------------------------- */

static bool client_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || strchr("-._~", c);
}

void client_segment(struct buf *path, const char *value)
{
	for (; *value; value++) {
		if (client_plain(*value))
			buf_put_u8(path, (uint8_t)*value);
		else
			buf_printf(path, "%%%02X", (unsigned char)*value);
	}
}

void client_query(struct buf *path, const char *name, const char *value)
{
	if (!value)
		return;
	buf_put_u8(path,
		   path->len && memchr(path->p, '?', path->len) ? '&' : '?');
	buf_printf(path, "%s=", name);
	client_segment(path, value);
}

/* --- one transfer --------------------------------------------------------- */

static size_t client_on_body(char *p, size_t size, size_t nr, void *ctx)
{
	struct client *c = ctx;
	long status = 0;

	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	if (c->fn && status >= 200 && status < 300) {
		c->stopped = c->fn(c->ctx, p, size * nr);
		return c->stopped ? 0 : size * nr;
	}
	if (c->body.len + size * nr > CLIENT_REPLY_MAX)
		return 0;
	buf_put(&c->body, p, size * nr);
	return size * nr;
}

static size_t client_on_upload(char *p, size_t size, size_t nr, void *ctx)
{
	struct client *c = ctx;
	size_t max = size * nr;
	ssize_t n;

	if (c->up_fd < 0) {
		max = MIN(max, c->up_len);
		if (max)
			memcpy(p, c->up, max);
		c->up += max;
		c->up_len -= max;
		return max;
	}
	max = (size_t)MIN((uint64_t)max, c->up_left);
	n = read(c->up_fd, p, max);
	if (n < 0 || (n == 0 && max))
		return CURL_READFUNC_ABORT; /* shorter than announced */
	c->up_left -= (uint64_t)n;
	return (size_t)n;
}

static int client_on_progress(void *ctx, curl_off_t a, curl_off_t b,
			      curl_off_t x, curl_off_t y)
{
	struct client *c = ctx;

	(void)a;
	(void)b;
	(void)x;
	(void)y;
	return atomic_load(&c->cancel);
}

static void client_header(struct client *c, const char *name, const char *value)
{
	char *line;

	if (!value)
		return;
	line = base_printf("%s: %s", name, value);
	c->headers = curl_slist_append(c->headers, line);
	free(line);
}

static void client_prepare(struct client *c, const char *method, const char *path)
{
	char *url = base_printf("%s%s", c->base, path);

	curl_easy_reset(c->curl);
	curl_slist_free_all(c->headers);
	c->headers = NULL;
	buf_reset(&c->body);
	c->fn = NULL;
	c->stopped = 0;
	curl_easy_setopt(c->curl, CURLOPT_URL, url);
	curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->curl, CURLOPT_NOPROXY,
			 c->socket ? "*" : "localhost,127.0.0.1,::1");
	curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT_MS, CLIENT_CONNECT_MS);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, client_on_body);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(c->curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(c->curl, CURLOPT_XFERINFOFUNCTION, client_on_progress);
	curl_easy_setopt(c->curl, CURLOPT_XFERINFODATA, c);
	if (c->socket)
		curl_easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, c->socket);
	if (c->auth)
		c->headers = curl_slist_append(c->headers, c->auth);
	free(url);
}

static void client_prepare_upload(struct client *c, uint64_t len)
{
	curl_easy_setopt(c->curl, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(c->curl, CURLOPT_READFUNCTION, client_on_upload);
	curl_easy_setopt(c->curl, CURLOPT_READDATA, c);
	curl_easy_setopt(c->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)len);
}

/* Whether nothing of the request can have reached the daemon. */
static bool client_unreached(CURLcode code)
{
	return code == CURLE_COULDNT_CONNECT ||
	       code == CURLE_COULDNT_RESOLVE_HOST;
}

static int client_failed(const struct client *c, CURLcode code, struct err *e)
{
	if (client_unreached(code))
		return err_set(e, -ENOTCONN, ERR_BUSY,
			       "no daemon answers at %s; start one with `cryo "
			       "up`, or name its data folder by --data or "
			       "CRYO_DATA",
			       c->where);
	if (code == CURLE_OPERATION_TIMEDOUT)
		return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
			       "the daemon at %s did not answer in time",
			       c->where);
	return err_set(e, -EPIPE, ERR_BUSY,
		       "the connection to the daemon at %s was lost: %s",
		       c->where, curl_easy_strerror(code));
}

/* Runs what was prepared; *ret_status 0 if there was no whole answer. */
static CURLcode client_perform(struct client *c, unsigned *ret_status)
{
	long status = 0;
	CURLcode code;

	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
	code = curl_easy_perform(c->curl);
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	*ret_status = (unsigned)status;
	return code;
}

static int client_answer(struct client *c, unsigned status, json_t **ret,
			 struct err *e)
{
	if (status < 200 || status >= 300)
		return problem_read(c->body.p, c->body.len, status, e);
	if (!ret)
		return 0;
	*ret = NULL;
	if (!c->body.len)
		return 0;
	if (json_parse(ret, c->body.p, c->body.len, e) < 0)
		return err_wrap(e, -EPROTO, "the answer of %s", c->where);
	return 0;
}

static int64_t client_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool client_retry_wait(struct client_retry *r)
{
	int64_t now = client_now_ms();
	int ms = MIN(100 << MIN(r->tries, 4), 1000);
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	if (!r->until_ms)
		r->until_ms = now + CLIENT_RETRY_S * 1000;
	if (now >= r->until_ms)
		return false;
	r->tries++;
	nanosleep(&t, NULL);
	return true;
}

void client_cancel(struct client *c)
{
	atomic_store(&c->cancel, true);
}

/* --- kinds of requests ---------------------------------------------------- */

int client_call(struct client *c, const char *method, const char *path,
		const json_t *body, json_t **ret, struct err *e)
{
	SCOPED(buf_done) struct buf text = { 0 };
	struct client_retry retry = { 0 };
	struct id key;
	bool sent = false;

	id_new(&key);
	if (body && json_canonical(&text, body) < 0)
		NEVER("a request with a float in it");
	for (;;) {
		unsigned status;
		CURLcode code;

		client_prepare(c, method, path);
		curl_easy_setopt(c->curl, CURLOPT_TIMEOUT, CLIENT_CALL_S);
		if (strcmp(method, "GET"))
			client_header(c, "Idempotency-Key", key.s);
		if (body) {
			client_header(c, "Content-Type", "application/json");
			curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE,
					 (curl_off_t)text.len);
			curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS,
					 buf_cstr(&text));
		}
		code = client_perform(c, &status);
		if (code == CURLE_OK)
			return client_answer(c, status, ret, e);
		sent |= !client_unreached(code);
		if (!sent || !client_retry_wait(&retry))
			return client_failed(c, code, e);
	}
}

int client_stream(struct client *c, const char *path, const char *last_id,
		  client_fn fn, void *ctx, bool *away, struct err *e)
{
	unsigned status;
	CURLcode code;

	client_prepare(c, "GET", path);
	curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_TIME, CLIENT_SILENT_S);
	client_header(c, "Last-Event-ID", last_id && *last_id ? last_id : NULL);
	c->fn = fn;
	c->ctx = ctx;
	code = client_perform(c, &status);
	if (away)
		*away = false;
	if (c->stopped || atomic_load(&c->cancel))
		return CLIENT_STOPPED;
	if (code == CURLE_OK && status >= 200 && status < 300)
		return CLIENT_ENDED;
	if (code == CURLE_OK) {
		if (away)
			*away = status == 503;
		return client_answer(c, status, NULL, e);
	}
	if (!client_unreached(code) && status >= 200 && status < 300)
		return CLIENT_CUT;
	if (away)
		*away = true;
	return client_failed(c, code, e);
}

int client_send(struct client *c, const char *method, const char *path,
		const void *p, size_t len, json_t **ret, bool *away,
		struct err *e)
{
	unsigned status;
	CURLcode code;

	client_prepare(c, method, path);
	client_prepare_upload(c, len);
	curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(c->curl, CURLOPT_TIMEOUT, CLIENT_CALL_S);
	client_header(c, "Content-Type", "application/octet-stream");
	c->up = p;
	c->up_len = len;
	c->up_fd = -1;
	code = client_perform(c, &status);
	*away = code != CURLE_OK || status == 503;
	if (code != CURLE_OK)
		return client_failed(c, code, e);
	return client_answer(c, status, ret, e);
}

int client_upload(struct client *c, const char *path, int fd, uint64_t size,
		  json_t **ret, struct err *e)
{
	unsigned status;
	CURLcode code;

	client_prepare(c, "PUT", path);
	client_prepare_upload(c, size);
	client_header(c, "Content-Type", "application/octet-stream");
	c->up_fd = fd;
	c->up_left = size;
	code = client_perform(c, &status);
	c->up_fd = -1;
	if (code == CURLE_ABORTED_BY_CALLBACK)
		return err_set(e, -EIO, ERR_INVALID,
			       "the file became shorter while it was sent; "
			       "nothing was written");
	if (code != CURLE_OK && status < 400)
		return client_failed(c, code, e);
	return client_answer(c, status, ret, e);
}
