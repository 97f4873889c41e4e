/*
 * keys: the hierarchy of keys and a small cache of unwrapped ones.
 *
 * Each lookup that misses the cache reads a file, finds the parent in its
 * header, gets the parent's key the same way, and unwraps. So the depth is
 * three, and nothing else is kept: what a process may read is what the files
 * say at most KEYS_CACHE_S seconds ago. The node's key alone stays for the
 * life of the process: each commit needs it.
 *
 * Invariants:
 *  1. A file's name, its header and the box's additional data name the same
 *     owner, else the key is not used.
 *  2. Unwrapped keys lie in `vault` only (locked if the limits allow, never
 *     in a core dump), and on stacks that are wiped.
 *  3. A slot is used at most KEYS_CACHE_S after the file was read, and is
 *     wiped at the next call after that; keys_expire() is such a call.
 *  4. destroy removes the slot and the file under the lock, so no thread
 *     can put the key back in the cache from a file that is going.
 *
 * A crash leaves a key file that no event speaks of (made, not used yet):
 * harmless, the next create with that id takes it over. See keyfile.c for
 * files half written or half destroyed.
 */
#include "store/keys.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "store/datadir.h"
#include "store/keyfile.h"

#define CACHE_SLOTS 256
#define NODE_TENANT "node" /* tenant in the files of the node's sessions */
#define HEX_LEN ((size_t)CRYPT_KEY_LEN * 2)
#define GRANT(b, i) (((struct keys_grant *)(void *)(b)->p)[i])

/* A tenant's or a session's key; kind 0: free. */
struct slot {
	struct keyfile_name name;
	int64_t read_ns; /* monotonic */
	uint8_t key[CRYPT_KEY_LEN];
};

struct vault {
	uint8_t node[CRYPT_KEY_LEN];
	struct slot slots[CACHE_SLOTS];
};

struct keys {
	pthread_mutex_t lock; /* over all that follows */
	const struct clock *clock;
	char *dir; /* DATA/keys */
	char *tmp; /* DATA/keys/tmp */
	char *provider;
	bool read_only;
	struct vault *vault;
};

static void wipe_key(uint8_t (*key)[CRYPT_KEY_LEN])
{
	base_wipe(*key, sizeof(*key));
}

#define SCOPED_KEY(name) SCOPED(wipe_key) uint8_t name[CRYPT_KEY_LEN]

static void wipe_buf(struct buf *b)
{
	if (b->p)
		base_wipe(b->p, b->len);
	buf_done(b);
}

static void unlock(pthread_mutex_t **m)
{
	pthread_mutex_unlock(*m);
}

#define LOCKED(k)                                                    \
	SCOPED(unlock) UNUSED pthread_mutex_t *locked_ = &(k)->lock; \
	pthread_mutex_lock(locked_)

static int check_name(const char *what, const char *s, struct err *e)
{
	size_t len = strlen(s);

	if (len >= 2 && len <= ID_LEN &&
	    strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == len)
		return 0;
	return err_set(e, -EINVAL, ERR_INVALID,
		       "%s \"%.40s\": must be 2 to %d of [a-z0-9-]", what, s,
		       ID_LEN);
}

/* Sessions of no tenant (templates' parks) are the node's own. */
static int tenant_name(const char *tenant, const char **ret, struct err *e)
{
	if (!strcmp(tenant, NODE_TENANT))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "tenant \"%s\": the name is the node's own",
			       tenant);
	*ret = tenant[0] ? tenant : NODE_TENANT;
	return check_name("tenant", *ret, e);
}

static void key_path(char ret[PATH_MAX], const struct keys *k,
		     enum keyfile_kind kind, const char *id, const char *ext)
{
	int n = 0;

	switch (kind) {
	case KEYFILE_NODE:
		n = snprintf(ret, PATH_MAX, "%s/node.%s", k->dir, ext);
		break;
	case KEYFILE_TENANT:
		n = snprintf(ret, PATH_MAX, "%s/tenant/%s.%s", k->dir, id, ext);
		break;
	case KEYFILE_SESSION:
		n = snprintf(ret, PATH_MAX, "%s/session/%.2s/%s.%s", k->dir, id,
			     id, ext);
		break;
	}
	PRE(n > 0 && n < PATH_MAX); /* keys_open() bounded the folder */
}

