/*
 * zst: zstd (RFC 8878) for frames and manifests.
 *
 * Frames are plain zstd frames with their content size and no checksum: the
 * cipher around them authenticates every byte, and any zstd tool can read
 * what is inside.
 *
 * Invariants:
 *  1. A decoder writes at most what the caller wants, whatever the input
 *     says, and keeps no window: memory is bounded by the two buffers.
 *  2. -EBADMSG means the input; for want of memory the process ends.
 *
 * A crash leaves nothing behind: no state outlives the process.
 */
#include "store/zst.h"

#include <zstd.h>
#include <zstd_errors.h>

struct zst {
	ZSTD_CCtx *c;
	ZSTD_DCtx *d;
};

struct zst *zst_new(int level)
{
	struct zst *z = base_alloc(sizeof(*z));

	z->c = ZSTD_createCCtx();
	z->d = ZSTD_createDCtx();
	if (!z->c || !z->d ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(z->c, ZSTD_c_compressionLevel,
						level)))
		NEVER("no memory for zstd, or a level it does not know");
	return z;
}

void zst_free(struct zst *z)
{
	if (!z)
		return;
	ZSTD_freeCCtx(z->c);
	ZSTD_freeDCtx(z->d);
	free(z);
}

size_t zst_bound(size_t len)
{
	return ZSTD_compressBound(len);
}

ssize_t zst_compress(struct zst *z, const void *in, size_t len, void *out,
		     size_t room)
{
	size_t n = ZSTD_compress2(z->c, out, room, in, len);

	if (!ZSTD_isError(n))
		return (ssize_t)n;
	if (ZSTD_getErrorCode(n) != ZSTD_error_dstSize_tooSmall)
		NEVER("zstd can't compress");
	return -ENOSPC;
}

int zst_decompress(struct zst *z, const void *in, size_t len, void *out,
		   size_t want)
{
	size_t n = ZSTD_decompressDCtx(z->d, out, want, in, len);

	if (ZSTD_isError(n) &&
	    ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
		NEVER("no memory for zstd");
	return !ZSTD_isError(n) && n == want ? 0 : -EBADMSG;
}
