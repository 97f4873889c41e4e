/*
 * keyfile: wrapped keys and grants as bytes and as files. Format:
 * docs/adr/0021-key-files.md. The hierarchy and the cache are in keys.h.
 */
#ifndef STORE_KEYFILE_H
#define STORE_KEYFILE_H

#include "core/buf.h"
#include "core/err.h"
#include "core/id.h"
#include "store/crypt.h"
#include "store/keys.h"

#define KEYFILE_LEN 116
#define KEYFILE_HEAD_LEN 56
#define KEYFILE_GRANTS_HEAD_LEN 36
#define KEYFILE_GRANTS_LEN_MAX                       \
	(KEYFILE_GRANTS_HEAD_LEN + CRYPT_BOX_EXTRA + \
	 KEYS_GRANTS_MAX * (KEYS_PACK_ID_LEN + CRYPT_KEY_LEN))

enum keyfile_kind {
	KEYFILE_NODE = 1,
	KEYFILE_TENANT = 2,
	KEYFILE_SESSION = 3,
};

/* Whose key a file holds. */
struct keyfile_name {
	enum keyfile_kind kind;
	char id[ID_LEN + 1]; /* "" for the node */
	char parent[ID_LEN + 1]; /* tenant of a session, else "" */
};

void keyfile_wrap(uint8_t ret[KEYFILE_LEN], const struct keyfile_name *name,
		  const uint8_t parent_key[CRYPT_KEY_LEN],
		  const uint8_t key[CRYPT_KEY_LEN]);
/* Header only, no key needed. -EBADMSG, -EPROTONOSUPPORT (newer). */
int keyfile_decode(struct keyfile_name *ret, const void *p, size_t len,
		   struct err *e);
/* -EBADMSG: not under this parent key, or forged. `p` was decoded. */
int keyfile_unwrap(uint8_t ret[CRYPT_KEY_LEN], const uint8_t p[KEYFILE_LEN],
		   const uint8_t parent_key[CRYPT_KEY_LEN], struct err *e);

void keyfile_grants_seal(struct buf *b, const char *session,
			 const uint8_t key[CRYPT_KEY_LEN],
			 const struct keys_grant *grants, size_t nr);
/* Appends structs keys_grant to `ret`; the caller wipes it. -EBADMSG. */
int keyfile_grants_open(struct buf *ret, const char *session,
			const uint8_t key[CRYPT_KEY_LEN], const void *p,
			size_t len, struct err *e);

/*
 * Writes `path` by way of a file in folder `tmp` (same file system), durable
 * on return. Without `replace`, an existing file stays: 1.
 */
int keyfile_write(const char *path, const char *tmp, const void *p, size_t len,
		  bool replace, struct err *e);
/* Appends the file; -ENOENT with `e` untouched, -EFBIG over max. */
int keyfile_read(const char *path, size_t max, struct buf *ret, struct err *e);
/* The name goes, then the bytes; durable. No such file: 0. */
int keyfile_destroy(const char *path, const char *tmp, struct err *e);
/* Overwrites and unlinks all that a crash left in `tmp`. */
int keyfile_tmp_clean(const char *tmp, struct err *e);

#endif
