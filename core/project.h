/*
 * project: the rows that follow from an event. The engine calls it for each
 * event it appends; verify folds a whole log into empty tables and compares.
 */
#ifndef CORE_PROJECT_H
#define CORE_PROJECT_H

#include "core/ports.h"

/*
 * Brings all tables up to date with one event. Uses of `w` only ops->get,
 * ops->scan, put and del, with w->ctx as the view; a verifier may leave the
 * rest NULL. Depends on nothing but the rows and the event. -EPROTO: the
 * event can't follow the rows (a broken log); else what the port returned.
 * Unknown types change nothing.
 */
int project_apply(const struct store_port *w, const struct event *ev,
		  struct err *e);

#endif
