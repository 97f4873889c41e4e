/*
 * engine_batch: one transaction: decide, append, project, commit.
 *
 * How it works: up to batch_max commands are decided one after the other in
 * one transaction; each sees what those before it wrote. One sync makes all
 * of it durable; only then are replies given and effects started.
 *
 * Invariants
 *  1. Nothing is answered and no effect is started before the commit that
 *     holds its events. A refusal depends on the rows that the transaction
 *     sees, so it is given after the commit as well.
 *  2. A failed commit ends the process: its sync is never tried again, and
 *     nothing of it was acknowledged. One that failed for want of space has
 *     changed nothing, and goes as in 3.
 *  3. A transaction that fails before its commit changes nothing: its
 *     commands are tried again one by one; a client's is then refused, an
 *     outcome waits until there is space.
 *
 * A crash at any moment: events and rows are both there or both not. Effects
 * of committed events that were not started are given again on recovery.
 */
#include "core/engine_internal.h"
#include "core/log.h"
#include "core/project.h"

#define IDEM_NS (24 * 3600 * NS_PER_S)
#define RETRY_NS NS_PER_S
#define EXIT_COMMIT 70 /* EX_SOFTWARE: the log can't be written */

/* --- requests that were answered before ---------------------------------- */

static void replay(const json_t *row, struct reply *r)
{
	const json_t *ids = json_object_get(row, "sessions");
	const char *v;
	json_t *id;
	size_t i;

	r->replayed = true;
	v = json_string_value(json_object_get(row, "operation"));
	base_strcpy(r->operation, sizeof(r->operation), v ? v : "");
	v = json_string_value(json_object_get(row, "session"));
	base_strcpy(r->session, sizeof(r->session), v ? v : "");
	v = json_string_value(json_object_get(row, "exec"));
	base_strcpy(r->exec, sizeof(r->exec), v ? v : "");
	json_array_foreach(ids, i, id)
		if (r->nr_children < FORK_MAX)
			base_strcpy(r->children[r->nr_children++], ID_LEN + 1,
				    json_string_value(id));
}

/* > 0: answered from the row. */
static int answered_before(struct engine *en, struct job *j, struct err *e)
{
	const struct command_idem *i = &j->c->idem;
	json_t *row SCOPED_JSON = NULL;
	uint8_t body[32];
	int64_t time_ns;
	int rc;

	if (!i->given)
		return 0;
	rc = rows_json(&en->rows, TABLE_IDEMPOTENCY, i->scope, sizeof(i->scope),
		       &row, e);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = json_get_ns(row, "time_ns", &time_ns, e);
	if (!rc)
		rc = json_get_hex(row, "body", body, sizeof(body), e);
	if (rc)
		return rc;
	if (j->c->wall_ns - time_ns > IDEM_NS)
		return 0;
	if (base_same_secret(body, i->body, sizeof(body)))
		replay(row, &j->reply);
	else
		j->reply.rc = err_set(&j->reply.err, -EEXIST, ERR_MISMATCH,
				      "this Idempotency-Key was used with "
				      "another request: use a new key, or "
				      "send the same body");
	return 1;
}

/* --- one command --------------------------------------------------------- */

static int carry_out(struct engine *en, struct job *j, struct err *e)
{
	const struct store_port *w = en->conf.store;

	for (int i = 0; i < j->d.nr_events; i++) {
		struct event *ev = &j->d.events[i];
		int rc = w->append(w->ctx, ev, e);

		if (!rc)
			rc = project_apply(w, ev, e);
		if (rc == -EPROTO) {
			log_error("event=bug what=project session=%s msg=\"%s\"",
				  ev->session, e->msg);
			NEVER("an event of ours does not follow the rows");
		}
		if (rc)
			return rc;
		j->reply.seq = ev->seq;
	}
	return 0;
}

static int look_after(struct engine *en, struct job *j, struct err *e)
{
	int rc = 0;

	if (j->d.wake[0])
		rc = engine_waiters(&en->rows, j->d.wake, &j->wakes, e);
	if (rc || !j->d.nr_events || !id_valid(j->c->session))
		return rc;
	rc = rows_session(&en->rows, j->c->session, &j->after, e);
	j->have_after = !rc;
	return rc == -ENOENT ? 0 : rc;
}

