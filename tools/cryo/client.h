/*
 * client: speaks to the daemon, over its unix socket or TCP; the only file
 * that knows libcurl. A client serves one thread; make a clone for another.
 */
#ifndef TOOLS_CRYO_CLIENT_H
#define TOOLS_CRYO_CLIENT_H

#include "core/json.h"

#define CLIENT_RETRY_S 60 /* how long a daemon may be away */

struct client;

/*
 * Finds the daemon: `data` (--data) if given, else CRYO_URL with CRYO_KEY,
 * else CRYO_DATA, else the default data folder. Connects to nothing yet.
 */
int client_new(struct client **ret, const char *data, struct err *e);
struct client *client_clone(const struct client *c);
void client_free(struct client *c);
static inline void client_free_p(struct client **c)
{
	client_free(*c);
}
#define SCOPED_CLIENT SCOPED(client_free_p)

/* Appends "?name=value" or "&name=value", escaped; NULL value: nothing. */
void client_query(struct buf *path, const char *name, const char *value);
/* Appends one path segment, escaped. */
void client_segment(struct buf *path, const char *value);

/*
 * One request with a JSON answer. `body` may be NULL. A POST or DELETE gets
 * an Idempotency-Key and, when the connection is lost in the middle, is
 * sent again for up to CLIENT_RETRY_S: it still happens once. No daemon at
 * all is an error at once. 0: *ret is the document (NULL if none; owned);
 * else -errno and `e` is the server's own problem.
 */
int client_call(struct client *c, const char *method, const char *path,
		const json_t *body, json_t **ret, struct err *e);

/* Gets bytes of the answer as they come; nonzero ends the transfer. */
typedef int (*client_fn)(void *ctx, const void *p, size_t len);

enum client_end {
	CLIENT_ENDED, /* the server ended the body properly */
	CLIENT_CUT, /* lost on the way: reconnect from the last position */
	CLIENT_STOPPED /* fn said so */
};

/*
 * GET of a body without end. `last_id` (or NULL) goes out as Last-Event-ID.
 * >= 0: how it ended; -errno: refused, or no daemon (then also CLIENT_CUT
 * semantics apply if `away` is not NULL: *away is set when only the
 * connection failed).
 */
int client_stream(struct client *c, const char *path, const char *last_id,
		  client_fn fn, void *ctx, bool *away, struct err *e);

/* Sends `len` raw bytes by `method`; the answer as by client_call(). */
int client_send(struct client *c, const char *method, const char *path,
		const void *p, size_t len, json_t **ret, bool *away,
		struct err *e);

/* PUTs `size` bytes read from `fd`. */
int client_upload(struct client *c, const char *path, int fd, uint64_t size,
		  json_t **ret, struct err *e);

/* Waits `tries`-th time before a reconnect; false once the time is up. */
struct client_retry {
	int64_t until_ms; /* zeroed at first */
	int tries;
};
bool client_retry_wait(struct client_retry *r);

/* Asks another thread's transfer of this client to end soon. */
void client_cancel(struct client *c);

#endif
