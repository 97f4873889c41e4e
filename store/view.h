/*
 * view: what core sees of the store: the port of read views and the port of
 * the only writer (core/ports.h), on top of evlog and rows.
 *
 * A view is one LMDB read transaction: while it is open, pages freed since
 * can't be used again and the file grows. Open one per request, close it
 * before waiting for anything; a callback may copy and stop (return 1), but
 * never blocks. A follower reads a batch, closes, waits, opens again.
 */
#ifndef STORE_VIEW_H
#define STORE_VIEW_H

#include "core/ports.h"
#include "store/evlog.h"

/* Both ports keep the log by reference. */
void view_read_port(struct evlog *log, struct view_port *ret);
void view_store_port(struct evlog *log, struct store_port *ret);

#endif
