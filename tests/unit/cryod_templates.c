/*
 * Template folders: what the daemon takes for a template, and what it finds
 * when somebody has been at one. The digests are those of sha256sum(1).
 */
#include "tools/cryod/host.h"

#include "tests/fds.h"
#include "tests/unit/store_help.h"

#define KERNEL \
	"8daf3e4f39d310222b89e05b97f1aa56319811c728a147e8c6c86448f534194f"
#define INITRD \
	"3e80041bda6e34a9397ae625c212916b0520a14975ca58a8f5d93c4e5b50d184"
#define DISK "4671c850d561edcaaef46233f1b690de4e28f064b61c6d8104017f2d79495019"

#define TEXT(cmdline, disk)                                           \
	"{\"cmdline\":\"" cmdline "\",\"disk\":\"" disk               \
	"\",\"disk_sha256\":\"" DISK "\",\"initrd\":\"initrd.cpio\"," \
	"\"initrd_sha256\":\"" INITRD "\",\"kernel\":\"vmlinux\","    \
	"\"kernel_sha256\":\"" KERNEL "\",\"name\":\"tiny:latest\"}"

#define GOOD "b24301e59d9938469864c78145fd786829544ad02a9b3a0fd855bdbe25c90aa2"
#define OUTSIDE \
	"47ae8d34e82c56510a3366d4813d82368a2720ff3587bf37f6ff4b03aa4bed79"
#define LONG "876b4f1d756fc9ea455013da1574addeab04e08ba9fc91da7e61cd91ccf8adbc"

#define X64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static struct host host;

static void put(const char *digest, const char *file, const char *text, size_t len)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%s", help_path("data/templates"),
		 digest, file);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, len) != (ssize_t)len)
		bail("can't write %s", path);
	close(fd);
}

static void template(const char *digest, const char *text)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", help_path("data/templates"),
		 digest);
	mkdir(path, 0700);
	put(digest, "template.json", text, strlen(text));
	put(digest, "vmlinux", "kernel bytes", 12);
	put(digest, "initrd.cpio", "initrd bytes", 12);
	put(digest, "disk.img", "disk bytes", 10);
}

static bool holds(int fd, const char *text)
{
	char got[64] = "";

	return fd >= 0 && pread(fd, got, sizeof(got) - 1, 0) >= 0 &&
	       !strcmp(got, text);
}

static int check(const char *digest, struct err *e)
{
	json_t *o = NULL;
	int r = host_template_check(&host, digest, &o, e);

	json_decref(o);
	return r;
}

static void test_good(void)
{
	struct qemu_template t;
	json_t *o = NULL;
	const char *name = "";
	struct err e;

	is_int(host_template_describe(&host, GOOD, &o, &e), 0,
	       "a template is known by the digest of its description");
	json_get_str(o, "name", &name, &e);
	is_str(name, "tiny:latest", "and described");
	json_decref(o);
	is_int(check(GOOD, &e), 0, "its files are checked");
	is_int(host_template_open(&host, GOOD, &t, &e), 0, "and opened");
	ok(holds(t.kernel_fd, "kernel bytes") &&
		   holds(t.initrd_fd, "initrd bytes") &&
		   holds(t.disk_fd, "disk bytes"),
	   "each in its place");
	is_str(t.cmdline, "console=hvc0", "with the command line");
	ok(t.kernel_digest[0] == 0x8d && t.kernel_digest[31] == 0x4f,
	   "and the kernel's digest");
	ok((fcntl(t.kernel_fd, F_GETFL) & O_ACCMODE) == O_RDONLY,
	   "for reading only");
	close(t.kernel_fd);
	close(t.initrd_fd);
	close(t.disk_fd);
}

/* The member `digest`, which template builders add, is not part of it. */
static void test_own_digest(void)
{
	static const char text[] = "{ \"digest\": \"" GOOD
				   "\",\n " TEXT("console=hvc0", "disk.img");
	char joined[4096];
	struct err e;

	snprintf(joined, sizeof(joined), "{ \"digest\": \"%s\",\n %s", GOOD,
		 TEXT("console=hvc0", "disk.img") + 1);
	put(GOOD, "template.json", joined, strlen(joined));
	is_int(check(GOOD, &e), 0, "spaces and its own digest don't matter");
	put(GOOD, "template.json", text, strlen(text));
	ok(check(GOOD, &e) < 0, "text that is no JSON does");
	template(GOOD, TEXT("console=hvc0", "disk.img"));
}

