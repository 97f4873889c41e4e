/*
 * api_cli_untar: archives out of a hostile sandbox: what a real tar makes is
 * taken apart rightly, in pieces of any size; what would leave the folder
 * does not.
 */
#include "tools/cryo/untar.c" /* the module itself: it is in no library */

#include "tests/tap.h"

#include <stdio.h>
#include <sys/wait.h>

static char top[64];

static int open_dir(const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		bail("opening %s", path);
	return fd;
}

/* A folder below `top`, new. */
static char *folder(const char *name)
{
	char *path = base_printf("%s/%s", top, name);

	if (mkdir(path, 0777) < 0)
		bail("making %s", path);
	return path;
}

static int shell(const char *command)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		if (chdir(top) == 0)
			execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status;
}

/* A header as POSIX has it; fields that matter can be broken afterwards. */
static void header(uint8_t h[512], const char *name, char type, size_t size,
		   const char *link)
{
	unsigned sum = 0;

	memset(h, 0, 512);
	memcpy(h, name, MIN(strlen(name), 100u));
	memcpy(h + 100, "0007755", 7);
	memcpy(h + 108, "0000000", 7);
	memcpy(h + 116, "0000000", 7);
	snprintf((char *)h + 124, 12, "%011o", (unsigned)size & 0777777777);
	memcpy(h + 136, "00000000000", 11);
	h[156] = (uint8_t)type;
	memcpy(h + 157, link, MIN(strlen(link), 100u));
	memcpy(h + 257, "ustar", 6);
	memcpy(h + 263, "00", 2);
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

static void member(struct buf *b, const char *name, char type,
		   const char *content, const char *link)
{
	static const uint8_t zeros[512];
	uint8_t h[512];
	size_t len = strlen(content);

	header(h, name, type, len, link);
	buf_put(b, h, 512);
	buf_put(b, content, len);
	if (len % 512)
		buf_put(b, zeros, 512 - len % 512);
}

static void finish(struct buf *b)
{
	static const uint8_t zeros[1024];

	buf_put(b, zeros, sizeof(zeros));
}

/* Takes an archive apart in one piece; the result and counts in *u. */
static int take(struct untar *u, const char *where, const struct buf *b,
		struct err *e)
{
	int dir = open_dir(where), r;

	untar_init(u, dir, 1 << 20);
	r = untar_put(u, b->p, b->len, e);
	untar_done(u);
	if (r == 0)
		r = untar_end(u, e);
	close(dir);
	return r;
}

static void real_tar(uint64_t seed)
{
	SCOPED_FREE char *to = folder("out");
	SCOPED_FREE char *text = base_alloc(4u << 20);
	SCOPED_FREE char *path = base_printf("%s/a.tar", top);
	SCOPED_FD int fd = -1, dir = -1;
	struct untar u;
	struct err e = { 0 };
	ssize_t len;
	int r = 0;

	is_int(shell("mkdir -p in/sub/deep in/empty && "
		     "head -c 100000 /dev/urandom >in/sub/random && "
		     "printf hi >in/sub/deep/small && : >in/none && "
		     "chmod 755 in/none && ln -s sub/random in/link && "
		     "L=$(printf 'n%.0s' $(seq 150)) && printf long >in/$L && "
		     "tar --format=gnu -C in -cf a.tar ."),
	       0, "an archive by tar itself");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = read(fd, text, 4u << 20);
	ok(len > 100000, "of %zd bytes", len);
	dir = open_dir(to);
	untar_init(&u, dir, 1 << 20);
	for (ssize_t at = 0; at < len && r == 0;) {
		size_t n = 1 + (size_t)(tap_rand(&seed) % 3000);

		n = MIN(n, (size_t)(len - at));
		r = untar_put(&u, text + at, n, &e);
		at += (ssize_t)n;
	}
	is_int(r, 0, "is taken in pieces of any size");
	is_int(untar_end(&u, &e), 0, "to its end");
	untar_done(&u);
	is_int((int)u.files, 4, "files");
	is_int((int)u.links, 1, "links");
	is_int((int)u.skipped, 0, "nothing left out");
	is_int(shell("diff -r in out && test -x out/none && "
		     "test \"$(readlink out/link)\" = sub/random"),
	       0, "the same tree");
}

static void escapes(void)
{
	static const char *const names[] = {
		"../evil", "/evil",	"a/../../evil",	     "a/..",
		"..",	   "./../evil", "a/b/../../../evil", ".//../evil",
		"./",
	};
	SCOPED_FREE char *to = folder("jail");
	struct untar u;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		SCOPED(buf_done) struct buf b = { 0 };

		member(&b, names[i], '0', "x", "");
		finish(&b);
		if (!strcmp(names[i], "./")) {
			is_int(take(&u, to, &b, &e), 0, "the folder itself");
			continue;
		}
		is_int(take(&u, to, &b, &e), -EINVAL, "refuses %s", names[i]);
	}
	is_int(shell("test -z \"$(find . -name evil)\""), 0,
	       "nothing was written outside");
}

