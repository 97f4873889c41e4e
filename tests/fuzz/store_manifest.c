/*
 * Any bytes as a manifest and as a map chunk: refused, or what comes out
 * encodes to bytes that decode to the same again. (Not the same bytes: a
 * writer may code a place in more than one way.)
 */
#include "store/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void try_manifest(const uint8_t *p, size_t len)
{
	SCOPED(buf_done) struct buf one = { 0 };
	SCOPED(buf_done) struct buf two = { 0 };
	SCOPED(manifest_done) struct manifest m = { 0 };
	struct err e;

	if (manifest_decode(&m, p, len, &e) < 0 || manifest_encode(&one, &m))
		return;
	manifest_done(&m);
	POST(manifest_decode(&m, one.p, one.len, &e) == 0);
	POST(manifest_encode(&two, &m) == 0);
	POST(one.len == two.len && !memcmp(one.p, two.p, one.len));
}

static void try_chunk(const uint8_t *p, size_t len)
{
	SCOPED(buf_done) struct buf one = { 0 };
	SCOPED(manifest_chunk_done) struct manifest_chunk c = { 0 };
	struct err e;

	if (manifest_chunk_decode(&c, p, len, &e) < 0 ||
	    manifest_chunk_encode(&one, &c))
		return;
	manifest_chunk_done(&c);
	POST(manifest_chunk_decode(&c, one.p, one.len, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	if (len > FRAME_META_MAX)
		return 0;
	try_manifest(p, len);
	try_chunk(p, len);
	return 0;
}
