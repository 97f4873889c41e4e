/*
 * qemu_find: a new daemon finds the sandboxes of the last one by their
 * sockets, asks each who it is, and keeps those that run. One that never got
 * to START, or that doesn't answer, is ended: no row can be owed to it.
 */
#include "core/backend/qemu_impl.h"

#include <time.h>

#include "core/log.h"

#define FIND_MS 5000

struct found {
	struct qemu *q;
	struct {
		char session[ID_LEN + 1];
		uint32_t slot;
	} at[HELPER_SLOTS];
	int nr;
};

static void find_socket(void *arg, const char *session, uint32_t slot)
{
	struct found *f = arg;

	if (f->nr == HELPER_SLOTS || slot >= HELPER_SLOTS)
		return;
	base_strcpy(f->at[f->nr].session, sizeof(f->at[0].session), session);
	f->at[f->nr++].slot = slot;
}

static int64_t find_wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/*
 * Enters the sandbox before asking: what it reports right behind its answer
 * must find it here.
 */
static struct sandbox *find_enter(struct qemu *q, const char *session,
				  uint32_t slot, struct hub_link *k)
{
	struct sandbox *s = base_alloc(sizeof(*s));

	base_strcpy(s->session, sizeof(s->session), session);
	s->slot = slot;
	s->epoch = hub_epoch(k);
	s->link = hub_ref(k);
	s->state = SANDBOX_UP;
	s->told = true;
	pthread_mutex_lock(&q->lock);
	s->next = q->sandboxes;
	q->sandboxes = s;
	q->slots[slot / 64] |= (uint64_t)1 << (slot % 64);
	pthread_mutex_unlock(&q->lock);
	return s;
}

static bool find_phase_lives(uint32_t phase)
{
	return phase == WIRE_PHASE_RUNNING || phase == WIRE_PHASE_PAUSED ||
	       phase == WIRE_PHASE_STALLED || phase == WIRE_PHASE_DEAD;
}

static int find_ask(struct hub_link *k, struct hub_reply *reply,
		    struct wire_status *ret, struct err *e)
{
	struct wire_hello hello = { .now_wall_ns = (uint64_t)find_wall_ns() };
	int r = hub_call(k, WIRE_HELLO, &hello, sizeof(hello), NULL, 0, NULL, 0,
			 FIND_MS, sizeof(*ret), reply, e);

	if (r < 0)
		return r;
	memcpy(ret, reply->body, sizeof(*ret));
	WIRE_TEXT(ret->session);
	if (!find_phase_lives(ret->phase) ||
	    strcmp(ret->session, hub_session(k)) != 0 ||
	    ret->nr_execs > WIRE_EXECS_MAX ||
	    reply->len != sizeof(*ret) + ret->nr_execs *
						 sizeof(struct wire_exec_state))
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "it had not started, or is not that session's");
	return 0;
}

static void find_note(struct sandbox *s, const struct wire_status *w,
		      const struct hub_reply *reply, struct backend_live *ret)
{
	size_t len = w->nr_execs * sizeof(struct wire_exec_state);

	s->stopped = w->phase == WIRE_PHASE_PAUSED;
	s->nr_hello = w->nr_execs;
	s->hello = base_alloc(len + 1);
	memcpy(s->hello, reply->body + sizeof(*w), len);
	*ret = (struct backend_live){ .epoch = w->epoch,
				      .stopped = s->stopped,
				      .hello_known = true,
				      .hello_ns = find_wall_ns(),
				      .nr_hello = (int)w->nr_execs };
	memcpy(ret->session, s->session, sizeof(ret->session));
	ret->hello = base_alloc((w->nr_execs + 1) * sizeof(*ret->hello));
	for (uint32_t i = 0; i < w->nr_execs; i++) {
		WIRE_TEXT(s->hello[i].tag);
		memcpy(ret->hello[i].tag, s->hello[i].tag,
		       sizeof(ret->hello[i].tag));
		ret->hello[i].exited = s->hello[i].phase == WIRE_EXEC_EXITED;
		ret->hello[i].out = s->hello[i].out_from;
		ret->hello[i].err = s->hello[i].err_from;
	}
}

/* No sandbox is to be behind this socket. */
static void find_end(struct qemu *q, struct sandbox *s, const char *session,
		     uint32_t slot)
{
	const struct qemu_host *h = q->conf.host;
	struct err e;

	if (s)
		qemu_sandbox_end(q, s, &e); /* it logs */
	else if (helper_client_kill(q->conf.helper, slot, &e) == 0)
		h->unlisten(h->ctx, session, slot);
	else
		log_error("event=kill_failed session=%s slot=%u why=\"%s\"",
			  session, slot, e.msg);
}

