/*
 * engine_recover: once at start: rows against what really lives.
 *
 * How it works: sessions that are at rest without a sandbox need nothing.
 * For every other one a command says whether its sandbox lives; what that
 * means is decided in session_recover.c. Sandboxes that no row owns, or of
 * another epoch than the row's, are reported as unwanted starts, which are
 * answered with a kill. Sessions that wait for another's snapshot are told
 * how that ended if the one who should have told them is past it.
 *
 * It can be repeated: a crash during recovery leaves a state that recovery
 * takes up again.
 */
#include "core/engine_internal.h"

struct recover {
	struct engine *en;
	const struct backend_live *live;
	int nr;
	bool *matched;
	struct err *e;
};

static void give_hello(struct command *c, const struct backend_live *l)
{
	if (!l->hello_known)
		return;
	command_hello(c, MIN(l->nr_hello, EXEC_HELLO_MAX));
	if (c->nr_hello)
		memcpy(c->hello, l->hello,
		       (size_t)c->nr_hello * sizeof(*l->hello));
	c->hello_ns = l->hello_ns;
}

static void tell(struct recover *x, const struct session *s,
		 const struct backend_live *l)
{
	struct command *c = command_new(COMMAND_RECOVER);

	base_strcpy(c->session, sizeof(c->session), s->id);
	c->epoch = s->epoch;
	if (l) {
		c->live = true;
		c->stopped = l->stopped;
		give_hello(c, l);
	}
	engine_push(x->en, c);
}

static void tell_base(struct recover *x, const struct session *s,
		      const char *point)
{
	struct command *c =
		command_new(point[0] ? COMMAND_BASE : COMMAND_BASE_FAILED);

	base_strcpy(c->session, sizeof(c->session), s->id);
	base_strcpy(c->point, sizeof(c->point), point);
	err_set(&c->err, -EIO, ERR_GONE,
		"the snapshot that it should start from was not made");
	engine_push(x->en, c);
}

/* Who was to make the base of this one: is it past that, and how? */
static int look_at_waiter(struct recover *x, const struct session *s)
{
	const struct reader *r = &x->en->rows;
	struct operation op;
	struct session maker;
	bool fork;
	int rc = rows_operation(r, s->waits_on, &op, x->e);

	if (rc)
		return rc;
	fork = op.kind == OPERATION_FORK;
	rc = rows_session(r, op.session, &maker, x->e);
	if (rc == -ENOENT)
		tell_base(x, s, fork ? op.point : "");
	else if (!rc && (strcmp(maker.op.id, op.id) || maker.op.step == STEP_KILL))
		tell_base(x, s, fork ? op.point : maker.head.id);
	operation_done(&op);
	return rc == -ENOENT ? 0 : rc;
}

static const struct backend_live *find_live(struct recover *x,
					    const struct session *s)
{
	for (int i = 0; i < x->nr; i++) {
		if (strcmp(x->live[i].session, s->id) ||
		    x->live[i].epoch != s->epoch)
			continue;
		x->matched[i] = true;
		return &x->live[i];
	}
	return NULL;
}

static int session_row(void *ctx, UNUSED const void *key, UNUSED size_t key_len,
		       const void *value, size_t len)
{
	struct recover *x = ctx;
	const struct backend_live *l;
	struct session s;
	bool at_rest;
	int rc = session_decode(&s, value, len, x->e);

	if (rc)
		return rc;
	l = find_live(x, &s);
	at_rest = s.state == SESSION_SUSPENDED || s.state == SESSION_FAILED;
	if (l || !at_rest)
		tell(x, &s, l);
	engine_timer_of_session(x->en, &s);
	if (s.op.step == STEP_WAIT_BASE)
		return look_at_waiter(x, &s);
	return 0;
}

static int open_row(void *ctx, const void *key, size_t key_len,
		    UNUSED const void *value, UNUSED size_t len)
{
	struct recover *x = ctx;
	char id[ID_LEN + 1] = "";

	PRE(key_len == ID_LEN);
	memcpy(id, key, ID_LEN);
	engine_timer_set(x->en, TIMER_OVERDUE, id,
			 clock_mono(x->en->conf.clock) + x->en->conf.overdue_ns);
	return 0;
}

static int read_rows(struct recover *x)
{
	const struct store_port *w = x->en->conf.store;
	int rc = w->begin(w->ctx, x->e);

	if (rc)
		return rc;
	rc = w->ops->scan(w->ctx, TABLE_SESSIONS, "", 0, NULL, 0, false,
			  session_row, x, x->e);
	if (rc >= 0)
		rc = w->ops->scan(w->ctx, TABLE_OPERATIONS_OPEN, "", 0, NULL, 0,
				  false, open_row, x, x->e);
	x->en->last_seq = w->ops->last_seq(w->ctx);
	w->abort(w->ctx);
	return rc < 0 ? rc : 0;
}

static void tell_unowned(struct recover *x)
{
	for (int i = 0; i < x->nr; i++) {
		struct command *c;

		if (x->matched[i])
			continue;
		c = command_new(COMMAND_STARTED);
		base_strcpy(c->session, sizeof(c->session), x->live[i].session);
		c->epoch = x->live[i].epoch;
		engine_push(x->en, c);
	}
}

int engine_recover(struct engine *en, const struct backend_live *live, int nr,
		   struct err *e)
{
	struct recover x = { .en = en, .live = live, .nr = nr, .e = e };
	struct command *c = command_new(COMMAND_NODE_START);
	int rc;

	PRE(!en->has_thread);
	base_strcpy(c->name, sizeof(c->name),
		    en->conf.version ? en->conf.version : CRYO_VERSION);
	engine_push(en, c);
	x.matched = base_alloc(sizeof(*x.matched) * (size_t)MAX(nr, 1));
	rc = read_rows(&x);
	if (!rc)
		tell_unowned(&x);
	free(x.matched);
	if (rc)
		return err_wrap(e, rc, "recovery");
	while (engine_step(en))
		;
	return 0;
}
