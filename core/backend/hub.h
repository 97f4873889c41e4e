/*
 * hub: cryod's links to its cryo-vms: one thread receives for all of them;
 * any thread may call one and wait for its answer. A link ends when its
 * cryo-vm does, or breaks the protocol; calls under way then end with -EPIPE.
 */
#ifndef CORE_BACKEND_HUB_H
#define CORE_BACKEND_HUB_H

#include "core/wire.h"

struct hub;
struct hub_link;

struct hub_ops {
	/*
	 * A request or note of a cryo-vm, on the hub's thread; must not block
	 * nor call hub_call(). Answer by hub_answer() now or later, from any
	 * thread, if m->call isn't 0. Owns the message's descriptors only if
	 * it takes them.
	 */
	void (*request)(void *ctx, struct hub_link *k, struct wire_msg *m);
	/* The link has ended; on the hub's thread, once per link. */
	void (*down)(void *ctx, struct hub_link *k);
};

int hub_new(struct hub **ret, const struct hub_ops *ops, void *ctx,
	    struct err *e);

/*
 * Ends the hub's thread and all links, silently: calls under way end with
 * -EPIPE, and links added later are down. Not from the hub's thread.
 */
void hub_stop(struct hub *h);
/* Stops; the caller has seen to it that nobody uses the hub any more. */
void hub_free(struct hub *h);

/*
 * Adds a connected socket (taken over). The caller gets one reference; the
 * hub keeps one until the link is down. `tag` is the caller's.
 */
struct hub_link *hub_add(struct hub *h, int fd, const char *session,
			 uint32_t epoch, uint32_t slot, void *tag);
struct hub_link *hub_ref(struct hub_link *k);
void hub_unref(struct hub_link *k); /* NULL is fine */
void hub_close(struct hub_link *k); /* ends it; down() follows */

const char *hub_session(const struct hub_link *k);
uint32_t hub_epoch(const struct hub_link *k);
/* An adopted sandbox tells its epoch in its first answer. */
void hub_set_epoch(struct hub_link *k, uint32_t epoch);
uint32_t hub_slot(const struct hub_link *k);
void *hub_tag(const struct hub_link *k);
bool hub_is_up(struct hub_link *k);

struct hub_reply {
	uint8_t *body; /* owned */
	size_t len;
	int fds[WIRE_FDS_MAX], nr_fds; /* owned; -1 once taken */
};

void hub_reply_done(struct hub_reply *r);

/*
 * One request and its answer. Any thread but the hub's. The answer's status
 * if negative (e has its text), -EPIPE: link down, -ETIMEDOUT. `ret` may be
 * NULL; `want` bytes of body must be there.
 */
int hub_call(struct hub_link *k, enum wire_type type, const void *fixed,
	     size_t len, const void *tail, size_t tail_len, const int *fds,
	     int nr_fds, int timeout_ms, size_t want, struct hub_reply *ret,
	     struct err *e);

/*
 * Answers request number `call`: at once, or when the socket has room; never
 * blocks. Any thread. Nothing happens if the link is down.
 */
void hub_answer(struct hub_link *k, enum wire_type type, uint64_t call,
		int status, const void *fixed, size_t len, const int *fds,
		int nr_fds);

#endif