static void fill_reply(struct job *j)
{
	const struct command *c = j->c;
	const struct decision *d = &j->d;
	struct reply *r = &j->reply;

	r->rc = d->rc;
	if (d->rc) {
		r->err = d->err;
		return;
	}
	base_strcpy(r->operation, sizeof(r->operation), d->operation);
	base_strcpy(r->session, sizeof(r->session), d->session);
	base_strcpy(r->exec, sizeof(r->exec), d->exec);
	base_strcpy(r->point, sizeof(r->point), d->point);
	if (c->kind != COMMAND_FORK)
		return;
	r->nr_children = c->nr_children;
	for (int i = 0; i < c->nr_children; i++)
		base_strcpy(r->children[i], ID_LEN + 1, c->children[i].id);
}

/* Asks the driver about a point that a client wants a start from. */
static void ask_fits(struct engine *en, const struct command *c,
		     const struct session *s, struct facts *f)
{
	const struct backend *b = en->conf.backend;

	if (!f->have_point || !b->fits ||
	    (c->kind != COMMAND_RESUME && c->kind != COMMAND_REWIND &&
	     c->kind != COMMAND_FORK))
		return;
	f->unfit = b->fits(b->ctx, &s->spec, &f->point, &f->unfit_why) < 0;
}

/* Decides and writes; a refusal is not a failure. */
static int run(struct engine *en, struct job *j, struct err *e)
{
	struct facts f = { 0 };
	struct session s;
	bool there = false;
	int rc = answered_before(en, j, e);

	if (rc)
		return rc > 0 ? 0 : rc;
	if (id_valid(j->c->session)) {
		rc = rows_session(&en->rows, j->c->session, &s, e);
		there = !rc;
		if (rc && rc != -ENOENT)
			return rc;
	}
	rc = engine_facts(&en->rows, &en->conf.limits, j->c, there ? &s : NULL,
			  en->conf.new_id, &f, e);
	if (!rc) {
		if (there)
			ask_fits(en, j->c, &s, &f);
		session_decide(there ? &s : NULL, j->c, &f, &j->d);
	}
	facts_done(&f);
	if (rc)
		return rc;
	j->defer = j->d.wait;
	rc = carry_out(en, j, e);
	fill_reply(j);
	return rc ? rc : look_after(en, j, e);
}

/* --- the batch ----------------------------------------------------------- */

static void clear_job(struct job *j)
{
	decision_done(&j->d);
	buf_done(&j->wakes);
	memset(j, 0, sizeof(*j));
}

/* Does the store answer for what it has, after a commit that failed? */
static bool still_writable(struct engine *en)
{
	const struct store_port *w = en->conf.store;
	struct err e;

	if (w->begin(w->ctx, &e) < 0)
		return false;
	w->abort(w->ctx);
	return true;
}

static int write_all(struct engine *en, int nr, struct err *e)
{
	const struct store_port *w = en->conf.store;
	uint64_t seq = 0;
	int rc = w->begin(w->ctx, e);

	if (rc)
		return rc;
	for (int i = 0; !rc && i < nr; i++) {
		engine_prepare(en, en->jobs[i].c);
		rc = run(en, &en->jobs[i], e);
		seq = MAX(seq, en->jobs[i].reply.seq);
	}
	if (rc || !seq) {
		w->abort(w->ctx);
		return rc;
	}
	rc = w->commit(w->ctx, e);
	if (rc && (e->code != ERR_NO_SPACE || !still_writable(en))) {
		log_error("event=commit_failed msg=\"%s\" action=exit", e->msg);
		_exit(EXIT_COMMIT);
	}
	if (rc)
		return rc;
	pthread_mutex_lock(&en->lock);
	en->last_seq = seq;
	pthread_cond_broadcast(&en->news);
	pthread_mutex_unlock(&en->lock);
	return 0;
}