/* Another sandbox of the session was found before: the newer epoch stays. */
static int find_older(struct qemu *q, const struct sandbox *s,
		      struct sandbox **ret, struct err *e)
{
	struct sandbox *x;

	*ret = NULL;
	for (x = q->sandboxes; x; x = x->next)
		if (x != s && !strcmp(x->session, s->session))
			break;
	if (x && x->epoch >= s->epoch)
		return err_set(e, -EEXIST, ERR_CONFLICT,
			       "epoch %u of it runs too", x->epoch);
	*ret = x;
	return 0;
}

/* One socket: 0 and *ret if a sandbox runs behind it; else it is ended. */
static int find_one(struct qemu *q, const char *session, uint32_t slot,
		    struct backend_live *ret, struct err *e)
{
	const struct qemu_host *h = q->conf.host;
	struct hub_reply reply = { 0 };
	struct sandbox *s, *older = NULL;
	struct wire_status w;
	struct hub_link *k;
	int fd, r;

	r = h->connect(h->ctx, session, slot, &fd, e);
	if (r < 0) {
		find_end(q, NULL, session, slot);
		return r;
	}
	k = hub_add(q->hub, fd, session, 0, slot, NULL);
	s = find_enter(q, session, slot, k);
	r = find_ask(k, &reply, &w, e);
	if (r == 0) {
		hub_set_epoch(k, w.epoch);
		s->epoch = w.epoch;
		r = find_older(q, s, &older, e);
	}
	if (r == 0)
		find_note(s, &w, &reply, ret);
	if (r < 0)
		find_end(q, s, session, slot);
	else if (older)
		find_end(q, older, session, older->slot);
	hub_reply_done(&reply);
	hub_unref(k);
	return r;
}

/* What holds a slot without a sandbox of ours is of nobody: ended. */
static void find_reap(struct qemu *q)
{
	uint64_t alive[HELPER_SLOTS / 64];
	struct err e;

	if (helper_client_list(q->conf.helper, alive, &e) < 0)
		return;
	for (uint32_t i = 0; i < HELPER_SLOTS; i++) {
		if (!(alive[i / 64] & ~q->slots[i / 64]) ||
		    !((alive[i / 64] & ~q->slots[i / 64]) >> (i % 64) & 1))
			continue;
		log_warn("event=reaped slot=%u", i);
		helper_client_kill(q->conf.helper, i, &e);
	}
}

int qemu_find(struct qemu *q, struct backend_live **ret, int *ret_nr,
	      struct err *e)
{
	const struct qemu_host *h = q->conf.host;
	SCOPED_FREE struct found *f = base_alloc(sizeof(*f));
	struct backend_live *list;
	int n = 0, r;

	f->q = q;
	r = h->sockets(h->ctx, find_socket, f, e);
	if (r < 0)
		return r;
	list = base_alloc(((size_t)f->nr + 1) * sizeof(*list));
	for (int i = 0; i < f->nr; i++) {
		struct err why;

		r = find_one(q, f->at[i].session, f->at[i].slot, &list[n], &why);
		if (r == 0) {
			n++;
			continue;
		}
		log_warn("event=not_adopted session=%s why=\"%s\"",
			 f->at[i].session, why.msg);
	}
	find_reap(q);
	*ret = list;
	*ret_nr = n;
	return 0;
}

/* News that came before its sender had told its epoch gets that now. */
static void find_deliver(struct qemu *q, struct news *n)
{
	struct command *c = n->c;
	struct sandbox *s = qemu_sandbox(q, c->session);

	if (!c->epoch && s)
		c->epoch = s->epoch;
	if (n->ticket)
		qemu_capture_match(q, c, n->ticket);
	q->sink.submit(q->sink.ctx, c);
	free(n);
}

int qemu_run(struct qemu *q, struct outcome_sink sink, struct err *e UNUSED)
{
	pthread_mutex_lock(&q->lock);
	q->sink = sink;
	for (struct sandbox *s = q->sandboxes; s; s = s->next)
		qemu_work_put(q, WORK_ATTACH, s->session, s->epoch, NULL);
	while (q->early) {
		struct news *n = q->early;

		q->early = n->next;
		find_deliver(q, n);
	}
	q->last_early = &q->early;
	q->running = true;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	return 0;
}
