/*
 * fetch: files through the files API, folders through `tar` in the sandbox,
 * taken apart by untar.c.
 *
 * Invariants: a file appears under its name only once all of it is there; a
 * folder's archive that was cut off is an error.
 */
#include "tools/cryo/fetch.h"

#include "tools/cryo/follow.h"
#include "tools/cryo/untar.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static void fetch_path(struct buf *b, const char *session, const char *path)
{
	cryo_session_path(b, session, "files");
	client_query(b, "path", path);
}

int fetch_stat(struct cryo *x, const char *session, const char *path,
	       json_t **ret, struct err *e)
{
	SCOPED(buf_done) struct buf url = { 0 };

	fetch_path(&url, session, path);
	client_query(&url, "stat", "1");
	return client_call(x->client, "GET", buf_cstr(&url), NULL, ret, e);
}

struct fetch_to {
	int fd;
	struct err *e;
};

static int fetch_take(void *ctx, const void *p, size_t len)
{
	struct fetch_to *to = ctx;
	int r = base_write_all(to->fd, p, len);

	return r < 0 ? err_sys(to->e, -r, "writing what was fetched") : 0;
}

static int fetch_to_fd(struct cryo *x, const char *session, const char *path,
		       int fd, struct err *e)
{
	SCOPED(buf_done) struct buf url = { 0 };
	struct fetch_to to = { fd, e };
	int r;

	fetch_path(&url, session, path);
	r = client_stream(x->client, buf_cstr(&url), NULL, fetch_take, &to,
			  NULL, e);
	if (r == CLIENT_CUT)
		return err_set(e, -EPIPE, ERR_BUSY,
			       "the connection was lost while %.120s was "
			       "fetched; try again",
			       path);
	return r == CLIENT_STOPPED ? -EIO : r;
}

int fetch_file(struct cryo *x, const char *session, const char *path,
	       const char *dst, struct err *e)
{
	SCOPED_JSON json_t *st = NULL;
	SCOPED_FREE char *tmp = base_printf("%s.cryo-%d", dst, (int)getpid());
	SCOPED_FD int fd = -1;
	mode_t mode;
	int r = fetch_stat(x, session, path, &st, e);

	if (r < 0)
		return r;
	mode = (mode_t)strtoul(cryo_text(st, "mode"), NULL, 8) & 0777;
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, errno, "making %.150s", tmp);
	r = fetch_to_fd(x, session, path, fd, e);
	if (r == 0 && (fchmod(fd, mode) < 0 || rename(tmp, dst) < 0))
		r = err_sys(e, errno, "writing %.150s", dst);
	if (r < 0)
		unlink(tmp);
	return r;
}

/* The archive is the command's standard output; what it says is its error. */
static int fetch_untar(void *ctx, int stream, const void *p, size_t len,
		       struct err *e)
{
	if (stream)
		return follow_print(NULL, 1, p, len, e);
	return untar_put(ctx, p, len, e);
}

static int fetch_run_tar(struct cryo *x, const char *session, const char *path,
			 struct untar *u, struct err *e)
{
	SCOPED_FREE char *folder = base_strdup(path);
	char tar[] = "tar", c[] = "-C", cf[] = "-cf", out[] = "-", dot[] = ".";
	char *argv[] = { tar, c, folder, cf, out, dot, NULL };
	struct follow_start s = { .session = session, .argv = argv };
	struct follow f = {
		.client = x->client, .fn = fetch_untar, .ctx = u, .patient = true
	};
	SCOPED_JSON json_t *exec = NULL;
	int r = follow_start(x, &s, &exec, e);

	if (r < 0)
		return r;
	f.exec = cryo_text(exec, "id");
	r = follow_output(&f, e);
	if (r < 0)
		return r;
	if (f.lost || f.status)
		return err_set(e, -EIO, ERR_INTERNAL,
			       "packing %.120s in the sandbox failed (tar "
			       "ended with %d)",
			       path, f.status);
	return untar_end(u, e);
}

int fetch_folder(struct cryo *x, const char *session, const char *path,
		 const char *dst, struct err *e)
{
	SCOPED_FD int dir = -1;
	struct untar u;
	int r;

	if (mkdir(dst, 0777) < 0 && errno != EEXIST)
		return err_sys(e, errno, "making the folder %.150s", dst);
	dir = open(dst, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, errno, "opening the folder %.150s", dst);
	untar_init(&u, dir, FETCH_MAX);
	r = fetch_run_tar(x, session, path, &u, e);
	if (r == 0 && u.skipped)
		fprintf(stderr,
			"cryo: %u links or devices below %s were left out\n",
			u.skipped, path);
	untar_done(&u);
	return r;
}
