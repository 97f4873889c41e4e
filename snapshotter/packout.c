/*
 * packout: writes packs, one after the other. FORMAT: ADR 0030.
 *
 * Invariants:
 *  1. NONCE-ONCE: a frame number is used for one payload: it counts up when a
 *     frame is sealed, whatever happens to the frame then, and the pack that
 *     failed a write or sync gets no further frame.
 *  2. A pack is synced before it is left for the next: packout_sync() covers
 *     all packs that a capture went through.
 *  3. No frame starts at or past the limit, so a place always fits a loc.
 *
 * A crash leaves a pack with a torn tail; the next process never writes to
 * it. A pack that was asked for and got no frame is an empty file.
 */
#include "snapshotter/packout.h"

#include "snapshotter/append.h"

#include <stdio.h>

struct packout {
	struct packer_config c;
	struct append *append;
	struct zst *z;
	uint8_t *sealed; /* room for any frame */
	int fd; /* -1: no pack in work */
	uint8_t id[PACK_ID_LEN];
	uint32_t index; /* in the packset */
	struct frame_key key;
	uint32_t number; /* of the next frame */
	int64_t opened_ns; /* monotonic */
	uint64_t bytes;
};

struct packout *packout_new(const struct packer_config *c)
{
	struct packout *po = base_alloc(sizeof(*po));

	po->c = *c;
	if (!po->c.rotate_len)
		po->c.rotate_len = PACK_ROTATE_LEN;
	PRE(po->c.rotate_len > PACK_HEAD_LEN &&
	    po->c.rotate_len <= PACK_ROTATE_LEN);
	po->append = append_new(c->io);
	po->z = zst_new(1);
	po->sealed = base_alloc(frame_bound(FRAME_PLAIN_MAX));
	po->fd = -1;
	return po;
}

void packout_free(struct packout *po)
{
	if (!po)
		return;
	append_free(po->append); /* waits; then the descriptor may go */
	po->append = NULL;
	packout_close(po);
	zst_free(po->z);
	free(po->sealed);
	free(po);
}

void packout_close(struct packout *po)
{
	if (po->fd < 0)
		return;
	if (po->append)
		append_start(po->append, -1);
	close(base_steal_fd(&po->fd));
	frame_key_done(&po->key);
}

uint64_t packout_bytes(const struct packout *po)
{
	return po->bytes;
}

/* The one way a pack ends badly. */
static int fail(struct packout *po, int r, const char *what, struct err *e)
{
	char nick[PACK_NICK_LEN];

	pack_nick(nick, po->id);
	packout_close(po);
	return err_sys(e, -r,
		       "%s pack %s (it is closed now; the next capture starts "
		       "another)",
		       what, nick);
}

static int put_head(struct packout *po, struct err *e)
{
	struct pack_head head = { .created_ns = clock_wall(po->c.clock) };
	uint8_t raw[PACK_HEAD_LEN];
	int r;

	memcpy(head.id, po->id, PACK_ID_LEN);
	pack_head_encode(raw, &head);
	r = append_put(po->append, raw, sizeof(raw));
	return r < 0 ? fail(po, r, "write", e) : 0;
}

static int open_next(struct packout *po, struct err *e)
{
	uint32_t known = packset_count(po->c.ps);
	uint8_t key[CRYPT_KEY_LEN];
	int fd = -1, r;

	r = po->c.next_pack(po->c.ctx, po->id, key, &fd, e);
	if (r < 0)
		return err_wrap(e, r, "get a new pack");
	r = packset_index(po->c.ps, po->id, &po->index, e);
	if (r == 0 && po->index < known)
		r = err_set(e, -EEXIST, ERR_INTERNAL,
			    "the pack that was given as new is in use already; "
			    "writing to it would repeat nonces");
	if (r < 0) {
		close(fd);
		base_wipe(key, sizeof(key));
		return r;
	}
	po->fd = fd;
	po->number = 0;
	po->opened_ns = clock_mono(po->c.clock);
	frame_key_init(&po->key, po->id, key);
	base_wipe(key, sizeof(key));
	append_start(po->append, fd);
	return put_head(po, e);
}

void packout_begin(struct packout *po)
{
	int64_t age = clock_mono(po->c.clock) - po->opened_ns;

	if (po->fd >= 0 && age >= PACK_ROTATE_S * NS_PER_S)
		packout_close(po);
}

int packout_next(struct packout *po, uint64_t *ret_loc, struct err *e)
{
	if (po->fd >= 0 && append_pos(po->append) >= po->c.rotate_len) {
		int r = packout_sync(po, e);

		if (r < 0)
			return r;
		packout_close(po);
	}
	if (po->fd < 0) {
		int r = open_next(po, e);

		if (r < 0)
			return r;
	}
	*ret_loc = loc_make(po->index, append_pos(po->append), 0);
	return 0;
}

int packout_put(struct packout *po, struct frame *f, const void *plain,
		uint64_t *ret_loc, struct err *e)
{
	uint64_t loc;
	size_t n;
	int r;

	r = packout_next(po, &loc, e);
	if (r < 0)
		return r;
	f->number = po->number++;
	n = frame_seal(&po->key, po->z, loc_offset(loc), f, plain, po->sealed);
	r = append_put(po->append, po->sealed, n);
	if (r < 0)
		return fail(po, r, "write", e);
	po->bytes += n;
	*ret_loc = loc;
	return 0;
}

int packout_sync(struct packout *po, struct err *e)
{
	int r;

	if (po->fd < 0)
		return 0;
	r = append_sync(po->append);
	return r < 0 ? fail(po, r, "sync", e) : 0;
}
