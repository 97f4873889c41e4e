/*
 * Messages between cryod and the helper: what is refused, how descriptors
 * travel, and that no bytes can upset the checks.
 */
#include "core/backend/helper_client.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define ALL_VM 3u /* listen and log */

static struct helper_req vm_request(void)
{
	struct helper_req r;

	helper_req_init(&r, HELPER_SPAWN_VM, 7, 3);
	r.fds = ALL_VM;
	base_strcpy(r.vm.session, sizeof(r.vm.session), "abcdefghij0123456789");
	r.vm.memory_max = 1ull << 30;
	return r;
}

static void refused(const char *what, const struct helper_req *r, size_t len,
		    unsigned nr, int code)
{
	struct err e = { 0 };

	is_int(helper_req_check(r, len, nr, &e), code, "%s: %s", what, e.msg);
}

static void requests(void)
{
	struct helper_req good = vm_request(), r = good;
	const size_t len = sizeof(r);
	struct err e;

	is_int(helper_req_check(&r, len, 2, &e), 0, "a good request");
	refused("a byte short", &r, len - 1, 2, -EPROTO);
	r.magic++;
	refused("other magic", &r, len, 2, -EPROTO);
	r = good;
	r.version++;
	refused("other version", &r, len, 2, -EPROTO);
	r = good;
	r.size--;
	refused("other size", &r, len, 2, -EPROTO);
	r = good;
	r.op = 0;
	refused("kind 0", &r, len, 2, -EINVAL);
	r.op = HELPER_OP_END;
	refused("kind past the end", &r, len, 2, -EINVAL);
	r = good;
	r.pad = 1;
	refused("padding", &r, len, 2, -EINVAL);
	r = good;
	r.slot = HELPER_SLOTS;
	refused("slot past the end", &r, len, 2, -EINVAL);
	refused("a descriptor less than said", &good, len, 1, -EINVAL);
	refused("a descriptor more", &good, len, 3, -EINVAL);
	r = good;
	r.fds = 1;
	refused("a role less", &r, len, 1, -EINVAL);
	r = good;
	r.vm.session[3] = '/';
	refused("a session that is no id", &r, len, 2, -EINVAL);
	memset(r.vm.session, 'a', sizeof(r.vm.session));
	refused("a session without an end", &r, len, 2, -EINVAL);
	r = good;
	r.vm.memory_max = 1 << 20;
	refused("1 MiB for a slot", &r, len, 2, -EINVAL);
	r.vm.memory_max = UINT64_MAX;
	refused("all memory there is", &r, len, 2, -EINVAL);
	helper_req_init(&r, HELPER_LIST, 1, 0);
	is_int(helper_req_check(&r, len, 0, &e), 0, "list");
	r.slot = 1;
	refused("list with a slot", &r, len, 0, -EINVAL);
	helper_req_init(&r, HELPER_KILL, 1, HELPER_SLOTS - 1);
	is_int(helper_req_check(&r, len, 0, &e), 0, "kill of the last slot");
	helper_req_init(&r, HELPER_SPAWN_VMM, 1, 1);
	refused("a VMM of nothing", &r, len, 0, -EINVAL);
}

/* Whatever the bytes are: an answer, and good ones only if all is right. */
static void law(void)
{
	uint64_t seed = tap_seed();
	unsigned good = 0;
	bool sound = true;

	for (int i = 0; i < 20000; i++) {
		struct helper_req r = vm_request();
		size_t at = tap_rand(&seed) % sizeof(r);
		struct err e;
		int code;

		if (tap_rand(&seed) % 2)
			helper_req_init(&r,
					(enum helper_op)(1 + tap_rand(&seed) % 5),
					1, (uint32_t)(tap_rand(&seed) % 1100));
		((uint8_t *)&r)[at] ^= (uint8_t)(1 + tap_rand(&seed) % 255);
		code = helper_req_check(&r, sizeof(r),
					(unsigned)__builtin_popcount(r.fds), &e);
		good += code == 0;
		if (code == 0 &&
		    (r.op < 1 || r.op >= HELPER_OP_END ||
		     r.slot >= HELPER_SLOTS || r.magic != HELPER_MAGIC))
			sound = false;
	}
	ok(sound, "what passes has a kind and a slot");
	ok(good > 100, "some changes do not matter (%u)", good);
}

