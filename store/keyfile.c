/*
 * keyfile: encodes, reads, writes and destroys the small files that hold
 * wrapped keys.
 *
 * Invariants:
 *  1. A file below its final name is complete and synced.
 *  2. A key file once made is never replaced; grants are, by rename.
 *  3. The whole header is additional data of the box: a file renamed to
 *     another's name, or with another tenant written in, does not open.
 *  4. Unwrapped bytes are wiped before a function returns.
 *
 * A crash leaves at most a file in the tmp folder, which the next start
 * overwrites and unlinks.
 */
#include "store/keyfile.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "store/datadir.h"

#define KEYFILE_VERSION 1
#define GRANT_LEN (KEYS_PACK_ID_LEN + CRYPT_KEY_LEN)

static const char key_magic[4] = { 'c', 'k', 'e', 'y' };
static const char grants_magic[4] = { 'c', 'g', 'r', 'a' };

/* Offsets in the header of a key file. */
enum {
	KEY_VERSION = 4,
	KEY_FLAGS = 6,
	KEY_KIND = 8,
	KEY_ID_LEN = 9,
	KEY_ZERO = 10,
	KEY_ID = 12,
	KEY_PARENT = 32,
	KEY_CRC = 52,
};
static_assert(KEY_CRC + 4 == KEYFILE_HEAD_LEN, "checksum is last");
static_assert(KEYFILE_LEN == KEYFILE_HEAD_LEN + CRYPT_BOX_EXTRA + CRYPT_KEY_LEN,
	      "header and box");

/* Offsets in the header of a grants file. */
enum {
	GRANTS_VERSION = 4,
	GRANTS_FLAGS = 6,
	GRANTS_NR = 8,
	GRANTS_ID = 12,
	GRANTS_CRC = 32,
};
static_assert(GRANTS_CRC + 4 == KEYFILE_GRANTS_HEAD_LEN, "checksum is last");

static int broken(struct err *e, const char *what)
{
	return err_set(e, -EBADMSG, ERR_CORRUPT, "%s", what);
}

static void wrap_key(uint8_t ret[CRYPT_KEY_LEN],
		     const uint8_t parent_key[CRYPT_KEY_LEN])
{
	crypt_hkdf(ret, CRYPT_KEY_LEN, parent_key, "cryo-wrap-v1", NULL, 0);
}

static void put_id(uint8_t *field, const char *id)
{
	size_t len = strlen(id);

	PRE(len <= ID_LEN);
	memcpy(field, id, len);
}

/* An id padded with NUL to ID_LEN; false if bytes follow the first NUL. */
static bool get_id(char ret[ID_LEN + 1], const uint8_t *field)
{
	size_t len = strnlen((const char *)field, ID_LEN);

	for (size_t i = len; i < ID_LEN; i++)
		if (field[i])
			return false;
	memset(ret, 0, ID_LEN + 1);
	memcpy(ret, field, len);
	return true;
}

void keyfile_wrap(uint8_t ret[KEYFILE_LEN], const struct keyfile_name *name,
		  const uint8_t parent_key[CRYPT_KEY_LEN],
		  const uint8_t key[CRYPT_KEY_LEN])
{
	uint8_t wrap[CRYPT_KEY_LEN];

	PRE((name->kind == KEYFILE_NODE) == !name->id[0]);
	PRE((name->kind == KEYFILE_SESSION) == !!name->parent[0]);
	memset(ret, 0, KEYFILE_LEN);
	memcpy(ret, key_magic, sizeof(key_magic));
	put_u16(ret + KEY_VERSION, KEYFILE_VERSION);
	ret[KEY_KIND] = (uint8_t)name->kind;
	ret[KEY_ID_LEN] = (uint8_t)strlen(name->id);
	put_id(ret + KEY_ID, name->id);
	put_id(ret + KEY_PARENT, name->parent);
	put_u32(ret + KEY_CRC, crypt_crc32c(ret, KEY_CRC));
	wrap_key(wrap, parent_key);
	crypt_box_seal(wrap, ret, KEYFILE_HEAD_LEN, key, CRYPT_KEY_LEN,
		       ret + KEYFILE_HEAD_LEN);
	base_wipe(wrap, sizeof(wrap));
}

static int check_version(const uint8_t *h, struct err *e)
{
	if (get_u16(h + KEY_VERSION) == KEYFILE_VERSION && !get_u16(h + KEY_FLAGS))
		return 0;
	return err_set(e, -EPROTONOSUPPORT, ERR_CORRUPT,
		       "version %u flags %x, this program knows version %d; "
		       "use a newer cryo",
		       get_u16(h + KEY_VERSION), get_u16(h + KEY_FLAGS),
		       KEYFILE_VERSION);
}

int keyfile_decode(struct keyfile_name *ret, const void *p, size_t len,
		   struct err *e)
{
	const uint8_t *h = p;
	struct keyfile_name name = { 0 };
	int r;

