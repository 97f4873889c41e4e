/*
 * exec: the table of processes that the host started.
 *
 *     NONE -> STARTING -> RUNNING -> DEAD -> FINAL -> NONE
 *                 |                            ^ EXIT_ACK
 *                 +-> NONE (execve failed: the host is told FAILED)
 *
 * STARTING ends when the status pipe does: execve(2) closes it, a failure
 * writes into it first. DEAD ends when both pipes have, or, if processes in
 * the background hold them, GRACE after the death and with nothing left to
 * read. FINAL stays until the host has acknowledged the exit: a restore or a
 * new connection finds it again.
 *
 * Invariants:
 *  1. A tag is in at most one slot; a tag that is over is in `past` and
 *     can't be started again while it is remembered.
 *  2. Once FINAL, the totals never change.
 *  3. EXITED goes out after the last OUT was sent.
 */
#include "tools/agent/exec.h"

#include "tools/agent/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#define GRACE (250 * NS_PER_MS)

void exec_init(struct agent *a)
{
	a->execs.slot = base_alloc(AGENT_EXECS_MAX * sizeof(struct exec));
}

static struct exec *exec_find(struct agent *a, const char *tag, unsigned *ret_slot)
{
	for (unsigned i = 0; i < a->execs.top; i++) {
		struct exec *x = &a->execs.slot[i];

		if (x->phase && !strcmp(x->tag, tag)) {
			*ret_slot = i;
			return x;
		}
	}
	return NULL;
}

static struct exec *exec_free_slot(struct agent *a, unsigned *ret_slot)
{
	for (unsigned i = 0; i < AGENT_EXECS_MAX; i++)
		if (!a->execs.slot[i].phase) {
			*ret_slot = i;
			a->execs.top = MAX(a->execs.top, i + 1);
			return &a->execs.slot[i];
		}
	return NULL;
}

static bool exec_is_past(const struct execs *xs, const char *tag)
{
	for (unsigned i = 0; i < EXEC_TAGS_MAX; i++)
		if (!strcmp(xs->past[i], tag))
			return true;
	return false;
}

/* Empties the slot; events still on their way carry the old generation. */
static void exec_forget(struct agent *a, struct exec *x)
{
	uint32_t generation = x->generation + 1;

	if (x->status >= 0) {
		agent_unwatch(a, x->status);
		close(x->status);
	}
	stream_free(a, x);
	*x = (struct exec){ .generation = generation };
	while (a->execs.top && !a->execs.slot[a->execs.top - 1].phase)
		a->execs.top--;
}

/* --- start ---------------------------------------------------------------- */

struct pipes {
	int fd[4][2]; /* stdin, stdout, stderr, status: read, write */
};

static void pipes_close(struct pipes *p)
{
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 2; k++)
			if (p->fd[i][k] >= 0)
				close(p->fd[i][k]);
}

