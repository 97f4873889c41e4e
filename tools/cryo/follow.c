/*
 * follow: output, input and signals of one command.
 *
 * How it works: output comes as server-sent events whose ids are positions;
 * after a lost connection the stream is asked for again from the last id,
 * for up to CLIENT_RETRY_S without progress. Standard input has a thread of
 * its own, which sends pieces with their offset and repeats what was lost;
 * signals have another.
 *
 * Invariants: each byte of output is written once, in order per stream;
 * each byte of input is given once; a failed write to our own output ends
 * the command's following with an error, never silently.
 */
#include "tools/cryo/follow.h"

#include "api/base64.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define FOLLOW_PIECE (64u << 10)
#define FOLLOW_KILL_AFTER 3 /* interrupts */

/* --- output --------------------------------------------------------------- */

int follow_print(void *ctx, int stream, const void *p, size_t len, struct err *e)
{
	int fd = stream ? STDERR_FILENO : STDOUT_FILENO;
	int r = base_write_all(fd, p, len);

	(void)ctx;
	return r < 0 ? err_sys(e, -r, "writing the command's output") : 0;
}

static int follow_data(struct follow *f, const json_t *j, int stream)
{
	const char *text = json_string_value(json_object_get(j, "data"));

	buf_reset(&f->bytes);
	if (!text || base64_decode(&f->bytes, text, strlen(text)) < 0)
		return err_set(f->e, -EPROTO, ERR_INTERNAL,
			       "the daemon sent output that is not base64");
	return f->fn(f->ctx, stream, f->bytes.p, f->bytes.len, f->e);
}

static int follow_exit(struct follow *f, const json_t *j)
{
	int signal = (int)cryo_int(j, "signal");

	f->ended = true;
	f->status = signal ? 128 + signal : (int)cryo_int(j, "code");
	return 1;
}

/* "error": a problem document; a link that is away comes back. */
static int follow_error(struct follow *f, const json_t *j)
{
	if (!strcmp(cryo_text(j, "type"), "urn:cryo:problem:busy")) {
		f->retry = true;
		return 1;
	}
	return err_set(f->e, -EIO, ERR_INTERNAL, "%s", cryo_text(j, "detail"));
}

static int follow_event(void *ctx, const struct sse_event *ev)
{
	struct follow *f = ctx;
	SCOPED_JSON json_t *j = NULL;
	int r = json_parse(&j, ev->data, ev->len, f->e);

	if (r < 0)
		return r;
	if (!strcmp(ev->name, "stdout"))
		return follow_data(f, j, 0);
	if (!strcmp(ev->name, "stderr"))
		return follow_data(f, j, 1);
	if (!strcmp(ev->name, "exit"))
		return follow_exit(f, j);
	if (!strcmp(ev->name, "error"))
		return follow_error(f, j);
	if (!strcmp(ev->name, "lost")) {
		f->ended = f->lost = true;
		return 1;
	}
	if (!strcmp(ev->name, "rewound"))
		fprintf(stderr, "cryo: the session went back in time; output "
				"goes on from there\n");
	return 0;
}

static int follow_bytes(void *ctx, const void *p, size_t len)
{
	struct follow *f = ctx;
	int r = sse_reader_put(&f->sse, p, len);

	if (r == -EMSGSIZE)
		return err_set(f->e, r, ERR_INTERNAL,
			       "the daemon sent an event that is too large");
	return r;
}

/* One connection. 0: finished with; 1: connect again; -errno. */
static int follow_once(struct follow *f, const char *path, bool *away)
{
	int r;

	sse_reader_reset(&f->sse);
	f->retry = false;
	*f->e = (struct err){ 0 };
	r = client_stream(f->client, path, f->sse.id, follow_bytes, f, away,
			  f->e);
	if (f->ended)
		return 0;
	if (r == CLIENT_STOPPED)
		return f->retry ? 1 : -EIO;
	if (r == CLIENT_ENDED)
		return f->once ? 0 : 1;
	return r == CLIENT_CUT || *away ? 1 : r;
}

int follow_output(struct follow *f, struct err *e)
{
	struct client_retry retry = { 0 };
	SCOPED(buf_done) struct buf path = { 0 };
	char id[SSE_ID_MAX] = "";
	bool away;
	int r;

	buf_put_str(&path, "/v1/execs/");
	client_segment(&path, f->exec);
	buf_put_str(&path, f->once ? "/output?follow=0" : "/output");

	f->e = e;
	f->sse.fn = follow_event;
	f->sse.ctx = f;
	for (;;) {
		r = follow_once(f, buf_cstr(&path), &away);
		if (r <= 0)
			break;
		if (away && !f->patient && !f->sse.id[0]) {
			r = -ENOTCONN; /* e says so */
			break;
		}
		if (strcmp(id, f->sse.id)) /* there was progress */
			retry = (struct client_retry){ 0 };
		memcpy(id, f->sse.id, sizeof(id));
		if (client_retry_wait(&retry))
			continue;
		r = err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
			    "the daemon stayed away; `cryo logs %s` shows the "
			    "output once it is back",
			    f->exec);
		break;
	}
	sse_reader_done(&f->sse);
	buf_done(&f->bytes);
	return r;
}

