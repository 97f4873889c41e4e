/*
 * The daemon's files and keys: packs and who may read them after whose end,
 * transcripts and when one may be given again, sockets, purging.
 */
#include "tools/cryod/host.h"

#include <sys/socket.h>

#include "store/datadir.h"
#include "store/transcript.h"

#include "tests/fds.h"
#include "tests/unit/store_help.h"

#define TENANT "t0000000000000000001"
#define PARENT "p0000000000000000001"
#define CHILD "c0000000000000000001"
#define GRANDCHILD "g0000000000000000001"
#define STRANGER "s0000000000000000001"
#define EXEC "e0000000000000000001"

static struct host host;
static const struct qemu_host *port = &host.port;
static char data[PATH_MAX];

struct pack {
	uint8_t id[1][16], key[32];
};

static bool there(const char *kind, const char *session, const char *below)
{
	char path[PATH_MAX], full[PATH_MAX + 64];

	datadir_id_path(path, data, kind, session);
	snprintf(full, sizeof(full), "%s%s", path, below);
	return access(full, F_OK) == 0;
}

static struct pack pack_new(const char *session, const char *text)
{
	struct pack p;
	struct err e;
	int fd;

	if (port->pack_new(port->ctx, session, p.id[0], p.key, &fd, &e) < 0 ||
	    write(fd, text, strlen(text)) < 0)
		bail("pack: %s", e.msg);
	close(fd);
	return p;
}

/* 0 if the session can read this text from the pack, under the same key. */
static int pack_read(const char *session, const struct pack *p, const char *text)
{
	char got[64] = "";
	uint8_t key[32];
	struct err e;
	int fd, r = port->pack_open(port->ctx, session, p->id[0], key, &fd, &e);

	if (r < 0)
		return r;
	if (pread(fd, got, sizeof(got) - 1, 0) < 0 ||
	    write(fd, "x", 1) != -1 /* it is for reading only */)
		r = -EIO;
	close(fd);
	return r < 0 || strcmp(got, text) || memcmp(key, p->key, 32) ? -EIO : 0;
}

static int grant(const char *session, const char *from, const struct pack *p,
		 uint32_t nr, struct err *e)
{
	return port->grant(port->ctx, session, from,
			   (const uint8_t(*)[16])p->id, nr, e);
}

/* --- packs --------------------------------------------------------------- */

static void test_packs(void)
{
	struct pack a = pack_new(PARENT, "first"), b = pack_new(PARENT, "second");
	struct stat st;
	char path[PATH_MAX], full[PATH_MAX + 64];
	int before = fds_count();
	struct err e;

	ok(memcmp(a.id, b.id, 16) && memcmp(a.key, b.key, 32),
	   "packs have ids and keys of their own");
	datadir_id_path(path, data, "packs", PARENT);
	snprintf(full, sizeof(full), "%s/%02x", path, a.id[0][0]);
	for (int i = 1; i < 16; i++)
		snprintf(full + strlen(full), 3, "%02x", a.id[0][i]);
	base_strcpy(full + strlen(full), 6, ".pack");
	ok(stat(full, &st) == 0 && (st.st_mode & 0777) == 0600,
	   "a pack is a file of its session: %s", full + strlen(data));
	is_int(pack_read(PARENT, &a, "first"), 0, "which that can read");
	is_int(pack_read(CHILD, &a, "first"), -ENOENT, "and no other");
	unlink(full);
	is_int(pack_read(PARENT, &a, "first"), -ENOENT, "without file no pack");
	memset(&e, 0, sizeof(e));
	port->pack_open(port->ctx, PARENT, a.id[0], (uint8_t[32]){ 0 },
			&(int){ 0 }, &e);
	ok(strstr(e.msg, PARENT) && e.code == ERR_NOT_FOUND, "it says: %s",
	   e.msg);
	is_int(fds_count(), before, "no descriptor is left");
}

