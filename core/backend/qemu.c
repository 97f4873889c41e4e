/*
 * qemu: see qemu.h and qemu_impl.h. Here: the queue of effects, the workers,
 * pausing, capturing, killing, purging.
 *
 * Invariants: 1. effects of a session run one at a time and in order; KILL
 * and PURGE first cut short what runs of their epoch and those before it:
 * they drop what waits, mark the sandbox, close its link, wait until its
 * worker has let go, and end it. 2. Every effect with an outcome has exactly
 * one, but for those cut short. 3. A sandbox's slot is free again only after
 * the helper has said that its processes are gone. 4. A PURGE waits in the
 * queue, not on a worker, for forks that still read the session's packs.
 */
#include "core/backend/qemu_impl.h"

#include <signal.h>

#include "core/log.h"

#define PAUSE_MS 45000
#define CAPTURE_ACCEPT_MS 10000

struct sandbox *qemu_sandbox(struct qemu *q, const char *session)
{
	struct sandbox *s;

	for (s = q->sandboxes; s; s = s->next)
		if (!strcmp(s->session, session))
			return s;
	return NULL;
}

static void work_enqueue(struct qemu *q, struct work *w)
{
	w->next = NULL;
	*q->last_work = w;
	q->last_work = &w->next;
	pthread_cond_broadcast(&q->changed);
}

void qemu_work_put(struct qemu *q, enum work_kind kind, const char *session,
		   uint64_t epoch, struct effect *fx)
{
	struct work *w = base_alloc(sizeof(*w));

	w->kind = kind;
	w->epoch = epoch;
	w->fx = fx;
	base_strcpy(w->session, sizeof(w->session), session);
	work_enqueue(q, w);
}

static void work_free(struct work *w)
{
	effect_free(w->fx);
	free(w);
}

/* Takes what *p points to out of the queue. */
static struct work *work_unlink(struct qemu *q, struct work **p)
{
	struct work *w = *p;

	*p = w->next;
	if (!*p)
		q->last_work = p;
	w->next = NULL;
	return w;
}

/* --- outcomes ------------------------------------------------------------ */

/* Nobody will log it: whoever waits for that is told so. */
static void command_drop(struct command *c)
{
	struct reply r = { .rc = -EBUSY };

	err_set(&r.err, -EBUSY, ERR_BUSY, "the daemon is stopping");
	if (c->done)
		c->done(c->done_ctx, &r);
	command_free(c);
}

void qemu_capture_outcome(struct qemu *q, struct command *c, uint64_t ticket)
{
	bool early, stop;

	pthread_mutex_lock(&q->lock);
	stop = q->stop;
	early = !q->running && !stop;
	if (early) {
		struct news *n = base_alloc(sizeof(*n));

		*n = (struct news){ .c = c, .ticket = ticket };
		*q->last_early = n;
		q->last_early = &n->next;
	} else if (ticket) {
		qemu_capture_match(q, c, ticket);
	}
	pthread_mutex_unlock(&q->lock);
	if (stop)
		command_drop(c);
	else if (!early)
		q->sink.submit(q->sink.ctx, c);
}

void qemu_outcome(struct qemu *q, struct command *c)
{
	qemu_capture_outcome(q, c, 0);
}

/*
 * A capture that an earlier daemon ordered, and that the engine has ordered
 * again since: its order is taken out of the queue.
 */
static void capture_find_order(struct qemu *q, struct sandbox *s, uint64_t ticket)
{
	for (struct work **p = &q->work; *p; p = &(*p)->next) {
		const struct effect *fx = (*p)->fx;

		if ((*p)->kind != WORK_EFFECT || fx->kind != EFFECT_CAPTURE ||
		    strcmp(fx->session, s->session) != 0 ||
		    qemu_ticket(fx->operation) != ticket)
			continue;
		memcpy(s->capture_op, fx->operation, sizeof(s->capture_op));
		s->capture_ticket = ticket;
		s->capture_stay = fx->stay_stopped;
		work_free(work_unlink(q, p));
		return;
	}
}