/* --- provider key --------------------------------------------------------- */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_hex(uint8_t ret[CRYPT_KEY_LEN], const char *s)
{
	for (size_t i = 0; i < CRYPT_KEY_LEN; i++) {
		int hi = hex_value(s[2 * i]), lo = hex_value(s[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		ret[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}

static int provider_read(const struct keys *k, uint8_t ret[CRYPT_KEY_LEN],
			 struct err *e)
{
	SCOPED(wipe_buf) struct buf text = { 0 };
	struct stat st;
	int r = keyfile_read(k->provider, HEX_LEN + 1, &text, e);

	/* Not -ENOENT: that says "destroyed" to who asked for a session. */
	if (r == -ENOENT)
		return err_set(e, -ENOKEY, ERR_NOT_FOUND,
			       "provider key %s is missing: nothing can be "
			       "read without it; bring it back",
			       k->provider);
	if (r)
		return r;
	if (!stat(k->provider, &st) && (st.st_mode & 077))
		return err_set(e, -EACCES, ERR_FORBIDDEN,
			       "provider key %s: others may read it (mode "
			       "%03o); chmod 600 it",
			       k->provider, st.st_mode & 0777);
	if (text.len < HEX_LEN ||
	    (text.len == HEX_LEN + 1 && text.p[HEX_LEN] != '\n') ||
	    parse_hex(ret, (const char *)text.p))
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "provider key %s: not 64 hex digits in lower "
			       "case; bring the right file back",
			       k->provider);
	return 0;
}

/* The same way as key files, but the path may be on another file system. */
static int provider_make(const struct keys *k, struct err *e)
{
	SCOPED_KEY(key);
	char text[HEX_LEN + 2];
	char dir[PATH_MAX];
	char *slash;
	int r;

	base_random(key, sizeof(key));
	for (size_t i = 0; i < sizeof(key); i++)
		snprintf(text + 2 * i, 3, "%02x", key[i]);
	text[HEX_LEN] = '\n';
	base_strcpy(dir, sizeof(dir), k->provider);
	slash = strrchr(dir, '/');
	if (!slash || slash == dir)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "provider key %s: give an absolute path in a "
			       "folder of its own",
			       k->provider);
	*slash = 0;
	r = keyfile_write(k->provider, dir, text, HEX_LEN + 1, false, e);
	base_wipe(text, sizeof(text));
	return r < 0 ? r : 0;
}

/* --- the cache ------------------------------------------------------------ */

static void slot_free(struct slot *s)
{
	base_wipe(s, sizeof(*s));
}

static void expire(struct keys *k, int64_t now)
{
	for (size_t i = 0; i < CACHE_SLOTS; i++) {
		struct slot *s = &k->vault->slots[i];

		if (s->name.kind && now - s->read_ns >= KEYS_CACHE_S * NS_PER_S)
			slot_free(s);
	}
}

static struct slot *slot_find(struct keys *k, enum keyfile_kind kind,
			      const char *id)
{
	for (size_t i = 0; i < CACHE_SLOTS; i++) {
		struct slot *s = &k->vault->slots[i];

		if (s->name.kind == kind && !strcmp(s->name.id, id))
			return s;
	}
	return NULL;
}

/* A free slot, or the oldest one. */
static struct slot *slot_take(struct keys *k)
{
	struct slot *oldest = &k->vault->slots[0];

	for (size_t i = 0; i < CACHE_SLOTS; i++) {
		struct slot *s = &k->vault->slots[i];

		if (!s->name.kind)
			return s;
		if (s->read_ns < oldest->read_ns)
			oldest = s;
	}
	slot_free(oldest);
	return oldest;
}

/* --- lookups, under the lock ---------------------------------------------- */

static int lookup(struct keys *k, enum keyfile_kind kind, const char *id,
		  struct slot *ret, struct err *e);

static int parent_key(struct keys *k, const struct keyfile_name *name,
		      uint8_t ret[CRYPT_KEY_LEN], struct err *e)
{
	struct slot parent;
	int r;

	if (name->kind != KEYFILE_SESSION)
		return provider_read(k, ret, e);
	r = lookup(k, KEYFILE_TENANT, name->parent, &parent, e);
	if (r == -ENOENT)
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "key of tenant %s is missing: its sessions "
			       "can't be read; bring %s/tenant/%s.key back",
			       name->parent, k->dir, name->parent);
	if (r)
		return r;
	memcpy(ret, parent.key, CRYPT_KEY_LEN);
	slot_free(&parent);
	return 0;
}

/* Reads and unwraps one file; -ENOENT with `e` untouched if there is none. */
static int load(struct keys *k, enum keyfile_kind kind, const char *id,
		struct slot *ret, struct err *e)
{
	SCOPED(buf_done) struct buf file = { 0 };
	SCOPED_KEY(parent) = { 0 };
	char path[PATH_MAX];
	int r;

	key_path(path, k, kind, id, "key");
	r = keyfile_read(path, KEYFILE_LEN, &file, e);
	if (r)
		return r;
	r = keyfile_decode(&ret->name, file.p, file.len, e);
	if (!r && (ret->name.kind != kind || strcmp(ret->name.id, id) != 0))
		r = err_set(e, -EBADMSG, ERR_CORRUPT, "key of somebody else");
	if (!r)
		r = parent_key(k, &ret->name, parent, e);
	if (!r)
		r = keyfile_unwrap(ret->key, file.p, parent, e);
	return r ? err_wrap(e, r, "key file %s", path) : 0;
}

static int lookup(struct keys *k, enum keyfile_kind kind, const char *id,
		  struct slot *ret, struct err *e)
{
	int64_t now = clock_mono(k->clock);
	struct slot *s, found = { .read_ns = now };
	int r;

	expire(k, now);
	s = slot_find(k, kind, id);
	if (!s) {
		r = load(k, kind, id, &found, e);
		if (r)
			return r;
		s = slot_take(k);
		*s = found;
		slot_free(&found);
	}
	*ret = *s;
	return 0;
}

/* A new random key under its parent's; an existing one stays as it is. */
static int make(struct keys *k, const struct keyfile_name *name, struct err *e)
{
	SCOPED_KEY(key);
	SCOPED_KEY(parent) = { 0 };
	uint8_t file[KEYFILE_LEN];
	char path[PATH_MAX];
	int r;

	if (k->read_only)
		return err_set(e, -EROFS, ERR_INTERNAL,
			       "keys are open for reading only");
	r = parent_key(k, name, parent, e);
	if (r)
		return r;
	base_random(key, sizeof(key));
	keyfile_wrap(file, name, parent, key);
	key_path(path, k, name->kind, name->id, "key");
	r = keyfile_write(path, k->tmp, file, sizeof(file), false, e);
	return r < 0 ? r : 0;
}

/* --- opening -------------------------------------------------------------- */

static bool exists(const char *path)
{
	struct stat st;

	return !lstat(path, &st);
}

/* Makes provider and node key at the first start, and only then. */
static int first_start(struct keys *k, const char *data, struct err *e)
{
	static const struct keyfile_name node = { .kind = KEYFILE_NODE };
	char path[PATH_MAX];
	int r = 0;

	key_path(path, k, KEYFILE_NODE, "", "key");
	if (exists(path))
		return 0;
	if (snprintf(path, sizeof(path), "%s/log/data.mdb", data) >=
	    (int)sizeof(path))
		NEVER("keys_open() bounded the folder");
	if (exists(path))
		return err_set(e, -ENOENT, ERR_CORRUPT,
			       "%s/node.key is missing, but there is a log "
			       "sealed under it; bring the file back",
			       k->dir);
	if (!exists(k->provider))
		r = provider_make(k, e);
	return r ? r : make(k, &node, e);
}

static int make_dirs(const struct keys *k, struct err *e)
{
	static const char *const names[] = { "tenant", "session", "tmp" };
	char path[PATH_MAX];

	for (size_t i = 0; i <= ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s%s%s", k->dir, i ? "/" : "",
			 i ? names[i - 1] : "");
		if (mkdir(path, 0700) && errno != EEXIST)
			return err_sys(e, errno, "make folder %s", path);
	}
	return datadir_sync(k->dir, e);
}

