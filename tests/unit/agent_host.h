/*
 * agent_host: a small host for tests that talk to a real agent: an agent_link
 * in a poll loop, with calls that wait, and what the agent sent collected.
 */
#ifndef TESTS_UNIT_AGENT_HOST_H
#define TESTS_UNIT_AGENT_HOST_H

#include "core/backend/agent_link.h"
#include "tests/tap.h"

#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#define HOST_EXECS 16
#define HOST_WAIT_MS 120000 /* a loaded machine emulates slowly */

struct host_exec {
	char tag[ID_LEN + 1];
	struct buf out[2];
	uint64_t from[2]; /* offset of out's first byte */
	uint64_t next[2]; /* offset that must come next */
	bool wrong; /* a byte twice, or a gap */
	bool exited;
	struct agent_exited exit;
	uint64_t stdin_acked;
	bool stdin_closed;
	bool no_ack; /* keep the agent's rings */
};

struct host {
	struct agent_link *l;
	struct host_exec exec[HOST_EXECS];
	int nr_execs;
	bool broken;
	/* the last waiting call */
	bool answered;
	int ret;
	struct agent_msg reply; /* numbers only: pointers are dead */
	struct buf data; /* FILE_DATA, entries or execs */
	struct err err;
	bool renewed_done;
	struct agent_link_renewed renewed;
};

static int64_t host_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct host_exec *host_exec(struct host *h, const char *tag)
{
	for (int i = 0; i < h->nr_execs; i++)
		if (!strcmp(h->exec[i].tag, tag))
			return &h->exec[i];
	return NULL;
}

static struct host_exec *host_exec_new(struct host *h)
{
	struct host_exec *x = &h->exec[h->nr_execs++];
	struct id id;

	if (h->nr_execs > HOST_EXECS)
		bail("more than %d execs in one test", HOST_EXECS);
	id_new(&id);
	memcpy(x->tag, id.s, sizeof(x->tag));
	return x;
}

static void host_on_out(void *ctx, const struct agent_out *o)
{
	struct host *h = ctx;
	struct host_exec *x = host_exec(h, o->tag);
	int i = o->stream - 1;
	struct err e;

	if (!x)
		return;
	x->wrong |= o->offset != x->next[i];
	buf_put(&x->out[i], o->data.p, o->data.len);
	x->next[i] = o->offset + o->data.len;
	if (!x->no_ack)
		agent_link_out_ack(h->l, o->tag, (enum agent_stream)o->stream,
				   x->next[i], &e);
}

static void host_on_exited(void *ctx, const struct agent_exited *r)
{
	struct host_exec *x = host_exec(ctx, r->tag);

	if (!x)
		return;
	x->exited = true;
	x->exit = *r;
	x->exit.tag = x->tag;
}

static void host_on_stdin_ack(void *ctx, const struct agent_stdin_ack *a)
{
	struct host_exec *x = host_exec(ctx, a->tag);

	if (!x)
		return;
	x->stdin_acked = a->offset;
	x->stdin_closed = a->closed;
}

static void host_on_broken(void *ctx, const struct err *e)
{
	struct host *h = ctx;

	h->broken = true;
	h->err = *e;
}

static const struct agent_link_ops host_ops = {
	.out = host_on_out,
	.exited = host_on_exited,
	.stdin_ack = host_on_stdin_ack,
	.broken = host_on_broken,
};

__attribute__((unused)) static void host_open(struct host *h, int fd)
{
	h->broken = false;
	h->l = agent_link_new(fd, &host_ops, h);
}

__attribute__((unused)) static void host_close(struct host *h)
{
	agent_link_free(h->l);
	for (int i = 0; i < h->nr_execs; i++) {
		buf_done(&h->exec[i].out[0]);
		buf_done(&h->exec[i].out[1]);
	}
	buf_done(&h->data);
}

/* One turn of the loop, at most `ms`. */
static void host_turn(struct host *h, int ms)
{
	struct pollfd p = { agent_link_fd(h->l), (short)agent_link_events(h->l),
			    0 };

	if (p.fd < 0)
		return;
	poll(&p, 1, ms);
	agent_link_ready(h->l, (uint32_t)p.revents);
	agent_link_tick(h->l);
}

/* Turns until *flag; false after HOST_WAIT_MS or when the link broke. */
static bool host_wait(struct host *h, const bool *flag)
{
	int64_t end = host_ms() + HOST_WAIT_MS;

	while (!*flag && host_ms() < end && agent_link_fd(h->l) >= 0)
		host_turn(h, 50);
	return *flag;
}

__attribute__((unused)) static void host_for(struct host *h, int ms)
{
	int64_t end = host_ms() + ms;

	while (host_ms() < end)
		host_turn(h, 10);
}

/* Turns until a stream has brought `len` bytes. */
__attribute__((unused)) static bool
host_wait_out(struct host *h, struct host_exec *x, int stream, size_t len)
{
	int64_t end = host_ms() + HOST_WAIT_MS;

	while (x->out[stream - 1].len < len && host_ms() < end &&
	       agent_link_fd(h->l) >= 0)
		host_turn(h, 50);
	return x->out[stream - 1].len >= len;
}