	if (len != KEYFILE_LEN || memcmp(h, key_magic, sizeof(key_magic)) != 0)
		return broken(e, "not a key file");
	if (crypt_crc32c(h, KEY_CRC) != get_u32(h + KEY_CRC))
		return broken(e, "header checksum differs");
	r = check_version(h, e);
	if (r)
		return r;
	if (h[KEY_KIND] < KEYFILE_NODE || h[KEY_KIND] > KEYFILE_SESSION ||
	    get_u16(h + KEY_ZERO) || !get_id(name.id, h + KEY_ID) ||
	    !get_id(name.parent, h + KEY_PARENT) ||
	    h[KEY_ID_LEN] != strlen(name.id))
		return broken(e, "impossible header");
	name.kind = (enum keyfile_kind)h[KEY_KIND];
	if ((name.kind == KEYFILE_NODE) != !name.id[0] ||
	    (name.kind == KEYFILE_SESSION) != !!name.parent[0])
		return broken(e, "impossible owner");
	*ret = name;
	return 0;
}

int keyfile_unwrap(uint8_t ret[CRYPT_KEY_LEN], const uint8_t p[KEYFILE_LEN],
		   const uint8_t parent_key[CRYPT_KEY_LEN], struct err *e)
{
	uint8_t wrap[CRYPT_KEY_LEN], key[CRYPT_KEY_LEN];
	int r;

	wrap_key(wrap, parent_key);
	r = crypt_box_open(wrap, p, KEYFILE_HEAD_LEN, p + KEYFILE_HEAD_LEN,
			   KEYFILE_LEN - KEYFILE_HEAD_LEN, key);
	base_wipe(wrap, sizeof(wrap));
	if (r)
		return broken(e, "its parent key does not open it (another "
				 "provider key?)");
	memcpy(ret, key, CRYPT_KEY_LEN);
	base_wipe(key, sizeof(key));
	return 0;
}

static void grants_key(uint8_t ret[CRYPT_KEY_LEN],
		       const uint8_t key[CRYPT_KEY_LEN])
{
	crypt_hkdf(ret, CRYPT_KEY_LEN, key, "cryo-grants-v1", NULL, 0);
}

void keyfile_grants_seal(struct buf *b, const char *session,
			 const uint8_t key[CRYPT_KEY_LEN],
			 const struct keys_grant *grants, size_t nr)
{
	uint8_t h[KEYFILE_GRANTS_HEAD_LEN] = { 0 }, seal[CRYPT_KEY_LEN];
	size_t len = nr * GRANT_LEN;
	SCOPED_FREE uint8_t *plain = base_alloc(len);

	PRE(nr > 0 && nr <= KEYS_GRANTS_MAX);
	memcpy(h, grants_magic, sizeof(grants_magic));
	put_u16(h + GRANTS_VERSION, KEYFILE_VERSION);
	put_u32(h + GRANTS_NR, (uint32_t)nr);
	put_id(h + GRANTS_ID, session);
	put_u32(h + GRANTS_CRC, crypt_crc32c(h, GRANTS_CRC));
	for (size_t i = 0; i < nr; i++) {
		memcpy(plain + i * GRANT_LEN, grants[i].pack, KEYS_PACK_ID_LEN);
		memcpy(plain + i * GRANT_LEN + KEYS_PACK_ID_LEN, grants[i].key,
		       CRYPT_KEY_LEN);
	}
	grants_key(seal, key);
	buf_put(b, h, sizeof(h));
	crypt_box_seal(seal, h, sizeof(h), plain, len,
		       buf_reserve(b, len + CRYPT_BOX_EXTRA));
	b->len += len + CRYPT_BOX_EXTRA;
	base_wipe(seal, sizeof(seal));
	base_wipe(plain, len);
}

static int grants_check(const uint8_t *h, size_t len, const char *session,
			struct err *e)
{
	char id[ID_LEN + 1];
	uint32_t nr;
	int r;

	if (len < KEYFILE_GRANTS_HEAD_LEN ||
	    memcmp(h, grants_magic, sizeof(grants_magic)) != 0)
		return broken(e, "not a grants file");
	if (crypt_crc32c(h, GRANTS_CRC) != get_u32(h + GRANTS_CRC))
		return broken(e, "header checksum differs");
	r = check_version(h, e);
	if (r)
		return r;
	nr = get_u32(h + GRANTS_NR);
	if (!nr || nr > KEYS_GRANTS_MAX ||
	    len != KEYFILE_GRANTS_HEAD_LEN + CRYPT_BOX_EXTRA + nr * GRANT_LEN)
		return broken(e, "impossible length");
	if (!get_id(id, h + GRANTS_ID) || strcmp(id, session) != 0)
		return broken(e, "grants of another session");
	return 0;
}