static int load_node(struct keys *k, const char *data, struct err *e)
{
	struct slot node = { 0 };
	int r = 0;

	if (!k->read_only) {
		r = make_dirs(k, e);
		if (!r)
			r = keyfile_tmp_clean(k->tmp, e);
		if (!r)
			r = first_start(k, data, e);
	}
	if (!r)
		r = load(k, KEYFILE_NODE, "", &node, e);
	if (r == -ENOENT && k->read_only)
		r = err_set(e, r, ERR_NOT_FOUND,
			    "no keys in %s: not a data folder of cryo, or "
			    "never started",
			    k->dir);
	if (!r)
		memcpy(k->vault->node, node.key, CRYPT_KEY_LEN);
	slot_free(&node);
	return r;
}

static struct vault *vault_new(struct err *e)
{
	void *p = mmap(NULL, sizeof(struct vault), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		err_sys(e, errno, "memory for keys");
		return NULL;
	}
	/* Both are a second line: limits may forbid the first. */
	(void)mlock(p, sizeof(struct vault));
	(void)madvise(p, sizeof(struct vault), MADV_DONTDUMP);
	return p;
}

int keys_open(struct keys **ret, const char *data, const char *provider_path,
	      bool read_only, const struct clock *clock, struct err *e)
{
	SCOPED(keys_close_p) struct keys *k = NULL;
	int r;

	if (strlen(data) > PATH_MAX - 128)
		return err_set(e, -ENAMETOOLONG, ERR_INVALID,
			       "data folder: path too long");
	k = base_alloc(sizeof(*k));
	pthread_mutex_init(&k->lock, NULL);
	k->clock = clock;
	k->read_only = read_only;
	k->dir = base_printf("%s/keys", data);
	k->tmp = base_printf("%s/tmp", k->dir);
	k->provider = provider_path ? base_strdup(provider_path)
				    : base_printf("%s/provider.key", k->dir);
	k->vault = vault_new(e);
	if (!k->vault)
		return -ENOMEM;
	r = load_node(k, data, e);
	if (r)
		return r;
	*ret = STEAL(k);
	return 0;
}

