/*
 * qemu: see qemu.h and qemu_impl.h. Here: the queue of effects, the workers,
 * pausing, capturing, killing, purging.
 *
 * Invariants: 1. effects of a session run one at a time and in order; KILL
 * and PURGE first cut short what runs: they mark the sandbox, kill its
 * processes, and wait until its worker has let go. 2. Every effect with an
 * outcome has exactly one, but for those cut short. 3. A sandbox's slot is
 * free again only after the helper has said that its processes are gone.
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

void qemu_work_put(struct qemu *q, struct work *w)
{
	*q->last_work = w;
	q->last_work = &w->next;
	pthread_cond_broadcast(&q->changed);
}

void qemu_outcome(struct qemu *q, struct command *c)
{
	bool early;

	pthread_mutex_lock(&q->lock);
	early = !q->running;
	if (early) {
		*q->last_early = c;
		q->last_early = &c->next;
	}
	pthread_mutex_unlock(&q->lock);
	if (!early)
		q->sink.submit(q->sink.ctx, c);
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

void qemu_sandbox_end(struct qemu *q, const char *session)
{
	const struct qemu_host *h = q->conf.host;
	struct sandbox *s, **p;
	struct hub_link *link;
	uint32_t slot;
	struct err e;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, session);
	if (!s) {
		pthread_mutex_unlock(&q->lock);
		return;
	}
	s->kill = true;
	s->state = SANDBOX_GONE;
	slot = s->slot;
	link = s->link ? hub_ref(s->link) : NULL;
	pthread_mutex_unlock(&q->lock);
	if (link)
		hub_close(link);
	hub_unref(link);
	if (helper_client_kill(q->conf.helper, slot, &e) < 0)
		log_error("event=kill_failed session=%s why=\"%s\"", session,
			  e.msg);
	h->unlisten(h->ctx, session, slot);
	pthread_mutex_lock(&q->lock);
	for (p = &q->sandboxes; *p && *p != s; p = &(*p)->next)
		;
	if (*p) {
		*p = s->next;
		qemu_token_release(q, s);
		q->slots[slot / 64] &= ~((uint64_t)1 << (slot % 64));
		link = s->link;
		free(s->hello);
		free(s);
	} else {
		link = NULL; /* another worker was quicker */
	}
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	hub_unref(link);
}

void qemu_borrow_end(struct qemu *q, const char *child)
{
	pthread_mutex_lock(&q->lock);
	for (struct borrow **p = &q->borrows; *p;) {
		struct borrow *b = *p;

		if (strcmp(b->child, child) != 0) {
			p = &b->next;
			continue;
		}
		*p = b->next;
		free(b);
	}
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
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
	qemu_outcome(q, qemu_command(fx, stop ? COMMAND_PAUSED :
						COMMAND_CONTINUED));
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
static struct hub_link *qemu_capture_note(struct qemu *q,
					  const struct effect *fx)
{
	struct hub_link *k = qemu_link(q, fx->session);
	struct sandbox *s;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, fx->session);
	if (s) {
		memcpy(s->capture_op, fx->operation, sizeof(s->capture_op));
		s->capture_ticket = qemu_ticket(fx->operation);
		s->capture_stay = fx->stay_stopped;
		s->capture_kind = fx->point_kind;
	}
	pthread_mutex_unlock(&q->lock);
	return k;
}