/* Parent -> child -> grandchild; each end leaves the others' in place. */
static void test_grants(void)
{
	struct pack a = pack_new(PARENT, "granted"),
		    b = pack_new(PARENT, "not granted"), own;
	int before = fds_count();
	struct err e;

	is_int(grant(CHILD, PARENT, &a, 1, &e), 0, "a fork is granted a pack");
	is_int(pack_read(CHILD, &a, "granted"), 0, "and can read it");
	is_int(pack_read(CHILD, &b, "not granted"), -ENOENT, "but no other one");
	is_int(grant(CHILD, PARENT, &a, 1, &e), 0, "a grant can be given again");
	is_int(grant(CHILD, PARENT, &a, 0, &e), 0, "or none at all");
	own = pack_new(CHILD, "child's");
	is_int(grant(GRANDCHILD, CHILD, &a, 1, &e), 0,
	       "what was granted can be granted on");
	is_int(grant(GRANDCHILD, CHILD, &own, 1, &e), 0, "and what is own");
	ok(grant(GRANDCHILD, CHILD, &b, 1, &e) == -ENOENT &&
		   strstr(e.msg, GRANDCHILD),
	   "but nothing that the giver has not: %s", e.msg);

	is_int(port->purge(port->ctx, PARENT, &e), 0, "the parent is destroyed");
	ok(!there("packs", PARENT, ""), "its packs are gone");
	is_int(pack_read(PARENT, &a, "granted"), -ENOENT, "for itself");
	is_int(pack_read(PARENT, &b, "not granted"), -ENOENT, "all of them");
	ok(pack_read(CHILD, &a, "granted") == 0 &&
		   pack_read(GRANDCHILD, &a, "granted") == 0,
	   "and not for those who have grants");
	is_int(port->purge(port->ctx, CHILD, &e), 0, "the child is destroyed");
	ok(pack_read(GRANDCHILD, &a, "granted") == 0 &&
		   pack_read(GRANDCHILD, &own, "child's") == 0,
	   "the grandchild still reads both");
	is_int(pack_read(CHILD, &a, "granted"), -ENOENT, "and the child nothing");
	is_int(port->purge(port->ctx, GRANDCHILD, &e), 0, "in the end");
	ok(!there("packs", GRANDCHILD, ""), "nothing is left");
	is_int(port->purge(port->ctx, GRANDCHILD, &e), 0, "and that again");
	is_int(fds_count(), before, "no descriptor is left");
}

/* What a sandbox asks for after its session's end makes nothing anew. */
static void test_after_the_end(void)
{
	uint8_t id[16], key[32];
	int before = fds_count(), fd;
	struct err e;

	port->purge(port->ctx, STRANGER, &e);
	is_int(port->pack_new(port->ctx, STRANGER, id, key, &fd, &e), -ENOENT,
	       "no pack without a key");
	ok(strstr(e.msg, STRANGER) && !there("packs", STRANGER, ""),
	   "and no folder: %s", e.msg);
	is_int(port->transcript(port->ctx, STRANGER, EXEC, 1, key, &fd, &e),
	       -ENOENT, "nor a transcript");
	ok(!there("transcripts", STRANGER, ""), "nor a folder for it");
	is_int(fds_count(), before, "no descriptor is left");
}

/* --- transcripts --------------------------------------------------------- */

static void test_transcripts(void)
{
	struct transcript_info info = { .tag = EXEC, .epoch = 1 };
	uint8_t key[32], again[32], other[32];
	struct transcript *t;
	int before = fds_count(), fd, fd2;
	struct err e;

	is_int(host_transcript_read(&host, CHILD, EXEC, 1, key, &fd, &e),
	       -ENOENT, "a transcript that was never made is not there");
	is_int(port->transcript(port->ctx, CHILD, EXEC, 1, key, &fd, &e), 0,
	       "it is made");
	ok(there("transcripts", CHILD, "/" EXEC ".1"), "under exec and epoch");
	ok(fcntl(fd, F_GETFL) & O_APPEND, "for appending");
	close(fd);
	is_int(port->transcript(port->ctx, CHILD, EXEC, 1, again, &fd, &e), 0,
	       "one that nobody has written to is given again");
	is_mem(again, key, 32, "under its key");
	if (transcript_create(&t, fd, again, &info, &e) < 0)
		bail("%s", e.msg);
	transcript_free(t);
	is_int(port->transcript(port->ctx, CHILD, EXEC, 1, again, &fd, &e), 0,
	       "also one that has but a header");
	if (transcript_create(&t, fd, again, &info, &e) < 0 ||
	    transcript_append(t, TRANSCRIPT_OUT, 0, "x", 1) < 0)
		bail("can't append");
	transcript_free(t);
	is_int(port->transcript(port->ctx, CHILD, EXEC, 1, again, &fd2, &e),
	       -EEXIST, "one that has a record is not");
	is_int(host_transcript_read(&host, CHILD, EXEC, 1, again, &fd, &e), 0,
	       "but can be read");
	is_mem(again, key, 32, "with the key that it was written with");
	close(fd);
	port->transcript(port->ctx, CHILD, EXEC, 2, other, &fd, &e);
	close(fd);
	ok(memcmp(other, key, 32) != 0, "another epoch has another key");
	port->transcript(port->ctx, GRANDCHILD, EXEC, 1, other, &fd, &e);
	close(fd);
	ok(memcmp(other, key, 32) != 0, "another session, too");
	is_int(port->purge(port->ctx, CHILD, &e), 0, "the session is destroyed");
	ok(!there("transcripts", CHILD, ""), "and its output with it");
	is_int(fds_count(), before, "no descriptor is left");
}

