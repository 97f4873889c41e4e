/*
 * engine_facts: reads the rows that a decision may depend on besides the
 * session's own, in the transaction in which it will be carried out. No
 * judgement here: what the rows mean is decide's.
 */
#include "core/engine_internal.h"

struct gather {
	const struct reader *r;
	const struct command *c;
	const struct session *s; /* or NULL */
	struct facts *f;
	struct err *e;
};

/* -ENOENT is an answer here, not a failure. */
static int maybe(int rc, bool *ret_there)
{
	*ret_there = !rc;
	return rc == -ENOENT ? 0 : rc;
}

static int has_row(const struct gather *g, enum table t, const char *key,
		   bool *ret)
{
	struct buf b SCOPED(buf_done) = { 0 };

	*ret = false;
	if (!key[0] || strlen(key) > ROW_KEY_MAX)
		return 0;
	return maybe(g->r->ops->get(g->r->view, t, key, strlen(key), &b, g->e),
		     ret);
}

/* A point by id: the session's base, which may be of a session long gone,
 * or a row. */
static int point(const struct gather *g, const char *id)
{
	struct facts *f = g->f;

	if (!id_valid(id))
		return 0;
	if (g->s && !strcmp(g->s->base.id, id)) {
		f->point = g->s->base;
		f->have_point = true;
		return 0;
	}
	return maybe(rows_point(g->r, id, &f->point, g->e), &f->have_point);
}

static int session_name(const struct gather *g, const char *tenant,
			const char *name, bool *ret)
{
	char id[ID_LEN + 1];

	*ret = false;
	if (!point_name_valid(name))
		return 0;
	return maybe(rows_session_by_name(g->r, tenant, name, id, g->e), ret);
}

struct count {
	size_t key_len;
	uint32_t nr;
};

static int count_row(void *ctx, UNUSED const void *key, size_t key_len,
		     UNUSED const void *value, UNUSED size_t len)
{
	struct count *n = ctx;

	n->nr += key_len == n->key_len;
	return 0;
}

static int count_sessions(const struct gather *g, const char *tenant)
{
	struct count n = { .key_len = strlen(tenant) + ID_LEN };
	int rc = g->r->ops->scan(g->r->view, TABLE_SESSIONS_BY_TENANT, tenant,
				 strlen(tenant), NULL, 0, false, count_row, &n,
				 g->e);

	g->f->sessions = n.nr;
	return rc < 0 ? rc : 0;
}

static int template(const struct gather *g)
{
	const char *name = g->c->spec.template, *digest;
	json_t *o SCOPED_JSON = NULL;
	struct facts *f = g->f;
	int rc;

	if (!name[0])
		return 0;
	rc = maybe(rows_json(g->r, TABLE_TEMPLATES, name, strlen(name), &o, g->e),
		   &f->have_template);
	if (rc || !f->have_template)
		return rc;
	rc = json_get_str(o, "digest", &digest, g->e);
	if (!rc)
		base_strcpy(f->template_digest, sizeof(f->template_digest),
			    digest);
	return rc;
}

/* Is there a parked snapshot of this template in this shape? */
static int park(const struct gather *g)
{
	struct session_spec spec = g->c->spec;
	struct buf b SCOPED(buf_done) = { 0 };
	char key[PARK_KEY_LEN + 1];
	struct facts *f = g->f;
	struct session p;
	int rc;

	base_strcpy(spec.template_digest, sizeof(spec.template_digest),
		    f->template_digest);
	session_park_key(key, &spec, f->limits);
	rc = g->r->ops->get(g->r->view, TABLE_PARKS, key, strlen(key), &b, g->e);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = rows_session(g->r, buf_cstr(&b), &p, g->e);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	base_strcpy(f->park_id, sizeof(f->park_id), p.id);
	if (p.head.id[0]) {
		f->park = PARK_READY;
		return point(g, p.head.id);
	}
	f->park = PARK_BUILDING;
	base_strcpy(f->park_op, sizeof(f->park_op), p.op.id);
	return 0;
}