static void qemu_capture(struct qemu *q, struct effect *fx)
{
	const struct qemu_host *h = q->conf.host;
	struct wire_capture w = { .kind = fx->point_kind,
				  .flags = fx->stay_stopped ?
						   WIRE_CAPTURE_STAY :
						   0,
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

/* Waits until no worker (but this one) is at the session. */
static void qemu_wait_idle(struct qemu *q, const char *session)
{
	for (;;) {
		bool busy = false;

		for (int i = 0; i < QEMU_WORKERS; i++)
			busy = busy || !strcmp(q->busy[i], session);
		if (!busy)
			return;
		pthread_cond_wait(&q->changed, &q->lock);
	}
}

static void qemu_cut(struct qemu *q, const char *session)
{
	struct sandbox *s;
	struct hub_link *k = NULL;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, session);
	if (s)
		s->kill = true;
	if (s && s->link)
		k = hub_ref(s->link);
	pthread_mutex_unlock(&q->lock);
	if (k)
		hub_close(k);
	hub_unref(k);
	pthread_mutex_lock(&q->lock);
	qemu_wait_idle(q, session);
	pthread_mutex_unlock(&q->lock);
}

static void qemu_kill(struct qemu *q, struct effect *fx)
{
	qemu_cut(q, fx->session);
	qemu_sandbox_end(q, fx->session);
	qemu_outcome(q, qemu_command(fx, COMMAND_KILLED));
}

static void qemu_purge(struct qemu *q, struct effect *fx)
{
	const struct qemu_host *h = q->conf.host;
	struct err e;
	bool lent;
	int r;

	qemu_cut(q, fx->session);
	qemu_sandbox_end(q, fx->session);
	qemu_borrow_end(q, fx->session);
	pthread_mutex_lock(&q->lock);
	do {
		lent = false;
		for (struct borrow *b = q->borrows; b; b = b->next)
			lent = lent || !strcmp(b->parent, fx->session);
		if (lent)
			pthread_cond_wait(&q->changed, &q->lock);
	} while (lent);
	pthread_mutex_unlock(&q->lock);
	images_forget(q->images, fx->session);
	r = h->purge(h->ctx, fx->session, &e);
	if (r < 0)
		qemu_effect_failed(q, fx, &e);
	else
		qemu_outcome(q, qemu_command(fx, COMMAND_PURGED));
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
		[EFFECT_PURGE] = qemu_purge,
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

static bool qemu_is_busy(const struct qemu *q, const char *session)
{
	for (int i = 0; i < QEMU_WORKERS; i++)
		if (!strcmp(q->busy[i], session))
			return true;
	return false;
}

/* Another KILL or PURGE of the session is queued before w. */
static bool work_behind(const struct qemu *q, const struct work *w)
{
	for (const struct work *x = q->work; x != w; x = x->next)
		if (!strcmp(x->session, w->session) &&
		    (!work_cuts(w) || work_cuts(x)))
			return true;
	return false;
}

/* The first piece of work that may run now, taken out; NULL: none. */
static struct work *qemu_work_take(struct qemu *q)
{
	for (struct work **p = &q->work; *p; p = &(*p)->next) {
		struct work *w = *p;

		if (work_behind(q, w) ||
		    (!work_cuts(w) && qemu_is_busy(q, w->session)))
			continue;
		*p = w->next;
		if (!*p)
			q->last_work = p;
		w->next = NULL;
		return w;
	}
	return NULL;
}

static void work_free(struct work *w)
{
	effect_free(w->fx);
	free(w);
}

static void qemu_work_run(struct qemu *q, struct work *w)
{
	if (w->kind == WORK_EFFECT)
		qemu_effect_run(q, w->fx);
	else if (w->kind == WORK_CLEAN)
		qemu_sandbox_end(q, w->session);
	else
		qemu_exec_attach(q, w->session);
	work_free(w);
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
		/* a cut waits for the session's worker: it is none itself */
		if (!work_cuts(w))
			memcpy(q->busy[a.nr], w->session,
			       sizeof(q->busy[a.nr]));
		pthread_mutex_unlock(&q->lock);
		qemu_work_run(q, w);
		pthread_mutex_lock(&q->lock);
		q->busy[a.nr][0] = 0;
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

static void qemu_start(void *ctx, struct effect *fx)
{
	struct qemu *q = ctx;
	struct work *w = base_alloc(sizeof(*w));

	w->kind = WORK_EFFECT;
	w->fx = fx;
	memcpy(w->session, fx->session, sizeof(w->session));
	pthread_mutex_lock(&q->lock);
	if (fx->kind == EFFECT_RESTORE &&
	    strcmp(fx->base.session, fx->session) != 0) {
		struct borrow *b = base_alloc(sizeof(*b));

		memcpy(b->child, fx->session, sizeof(b->child));
		memcpy(b->parent, fx->base.session, sizeof(b->parent));
		b->next = q->borrows;
		q->borrows = b;
	}
	qemu_work_put(q, w);
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
			  .isolation = c->accel == VMM_ACCEL_KVM ?
					       ISOLATION_VM :
					       ISOLATION_PROCESS },
		.probe = qemu_probe,
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

void qemu_free(struct qemu *q)
{
	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	hub_free(q->hub);
	for (int i = 0; i < q->nr_workers; i++)
		pthread_join(q->workers[i], NULL);
	for (int i = 0; i < q->nr_servers; i++)
		pthread_join(q->servers[i], NULL);
	images_free(q->images);
	free(q);
}
