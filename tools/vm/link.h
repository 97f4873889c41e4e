/*
 * link: the `cryo-vm`'s end of its socket to `cryod` (core/wire.h). The
 * daemon may go and come back at any time: it connects to our listening
 * socket, the newest connection counts, and HELLO opens it.
 *
 * Everything is for the loop's thread but link_ask(), which is for others.
 */
#ifndef TOOLS_VM_LINK_H
#define TOOLS_VM_LINK_H

#include "core/backend/loop.h"
#include "core/wire.h"

struct link;

struct link_ops {
	/* A request of the daemon; reply by link_reply(). Owns its fds. */
	void (*request)(void *ctx, struct wire_msg *m);
	void (*up)(void *ctx); /* HELLO was answered: reports may go */
	void (*down)(void *ctx);
};

/* Takes over the listening socket. `owner`: the daemon's uid. */
int link_new(struct link **ret, struct loop *l, int listen_fd, uid_t owner,
	     const struct link_ops *ops, void *ctx, struct err *e);
bool link_is_up(const struct link *k);

/* Where an answer goes: only to the connection that asked. */
struct link_from {
	uint64_t call, connection;
	enum wire_type type;
};

struct link_from link_from(const struct link *k, const struct wire_msg *m);
/* Is that connection still there? An answer to it would else get lost. */
bool link_is_from(const struct link *k, struct link_from f);
/* Also from other threads. */
void link_reply(struct link *k, struct link_from to, const void *fixed,
		size_t len, const void *tail, size_t tail_len, const int *fds,
		int nr_fds);
void link_reply_err(struct link *k, struct link_from to, int status,
		    const struct err *e);
/* The answer to HELLO, after which the link counts as up. */
void link_greet(struct link *k, struct link_from to, const void *fixed,
		size_t len, const void *tail, size_t tail_len);

/* A note without reply; nothing happens while the daemon is away. */
void link_note(struct link *k, enum wire_type type, const void *fixed,
	       size_t len);

/*
 * Asks the daemon and goes on; fn gets the reply (status, body until it
 * returns), or m == NULL when the daemon is away or goes meanwhile.
 */
typedef void (*link_fn)(void *ctx, struct wire_msg *m);
void link_ask_later(struct link *k, enum wire_type type, const void *fixed,
		    size_t len, link_fn fn, void *ctx);

/*
 * Asks and waits; not from the loop's thread. While the daemon is away it
 * waits and asks again when it is back, up to `timeout_ms` in all (-1: for
 * ever). The reply's status if negative (with its text in e), -ETIMEDOUT.
 */
int link_ask(struct link *k, enum wire_type type, const void *fixed, size_t len,
	     void *ret_body, size_t body_len, int *ret_fds, int nr_fds,
	     int timeout_ms, struct err *e);

#endif