int keyfile_grants_open(struct buf *ret, const char *session,
			const uint8_t key[CRYPT_KEY_LEN], const void *p,
			size_t len, struct err *e)
{
	const uint8_t *h = p;
	uint8_t seal[CRYPT_KEY_LEN];
	SCOPED_FREE uint8_t *plain = NULL;
	size_t plain_len;
	int r = grants_check(h, len, session, e);

	if (r)
		return r;
	plain_len = len - KEYFILE_GRANTS_HEAD_LEN - CRYPT_BOX_EXTRA;
	plain = base_alloc(plain_len);
	grants_key(seal, key);
	r = crypt_box_open(seal, h, KEYFILE_GRANTS_HEAD_LEN,
			   h + KEYFILE_GRANTS_HEAD_LEN,
			   len - KEYFILE_GRANTS_HEAD_LEN, plain);
	base_wipe(seal, sizeof(seal));
	if (r)
		return broken(e, "the session's key does not open it");
	for (size_t at = 0; at < plain_len; at += GRANT_LEN) {
		struct keys_grant *g = buf_reserve(ret, sizeof(*g));

		memcpy(g->pack, plain + at, KEYS_PACK_ID_LEN);
		memcpy(g->key, plain + at + KEYS_PACK_ID_LEN, CRYPT_KEY_LEN);
		ret->len += sizeof(*g);
	}
	base_wipe(plain, plain_len);
	return 0;
}

/* --- files ---------------------------------------------------------------- */

static void tmp_path(char ret[PATH_MAX], const char *tmp)
{
	struct id id;

	id_new(&id);
	if (snprintf(ret, PATH_MAX, "%s/%s", tmp, id.s) >= PATH_MAX)
		NEVER("the folder's path was short enough to make it");
}

static int sync_parent(const char *path, struct err *e)
{
	char dir[PATH_MAX];
	char *slash;

	base_strcpy(dir, sizeof(dir), path);
	slash = strrchr(dir, '/');
	PRE(slash && slash > dir);
	*slash = 0;
	return datadir_sync(dir, e);
}

static int write_tmp(const char *path, const void *p, size_t len, struct err *e)
{
	SCOPED_FD int fd =
		open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return err_sys(e, errno, "make %s", path);
	r = base_write_all(fd, p, len);
	if (!r && fsync(fd))
		r = -errno;
	if (!r)
		return 0;
	unlink(path);
	return err_sys(e, -r, "write %s", path);
}

int keyfile_write(const char *path, const char *tmp, const void *p, size_t len,
		  bool replace, struct err *e)
{
	char from[PATH_MAX];
	int r, en;

	tmp_path(from, tmp);
	r = write_tmp(from, p, len, e);
	if (r)
		return r;
	r = renameat2(AT_FDCWD, from, AT_FDCWD, path,
		      replace ? 0 : RENAME_NOREPLACE);
	en = errno;
	if (r)
		unlink(from);
	if (r && en != EEXIST)
		return err_sys(e, en, "make key file %s", path);
	/* One that is there may not have been synced yet by who made it. */
	en = sync_parent(path, e);
	return en ? en : (r ? 1 : 0);
}

int keyfile_read(const char *path, size_t max, struct buf *ret, struct err *e)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	int r;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT
				       : err_sys(e, errno, "open %s", path);
	if (fstat(fd, &st))
		return err_sys(e, errno, "stat %s", path);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max)
		return err_set(e, -EFBIG, ERR_CORRUPT,
			       "key file %s: not a file of at most %zu bytes",
			       path, max);
	r = base_read_all(fd, buf_reserve(ret, (size_t)st.st_size),
			  (size_t)st.st_size);
	if (r)
		return err_sys(e, -r, "read %s", path);
	ret->len += (size_t)st.st_size;
	return 0;
}

/* The bytes first, then the name: a name that is left shows what is left. */
static int shred(const char *path, struct err *e)
{
	SCOPED_FD int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	uint8_t junk[4096];
	struct stat st;
	int r = 0;

	if (fd < 0 || fstat(fd, &st))
		return err_sys(e, errno, "destroy %s", path);
	for (off_t at = 0; !r && at < st.st_size; at += (off_t)sizeof(junk)) {
		base_random(junk, sizeof(junk));
		r = base_pwrite_all(fd, junk,
				    MIN(sizeof(junk), (size_t)(st.st_size - at)),
				    (uint64_t)at);
	}
	if (!r && fsync(fd))
		r = -errno;
	if (!r && unlink(path))
		r = -errno;
	return r ? err_sys(e, -r, "destroy %s", path) : 0;
}

int keyfile_destroy(const char *path, const char *tmp, struct err *e)
{
	char to[PATH_MAX];
	int r;

	tmp_path(to, tmp);
	if (rename(path, to))
		return errno == ENOENT ? 0
				       : err_sys(e, errno, "destroy %s", path);
	r = sync_parent(path, e);
	if (!r)
		r = shred(to, e);
	return r ? r : datadir_sync(tmp, e);
}

static void closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
}

int keyfile_tmp_clean(const char *tmp, struct err *e)
{
	SCOPED(closedir_p) DIR *d = opendir(tmp);
	char path[PATH_MAX];
	struct dirent *de;
	int r;

	if (!d)
		return err_sys(e, errno, "open %s", tmp);
	while ((de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", tmp, de->d_name) >=
		    (int)sizeof(path))
			return err_set(e, -ENAMETOOLONG, ERR_INVALID,
				       "%s: path too long", tmp);
		r = shred(path, e);
		if (r)
			return r;
	}
	return 0;
}
