/*
 * rows: single rows by their C structs. Nothing but keys and codecs: the
 * port below seals, stores and orders. No state of its own.
 */
#include "core/rows.h"

size_t rows_key2(uint8_t ret_key[ROW_KEY_MAX], const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b);

	PRE(la + lb <= ROW_KEY_MAX);
	memcpy(ret_key, a, la);
	memcpy(ret_key + la, b, lb);
	return la + lb;
}

static int row_broken(enum table t, int r, struct err *e)
{
	e->code = ERR_CORRUPT;
	return err_wrap(e, r, "row of table %d", (int)t);
}

int rows_session(const struct reader *r, const char *id, struct session *ret,
		 struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };
	int rc = r->ops->get(r->view, TABLE_SESSIONS, id, strlen(id), &b, e);

	if (rc)
		return rc;
	rc = session_decode(ret, b.p, b.len, e);
	return rc ? row_broken(TABLE_SESSIONS, rc, e) : 0;
}

int rows_session_by_name(const struct reader *r, const char *tenant,
			 const char *name, char ret_id[ID_LEN + 1], struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };
	uint8_t key[ROW_KEY_MAX];
	size_t len = rows_key2(key, tenant, name);
	int rc = r->ops->get(r->view, TABLE_SESSIONS_BY_NAME, key, len, &b, e);

	if (!rc)
		base_strcpy(ret_id, ID_LEN + 1, buf_cstr(&b));
	return rc;
}

int rows_operation(const struct reader *r, const char *id,
		   struct operation *ret, struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };
	int rc = r->ops->get(r->view, TABLE_OPERATIONS, id, strlen(id), &b, e);

	if (rc)
		return rc;
	rc = operation_decode(ret, b.p, b.len, e);
	return rc ? row_broken(TABLE_OPERATIONS, rc, e) : 0;
}

int rows_exec(const struct reader *r, const char *id, struct exec *ret,
	      struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };
	int rc = r->ops->get(r->view, TABLE_EXECS, id, strlen(id), &b, e);

	if (rc)
		return rc;
	rc = exec_decode(ret, b.p, b.len, e);
	return rc ? row_broken(TABLE_EXECS, rc, e) : 0;
}

static int point_at_key(const struct reader *r, const void *key, size_t len,
			struct point *ret, struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };
	int rc = r->ops->get(r->view, TABLE_POINTS, key, len, &b, e);

	if (rc)
		return rc;
	rc = point_decode(ret, b.p, b.len, e);
	return rc ? row_broken(TABLE_POINTS, rc, e) : 0;
}

int rows_point(const struct reader *r, const char *id, struct point *ret,
	       struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };
	int rc = r->ops->get(r->view, TABLE_POINTS_BY_ID, id, strlen(id), &b, e);

	return rc ? rc : point_at_key(r, b.p, b.len, ret, e);
}

int rows_point_by_name(const struct reader *r, const char *session,
		       const char *name, struct point *ret, struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };
	uint8_t key[ROW_KEY_MAX];
	size_t len = rows_key2(key, session, name);
	int rc = r->ops->get(r->view, TABLE_POINTS_BY_NAME, key, len, &b, e);

	return rc ? rc : point_at_key(r, b.p, b.len, ret, e);
}

struct execs_walk {
	const struct reader *r;
	bool only_running;
	const char *tag; /* stop at the first with this tag */
	struct exec *list;
	int nr, cap;
	struct err *e;
};

