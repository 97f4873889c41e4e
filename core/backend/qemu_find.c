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
	    reply->len !=
		    sizeof(*ret) + ret->nr_execs * sizeof(struct wire_exec_state))
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "it had not started, or is not that session's");
	return 0;
}

static void find_note(struct sandbox *s, const struct wire_status *w,
		      const struct hub_reply *reply, struct backend_live *ret)
{
	size_t len = w->nr_execs * sizeof(struct wire_exec_state);

	s->epoch = w->epoch;
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

/* One socket: 0 and *ret if a sandbox runs behind it. */
static int find_one(struct qemu *q, const char *session, uint32_t slot,
		    struct backend_live *ret, struct err *e)
{
	const struct qemu_host *h = q->conf.host;
	struct hub_reply reply = { 0 };
	struct wire_status w;
	struct hub_link *k;
	struct sandbox *s;
	int fd, r;

	r = h->connect(h->ctx, session, slot, &fd, e);
	if (r < 0)
		return r;
	k = hub_add(q->hub, fd, session, 0, slot, NULL);
	s = find_enter(q, session, slot, k);
	r = find_ask(k, &reply, &w, e);
	if (r == 0) {
		hub_set_epoch(k, w.epoch);
		find_note(s, &w, &reply, ret);
	}
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

		r = find_one(q, f->at[i].session, f->at[i].slot, &list[n],
			     &why);
		if (r == 0) {
			n++;
			continue;
		}
		log_warn("event=not_adopted session=%s why=\"%s\"",
			 f->at[i].session, why.msg);
		qemu_sandbox_end(q, f->at[i].session);
		h->unlisten(h->ctx, f->at[i].session, f->at[i].slot);
	}
	find_reap(q);
	*ret = list;
	*ret_nr = n;
	return 0;
}

int qemu_run(struct qemu *q, struct outcome_sink sink, struct err *e UNUSED)
{
	struct command *early;

	q->sink = sink;
	pthread_mutex_lock(&q->lock);
	for (struct sandbox *s = q->sandboxes; s; s = s->next) {
		struct work *w = base_alloc(sizeof(*w));

		w->kind = WORK_ATTACH;
		memcpy(w->session, s->session, sizeof(w->session));
		qemu_work_put(q, w);
	}
	early = q->early;
	q->early = NULL;
	while (early) {
		struct command *c = early;

		early = c->next;
		c->next = NULL;
		/* it came before its sender had told its epoch */
		if (!c->epoch && qemu_sandbox(q, c->session))
			c->epoch = qemu_sandbox(q, c->session)->epoch;
		sink.submit(sink.ctx, c);
	}
	q->running = true;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	return 0;
}
