/*
 * qemu_requests: what cryo-vms ask and tell. The hub's thread takes it; what
 * touches the disk goes to two servers, what is news becomes a command of the
 * engine, whose reply becomes the answer: a cryo-vm drops a report only when
 * its event is durable.
 */
#include "core/backend/qemu_impl.h"

#include "core/log.h"

/* An answer that waits for the engine. */
struct pending {
	struct hub_link *link; /* one reference */
	enum wire_type type;
	uint64_t call;
};

static void request_answered(void *ctx, const struct reply *r)
{
	struct pending *p = ctx;
	const char *msg = r->rc < 0 ? r->err.msg : NULL;

	hub_answer(p->link, p->type, p->call, MIN(r->rc, 0), msg,
		   msg ? strlen(msg) : 0, NULL, 0);
	hub_unref(p->link);
	free(p);
}

/* A command about this link's session whose reply answers the message. */
static struct command *request_command(struct hub_link *k,
				       const struct wire_msg *m,
				       enum command_kind kind)
{
	struct command *c = command_new(kind);
	struct pending *p = base_alloc(sizeof(*p));

	*p = (struct pending){ .link = hub_ref(k),
			       .type = m->type,
			       .call = m->call };
	base_strcpy(c->session, sizeof(c->session), hub_session(k));
	base_strcpy(c->actor, sizeof(c->actor), "driver");
	c->epoch = hub_epoch(k);
	c->done = request_answered;
	c->done_ctx = p;
	return c;
}

/* --- tokens ----------------------------------------------------------------------- */

static void token_grant(struct qemu *q, struct hub_link *k, uint64_t call)
{
	struct sandbox *s = qemu_sandbox(q, hub_session(k));

	if (!s || s->link != k)
		return;
	/* who asks twice has one */
	q->tokens += !s->token;
	s->token = true;
	hub_answer(k, WIRE_TOKEN, call, 0, NULL, 0, NULL, 0);
}

static void token_next(struct qemu *q)
{
	while (q->tokens < QEMU_CAPTURES_MAX && q->token_queue) {
		struct waiting_token *w = q->token_queue;

		q->token_queue = w->next;
		if (!q->token_queue)
			q->last_token = &q->token_queue;
		token_grant(q, w->link, w->call);
		hub_unref(w->link);
		free(w);
	}
}

void qemu_token_release(struct qemu *q, struct sandbox *s)
{
	if (!s->token)
		return;
	s->token = false;
	q->tokens--;
	token_next(q);
}

/* No room for captures: says so, to the cryo-vm and in the log. */
static void token_refuse(struct qemu *q, struct hub_link *k,
			 const struct wire_msg *m, const struct err *e)
{
	struct command *c = command_new(COMMAND_CAPTURE_SKIPPED);

	base_strcpy(c->session, sizeof(c->session), hub_session(k));
	base_strcpy(c->actor, sizeof(c->actor), "driver");
	c->epoch = hub_epoch(k);
	c->made.kind = POINT_ROLLING;
	c->err = *e;
	qemu_outcome(q, c);
	hub_answer(k, WIRE_TOKEN, m->call, -ENOSPC, e->msg, strlen(e->msg),
		   NULL, 0);
}

static void request_token(struct qemu *q, struct hub_link *k,
			  const struct wire_msg *m)
{
	struct waiting_token *w;
	struct err e;

	if (q->conf.host->capture_allowed(q->conf.host->ctx, &e) < 0) {
		token_refuse(q, k, m, &e);
		return;
	}
	w = base_alloc(sizeof(*w));
	*w = (struct waiting_token){ .link = hub_ref(k), .call = m->call };
	pthread_mutex_lock(&q->lock);
	*q->last_token = w;
	q->last_token = &w->next;
	token_next(q);
	pthread_mutex_unlock(&q->lock);
}

/* --- captures ------------------------------------------------------------------------ */

/* A rolling capture has ended: its token is free. */
static void capture_ended(struct qemu *q, struct hub_link *k, uint32_t kind)
{
	struct sandbox *s;

	if (kind != POINT_ROLLING)
		return;
	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, hub_session(k));
	if (s && s->link == k)
		qemu_token_release(q, s);
	pthread_mutex_unlock(&q->lock);
}

