/*
 * cp: a file into or out of a session.
 *
 * Invariants: on either side the file appears whole, under its own name,
 * or not at all.
 */
#include "tools/cryo/fetch.h"

#include "core/id.h"
#include "core/point.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static const struct args_spec cp_spec = {
	.verb = "cp",
	.usage = "SRC DST",
	.about = "Copies a file between here and a session: one side is "
		 "written ID:/path. Out of a session\na folder can be copied "
		 "as well.",
	.min_pos = 2,
	.max_pos = 2,
};

/* "ID:/path" -> session and path; false: a path of this machine */
static bool cp_remote(const char *word, char session[NAME_MAX_LEN + 1],
		      const char **path)
{
	const char *colon = strchr(word, ':');
	size_t len = colon ? (size_t)(colon - word) : 0;

	if (!len || len > NAME_MAX_LEN || colon[1] != '/')
		return false;
	memcpy(session, word, len);
	session[len] = 0;
	*path = colon + 1;
	return id_valid(session) || point_name_valid(session);
}

static const char *cp_last(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int cp_in(struct cryo *x, const char *src, const char *session,
		 const char *path, struct err *e)
{
	SCOPED_FD int fd = open(src, O_RDONLY | O_CLOEXEC);
	SCOPED(buf_done) struct buf url = { 0 }, to = { 0 };
	SCOPED_JSON json_t *ret = NULL;
	struct stat st;
	char mode[8];
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "reading %.150s", src);
	if (!S_ISREG(st.st_mode))
		return err_set(e, -EISDIR, ERR_INVALID,
			       "%.120s is not a regular file; a folder goes "
			       "in by: tar -c -C DIR . | cryo exec %s -- tar "
			       "-x -C /path",
			       src, session);
	buf_put_str(&to, path);
	if (path[strlen(path) - 1] == '/')
		buf_put_str(&to, cp_last(src));
	snprintf(mode, sizeof(mode), "%04o", (unsigned)st.st_mode & 0777);
	cryo_session_path(&url, session, "files");
	client_query(&url, "path", buf_cstr(&to));
	client_query(&url, "mode", mode);
	r = client_upload(x->client, buf_cstr(&url), fd, (uint64_t)st.st_size,
			  &ret, e);
	if (r == 0 && x->args.json)
		cryo_print_json(ret);
	return r;
}

static int cp_out(struct cryo *x, const char *session, const char *path,
		  const char *dst, struct err *e)
{
	SCOPED_JSON json_t *st = NULL;
	SCOPED_FREE char *file = NULL;
	struct stat here;
	int r = fetch_stat(x, session, path, &st, e);

	if (r < 0)
		return r;
	if (!strcmp(cryo_text(st, "kind"), "directory"))
		return fetch_folder(x, session, path, dst, e);
	if (stat(dst, &here) == 0 && S_ISDIR(here.st_mode))
		file = base_printf("%s/%s", dst, cp_last(path));
	else
		file = base_strdup(dst);
	r = fetch_file(x, session, path, file, e);
	if (r == 0 && x->args.json)
		cryo_print_json(st);
	return r;
}

static int cp_run(struct cryo *x, const void *opts, struct err *e)
{
	const char *src = x->args.pos[0], *dst = x->args.pos[1];
	char from[NAME_MAX_LEN + 1], to[NAME_MAX_LEN + 1];
	const char *from_path, *to_path;
	bool out = cp_remote(src, from, &from_path);
	bool in = cp_remote(dst, to, &to_path);

	(void)opts;
	if (in && !out)
		return cp_in(x, src, to, to_path, e);
	if (out && !in)
		return cp_out(x, from, from_path, dst, e);
	x->usage = true;
	return err_set(e, -EINVAL, ERR_INVALID,
		       "exactly one side must be in a session, written "
		       "ID:/path");
}

const struct verb verb_cp = {
	.spec = &cp_spec,
	.summary = "copy a file into or out of a session",
	.run = cp_run,
};
