/*
 * files: file requests, and the start of hooks. Runs on a worker thread: a file
 * system of the guest that hangs stops other file requests, never the channel.
 *
 * Only regular files are read and written: a FIFO or a device could block for
 * ever. A file arrives in pieces in FOLDER/.cryo-TAG and is renamed over its
 * target by COMMIT, so that nobody sees half of it; a restore between the two
 * leaves the temporary file, which the same upload goes on with, or ABORT
 * removes.
 *
 * Repeating is safe: reads and writes by nature (they carry offsets); COMMIT,
 * MKDIR and REMOVE are remembered by request id.
 */
#include "tools/agent/files.h"

#include "tools/agent/exec.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define NS_PER_S 1000000000ll
#define HOOKS_DIR "/etc/cryo/fork.d"

/* --- requests and replies ---------------------------------------------------- */

static void copy_data(struct job *j, const struct agent_bytes *d)
{
	j->data = base_alloc(d->len + 1);
	memcpy(j->data, d->p, d->len);
	j->len = d->len;
}

static void copy_write(struct job *j, const struct agent_file_write *r)
{
	memcpy(j->tag, r->tag, sizeof(j->tag));
	j->offset = r->offset;
	copy_data(j, &r->data);
}

static void copy_commit(struct job *j, const struct agent_file_commit *r)
{
	memcpy(j->tag, r->tag, sizeof(j->tag));
	j->mode = r->mode;
	j->uid = r->uid;
	j->gid = r->gid;
	j->offset = r->size;
}

static void copy_mkdir(struct job *j, const struct agent_file_mkdir *r)
{
	j->mode = r->mode;
	j->uid = r->uid;
	j->gid = r->gid;
	j->flags = r->parents;
}

static const char *copy_rest(struct job *j, const struct agent_msg *m)
{
	switch ((unsigned)m->type) {
	case AGENT_FILE_STAT:
		j->flags = m->file_stat.flags;
		return m->file_stat.path;
	case AGENT_FILE_READ:
		j->offset = m->file_read.offset;
		j->len = m->file_read.len;
		return m->file_read.path;
	case AGENT_FILE_WRITE:
		copy_write(j, &m->file_write);
		return m->file_write.path;
	case AGENT_FILE_COMMIT:
		copy_commit(j, &m->file_commit);
		return m->file_commit.path;
	case AGENT_FILE_ABORT:
		memcpy(j->tag, m->file_abort.tag, sizeof(j->tag));
		return m->file_abort.path;
	case AGENT_FILE_LIST:
		j->offset = m->file_list.cursor;
		return m->file_list.path;
	case AGENT_FILE_MKDIR:
		copy_mkdir(j, &m->file_mkdir);
		return m->file_mkdir.path;
	case AGENT_FILE_REMOVE:
		return m->file_remove.path;
	default:
		NEVER("not a request about files");
	}
}

struct job *files_job(const struct agent_msg *m)
{
	struct job *j = job_new(m->type, m->id);

	j->path = base_strdup(copy_rest(j, m));
	return j;
}

static void reply(struct job *j, struct agent_msg *m)
{
	m->id = j->id;
	if (agent_msg_encode(&j->reply, m))
		NEVER("what the agent says is valid");
}

static void reply_failed(struct job *j, int error, const char *what)
{
	struct agent_msg m = { .type = AGENT_FAILED };
	char text[512];

	snprintf(text, sizeof(text), "%s %.300s: %s", what, j->path,
		 strerror(error));
	m.failed = (struct agent_failed){ (uint32_t)error, text };
	reply(j, &m);
}

static int64_t mtime_of(const struct stat *st)
{
	return st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
}

/* --- stat, read -------------------------------------------------------------- */

static void do_stat(struct job *j)
{
	struct agent_msg m = { .type = AGENT_FILE_INFO };
	char link[PATH_MAX] = "";
	struct stat st;
	ssize_t n = 0;

	if (j->flags & AGENT_FILE_NOFOLLOW ? lstat(j->path, &st)
					   : stat(j->path, &st)) {
		reply_failed(j, errno, "stat");
		return;
	}
	if (S_ISLNK(st.st_mode))
		n = readlink(j->path, link, sizeof(link) - 1);
	link[n > 0 ? n : 0] = '\0';
	m.file_info = (struct agent_file_info){
		.mode = st.st_mode,
		.uid = st.st_uid,
		.gid = st.st_gid,
		.size = (uint64_t)st.st_size,
		.inode = st.st_ino,
		.mtime_ns = mtime_of(&st),
		.link = link,
	};
	reply(j, &m);
}