static int pipes_open(struct pipes *p, bool want_stdin)
{
	memset(p, 0xff, sizeof(*p));
	for (int i = want_stdin ? 0 : 1; i < 4; i++)
		if (pipe2(p->fd[i], O_CLOEXEC))
			return -errno;
	if (!want_stdin)
		p->fd[0][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return p->fd[0][0] < 0 ? -errno : 0;
}

static int exec_spawn(struct agent *a, struct exec *x, unsigned slot,
		      struct spawn *s, bool want_stdin)
{
	struct pipes p SCOPED(pipes_close);
	int r = pipes_open(&p, want_stdin), ours[3];

	if (r)
		return r;
	s->in = p.fd[0][0];
	s->out = p.fd[1][1];
	s->err = p.fd[2][1];
	s->status = p.fd[3][1];
	r = spawn_fork(s, &x->pid);
	if (r)
		return r;
	ours[0] = base_steal_fd(&p.fd[0][1]);
	ours[1] = base_steal_fd(&p.fd[1][0]);
	ours[2] = base_steal_fd(&p.fd[2][0]);
	stream_open(a, x, slot, ours);
	x->status = base_steal_fd(&p.fd[3][0]);
	fcntl(x->status, F_SETFL, O_NONBLOCK);
	agent_watch(a, x->status, EPOLLIN, stream_data(x, slot, WATCH_STATUS));
	return 0;
}

static void exec_started(struct agent *a, struct exec *x, uint64_t id)
{
	channel_send(
		a, &(struct agent_msg){ .type = AGENT_EXEC_STARTED,
					.id = id,
					.exec_started = { (uint32_t)x->pid } });
}

/* The tag is known already: the answer is what became of it. */
static bool exec_start_again(struct agent *a, const struct agent_msg *m)
{
	const char *tag = m->exec_start.tag;
	unsigned slot;
	struct exec *x = exec_find(a, tag, &slot);

	if (x && x->phase == EXEC_STARTING)
		x->start_id = m->id;
	else if (x)
		exec_started(a, x, m->id);
	else if (exec_is_past(&a->execs, tag))
		channel_fail(a, m->id, EEXIST,
			     "exec %s was started before and is over", tag);
	else
		return false;
	return true;
}

void exec_start(struct agent *a, const struct agent_msg *m)
{
	const struct agent_exec_start *r = &m->exec_start;
	struct spawn s;
	struct exec *x;
	unsigned slot;
	char why[256];
	int e;

	if (exec_start_again(a, m))
		return;
	x = exec_free_slot(a, &slot);
	if (!x) {
		channel_fail(a, m->id, EAGAIN,
			     "%d execs run or wait to be acknowledged; wait "
			     "for one to end",
			     AGENT_EXECS_MAX);
		return;
	}
	e = spawn_prepare(&s, r, why, sizeof(why));
	if (e) {
		channel_fail(a, m->id, -e, "%s", why);
		return;
	}
	*x = (struct exec){ .phase = EXEC_STARTING,
			    .generation = x->generation,
			    .status = -1,
			    .start_id = m->id,
			    .in.fd = -1,
			    .out = { { .fd = -1 }, { .fd = -1 } } };
	memcpy(x->tag, r->tag, sizeof(x->tag));
	e = exec_spawn(a, x, slot, &s, r->flags & AGENT_EXEC_STDIN);
	spawn_done(&s);
	if (e) {
		channel_fail(a, m->id, -e, "start of exec %s: %s", x->tag,
			     strerror(-e));
		exec_forget(a, x);
	}
}

static const char *stage_text(int stage)
{
	switch (stage) {
	case SPAWN_USER:
		return "become the user";
	case SPAWN_CWD:
		return "enter the working directory";
	case SPAWN_EXEC:
		return "run the program (is it there, and executable?)";
	default:
		return "set up the process";
	}
}

/* The status pipe has ended, or says why it could not become the program. */
static void exec_status(struct agent *a, struct exec *x)
{
	int msg[2];
	ssize_t n = read(x->status, msg, sizeof(msg));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	agent_unwatch(a, x->status);
	close(x->status);
	x->status = -1;
	if (n != sizeof(msg)) {
		x->phase = EXEC_RUNNING;
		exec_started(a, x, x->start_id);
		return;
	}
	channel_fail(a, x->start_id, msg[0], "exec %s can't %s: %s", x->tag,
		     stage_text(msg[1]), strerror(msg[0]));
	exec_forget(a, x);
}

/* --- input, signals, acknowledgements -------------------------------------- */

void exec_stdin(struct agent *a, const struct agent_msg *m)
{
	const struct agent_stdin *r = &m->stdin_data;
	unsigned slot;
	struct exec *x = exec_find(a, r->tag, &slot);
	const uint8_t *p = r->data.p;
	size_t len = r->data.len;
	struct iovec v[2];
	int nr;

	/* a gap is never filled in by guessing: the ack says what is wanted */
	if (!x || r->offset > x->in.received)
		return;
	if (r->offset + len < x->in.received || x->in.eof)
		len = 0;
	else
		p += x->in.received - r->offset;
	if (len)
		len -= x->in.received - r->offset;
	if (x->in.closed) {
		x->in.received += len;
		x->in.ack_due = true;
		return;
	}
	ring_make(&x->in.ring, AGENT_STDIN_WINDOW);
	if (len > ring_free(&x->in.ring)) {
		x->in.ack_due = true; /* more than the window: not taken */
		return;
	}
	nr = ring_space(&x->in.ring, v);
	for (int i = 0; i < nr && len; i++) {
		size_t n = MIN(len, v[i].iov_len);

		memcpy(v[i].iov_base, p, n);
		ring_filled(&x->in.ring, n);
		x->in.received += n;
		p += n;
		len -= n;
	}
	x->in.eof |= r->eof;
	x->in.ack_due = true;
	stream_write(a, x, slot);
}

void exec_out_ack(struct agent *a, const struct agent_msg *m)
{
	unsigned slot;
	struct exec *x = exec_find(a, m->out_ack.tag, &slot);

	if (x)
		stream_acked(a, x, slot, m->out_ack.stream, m->out_ack.offset);
}

void exec_exit_ack(struct agent *a, const struct agent_msg *m)
{
	struct execs *xs = &a->execs;
	unsigned slot;
	struct exec *x = exec_find(a, m->exit_ack.tag, &slot);

	if (!x || x->phase != EXEC_FINAL)
		return;
	memcpy(xs->past[xs->past_next++ % EXEC_TAGS_MAX], x->tag, sizeof(x->tag));
	exec_forget(a, x);
}

void exec_signal(struct agent *a, const struct agent_msg *m)
{
	unsigned slot;
	struct exec *x = exec_find(a, m->signal.tag, &slot);
	int r = 0, before;

	if (past_find(&a->past, m->id, &before)) {
		r = before;
	} else if (!x) {
		r = -ESRCH;
	} else if (x->phase >= EXEC_DEAD) {
		r = 0; /* as late as a signal to a process that just ended */
	} else if (kill(-x->pid, (int)m->signal.signal)) {
		/* no group yet: it hasn't come to setsid(2) */
		r = kill(x->pid, (int)m->signal.signal) ? -errno : 0;
	}
	past_add(&a->past, m->id, r);
	channel_result(a, m->id, AGENT_SIGNAL_DONE, r, "signal to the exec");
}

/* --- ends ------------------------------------------------------------------ */

void exec_reap(struct agent *a)
{
	struct rusage usage;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
		struct exec *x = NULL;

		for (unsigned i = 0; i < a->execs.top && !x; i++)
			if (a->execs.slot[i].phase &&
			    a->execs.slot[i].phase < EXEC_DEAD &&
			    a->execs.slot[i].pid == pid)
				x = &a->execs.slot[i];
		if (x && x->status >= 0)
			exec_status(a, x);
		if (!x || !x->phase)
			continue; /* an orphan, or never became a program */
		x->phase = EXEC_DEAD;
		x->wait_status = status;
		x->usage = usage;
		x->give_up = agent_now() + GRACE;
		stream_close_stdin(a, x);
	}
}

