/*
 * packset: the packs a process may read and the one way to read them.
 *
 * A table of ids gives each pack a small number, which locs carry. Packs are
 * opened when first read: the supplier is asked under the lock, so it is
 * called once per pack. An opened pack is never closed before the end, so a
 * reader keeps its descriptor and key schedule without a lock afterwards.
 *
 * Invariants:
 *  1. An index means the same pack for the life of the set.
 *  2. A file is used for a pack only if its header names that pack.
 *  3. What a read gives out was authenticated at its place (frame.h).
 *
 * Reads only; a crash leaves nothing behind.
 */
#include "snapshotter/packset.h"

#include <pthread.h>
#include <stdio.h>

struct pack {
	uint8_t id[PACK_ID_LEN];
	int fd; /* -1: not opened yet */
	uint8_t key[CRYPT_KEY_LEN];
};

struct packset {
	pthread_mutex_t lock;
	struct io *io;
	packset_supply_fn supply;
	void *ctx;
	struct pack **pack; /* each allocated apart: they never move */
	uint32_t nr, cap;
	uint32_t *table; /* id -> index + 1, open addressing; 0: free */
	uint32_t table_len; /* a power of two, over twice nr */
};

struct packset *packset_new(struct io *io, packset_supply_fn supply, void *ctx)
{
	struct packset *ps = base_alloc(sizeof(*ps));

	pthread_mutex_init(&ps->lock, NULL);
	ps->io = io;
	ps->supply = supply;
	ps->ctx = ctx;
	return ps;
}

void packset_free(struct packset *ps)
{
	if (!ps)
		return;
	for (uint32_t i = 0; i < ps->nr; i++) {
		if (ps->pack[i]->fd >= 0)
			close(ps->pack[i]->fd);
		base_wipe(ps->pack[i]->key, CRYPT_KEY_LEN);
		free(ps->pack[i]);
	}
	free(ps->pack);
	free(ps->table);
	pthread_mutex_destroy(&ps->lock);
	free(ps);
}

/* --- the table of ids (lock held) ----------------------------------------- */

/* Where the id is or would go. Ids are random: their bytes are the hash. */
static uint32_t *find_slot(const struct packset *ps, const uint8_t *id)
{
	uint32_t mask = ps->table_len - 1, i = get_u32(id) & mask;

	while (ps->table[i] &&
	       memcmp(ps->pack[ps->table[i] - 1]->id, id, PACK_ID_LEN))
		i = (i + 1) & mask;
	return &ps->table[i];
}

static void grow(struct packset *ps)
{
	ps->cap = MAX(16u, 2 * ps->cap);
	ps->pack = base_realloc(ps->pack, ps->cap * sizeof(*ps->pack));
	free(ps->table);
	ps->table_len = 4 * ps->cap;
	ps->table = base_alloc(ps->table_len * sizeof(*ps->table));
	for (uint32_t i = 0; i < ps->nr; i++)
		*find_slot(ps, ps->pack[i]->id) = i + 1;
}

static int index_of(struct packset *ps, const uint8_t *id, uint32_t *ret,
		    struct err *e)
{
	uint32_t *slot;

	if (ps->nr == ps->cap)
		grow(ps);
	slot = find_slot(ps, id);
	if (!*slot) {
		struct pack *p;

		if (ps->nr > LOC_PACK_MAX)
			return err_set(e, -ENOSPC, ERR_LIMIT,
				       "one process can use %u packs and this "
				       "would be one more; suspend and resume "
				       "the session",
				       LOC_PACK_MAX + 1);
		p = base_alloc(sizeof(*p));
		memcpy(p->id, id, PACK_ID_LEN);
		p->fd = -1;
		ps->pack[ps->nr++] = p;
		*slot = ps->nr;
	}
	*ret = *slot - 1;
	return 0;
}

int packset_index(struct packset *ps, const uint8_t id[PACK_ID_LEN],
		  uint32_t *ret_index, struct err *e)
{
	int r;

	pthread_mutex_lock(&ps->lock);
	r = index_of(ps, id, ret_index, e);
	pthread_mutex_unlock(&ps->lock);
	return r;
}

void packset_id(struct packset *ps, uint32_t index, uint8_t ret[PACK_ID_LEN])
{
	pthread_mutex_lock(&ps->lock);
	PRE(index < ps->nr);
	memcpy(ret, ps->pack[index]->id, PACK_ID_LEN);
	pthread_mutex_unlock(&ps->lock);
}

uint32_t packset_count(struct packset *ps)
{
	uint32_t nr;

	pthread_mutex_lock(&ps->lock);
	nr = ps->nr;
	pthread_mutex_unlock(&ps->lock);
	return nr;
}

/* --- opening (lock held) -------------------------------------------------- */

/* Is the file the pack that it is said to be? */
static int check_file(struct packset *ps, const struct pack *p, int fd,
		      struct err *e)
{
	uint8_t raw[PACK_HEAD_LEN];
	char want[PACK_NICK_LEN], got[PACK_NICK_LEN];
	struct pack_head head;
	ssize_t n = io_read(ps->io, fd, raw, sizeof(raw), 0);
	int r;