/* Opens a regular file, and nothing else. -errno. */
static int open_regular(const char *path, int flags, struct stat *ret_st)
{
	SCOPED_FD int fd =
		open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);

	if (fd < 0 || fstat(fd, ret_st))
		return -errno;
	if (S_ISDIR(ret_st->st_mode))
		return -EISDIR;
	if (!S_ISREG(ret_st->st_mode))
		return -EINVAL;
	return base_steal_fd(&fd);
}

static void do_read(struct job *j)
{
	struct agent_msg m = { .type = AGENT_FILE_DATA };
	uint8_t data[AGENT_DATA_MAX];
	struct stat st;
	SCOPED_FD int fd = open_regular(j->path, O_RDONLY, &st);
	size_t len = 0;
	ssize_t n = 1;

	if (fd < 0) {
		reply_failed(j, -fd, "read");
		return;
	}
	/* files of /proc give less than asked for long before their end */
	while (len < j->len && n > 0) {
		n = pread(fd, data + len, j->len - len, (off_t)(j->offset + len));
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n < 0)
			break;
		else
			len += (size_t)n;
	}
	if (n < 0) {
		reply_failed(j, errno, "read");
		return;
	}
	m.file_data = (struct agent_file_data){ .size = (uint64_t)st.st_size,
						.inode = st.st_ino,
						.mtime_ns = mtime_of(&st),
						.data = { data, (uint32_t)len } };
	reply(j, &m);
}

/* --- write ------------------------------------------------------------------- */

static int temp_name(const struct job *j, char *ret, size_t len)
{
	const char *slash = strrchr(j->path, '/');
	int n = snprintf(ret, len, "%.*s/.cryo-%s", (int)(slash - j->path),
			 j->path, j->tag);

	return n > 0 && (size_t)n < len ? 0 : -ENAMETOOLONG;
}

static int write_at(const struct job *j, uint64_t *ret_size)
{
	char temp[PATH_MAX];
	struct stat st;
	int r = temp_name(j, temp, sizeof(temp));
	SCOPED_FD int fd =
		r ? -1 : open_regular(temp, O_RDWR | O_CREAT | O_NOFOLLOW, &st);

	if (r || fd < 0)
		return r ? r : fd;
	if (j->offset > (uint64_t)st.st_size)
		return -ESPIPE; /* a gap: a piece before it is missing */
	r = base_pwrite_all(fd, j->data, j->len, j->offset);
	*ret_size = MAX((uint64_t)st.st_size, j->offset + j->len);
	return r;
}

static void do_write(struct job *j)
{
	struct agent_msg m = { .type = AGENT_FILE_WRITTEN };
	int r = write_at(j, &m.file_written.size);

	if (r)
		reply_failed(j, -r, "write of the temporary file for");
	else
		reply(j, &m);
}

static int commit(const struct job *j)
{
	char temp[PATH_MAX];
	struct stat st;
	int r = temp_name(j, temp, sizeof(temp));
	SCOPED_FD int fd = r ? -1 : open_regular(temp, O_RDWR | O_NOFOLLOW, &st);

	if (r || fd < 0)
		return r ? r : fd;
	if ((uint64_t)st.st_size != j->offset)
		return -EPROTO; /* not what the host has sent */
	/* the owner first: changing it takes set-user-id bits away */
	if (fchown(fd, j->uid, j->gid) || fchmod(fd, j->mode & 07777) ||
	    rename(temp, j->path))
		return -errno;
	return 0;
}

static int abort_upload(const struct job *j)
{
	char temp[PATH_MAX];
	int r = temp_name(j, temp, sizeof(temp));

	if (r)
		return r;
	return unlink(temp) && errno != ENOENT ? -errno : 0;
}

/* --- folders ----------------------------------------------------------------- */

struct dirent64_raw {
	uint64_t ino;
	int64_t next;
	uint16_t len;
	uint8_t type;
	char name[];
};

#define LIST_BYTES 16384 /* of the kernel's records at a time */
#define ENTRY_MAX (4 * 3 + 8 * 2 + 3 + AGENT_NAME_MAX)

static void list_add(int dir, const struct dirent64_raw *d, struct buf *raw,
		     uint32_t *nr)
{
	struct agent_entry en;
	struct stat st;

	if (!strcmp(d->name, ".") || !strcmp(d->name, "..") ||
	    strlen(d->name) > AGENT_NAME_MAX ||
	    fstatat(dir, d->name, &st, AT_SYMLINK_NOFOLLOW))
		return; /* gone meanwhile */
	en = (struct agent_entry){ st.st_mode,	  st.st_uid,
				   st.st_gid,	  (uint64_t)st.st_size,
				   mtime_of(&st), d->name };
	agent_entry_add(raw, &en);
	(*nr)++;
}

