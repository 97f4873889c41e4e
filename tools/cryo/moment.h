/*
 * moment: how verbs with --at say which point a moment turned out to be.
 */
#ifndef TOOLS_CRYO_MOMENT_H
#define TOOLS_CRYO_MOMENT_H

#include "tools/cryo/cryo.h"

/* On standard error: the point of `op` that --at meant, and how far off. */
void moment_say(const json_t *op);

#endif