void keys_close(struct keys *k)
{
	if (!k)
		return;
	if (k->vault) {
		base_wipe(k->vault, sizeof(*k->vault));
		munmap(k->vault, sizeof(*k->vault));
	}
	pthread_mutex_destroy(&k->lock);
	free(k->dir);
	free(k->tmp);
	free(k->provider);
	free(k);
}

void keys_close_p(struct keys **k)
{
	keys_close(*k);
}

void keys_expire(struct keys *k)
{
	LOCKED(k);
	expire(k, clock_mono(k->clock));
}

void keys_forget_all(struct keys *k)
{
	LOCKED(k);
	base_wipe(k->vault->slots, sizeof(k->vault->slots));
}

void keys_node_derive(const struct keys *k, const char *label, const void *extra,
		      size_t extra_len, uint8_t *ret, size_t ret_len)
{
	/* No lock: the node's key never changes after keys_open(). */
	crypt_hkdf(ret, ret_len, k->vault->node, label, extra, extra_len);
}

/* --- tenants and sessions ------------------------------------------------- */

static int tenant_create(struct keys *k, const char *tenant, struct err *e)
{
	struct keyfile_name name = { .kind = KEYFILE_TENANT };
	struct slot s;
	int r = lookup(k, KEYFILE_TENANT, tenant, &s, e);

	if (r != -ENOENT) {
		slot_free(&s);
		return r;
	}
	base_strcpy(name.id, sizeof(name.id), tenant);
	return make(k, &name, e);
}

int keys_tenant_create(struct keys *k, const char *tenant, struct err *e)
{
	LOCKED(k);
	int r = tenant_name(tenant, &tenant, e);

	return r ? r : tenant_create(k, tenant, e);
}

static int get(struct keys *k, enum keyfile_kind kind, const char *what,
	       const char *id, uint8_t ret[CRYPT_KEY_LEN], struct err *e)
{
	LOCKED(k);
	struct slot s;
	int r = check_name(what, id, e);

	if (!r)
		r = lookup(k, kind, id, &s, e);
	if (r)
		return r;
	memcpy(ret, s.key, CRYPT_KEY_LEN);
	slot_free(&s);
	return 0;
}

int keys_tenant_get(struct keys *k, const char *tenant,
		    uint8_t ret[CRYPT_KEY_LEN], struct err *e)
{
	return get(k, KEYFILE_TENANT, "tenant", tenant, ret, e);
}