static void request_captured(struct qemu *q, struct hub_link *k,
			     const struct wire_msg *m)
{
	struct command *c = request_command(k, m, COMMAND_CAPTURED);
	struct point *p = &c->made;
	struct wire_captured w;

	wire_body(m, &w, sizeof(w));
	WIRE_TEXT(w.point);
	WIRE_TEXT(w.parent);
	WIRE_TEXT(w.name);
	memcpy(p->id, w.point, sizeof(p->id));
	memcpy(p->parent, w.parent, sizeof(p->parent));
	base_strcpy(p->name, sizeof(p->name), w.name);
	p->kind = w.kind < POINT_KIND_NR ? w.kind : POINT_ROLLING;
	p->time_ns = w.time_ns;
	memcpy(p->pack, w.pack, sizeof(p->pack));
	p->offset = w.offset;
	memcpy(p->root, w.root, sizeof(p->root));
	memcpy(p->compat, w.compat, sizeof(p->compat));
	p->memory_pages = w.memory_pages;
	p->disk_pages = w.disk_pages;
	p->stored_bytes = w.stored_bytes;
	p->freeze_us = (uint64_t)MAX(w.freeze_us, 0);
	p->capture_us = (uint64_t)MAX(w.capture_us, 0);
	p->unquiesced = w.unquiesced;
	p->keyframe = w.depth == 0;
	capture_ended(q, k, w.kind);
	qemu_capture_outcome(q, c, w.ticket);
}

static void request_skipped(struct qemu *q, struct hub_link *k,
			    const struct wire_msg *m)
{
	struct command *c = request_command(k, m, COMMAND_CAPTURE_SKIPPED);
	struct wire_skipped w;

	wire_body(m, &w, sizeof(w));
	WIRE_TEXT(w.why);
	c->made.kind = w.kind < POINT_KIND_NR ? w.kind : POINT_ROLLING;
	err_set(&c->err, -EAGAIN, ERR_BUSY, "%s", w.why);
	capture_ended(q, k, w.kind);
	qemu_capture_outcome(q, c, w.ticket);
}

/* --- execs, trouble -------------------------------------------------------------------- */

static void request_exited(struct qemu *q, struct hub_link *k,
			   const struct wire_msg *m)
{
	struct command *c = request_command(k, m, COMMAND_EXEC_EXITED);
	struct wire_exited w;

	wire_body(m, &w, sizeof(w));
	WIRE_TEXT(w.tag);
	memcpy(c->tag, w.tag, sizeof(c->tag));
	c->code = (int)MIN(w.code, 255u);
	c->signal = (int)MIN(w.signal, 64u);
	c->out_len = w.out_total;
	c->err_len = w.err_total;
	if (w.lost)
		err_set(&c->err, -ESRCH, ERR_GONE,
			"the guest no longer knows it");
	else if (w.refused)
		err_set(&c->err, -ENOEXEC, ERR_INVALID,
			"the guest could not start it");
	qemu_outcome(q, c);
}

static void request_died(struct qemu *q, struct hub_link *k,
			 const struct wire_msg *m)
{
	struct command *c = request_command(k, m, COMMAND_DIED);
	struct reply none = { 0 };
	struct wire_died w;
	struct sandbox *s;
	bool news;

	wire_body(m, &w, sizeof(w));
	WIRE_TEXT(w.why);
	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, hub_session(k));
	news = s && s->link == k && qemu_sandbox_died(q, s);
	pthread_mutex_unlock(&q->lock);
	if (news) {
		err_set(&c->err, -EPIPE, ERR_INTERNAL, "%s", w.why);
		qemu_outcome(q, c);
		return;
	}
	/* a start that fails, or a kill: reported as such */
	request_answered(c->done_ctx, &none);
	command_free(c);
}

static void request_stalled(struct qemu *q, struct hub_link *k,
			    const struct wire_msg *m)
{
	struct wire_stalled w;
	struct command *c;

	wire_body(m, &w, sizeof(w));
	WIRE_TEXT(w.why);
	c = command_new(w.stalled ? COMMAND_STALLED : COMMAND_HEALED);
	base_strcpy(c->session, sizeof(c->session), hub_session(k));
	base_strcpy(c->actor, sizeof(c->actor), "driver");
	c->epoch = hub_epoch(k);
	err_set(&c->err, -EIO, ERR_NO_SPACE, "%s", w.why);
	qemu_outcome(q, c);
}

static void request_output(struct qemu *q, struct hub_link *k,
			   const struct wire_msg *m)
{
	struct wire_output w;

	wire_body(m, &w, sizeof(w));
	WIRE_TEXT(w.tag);
	if (q->conf.on_output)
		q->conf.on_output(q->conf.on_output_ctx, hub_session(k), w.tag,
				  &w);
}