static int for_create(const struct gather *g)
{
	int rc = session_name(g, g->c->tenant, g->c->name, &g->f->name_taken);

	if (!rc)
		rc = count_sessions(g, g->c->tenant);
	if (!rc)
		rc = template(g);
	return rc || !g->f->have_template ? rc : park(g);
}

/* Is the name or the id of child i in use, also by one before it? */
static int for_child(const struct gather *g, int i)
{
	const struct command_child *all = g->c->children, *child = &all[i];
	bool name = false, id = false;
	int rc = session_name(g, g->s->tenant, child->name, &name);

	if (!rc)
		rc = has_row(g, TABLE_SESSIONS, child->id, &id);
	for (int k = 0; k < i; k++) {
		name |= child->name[0] && !strcmp(child->name, all[k].name);
		id |= !strcmp(child->id, all[k].id);
	}
	if (!rc && (name || id) && !g->f->child_taken) {
		g->f->child_taken = i + 1;
		g->f->child_id_taken = id;
	}
	return rc;
}

static int for_fork(const struct gather *g)
{
	const struct command *c = g->c;
	int rc = count_sessions(g, g->s->tenant);

	for (int i = 0; !rc && i < c->nr_children; i++)
		rc = for_child(g, i);
	return rc ? rc : point(g, c->point[0] ? c->point : g->s->head.id);
}

static int for_snapshot(const struct gather *g)
{
	struct point other;
	int rc = 0;

	if (point_name_valid(g->c->name))
		rc = maybe(rows_point_by_name(g->r, g->s->id, g->c->name,
					      &other, g->e),
			   &g->f->name_taken);
	return rc ? rc : point(g, g->s->head.id);
}

static int by_tag(const struct gather *g)
{
	if (!id_valid(g->c->tag))
		return 0;
	return maybe(
		rows_exec_by_tag(g->r, g->s->id, g->c->tag, &g->f->exec, g->e),
		&g->f->have_exec);
}

static int by_exec_id(const struct gather *g)
{
	if (!id_valid(g->c->exec))
		return 0;
	return maybe(rows_exec(g->r, g->c->exec, &g->f->exec, g->e),
		     &g->f->have_exec);
}

static int count_running(const struct gather *g)
{
	struct exec *list = NULL;
	int nr = 0;
	int rc = rows_execs(g->r, g->s->id, true, &list, &nr, g->e);

	for (int i = 0; i < nr; i++)
		exec_done(&list[i]);
	free(list);
	g->f->running = (uint32_t)nr;
	return rc;
}

static int for_exec_start(const struct gather *g)
{
	int rc = by_exec_id(g);

	return rc ? rc : count_running(g);
}

/* What the guest says is alive is compared with these. */
static int for_hello(const struct gather *g, void (*new_id)(struct id *))
{
	const char *from = g->s->start.session;
	struct facts *f = g->f;
	int rc;

	if (!g->c->hello_known)
		return 0;
	f->ids = base_alloc(sizeof(*f->ids) * (size_t)MAX(g->c->nr_hello, 1));
	for (int i = 0; i < g->c->nr_hello; i++)
		new_id(&f->ids[i]);
	rc = rows_execs(g->r, g->s->id, false, &f->execs, &f->nr_execs, g->e);
	if (rc || !from[0] || !strcmp(from, g->s->id))
		return rc;
	return rows_execs(g->r, from, false, &f->origins, &f->nr_origins, g->e);
}

static int for_recover(const struct gather *g, void (*new_id)(struct id *))
{
	const struct session *s = g->s;
	bool leaving = s->op.kind == OPERATION_REWIND &&
		       s->state != SESSION_RESUMING;
	int rc = point(g, leaving ? s->op.target.id : s->start.id);

	return rc ? rc : for_hello(g, new_id);
}

