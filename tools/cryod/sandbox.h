/*
 * sandbox: api/sandbox_port.h over the links to the cryo-vms.
 */
#ifndef TOOLS_CRYOD_SANDBOX_H
#define TOOLS_CRYOD_SANDBOX_H

#include "tools/cryod/output.h"

struct sandbox_calls {
	struct qemu *qemu;
	struct output *output;
	const struct view_port *views;
};

/* Borrows `c`. */
void sandbox_port_init(struct sandbox_port *ret, struct sandbox_calls *c);

#endif
