/*
 * Roots of programs: a small real program gets one, and it runs in there
 * with nothing else; what was changed, is missing or was left by a crash.
 */
#include "core/backend/vmm_root.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char dir[] = "/tmp/cryo-root-XXXXXX";
static int dir_fd, hashed;

/* FNV, eight times: the module only asks that it is a function of bytes. */
static void hash(uint8_t ret[VMM_ROOT_DIGEST], const void *p, size_t len)
{
	const uint8_t *b = p;

	hashed++;
	for (unsigned i = 0; i < 4; i++) {
		uint64_t h = 0xcbf29ce484222325u + i;

		for (size_t k = 0; k < len; k++)
			h = (h ^ b[k]) * 0x100000001b3u;
		put_u64(ret + 8 * i, h);
	}
}

static void put_file(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	if (!f || fputs(text, f) < 0 || fclose(f))
		bail("%s", path);
}

static int build(uint8_t digest[VMM_ROOT_DIGEST], struct err *e)
{
	char data[128];
	struct vmm_root_file f[] = { { "/bin/cat", "/bin/cat", true },
				     { data, "/etc/word", false } };

	snprintf(data, sizeof(data), "%s/word", dir);
	return vmm_root_build(dir_fd, f, 2, hash, digest, e);
}

/* `cat /etc/word` in the root; its output. */
static const char *run(const char *name)
{
	static char out[64];
	char path[256];
	ssize_t n;
	int p[2];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (pipe(p) < 0)
		bail("pipe");
	if (fork() == 0) {
		dup2(p[1], 1);
		if (chroot(path) < 0 || chdir("/") < 0)
			_exit(1);
		execle("/bin/cat", "cat", "/etc/word", NULL,
		       (char *const[]){ NULL });
		_exit(2);
	}
	close(p[1]);
	n = read(p[0], out, sizeof(out) - 1);
	close(p[0]);
	wait(NULL);
	out[MAX(n, 0)] = 0;
	return out;
}

static void remove_all(void)
{
	if (fork() == 0)
		execlp("rm", "rm", "-rf", dir, (char *)NULL);
	wait(NULL);
}

static void life(void)
{
	uint8_t one[VMM_ROOT_DIGEST], two[VMM_ROOT_DIGEST];
	char name[VMM_ROOT_NAME], path[300];
	struct err e = { 0 };
	struct stat st;
	int fd = -1;

	put_file("word", "hello");
	is_int(build(one, &e), 0, "built (%s)", e.msg);
	vmm_root_name(name, one);
	is_int(strlen(name), 64, "named by its digest");
	is_str(run(name), "hello", "the program runs in it");
	snprintf(path, sizeof(path), "%s/%s/etc/word", dir, name);
	is_int(stat(path, &st), 0, "the file is there");
	is_int(st.st_mode & 07777, 0444, "for reading only");
	snprintf(path, sizeof(path), "%s/%s/proc", dir, name);
	is_int(stat(path, &st), 0, "there is a place for /proc");
	is_int(build(two, &e), 0, "built again (%s)", e.msg);
	is_mem(two, one, sizeof(one), "it is the same");
	is_int(vmm_root_open(dir_fd, one, &fd, &e), 0, "it opens");
	close(fd);
	put_file("word", "other");
	is_int(build(two, &e), 0, "another content (%s)", e.msg);
	ok(memcmp(one, two, sizeof(one)) != 0, "is another root");
	is_str(run(name), "hello", "the first one stays");
	memset(two, 7, sizeof(two));
	is_int(vmm_root_open(dir_fd, two, &fd, &e), -ENOENT,
	       "a build that was never made: %s", e.msg);
}

static void trouble(void)
{
	uint8_t d[VMM_ROOT_DIGEST];
	char name[VMM_ROOT_NAME], path[300];
	struct vmm_root_file up = { "/bin/cat", "/../cat", true };
	struct vmm_root_file none = { "/nothing/here", "/x", false };
	struct vmm_root_file text = { NULL, "/x", true };
	struct err e = { 0 };
	struct stat st;

	mkdirat(dir_fd, ".new-0123", 0755);
	mkdirat(dir_fd, ".new-0123/sub", 0755);
	put_file("word", "third");
	is_int(build(d, &e), 0, "built beside a crash's leftover (%s)", e.msg);
	is_int(fstatat(dir_fd, ".new-0123", &st, 0), -1, "which is gone");
	vmm_root_name(name, d);
	snprintf(path, sizeof(path), "%s/%s/etc/word", dir, name);
	chmod(path, 0644);
	is_int(build(d, &e), -EBADMSG, "a file made writable: %s", e.msg);
	chmod(path, 0444);
	is_int(build(d, &e), 0, "set right again");
	is_int(truncate(path, 2), 0, "a file made shorter");
	is_int(build(d, &e), -EBADMSG, "is found: %s", e.msg);
	is_int(vmm_root_build(dir_fd, &up, 1, hash, d, &e), -EINVAL, "%s", e.msg);
	is_int(vmm_root_build(dir_fd, &none, 1, hash, d, &e), -ENOENT, "%s",
	       e.msg);
	snprintf(path, sizeof(path), "%s/word", dir);
	text.src = path;
	is_int(vmm_root_build(dir_fd, &text, 1, hash, d, &e), -ENOEXEC, "%s",
	       e.msg);
}

int main(void)
{
	if (geteuid() != 0) {
		printf("1..0 # SKIP a root's files belong to root\n");
		return 0;
	}
	umask(022);
	if (!mkdtemp(dir))
		bail("mkdtemp");
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
	life();
	trouble();
	ok(hashed > 10, "every file was hashed");
	remove_all();
	return tap_done();
}
