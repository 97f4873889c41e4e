/*
 * qemu_exec: execs: starting one, signalling it, and giving transcripts to
 * those that a restore brought back. A transcript's file is made before the
 * exec is asked for, so no byte of output is without a place.
 */
#include "core/backend/qemu_impl.h"

#include "core/log.h"
#include "core/rows.h"

#define EXEC_MS 40000
#define SIGNAL_MS 35000

/* Did the guest have it when it was found; or, has it its transcript? */
static bool exec_is_known(struct qemu *q, const char *session, const char *tag,
			  bool attached)
{
	struct sandbox *s;
	bool known = false;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, session);
	for (uint32_t i = 0; s && i < s->nr_hello; i++)
		if (!strcmp(s->hello[i].tag, tag))
			known = !attached || s->hello[i].attached;
	pthread_mutex_unlock(&q->lock);
	return known;
}

static int exec_put_strings(struct buf *b, const struct effect *fx,
			    struct wire_exec *w, struct err *e)
{
	const char *key;
	json_t *v;
	size_t i;

	json_array_foreach(fx->argv, i, v) {
		buf_put(b, json_string_value(v), json_string_length(v) + 1);
		w->nr_argv++;
	}
	json_object_foreach(fx->env, key, v) {
		buf_put_str(b, key);
		buf_put_u8(b, '=');
		buf_put(b, json_string_value(v), json_string_length(v) + 1);
		w->nr_env++;
	}
	if (b->len > WIRE_BODY_MAX - sizeof(*w))
		return err_set(
			e, -E2BIG, ERR_TOO_LARGE,
			"arguments and environment are %zu bytes, at most %zu fit",
			b->len, WIRE_BODY_MAX - sizeof(*w));
	return 0;
}

static int exec_request(struct qemu *q, const struct effect *fx,
			struct hub_link *k, struct err *e)
{
	const struct qemu_host *h = q->conf.host;
	SCOPED(buf_done) struct buf tail = { 0 };
	struct wire_exec w = { .flags = fx->has_stdin ? WIRE_EXEC_STDIN : 0 };
	SCOPED_FD int fd = -1;
	int r;

	memcpy(w.tag, fx->tag, sizeof(w.tag));
	base_strcpy(w.user, sizeof(w.user), fx->user);
	if (fx->cwd && !base_strcpy(w.cwd, sizeof(w.cwd), fx->cwd))
		return err_set(e, -ENAMETOOLONG, ERR_INVALID,
			       "cwd is longer than %zu bytes", sizeof(w.cwd) - 1);
	r = exec_put_strings(&tail, fx, &w, e);
	if (r == 0)
		r = h->transcript(h->ctx, fx->session, fx->exec, hub_epoch(k),
				  w.key, &fd, e);
	if (r == 0)
		r = hub_call(k, WIRE_EXEC, &w, sizeof(w), tail.p, tail.len, &fd,
			     1, EXEC_MS, 0, NULL, e);
	base_wipe(&w, sizeof(w));
	if (tail.p)
		base_wipe(tail.p, tail.len);
	return r;
}

/* What a shell would say of a program that it could not start. */
static int exec_code(int r)
{
	return r == -ENOENT ? 127 : 126;
}

void qemu_exec_start(struct qemu *q, struct effect *fx)
{
	struct hub_link *k;
	struct command *c;
	struct err e;
	int r;

	if (exec_is_known(q, fx->session, fx->tag, false))
		return; /* an earlier daemon had asked for it */
	k = qemu_link(q, fx->session);
	if (!k)
		return; /* its end, which is reported, takes the exec along */
	r = exec_request(q, fx, k, &e);
	hub_unref(k);
	/* the sandbox's end is told elsewhere; silence may still be a start */
	if (r == 0 || r == -ETIMEDOUT || r == -ECONNRESET ||
	    (r == -EPIPE && e.code == ERR_BUSY))
		return;
	c = qemu_command(fx, COMMAND_EXEC_EXITED);
	memcpy(c->tag, fx->tag, sizeof(c->tag));
	c->code = exec_code(r);
	c->err = e;
	qemu_outcome(q, c);
}

void qemu_exec_signal(struct qemu *q, struct effect *fx)
{
	struct hub_link *k = qemu_link(q, fx->session);
	struct wire_signal w = { .signal = (uint32_t)fx->signal };
	struct err e;

	if (!k)
		return;
	memcpy(w.tag, fx->tag, sizeof(w.tag));
	if (hub_call(k, WIRE_SIGNAL, &w, sizeof(w), NULL, 0, NULL, 0, SIGNAL_MS,
		     0, NULL, &e) < 0)
		log_warn("event=signal_failed session=%s exec=%s why=\"%s\"",
			 fx->session, fx->exec, e.msg);
	hub_unref(k);
}

/* --- execs that a restore brought back --------------------------------------------- */

static void exec_attach_one(struct qemu *q, struct hub_link *k,
			    const struct exec *x)
{
	const struct qemu_host *h = q->conf.host;
	struct wire_attach w = { 0 };
	SCOPED_FD int fd = -1;
	struct err e;
	int r;

	if (exec_is_known(q, x->session, x->tag, true))
		return; /* an earlier daemon gave it */
	memcpy(w.tag, x->tag, sizeof(w.tag));
	r = h->transcript(h->ctx, x->session, x->id, hub_epoch(k), w.key, &fd,
			  &e);
	if (r == -EEXIST)
		return;
	if (r == 0)
		r = hub_call(k, WIRE_ATTACH, &w, sizeof(w), NULL, 0, &fd, 1,
			     SIGNAL_MS, 0, NULL, &e);
	base_wipe(&w, sizeof(w));
	if (r < 0)
		log_warn("event=attach_failed session=%s exec=%s why=\"%s\"",
			 x->session, x->id, e.msg);
}

void qemu_exec_attach(struct qemu *q, const char *session)
{
	struct hub_link *k = qemu_link(q, session);
	struct exec *list = NULL;
	void *view = NULL;
	int n = 0, r;
	struct err e;

	if (!k)
		return;
	r = q->conf.views->open(q->conf.views->ctx, &view, &e);
	if (r == 0) {
		struct reader rd = { q->conf.views->ops, view };

		r = rows_execs(&rd, session, true, &list, &n, &e);
		q->conf.views->close(view);
	}
	if (r < 0)
		log_warn("event=attach_failed session=%s why=\"%s\"", session,
			 e.msg);
	for (int i = 0; i < n; i++) {
		if (list[i].epoch == hub_epoch(k))
			exec_attach_one(q, k, &list[i]);
		exec_done(&list[i]);
	}
	free(list);
	hub_unref(k);
}
