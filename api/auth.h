/*
 * auth: who asks, and what they may. Two ways in: the unix socket (the
 * kernel says which uid it is) and an API key (a bearer token of which only
 * the hash is kept). Scopes are words in a key's row.
 */
#ifndef API_AUTH_H
#define API_AUTH_H

#include "core/event.h"
#include "core/rows.h"

enum scope {
	SCOPE_NONE = 0, /* no one has to be known */
	SCOPE_READ = 1, /* look at sessions, points, events */
	SCOPE_WRITE = 2, /* create, pause, rewind, fork, destroy */
	SCOPE_EXEC = 4, /* commands, their output, files */
	SCOPE_ADMIN = 8, /* keys, templates */
	SCOPE_ALL = 15,
};

struct principal {
	bool local; /* local administration: any tenant */
	unsigned scopes;
	char tenant[ID_LEN + 1];
	char key[ID_LEN + 1]; /* id of the API key, "" if local */
	char actor[EVENT_ACTOR_LEN]; /* "key:ID", "local:UID" */
};

#define AUTH_SECRET_LEN 64 /* hex digits of 32 random bytes */
#define AUTH_TOKEN_LEN (5 + ID_LEN + 1 + AUTH_SECRET_LEN) /* cryo_ID_HEX */

typedef void (*auth_hash_fn)(uint8_t ret[32], const void *p, size_t len);

/* A peer of the unix socket: root, ourselves, or `owner`; else FORBIDDEN. */
int auth_local(struct principal *ret, uid_t uid, uid_t owner,
	       const char *tenant, struct err *e);

/*
 * The value of an Authorization header (may be NULL) against the key rows.
 * UNAUTHORIZED for anything but a right key; the text does not tell an
 * unknown key from a wrong one.
 */
int auth_bearer(struct principal *ret, const struct reader *r,
		const char *header, auth_hash_fn hash, struct err *e);

/* A new token for key `id`, and the hash of its secret (hex) to be kept. */
void auth_token_new(char ret_token[AUTH_TOKEN_LEN + 1],
		    char ret_hash[DIGEST_TEXT_LEN + 1], const char *id,
		    auth_hash_fn hash);

/* Scopes as a JSON array of words and back; INVALID names a bad word. */
json_t *auth_scopes_to_json(unsigned scopes);
int auth_scopes_parse(unsigned *ret, const json_t *list, struct err *e);

#endif