void qemu_capture_match(struct qemu *q, struct command *c, uint64_t ticket)
{
	struct sandbox *s = qemu_sandbox(q, c->session);

	if (!s)
		return;
	if (s->capture_ticket != ticket)
		capture_find_order(q, s, ticket);
	if (s->capture_ticket != ticket)
		return;
	memcpy(c->operation, s->capture_op, sizeof(c->operation));
	c->stay_stopped = s->capture_stay;
	if (c->kind == COMMAND_CAPTURED && s->capture_stay)
		s->stopped = true;
}

struct command *qemu_command(const struct effect *fx, enum command_kind kind)
{
	struct command *c = command_new(kind);

	memcpy(c->session, fx->session, sizeof(c->session));
	memcpy(c->tenant, fx->tenant, sizeof(c->tenant));
	memcpy(c->operation, fx->operation, sizeof(c->operation));
	c->epoch = fx->epoch;
	base_strcpy(c->actor, sizeof(c->actor), "driver");
	return c;
}

void qemu_effect_failed(struct qemu *q, const struct effect *fx,
			const struct err *e)
{
	struct command *c = qemu_command(fx, COMMAND_EFFECT_FAILED);

	log_warn("event=effect_failed effect=%s session=%s why=\"%s\"",
		 effect_word(fx->kind), fx->session, e->msg);
	c->effect = fx->kind;
	c->err = *e;
	qemu_outcome(q, c);
}

/* The same operation has the same ticket, also after a restart. */
uint64_t qemu_ticket(const char *operation)
{
	uint64_t h = 1469598103934665603u; /* FNV-1a, of a random id */

	for (const char *p = operation; *p; p++)
		h = (h ^ (uint8_t)*p) * 1099511628211u;
	return h ? h : 1;
}

struct hub_link *qemu_link(struct qemu *q, const char *session)
{
	struct hub_link *k = NULL;
	struct sandbox *s;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, session);
	if (s && s->state == SANDBOX_UP && s->link && !s->kill)
		k = hub_ref(s->link);
	pthread_mutex_unlock(&q->lock);
	return k;
}

/* --- ends ------------------------------------------------------------------------- */

/* Out of the list; returns the link for the caller to let go. */
static struct hub_link *sandbox_unlink(struct qemu *q, struct sandbox *s,
				       bool gone)
{
	struct hub_link *link = s->link;

	for (struct sandbox **p = &q->sandboxes; *p; p = &(*p)->next) {
		if (*p == s) {
			*p = s->next;
			break;
		}
	}
	qemu_token_release(q, s);
	if (gone)
		q->slots[s->slot / 64] &= ~((uint64_t)1 << (s->slot % 64));
	free(s->hello);
	free(s);
	pthread_cond_broadcast(&q->changed);
	return link;
}

int qemu_sandbox_end(struct qemu *q, struct sandbox *s, struct err *e)
{
	const struct qemu_host *h = q->conf.host;
	struct hub_link *link;
	int r;

	pthread_mutex_lock(&q->lock);
	s->kill = true;
	s->state = SANDBOX_GONE;
	link = s->link ? hub_ref(s->link) : NULL;
	pthread_mutex_unlock(&q->lock);
	if (link)
		hub_close(link);
	hub_unref(link);
	r = helper_client_kill(q->conf.helper, s->slot, e);
	if (r < 0)
		log_error("event=kill_failed session=%s slot=%u why=\"%s\"",
			  s->session, s->slot, e->msg);
	else
		h->unlisten(h->ctx, s->session, s->slot);
	pthread_mutex_lock(&q->lock);
	link = sandbox_unlink(q, s, r == 0);
	pthread_mutex_unlock(&q->lock);
	hub_unref(link);
	return r;
}

int qemu_session_end(struct qemu *q, const char *session, uint64_t epoch,
		     struct err *e)
{
	struct sandbox *s;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, session);
	pthread_mutex_unlock(&q->lock);
	return s && s->epoch <= epoch ? qemu_sandbox_end(q, s, e) : 0;
}