/* --- input ---------------------------------------------------------------- */

struct follow_input {
	struct client *signal_client, *stdin_client;
	pthread_mutex_t lock;
	char exec[64]; /* "" before there is one; under lock */
	int pending; /* signal that came before it; under lock */
	atomic_int nr; /* signals seen */
	sigset_t set;
};

static const char *follow_signal_name(int nr)
{
	if (nr == SIGINT)
		return "INT";
	return nr == SIGHUP ? "HUP" : "TERM";
}

static void follow_send_signal(struct follow_input *in, const char *name)
{
	SCOPED_JSON json_t *body = json_object();
	SCOPED_FREE char *path = base_printf("/v1/execs/%s/signal", in->exec);
	struct err e;

	json_put_str(body, "signal", name);
	if (client_call(in->signal_client, "POST", path, body, NULL, &e) < 0)
		fprintf(stderr, "cryo: the signal did not get there: %s\n",
			e.msg);
}

/* Not even KILL got through: the guest may be dead. It is asked for no more. */
_Noreturn static void follow_leave(const struct follow_input *in)
{
	fprintf(stderr,
		"cryo: the command does not end; left alone. `cryo logs %s` "
		"shows it; if the guest hangs, `cryo rewind` takes it back\n",
		in->exec);
	_exit(128 + SIGINT);
}

static void *follow_signal_thread(void *ctx)
{
	struct follow_input *in = ctx;
	int nr, ints = 0;

	while (sigwait(&in->set, &nr) == 0) {
		bool there;

		ints += nr == SIGINT;
		pthread_mutex_lock(&in->lock);
		there = in->exec[0];
		if (!there)
			in->pending = nr;
		pthread_mutex_unlock(&in->lock);
		atomic_fetch_add(&in->nr, 1);
		if (there && ints > FOLLOW_KILL_AFTER)
			follow_leave(in);
		if (there)
			follow_send_signal(in, ints >= FOLLOW_KILL_AFTER
						       ? "KILL"
						       : follow_signal_name(nr));
		else if (ints >= FOLLOW_KILL_AFTER)
			_exit(128 + SIGINT); /* nothing else helps */
	}
	return NULL;
}

static void follow_thread(void *(*fn)(void *), void *ctx)
{
	pthread_t t;
	pthread_attr_t a;

	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&t, &a, fn, ctx) != 0)
		NEVER("no second thread on this machine");
	pthread_attr_destroy(&a);
}

struct follow_input *follow_signals(struct client *client)
{
	struct follow_input *in = base_alloc(sizeof(*in));

	in->signal_client = client_clone(client);
	in->stdin_client = client_clone(client);
	pthread_mutex_init(&in->lock, NULL);
	sigemptyset(&in->set);
	sigaddset(&in->set, SIGINT);
	sigaddset(&in->set, SIGTERM);
	sigaddset(&in->set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &in->set, NULL);
	follow_thread(follow_signal_thread, in);
	return in;
}

bool follow_interrupted(const struct follow_input *in)
{
	return atomic_load(&in->nr) > 0;
}

/* Gives one piece (or the end) at its offset, again until it is taken. */
static int follow_give(struct follow_input *in, const uint8_t *p, size_t len,
		       uint64_t off, bool eof, struct err *e)
{
	struct client_retry retry = { 0 };
	uint64_t end = off + len;

	for (;;) {
		SCOPED_JSON json_t *ret = NULL;
		SCOPED_FREE char *path =
			base_printf("/v1/execs/%s/stdin?offset=%" PRIu64 "%s",
				    in->exec, off, eof ? "&eof=1" : "");
		bool away;
		int r = client_send(in->stdin_client, "POST", path, p,
				    (size_t)(end - off), &ret, &away, e);

		if (r == 0) {
			uint64_t at = (uint64_t)cryo_int(ret, "offset");

			if (at >= end)
				return 0;
			p += at - off; /* the process is slow: the rest */
			off = at;
			retry = (struct client_retry){ 0 };
		} else if (!away || !client_retry_wait(&retry)) {
			return r;
		}
	}
}