/* Behind the others of its session; false if too many wait there. */
static bool hold(struct engine *en, struct command *c)
{
	uint32_t same = 0;

	pthread_mutex_lock(&en->lock);
	for (struct command *h = en->held; h; h = h->next)
		same += !strcmp(h->session, c->session);
	if (same < en->conf.deferred_max) {
		c->next = NULL;
		if (en->held)
			en->held_last->next = c;
		else
			en->held = c;
		en->held_last = c;
	}
	pthread_mutex_unlock(&en->lock);
	return same < en->conf.deferred_max;
}

/* Some session is free: all who wait try again, in order, before others. */
static void release(struct engine *en)
{
	pthread_mutex_lock(&en->lock);
	if (en->held) {
		en->held_last->next = en->first;
		if (!en->first)
			en->last = en->held_last;
		en->first = en->held;
		en->held = en->held_last = NULL;
	}
	pthread_mutex_unlock(&en->lock);
}

/* Did it end an operation, or leave its session without one? */
static bool freed(const struct job *j)
{
	for (int i = 0; i < j->d.nr_events; i++)
		if (j->d.events[i].type == EVENT_OPERATION_DONE ||
		    j->d.events[i].type == EVENT_OPERATION_FAILED)
			return true;
	return j->d.nr_events && (!j->have_after || !j->after.op.id[0]);
}

static void wake(struct engine *en, const struct job *j)
{
	for (size_t i = 0; i < j->wakes.len; i += ID_LEN) {
		struct command *c = command_new(
			j->d.wake_ok ? COMMAND_BASE : COMMAND_BASE_FAILED);

		memcpy(c->session, j->wakes.p + i, ID_LEN);
		base_strcpy(c->point, sizeof(c->point), j->d.wake_point);
		c->err = j->d.err;
		engine_push(en, c);
	}
}

static void finish(struct engine *en, struct job *j)
{
	struct command *c = STEAL(j->c);

	engine_timers_follow(en, j);
	if (j->defer && hold(en, c))
		c = NULL;
	if (c)
		engine_answer(en, c, &j->reply);
}

static void start_effects(struct engine *en, struct job *j)
{
	const struct backend *b = en->conf.backend;

	for (int i = 0; i < j->d.nr_effects; i++)
		b->start(b->ctx, STEAL(j->d.effects[i]));
}

/* Order matters: all replies, then all effects, then what follows. */
static void after_commit(struct engine *en, int nr, bool wrote)
{
	bool some_free = false;

	for (int i = 0; i < nr; i++) {
		some_free |= freed(&en->jobs[i]);
		finish(en, &en->jobs[i]);
	}
	if (some_free)
		release(en);
	for (int i = 0; i < nr; i++)
		start_effects(en, &en->jobs[i]);
	for (int i = 0; i < nr; i++) {
		wake(en, &en->jobs[i]);
		clear_job(&en->jobs[i]);
	}
	if (wrote && en->conf.on_commit)
		en->conf.on_commit(en->conf.on_commit_ctx, en->last_seq);
}

static void put_back(struct engine *en, int nr)
{
	for (int i = nr - 1; i >= 0; i--) {
		engine_push_front(en, STEAL(en->jobs[i].c));
		clear_job(&en->jobs[i]);
	}
}

/* The transaction was aborted: see invariant 3. */
static void not_written(struct engine *en, int nr, int rc, const struct err *e)
{
	struct command *c = en->jobs[0].c;

	if (nr > 1) {
		en->singly = (uint32_t)nr;
		put_back(en, nr);
		return;
	}
	log_error("event=not_written command=%s session=%s msg=\"%s\"",
		  command_word(c->kind), c->session, e->msg);
	if (!command_is_client(c->kind) && e->code == ERR_NO_SPACE) {
		en->retry_ns = clock_mono(en->conf.clock) + RETRY_NS;
		put_back(en, nr);
		return;
	}
	en->jobs[0].c = NULL;
	clear_job(&en->jobs[0]);
	engine_answer_err(en, c, rc, e);
}

int engine_batch(struct engine *en, int nr)
{
	struct err e = { .code = ERR_INTERNAL };
	uint64_t before = en->last_seq;
	int rc = write_all(en, nr, &e);

	if (rc)
		not_written(en, nr, rc, &e);
	else
		after_commit(en, nr, en->last_seq != before);
	return rc;
}