bool qemu_sandbox_died(struct qemu *q, struct sandbox *s)
{
	if (s->kill || s->state != SANDBOX_UP)
		return false; /* that is somebody's outcome already */
	s->state = SANDBOX_GONE;
	if (!s->told)
		return false; /* told by who starts it */
	qemu_work_put(q, WORK_CLEAN, s->session, s->epoch, NULL);
	return true;
}

void qemu_report_died(struct qemu *q, const char *session, uint64_t epoch,
		      const char *why)
{
	struct command *c = command_new(COMMAND_DIED);

	base_strcpy(c->session, sizeof(c->session), session);
	base_strcpy(c->actor, sizeof(c->actor), "driver");
	c->epoch = epoch;
	err_set(&c->err, -EPIPE, ERR_INTERNAL, "%s", why);
	qemu_outcome(q, c);
}

void qemu_borrow_end(struct qemu *q, const char *child, uint64_t epoch)
{
	pthread_mutex_lock(&q->lock);
	for (struct borrow **p = &q->borrows; *p;) {
		struct borrow *b = *p;

		if (strcmp(b->child, child) != 0 || b->epoch > epoch) {
			p = &b->next;
			continue;
		}
		*p = b->next;
		free(b);
	}
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

static bool qemu_is_lent(const struct qemu *q, const char *session)
{
	for (const struct borrow *b = q->borrows; b; b = b->next)
		if (!strcmp(b->lender, session))
			return true;
	return false;
}

/* --- effects ------------------------------------------------------------------------ */

static void qemu_stop_or_cont(struct qemu *q, struct effect *fx)
{
	bool stop = fx->kind == EFFECT_STOP;
	struct hub_link *k = qemu_link(q, fx->session);
	struct sandbox *s;
	struct err e;
	int r = -EPIPE;

	err_set(&e, r, ERR_CONFLICT, "session %s has no sandbox", fx->session);
	if (k)
		r = hub_call(k, stop ? WIRE_PAUSE : WIRE_CONT, NULL, 0, NULL, 0,
			     NULL, 0, PAUSE_MS, 0, NULL, &e);
	hub_unref(k);
	if (r < 0) {
		qemu_effect_failed(q, fx, &e);
		return;
	}
	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, fx->session);
	if (s)
		s->stopped = stop;
	pthread_mutex_unlock(&q->lock);
	qemu_outcome(
		q, qemu_command(fx, stop ? COMMAND_PAUSED : COMMAND_CONTINUED));
}

static void qemu_capture_failed(struct qemu *q, const struct effect *fx,
				const struct err *e)
{
	struct command *c = qemu_command(fx, COMMAND_CAPTURE_SKIPPED);

	c->made.kind = fx->point_kind;
	c->err = *e;
	qemu_outcome(q, c);
}

/* Notes whose capture it is before asking: the report may be quick. */
static struct hub_link *qemu_capture_note(struct qemu *q, const struct effect *fx)
{
	struct hub_link *k = qemu_link(q, fx->session);
	struct sandbox *s;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, fx->session);
	if (s && k) {
		memcpy(s->capture_op, fx->operation, sizeof(s->capture_op));
		s->capture_ticket = qemu_ticket(fx->operation);
		s->capture_stay = fx->stay_stopped;
	}
	pthread_mutex_unlock(&q->lock);
	return k;
}

static void qemu_capture(struct qemu *q, struct effect *fx)
{
	const struct qemu_host *h = q->conf.host;
	struct wire_capture w = { .kind = fx->point_kind,
				  .flags = fx->stay_stopped ? WIRE_CAPTURE_STAY
							    : 0,
				  .ticket = qemu_ticket(fx->operation) };
	struct hub_link *k = qemu_capture_note(q, fx);
	struct err e;
	int r = h->capture_allowed(h->ctx, &e);

	base_strcpy(w.name, sizeof(w.name), fx->point_name);
	if (r == 0 && !k)
		r = err_set(&e, -EPIPE, ERR_CONFLICT,
			    "session %s has no sandbox", fx->session);
	if (r == 0)
		r = hub_call(k, WIRE_CAPTURE, &w, sizeof(w), NULL, 0, NULL, 0,
			     CAPTURE_ACCEPT_MS, 0, NULL, &e);
	if (r < 0)
		qemu_capture_failed(q, fx, &e);
	hub_unref(k);
}