static void test_bad_names(void)
{
	static const char *const names[] = {
		"",
		"abc",
		"../../etc/passwd",
		X64,
		GOOD "0",
		"B24301e59d9938469864c78145fd786829544ad02a9b3a0fd855bdbe25c90aa2",
	};
	struct qemu_template t;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		is_int(check(names[i], &e), -EINVAL, "\"%s\" is no digest",
		       names[i]);
		is_int(host_template_open(&host, names[i], &t, &e), -EINVAL,
		       "nor to be opened");
	}
	is_int(check(KERNEL, &e), -ENOENT, "one that is not there is -ENOENT");
	ok(e.code == ERR_NOT_FOUND && strstr(e.msg, KERNEL), "and says: %s",
	   e.msg);
}

static void test_tampered(void)
{
	static char big[(64 << 10) + 1];
	struct qemu_template t;
	struct err e;

	put(GOOD, "disk.img", "Disk bytes", 10);
	is_int(check(GOOD, &e), -EBADMSG, "a changed file is found");
	ok(strstr(e.msg, "disk") && strstr(e.msg, "build it again"),
	   "and named: %s", e.msg);
	put(GOOD, "template.json", TEXT("init=/bin/sh", "disk.img"),
	    strlen(TEXT("init=/bin/sh", "disk.img")));
	is_int(host_template_open(&host, GOOD, &t, &e), -EBADMSG,
	       "so is a changed description, at each start");
	memset(big, ' ', sizeof(big));
	put(GOOD, "template.json", big, sizeof(big));
	is_int(check(GOOD, &e), -EBADMSG, "one that is too large is not read");
	put(GOOD, "template.json", "", 0);
	is_int(check(GOOD, &e), -EBADMSG, "nor an empty one");
	template(GOOD, TEXT("console=hvc0", "disk.img"));
	unlink(help_path("data/templates/" GOOD "/initrd.cpio"));
	ok(check(GOOD, &e) == -ENOENT && strstr(e.msg, "initrd.cpio"),
	   "a missing file is named: %s", e.msg);
	is_int(host_template_open(&host, GOOD, &t, &e), -ENOENT,
	       "and does not open");
	template(GOOD, TEXT("console=hvc0", "disk.img"));
}

static void test_bad_content(void)
{
	struct qemu_template t;
	struct err e;

	template(OUTSIDE, TEXT("console=hvc0", "../disk.img"));
	is_int(check(OUTSIDE, &e), -EBADMSG, "no file may lie elsewhere");
	is_int(host_template_open(&host, OUTSIDE, &t, &e), -EBADMSG,
	       "nor be opened there");
	template(LONG, TEXT(X64 X64 X64 X64 X64 X64 X64 X64, "disk.img"));
	is_int(host_template_open(&host, LONG, &t, &e), -EBADMSG,
	       "a command line that does not fit is not cut");
}

static int nr_found;

static void found(void *ctx, const char *digest)
{
	nr_found += ctx == &nr_found &&
		    (!strcmp(digest, GOOD) || !strcmp(digest, OUTSIDE) ||
		     !strcmp(digest, LONG));
}

static void test_list(void)
{
	struct host nowhere;
	struct err e;

	mkdir(help_path("data/templates/.tmp-building"), 0700);
	is_int(host_templates(&host, found, &nr_found, &e), 0, "a listing");
	is_int(nr_found, 3, "has the folders that are named by digests");
	host_init(&nowhere, help_path("nowhere"), NULL);
	ok(host_templates(&nowhere, found, &nr_found, &e) == -ENOENT &&
		   strstr(e.msg, "nowhere"),
	   "of a folder that is not there it fails: %s", e.msg);
}

int main(void)
{
	static char data[PATH_MAX];
	int before;

	base_strcpy(data, sizeof(data), help_path("data"));
	mkdir(data, 0700);
	mkdir(help_path("data/templates"), 0700);
	host_init(&host, data, NULL);
	template(GOOD, TEXT("console=hvc0", "disk.img"));
	before = fds_count();
	test_good();
	test_own_digest();
	test_bad_names();
	test_tampered();
	test_bad_content();
	test_list();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
