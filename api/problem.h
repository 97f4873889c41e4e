/*
 * problem: errors as clients see them: problem details (RFC 9457).
 *   {"type":"urn:cryo:problem:not-found","title":"Not found","status":404,
 *    "detail":"...","request":"..."}
 * `type` is the stable word of core/err.h; `detail` is for people.
 */
#ifndef API_PROBLEM_H
#define API_PROBLEM_H

#include "core/buf.h"
#include "core/err.h"

#define PROBLEM_TYPE "application/problem+json"
#define PROBLEM_URN "urn:cryo:problem:"

/* Appends the document for `e`; `status` 0: the code's own. */
void problem_write(struct buf *b, const struct err *e, unsigned status,
		   const char *request);

/*
 * The other way round, for clients: fills in `e` from a problem document, or
 * from the bare status if it is none. Returns -errno to match.
 */
int problem_read(const void *p, size_t len, unsigned status, struct err *e);

#endif