static void replies(void)
{
	struct helper_req req = vm_request();
	struct helper_rep good = { .magic = HELPER_MAGIC,
				   .version = HELPER_VERSION,
				   .op = HELPER_SPAWN_VM,
				   .size = sizeof(good),
				   .nr_fds = 1,
				   .id = 7 },
			  r = good;
	struct err e = { 0 };

	is_int(helper_rep_check(&r, sizeof(r), 1, &req, &e), 0, "good reply");
	is_int(helper_rep_check(&r, sizeof(r), 0, &req, &e), -EPROTO, "%s",
	       e.msg);
	r.id = 8;
	is_int(helper_rep_check(&r, sizeof(r), 1, &req, &e), -EPROTO, "%s",
	       e.msg);
	r = good;
	r.error = 5;
	is_int(helper_rep_check(&r, sizeof(r), 1, &req, &e), -EPROTO, "%s",
	       e.msg);
	r.error = -5;
	is_int(helper_rep_check(&r, sizeof(r), 1, &req, &e), -EPROTO,
	       "an error with a descriptor: %s", e.msg);
	r.nr_fds = 0;
	is_int(helper_rep_check(&r, sizeof(r), 0, &req, &e), 0, "an error");
	memset(r.msg, 'x', sizeof(r.msg));
	is_int(helper_rep_check(&r, sizeof(r), 0, &req, &e), -EPROTO,
	       "text without an end: %s", e.msg);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static int nr_open(void)
{
	int nr = 0;

	for (int fd = 0; fd < 256; fd++)
		nr += is_open(fd);
	return nr;
}

static void carrying(void)
{
	int s[2], p[2], got[HELPER_FDS_MAX], before;
	unsigned nr = 9;
	char text[16];
	struct stat a, b;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s) < 0 || pipe(p) < 0)
		bail("socketpair");
	is_int(helper_send(s[0], "hello", 5, p, 2), 0, "two descriptors out");
	is_int(helper_recv(s[1], text, sizeof(text), got, 2, &nr), 5, "in");
	is_int(nr, 2, "both");
	is_mem(text, "hello", 5, "and the text");
	fstat(p[1], &a);
	fstat(got[1], &b);
	is_int(b.st_ino, a.st_ino, "the second is the second");
	is_int(fcntl(got[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC, "close-on-exec");
	close(got[0]);
	close(got[1]);
	before = nr_open();
	helper_send(s[0], "hello", 5, p, 2);
	is_int(helper_recv(s[1], text, sizeof(text), got, 1, &nr), -EPROTO,
	       "more descriptors than wanted");
	is_int(nr_open(), before, "none is kept");
	helper_send(s[0], "hello", 5, p, 2);
	is_int(helper_recv(s[1], text, 4, got, 2, &nr), -EPROTO,
	       "a message that is too long");
	is_int(nr_open(), before, "none is kept");
	close(s[0]);
	is_int(helper_recv(s[1], text, sizeof(text), got, 2, &nr), 0, "the end");
	is_int(helper_send(s[1], "x", 1, NULL, 0), -EPIPE, "writing after it");
	close(s[1]);
	close(p[0]);
	close(p[1]);
}

/* A helper of three answers: right, an error, another id; then the end. */
static void *play_helper(void *arg)
{
	int sock = *(int *)arg, fds[HELPER_FDS_MAX];

	for (int i = 0; i < 3; i++) {
		struct helper_req req;
		struct helper_rep rep = { .magic = HELPER_MAGIC,
					  .version = HELPER_VERSION,
					  .size = sizeof(rep) };
		unsigned nr;

		if (helper_recv(sock, &req, sizeof(req), fds, HELPER_FDS_MAX,
				&nr) != (ssize_t)sizeof(req))
			break;
		rep.op = req.op;
		rep.id = req.id + (i == 2);
		rep.slots[1] = 2;
		if (i == 1) {
			rep.error = -EBUSY;
			rep.code = ERR_CONFLICT;
			base_strcpy(rep.msg, sizeof(rep.msg),
				    "slot 4 has a live process");
		}
		helper_send(sock, &rep, sizeof(rep), NULL, 0);
	}
	return NULL;
}

static void client(void)
{
	uint64_t slots[HELPER_SLOTS / 64] = { 0 };
	struct helper_client *c;
	struct err e = { 0 };
	pthread_t t;
	int s[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s) < 0 ||
	    pthread_create(&t, NULL, play_helper, &s[1]) != 0)
		bail("socketpair");
	c = helper_client_new(s[0]);
	is_int(helper_client_list(c, slots, &e), 0, "list (%s)", e.msg);
	is_int(slots[1], 2, "slot 65 is alive");
	is_int(helper_client_kill(c, 4, &e), -EBUSY, "an error's number");
	is_str(e.msg, "slot 4 has a live process", "and text");
	is_int(e.code, ERR_CONFLICT, "and code");
	is_int(helper_client_kill(c, 4, &e), -EPROTO, "another id: %s", e.msg);
	is_int(helper_client_list(c, slots, &e), -ENOTCONN,
	       "then nothing is believed: %s", e.msg);
	pthread_join(t, NULL);
	helper_client_free(c);
	close(s[1]);
}

int main(void)
{
	requests();
	law();
	replies();
	carrying();
	client();
	return tap_done();
}