int keys_session_get(struct keys *k, const char *session,
		     uint8_t ret[CRYPT_KEY_LEN], struct err *e)
{
	return get(k, KEYFILE_SESSION, "session", session, ret, e);
}

int keys_session_tenant(struct keys *k, const char *session,
			char ret_tenant[ID_LEN + 1], struct err *e)
{
	LOCKED(k);
	struct slot s;
	int r = check_name("session", session, e);

	if (!r)
		r = lookup(k, KEYFILE_SESSION, session, &s, e);
	if (r)
		return r;
	if (!strcmp(s.name.parent, NODE_TENANT))
		memset(s.name.parent, 0, sizeof(s.name.parent));
	memcpy(ret_tenant, s.name.parent, ID_LEN + 1);
	slot_free(&s);
	return 0;
}

/* The folder DATA/keys/session/ab, its own name synced. */
static int make_session_dir(const struct keys *k, const char *session,
			    struct err *e)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/session/%.2s", k->dir, session);
	if (mkdir(path, 0700)) {
		if (errno == EEXIST)
			return 0;
		return err_sys(e, errno, "make folder %s", path);
	}
	snprintf(path, sizeof(path), "%s/session", k->dir);
	return datadir_sync(path, e);
}

static int session_make(struct keys *k, const char *tenant, const char *session,
			struct err *e)
{
	struct keyfile_name name = { .kind = KEYFILE_SESSION };
	int r = tenant_create(k, tenant, e);

	if (!r && !k->read_only)
		r = make_session_dir(k, session, e);
	if (r)
		return r;
	base_strcpy(name.id, sizeof(name.id), session);
	base_strcpy(name.parent, sizeof(name.parent), tenant);
	return make(k, &name, e);
}

int keys_session_create(struct keys *k, const char *tenant, const char *session,
			struct err *e)
{
	LOCKED(k);
	struct slot s = { 0 };
	int r = check_name("session", session, e);

	if (!r)
		r = tenant_name(tenant, &tenant, e);
	if (!r)
		r = lookup(k, KEYFILE_SESSION, session, &s, e);
	if (r == -ENOENT) {
		r = session_make(k, tenant, session, e);
		if (!r)
			r = lookup(k, KEYFILE_SESSION, session, &s, e);
	}
	if (!r && strcmp(s.name.parent, tenant) != 0)
		r = err_set(e, -EEXIST, ERR_CONFLICT,
			    "session %s has a key of another tenant", session);
	slot_free(&s);
	return r;
}

int keys_session_destroy(struct keys *k, const char *session, struct err *e)
{
	LOCKED(k);
	char path[PATH_MAX];
	struct slot *s;
	int r = check_name("session", session, e);

	if (r)
		return r;
	if (k->read_only)
		return err_set(e, -EROFS, ERR_INTERNAL,
			       "keys are open for reading only");
	s = slot_find(k, KEYFILE_SESSION, session);
	if (s)
		slot_free(s);
	/* The key first: without it the grants say nothing. */
	key_path(path, k, KEYFILE_SESSION, session, "key");
	r = keyfile_destroy(path, k->tmp, e);
	if (r)
		return r;
	key_path(path, k, KEYFILE_SESSION, session, "grants");
	return keyfile_destroy(path, k->tmp, e);
}

int keys_session_derive(struct keys *k, const char *session, const char *label,
			const void *extra, size_t extra_len, uint8_t *ret,
			size_t ret_len, struct err *e)
{
	SCOPED_KEY(key) = { 0 };
	int r = keys_session_get(k, session, key, e);

	if (!r)
		crypt_hkdf(ret, ret_len, key, label, extra, extra_len);
	return r;
}

/* --- grants --------------------------------------------------------------- */

/* Appends the session's grants; none is fine. `s` is the session's slot. */
static int grants_read(const struct keys *k, const struct slot *s,
		       struct buf *ret, struct err *e)
{
	SCOPED(buf_done) struct buf file = { 0 };
	char path[PATH_MAX];
	int r;

