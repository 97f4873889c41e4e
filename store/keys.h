/*
 * keys: who can read what.
 *
 *   provider key (a file) -> node key
 *                         -> tenant key -> session data key -> pack keys, ...
 *
 * Wrapped keys are small files below DATA/keys/, outside the database, so
 * that destroying one is an overwrite and an unlink. The format and its test
 * vectors stand in docs/adr/0021-key-files.md.
 *
 * Names of tenants and sessions: 2 to 20 of [a-z0-9-]; others are -EINVAL;
 * so is the tenant "node", the name for the node's own in the files.
 * All functions may be called from any thread; those that read a file that
 * is not in the cache block on the disk for a moment, those that make or
 * destroy one sync it. Unwrapped tenant and session keys stay in memory for
 * at most KEYS_CACHE_S seconds; callers wipe what they were given.
 */
#ifndef STORE_KEYS_H
#define STORE_KEYS_H

#include "core/clock.h"
#include "core/err.h"
#include "core/id.h"
#include "store/crypt.h"

#define KEYS_CACHE_S 60
#define KEYS_PACK_ID_LEN 16
#define KEYS_GRANTS_MAX 16384 /* packs that one session may be granted */

struct keys;

/* The right to read one pack of another session. */
struct keys_grant {
	uint8_t pack[KEYS_PACK_ID_LEN];
	uint8_t key[CRYPT_KEY_LEN];
};

/*
 * Opens DATA/keys below the folder `data`; provider_path NULL means
 * DATA/keys/provider.key. A missing provider key is made only at the first
 * start, when nothing is sealed under one yet; else -ENOKEY (its loss is the
 * loss of all data, so no new one is put in its place). -EACCES if others may
 * read it. Call it under the data folder's lock unless read_only.
 * read_only makes nothing at all. The clock is kept by reference.
 */
int keys_open(struct keys **ret, const char *data, const char *provider_path,
	      bool read_only, const struct clock *clock, struct err *e);
void keys_close(struct keys *k); /* wipes; NULL is fine */
void keys_close_p(struct keys **k);

/* Wipes what is older than KEYS_CACHE_S; call it from a timer. */
void keys_expire(struct keys *k);
void keys_forget_all(struct keys *k);

/* A key derived from the node's for one purpose ("cryo-row-v1", ...). */
void keys_node_derive(const struct keys *k, const char *label, const void *extra,
		      size_t extra_len, uint8_t *ret, size_t ret_len);

/* Makes the tenant's key unless it exists; durable on return. */
int keys_tenant_create(struct keys *k, const char *tenant, struct err *e);
/* -ENOENT without touching e: no such key (never made, or destroyed) */
int keys_tenant_get(struct keys *k, const char *tenant,
		    uint8_t ret[CRYPT_KEY_LEN], struct err *e);

/*
 * Makes the session's data key under its tenant's (made too if missing;
 * "": the node's own sessions); durable on return. Kept as it is if it exists.
 * The log calls this for the first event of a session; calling it before, off
 * the engine's thread, saves the engine the wait.
 */
int keys_session_create(struct keys *k, const char *tenant, const char *session,
			struct err *e);
/* -ENOENT without touching e: never made, or destroyed. */
int keys_session_get(struct keys *k, const char *session,
		     uint8_t ret[CRYPT_KEY_LEN], struct err *e);
/* The tenant whose key wraps the session's; errors as above. */
int keys_session_tenant(struct keys *k, const char *session,
			char ret_tenant[ID_LEN + 1], struct err *e);

/*
 * Overwrites and unlinks the session's key and its grants, durable on
 * return; from then on nothing that only this key sealed can be read.
 * Children keep theirs. Repeating it is fine.
 */
int keys_session_destroy(struct keys *k, const char *session, struct err *e);

/* HKDF of the session's data key: overlay keys and the like. */
int keys_session_derive(struct keys *k, const char *session, const char *label,
			const void *extra, size_t extra_len, uint8_t *ret,
			size_t ret_len, struct err *e);

/*
 * Lets `session` read packs of others for as long as it lives, also after
 * their sessions' keys are destroyed. Merged with what it has (same pack:
 * kept once); durable on return. -E2BIG over KEYS_GRANTS_MAX.
 */
int keys_grant_add(struct keys *k, const char *session,
		   const struct keys_grant *grants, size_t nr, struct err *e);

/*
 * The key of a pack, for `session`. `own` says that the session wrote it: the
 * caller knows because the file lies in the session's own pack folder, and
 * never from what a manifest or a cryo-vm claims. Own: HKDF(session key,
 * "cryo-pack-v1", pack id). Not own: from its grants, else -ENOENT with `e`.
 * An own key for a foreign pack opens nothing: pack keys derive from the
 * writer's data key.
 */
int keys_pack_key(struct keys *k, const char *session,
		  const uint8_t pack[KEYS_PACK_ID_LEN], bool own,
		  uint8_t ret[CRYPT_KEY_LEN], struct err *e);

#endif