static void test_overlay(void)
{
	struct stat st;
	struct err e;
	int fd;

	is_int(port->overlay(port->ctx, CHILD, &fd, &e), 0, "an overlay");
	ok(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 0,
	   "is a file without a name");
	close(fd);
}

/* --- sockets ------------------------------------------------------------- */

static int nr_sockets;

static void socket_found(void *ctx, const char *session, uint32_t slot)
{
	nr_sockets += ctx == &nr_sockets && !strcmp(session, CHILD) &&
		      (slot == 7 || slot == 1023);
}

static int sockets(void)
{
	struct err e;

	nr_sockets = 0;
	if (port->sockets(port->ctx, socket_found, &nr_sockets, &e) < 0)
		bail("%s", e.msg);
	return nr_sockets;
}

static void test_sockets(void)
{
	int before = fds_count(), l, l2, c, a;
	struct err e;

	ok(strlen(data) > 120, "the data folder's path is long");
	is_int(port->connect(port->ctx, CHILD, 7, &c, &e), -ENOENT,
	       "nobody listens");
	is_int(port->listen(port->ctx, CHILD, 7, &l, &e), 0, "a socket is made");
	is_int(port->connect(port->ctx, CHILD, 7, &c, &e), 0, "and found");
	a = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	ok(a >= 0 && (fcntl(c, F_GETFL) & O_NONBLOCK) &&
		   send(c, "hi", 2, 0) == 2 && recv(a, (char[8]){ 0 }, 8, 0) == 2,
	   "it carries packets; our end does not block");
	is_int(port->listen(port->ctx, CHILD, 1023, &l2, &e), 0, "another slot");
	close(open(help_path("x"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	is_int(sockets(), 2, "both are listed, and nothing else");
	close(l2);
	is_int(port->connect(port->ctx, CHILD, 1023, &c, &e), -ECONNREFUSED,
	       "one whose owner is gone refuses");
	is_int(port->listen(port->ctx, CHILD, 1023, &l2, &e), 0,
	       "and can be made anew");
	port->unlisten(port->ctx, CHILD, 1023);
	is_int(sockets(), 1, "what is taken away is gone");
	port->unlisten(port->ctx, CHILD, 1023);
	close(l2);
	close(a);
	close(c);

	/* a cryo-vm that accepts nobody */
	for (int n = 0, r = 0; n < 32 && r == 0; n++) {
		r = port->connect(port->ctx, CHILD, 7, &c, &e);
		if (r == 0)
			close(c);
		else
			is_int(r, -EAGAIN,
			       "whose queue is full is not waited for");
	}
	port->unlisten(port->ctx, CHILD, 7);
	close(l);
	is_int(fds_count(), before, "no descriptor is left");
}

static void test_space(void)
{
	struct datadir_space s;
	struct err e;
	int r = port->capture_allowed(port->ctx, &e);

	if (datadir_space(data, &s, &e) < 0)
		bail("%s", e.msg);
	is_int(r, s.level == DATADIR_FINE ? 0 : -ENOSPC,
	       "captures are allowed while there is space");
	host.data = "/proc/no/such/folder";
	ok(port->capture_allowed(port->ctx, &e) < 0, "and not where none is");
	host.data = data;
}

/* A name that is as long as it may be, well over a socket address. */
static void make_data(void)
{
	static const char *const sessions[] = { PARENT, CHILD, GRANDCHILD,
						STRANGER };
	struct keys *keys;
	struct err e;

	snprintf(data, sizeof(data), "%s/%0100d", help_tmp(), 1);
	if (datadir_create(data, (uid_t)-1, (gid_t)-1, &e) < 0 ||
	    keys_open(&keys, data, NULL, false, &clock_real, &e) < 0 ||
	    keys_tenant_create(keys, TENANT, &e) < 0)
		bail("%s", e.msg);
	for (size_t i = 0; i < ARRAY_LEN(sessions); i++)
		if (keys_session_create(keys, TENANT, sessions[i], &e) < 0)
			bail("%s", e.msg);
	host_init(&host, data, keys);
}

static void test_all(void (*test)(void))
{
	make_data();
	test();
	keys_close(host.keys);
	help_rm(data);
}

int main(void)
{
	int before = fds_count();

	test_all(test_packs);
	test_all(test_grants);
	test_all(test_after_the_end);
	test_all(test_transcripts);
	test_all(test_overlay);
	test_all(test_sockets);
	test_all(test_space);
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
