/*
 * table: columns for people. Cells are gathered, then printed as wide as
 * the widest of each column; control characters in them are shown as '?'.
 */
#ifndef TOOLS_CRYO_TABLE_H
#define TOOLS_CRYO_TABLE_H

#include "core/buf.h"

#include <stdio.h>

#define TABLE_COLUMNS_MAX 10

struct table {
	int nr_columns;
	unsigned right; /* bit per column: align right */
	char **cells;
	size_t nr, cap;
};

/* `titles` are the first row. `right` is a bit set of columns. */
void table_init(struct table *t, const char *const *titles, int nr_columns,
		unsigned right);
void table_put(struct table *t, const char *cell); /* copies */
void table_putf(struct table *t, const char *fmt, ...) PRINTF(2, 3);
void table_print(const struct table *t, FILE *out);
void table_done(struct table *t);

/* "12 B", "3.4 KiB", "1.2 GiB" */
#define TABLE_SIZE_LEN 40
void table_size(char ret[TABLE_SIZE_LEN], int64_t bytes);

/* Local form of an RFC 3339 time: seconds only, "2026-01-31 12:00:00Z". */
#define TABLE_TIME_LEN 24
void table_time(char ret[TABLE_TIME_LEN], const char *rfc3339);

#endif
