/*
 * channel: what the host says is read, decoded and carried out; what is to
 * be said to it is queued and written.
 *
 * Two sources feed the port: `ctl`, a queue of replies and notes, and the
 * execs' rings, of which one OUT at a time is made in `frame`. Replies go
 * first, but never into the middle of a frame. When `ctl` grows past CTL_MAX
 * nothing more is read from the host until it has shrunk.
 *
 * Invariants:
 *  1. Before the first RESET, and while quiesced, nothing is written.
 *  2. After a RESET the first frame is its HELLO; whatever was queued before
 *     is gone, and output that was not acknowledged is sent again.
 *  3. A frame once begun is finished, unless a RESET comes.
 */
#include "tools/agent/agent.h"
#include "tools/agent/files.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#define CTL_MAX (1u << 20)

/* --- sending --------------------------------------------------------------- */

void channel_send(struct agent *a, const struct agent_msg *m)
{
	if (!a->up)
		return;
	if (agent_msg_encode(&a->ctl, m))
		NEVER("what the agent says is valid");
}

void channel_fail(struct agent *a, uint64_t id, int error, const char *fmt, ...)
{
	struct agent_msg m = { .type = AGENT_FAILED, .id = id };
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	m.failed.error = (uint32_t)error;
	m.failed.what = what;
	channel_send(a, &m);
}

void channel_result(struct agent *a, uint64_t id, enum agent_type type,
		    int result, const char *what)
{
	if (result)
		channel_fail(a, id, -result, "%s: %s", what, strerror(-result));
	else
		channel_send(a, &(struct agent_msg){ .type = type, .id = id });
}

/* Writes [at, end): true if all went, false if the port is full or gone. */
static bool port_write(struct agent *a, struct buf *b, size_t *at, size_t end)
{
	while (*at < end) {
		ssize_t n = write(a->port, b->p + *at, end - *at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			a->want_write = true;
			return false;
		}
		*at += (size_t)n;
	}
	if (end < b->len)
		return true;
	buf_reset(b);
	*at = 0;
	return true;
}

/* False also while quiesced, once all before the silence was said. */
static bool ctl_write(struct agent *a)
{
	if (!a->quiet_until)
		return port_write(a, &a->ctl, &a->ctl_at, a->ctl.len);
	if (a->ctl_at < a->ctl_quiet &&
	    port_write(a, &a->ctl, &a->ctl_at, a->ctl_quiet) && !a->ctl.len)
		a->ctl_quiet = 0;
	return false;
}

void channel_out(struct agent *a)
{
	a->want_write = false;
	if (!a->up || a->port_hup)
		return;
	while (port_write(a, &a->frame, &a->frame_at, a->frame.len)) {
		if (!a->quiet_until)
			exec_notes(a);
		if (!ctl_write(a) || !exec_next_out(a, &a->frame))
			return;
	}
}

/* --- requests -------------------------------------------------------------- */

static void say_hello(struct agent *a, const struct agent_msg *m)
{
	struct agent_msg h = { .type = AGENT_HELLO, .id = m->id };
	struct buf raw SCOPED(buf_done) = { 0 };
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	h.hello = (struct agent_hello){
		.version = MIN(AGENT_VERSION, m->reset.version_max),
		.boot_id = { a->boot_id, sizeof(a->boot_id) },
		.mono_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec,
		.generation = a->generation,
		.nr_cpus = a->nr_cpus,
		.agent = "cryo-agent " CRYO_VERSION,
		.nr_execs = exec_list(a, &raw),
	};
	h.hello.execs = (struct agent_bytes){ raw.p, (uint32_t)raw.len };
	channel_send(a, &h);
}

static void on_reset(struct agent *a, const struct agent_msg *m)
{
	a->up = true;
	a->stream++;
	a->quiet_until = 0;
	a->quieting.pending = false;
	buf_reset(&a->ctl);
	buf_reset(&a->frame);
	a->ctl_at = a->frame_at = 0;
	exec_rewind(a);
	say_hello(a, m);
}

static void on_ping(struct agent *a, const struct agent_msg *m)
{
	struct agent_msg p = { .type = AGENT_PONG, .id = m->id };
	struct timespec wall, mono;

	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_BOOTTIME, &mono);
	p.pong.wall_ns =
		(uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
	p.pong.mono_ns =
		(uint64_t)mono.tv_sec * 1000000000u + (uint64_t)mono.tv_nsec;
	channel_send(a, &p);
}

static void on_file(struct agent *a, const struct agent_msg *m)
{
	struct job *j = files_job(m);

	j->stream = a->stream;
	if (!worker_submit(a->files, j))
		return;
	job_free(j);
	channel_fail(a, m->id, EBUSY, "%d file requests wait already",
		     WORKER_JOBS_MAX);
}

void channel_job_done(struct agent *a, struct job *j)
{
	/* the host that asked is gone: the new one doesn't know the id */
	if (a->up && j->stream == a->stream)
		buf_put(&a->ctl, j->reply.p, j->reply.len);
	job_free(j);
}

static void carry_out(struct agent *a, const struct agent_msg *m)
{
	typedef void (*request_fn)(struct agent * a, const struct agent_msg *m);
	static const request_fn table[AGENT_UNQUIESCE + 1] = {
		[AGENT_RESET] = on_reset,
		[AGENT_PING] = on_ping,
		[AGENT_EXEC_START] = exec_start,
		[AGENT_STDIN] = exec_stdin,
		[AGENT_OUT_ACK] = exec_out_ack,
		[AGENT_EXIT_ACK] = exec_exit_ack,
		[AGENT_SIGNAL] = exec_signal,
		[AGENT_FILE_STAT] = on_file,
		[AGENT_FILE_READ] = on_file,
		[AGENT_FILE_WRITE] = on_file,
		[AGENT_FILE_COMMIT] = on_file,
		[AGENT_FILE_ABORT] = on_file,
		[AGENT_FILE_LIST] = on_file,
		[AGENT_FILE_MKDIR] = on_file,
		[AGENT_FILE_REMOVE] = on_file,
		[AGENT_SETTIME] = machine_settime,
		[AGENT_RESEED] = machine_reseed,
		[AGENT_GENERATION] = machine_generation,
		[AGENT_QUIESCE] = machine_quiesce,
		[AGENT_UNQUIESCE] = machine_unquiesce,
	};

	PRE((size_t)m->type < ARRAY_LEN(table) && table[m->type]);
	table[m->type](a, m);
}

/* One read(2). False when there is nothing, or nobody. */
static bool port_read(struct agent *a)
{
	size_t room;
	void *p = agent_dec_room(&a->dec, &room);
	ssize_t n = read(a->port, p, room);

	if (n > 0) {
		agent_dec_fed(&a->dec, (size_t)n);
		return true;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	/* a socket has ended; a port's host has hung up and may come back */
	a->port_hup = true;
	return false;
}

void channel_in(struct agent *a)
{
	struct agent_msg m;
	int r;

	if (a->port_hup)
		return;
	while (a->ctl.len - a->ctl_at < CTL_MAX && port_read(a)) {
		/* -EPROTO: the decoder looks for the next RESET by itself */
		while ((r = agent_dec_next(&a->dec, &m)))
			if (r > 0)
				carry_out(a, &m);
	}
}