/* Facts of commands that are about a session that is there. */
static int for_session(const struct gather *g, void (*new_id)(struct id *))
{
	const struct command *c = g->c;
	const struct session *s = g->s;

	switch ((int)c->kind) {
	case COMMAND_FORK:
		return for_fork(g);
	case COMMAND_RESUME:
		return point(g, c->point[0] ? c->point : s->head.id);
	case COMMAND_REWIND:
		return point(g, c->undo ? s->undo.id : c->point);
	case COMMAND_SNAPSHOT:
		return for_snapshot(g);
	case COMMAND_EXEC_START:
		return for_exec_start(g);
	case COMMAND_EXEC_SIGNAL:
		return by_exec_id(g);
	case COMMAND_EXEC_EXITED:
	case COMMAND_EFFECT_FAILED:
		return by_tag(g);
	case COMMAND_KILLED:
		return point(g, s->op.target.id);
	case COMMAND_CAPTURED:
		return point(g, c->made.id);
	case COMMAND_BASE:
		return point(g, c->point);
	case COMMAND_STARTED:
	case COMMAND_EXEC_HELLO:
		return for_hello(g, new_id);
	case COMMAND_RECOVER:
		return for_recover(g, new_id);
	default:
		return 0;
	}
}

int engine_facts(const struct reader *r, const struct limits *l,
		 const struct command *c, const struct session *s,
		 void (*new_id)(struct id *ret), struct facts *ret, struct err *e)
{
	struct gather g = { .r = r, .c = c, .s = s, .f = ret, .e = e };
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	ret->limits = l;
	if (s && s->op.id[0])
		rc = maybe(rows_operation(r, s->op.id, &ret->op, e),
			   &ret->have_op);
	if (rc)
		return rc;
	switch ((int)c->kind) {
	case COMMAND_CREATE:
		return for_create(&g);
	case COMMAND_TEMPLATE_ADD:
		return template(&g);
	case COMMAND_TENANT_CREATE:
		return has_row(&g, TABLE_TENANTS, c->id, &ret->exists);
	case COMMAND_KEY_CREATE:
	case COMMAND_KEY_REMOVE:
		return has_row(&g, TABLE_KEYS, c->id, &ret->exists);
	default:
		return s ? for_session(&g, new_id) : 0;
	}
}

/* --- who waits for an operation ------------------------------------------ */

struct waiters {
	const struct reader *r;
	const char *id;
	struct buf *ret;
	struct err *e;
};

static int waiting_session(struct waiters *w, const char *id)
{
	struct session s;
	int rc;

	if (!id)
		return 0;
	rc = rows_session(w->r, id, &s, w->e);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (s.op.step == STEP_WAIT_BASE && !strcmp(s.waits_on, w->id))
		buf_put(w->ret, s.id, ID_LEN);
	return 0;
}

static int waiters_row(void *ctx, const void *key, size_t key_len,
		       UNUSED const void *value, UNUSED size_t len)
{
	struct waiters *w = ctx;
	char id[ID_LEN + 1] = "";
	struct operation op;
	json_t *v;
	size_t i;
	int rc;

	PRE(key_len == ID_LEN);
	memcpy(id, key, ID_LEN);
	rc = rows_operation(w->r, id, &op, w->e);
	if (rc)
		return rc;
	if (op.kind == OPERATION_CREATE || op.kind == OPERATION_FORK)
		json_array_foreach(op.sessions, i, v)
			if (!rc)
				rc = waiting_session(w, json_string_value(v));
	operation_done(&op);
	return rc;
}

int engine_waiters(const struct reader *r, const char *id, struct buf *ret,
		   struct err *e)
{
	struct waiters w = { .r = r, .id = id, .ret = ret, .e = e };
	int rc = r->ops->scan(r->view, TABLE_OPERATIONS_OPEN, "", 0, NULL, 0,
			      false, waiters_row, &w, e);

	return rc < 0 ? rc : 0;
}
