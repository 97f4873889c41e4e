/*
 * memrows: tables of rows in memory behind the store's port: where a log is
 * folded anew. One thread.
 */
#ifndef TOOLS_VERIFY_MEMROWS_H
#define TOOLS_VERIFY_MEMROWS_H

#include "core/ports.h"

struct memrows;

struct memrows *memrows_new(void);
void memrows_free(struct memrows *m); /* NULL is fine */

/* put, del and ops {get, scan}; the rest is NULL. Keeps m by reference. */
void memrows_port(struct memrows *m, struct store_port *ret);

#endif
