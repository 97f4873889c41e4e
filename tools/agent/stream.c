/*
 * stream: the pipes of one exec.
 *
 * Output: pipe -> ring -> OUT frames -> acknowledged -> dropped from the
 * ring. A full ring takes its pipe out of epoll (a hang-up would be reported
 * for ever, whatever is asked for) and an acknowledgement puts it back.
 * Input: STDIN frames -> ring -> pipe -> STDIN_ACK.
 *
 * Invariants:
 *  1. base <= sent <= base + ring.len for each output stream.
 *  2. A descriptor is in epoll if and only if its `watched` is set.
 *  3. in.received - in.ring.len is what has left for the pipe or was dropped.
 */
#include "tools/agent/agent.h"

#include <fcntl.h>
#include <sys/epoll.h>

#define PIPE_LEN (256 << 10)

uint64_t stream_data(const struct exec *x, unsigned slot, unsigned kind)
{
	return (uint64_t)x->generation << 32 | slot << 8 | kind;
}

static void watch_out(struct agent *a, struct exec *x, unsigned slot,
		      unsigned stream, bool on)
{
	struct exec_stream *s = &x->out[stream - 1];

	if (s->fd < 0 || s->watched == on)
		return;
	s->watched = on;
	if (on)
		agent_watch(a, s->fd, EPOLLIN,
			    stream_data(x, slot, WATCH_STDOUT + stream - 1));
	else
		agent_unwatch(a, s->fd);
}

void stream_open(struct agent *a, struct exec *x, unsigned slot, int fd[3])
{
	x->in.fd = fd[0];
	x->in.closed = fd[0] < 0;
	for (int i = 0; i < 3; i++) {
		if (fd[i] < 0)
			continue;
		fcntl(fd[i], F_SETPIPE_SZ, PIPE_LEN); /* a wish */
		fcntl(fd[i], F_SETFL, O_NONBLOCK);
	}
	for (unsigned i = 1; i <= 2; i++) {
		x->out[i - 1].fd = fd[i];
		watch_out(a, x, slot, i, true);
	}
	if (fd[0] < 0)
		return;
	/* asks for nothing: only told when the reader goes away */
	agent_watch(a, fd[0], 0, stream_data(x, slot, WATCH_STDIN));
	x->in.watched = true;
}

static void stream_ended(struct agent *a, struct exec_stream *s)
{
	if (s->watched)
		agent_unwatch(a, s->fd);
	s->watched = false;
	close(s->fd);
	s->fd = -1;
}

void stream_read(struct agent *a, struct exec *x, unsigned slot, unsigned stream)
{
	struct exec_stream *s = &x->out[stream - 1];
	size_t done = 0;

	if (s->fd < 0)
		return;
	ring_make(&s->ring, AGENT_RING_LEN);
	while (ring_free(&s->ring) && done < STREAM_TURN) {
		struct iovec v[2];
		ssize_t n = readv(s->fd, v, ring_space(&s->ring, v));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			stream_ended(a, s);
			return;
		}
		ring_filled(&s->ring, (size_t)n);
		done += (size_t)n;
	}
	watch_out(a, x, slot, stream, ring_free(&s->ring) > 0);
}

void stream_acked(struct agent *a, struct exec *x, unsigned slot,
		  unsigned stream, uint64_t offset)
{
	struct exec_stream *s = &x->out[stream - 1];

	/* what was never sent can't be safe; what is gone, is */
	if (offset <= s->base || offset > s->sent)
		return;
	ring_drop(&s->ring, offset - s->base);
	s->base = offset;
	watch_out(a, x, slot, stream, true);
}

static bool drain_known(const struct execs *xs, int fd)
{
	for (unsigned i = 0; i < xs->nr_drains; i++)
		if (xs->drain[i] == fd)
			return true;
	return false;
}

void stream_drain(struct agent *a, int fd)
{
	char scratch[16 << 10];
	ssize_t n = 1;

	if (!drain_known(&a->execs, fd))
		return; /* an old event: the number may be another's now */
	for (int i = 0; i < 16 && n > 0; i++)
		n = read(fd, scratch, sizeof(scratch));
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	for (unsigned i = 0; i < a->execs.nr_drains; i++)
		if (a->execs.drain[i] == fd)
			a->execs.drain[i] = a->execs.drain[--a->execs.nr_drains];
	agent_unwatch(a, fd);
	close(fd);
}

/* The oldest goes when there are too many: its writer gets SIGPIPE. */
static void drain_add(struct agent *a, int fd)
{
	struct execs *xs = &a->execs;

	if (xs->nr_drains == EXEC_DRAINS_MAX) {
		agent_unwatch(a, xs->drain[0]);
		close(xs->drain[0]);
		memmove(xs->drain, xs->drain + 1,
			--xs->nr_drains * sizeof(xs->drain[0]));
	}
	xs->drain[xs->nr_drains++] = fd;
	agent_watch(a, fd, EPOLLIN, (uint64_t)fd << 8 | WATCH_DRAIN);
}

void stream_give_up(struct agent *a, struct exec *x, unsigned stream)
{
	struct exec_stream *s = &x->out[stream - 1];

	if (s->fd < 0)
		return;
	if (s->watched)
		agent_unwatch(a, s->fd);
	s->watched = false;
	drain_add(a, base_steal_fd(&s->fd));
}

void stream_close_stdin(struct agent *a, struct exec *x)
{
	if (x->in.fd >= 0) {
		if (x->in.watched)
			agent_unwatch(a, x->in.fd);
		close(x->in.fd);
	}
	x->in.fd = -1;
	x->in.watched = false;
	x->in.closed = true;
	x->in.ack_due = true;
	ring_done(&x->in.ring);
}

/* Watches for room while there is something to write, else for the end. */
static void watch_in(struct agent *a, struct exec *x, unsigned slot)
{
	uint64_t data = stream_data(x, slot, WATCH_STDIN);

	agent_rewatch(a, x->in.fd, x->in.ring.len ? EPOLLOUT : 0, data);
}

void stream_write(struct agent *a, struct exec *x, unsigned slot)
{
	struct exec_stdin *in = &x->in;
	struct iovec v[2];

	while (in->fd >= 0 && in->ring.len) {
		int nr = ring_peek(&in->ring, 0, in->ring.len, v);
		ssize_t n = writev(in->fd, v, nr);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			stream_close_stdin(a, x);
			return;
		}
		ring_drop(&in->ring, (size_t)n);
		in->ack_due = true;
	}
	if (in->fd < 0)
		return;
	if (in->eof && !in->ring.len)
		stream_close_stdin(a, x);
	else
		watch_in(a, x, slot);
}

void stream_free(struct agent *a, struct exec *x)
{
	stream_close_stdin(a, x);
	for (unsigned i = 1; i <= 2; i++) {
		stream_give_up(a, x, i);
		ring_done(&x->out[i - 1].ring);
	}
}
