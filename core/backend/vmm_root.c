/*
 * vmm_root: collects a program with everything it loads into a folder that
 * becomes the root of its mount namespace.
 *
 * First a list: each given file, and for each program what the dynamic
 * loader itself says it would load (--list: nothing of the program runs).
 * The list is sorted and hashed with every file's bytes; the hash names the
 * folder. Only if that folder is missing are the bytes copied.
 *
 *  1. A folder with a digest's name is complete: it was renamed into place
 *     after all of it was on disk.
 *  2. Files belong to us (root) and nobody can write them; libraries keep
 *     their paths, so the loader finds them with its built-in rules.
 *  3. The digest covers names, modes and bytes, in sorted order.
 *
 * A crash leaves ".new-*" folders; the next build removes them.
 */
#include "core/backend/vmm_root.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/backend/vmm_argv.h"
#include "core/buf.h"

#define DST_MAX 256
#define LIST_MAX (256u << 10) /* bytes of the loader's answer */
#define TREE_DEPTH_MAX 16

struct entry {
	char src[PATH_MAX];
	char dst[DST_MAX];
	bool program;
	uint64_t size;
	uint8_t sha256[VMM_ROOT_DIGEST];
};

struct list {
	struct entry *e;
	size_t nr;
	char loader[DST_MAX]; /* PT_INTERP of the last program that had one */
};

static void list_done(struct list *l)
{
	free(l->e);
}

/* --- the list ------------------------------------------------------------- */

static int add(struct list *l, const char *src, const char *dst, bool program,
	       struct err *e)
{
	struct entry *n = &l->e[l->nr];

	if (dst[0] != '/' || strstr(dst, "/.."))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "%s: can't stand in a root as %s", src, dst);
	for (size_t i = 0; i < l->nr; i++)
		if (!strcmp(l->e[i].dst, dst))
			return 0;
	if (l->nr == VMM_ROOT_FILES_MAX ||
	    !base_strcpy(n->src, sizeof(n->src), src) ||
	    !base_strcpy(n->dst, sizeof(n->dst), dst))
		return err_set(e, -E2BIG, ERR_LIMIT,
			       "%s: more than %u files or too long a name", src,
			       VMM_ROOT_FILES_MAX);
	n->program = program;
	l->nr++;
	return 0;
}

/* The loader that a program names; none (a library): `l` keeps the last. */
static int read_interp(struct list *l, const char *path, struct err *e)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr h;
	Elf64_Phdr p;

	if (fd < 0)
		return err_sys(e, errno, "open of %s", path);
	if (base_pread_all(fd, &h, sizeof(h), 0) < 0 ||
	    memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 ||
	    h.e_ident[EI_CLASS] != ELFCLASS64)
		return err_set(e, -ENOEXEC, ERR_INVALID,
			       "%s: not a 64-bit ELF program", path);
	for (unsigned i = 0; i < h.e_phnum; i++) {
		if (base_pread_all(fd, &p, sizeof(p),
				   h.e_phoff + i * sizeof(p)) < 0)
			break;
		if (p.p_type != PT_INTERP)
			continue;
		if (p.p_filesz > sizeof(l->loader) ||
		    base_pread_all(fd, l->loader, p.p_filesz, p.p_offset) < 0)
			return err_set(e, -ENOEXEC, ERR_INVALID,
				       "%s: names no usable loader", path);
		l->loader[sizeof(l->loader) - 1] = 0;
	}
	return 0;
}

static int read_pipe(int fd, struct buf *b)
{
	ssize_t n;

	do {
		n = read(fd, buf_reserve(b, 4096), 4096);
		if (n < 0)
			return errno == EINTR ? 0 : -errno;
		b->len += (size_t)n;
	} while (n > 0 && b->len < LIST_MAX);
	return n > 0 ? -E2BIG : 0;
}

