/*
 * files: one file of a running sandbox, in or out.
 *
 * How it works: a GET asks for the size first and then streams as many
 * bytes; a PUT goes to the sandbox piece by piece while it arrives, and is
 * committed at its end.
 *
 * Invariants: a file appears whole or not at all, also when the client goes
 * away in the middle (the upload is aborted); a body with a Content-Length
 * is never silently shorter than it says: the connection is cut instead.
 */
#include "api/v1/v1.h"

#include <stdio.h>

static int v1_file_path(const struct call *c, const char **ret, struct err *e)
{
	const char *path = http_query(c->http, "path");

	if (!path || path[0] != '/' || strlen(path) >= SANDBOX_PATH_MAX)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "?path must be an absolute path in the sandbox "
			       "of at most %d bytes",
			       SANDBOX_PATH_MAX - 1);
	*ret = path;
	return 0;
}

/* --- read ----------------------------------------------------------------- */

struct v1_file {
	struct http_stream stream; /* first */
	const struct api_conf *conf;
	char session[ID_LEN + 1];
	uint64_t off, size;
	char path[SANDBOX_PATH_MAX];
};

static int v1_file_next(struct http_stream *s, struct buf *b)
{
	struct v1_file *f = CONTAINER_OF(s, struct v1_file, stream);
	const struct sandbox_port *sb = &f->conf->sandbox;
	size_t max = (size_t)MIN(f->size - f->off, (uint64_t)SANDBOX_CHUNK_MAX);
	struct err e;
	size_t len = 0;
	int r;

	if (!max)
		return 1;
	r = sb->file_read(sb->ctx, f->session, f->path, f->off,
			  buf_reserve(b, max), max, &len, &e);
	if (r < 0)
		return r;
	if (!len || len > max)
		return -EIO; /* it shrank meanwhile */
	b->len += len;
	f->off += len;
	return f->off == f->size;
}

static void v1_file_free(struct http_stream *s)
{
	free(CONTAINER_OF(s, struct v1_file, stream));
}

static const char *v1_file_kind(enum sandbox_file_kind k)
{
	if (k == SANDBOX_FILE_REGULAR)
		return "file";
	return k == SANDBOX_FILE_DIRECTORY ? "directory" : "other";
}

static void v1_file_reply_stat(struct call *c, const struct sandbox_stat *st)
{
	json_t *o = json_object();
	char mode[8];

	snprintf(mode, sizeof(mode), "%04o", st->mode & 07777);
	json_put_str(o, "kind", v1_file_kind(st->kind));
	json_put_str(o, "mode", mode);
	json_put_int(o, "uid", st->uid);
	json_put_int(o, "gid", st->gid);
	json_put_int(o, "size", (int64_t)st->size);
	v1_put_time(o, "modified", st->mtime_ns);
	call_reply_json(c, 200, o);
}

static void v1_file_reply(struct call *c, const char *session, const char *path,
			  const struct sandbox_stat *st)
{
	struct v1_file *f = base_alloc(sizeof(*f));
	char mode[8];

	f->stream.next = v1_file_next;
	f->stream.free = v1_file_free;
	f->conf = c->conf;
	f->size = st->size;
	base_strcpy(f->session, sizeof(f->session), session);
	base_strcpy(f->path, sizeof(f->path), path);
	snprintf(mode, sizeof(mode), "%04o", st->mode & 07777);
	http_reply_header(c->http, "X-Cryo-Mode", mode);
	http_reply_stream(c->http, 200, "application/octet-stream", st->size,
			  &f->stream);
}

int v1_file_get(struct call *c, struct err *e)
{
	const struct sandbox_port *sb = &c->conf->sandbox;
	struct sandbox_stat st = { 0 };
	const char *path;
	struct session s;
	bool only_stat;
	int r = v1_file_path(c, &path, e);

	if (r == 0)
		r = call_query_bool(c, "stat", false, &only_stat, e);
	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r < 0)
		return r;
	call_reader_close(c);
	r = sb->file_stat(sb->ctx, s.id, path, &st, e);
	if (r < 0)
		return r;
	if (only_stat) {
		v1_file_reply_stat(c, &st);
		return 0;
	}
	if (st.kind != SANDBOX_FILE_REGULAR)
		return err_set(e, -EISDIR, ERR_CONFLICT,
			       "%.120s in session %s is not a regular file "
			       "but a %s; name a file",
			       path, s.id,
			       st.kind == SANDBOX_FILE_DIRECTORY
				       ? "directory"
				       : "device or link");
	v1_file_reply(c, s.id, path, &st);
	return 0;
}

/* --- write ---------------------------------------------------------------- */

struct v1_upload {
	const struct api_conf *conf;
	void *put; /* NULL once committed */
	uint64_t off;
	uint32_t mode;
};

static void v1_upload_free(void *p)
{
	struct v1_upload *u = p;

	if (u->put)
		u->conf->sandbox.file_abort(u->put);
	free(u);
}

static int v1_file_mode(const struct call *c, uint32_t *ret, struct err *e)
{
	const char *s = http_query(c->http, "mode");
	unsigned long v = 0644;
	char *end;

	if (s) {
		v = strtoul(s, &end, 8);
		if (end == s || *end || *s == '-' || v > 07777)
			return err_set(e, -EINVAL, ERR_INVALID,
				       "?mode must be octal permission bits, "
				       "such as 0644");
	}
	*ret = (uint32_t)v;
	return 0;
}

static int v1_file_too_large(const struct call *c, struct err *e)
{
	return err_set(e, -EFBIG, ERR_TOO_LARGE,
		       "a file may have at most %llu bytes; send it in parts",
		       (unsigned long long)c->conf->max_file_bytes);
}

int v1_file_begin(struct call *c, struct err *e)
{
	const struct sandbox_port *sb = &c->conf->sandbox;
	uint64_t len = http_body_len(c->http);
	struct v1_upload *u;
	const char *path;
	struct session s;
	uint32_t mode = 0;
	void *put;
	int r = v1_file_path(c, &path, e);

	if (r == 0)
		r = v1_file_mode(c, &mode, e);
	if (r == 0 && len != UINT64_MAX && len > c->conf->max_file_bytes)
		r = v1_file_too_large(c, e);
	if (r == 0)
		r = call_session(c, c->param[0], &s, e);
	if (r < 0)
		return r;
	call_reader_close(c);
	r = sb->file_begin(sb->ctx, s.id, path, &put, e);
	if (r < 0)
		return r;
	u = base_alloc(sizeof(*u));
	u->conf = c->conf;
	u->put = put;
	u->mode = mode;
	c->upload = u;
	c->upload_free = v1_upload_free;
	return 0;
}

int v1_file_piece(struct call *c, const void *p, size_t len, struct err *e)
{
	struct v1_upload *u = c->upload;
	const uint8_t *in = p;

	if (u->off + len > c->conf->max_file_bytes)
		return v1_file_too_large(c, e);
	while (len) {
		size_t n = MIN(len, (size_t)SANDBOX_CHUNK_MAX);
		int r = c->conf->sandbox.file_write(u->put, u->off, in, n, e);

		if (r < 0)
			return r;
		u->off += n;
		in += n;
		len -= n;
	}
	return 0;
}

int v1_file_put(struct call *c, struct err *e)
{
	struct v1_upload *u = c->upload;
	json_t *o;
	int r = c->conf->sandbox.file_commit(STEAL(u->put), u->mode, e);

	if (r < 0)
		return r;
	o = json_object();
	json_put_int(o, "size", (int64_t)u->off);
	call_reply_json(c, 200, o);
	return 0;
}
