/*
 * base64: RFC 4648 section 4, with padding: how bytes travel inside JSON.
 */
#ifndef API_BASE64_H
#define API_BASE64_H

#include "core/buf.h"

/* Appends the text of `len` bytes. */
void base64_encode(struct buf *b, const void *p, size_t len);

/*
 * Appends the bytes of `len` characters; -EINVAL for anything but whole,
 * padded, canonical groups (then nothing is appended).
 */
int base64_decode(struct buf *b, const char *p, size_t len);

#endif
