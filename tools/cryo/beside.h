/*
 * beside: where the other programs and the data are.
 */
#ifndef TOOLS_CRYO_BESIDE_H
#define TOOLS_CRYO_BESIDE_H

#include "core/err.h"

/* "DIR/NAME", DIR being the folder of this program; caller frees. */
char *beside_path(const char *name);

/* The same, if it can be executed; -ENOENT says what to do. */
int beside_program(const char *name, char **ret, struct err *e);

/* --data, else CRYO_DATA, else the default; absolute; caller frees. */
char *beside_data(const char *given);

#endif
