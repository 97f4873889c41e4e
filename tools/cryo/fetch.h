/*
 * fetch: files and folders out of a sandbox. Shared by cp and run.
 */
#ifndef TOOLS_CRYO_FETCH_H
#define TOOLS_CRYO_FETCH_H

#include "tools/cryo/cryo.h"

#define FETCH_MAX (16ull << 30) /* bytes of one fetch */

/* {"kind": "file" | "directory" | ..., "size", "mode"}; owned */
int fetch_stat(struct cryo *x, const char *session, const char *path,
	       json_t **ret, struct err *e);

/* One file to `dst`, which appears whole. `mode` 0: as in the sandbox. */
int fetch_file(struct cryo *x, const char *session, const char *path,
	       const char *dst, struct err *e);

/* What is in a folder (by tar in the sandbox) into the folder `dst`. */
int fetch_folder(struct cryo *x, const char *session, const char *path,
		 const char *dst, struct err *e);

#endif
