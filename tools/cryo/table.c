/*
 * table: prints columns.
 *
 * Invariants: the number of cells is a whole number of rows when printed;
 * nothing that came over the wire reaches the terminal as a control byte.
 */
#include "tools/cryo/table.h"

#include <inttypes.h>
#include <stdarg.h>

void table_init(struct table *t, const char *const *titles, int nr_columns,
		unsigned right)
{
	PRE(nr_columns > 0 && nr_columns <= TABLE_COLUMNS_MAX);
	*t = (struct table){ .nr_columns = nr_columns, .right = right };
	for (int i = 0; i < nr_columns; i++)
		table_put(t, titles[i]);
}

void table_put(struct table *t, const char *cell)
{
	char *s = base_strdup(cell);

	for (char *p = s; *p; p++)
		if ((unsigned char)*p < 32 || *p == 127)
			*p = '?';
	if (t->nr == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 64;
		t->cells = base_realloc(t->cells, t->cap * sizeof(char *));
	}
	t->cells[t->nr++] = s;
}

void table_putf(struct table *t, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	table_put(t, text);
}

/* Characters, not bytes, so that UTF-8 names don't break the columns. */
static int table_width(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static void table_print_cell(const struct table *t, size_t i, int width, FILE *out)
{
	int column = (int)(i % (size_t)t->nr_columns);
	int pad = width - table_width(t->cells[i]);
	bool last = column == t->nr_columns - 1;

	if (t->right >> column & 1)
		fprintf(out, "%*s%s", pad, "", t->cells[i]);
	else if (last)
		fputs(t->cells[i], out);
	else
		fprintf(out, "%s%*s", t->cells[i], pad, "");
	fputs(last ? "\n" : "  ", out);
}

void table_print(const struct table *t, FILE *out)
{
	int width[TABLE_COLUMNS_MAX] = { 0 };
	size_t columns = (size_t)t->nr_columns;

	PRE(t->nr % columns == 0);
	for (size_t i = 0; i < t->nr; i++)
		width[i % columns] =
			MAX(width[i % columns], table_width(t->cells[i]));
	for (size_t i = 0; i < t->nr; i++)
		table_print_cell(t, i, width[i % columns], out);
}

void table_done(struct table *t)
{
	for (size_t i = 0; i < t->nr; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){ 0 };
}

void table_size(char ret[TABLE_SIZE_LEN], int64_t bytes)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
	int64_t tenths = bytes * 10;
	size_t u = 0;

	if (bytes < 1024) {
		snprintf(ret, TABLE_SIZE_LEN, "%" PRId64 " B", bytes);
		return;
	}
	tenths /= 1024;
	while (tenths >= 10240 && u + 1 < ARRAY_LEN(units)) {
		tenths /= 1024;
		u++;
	}
	snprintf(ret, TABLE_SIZE_LEN, "%" PRId64 ".%" PRId64 " %s", tenths / 10,
		 tenths % 10, units[u]);
}

void table_time(char ret[TABLE_TIME_LEN], const char *rfc3339)
{
	if (strlen(rfc3339) < 20 || rfc3339[10] != 'T') {
		base_strcpy(ret, TABLE_TIME_LEN, rfc3339);
		return;
	}
	snprintf(ret, TABLE_TIME_LEN, "%.10s %.8sZ", rfc3339, rfc3339 + 11);
}
