/*
 * disk_overlay: the sealed sparse file below a sandbox's disk.
 *
 * Block n of the disk lies at byte n * 4096 of the file, encrypted alone, so
 * that any block can be replaced without reading another. There is no tag:
 * the file is read back by the process that wrote it, within one life, and
 * whoever could change it (the data folder's owner) could as well change the
 * process. What leaves this machine or outlives the process goes through
 * packs, which are authenticated.
 *
 * Invariants:
 *  1. Plaintext is never handed to a write of the file: blocks are encrypted
 *     into a buffer of this module, and that is what is written.
 *  2. The key exists in this process's memory alone and is drawn anew for
 *     each overlay; no two overlays share a key stream.
 *
 * A crash leaves a file of noise that nothing can open; its owner unlinks it.
 */
#include "snapshotter/disk_overlay.h"

#include <fcntl.h>

#include "store/crypt.h"
#include "store/datadir.h"

struct overlay {
	int fd;
	uint32_t nr_blocks;
	struct crypt_xts *xts[OVERLAY_LANES];
	uint8_t *sealed; /* OVERLAY_RUN_MAX blocks on their way to the file */
};

static uint64_t offset_of(uint32_t block)
{
	return (uint64_t)block * CRYO_PAGE;
}

int overlay_new(struct overlay **ret, int fd, uint32_t nr_blocks, struct err *e)
{
	uint8_t key[CRYPT_XTS_KEY_LEN];
	struct overlay *o;

	PRE(fd >= 0 && nr_blocks);
	if (ftruncate(fd, 0) || ftruncate(fd, (off_t)offset_of(nr_blocks))) {
		int r = err_sys(e, errno, "size the disk's overlay to %u MiB",
				nr_blocks >> 8);
		close(fd);
		return r;
	}
	o = base_alloc(sizeof(*o));
	o->fd = fd;
	o->nr_blocks = nr_blocks;
	o->sealed = base_alloc((size_t)OVERLAY_RUN_MAX * CRYO_PAGE);
	base_random(key, sizeof(key));
	for (int i = 0; i < OVERLAY_LANES; i++)
		o->xts[i] = crypt_xts_new(key);
	base_wipe(key, sizeof(key));
	*ret = o;
	return 0;
}

void overlay_free(struct overlay *o)
{
	if (!o)
		return;
	for (int i = 0; i < OVERLAY_LANES; i++)
		crypt_xts_free(o->xts[i]);
	free(o->sealed);
	close(o->fd);
	free(o);
}

static void pre_range(const struct overlay *o, uint32_t block, uint32_t nr)
{
	PRE(nr && nr <= OVERLAY_RUN_MAX);
	PRE(block < o->nr_blocks && nr <= o->nr_blocks - block);
}

int overlay_read(struct overlay *o, enum overlay_lane lane, uint32_t block,
		 uint32_t nr, void *ret, struct err *e)
{
	uint8_t *p = ret;
	int r;

	pre_range(o, block, nr);
	r = base_pread_all(o->fd, p, (size_t)nr * CRYO_PAGE, offset_of(block));
	if (r)
		return err_sys(e, -r,
			       "read disk block %u from the overlay; check the "
			       "data folder's file system",
			       block);
	for (uint32_t i = 0; i < nr; i++, p += CRYO_PAGE)
		crypt_xts_decrypt(o->xts[lane], (uint64_t)block + i, p, p);
	return 0;
}

static int write_failed(int r, uint32_t block, struct err *e)
{
	return err_sys(e, -r,
		       "write disk block %u to the overlay; free space in the "
		       "data folder, then let the session continue",
		       block);
}

int overlay_room(const struct overlay *o, uint32_t block, uint64_t leave,
		 struct err *e)
{
	int r = datadir_room(o->fd, leave);

	return r ? write_failed(r, block, e) : 0;
}

int overlay_write(struct overlay *o, uint32_t block, uint32_t nr, const void *p,
		  struct err *e)
{
	const uint8_t *in = p;
	uint8_t *out = o->sealed;
	int r;

	pre_range(o, block, nr);
	for (uint32_t i = 0; i < nr; i++, in += CRYO_PAGE, out += CRYO_PAGE)
		crypt_xts_encrypt(o->xts[OVERLAY_GUEST], (uint64_t)block + i,
				  in, out);
	r = base_pwrite_all(o->fd, o->sealed, (size_t)nr * CRYO_PAGE,
			    offset_of(block));
	return r ? write_failed(r, block, e) : 0;
}

void overlay_punch(struct overlay *o, uint32_t block, uint32_t nr)
{
	PRE(block < o->nr_blocks && nr <= o->nr_blocks - block);
	/* Only space is at stake: a file system that can't is no error. */
	(void)fallocate(o->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)offset_of(block), (off_t)offset_of(nr));
}