	pack_nick(want, p->id);
	if (n < 0)
		return err_sys(e, (int)-n, "read the header of pack %s", want);
	if (n < (ssize_t)sizeof(raw))
		return err_set(e, -EBADMSG, ERR_CORRUPT,
			       "pack %s is cut off in its header", want);
	r = pack_head_decode(&head, raw, e);
	if (r < 0)
		return err_wrap(e, r, "pack %s", want);
	if (!memcmp(head.id, p->id, PACK_ID_LEN))
		return 0;
	pack_nick(got, head.id);
	return err_set(e, -EBADMSG, ERR_CORRUPT,
		       "the file of pack %s holds pack %s", want, got);
}

static int open_pack(struct packset *ps, struct pack *p, struct err *e)
{
	uint8_t key[CRYPT_KEY_LEN];
	int fd = -1, r;

	if (p->fd >= 0)
		return 0;
	r = ps->supply(ps->ctx, p->id, &fd, key, e);
	if (r < 0) {
		char nick[PACK_NICK_LEN];

		pack_nick(nick, p->id);
		return err_wrap(e, r, "get pack %s", nick);
	}
	r = check_file(ps, p, fd, e);
	if (r < 0) {
		close(fd);
	} else {
		p->fd = fd;
		memcpy(p->key, key, sizeof(key));
	}
	base_wipe(key, sizeof(key));
	return r;
}

int packset_put(struct packset *ps, const uint8_t id[PACK_ID_LEN], int fd,
		const uint8_t key[CRYPT_KEY_LEN], struct err *e)
{
	uint32_t index;
	int r;

	pthread_mutex_lock(&ps->lock);
	r = index_of(ps, id, &index, e);
	if (r == 0)
		r = check_file(ps, ps->pack[index], fd, e);
	if (r == 0 && ps->pack[index]->fd >= 0) {
		close(fd); /* had it already */
	} else if (r == 0) {
		ps->pack[index]->fd = fd;
		memcpy(ps->pack[index]->key, key, CRYPT_KEY_LEN);
	}
	pthread_mutex_unlock(&ps->lock);
	return r;
}

static int get_open(struct packset *ps, uint32_t index, struct pack **ret,
		    struct err *e)
{
	int r;

	pthread_mutex_lock(&ps->lock);
	PRE(index < ps->nr);
	r = open_pack(ps, ps->pack[index], e);
	*ret = ps->pack[index];
	pthread_mutex_unlock(&ps->lock);
	return r;
}

int packset_open(struct packset *ps, uint32_t index, struct err *e)
{
	struct pack *pack;

	return get_open(ps, index, &pack, e);
}

const char *packset_where(struct packset *ps, uint64_t loc,
			  char buf[PACKSET_WHERE_LEN])
{
	uint8_t id[PACK_ID_LEN];
	char nick[PACK_NICK_LEN];

	packset_id(ps, loc_pack(loc), id);
	pack_nick(nick, id);
	snprintf(buf, PACKSET_WHERE_LEN, "pack %s at %llu", nick,
		 (unsigned long long)loc_offset(loc));
	return buf;
}

static int read_raw(struct packset *ps, const struct pack *p, void *to,
		    size_t len, uint64_t off, size_t *ret_len, struct err *e)
{
	ssize_t n = io_read(ps->io, p->fd, to, len, off);
	char nick[PACK_NICK_LEN];

	if (n >= 0) {
		*ret_len = (size_t)n;
		return 0;
	}
	pack_nick(nick, p->id);
	return err_sys(e, (int)-n, "read pack %s at %llu", nick,
		       (unsigned long long)off);
}

int packset_pread(struct packset *ps, uint32_t index, void *p, size_t len,
		  uint64_t off, size_t *ret_len, struct err *e)
{
	struct pack *pack;
	int r = get_open(ps, index, &pack, e);

	return r < 0 ? r : read_raw(ps, pack, p, len, off, ret_len, e);
}

/* --- readers -------------------------------------------------------------- */

#define CACHE_LEN 16 /* frames: 256 KiB */

/* A pack as one thread sees it. */
struct reader_pack {
	struct pack *pack; /* NULL: not used yet */
	struct frame_key key;
};

struct cached {
	uint64_t loc; /* of the frame (slot 0); LOC_BASE: none */
	unsigned int pages;
	uint8_t *plain;
};

struct packset_reader {
	struct packset *ps;
	struct zst *z;
	struct reader_pack *pack;
	uint32_t nr;
	uint8_t *raw; /* room for any data frame */
	struct cached cache[CACHE_LEN];
	unsigned int next; /* the cache's oldest */
};

struct packset_reader *packset_reader_new(struct packset *ps)
{
	struct packset_reader *r = base_alloc(sizeof(*r));

	r->ps = ps;
	r->z = zst_new(1);
	r->raw = base_alloc(frame_bound(FRAME_DATA_MAX));
	return r;
}

