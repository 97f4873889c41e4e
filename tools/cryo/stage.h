/*
 * stage: puts a built template into the data folder, where the daemon may
 * read but not change it, and has the daemon take it in.
 */
#ifndef TOOLS_CRYO_STAGE_H
#define TOOLS_CRYO_STAGE_H

#include "tools/cryo/cryo.h"

#define STAGE_DIGEST_LEN 64

/*
 * Copies the template in folder `from` to DATA/templates/DIGEST. Needs root.
 * There already: nothing to do. *ret_digest is its digest.
 */
int stage_template(const char *data, const char *from,
		   char ret_digest[STAGE_DIGEST_LEN + 1], struct err *e);

/* Has the daemon check it and add it to the log. */
int stage_register(struct client *c, const char *digest, struct err *e);

#endif