/* What was not acknowledged comes again: it is forgotten here. */
static void host_rewind(struct host_exec *x, int i, uint64_t acked)
{
	if (acked < x->from[i] || acked - x->from[i] > x->out[i].len) {
		x->out[i].len = 0;
		x->from[i] = acked;
	}
	x->out[i].len = acked - x->from[i];
	x->next[i] = acked;
}

static void host_on_hello(struct host *h, const struct agent_hello *r)
{
	struct agent_bytes rest = r->execs;
	struct agent_exec_state st;
	struct host_exec *x;

	while (agent_exec_next(&rest, &st) > 0) {
		x = host_exec(h, st.tag);
		if (!x)
			continue;
		host_rewind(x, 0, st.out_acked);
		host_rewind(x, 1, st.err_acked);
	}
}

static void host_on_reply(void *ctx, int ret, const struct agent_msg *m,
			  const struct err *e)
{
	struct host *h = ctx;

	h->answered = true;
	h->ret = ret;
	buf_reset(&h->data);
	if (e)
		h->err = *e;
	if (!m)
		return;
	h->reply = *m;
	if (m->type == AGENT_FILE_DATA)
		buf_put(&h->data, m->file_data.data.p, m->file_data.data.len);
	if (m->type == AGENT_FILE_ENTRIES)
		buf_put(&h->data, m->file_entries.entries.p,
			m->file_entries.entries.len);
	if (m->type == AGENT_HELLO)
		host_on_hello(h, &m->hello);
	if (m->type == AGENT_HELLO)
		buf_put(&h->data, m->hello.execs.p, m->hello.execs.len);
	if (m->type == AGENT_FILE_INFO)
		buf_put(&h->data, m->file_info.link,
			strlen(m->file_info.link) + 1);
}

/* Sends and waits: 0 or -errno of the agent; the reply is in h->reply. */
static int host_call(struct host *h, const struct agent_msg *m)
{
	int r;

	h->answered = false;
	r = agent_link_call(h->l, m, HOST_WAIT_MS, host_on_reply, h, &h->err);
	if (r)
		return r;
	host_wait(h, &h->answered);
	return h->answered ? h->ret : -ETIME;
}

static int host_reset(struct host *h, bool clean)
{
	int r;

	h->answered = false;
	r = agent_link_reset(h->l, clean, HOST_WAIT_MS, host_on_reply, h,
			     &h->err);
	if (!r)
		host_wait(h, &h->answered);
	return r ? r : h->answered ? h->ret : -ETIME;
}

/* Starts `sh -c script`; NULL and h->ret if it failed. */
static struct host_exec *host_sh(struct host *h, const char *user,
				 uint32_t flags, const char *script)
{
	const char *argv[] = { "sh", "-c", script, NULL };
	const char *env[] = { "GREETING=hello there", NULL };
	struct host_exec *x = host_exec_new(h);
	int r;

	h->answered = false;
	r = agent_link_exec(h->l, x->tag, flags, user, "/", argv, env,
			    HOST_WAIT_MS, host_on_reply, h, &h->err);
	if (r)
		h->ret = r;
	else
		host_wait(h, &h->answered);
	return !r && h->answered && !h->ret ? x : NULL;
}

/* Runs a script to its end and acknowledges the exit. */
__attribute__((unused)) static struct host_exec *
host_run(struct host *h, const char *user, const char *script)
{
	struct host_exec *x = host_sh(h, user, 0, script);
	struct err e;

	if (!x || !host_wait(h, &x->exited))
		return NULL;
	agent_link_exit_ack(h->l, x->tag, &e);
	return x;
}

__attribute__((unused)) static const char *host_out(struct host_exec *x,
						    int stream)
{
	return x ? buf_cstr(&x->out[stream - 1]) : "(no exec)";
}

__attribute__((unused)) static int host_put(struct host *h, const char *path,
					    const char *text, uint32_t mode)
{
	struct agent_msg w = { .type = AGENT_FILE_WRITE };
	struct agent_msg c = { .type = AGENT_FILE_COMMIT };
	struct id id;
	int r;

	id_new(&id);
	w.file_write.tag = c.file_commit.tag = id.s;
	w.file_write.path = c.file_commit.path = path;
	w.file_write.data = (struct agent_bytes){ (const uint8_t *)text,
						  (uint32_t)strlen(text) };
	c.file_commit.mode = mode;
	c.file_commit.uid = getuid();
	c.file_commit.gid = getgid();
	c.file_commit.size = strlen(text);
	r = host_call(h, &w);
	return r ? r : host_call(h, &c);
}

__attribute__((unused)) static int host_get(struct host *h, const char *path,
					    uint64_t offset)
{
	struct agent_msg m = { .type = AGENT_FILE_READ };

	m.file_read = (struct agent_file_read){ path, offset, AGENT_DATA_MAX };
	return host_call(h, &m);
}

#endif