void packset_reader_free(struct packset_reader *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < r->nr; i++)
		frame_key_done(&r->pack[i].key);
	for (size_t i = 0; i < CACHE_LEN; i++)
		free(r->cache[i].plain);
	free(r->pack);
	free(r->raw);
	zst_free(r->z);
	free(r);
}

static int reader_pack(struct packset_reader *r, uint32_t index,
		       struct reader_pack **ret, struct err *e)
{
	struct pack *pack;
	int n;

	if (index >= r->nr) {
		uint32_t nr = MAX(index + 1, 2 * r->nr);

		r->pack = base_realloc(r->pack, nr * sizeof(*r->pack));
		memset(r->pack + r->nr, 0, (nr - r->nr) * sizeof(*r->pack));
		r->nr = nr;
	}
	*ret = &r->pack[index];
	if ((*ret)->pack)
		return 0;
	n = get_open(r->ps, index, &pack, e);
	if (n < 0)
		return n;
	frame_key_init(&(*ret)->key, pack->id, pack->key);
	(*ret)->pack = pack;
	return 0;
}

static int damaged(struct packset_reader *r, uint64_t loc, struct err *e)
{
	char where[PACKSET_WHERE_LEN];

	return err_set(e, -EBADMSG, ERR_CORRUPT,
		       "%s: the frame there is damaged, cut off or not the "
		       "one that was written; restore the pack from a copy, "
		       "or use another point",
		       packset_where(r->ps, loc, where));
}

int packset_open_raw(struct packset_reader *r, uint64_t loc, uint8_t *raw,
		     size_t len, struct frame *ret, void *plain, struct err *e)
{
	struct reader_pack *p;
	int n = reader_pack(r, loc_pack(loc), &p, e);

	if (n < 0)
		return n;
	n = frame_open(&p->key, r->z, loc_offset(loc), raw, len, ret, plain,
		       FRAME_DATA_MAX);
	if (n < 0 || ret->type != FRAME_PAGES)
		return damaged(r, loc, e);
	return 0;
}

/* Reads the data frame of `loc` into the cache's oldest place. */
static int fill(struct packset_reader *r, uint64_t loc, struct cached **ret,
		struct err *e)
{
	struct cached *c = &r->cache[r->next++ % CACHE_LEN];
	struct reader_pack *p;
	struct frame f;
	size_t len;
	int n;

	n = reader_pack(r, loc_pack(loc), &p, e);
	if (n < 0)
		return n;
	n = read_raw(r->ps, p->pack, r->raw, frame_bound(FRAME_DATA_MAX),
		     loc_offset(loc), &len, e);
	if (n < 0)
		return n;
	if (!c->plain)
		c->plain = base_alloc(FRAME_DATA_MAX);
	c->loc = LOC_BASE;
	n = packset_open_raw(r, loc, r->raw, len, &f, c->plain, e);
	if (n < 0)
		return n;
	c->loc = loc - loc_slot(loc);
	c->pages = f.pages;
	*ret = c;
	return 0;
}

int packset_read_page(struct packset_reader *r, uint64_t loc, void *page,
		      struct err *e)
{
	uint64_t frame = loc - loc_slot(loc);
	struct cached *c = NULL;

	PRE(loc_is_stored(loc));
	for (size_t i = 0; i < CACHE_LEN && !c; i++) {
		if (r->cache[i].loc == frame)
			c = &r->cache[i];
	}
	if (!c) {
		int n = fill(r, loc, &c, e);

		if (n < 0)
			return n;
	}
	if (loc_slot(loc) >= c->pages)
		return damaged(r, loc, e);
	memcpy(page, c->plain + loc_slot(loc) * CRYO_PAGE, CRYO_PAGE);
	return 0;
}

static int read_meta(struct packset_reader *r, uint64_t loc,
		     enum frame_type type, struct buf *ret, struct err *e)
{
	SCOPED_FREE uint8_t *raw = NULL;
	uint8_t head[FRAME_HEAD_LEN];
	struct reader_pack *p;
	struct frame f;
	size_t len;
	int n;

	n = reader_pack(r, loc_pack(loc), &p, e);
	if (n < 0)
		return n;
	n = read_raw(r->ps, p->pack, head, sizeof(head), loc_offset(loc), &len,
		     e);
	if (n < 0)
		return n;
	if (len < sizeof(head) || frame_head_decode(&f, head) < 0 ||
	    f.type != type)
		return damaged(r, loc, e);
	raw = base_alloc(frame_size(&f));
	n = read_raw(r->ps, p->pack, raw, frame_size(&f), loc_offset(loc), &len,
		     e);
	if (n < 0)
		return n;
	buf_reset(ret);
	n = frame_open(&p->key, r->z, loc_offset(loc), raw, len, &f,
		       buf_reserve(ret, f.plain_len), f.plain_len);
	if (n < 0 || f.type != type)
		return damaged(r, loc, e);
	ret->len = f.plain_len;
	return 0;
}

int packset_read_meta(struct packset_reader *r, uint64_t loc,
		      enum frame_type type, struct buf *ret, struct err *e)
{
	PRE(loc_is_stored(loc) && type != FRAME_PAGES);
	return read_meta(r, loc, type, ret, e);
}