bool qemu_is_cut(const struct qemu *q, const char *session, uint64_t epoch)
{
	for (int i = 0; i < QEMU_WORKERS; i++)
		if (q->at[i].cut && q->at[i].epoch >= epoch &&
		    !strcmp(q->at[i].session, session))
			return true;
	return false;
}

/* Is a worker at something of the session that a cut has to wait for? */
static bool cut_has_to_wait(const struct qemu *q, const char *session,
			    uint64_t epoch)
{
	for (int i = 0; i < QEMU_WORKERS; i++)
		if (!q->at[i].cut && q->at[i].epoch <= epoch &&
		    !strcmp(q->at[i].session, session))
			return true;
	return false;
}

/* Ends whatever the session has of this epoch and those before. */
static int qemu_cut(struct qemu *q, const char *session, uint64_t epoch,
		    struct err *e)
{
	struct hub_link *k = NULL;
	struct sandbox *s;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, session);
	if (s && s->epoch <= epoch) {
		s->kill = true;
		k = s->link ? hub_ref(s->link) : NULL;
	}
	pthread_mutex_unlock(&q->lock);
	if (k)
		hub_close(k);
	hub_unref(k);
	pthread_mutex_lock(&q->lock);
	while (cut_has_to_wait(q, session, epoch))
		pthread_cond_wait(&q->changed, &q->lock);
	pthread_mutex_unlock(&q->lock);
	qemu_borrow_end(q, session, epoch);
	return qemu_session_end(q, session, epoch, e);
}

static void qemu_kill(struct qemu *q, struct effect *fx)
{
	struct err e;

	if (qemu_cut(q, fx->session, fx->epoch, &e) < 0)
		qemu_effect_failed(q, fx, &e);
	else
		qemu_outcome(q, qemu_command(fx, COMMAND_KILLED));
}

/* True if it went back into the queue, to wait for the session's forks. */
static bool qemu_purge(struct qemu *q, struct work *w)
{
	const struct qemu_host *h = q->conf.host;
	const struct effect *fx = w->fx;
	struct err e;
	bool lent;
	int r = w->ended ? 0 : qemu_cut(q, fx->session, UINT64_MAX, &e);

	w->ended = r == 0;
	pthread_mutex_lock(&q->lock);
	lent = r == 0 && qemu_is_lent(q, fx->session);
	if (lent)
		work_enqueue(q, w);
	pthread_mutex_unlock(&q->lock);
	if (lent)
		return true;
	images_forget(q->images, fx->session);
	if (r == 0)
		r = h->purge(h->ctx, fx->session, &e);
	if (r < 0)
		qemu_effect_failed(q, fx, &e);
	else
		qemu_outcome(q, qemu_command(fx, COMMAND_PURGED));
	return false;
}

static void qemu_effect_run(struct qemu *q, struct effect *fx)
{
	static void (*const run[EFFECT_NR])(struct qemu *, struct effect *) = {
		[EFFECT_BOOT] = qemu_start_run,
		[EFFECT_RESTORE] = qemu_start_run,
		[EFFECT_STOP] = qemu_stop_or_cont,
		[EFFECT_CONT] = qemu_stop_or_cont,
		[EFFECT_CAPTURE] = qemu_capture,
		[EFFECT_KILL] = qemu_kill,
		[EFFECT_EXEC_START] = qemu_exec_start,
		[EFFECT_EXEC_SIGNAL] = qemu_exec_signal,
	};

	run[fx->kind](q, fx);
}

/* --- workers --------------------------------------------------------------------------- */

static bool work_cuts(const struct work *w)
{
	return w->kind == WORK_EFFECT &&
	       (w->fx->kind == EFFECT_KILL || w->fx->kind == EFFECT_PURGE);
}