static int execs_row(void *ctx, const void *key, size_t key_len,
		     UNUSED const void *value, UNUSED size_t len)
{
	struct execs_walk *w = ctx;
	char id[ID_LEN + 1] = "";
	struct exec x;
	int rc;

	PRE(key_len == 2 * ID_LEN);
	memcpy(id, (const char *)key + ID_LEN, ID_LEN);
	rc = rows_exec(w->r, id, &x, w->e);
	if (rc)
		return rc;
	if ((w->only_running && x.state != EXEC_RUNNING) ||
	    (w->tag && strcmp(w->tag, x.tag))) {
		exec_done(&x);
		return 0;
	}
	if (w->nr == w->cap) {
		w->cap = w->cap ? 2 * w->cap : 8;
		w->list =
			base_realloc(w->list, (size_t)w->cap * sizeof(*w->list));
	}
	w->list[w->nr++] = x;
	return w->tag ? 1 : 0;
}

static int execs_scan(struct execs_walk *w, const char *session)
{
	int rc = w->r->ops->scan(w->r->view, TABLE_EXECS_BY_SESSION, session,
				 strlen(session), NULL, 0, false, execs_row, w,
				 w->e);

	if (rc < 0) {
		for (int i = 0; i < w->nr; i++)
			exec_done(&w->list[i]);
		free(w->list);
		w->list = NULL;
		w->nr = 0;
	}
	return rc < 0 ? rc : 0;
}

int rows_execs(const struct reader *r, const char *session, bool only_running,
	       struct exec **ret, int *ret_nr, struct err *e)
{
	struct execs_walk w = { .r = r, .only_running = only_running, .e = e };
	int rc = execs_scan(&w, session);

	if (rc)
		return rc;
	*ret = w.list;
	*ret_nr = w.nr;
	return 0;
}

int rows_exec_by_tag(const struct reader *r, const char *session,
		     const char *tag, struct exec *ret, struct err *e)
{
	struct execs_walk w = { .r = r, .tag = tag, .e = e };
	int rc = rows_exec(r, tag, ret, e);

	if (!rc && !strcmp(ret->session, session))
		return 0;
	if (!rc)
		exec_done(ret);
	else if (rc != -ENOENT)
		return rc;
	rc = execs_scan(&w, session);
	if (rc)
		return rc;
	if (!w.nr)
		return -ENOENT;
	*ret = w.list[0];
	free(w.list);
	return 0;
}

int rows_json(const struct reader *r, enum table t, const void *key,
	      size_t key_len, json_t **ret, struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };
	int rc = r->ops->get(r->view, t, key, key_len, &b, e);

	if (rc)
		return rc;
	rc = json_parse(ret, b.p, b.len, e);
	return rc ? row_broken(t, rc, e) : 0;
}

static int put_fields(const struct store_port *w, enum table t, const void *key,
		      size_t key_len, const struct fields *f, const void *s,
		      struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };

	fields_row_encode(&b, f, s);
	return w->put(w->ctx, t, key, key_len, b.p, b.len, e);
}

int rows_put_session(const struct store_port *w, const struct session *s,
		     struct err *e)
{
	return put_fields(w, TABLE_SESSIONS, s->id, ID_LEN, &session_fields, s,
			  e);
}

int rows_put_operation(const struct store_port *w, const struct operation *op,
		       struct err *e)
{
	return put_fields(w, TABLE_OPERATIONS, op->id, ID_LEN,
			  &operation_fields, op, e);
}

int rows_put_exec(const struct store_port *w, const struct exec *x, struct err *e)
{
	return put_fields(w, TABLE_EXECS, x->id, ID_LEN, &exec_fields, x, e);
}

int rows_put_point(const struct store_port *w, const struct point *p,
		   struct err *e)
{
	uint8_t key[POINT_KEY_LEN];

	point_key(key, p->session, p->time_ns);
	return put_fields(w, TABLE_POINTS, key, sizeof(key), &point_fields, p, e);
}

int rows_put_json(const struct store_port *w, enum table t, const void *key,
		  size_t key_len, const json_t *o, struct err *e)
{
	struct buf b SCOPED(buf_done) = { 0 };

	if (json_canonical(&b, o))
		NEVER("a row of ours has no canonical form");
	return w->put(w->ctx, t, key, key_len, b.p, b.len, e);
}
