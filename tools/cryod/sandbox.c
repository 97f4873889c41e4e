/*
 * sandbox: see sandbox.h. Each call is one or more requests to the session's
 * cryo-vm, which passes them to the agent; chunks are cut to what one frame
 * of the agent's channel holds.
 */
#include "tools/cryod/sandbox.h"

#include <time.h>

#include "core/backend/loop.h"
#include "core/rows.h"

#define CALL_MS 40000
#define STDIN_MS 5000 /* cryo-vm answers within a second */
#define STDIN_STEP_NS (20 * 1000000l)

struct put {
	struct sandbox_calls *calls;
	char session[ID_LEN + 1];
	char path[SANDBOX_PATH_MAX];
	uint64_t handle, size;
};

/* --- common ------------------------------------------------------------------------ */

static enum session_state sandbox_state(struct sandbox_calls *c,
					const char *session)
{
	enum session_state state = SESSION_NONE;
	struct session s;
	struct err e;
	void *view;

	if (c->views->open(c->views->ctx, &view, &e) < 0)
		return state;
	if (rows_session(&(struct reader){ c->views->ops, view }, session, &s,
			 &e) == 0)
		state = s.state;
	c->views->close(view);
	return state;
}

static int sandbox_link(struct sandbox_calls *c, const char *session,
			struct hub_link **ret, struct err *e)
{
	*ret = qemu_link(c->qemu, session);
	if (*ret)
		return 0;
	return err_set(
		e, -ENOTCONN, ERR_CONFLICT,
		"session %s is %s and has no running sandbox; resume it first",
		session, session_state_word(sandbox_state(c, session)));
}

/* A guest that stands still would be waited for in vain. */
static int sandbox_awake(struct sandbox_calls *c, const char *session,
			 struct err *e)
{
	if (sandbox_state(c, session) != SESSION_PAUSED)
		return 0;
	return err_set(e, -ENOTCONN, ERR_CONFLICT,
		       "session %s is paused and can't answer; resume it first",
		       session);
}

/* The guest's errno as the kind of error that a client sees. */
static int sandbox_guest_error(int r, struct err *e)
{
	switch (-r) {
	case ENOENT:
		e->code = ERR_NOT_FOUND;
		break;
	case EACCES:
	case EPERM:
	case EROFS:
		e->code = ERR_FORBIDDEN;
		break;
	case EISDIR:
	case ENOTDIR:
	case EINVAL:
	case ENAMETOOLONG:
	case ELOOP:
		e->code = ERR_INVALID;
		break;
	case ENOSPC:
	case EDQUOT:
		e->code = ERR_NO_SPACE;
		break;
	case EPIPE:
		/* a lost link: as the port promises */
		if (e->code == ERR_BUSY)
			r = -EAGAIN;
		break;
	default:
		break;
	}
	return r;
}

/* --- output, standard input --------------------------------------------------------- */

static int sandbox_output(void *ctx, const char *session UNUSED,
			  const char *exec, const struct sandbox_cursor *at,
			  void *data, size_t max, int timeout_ms,
			  struct sandbox_chunk *ret, struct err *e)
{
	struct sandbox_calls *c = ctx;

	return output_read(c->output, exec, at, data, max, timeout_ms, ret, e);
}

static int sandbox_exec(struct sandbox_calls *c, const char *exec,
			struct exec *ret, struct err *e)
{
	void *view;
	int r = c->views->open(c->views->ctx, &view, e);

	if (r == 0) {
		struct reader rd = { c->views->ops, view };

		r = rows_exec(&rd, exec, ret, e);
		c->views->close(view);
	}
	if (r == -ENOENT)
		return err_set(e, r, ERR_NOT_FOUND, "no exec %s", exec);
	return r;
}

static bool sandbox_exec_runs(struct sandbox_calls *c, const char *exec)
{
	struct exec x;
	struct err e;
	bool runs;

	if (sandbox_exec(c, exec, &x, &e) < 0)
		return false;
	runs = x.state == EXEC_RUNNING;
	exec_done(&x);
	return runs;
}

/* The exec's name inside the guest. */
static int sandbox_tag(struct sandbox_calls *c, const char *exec,
		       char ret[ID_LEN + 1], struct err *e)
{
	struct exec x;
	int r = sandbox_exec(c, exec, &x, e);

	if (r < 0)
		return r;
	memcpy(ret, x.tag, ID_LEN + 1);
	exec_done(&x);
	return 0;
}

static int stdin_send(struct hub_link *k, const char *tag, uint64_t off,
		      const void *data, size_t len, bool eof,
		      struct wire_stdin_ack *ret, struct err *e)
{
	struct wire_stdin w = { .offset = off, .eof = eof };
	struct hub_reply reply;
	int r;