/* Runs `loader --list path` without our environment. */
static int run_loader(const char *loader, const char *path, struct buf *out,
		      struct err *e)
{
	int p[2], r, status = 0;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "pipe for %s", loader);
	pid = fork();
	if (pid == 0) {
		dup2(p[1], 1);
		execle(loader, loader, "--list", path, (char *)NULL,
		       (char *const[]){ NULL });
		_exit(127);
	}
	close(p[1]);
	r = pid < 0 ? -errno : read_pipe(p[0], out);
	close(p[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r == 0 && status != 0)
		r = -ENOEXEC;
	if (r < 0)
		return err_sys(e, -r, "%s --list %s", loader, path);
	return 0;
}

/* "\tlibz.so.1 => /lib/.../libz.so.1 (0x...)" or "\t/lib64/ld.so (0x...)" */
static int add_line(struct list *l, const char *program, char *line,
		    struct err *e)
{
	char *arrow = strstr(line, " => ");
	char *path = arrow ? arrow + 4 : strchr(line, '/');
	char *end;

	if (!path) /* the kernel's vdso */
		return 0;
	if (!strncmp(path, "not found", 9))
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "%s: library%.*s is not installed", program,
			       (int)(arrow - line), line);
	end = strstr(path, " (0x");
	if (path[0] != '/' || !end)
		return err_set(e, -EINVAL, ERR_INTERNAL,
			       "%s: the loader's answer is not understood",
			       program);
	*end = 0;
	return add(l, path, path, true, e);
}

static int add_libraries(struct list *l, const char *path, struct err *e)
{
	SCOPED(buf_done) struct buf b = { 0 };
	char *line, *save = NULL;
	int r = read_interp(l, path, e);

	if (r < 0)
		return r;
	if (!l->loader[0]) /* static */
		return 0;
	r = add(l, l->loader, l->loader, true, e);
	if (r == 0)
		r = run_loader(l->loader, path, &b, e);
	if (r < 0)
		return r;
	buf_cstr(&b);
	for (line = strtok_r((char *)b.p, "\n", &save); r == 0 && line;
	     line = strtok_r(NULL, "\n", &save))
		r = add_line(l, path, line, e);
	return r;
}

/* --- hashing -------------------------------------------------------------- */

static int map_file(const char *path, void **ret, uint64_t *ret_len,
		    struct err *e)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "open of %s", path);
	if (!S_ISREG(st.st_mode) || st.st_size == 0)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "%s: not a file with bytes in it", path);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return err_sys(e, errno, "mmap of %s", path);
	*ret = p;
	*ret_len = (uint64_t)st.st_size;
	return 0;
}

static int by_dst(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->dst,
		      ((const struct entry *)b)->dst);
}

static int hash_list(struct list *l, vmm_root_sha256_fn sha256,
		     uint8_t ret[VMM_ROOT_DIGEST], struct err *e)
{
	SCOPED(buf_done) struct buf b = { 0 };
	void *p = NULL;

	qsort(l->e, l->nr, sizeof(l->e[0]), by_dst);
	buf_put_str(&b, "cryo-root-v1\n");
	for (size_t i = 0; i < l->nr; i++) {
		struct entry *n = &l->e[i];
		int r = map_file(n->src, &p, &n->size, e);

		if (r < 0)
			return r;
		sha256(n->sha256, p, n->size);
		munmap(p, n->size);
		buf_printf(&b, "%s %c ", n->dst, n->program ? 'x' : '-');
		buf_put(&b, n->sha256, sizeof(n->sha256));
		buf_put_u8(&b, '\n');
	}
	sha256(ret, b.p, b.len);
	return 0;
}

/* --- the folder ----------------------------------------------------------- */

