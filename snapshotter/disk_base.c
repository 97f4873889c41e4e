/*
 * disk_base: the unchanging lower part of a sandbox's disk.
 *
 * A block that the base point maps comes from the session's packs by way of
 * ops->read_base; all others from the template's image file, which is sparse:
 * where it has a hole, or has ended, the block is zero, and that can be told
 * without reading.
 *
 * Invariants:
 *  1. Nothing here is written after init but the remembered hole, which
 *     belongs to the guest's thread.
 *  2. A read fills the whole page or fails.
 *
 * A crash leaves nothing behind.
 */
#include "snapshotter/disk_base.h"

#include <sys/stat.h>

static int template_size(int fd, uint64_t *ret, struct err *e)
{
	struct stat st;

	*ret = 0;
	if (fd < 0)
		return 0;
	if (fstat(fd, &st))
		return err_sys(e, errno, "template image: find its size");
	if (!S_ISREG(st.st_mode))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "template image: not a regular file; build the "
			       "template again");
	*ret = (uint64_t)st.st_size;
	return 0;
}

int disk_base_init(struct disk_base *b, int template_fd,
		   const struct disk_ops *ops, void *ctx, struct err *e)
{
	uint64_t len;
	int r = template_size(template_fd, &len, e);

	if (r) {
		close(template_fd);
		return r;
	}
	*b = (struct disk_base){
		.template_fd = template_fd,
		.template_len = len,
		.ops = ops,
		.ctx = ctx,
	};
	return 0;
}

void disk_base_done(struct disk_base *b)
{
	if (b->template_fd >= 0)
		close(b->template_fd);
	b->template_fd = -1;
}

static int template_read(const struct disk_base *b, uint32_t block,
			 uint8_t *page, struct err *e)
{
	uint64_t off = (uint64_t)block * DISK_BLOCK;
	size_t len = 0;
	int r;

	if (off < b->template_len)
		len = (size_t)MIN(b->template_len - off, (uint64_t)DISK_BLOCK);
	memset(page + len, 0, DISK_BLOCK - len);
	if (!len)
		return 0;
	r = base_pread_all(b->template_fd, page, len, off);
	if (!r)
		return 0;
	return err_sys(e, -r,
		       "read disk block %u from the template's image; check "
		       "that the image is whole, then let the session continue",
		       block);
}

int disk_base_read(const struct disk_base *b, uint32_t block, void *ret_page,
		   struct err *e)
{
	int r = 1;

	if (b->ops->read_base)
		r = b->ops->read_base(b->ctx, block, ret_page);
	if (r < 0)
		return err_sys(e, -r,
			       "read disk block %u from the packs of the point "
			       "that the sandbox started from; `cryo verify` "
			       "tells what is damaged",
			       block);
	return r ? template_read(b, block, ret_page, e) : 0;
}

static bool template_is_hole(struct disk_base *b, uint32_t block)
{
	uint64_t off = (uint64_t)block * DISK_BLOCK;
	off_t data;

	if (off >= b->template_len)
		return true;
	if (off >= b->hole_start && off + DISK_BLOCK <= b->hole_end)
		return true;
	data = lseek(b->template_fd, (off_t)off, SEEK_DATA);
	if (data < 0 && errno != ENXIO)
		return false;
	b->hole_start = off;
	b->hole_end = data < 0 ? UINT64_MAX : (uint64_t)data;
	return off + DISK_BLOCK <= b->hole_end;
}

bool disk_base_is_zero(struct disk_base *b, uint32_t block)
{
	const struct disk_ops *ops = b->ops;

	if (ops->read_base && !ops->maps_base)
		return false;
	if (ops->read_base && ops->maps_base(b->ctx, block))
		return false;
	return template_is_hole(b, block);
}
