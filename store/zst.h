/*
 * zst: the one place that calls zstd. Contexts are made once and reused;
 * one context serves one thread at a time. Decoding is bounded by what the
 * caller expects, never by what the input claims.
 */
#ifndef STORE_ZST_H
#define STORE_ZST_H

#include "core/base.h"

struct zst;
struct zst *zst_new(int level);
void zst_free(struct zst *z);
size_t zst_bound(size_t len); /* room that any input of len may need */

/* Bytes written to out, or -ENOSPC (room too small; store it as it is). */
ssize_t zst_compress(struct zst *z, const void *in, size_t len, void *out,
		     size_t room);

/* Exactly want bytes must come out; anything else is -EBADMSG. */
int zst_decompress(struct zst *z, const void *in, size_t len, void *out,
		   size_t want);

#endif