static uint64_t work_cut_epoch(const struct work *w)
{
	return w->fx->kind == EFFECT_PURGE ? UINT64_MAX : w->epoch;
}

/* Does something of the session that came before stand in its way? */
static bool work_has_to_wait(const struct qemu *q, const struct work *w)
{
	bool cuts = work_cuts(w);

	for (const struct work *x = q->work; x != w; x = x->next)
		if (!strcmp(x->session, w->session) && (!cuts || work_cuts(x)))
			return true;
	for (int i = 0; i < QEMU_WORKERS; i++)
		if (!strcmp(q->at[i].session, w->session) &&
		    (!cuts || q->at[i].cut))
			return true;
	return w->ended && qemu_is_lent(q, w->session);
}

/* What waits before a cut, of its epochs, is not begun any more. */
static void work_drop_cut(struct qemu *q, const struct work *cut)
{
	struct work **p = &q->work;

	while (*p && *p != cut) {
		if (!strcmp((*p)->session, cut->session) &&
		    (*p)->epoch <= work_cut_epoch(cut))
			work_free(work_unlink(q, p));
		else
			p = &(*p)->next;
	}
}

/* The first piece of work that may run now, taken out; NULL: none. */
static struct work *qemu_work_take(struct qemu *q)
{
	struct work *w = q->work;

	while (w && work_has_to_wait(q, w))
		w = w->next;
	if (!w)
		return NULL;
	if (work_cuts(w))
		work_drop_cut(q, w);
	for (struct work **p = &q->work;; p = &(*p)->next)
		if (*p == w)
			return work_unlink(q, p);
}

static void qemu_clean(struct qemu *q, const struct work *w)
{
	struct err e;

	qemu_session_end(q, w->session, w->epoch, &e); /* it logs */
}

static void qemu_work_run(struct qemu *q, struct work *w)
{
	if (w->kind == WORK_CLEAN)
		qemu_clean(q, w);
	else if (w->kind == WORK_ATTACH)
		qemu_exec_attach(q, w->session);
	else if (w->fx->kind != EFFECT_PURGE)
		qemu_effect_run(q, w->fx);
	else if (qemu_purge(q, w))
		return;
	work_free(w);
}

static void worker_note(struct at_work *at, const struct work *w)
{
	at->cut = work_cuts(w);
	at->epoch = at->cut ? work_cut_epoch(w) : w->epoch;
	memcpy(at->session, w->session, sizeof(at->session));
}

struct worker_arg {
	struct qemu *q;
	int nr;
};