static void links(void)
{
	static const char *const bad[] = { "/etc/passwd", "../x", "a/../../x",
					   "" };
	SCOPED_FREE char *to = folder("links");
	SCOPED(buf_done) struct buf b = { 0 }, through = { 0 };
	struct untar u;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		member(&b, "l", '2', "", bad[i]);
	member(&b, "hard", '1', "", "a");
	member(&b, "device", '3', "", "");
	member(&b, "fifo", '6', "", "");
	finish(&b);
	is_int(take(&u, to, &b, &e), 0, "links that lead out and devices");
	is_int((int)u.skipped, 7, "are left out");
	is_int((int)u.links, 0, "none is made");
	is_int(shell("ln -s /tmp links/out && ln -s inside links/dir && "
		     "mkdir links/inside && printf old >links/target && "
		     "ln -s target links/file"),
	       0, "links that were there before");
	member(&through, "out/evil", '0', "x", "");
	finish(&through);
	ok(take(&u, to, &through, &e) < 0, "are not followed out: %s", e.msg);
	buf_reset(&through);
	member(&through, "dir/evil", '0', "x", "");
	finish(&through);
	ok(take(&u, to, &through, &e) < 0, "nor in: %s", e.msg);
	buf_reset(&through);
	member(&through, "file", '0', "new", "");
	finish(&through);
	is_int(take(&u, to, &through, &e), 0, "a link is replaced by a file");
	is_int(shell("test \"$(cat links/target)\" = old && "
		     "test \"$(cat links/file)\" = new && ! test -L links/file"),
	       0, "and not written through");
}

static void broken(void)
{
	SCOPED_FREE char *to = folder("broken");
	SCOPED(buf_done) struct buf b = { 0 };
	struct untar u;
	struct err e;
	struct stat st;
	char path[96];

	member(&b, "file", '0', "content", "");
	is_int(take(&u, to, &b, &e), -EINVAL, "an archive without its end");
	buf_reset(&b);
	member(&b, "f", '0', "content", "");
	b.p[0] = 'g';
	finish(&b);
	is_int(take(&u, to, &b, &e), -EINVAL, "a wrong checksum");
	buf_reset(&b);
	{
		uint8_t h[512];

		header(h, "huge", '0', 2u << 20, "");
		buf_put(&b, h, 512);
	}
	is_int(take(&u, to, &b, &e), -EFBIG, "more than is allowed");
	buf_reset(&b);
	member(&b, "suid", '0', "x", "");
	finish(&b);
	is_int(take(&u, to, &b, &e), 0, "a set-id file");
	snprintf(path, sizeof(path), "%s/suid", to);
	ok(stat(path, &st) == 0 && !(st.st_mode & 07000),
	   "comes without those bits");
}

/* Any bytes at all: an error, never a crash, never a file elsewhere. */
static void noise(uint64_t seed)
{
	SCOPED_FREE char *to = folder("noise");
	SCOPED(buf_done) struct buf good = { 0 };
	int survived = 0;

	member(&good, "a/b", '0', "some content", "");
	member(&good, "link", '2', "", "a/b");
	member(&good, "d/", '5', "", "");
	finish(&good);
	for (int i = 0; i < 2000; i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		struct untar u;
		struct err e;

		buf_put(&b, good.p, good.len);
		for (int k = 0; k < 1 + i % 5; k++) {
			size_t at = (size_t)(tap_rand(&seed) % b.len);
			uint8_t *h = b.p + at / 512 * 512;
			unsigned sum = 0;

			b.p[at] = (uint8_t)tap_rand(&seed);
			/* half the time with a right checksum */
			if (i % 2) {
				memset(h + 148, ' ', 8);
				for (int n = 0; n < 512; n++)
					sum += h[n];
				snprintf((char *)h + 148, 8, "%06o", sum);
			}
		}
		take(&u, to, &b, &e);
		survived++;
	}
	is_int(survived, 2000, "2000 damaged archives");
	is_int(shell("test \"$(ls | sort | tr '\\n' ' ')\" = "
		     "'a.tar broken in jail links noise out '"),
	       0, "nothing appeared beside the folder");
}

int main(void)
{
	uint64_t seed = tap_seed();

	snprintf(top, sizeof(top), "/tmp/cryo-untar-XXXXXX");
	if (!mkdtemp(top))
		bail("making a folder");
	real_tar(seed);
	escapes();
	links();
	broken();
	noise(seed);
	{
		SCOPED_FREE char *rm = base_printf("rm -rf %s", top);

		shell(rm);
	}
	return tap_done();
}