static void *follow_stdin_thread(void *ctx)
{
	struct follow_input *in = ctx;
	SCOPED_FREE uint8_t *p = base_alloc(FOLLOW_PIECE);
	uint64_t off = 0;
	struct err e;
	ssize_t n;
	int r;

	do {
		n = read(STDIN_FILENO, p, FOLLOW_PIECE);
		if (n < 0 && errno == EINTR)
			continue;
		r = follow_give(in, p, n > 0 ? (size_t)n : 0, off, n <= 0, &e);
		if (r < 0) {
			/* it ended without reading all: that is its right */
			if (e.code != ERR_CONFLICT)
				fprintf(stderr, "cryo: standard input: %s\n",
					e.msg);
			break;
		}
		off += n > 0 ? (uint64_t)n : 0;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return NULL;
}

void follow_attach(struct follow_input *in, const char *exec, bool forward)
{
	int pending;

	pthread_mutex_lock(&in->lock);
	base_strcpy(in->exec, sizeof(in->exec), exec);
	pending = in->pending;
	pthread_mutex_unlock(&in->lock);
	if (pending)
		follow_send_signal(in, follow_signal_name(pending));
	if (forward)
		follow_thread(follow_stdin_thread, in);
}

bool follow_has_stdin(void)
{
	struct stat st;

	if (isatty(STDIN_FILENO) || fstat(STDIN_FILENO, &st) < 0)
		return false;
	return !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3);
}

/* --- a whole command ------------------------------------------------------ */

static int follow_env(const struct args_list *list, json_t **ret, struct err *e)
{
	SCOPED_JSON json_t *env = json_object();

	for (int i = 0; list && i < list->nr; i++) {
		const char *eq = strchr(list->v[i], '=');
		SCOPED_FREE char *name = base_strdup(list->v[i]);
		const char *value = eq ? eq + 1 : getenv(name);

		if (eq)
			name[eq - list->v[i]] = 0;
		if (!*name || !value)
			return err_set(e, -EINVAL, ERR_INVALID,
				       "--env %.60s: %s", list->v[i],
				       *name ? "there is no such variable here "
					       "to pass on; write NAME=VALUE"
					     : "write NAME=VALUE or NAME");
		json_put_str(env, name, value);
	}
	*ret = STEAL(env);
	return 0;
}

int follow_start(struct cryo *x, const struct follow_start *s,
		 json_t **ret_exec, struct err *e)
{
	SCOPED(buf_done) struct buf path = { 0 };
	SCOPED_JSON json_t *body = json_object(), *env = NULL;
	json_t *argv = json_array();
	int r;

	json_object_set_new(body, "argv", argv);
	for (char **a = s->argv; *a; a++) {
		json_t *one = json_string(*a);

		if (!one)
			return err_set(e, -EINVAL, ERR_INVALID,
				       "an argument is not UTF-8: it can't be "
				       "sent; put it into a file");
		json_array_append_new(argv, one);
	}
	r = follow_env(s->env, &env, e);
	if (r < 0)
		return r;
	if (json_object_size(env))
		json_object_set(body, "env", env);
	json_put_str(body, "cwd", s->cwd);
	json_put_str(body, "user", s->user);
	json_put_bool(body, "stdin", s->has_stdin);
	cryo_session_path(&path, s->session, "execs");
	return client_call(x->client, "POST", buf_cstr(&path), body, ret_exec, e);
}

/* Why a command could not even start is in its row, not in its output. */
static void follow_say_why(struct cryo *x, const char *exec)
{
	SCOPED_FREE char *path = base_printf("/v1/execs/%s/wait?timeout=2", exec);
	SCOPED_JSON json_t *row = NULL;
	struct err e;

	if (client_call(x->client, "GET", path, NULL, &row, &e) == 0 &&
	    json_object_get(row, "why"))
		fprintf(stderr, "cryo: %s\n", cryo_text(row, "why"));
}

int follow_run(struct cryo *x, struct follow_input *in,
	       const struct follow_start *s, int *ret_status, struct err *e)
{
	SCOPED_JSON json_t *exec = NULL;
	struct follow f = { .client = x->client,
			    .fn = follow_print,
			    .patient = true };
	int r = follow_start(x, s, &exec, e);

	if (r < 0)
		return r;
	f.exec = cryo_text(exec, "id");
	follow_attach(in, f.exec, s->has_stdin);
	r = follow_output(&f, e);
	if (r < 0)
		return r;
	if (f.lost || f.status == 126 || f.status == 127)
		follow_say_why(x, f.exec);
	if (f.lost)
		return err_set(e, -EIO, ERR_INTERNAL,
			       "command %s was lost: its sandbox ended before "
			       "it did",
			       f.exec);
	*ret_status = f.status;
	return 0;
}