/* From DEAD to FINAL, if it is time. Reads on until a pipe is empty. */
static void exec_finish(struct agent *a, struct exec *x, unsigned slot,
			int64_t now)
{
	for (unsigned i = 1; i <= 2; i++) {
		struct exec_stream *s = &x->out[i - 1];
		uint64_t before = stream_end(s);

		if (now < x->give_up || s->fd < 0)
			continue;
		stream_read(a, x, slot, i);
		if (stream_end(s) == before &&
		    (!s->ring.cap || ring_free(&s->ring)))
			stream_give_up(a, x, i);
	}
	if (x->out[0].fd < 0 && x->out[1].fd < 0)
		x->phase = EXEC_FINAL;
}

int64_t exec_tick(struct agent *a, int64_t now)
{
	int64_t next = INT64_MAX;

	for (unsigned i = 0; i < a->execs.top; i++) {
		struct exec *x = &a->execs.slot[i];
		int64_t at;

		if (x->phase == EXEC_DEAD)
			exec_finish(a, x, i, now);
		if (x->phase != EXEC_DEAD)
			continue;
		/* past the grace a full ring waits for an ack, or for more */
		at = now < x->give_up ? x->give_up : now + GRACE;
		next = MIN(next, at);
	}
	return next;
}

void exec_event(struct agent *a, uint64_t data)
{
	unsigned slot = (unsigned)(data >> 8 & 0xffff);
	struct exec *x = &a->execs.slot[slot];

	PRE(slot < AGENT_EXECS_MAX);
	if (!x->phase || x->generation != data >> 32)
		return;
	switch (data & 0xff) {
	case WATCH_STDOUT:
	case WATCH_STDERR:
		stream_read(a, x, slot,
			    (unsigned)(data & 0xff) - WATCH_STDOUT + 1);
		break;
	case WATCH_STDIN:
		if (x->in.ring.len)
			stream_write(a, x, slot);
		else
			stream_close_stdin(a, x);
		break;
	case WATCH_STATUS:
		if (x->status >= 0)
			exec_status(a, x);
		break;
	default:
		NEVER("not an event of an exec");
	}
}

/* --- towards the host ------------------------------------------------------ */