/* --- packs -------------------------------------------------------------------------------- */

static void request_pack(struct qemu *q, struct hub_link *k,
			 const struct wire_msg *m)
{
	struct query *x = base_alloc(sizeof(*x));

	x->link = hub_ref(k);
	x->type = m->type;
	x->call = m->call;
	if (m->type == WIRE_PACK_OPEN)
		wire_body(m, x->pack, sizeof(x->pack));
	pthread_mutex_lock(&q->lock);
	*q->last_query = x;
	q->last_query = &x->next;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

/* The nth of those whose packs a starting fork may read already. */
static bool query_lender(struct qemu *q, const char *child, int nth,
			 char ret[ID_LEN + 1])
{
	bool found = false;

	pthread_mutex_lock(&q->lock);
	for (struct borrow *b = q->borrows; b && !found; b = b->next) {
		found = !strcmp(b->child, child) && nth-- == 0;
		if (found)
			memcpy(ret, b->lender, ID_LEN + 1);
	}
	pthread_mutex_unlock(&q->lock);
	return found;
}

static int query_open(struct qemu *q, const struct query *x,
		      struct wire_pack *p, int *fd, struct err *e)
{
	const struct qemu_host *h = q->conf.host;
	const char *session = hub_session(x->link);
	char lender[ID_LEN + 1];
	int r;

	if (!hub_is_up(x->link))
		return err_set(e, -EPIPE, ERR_BUSY, "the sandbox is gone");
	if (x->type == WIRE_PACK_NEW)
		return h->pack_new(h->ctx, session, p->id, p->key, fd, e);
	memcpy(p->id, x->pack, sizeof(p->id));
	r = h->pack_open(h->ctx, session, x->pack, p->key, fd, e);
	for (int i = 0; r == -ENOENT && query_lender(q, session, i, lender); i++)
		r = h->pack_open(h->ctx, lender, x->pack, p->key, fd, e);
	return r;
}

static void query_run(struct qemu *q, struct query *x)
{
	struct wire_pack p = { 0 };
	struct err e;
	int fd = -1;
	int r = query_open(q, x, &p, &fd, &e);

	if (r < 0) {
		log_warn("event=pack_refused session=%s why=\"%s\"",
			 hub_session(x->link), e.msg);
		hub_answer(x->link, x->type, x->call, r, e.msg, strlen(e.msg),
			   NULL, 0);
	} else {
		hub_answer(x->link, x->type, x->call, 0, &p, sizeof(p), &fd, 1);
		close(fd);
	}
	base_wipe(&p, sizeof(p));
	hub_unref(x->link);
	free(x);
}

void *qemu_server_main(void *ctx)
{
	struct qemu *q = ctx;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		struct query *x;

		while (!q->stop && !q->queries)
			pthread_cond_wait(&q->changed, &q->lock);
		if (q->stop)
			break;
		x = q->queries;
		q->queries = x->next;
		if (!q->queries)
			q->last_query = &q->queries;
		pthread_mutex_unlock(&q->lock);
		query_run(q, x);
		pthread_mutex_lock(&q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

/* --- entry points ---------------------------------------------------------------------------- */

void qemu_request(void *ctx, struct hub_link *k, struct wire_msg *m)
{
	static void (*const run[WIRE_NR])(struct qemu *, struct hub_link *,
					  const struct wire_msg *) = {
		[WIRE_PACK_OPEN] = request_pack,
		[WIRE_PACK_NEW] = request_pack,
		[WIRE_TOKEN] = request_token,
		[WIRE_CAPTURED] = request_captured,
		[WIRE_SKIPPED] = request_skipped,
		[WIRE_EXITED] = request_exited,
		[WIRE_OUTPUT] = request_output,
		[WIRE_DIED] = request_died,
		[WIRE_STALLED] = request_stalled,
	};

	PRE(run[m->type]); /* wire_recv() checks the direction */
	run[m->type](ctx, k, m);
}

/* A cryo-vm's end: news if its sandbox was up and nobody had asked for it. */
void qemu_down(void *ctx, struct hub_link *k)
{
	struct qemu *q = ctx;
	struct sandbox *s;
	bool news;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, hub_session(k));
	news = s && s->link == k && qemu_sandbox_died(q, s);
	pthread_mutex_unlock(&q->lock);
	if (news)
		qemu_report_died(q, hub_session(k), hub_epoch(k),
				 "the sandbox's keeper ended");
}