/* One buffer of records, as far as a reply takes them; -errno. */
static int list_some(int dir, uint64_t cursor, struct buf *raw, uint32_t *nr,
		     uint64_t *ret_next)
{
	_Alignas(8) char recs[LIST_BYTES];
	long len, at = 0;

	if (lseek(dir, (off_t)cursor, SEEK_SET) < 0)
		return -errno;
	len = syscall(SYS_getdents64, dir, recs, sizeof(recs));
	if (len < 0)
		return -errno;
	*ret_next = len ? cursor : 0;
	while (at < len && raw->len + ENTRY_MAX <= AGENT_DATA_MAX) {
		const struct dirent64_raw *d = (const void *)(recs + at);

		list_add(dir, d, raw, nr);
		*ret_next = (uint64_t)d->next;
		at += d->len;
	}
	return 0;
}

static void do_list(struct job *j)
{
	struct agent_msg m = { .type = AGENT_FILE_ENTRIES };
	struct agent_file_entries *en = &m.file_entries;
	struct buf raw SCOPED(buf_done) = { 0 };
	SCOPED_FD int dir = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dir < 0 ? -errno
			: list_some(dir, j->offset, &raw, &en->nr, &en->next);

	if (r) {
		reply_failed(j, -r, "list");
		return;
	}
	en->entries = (struct agent_bytes){ raw.p, (uint32_t)raw.len };
	reply(j, &m);
}

static int mkdir_one(const struct job *j, const char *path, bool exist_ok)
{
	struct stat st;

	if (mkdir(path, 0700)) {
		if (errno == EEXIST && exist_ok && !stat(path, &st) &&
		    S_ISDIR(st.st_mode))
			return 0;
		return -errno;
	}
	if (chown(path, j->uid, j->gid) || chmod(path, j->mode & 07777))
		return -errno;
	return 0;
}

static int make_dir(struct job *j)
{
	int r;

	if (!j->flags)
		return mkdir_one(j, j->path, false);
	for (char *p = strchr(j->path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		r = mkdir_one(j, j->path, true);
		*p = '/';
		if (r)
			return r;
	}
	return mkdir_one(j, j->path, true);
}

static int remove_path(const struct job *j)
{
	if (!unlink(j->path))
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	return rmdir(j->path) ? -errno : 0;
}

/* --- what must not be done twice --------------------------------------------- */

static bool past_find_file(const struct files_past *p, uint64_t id, int *ret)
{
	for (unsigned i = 0; i < FILES_PAST_MAX; i++)
		if (p->id[i] == id) {
			*ret = p->result[i];
			return true;
		}
	return false;
}

static int change(struct job *j)
{
	switch ((unsigned)j->type) {
	case AGENT_FILE_COMMIT:
		return commit(j);
	case AGENT_FILE_ABORT:
		return abort_upload(j);
	case AGENT_FILE_MKDIR:
		return make_dir(j);
	case AGENT_FILE_REMOVE:
		return remove_path(j);
	default:
		NEVER("not a change");
	}
}

static void do_change(struct files_past *past, struct job *j)
{
	struct agent_msg m = { .type = j->type | AGENT_REPLY };
	unsigned at = past->next % FILES_PAST_MAX;
	int r;

	if (!past_find_file(past, j->id, &r)) {
		r = change(j);
		past->id[at] = j->id;
		past->result[at] = r;
		past->next++;
	}
	if (r)
		reply_failed(j, -r,
			     j->type == AGENT_FILE_MKDIR    ? "make folder"
			     : j->type == AGENT_FILE_REMOVE ? "remove"
							    : "commit");
	else
		reply(j, &m);
}

void files_run(void *ctx, struct job *j)
{
	switch ((unsigned)j->type) {
	case AGENT_FILE_STAT:
		do_stat(j);
		return;
	case AGENT_FILE_READ:
		do_read(j);
		return;
	case AGENT_FILE_WRITE:
		do_write(j);
		return;
	case AGENT_FILE_LIST:
		do_list(j);
		return;
	case AGENT_GENERATION:
		spawn_hooks(HOOKS_DIR);
		return; /* answered already */
	default:
		do_change(ctx, j);
	}
}
