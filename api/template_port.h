/*
 * template_port: how the door has a template taken in. The files lie ready
 * in the data folder, put there by `cryo template build` as root; the daemon
 * checks them against their digests and makes the template known.
 */
#ifndef API_TEMPLATE_PORT_H
#define API_TEMPLATE_PORT_H

#include "core/err.h"

struct template_port {
	void *ctx;
	/*
	 * Reads DATA/templates/DIGEST/template.json, checks the files, adds
	 * it to the log. `digest` is 64 lower-case hex digits: checked. A
	 * template that is there already is fine. Any thread; may take
	 * seconds. NOT_FOUND, CORRUPT.
	 */
	int (*add)(void *ctx, const char *digest, const char *actor,
		   struct err *e);
};

#endif
