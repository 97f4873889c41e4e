/*
 * graph: a session's timeline as lines of text. Pure: a document in, text
 * out.
 */
#ifndef TOOLS_CRYO_GRAPH_H
#define TOOLS_CRYO_GRAPH_H

#include "core/json.h"

struct graph_style {
	bool utf8; /* box drawing, else ASCII */
	bool all; /* each rolling point, else runs of them in one line */
};

/* Appends the drawing of a timeline document (GET .../timeline). */
void graph_draw(struct buf *out, const json_t *doc,
		const struct graph_style *style);

#endif
