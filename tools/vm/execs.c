/*
 * execs: see execs.h. Output is acknowledged to the agent once it is in the
 * transcript; an exit is acknowledged once its event is in the log. So what
 * the guest may forget, the host has. Bytes that can't be stored now (disk
 * full, no transcript yet) are left unacknowledged: the agent keeps them and
 * slows the process, and sends them again after a reset, which is tried each
 * second.
 *
 * Invariants: 1. a transcript has no holes: a piece that starts behind its
 * end is left for the next reset. 2. EXITED is reported only when the
 * transcript holds all that the exec wrote. 3. At most AGENT_EXECS_MAX execs.
 */
#include "tools/vm/execs.h"

#include "core/log.h"
#include "store/transcript.h"

#define NOTE_EVERY_NS (10 * 1000000ll)
#define RETRY_NS (1000 * 1000000ll)
#define STDIN_WAIT_NS (1000 * 1000000ll)
#define CALL_TIMEOUT_MS 30000
#define EXEC_CODE_LOST 126 /* nobody knows how it ended */

struct exec {
	struct exec *next;
	struct execs *all;
	char tag[ID_LEN + 1];
	struct transcript *transcript; /* NULL: none attached yet */
	uint64_t from[3]; /* by agent stream: this epoch's start */
	uint64_t end[3]; /* seen of the stream, stored or not */
	bool missed; /* output came that could not be stored */
	bool full; /* the transcript's limit is reached */
	bool noisy; /* a note to the daemon is due */
	bool exited, reporting;
	bool told; /* the last HELLO had it */
	struct wire_exited exit;
	/* standard input */
	uint64_t stdin_end, stdin_acked;
	bool stdin_closed, stdin_waiting;
	struct link_from stdin_from;
	uint64_t stdin_want;
	struct loop_timer stdin_timer;
	/* EXEC in flight */
	bool starting;
	struct link_from start_from;
};

struct execs {
	struct loop *loop;
	struct link *link;
	struct agent_link *agent;
	uint32_t epoch, nr;
	struct exec *first;
	struct loop_timer note_timer, retry_timer;
	bool reset_due;
	loop_fn poke;
	void *poke_ctx;
};

static void execs_note(void *ctx);
static void exec_stdin_answer(void *ctx);

struct execs *execs_new(struct loop *l, struct link *k, uint32_t epoch)
{
	struct execs *x = base_alloc(sizeof(*x));

	x->loop = l;
	x->link = k;
	x->epoch = epoch;
	return x;
}

void execs_set_agent(struct execs *x, struct agent_link *a, loop_fn poke,
		     void *poke_ctx)
{
	x->agent = a;
	x->poke = poke;
	x->poke_ctx = poke_ctx;
}

static void execs_poke(struct execs *x)
{
	if (x->poke)
		x->poke(x->poke_ctx);
}

static struct exec *exec_find(struct execs *x, const char *tag)
{
	struct exec *t;

	for (t = x->first; t; t = t->next)
		if (!strcmp(t->tag, tag))
			return t;
	return NULL;
}

static struct exec *exec_add(struct execs *x, const char *tag)
{
	struct exec *t;

	if (x->nr >= AGENT_EXECS_MAX)
		return NULL;
	t = base_alloc(sizeof(*t));
	base_strcpy(t->tag, sizeof(t->tag), tag);
	t->all = x;
	t->next = x->first;
	x->first = t;
	x->nr++;
	return t;
}

