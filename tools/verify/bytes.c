/*
 * bytes: reads every point back from its packs and compares with the root
 * that its event holds.
 *
 * Reading is what a restore does (snapshotter/restore.h), up to having the
 * pages in memory: each page is opened, hashed and added up. The root comes
 * from the point's row, which the fold compared with its event. Points of one
 * session share an open set of packs. A pack is looked for where a restore
 * would: in the session's own folder (then the session's data key gives its
 * key), or in the folder of what it was granted.
 *
 * Invariants:
 *  1. The points are those of the moment that chain and fold saw.
 *  2. A point that fails is looked up again: if its session was removed in
 *     the meantime, it is no failure.
 */
#include "tools/verify/verify.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/point.h"
#include "snapshotter/restore.h"
#include "store/datadir.h"
#include "store/pack.h"

#define THREADS_MAX 4
#define PACK_NAME_LEN (2 * PACK_ID_LEN + 5) /* 32 digits and ".pack" */

struct place {
	char id[ID_LEN + 1], session[ID_LEN + 1];
	int64_t time_ns;
	struct pack_ref at;
	uint8_t root[CRYPT_HASH_LEN];
};

struct bytes {
	struct verify *v;
	struct check *points, *packs;
	struct place *places;
	size_t nr_places, cap_places;
	const char *session; /* whose point is read */
	struct idset sessions; /* all that have a key; for the deep look */
};

/* --- what there is -------------------------------------------------------- */

static int add_place(void *ctx, const void *key UNUSED, size_t key_len UNUSED,
		     const void *value, size_t len)
{
	struct bytes *b = ctx;
	struct point p;
	struct err e = { 0 };
	struct place *to;

	if (point_decode(&p, value, len, &e)) {
		b->points->done++;
		report_fail(&b->v->report, b->points, "a point's row: %s", e.msg);
		return 0;
	}
	if (idset_has(&b->v->gone, p.session))
		return 0; /* being removed; the fold looks after it */
	if (b->nr_places == b->cap_places) {
		b->cap_places = b->cap_places ? 2 * b->cap_places : 256;
		b->places = base_realloc(b->places, b->cap_places * sizeof(*to));
	}
	to = &b->places[b->nr_places++];
	*to = (struct place){ .time_ns = p.time_ns };
	memcpy(to->id, p.id, sizeof(to->id));
	memcpy(to->session, p.session, sizeof(to->session));
	memcpy(to->at.id, p.pack, sizeof(to->at.id));
	to->at.offset = p.offset;
	memcpy(to->root, p.root, sizeof(to->root));
	return 0;
}

/* --- packs and their keys ------------------------------------------------- */

/* Opens a pack for a session; -ENOENT with `e` untouched: not there. */
static int open_pack(const struct bytes *b, const char *session,
		     const uint8_t id[PACK_ID_LEN], bool own, int *ret_fd,
		     uint8_t ret_key[CRYPT_KEY_LEN], struct err *e)
{
	SCOPED_FD int fd = -1;
	char folder[PATH_MAX], path[PATH_MAX], hex[2 * PACK_ID_LEN + 1];
	int r;

	for (size_t i = 0; i < PACK_ID_LEN; i++)
		snprintf(hex + 2 * i, 3, "%02x", id[i]);
	datadir_id_path(folder, b->v->data, "packs", session);
	if (snprintf(path, sizeof(path), "%s/%s%s.pack", folder,
		     own ? "" : "base/", hex) >= (int)sizeof(path))
		return err_set(e, -ENAMETOOLONG, ERR_INVALID,
			       "data folder: path too long");
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT
				       : err_sys(e, errno, "open %s", path);
	r = keys_pack_key(b->v->keys, session, id, own, ret_key, e);
	if (!r)
		*ret_fd = base_steal_fd(&fd);
	return r == -ENOENT ? -ENOKEY : r;
}

static int supply(void *ctx, const uint8_t id[PACK_ID_LEN], int *ret_fd,
		  uint8_t ret_key[CRYPT_KEY_LEN], struct err *e)
{
	const struct bytes *b = ctx;
	char nick[PACK_NICK_LEN];
	int r = open_pack(b, b->session, id, true, ret_fd, ret_key, e);

	if (r == -ENOENT)
		r = open_pack(b, b->session, id, false, ret_fd, ret_key, e);
	if (r != -ENOENT)
		return r;
	pack_nick(nick, id);
	return err_set(e, r, ERR_CORRUPT,
		       "pack %s is neither among the session's packs nor among "
		       "those granted to it",
		       nick);
}

/* --- points --------------------------------------------------------------- */

static unsigned threads(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : (unsigned)MIN(n, THREADS_MAX);
}

static int check_place(struct bytes *b, struct packset *ps,
		       const struct place *p, struct err *e)
{
	struct restore *restore = NULL;
	int r;

	b->session = p->session;
	r = restore_open(&restore, ps, &p->at, p->root, e);
	if (!r)
		r = restore_check_point(restore, threads(), e);
	restore_free(restore);
	return r;
}

