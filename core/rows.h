/*
 * rows: reads and writes single rows through the ports, by their C structs.
 * Readers work on any view; writers on the store port inside begin..commit.
 * All gets return 0, -ENOENT (e untouched), or what the port returned.
 */
#ifndef CORE_ROWS_H
#define CORE_ROWS_H

#include "core/exec_row.h"
#include "core/operation.h"
#include "core/ports.h"
#include "core/session_row.h"

/* A place to read from: a view, or a store inside its transaction. */
struct reader {
	const struct view_ops *ops;
	void *view;
};

static inline struct reader reader_of(const struct store_port *w)
{
	return (struct reader){ w->ops, w->ctx };
}

int rows_session(const struct reader *r, const char *id, struct session *ret,
		 struct err *e);
int rows_session_by_name(const struct reader *r, const char *tenant,
			 const char *name, char ret_id[ID_LEN + 1],
			 struct err *e);
int rows_operation(const struct reader *r, const char *id,
		   struct operation *ret, struct err *e); /* operation_done */
int rows_exec(const struct reader *r, const char *id, struct exec *ret,
	      struct err *e); /* exec_done */
int rows_point(const struct reader *r, const char *id, struct point *ret,
	       struct err *e);
int rows_point_by_name(const struct reader *r, const char *session,
		       const char *name, struct point *ret, struct err *e);

/*
 * The exec of a session that has this tag in the guest. Looks at the id
 * first, then through the session's execs.
 */
int rows_exec_by_tag(const struct reader *r, const char *session,
		     const char *tag, struct exec *ret, struct err *e);

/* All execs of a session, or only the running ones; array owned by caller. */
int rows_execs(const struct reader *r, const char *session, bool only_running,
	       struct exec **ret, int *ret_nr, struct err *e);

/* A row as a JSON object; the caller owns *ret. */
int rows_json(const struct reader *r, enum table t, const void *key,
	      size_t key_len, json_t **ret, struct err *e);

int rows_put_session(const struct store_port *w, const struct session *s,
		     struct err *e);
int rows_put_operation(const struct store_port *w, const struct operation *op,
		       struct err *e);
int rows_put_exec(const struct store_port *w, const struct exec *x,
		  struct err *e);
int rows_put_point(const struct store_port *w, const struct point *p,
		   struct err *e);
int rows_put_json(const struct store_port *w, enum table t, const void *key,
		  size_t key_len, const json_t *o, struct err *e);

/* Key made of two strings without NULs; returns its length. */
size_t rows_key2(uint8_t ret_key[ROW_KEY_MAX], const char *a, const char *b);

#endif
