/*
 * moment: says which point was meant by --at. On standard error, since what
 * is on standard output is for the next program.
 */
#include "tools/cryo/moment.h"

#include <stdio.h>

void moment_say(const json_t *op)
{
	const json_t *found = json_object_get(op, "found");
	const char *off = cryo_text(found, "before_asked");
	bool exact = !strcmp(off, "-") || !strcmp(off, "0s") || !strcmp(off, "0");

	if (!found)
		return;
	fprintf(stderr, "cryo: point %s of %s", cryo_text(found, "id"),
		cryo_text(found, "time"));
	if (strcmp(cryo_text(found, "name"), "-"))
		fprintf(stderr, " \"%s\"", cryo_text(found, "name"));
	if (!exact)
		fprintf(stderr, ", %s before the moment asked for", off);
	fprintf(stderr, "%s\n",
		cryo_bool(found, "on_line") ? "" : ", on a line that was left");
}