static void exec_remove(struct execs *x, struct exec *t)
{
	for (struct exec **p = &x->first; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	x->nr--;
	t->stdin_closed = true;
	exec_stdin_answer(t);
	transcript_free(t->transcript);
	free(t);
}

/* --- what the agent says -------------------------------------------------- */

static uint64_t exec_end(const struct exec *t, enum agent_stream s)
{
	return t->transcript ? transcript_end(t->transcript,
					      s == AGENT_STDOUT ? TRANSCRIPT_OUT
								: TRANSCRIPT_ERR)
			     : t->from[s];
}

/* It has ended and the guest will say no more of it. */
static void exec_end_without(struct exec *t, const struct wire_exited *how)
{
	t->exited = true;
	t->exit = *how;
	memcpy(t->exit.tag, t->tag, sizeof(t->exit.tag));
	t->exit.out_total = exec_end(t, AGENT_STDOUT);
	t->exit.err_total = exec_end(t, AGENT_STDERR);
}

void execs_hello(struct execs *x, const struct agent_hello *h)
{
	struct agent_bytes rest = h->execs;
	struct agent_exec_state s;

	for (struct exec *t = x->first; t; t = t->next)
		t->told = false;
	while (agent_exec_next(&rest, &s) > 0) {
		struct exec *t = exec_find(x, s.tag);

		if (!t) {
			t = exec_add(x, s.tag);
			if (!t)
				return;
			t->from[AGENT_STDOUT] = s.out_acked;
			t->from[AGENT_STDERR] = s.err_acked;
			t->stdin_end = s.stdin_offset;
		}
		t->told = true;
		t->end[AGENT_STDOUT] = s.out_end;
		t->end[AGENT_STDERR] = s.err_end;
		t->stdin_acked = MIN(s.stdin_offset, t->stdin_end);
	}
	for (struct exec *t = x->first; t; t = t->next)
		if (!t->told && !t->starting && !t->exited)
			exec_end_without(
				t, &(struct wire_exited){ .code = EXEC_CODE_LOST,
							  .lost = 1 });
	execs_report(x);
}

/* What failed a second ago is tried again. */
static void execs_retry(void *ctx)
{
	struct execs *x = ctx;

	for (struct exec *t = x->first; t; t = t->next)
		x->reset_due = x->reset_due || (t->missed && t->transcript);
	execs_report(x);
	execs_poke(x);
}

static void execs_retry_later(struct execs *x)
{
	if (!x->retry_timer.at_ns)
		loop_arm(x->loop, &x->retry_timer, RETRY_NS, execs_retry, x);
}

static void exec_exit_answer(void *ctx, struct wire_msg *m);

/* An exit goes to the daemon once the transcript is complete. */
static void exec_report_exit(struct exec *t)
{
	struct execs *x = t->all;

	if (!t->exited || t->starting || t->reporting || !t->transcript ||
	    !link_is_up(x->link) ||
	    exec_end(t, AGENT_STDOUT) < t->exit.out_total ||
	    exec_end(t, AGENT_STDERR) < t->exit.err_total)
		return;
	if (transcript_sync(t->transcript) < 0) {
		execs_retry_later(x);
		return;
	}
	t->reporting = true;
	execs_note(x);
	link_ask_later(x->link, WIRE_EXITED, &t->exit, sizeof(t->exit),
		       exec_exit_answer, t);
}

static void exec_exit_answer(void *ctx, struct wire_msg *m)
{
	struct exec *t = ctx;
	struct execs *x = t->all;
	struct err e;

	t->reporting = false;
	if (!m || m->status < 0) {
		if (m)
			execs_retry_later(x);
		return;
	}
	if (x->agent)
		agent_link_exit_ack(x->agent, t->tag, &e);
	exec_remove(x, t);
	execs_poke(x);
}

void execs_report(struct execs *x)
{
	struct exec *t, *next;

	for (t = x->first; t; t = next) {
		next = t->next;
		exec_report_exit(t);
	}
}

void execs_out(struct execs *x, const struct agent_out *o)
{
	struct exec *t = exec_find(x, o->tag);
	enum agent_stream s = o->stream;
	enum transcript_stream ts = s == AGENT_STDOUT ? TRANSCRIPT_OUT
						      : TRANSCRIPT_ERR;
	struct err e;
	int r;

	if (!t)
		return;
	t->end[s] = MAX(t->end[s], o->offset + o->data.len);
	if (!t->transcript) {
		t->missed = true;
		return;
	}
	r = transcript_append(t->transcript, ts, o->offset, o->data.p,
			      o->data.len);
	if (r < 0) {
		/* behind a piece that is missed already: the reset brings it */
		if (!t->missed)
			log_warn("event=transcript_failed exec=%s why=\"%s\"",
				 t->tag, (err_sys(&e, -r, "append"), e.msg));
		t->missed = true;
		execs_retry_later(x);
		return;
	}
	t->full = r > 0;
	if (x->agent &&
	    agent_link_out_ack(x->agent, t->tag, s,
			       transcript_end(t->transcript, ts), &e) < 0) {
		/* its queue is full; a reset tells it how far we are */
		t->missed = true;
		execs_retry_later(x);
	}
	t->noisy = true;
	if (!x->note_timer.at_ns)
		loop_arm(x->loop, &x->note_timer, NOTE_EVERY_NS, execs_note, x);
	exec_report_exit(t);
}

void execs_exited(struct execs *x, const struct agent_exited *a)
{
	struct exec *t = exec_find(x, a->tag);

	if (!t || t->reporting)
		return;
	t->exited = true;
	t->exit = (struct wire_exited){ .code = a->code,
					.signal = a->signal,
					.out_total = a->out_total,
					.err_total = a->err_total };
	memcpy(t->exit.tag, t->tag, sizeof(t->exit.tag));
	exec_report_exit(t);
}

/* Tells the daemon how far transcripts have grown, at most every 10 ms. */
static void execs_note(void *ctx)
{
	struct execs *x = ctx;

	for (struct exec *t = x->first; t; t = t->next) {
		struct wire_output n = { .full = t->full };

		if (!t->noisy || !t->transcript)
			continue;
		t->noisy = false;
		memcpy(n.tag, t->tag, sizeof(n.tag));
		n.out_end = exec_end(t, AGENT_STDOUT);
		n.err_end = exec_end(t, AGENT_STDERR);
		link_note(x->link, WIRE_OUTPUT, &n, sizeof(n));
	}
}

/* --- requests of the daemon ----------------------------------------------- */

static void execs_refuse(struct execs *x, struct link_from to, int status,
			 const char *why)
{
	struct err e;

	err_set(&e, status, ERR_CONFLICT, "%s", why);
	link_reply_err(x->link, to, status, &e);
}

static int exec_open_transcript(struct exec *t, int fd, const uint8_t key[32],
				struct err *e)
{
	struct transcript_info info = { .epoch = t->all->epoch,
					.out_from = t->from[AGENT_STDOUT],
					.err_from = t->from[AGENT_STDERR] };

	memcpy(info.tag, t->tag, sizeof(info.tag));
	return transcript_create(&t->transcript, fd, key, &info, e);
}

static void exec_started(void *ctx, int ret, const struct agent_msg *m UNUSED,
			 const struct err *e)
{
	struct exec *t = ctx;
	struct execs *x = t->all;

	t->starting = false;
	if (ret == 0) {
		link_reply(x->link, t->start_from, NULL, 0, NULL, 0, NULL, 0);
		exec_report_exit(t); /* it may have been quick */
		return;
	}
	if (ret == -ECONNRESET || ret == -ETIMEDOUT) {
		/* it may run: the next HELLO tells, and its end is reported */
		link_reply_err(x->link, t->start_from, ret, e);
		t->missed = ret == -ETIMEDOUT;
		execs_retry_later(x);
	} else if (link_is_from(x->link, t->start_from)) {
		link_reply_err(x->link, t->start_from, ret, e);
		exec_remove(x, t);
	} else {
		/* who asked is gone, and the new daemon saw it starting */
		exec_end_without(t, &(struct wire_exited){
					    .code = ret == -ENOENT ? 127 : 126,
					    .refused = 1 });
		exec_report_exit(t);
	}
}

/* Splits the tail of EXEC into argv and env, each with a NULL at its end. */
static int execs_args(const struct wire_msg *m, const struct wire_exec *q,
		      const char ***ret)
{
	size_t n = (size_t)q->nr_argv + q->nr_env, at = 0;
	const char *p = (const char *)m->body + sizeof(*q);
	size_t left = m->len - sizeof(*q);
	const char **v;

	if (q->nr_argv < 1 || q->nr_argv > AGENT_ARGS_MAX ||
	    q->nr_env > AGENT_ARGS_MAX)
		return -EINVAL;
	v = base_alloc((n + 2) * sizeof(*v));
	for (size_t i = 0; i < n; i++) {
		const char *end = memchr(p, 0, left);

		if (!end) {
			free(v);
			return -EPROTO;
		}
		if (i == q->nr_argv)
			at++;
		v[at++] = p;
		left -= (size_t)(end - p) + 1;
		p = end + 1;
	}
	*ret = v;
	return 0;
}

void execs_start(struct execs *x, struct wire_msg *m)
{
	struct link_from to = link_from(x->link, m);
	SCOPED_FREE const char **v = NULL;
	struct wire_exec q;
	struct exec *t;
	struct err e;
	int r;

	wire_body(m, &q, sizeof(q));
	if (!WIRE_TEXT(q.tag) || !WIRE_TEXT(q.user) || !WIRE_TEXT(q.cwd) ||
	    !id_valid(q.tag) || execs_args(m, &q, &v) < 0)
		return execs_refuse(x, to, -EINVAL, "malformed exec request");
	if (!x->agent || !agent_link_up(x->agent))
		return execs_refuse(x, to, -ENOTCONN, "guest agent is silent");
	t = exec_find(x, q.tag);
	if (t && !t->starting) /* asked before; its end is reported */
		return link_reply(x->link, to, NULL, 0, NULL, 0, NULL, 0);
	if (t) {
		t->start_from = to;
		return;
	}
	t = exec_add(x, q.tag);
	if (!t)
		return execs_refuse(x, to, -EAGAIN,
				    "too many execs in this sandbox");
	r = exec_open_transcript(t, wire_take_fd(m, 0), q.key, &e);
	base_wipe(q.key, sizeof(q.key));
	if (r < 0) {
		link_reply_err(x->link, to, r, &e);
		exec_remove(x, t);
		return;
	}
	t->start_from = to;
	t->starting = true;
	r = agent_link_exec(x->agent, t->tag,
			    q.flags & WIRE_EXEC_STDIN ? AGENT_EXEC_STDIN : 0,
			    q.user, q.cwd, v, v + q.nr_argv + 1,
			    CALL_TIMEOUT_MS, exec_started, t, &e);
	if (r < 0)
		exec_started(t, r, NULL, &e);
}

void execs_attach(struct execs *x, struct wire_msg *m)
{
	struct link_from to = link_from(x->link, m);
	struct wire_attach q;
	struct exec *t;
	struct err e;
	int r = 0;

	wire_body(m, &q, sizeof(q));
	WIRE_TEXT(q.tag);
	t = exec_find(x, q.tag);
	if (!t)
		return execs_refuse(x, to, -ENOENT, "the guest has no such exec");
	if (!t->transcript)
		r = exec_open_transcript(t, wire_take_fd(m, 0), q.key, &e);
	base_wipe(q.key, sizeof(q.key));
	if (r < 0) {
		link_reply_err(x->link, to, r, &e);
		return;
	}
	if (t->missed)
		x->reset_due = true;
	link_reply(x->link, to, NULL, 0, NULL, 0, NULL, 0);
	exec_report_exit(t);
}

bool execs_wants_reset(struct execs *x)
{
	bool due = x->reset_due;

	x->reset_due = false;
	if (due)
		for (struct exec *t = x->first; t; t = t->next)
			t->missed = t->missed && !t->transcript;
	return due;
}

struct signal_call {
	struct execs *all;
	struct link_from to;
};

static void execs_signalled(void *ctx, int ret, const struct agent_msg *m UNUSED,
			    const struct err *e)
{
	struct signal_call *c = ctx;

	if (ret < 0)
		link_reply_err(c->all->link, c->to, ret, e);
	else
		link_reply(c->all->link, c->to, NULL, 0, NULL, 0, NULL, 0);
	free(c);
}

void execs_signal(struct execs *x, struct wire_msg *m)
{
	struct signal_call *c = base_alloc(sizeof(*c));
	struct wire_signal q;
	struct err e;
	int r;

	*c = (struct signal_call){ .all = x, .to = link_from(x->link, m) };
	wire_body(m, &q, sizeof(q));
	WIRE_TEXT(q.tag);
	if (!x->agent)
		r = err_set(&e, -ENOTCONN, ERR_CONFLICT, "guest agent is silent");
	else
		r = agent_link_signal(x->agent, q.tag, (int)q.signal,
				      CALL_TIMEOUT_MS, execs_signalled, c, &e);
	if (r < 0)
		execs_signalled(c, r, NULL, &e);
}

/* --- standard input -------------------------------------------------------- */

/* Answers the waiting request, if any, with how far the guest has taken it. */
static void exec_stdin_answer(void *ctx)
{
	struct exec *t = ctx;
	struct wire_stdin_ack a = { .offset = t->stdin_acked,
				    .end = t->stdin_end };

	loop_disarm(t->all->loop, &t->stdin_timer);
	if (!t->stdin_waiting)
		return;
	t->stdin_waiting = false;
	if (t->stdin_closed)
		execs_refuse(t->all, t->stdin_from, -EPIPE,
			     "the exec's standard input is closed");
	else
		link_reply(t->all->link, t->stdin_from, &a, sizeof(a), NULL, 0,
			   NULL, 0);
}

void execs_stdin(struct execs *x, struct wire_msg *m)
{
	struct link_from to = link_from(x->link, m);
	struct wire_stdin q;
	struct exec *t;
	struct err e;
	size_t len = m->len - sizeof(q);
	int r;

	wire_body(m, &q, sizeof(q));
	WIRE_TEXT(q.tag);
	t = exec_find(x, q.tag);
	if (!t)
		return execs_refuse(x, to, -ENOENT, "the guest has no such exec");
	if (!x->agent)
		return execs_refuse(x, to, -EPIPE, "the exec does not run");
	if (q.offset == UINT64_MAX)
		q.offset = t->stdin_end;
	if (q.offset > t->stdin_end || len > WIRE_CHUNK_MAX)
		return execs_refuse(x, to, -EINVAL,
				    "standard input would have a hole");
	exec_stdin_answer(t);
	if (!t->stdin_closed) {
		r = agent_link_stdin(x->agent, t->tag, q.offset,
				     m->body + sizeof(q), len, q.eof, &e);
		if (r < 0) {
			link_reply_err(x->link, to, r, &e);
			return;
		}
	}
	t->stdin_end = MAX(t->stdin_end, q.offset + len);
	t->stdin_waiting = true;
	t->stdin_from = to;
	t->stdin_want = q.offset + len;
	loop_arm(x->loop, &t->stdin_timer, STDIN_WAIT_NS, exec_stdin_answer, t);
	if (t->stdin_closed || t->stdin_acked >= t->stdin_want)
		exec_stdin_answer(t);
}

void execs_stdin_ack(struct execs *x, const struct agent_stdin_ack *a)
{
	struct exec *t = exec_find(x, a->tag);

	if (!t || a->offset > t->stdin_end)
		return;
	t->stdin_acked = MAX(t->stdin_acked, a->offset);
	t->stdin_closed = t->stdin_closed || a->closed;
	if (t->stdin_closed || t->stdin_acked >= t->stdin_want)
		exec_stdin_answer(t);
}

/* --- the rest -------------------------------------------------------------- */

uint32_t execs_states(const struct execs *x, struct wire_exec_state *ret,
		      uint32_t max)
{
	uint32_t n = 0;

	for (struct exec *t = x->first; t && n < max; t = t->next) {
		struct wire_exec_state *s = &ret[n++];

		*s = (struct wire_exec_state){
			.phase = t->exited ? WIRE_EXEC_EXITED : WIRE_EXEC_RUNNING,
			.code = t->exit.code,
			.signal = t->exit.signal,
			.attached = t->transcript != NULL,
			.out_from = t->from[AGENT_STDOUT],
			.err_from = t->from[AGENT_STDERR],
			.out_end = t->end[AGENT_STDOUT],
			.err_end = t->end[AGENT_STDERR],
		};
		memcpy(s->tag, t->tag, sizeof(s->tag));
	}
	return n;
}

void execs_sync(struct execs *x)
{
	for (struct exec *t = x->first; t; t = t->next)
		if (t->transcript)
			transcript_sync(t->transcript);
}