static int remove_tree(int dir, const char *name, int depth)
{
	int fd = openat(dir, name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *d;
	DIR *list;

	if (fd < 0 || depth > TREE_DEPTH_MAX || !(list = fdopendir(fd))) {
		base_close_p(&fd);
		return unlinkat(dir, name, 0);
	}
	while ((d = readdir(list)))
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			remove_tree(dirfd(list), d->d_name, depth + 1);
	closedir(list);
	return unlinkat(dir, name, AT_REMOVEDIR);
}

/* What a crash of an earlier build left. */
static void remove_leftovers(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *d;

	while (list && (d = readdir(list)))
		if (!strncmp(d->d_name, ".new-", 5))
			remove_tree(dir, d->d_name, 0);
	if (list)
		closedir(list);
	else
		base_close_p(&fd);
}

static int make_parents(int root, const char *dst)
{
	char path[DST_MAX];

	for (const char *s = strchr(dst + 1, '/'); s; s = strchr(s + 1, '/')) {
		memcpy(path, dst + 1, (size_t)(s - dst - 1));
		path[s - dst - 1] = 0;
		if (mkdirat(root, path, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int copy_entry(int root, const struct entry *n, struct err *e)
{
	mode_t mode = n->program ? 0555 : 0444;
	SCOPED_FD int fd = -1;
	uint64_t len = 0;
	void *p = NULL;
	int r = make_parents(root, n->dst);

	if (r == 0) {
		fd = openat(root, n->dst + 1,
			    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
		r = fd < 0 ? -errno : 0;
	}
	if (r < 0)
		return err_sys(e, -r, "create of %s in the root", n->dst);
	r = map_file(n->src, &p, &len, e);
	if (r < 0)
		return r;
	r = len != n->size ? -EAGAIN : base_write_all(fd, p, len);
	munmap(p, len);
	if (r == 0 && fchmod(fd, mode) < 0)
		r = -errno;
	return r < 0 ? err_sys(e, -r, "copy of %s", n->src) : 0;
}

static int fill_root(int root, const struct list *l, struct err *e)
{
	static const char *const mounts[] = { "dev", "proc" };
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(mounts); i++)
		if (mkdirat(root, mounts[i], 0555) < 0)
			return err_sys(e, errno, "mkdir of /%s in the root",
				       mounts[i]);
	for (size_t i = 0; r == 0 && i < l->nr; i++)
		r = copy_entry(root, &l->e[i], e);
	if (r == 0 && (fchmod(root, 0555) < 0 || syncfs(root) < 0))
		r = err_sys(e, errno, "sync of a new root");
	return r;
}

static int make_root(int dir, const char *name, const struct list *l,
		     struct err *e)
{
	SCOPED_FD int root = -1;
	char tmp[32];
	uint64_t x;
	int r;

	base_random(&x, sizeof(x));
	snprintf(tmp, sizeof(tmp), ".new-%016llx", (unsigned long long)x);
	if (mkdirat(dir, tmp, 0755) < 0)
		return err_sys(e, errno, "mkdir of a new root");
	root = openat(dir, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = root < 0 ? err_sys(e, errno, "open of a new root")
		     : fill_root(root, l, e);
	if (r == 0 && renameat(dir, tmp, dir, name) < 0)
		r = err_sys(e, errno, "rename of a new root to %s", name);
	if (r == 0 && fsync(dir) < 0)
		r = err_sys(e, errno, "sync of the folder of roots");
	if (r < 0)
		remove_tree(dir, tmp, 0);
	return r;
}

/* A root that stands there already: nothing lost, nothing writable. */
static int check_root(int root, const char *name, const struct list *l,
		      struct err *e)
{
	for (size_t i = 0; i < l->nr; i++) {
		const struct entry *n = &l->e[i];
		struct stat st;

		if (fstatat(root, n->dst + 1, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode) || (uint64_t)st.st_size != n->size ||
		    st.st_uid != geteuid() || (st.st_mode & 0222))
			return err_set(e, -EBADMSG, ERR_CORRUPT,
				       "root %.12s...: %s was changed; remove "
				       "that folder below vmm/ and start again",
				       name, n->dst);
	}
	return 0;
}

void vmm_root_name(char ret[VMM_ROOT_NAME], const uint8_t digest[VMM_ROOT_DIGEST])
{
	for (size_t i = 0; i < VMM_ROOT_DIGEST; i++)
		snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

int vmm_root_open(int dir_fd, const uint8_t digest[VMM_ROOT_DIGEST],
		  int *ret_fd, struct err *e)
{
	char name[VMM_ROOT_NAME];
	struct stat st;
	int fd;

	vmm_root_name(name, digest);
	fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "VMM build %.12s...", name);
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 0222)) {
		close(fd);
		return err_set(e, -EPERM, ERR_CORRUPT,
			       "VMM build %.12s... is not ours alone to write",
			       name);
	}
	*ret_fd = fd;
	return 0;
}

int vmm_root_build(int dir_fd, const struct vmm_root_file *files, size_t nr,
		   vmm_root_sha256_fn sha256, uint8_t ret[VMM_ROOT_DIGEST],
		   struct err *e)
{
	SCOPED(list_done) struct list l = { 0 };
	uint8_t digest[VMM_ROOT_DIGEST];
	char name[VMM_ROOT_NAME];
	SCOPED_FD int root = -1;
	int r = 0;

	l.e = base_alloc(VMM_ROOT_FILES_MAX * sizeof(l.e[0]));
	for (size_t i = 0; r == 0 && i < nr; i++) {
		r = add(&l, files[i].src, files[i].dst, files[i].program, e);
		if (r == 0 && files[i].program)
			r = add_libraries(&l, files[i].src, e);
	}
	if (r == 0)
		r = hash_list(&l, sha256, digest, e);
	if (r < 0)
		return r;
	remove_leftovers(dir_fd);
	vmm_root_name(name, digest);
	r = vmm_root_open(dir_fd, digest, &root, e);
	if (r == 0)
		r = check_root(root, name, &l, e);
	else if (r == -ENOENT)
		r = make_root(dir_fd, name, &l, e);
	if (r == 0)
		memcpy(ret, digest, sizeof(digest));
	return r;
}

/* --- QEMU's root ---------------------------------------------------------- */

/* First of the folders that has the file; false if none. */
static bool find_file(char ret[PATH_MAX], const char *const *dirs,
		      const char *name)
{
	for (; *dirs; dirs++) {
		snprintf(ret, PATH_MAX, "%s/%s", *dirs, name);
		if (access(ret, R_OK) == 0)
			return true;
	}
	return false;
}

int vmm_root_build_qemu(int dir_fd, const char *qemu, const char *preload,
			vmm_root_sha256_fn sha256, uint8_t ret[VMM_ROOT_DIGEST],
			struct err *e)
{
	static const char *const rom_dirs[] = { "/usr/share/qemu",
						"/usr/share/seabios", NULL };
	static const char *const module_dirs[] = {
		"/usr/lib/x86_64-linux-gnu/qemu", "/usr/lib/qemu", NULL
	};
	char bios[PATH_MAX], pvh[PATH_MAX], tcg[PATH_MAX];
	struct vmm_root_file f[5] = {
		{ qemu, VMM_PATH_QEMU, true },
		{ preload, VMM_PATH_PRELOAD, true },
		{ bios, VMM_PATH_ROMS "/bios-microvm.bin", false },
		{ pvh, VMM_PATH_ROMS "/pvh.bin", false },
		{ tcg, VMM_PATH_MODULES "/accel-tcg-x86_64.so", true },
	};
	size_t nr = 4;

	if (!find_file(bios, rom_dirs, "bios-microvm.bin") ||
	    !find_file(pvh, rom_dirs, "pvh.bin"))
		return err_set(e, -ENOENT, ERR_NOT_FOUND,
			       "QEMU's ROMs bios-microvm.bin and pvh.bin are "
			       "not installed: install qemu-system-data and "
			       "seabios");
	/* a QEMU without loadable modules has TCG built in */
	if (find_file(tcg, module_dirs, "accel-tcg-x86_64.so"))
		nr++;
	return vmm_root_build(dir_fd, f, nr, sha256, ret, e);
}