	key_path(path, k, KEYFILE_SESSION, s->name.id, "grants");
	r = keyfile_read(path, KEYFILE_GRANTS_LEN_MAX, &file, e);
	if (r)
		return r == -ENOENT ? 0 : r;
	r = keyfile_grants_open(ret, s->name.id, s->key, file.p, file.len, e);
	return r ? err_wrap(e, r, "grants file %s", path) : 0;
}

static const struct keys_grant *grant_find(const struct buf *all,
					   const uint8_t pack[KEYS_PACK_ID_LEN])
{
	size_t nr = all->len / sizeof(struct keys_grant);

	for (size_t i = 0; i < nr; i++)
		if (!memcmp(GRANT(all, i).pack, pack, KEYS_PACK_ID_LEN))
			return &GRANT(all, i);
	return NULL;
}

static int grants_merge(struct keys *k, const struct slot *s,
			const struct keys_grant *grants, size_t nr, struct err *e)
{
	SCOPED(wipe_buf) struct buf all = { 0 };
	SCOPED(buf_done) struct buf file = { 0 };
	char path[PATH_MAX];
	size_t had;
	int r = grants_read(k, s, &all, e);

	if (r)
		return r;
	had = all.len;
	/* Room for all of them at once: a move would leave keys behind. */
	if (had / sizeof(*grants) + nr > KEYS_GRANTS_MAX)
		return err_set(e, -E2BIG, ERR_LIMIT,
			       "session %s: more than %d packs granted",
			       s->name.id, KEYS_GRANTS_MAX);
	buf_reserve(&all, nr * sizeof(*grants));
	for (size_t i = 0; i < nr; i++)
		if (!grant_find(&all, grants[i].pack))
			buf_put(&all, &grants[i], sizeof(grants[i]));
	if (all.len == had)
		return 0;
	keyfile_grants_seal(&file, s->name.id, s->key, &GRANT(&all, 0),
			    all.len / sizeof(*grants));
	key_path(path, k, KEYFILE_SESSION, s->name.id, "grants");
	return keyfile_write(path, k->tmp, file.p, file.len, true, e);
}

int keys_grant_add(struct keys *k, const char *session,
		   const struct keys_grant *grants, size_t nr, struct err *e)
{
	LOCKED(k);
	struct slot s = { 0 };
	int r = check_name("session", session, e);

	if (r || !nr)
		return r;
	if (k->read_only)
		return err_set(e, -EROFS, ERR_INTERNAL,
			       "keys are open for reading only");
	r = lookup(k, KEYFILE_SESSION, session, &s, e);
	if (r == -ENOENT)
		return err_set(e, r, ERR_NOT_FOUND,
			       "session %s has no key to grant packs to",
			       session);
	if (!r)
		r = grants_merge(k, &s, grants, nr, e);
	slot_free(&s);
	return r;
}

static int granted_key(const struct keys *k, const struct slot *s,
		       const uint8_t pack[KEYS_PACK_ID_LEN],
		       uint8_t ret[CRYPT_KEY_LEN], struct err *e)
{
	SCOPED(wipe_buf) struct buf all = { 0 };
	const struct keys_grant *g;
	int r = grants_read(k, s, &all, e);

	if (r)
		return r;
	g = grant_find(&all, pack);
	if (!g)
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "session %s may not read pack %02x%02x%02x%02x: "
			       "neither its own nor granted",
			       s->name.id, pack[0], pack[1], pack[2], pack[3]);
	memcpy(ret, g->key, CRYPT_KEY_LEN);
	return 0;
}

int keys_pack_key(struct keys *k, const char *session,
		  const uint8_t pack[KEYS_PACK_ID_LEN], bool own,
		  uint8_t ret[CRYPT_KEY_LEN], struct err *e)
{
	LOCKED(k);
	struct slot s = { 0 };
	int r = check_name("session", session, e);

	if (!r)
		r = lookup(k, KEYFILE_SESSION, session, &s, e);
	if (r == -ENOENT)
		return err_set(e, r, ERR_GONE,
			       "session %s has no key (destroyed?)", session);
	if (!r && own)
		crypt_hkdf(ret, CRYPT_KEY_LEN, s.key, "cryo-pack-v1", pack,
			   KEYS_PACK_ID_LEN);
	else if (!r)
		r = granted_key(k, &s, pack, ret, e);
	slot_free(&s);
	return r;
}