static void *qemu_worker_main(void *ctx)
{
	struct worker_arg a = *(struct worker_arg *)ctx;
	struct qemu *q = a.q;

	free(ctx);
	pthread_mutex_lock(&q->lock);
	for (;;) {
		struct work *w = NULL;

		while (!q->stop && (!q->running || !(w = qemu_work_take(q))))
			pthread_cond_wait(&q->changed, &q->lock);
		if (!w)
			break;
		worker_note(&q->at[a.nr], w);
		pthread_mutex_unlock(&q->lock);
		qemu_work_run(q, w);
		pthread_mutex_lock(&q->lock);
		q->at[a.nr] = (struct at_work){ 0 };
		pthread_cond_broadcast(&q->changed);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

/* --- the driver's face ------------------------------------------------------------------- */

static int qemu_probe(void *ctx, struct err *e)
{
	struct qemu *q = ctx;
	struct helper_info info;

	return helper_client_info(q->conf.helper, &info, e);
}

/* With the lock held. */
static void qemu_borrow(struct qemu *q, const struct effect *fx,
			const char *lender)
{
	struct borrow *b = base_alloc(sizeof(*b));

	b->epoch = fx->epoch;
	memcpy(b->child, fx->session, sizeof(b->child));
	base_strcpy(b->lender, sizeof(b->lender), lender);
	b->next = q->borrows;
	q->borrows = b;
}

static void qemu_start(void *ctx, struct effect *fx)
{
	struct qemu *q = ctx;

	pthread_mutex_lock(&q->lock);
	if (fx->kind == EFFECT_RESTORE &&
	    strcmp(fx->base.session, fx->session) != 0) {
		qemu_borrow(q, fx, fx->base.session);
		if (fx->parent[0] && strcmp(fx->parent, fx->base.session) != 0)
			qemu_borrow(q, fx, fx->parent);
	}
	qemu_work_put(q, WORK_EFFECT, fx->session, fx->epoch, fx);
	pthread_mutex_unlock(&q->lock);
}

const struct backend *qemu_backend(struct qemu *q)
{
	return &q->backend;
}

static int qemu_threads(struct qemu *q, struct err *e)
{
	sigset_t all, old;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (r == 0 && q->nr_workers < QEMU_WORKERS) {
		struct worker_arg *a = base_alloc(sizeof(*a));

		*a = (struct worker_arg){ .q = q, .nr = q->nr_workers };
		r = pthread_create(&q->workers[q->nr_workers], NULL,
				   qemu_worker_main, a);
		q->nr_workers += r == 0;
	}
	while (r == 0 && q->nr_servers < QEMU_SERVERS) {
		r = pthread_create(&q->servers[q->nr_servers], NULL,
				   qemu_server_main, q);
		q->nr_servers += r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r ? err_sys(e, r, "start a worker thread") : 0;
}

int qemu_new(struct qemu **ret, const struct qemu_conf *c, struct err *e)
{
	static const struct hub_ops hub_ops = { .request = qemu_request,
						.down = qemu_down };
	struct qemu *q = base_alloc(sizeof(*q));
	int r;

	q->conf = *c;
	q->last_work = &q->work;
	q->last_query = &q->queries;
	q->last_token = &q->token_queue;
	q->last_early = &q->early;
	q->images = images_new(c->image_cache_bytes);
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->changed, NULL);
	q->backend = (struct backend){
		.name = "qemu",
		.ctx = q,
		.caps = { .rolling = true,
			  .memory = true,
			  .disk = true,
			  .fork_cow = true,
			  .isolation = c->accel == VMM_ACCEL_KVM
					       ? ISOLATION_VM
					       : ISOLATION_PROCESS },
		.probe = qemu_probe,
		.fits = qemu_fits,
		.start = qemu_start,
	};
	r = hub_new(&q->hub, &hub_ops, q, e);
	if (r == 0)
		r = qemu_threads(q, e);
	if (r < 0) {
		qemu_free(q);
		return r;
	}
	*ret = q;
	return 0;
}

void qemu_stop(struct qemu *q)
{
	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	if (q->hub)
		hub_stop(q->hub);
	while (q->nr_workers)
		pthread_join(q->workers[--q->nr_workers], NULL);
	while (q->nr_servers)
		pthread_join(q->servers[--q->nr_servers], NULL);
}

/* What was left waiting; no thread is there any more. */
static void qemu_free_queues(struct qemu *q)
{
	while (q->work)
		work_free(work_unlink(q, &q->work));
	while (q->queries) {
		struct query *x = q->queries;

		q->queries = x->next;
		hub_unref(x->link);
		free(x);
	}
	while (q->token_queue) {
		struct waiting_token *t = q->token_queue;

		q->token_queue = t->next;
		hub_unref(t->link);
		free(t);
	}
	while (q->borrows) {
		struct borrow *b = q->borrows;

		q->borrows = b->next;
		free(b);
	}
	while (q->early) {
		struct news *n = q->early;

		q->early = n->next;
		command_drop(n->c);
		free(n);
	}
}

void qemu_free(struct qemu *q)
{
	if (!q)
		return;
	qemu_stop(q);
	qemu_free_queues(q);
	while (q->sandboxes)
		hub_unref(sandbox_unlink(q, q->sandboxes, false));
	images_free(q->images);
	hub_free(q->hub);
	pthread_mutex_destroy(&q->lock);
	pthread_cond_destroy(&q->changed);
	free(q);
}