/* Is the point's row still there, in a view of now? */
static bool still_there(struct bytes *b, const struct place *p)
{
	SCOPED(lmdb_txn_abort_p) struct lmdb_txn *txn = NULL;
	uint8_t key[POINT_KEY_LEN];
	const void *value;
	size_t len;

	if (lmdb_txn_begin(&txn, evlog_env(b->v->log), false, NULL))
		return true;
	point_key(key, p->session, p->time_ns);
	return lmdb_txn_get(txn, TABLE_POINTS, key, sizeof(key), &value, &len,
			    NULL) != -ENOENT;
}

static void check_points(struct bytes *b)
{
	struct io *io = io_plain_new();
	struct packset *ps = NULL;
	bool tty = isatty(STDERR_FILENO);

	for (size_t i = 0; i < b->nr_places; i++) {
		const struct place *p = &b->places[i];
		char when[CLOCK_TEXT_LEN];
		struct err e = { 0 };

		if (!i || strcmp(p->session, p[-1].session) != 0) {
			packset_free(ps);
			ps = packset_new(io, supply, b);
		}
		if (tty)
			fprintf(stderr, "\rreading point %zu of %zu", i + 1,
				b->nr_places);
		b->points->done++;
		if (!check_place(b, ps, p, &e) || !still_there(b, p))
			continue;
		clock_format(when, p->time_ns);
		report_fail(&b->v->report, b->points,
			    "session %s, point %s of %s: %s", p->session, p->id,
			    when, e.msg);
	}
	if (tty && b->nr_places)
		fprintf(stderr, "\r\033[K");
	packset_free(ps);
	io_free(io);
}

/* --- whole packs, also what no point needs -------------------------------- */

static bool parse_pack_name(uint8_t ret[PACK_ID_LEN], const char *name)
{
	unsigned byte;

	if (strlen(name) != PACK_NAME_LEN ||
	    strspn(name, "0123456789abcdef") != (size_t)2 * PACK_ID_LEN ||
	    strcmp(name + 2 * PACK_ID_LEN, ".pack") != 0)
		return false;
	for (size_t i = 0; i < PACK_ID_LEN; i++) {
		if (sscanf(name + 2 * i, "%2x", &byte) != 1)
			return false;
		ret[i] = (uint8_t)byte;
	}
	return true;
}

/*
 * A pack is made before it is needed, so that captures go on while the daemon
 * is away; one that never got its header holds nothing. If a point was there,
 * the point's check fails.
 */
static bool never_begun(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_size < PACK_HEAD_LEN;
}

static void scan_pack(struct bytes *b, const char *session,
		      const uint8_t id[PACK_ID_LEN])
{
	SCOPED_FD int fd = -1;
	uint8_t key[CRYPT_KEY_LEN];
	char nick[PACK_NICK_LEN];
	struct pack_scan scan;
	struct err e = { 0 };
	int r = open_pack(b, session, id, true, &fd, key, &e);

	if (r == -ENOENT || (r == 0 && never_begun(fd))) {
		base_wipe(key, sizeof(key));
		return; /* removed since it was listed, or not begun */
	}
	b->packs->done++;
	if (!r)
		r = pack_scan(fd, key, NULL, NULL, &scan, &e);
	base_wipe(key, sizeof(key));
	pack_nick(nick, id);
	if (r)
		report_fail(&b->v->report, b->packs,
			    "pack %s of session %s: %s", nick, session, e.msg);
}

static void closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
}

/* The packs that a session wrote itself; those granted are their writer's. */
static void scan_session(struct bytes *b, const char *session)
{
	SCOPED(closedir_p) DIR *d = NULL;
	uint8_t id[PACK_ID_LEN];
	char folder[PATH_MAX];
	struct dirent *de;

	datadir_id_path(folder, b->v->data, "packs", session);
	d = opendir(folder);
	while (d && (de = readdir(d)))
		if (parse_pack_name(id, de->d_name))
			scan_pack(b, session, id);
}

static int scan_row(void *ctx, const void *key, size_t key_len,
		    const void *value UNUSED, size_t len UNUSED)
{
	struct bytes *b = ctx;
	char session[ID_LEN + 1] = { 0 };

	memcpy(session, key, MIN(key_len, (size_t)ID_LEN));
	if (!idset_has(&b->v->gone, session))
		idset_add(&b->sessions, session);
	return 0;
}

static int list(struct bytes *b, struct err *e)
{
	struct rowbox live;
	int r;

	evlog_rowbox_init(b->v->log, &live);
	r = rowbox_scan(&live, b->v->txn, TABLE_POINTS, "", 0, NULL, 0, false,
			add_place, b, e);
	if (!r)
		r = rowbox_scan(&live, b->v->txn, TABLE_SESSIONS, "", 0, NULL,
				0, false, scan_row, b, e);
	rowbox_done(&live);
	return r;
}

void bytes_verify(struct verify *v)
{
	struct bytes b = { .v = v };
	struct err why = { 0 };

	b.points = report_check(&v->report, LEVEL_BYTES, "points");
	if (list(&b, &why))
		report_fail(&v->report, b.points, "can't list them: %s", why.msg);
	/* The view must not stay open for as long as reading takes. */
	lmdb_txn_abort(STEAL(v->txn));
	check_points(&b);
	if (v->deep)
		b.packs = report_check(&v->report, LEVEL_BYTES, "whole packs");
	for (size_t i = 0; v->deep && i < b.sessions.nr; i++)
		scan_session(&b, b.sessions.ids[i].s);
	idset_done(&b.sessions);
	free(b.places);
}