	memcpy(w.tag, tag, sizeof(w.tag));
	r = hub_call(k, WIRE_STDIN, &w, sizeof(w), data, len, NULL, 0, STDIN_MS,
		     sizeof(*ret), &reply, e);
	if (r < 0)
		return r;
	memcpy(ret, reply.body, sizeof(*ret));
	hub_reply_done(&reply);
	return 0;
}

/* Until the guest has taken all up to `end`. */
static int stdin_wait(struct hub_link *k, const char *tag, uint64_t end,
		      int64_t until_ns, struct wire_stdin_ack *a, struct err *e)
{
	while (a->offset < end) {
		int r;

		if (loop_now_ns() > until_ns)
			return err_set(
				e, -ETIMEDOUT, ERR_TIMEOUT,
				"the process does not read its standard input");
		r = stdin_send(k, tag, end, NULL, 0, false, a, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int stdin_all(struct hub_link *k, const char *tag, uint64_t off,
		     const uint8_t *data, size_t len, bool eof,
		     int64_t until_ns, uint64_t *ret_off, struct err *e)
{
	struct wire_stdin_ack a = { 0 };
	int r;

	do {
		size_t n = MIN(len, WIRE_CHUNK_MAX);

		r = stdin_send(k, tag, off, data, n, eof && n == len, &a, e);
		if (r < 0)
			return r;
		off = off == SANDBOX_APPEND ? a.end : off + n;
		*ret_off = a.end;
		data += n;
		len -= n;
		r = stdin_wait(k, tag, off, until_ns, &a, e);
	} while (r == 0 && len);
	return r;
}

/* One attempt; -ENOENT: the sandbox does not know the exec. */
static int stdin_try(struct sandbox_calls *c, const char *session,
		     const char *exec, uint64_t off, const void *data,
		     size_t len, bool eof, int64_t until_ns, uint64_t *ret_off,
		     struct err *e)
{
	char tag[ID_LEN + 1];
	struct hub_link *k;
	int r = sandbox_tag(c, exec, tag, e);

	if (r == 0)
		r = sandbox_link(c, session, &k, e);
	if (r < 0)
		return r == -ENOENT ? -EPIPE : r;
	r = stdin_all(k, tag, off, data, len, eof, until_ns, ret_off, e);
	hub_unref(k);
	return r;
}

/*
 * An exec is acknowledged before its sandbox hears of it, and its input may
 * be the quicker one: what the sandbox does not know yet is tried again.
 */
static int sandbox_stdin_write(void *ctx, const char *session, const char *exec,
			       uint64_t off, const void *data, size_t len,
			       bool eof, int timeout_ms, uint64_t *ret_off,
			       struct err *e)
{
	const struct timespec step = { 0, STDIN_STEP_NS };
	int64_t until_ns = loop_now_ns() + timeout_ms * 1000000ll;
	struct sandbox_calls *c = ctx;

	for (;;) {
		int r = stdin_try(c, session, exec, off, data, len, eof,
				  until_ns, ret_off, e);

		if (r != -ENOENT)
			return r;
		if (!sandbox_exec_runs(c, exec) || loop_now_ns() > until_ns)
			return err_set(e, -EPIPE, ERR_CONFLICT,
				       "exec %s does not run; it reads nothing",
				       exec);
		nanosleep(&step, NULL);
	}
}

/* --- files --------------------------------------------------------------------------- */

/* One FILE request; `data` follows the path. */
static int file_call(struct sandbox_calls *c, const char *session,
		     struct wire_file *w, const char *path, const void *data,
		     size_t len, struct hub_reply *ret, struct err *e)
{
	SCOPED(buf_done) struct buf tail = { 0 };
	struct hub_link *k;
	int r = sandbox_link(c, session, &k, e);

	if (r < 0)
		return r;
	w->path_len = (uint32_t)strlen(path) + 1;
	buf_put(&tail, path, w->path_len);
	if (len)
		buf_put(&tail, data, len);
	r = hub_call(k, WIRE_FILE, w, sizeof(*w), tail.p, tail.len, NULL, 0,
		     CALL_MS, sizeof(struct wire_file_reply), ret, e);
	hub_unref(k);
	return r < 0 ? sandbox_guest_error(r, e) : 0;
}

static int sandbox_file_stat(void *ctx, const char *session, const char *path,
			     struct sandbox_stat *ret, struct err *e)
{
	struct wire_file w = { .op = WIRE_FILE_STAT };
	struct wire_file_reply f;
	struct hub_reply reply;
	int r = sandbox_awake(ctx, session, e);

	if (r == 0)
		r = file_call(ctx, session, &w, path, NULL, 0, &reply, e);
	if (r < 0)
		return r;
	memcpy(&f, reply.body, sizeof(f));
	hub_reply_done(&reply);
	*ret = (struct sandbox_stat){ .mode = f.mode & 07777,
				      .uid = f.uid,
				      .gid = f.gid,
				      .size = f.size,
				      .mtime_ns = f.mtime_ns };
	switch (f.mode & 0170000) {
	case 0100000:
		ret->kind = SANDBOX_FILE_REGULAR;
		break;
	case 0040000:
		ret->kind = SANDBOX_FILE_DIRECTORY;
		break;
	default:
		ret->kind = SANDBOX_FILE_OTHER;
	}
	return 0;
}

static int sandbox_file_read(void *ctx, const char *session, const char *path,
			     uint64_t off, void *data, size_t max,
			     size_t *ret_len, struct err *e)
{
	struct wire_file w = { .op = WIRE_FILE_READ,
			       .offset = off,
			       .len = (uint32_t)MIN(max, WIRE_CHUNK_MAX) };
	struct wire_file_reply f;
	struct hub_reply reply;
	int r = file_call(ctx, session, &w, path, NULL, 0, &reply, e);

	if (r < 0)
		return r;
	memcpy(&f, reply.body, sizeof(f));
	if (f.len > w.len || reply.len != sizeof(f) + f.len) {
		r = err_set(e, -EPROTO, ERR_INTERNAL, "malformed file data");
	} else {
		memcpy(data, reply.body + sizeof(f), f.len);
		*ret_len = f.len;
	}
	hub_reply_done(&reply);
	return r;
}

/* The folders above the file. */
static int put_folders(struct put *p, struct err *e)
{
	struct wire_file w = { .op = WIRE_FILE_MKDIR, .mode = 0755 };
	struct hub_reply reply;
	char *slash = strrchr(p->path, '/');
	int r;

	if (!slash || slash == p->path)
		return 0;
	*slash = 0; /* the folder, for a moment */
	r = file_call(p->calls, p->session, &w, p->path, NULL, 0, &reply, e);
	*slash = '/';
	if (r == 0)
		hub_reply_done(&reply);
	return r;
}

static int sandbox_file_begin(void *ctx, const char *session, const char *path,
			      void **ret_put, struct err *e)
{
	SCOPED_FREE struct put *p = base_alloc(sizeof(*p));
	int r = sandbox_awake(ctx, session, e);

	p->calls = ctx;
	base_strcpy(p->session, sizeof(p->session), session);
	base_strcpy(p->path, sizeof(p->path), path);
	base_random(&p->handle, sizeof(p->handle));
	if (r == 0)
		r = put_folders(p, e);
	if (r == 0)
		*ret_put = STEAL(p);
	return r;
}

static int sandbox_file_write(void *put, uint64_t off, const void *data,
			      size_t len, struct err *e)
{
	struct put *p = put;
	const uint8_t *at = data;
	int r = 0;

	while (len && r == 0) {
		size_t n = MIN(len, WIRE_CHUNK_MAX);
		struct wire_file w = { .op = WIRE_FILE_WRITE,
				       .offset = off,
				       .handle = p->handle };
		struct hub_reply reply;

		r = file_call(p->calls, p->session, &w, p->path, at, n, &reply,
			      e);
		if (r == 0)
			hub_reply_done(&reply);
		off += n;
		at += n;
		len -= n;
		p->size = MAX(p->size, off);
	}
	return r;
}

/* An empty file has had no write: one of nothing makes it. */
static int put_touch(struct put *p, struct err *e)
{
	struct wire_file w = { .op = WIRE_FILE_WRITE, .handle = p->handle };
	struct hub_reply reply;
	int r;

	if (p->size)
		return 0;
	r = file_call(p->calls, p->session, &w, p->path, NULL, 0, &reply, e);
	if (r == 0)
		hub_reply_done(&reply);
	return r;
}

static void sandbox_file_abort(void *put)
{
	struct put *p = put;
	struct wire_file w = { .op = WIRE_FILE_ABORT, .handle = p->handle };
	struct hub_reply reply;
	struct err e;

	if (file_call(p->calls, p->session, &w, p->path, NULL, 0, &reply, &e) == 0)
		hub_reply_done(&reply);
	free(p);
}

static int sandbox_file_commit(void *put, uint32_t mode, struct err *e)
{
	struct put *p = put;
	struct wire_file w = { .op = WIRE_FILE_COMMIT,
			       .offset = p->size,
			       .handle = p->handle,
			       .mode = mode };
	struct hub_reply reply;
	int r = put_touch(p, e);

	if (r == 0)
		r = file_call(p->calls, p->session, &w, p->path, NULL, 0,
			      &reply, e);
	if (r < 0) {
		sandbox_file_abort(p);
		return r;
	}
	hub_reply_done(&reply);
	free(p);
	return 0;
}

void sandbox_port_init(struct sandbox_port *ret, struct sandbox_calls *c)
{
	*ret = (struct sandbox_port){ .ctx = c,
				      .output = sandbox_output,
				      .stdin_write = sandbox_stdin_write,
				      .file_stat = sandbox_file_stat,
				      .file_read = sandbox_file_read,
				      .file_begin = sandbox_file_begin,
				      .file_write = sandbox_file_write,
				      .file_commit = sandbox_file_commit,
				      .file_abort = sandbox_file_abort };
}