void exec_rewind(struct agent *a)
{
	for (unsigned i = 0; i < a->execs.top; i++) {
		struct exec *x = &a->execs.slot[i];

		x->exit_sent = false;
		x->out[0].sent = x->out[0].base;
		x->out[1].sent = x->out[1].base;
	}
}

uint32_t exec_list(struct agent *a, struct buf *raw)
{
	uint32_t nr = 0;

	for (unsigned i = 0; i < a->execs.top; i++) {
		const struct exec *x = &a->execs.slot[i];
		struct agent_exec_state st = {
			.phase = x->phase == EXEC_FINAL ? AGENT_EXEC_EXITED
							: AGENT_EXEC_RUNNING,
			.pid = (uint32_t)x->pid,
			.stdin_offset = x->in.received,
			.out_acked = x->out[0].base,
			.out_end = stream_end(&x->out[0]),
			.err_acked = x->out[1].base,
			.err_end = stream_end(&x->out[1]),
		};

		if (!x->phase)
			continue;
		memcpy(st.tag, x->tag, sizeof(st.tag));
		agent_exec_add(raw, &st);
		nr++;
	}
	return nr;
}

static void out_encode(const struct exec *x, unsigned stream, struct buf *b,
		       size_t *ret_len)
{
	const struct exec_stream *s = &x->out[stream - 1];
	struct agent_msg m = { .type = AGENT_OUT };
	uint8_t flat[AGENT_DATA_MAX];
	struct iovec v[2];
	int nr = ring_peek(&s->ring, s->sent - s->base, AGENT_DATA_MAX, v);
	size_t len = v[0].iov_len;

	m.out = (struct agent_out){
		x->tag, (uint8_t)stream, s->sent, { v[0].iov_base, (uint32_t)len }
	};
	if (nr == 2) {
		memcpy(flat, v[0].iov_base, len);
		memcpy(flat + len, v[1].iov_base, v[1].iov_len);
		len += v[1].iov_len;
		m.out.data = (struct agent_bytes){ flat, (uint32_t)len };
	}
	if (agent_msg_encode(b, &m))
		NEVER("our own OUT is valid");
	*ret_len = len;
}

bool exec_next_out(struct agent *a, struct buf *b)
{
	const unsigned nr = a->execs.top * 2;

	for (unsigned i = 0; i < nr; i++) {
		unsigned at = (a->execs.turn + i) % nr;
		struct exec *x = &a->execs.slot[at / 2];
		struct exec_stream *s = &x->out[at % 2];
		size_t len;

		if (!x->phase || s->sent == stream_end(s))
			continue;
		out_encode(x, at % 2 + 1, b, &len);
		s->sent += len;
		a->execs.turn = (at + 1) % nr;
		return true;
	}
	return false;
}

static void send_exited(struct agent *a, struct exec *x)
{
	struct agent_msg m = { .type = AGENT_EXITED };
	struct agent_exited *r = &m.exited;
	const struct timeval *ut = &x->usage.ru_utime, *st = &x->usage.ru_stime;

	r->tag = x->tag;
	if (WIFSIGNALED(x->wait_status))
		r->signal = (uint32_t)WTERMSIG(x->wait_status);
	r->code = r->signal ? 128 + r->signal
			    : (uint32_t)WEXITSTATUS(x->wait_status);
	r->out_total = stream_end(&x->out[0]);
	r->err_total = stream_end(&x->out[1]);
	r->user_us = (uint64_t)ut->tv_sec * 1000000 + (uint64_t)ut->tv_usec;
	r->sys_us = (uint64_t)st->tv_sec * 1000000 + (uint64_t)st->tv_usec;
	channel_send(a, &m);
	x->exit_sent = true;
}

void exec_notes(struct agent *a)
{
	for (unsigned i = 0; i < a->execs.top; i++) {
		struct exec *x = &a->execs.slot[i];
		struct agent_msg m = { .type = AGENT_STDIN_ACK };

		if (!x->phase)
			continue;
		if (x->in.ack_due && x->phase != EXEC_STARTING) {
			x->in.ack_due = false;
			m.stdin_ack.tag = x->tag;
			m.stdin_ack.offset = x->in.received - x->in.ring.len;
			m.stdin_ack.closed = x->in.closed;
			channel_send(a, &m);
		}
		if (x->phase == EXEC_FINAL && !x->exit_sent &&
		    x->out[0].sent == stream_end(&x->out[0]) &&
		    x->out[1].sent == stream_end(&x->out[1]))
			send_exited(a, x);
	}
}
