/*
 * Dirty tracking against a real other process: a child maps a sealed memfd
 * privately, as QEMU does, and writes pages at our word; we hold only
 * descriptors of it. What it wrote is known to the test, and every change is
 * found by comparing memory. Both methods obey the same laws.
 */
#include "snapshotter/dirty.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGES 1000u /* not a multiple of 64 */
#define LEN ((size_t)PAGES * CRYO_PAGE)
#define WORDS ((PAGES + 63) / 64)

/* Orders to the child: write `value` at the start of `page`, or end. */
enum what { WRITE, READ, DROP, CLOSE_UFFD };
struct order {
	enum what what;
	uint32_t page, value;
};

struct rig {
	pid_t pid;
	int sock, ram, uffd, uffd_in_child;
	struct guestmem *mem;
	struct dirty *d;
	uint8_t *base; /* what `differs` compares with */
	uint8_t *now, *was; /* copies of the child's memory */
	enum dirty_method method;
};

static int send_fd(int sock, int fd)
{
	union {
		struct cmsghdr h;
		char b[CMSG_SPACE(sizeof(int))];
	} c = { .b = { 0 } };
	struct iovec iov = { .iov_base = &fd, .iov_len = sizeof(fd) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = c.b,
			    .msg_controllen = sizeof(c.b) };

	c.h.cmsg_level = SOL_SOCKET;
	c.h.cmsg_type = SCM_RIGHTS;
	c.h.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&c.h), &fd, sizeof(fd));
	if (fd < 0)
		m.msg_controllen = 0;
	return (int)sendmsg(sock, &m, 0);
}

static int take_fd(int sock, int *ret_number)
{
	union {
		struct cmsghdr h;
		char b[CMSG_SPACE(sizeof(int))];
	} c;
	struct iovec iov = { .iov_base = ret_number, .iov_len = sizeof(int) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = c.b,
			    .msg_controllen = sizeof(c.b) };
	int fd = -1;

	if (recvmsg(sock, &m, 0) > 0 && m.msg_controllen)
		memcpy(&fd, CMSG_DATA(&c.h), sizeof(fd));
	return fd;
}

static int make_uffd(void)
{
	int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), fd;

	if (dev < 0)
		return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(dev);
	return fd;
}

static void obey(const struct order *o, uint8_t *ram, int uffd)
{
	volatile uint32_t *at =
		(volatile uint32_t *)(void *)(ram + (size_t)o->page * CRYO_PAGE);
	uint32_t x;

	if (o->what == WRITE)
		*at = o->value;
	else if (o->what == READ)
		x = *at, (void)x;
	else if (o->what == DROP) /* gives the private copy back */
		madvise(ram + (size_t)o->page * CRYO_PAGE, CRYO_PAGE,
			MADV_DONTNEED);
	else
		close(uffd);
}

_Noreturn static void child(int sock, int ram_fd)
{
	uint8_t *ram =
		mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, ram_fd, 0);
	int uffd = make_uffd();
	struct order o;

	if (ram == MAP_FAILED || send_fd(sock, uffd) < 0)
		_exit(1);
	while (recv(sock, &o, sizeof(o), 0) == (ssize_t)sizeof(o)) {
		obey(&o, ram, uffd);
		if (send(sock, "", 1, 0) != 1)
			break;
	}
	_exit(0);
}

static void order(struct rig *r, enum what what, uint32_t page, uint32_t value)
{
	struct order o = { what, page, value };
	char c;

	if (send(r->sock, &o, sizeof(o), 0) < 0 || recv(r->sock, &c, 1, 0) != 1)
		bail("the child does not answer");
}

static int open_proc(pid_t pid, const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static int differs(void *ctx, uint32_t page, const void *bytes)
{
	struct rig *r = ctx;

	return memcmp(r->base + (size_t)page * CRYO_PAGE, bytes, CRYO_PAGE) != 0;
}

/* A sealed image: pages 0 to 499 have bytes, the others are holes. */
static int image(uint8_t *bytes)
{
	int fd = memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	memset(bytes, 0, LEN);
	for (uint32_t p = 0; p < 500; p++)
		memset(bytes + (size_t)p * CRYO_PAGE, (int)(p % 250) + 1,
		       CRYO_PAGE);
	if (ftruncate(fd, (off_t)LEN) < 0 ||
	    base_pwrite_all(fd, bytes, (size_t)500 * CRYO_PAGE, 0) < 0 ||
	    fcntl(fd, F_ADD_SEALS,
		  F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		bail("image: %s", strerror(errno));
	return fd;
}

static bool rig_up(struct rig *r, enum dirty_method method)
{
	struct dirty_conf c = { .method = method, .differs = differs, .ctx = r };
	struct err e = { 0 };
	int s[2], maps;

	*r = (struct rig){ .method = method };
	r->base = malloc(LEN);
	r->now = malloc(LEN);
	r->was = malloc(LEN);
	r->ram = image(r->base);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) < 0)
		bail("socketpair");
	fflush(stdout);
	r->pid = fork();
	if (r->pid == 0) {
		close(s[0]); /* or it would not see our end */
		child(s[1], r->ram);
	}
	close(s[1]);
	r->sock = s[0];
	r->uffd = take_fd(r->sock, &r->uffd_in_child);
	maps = open_proc(r->pid, "maps");
	if (guestmem_open(&r->mem, open_proc(r->pid, "mem"), maps, r->ram, &e) < 0)
		bail("guestmem: %s", e.msg);
	close(maps);
	c.mem = r->mem;
	c.pagemap_fd = open_proc(r->pid, "pagemap");
	c.uffd = method == DIRTY_UFFD ? r->uffd : -1;
	if (method == DIRTY_COMPARE)
		base_close_p(&r->uffd);
	if ((c.uffd < 0 && method == DIRTY_UFFD) ||
	    dirty_open(&r->d, &c, &e) < 0) {
		printf("# no %s here: %s\n",
		       method == DIRTY_UFFD ? "uffd" : "compare", e.msg);
		return false;
	}
	is_int(dirty_arm(r->d, &e), 0, "armed (%s)", e.msg);
	memcpy(r->was, r->base, LEN);
	return true;
}

static void rig_down(struct rig *r)
{
	dirty_free(r->d);
	guestmem_free(r->mem);
	close(r->sock);
	close(r->ram);
	waitpid(r->pid, NULL, 0);
	free(r->base);
	free(r->now);
	free(r->was);
}

static void look(struct rig *r)
{
	struct err e;

	if (guestmem_read(r->mem, 0, PAGES, r->now, &e) < 0)
		bail("read: %s", e.msg);
}

static bool has(const uint64_t *bits, uint32_t p)
{
	return bits[p / 64] >> (p % 64) & 1;
}

static uint32_t count(const uint64_t *bits)
{
	uint32_t n = 0;

	for (size_t i = 0; i < WORDS; i++)
		n += (uint32_t)__builtin_popcountll(bits[i]);
	return n;
}

/* Changed since `was` and not in `bits`: must never be. */
static uint32_t missed(const struct rig *r, const uint64_t *bits)
{
	uint32_t n = 0;

	for (uint32_t p = 0; p < PAGES; p++)
		n += !has(bits, p) &&
		     memcmp(r->was + (size_t)p * CRYO_PAGE,
			    r->now + (size_t)p * CRYO_PAGE, CRYO_PAGE) != 0;
	return n;
}

/* The committed content is what the next comparison is with. */
static void commit(struct rig *r)
{
	look(r);
	dirty_commit(r->d);
	memcpy(r->base, r->now, LEN);
	memcpy(r->was, r->now, LEN);
}

static void basics(enum dirty_method method)
{
	static const uint32_t written[] = { 0, 1, 2, 63, 64, 499, 500, 999 };
	uint64_t bits[WORDS] = { 0 }, want[WORDS] = { 0 };
	struct err e = { 0 };
	struct rig r;
	const char *m;

	if (!rig_up(&r, method)) {
		ok(true, "skipped # SKIP this kernel has no such tracking");
		return;
	}
	m = dirty_method_name(r.d);
	is_int(dirty_words(r.d), WORDS, "%s: words of the bitmap", m);
	is_int(guestmem_pages(r.mem), PAGES, "%s: pages", m);
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 0, "%s: nothing after arming (%s)", m,
	       e.msg);
	commit(&r);
	for (uint32_t p = 0; p < PAGES; p += 7)
		order(&r, READ, p, 0);
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 0, "%s: reading is not writing", m);
	commit(&r);
	for (size_t i = 0; i < ARRAY_LEN(written); i++) {
		order(&r, WRITE, written[i], 0x12345678);
		want[written[i] / 64] |= 1ull << (written[i] % 64);
	}
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 8, "%s: eight pages", m);
	is_mem(bits, want, sizeof(bits), "%s: exactly these", m);
	is_mem(dirty_epoch_set(r.d), want, sizeof(want), "%s: in the epoch", m);
	look(&r);
	is_int(missed(&r, bits), 0, "%s: nothing was missed", m);
	is_int(get_u32(r.now + (size_t)999 * CRYO_PAGE), 0x12345678,
	       "%s: the last page's bytes", m);
	commit(&r);
	memset(bits, 0, sizeof(bits));
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 0, "%s: nothing new", m);
	commit(&r);
	order(&r, WRITE, 64, 0x9abc);
	memset(bits, 0, sizeof(bits));
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 1, "%s: the same page again", m);
	ok(has(bits, 64), "%s: is reported again", m);
	dirty_abort(r.d);
	rig_down(&r);
}

static void aborts(enum dirty_method method)
{
	uint64_t bits[WORDS] = { 0 };
	struct err e = { 0 };
	struct rig r;
	const char *m;

	if (!rig_up(&r, method))
		return;
	m = dirty_method_name(r.d);
	order(&r, WRITE, 10, 1);
	dirty_begin(r.d);
	dirty_scan(r.d, bits, &e);
	dirty_abort(r.d);
	order(&r, WRITE, 20, 1);
	memset(bits, 0, sizeof(bits));
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 2, "%s: after an abort both", m);
	ok(has(bits, 10) && has(bits, 20), "%s: the old and the new", m);
	dirty_abort(r.d);
	dirty_begin(r.d);
	dirty_abort(r.d); /* without a scan between */
	memset(bits, 0, sizeof(bits));
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 2, "%s: aborts add up", m);
	order(&r, WRITE, 30, 1);
	is_int(dirty_scan(r.d, bits, &e), method == DIRTY_UFFD ? 1 : 3,
	       "%s: a second scan of the epoch", m);
	is_int(count(dirty_epoch_set(r.d)), 3, "%s: the epoch has all", m);
	look(&r);
	commit(&r);
	memset(bits, 0, sizeof(bits));
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 0, "%s: committed is forgotten", m);
	dirty_commit(r.d);
	dirty_forget(r.d);
	ok(dirty_is_unknown(r.d), "%s: a set that is not to be trusted", m);
	memset(bits, 0, sizeof(bits));
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), PAGES, "%s: is every page", m);
	is_int(count(bits), PAGES, "%s: and no more", m);
	dirty_abort(r.d);
	ok(dirty_is_unknown(r.d), "%s: still after an abort", m);
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), PAGES, "%s: so again", m);
	order(&r, WRITE, 40, 1);
	ok(dirty_scan(r.d, bits, &e) >= 1, "%s: a write meanwhile", m);
	look(&r);
	commit(&r);
	ok(!dirty_is_unknown(r.d), "%s: a commit ends it", m);
	rig_down(&r);
}

/*
 * Laws, by random steps: a page that changed since the last commit is in
 * what the epochs since then have reported, whatever was aborted.
 */
static void law(enum dirty_method method)
{
	uint64_t seed = tap_seed(), bits[WORDS];
	uint32_t lost = 0, steps = 300, scans = 0, extra = 0;
	uint8_t *written = calloc(1, PAGES);
	struct err e = { 0 };
	struct rig r;

	if (!rig_up(&r, method))
		return;
	for (uint32_t i = 0; i < steps; i++) {
		uint32_t nr = (uint32_t)(tap_rand(&seed) % 40);
		bool keep = tap_rand(&seed) % 3;

		for (uint32_t k = 0; k < nr; k++) {
			uint32_t p = (uint32_t)(tap_rand(&seed) % PAGES);

			written[p] = 1;
			/* userfaultfd does not see discards; QEMU does none */
			order(&r,
			      method == DIRTY_UFFD || tap_rand(&seed) % 8 ? WRITE
									  : DROP,
			      p, (uint32_t)tap_rand(&seed));
		}
		memset(bits, 0, sizeof(bits));
		dirty_begin(r.d);
		for (uint64_t k = 0; k <= tap_rand(&seed) % 2; k++, scans++)
			if (dirty_scan(r.d, bits, &e) < 0)
				bail("scan: %s", e.msg);
		look(&r);
		lost += missed(&r, bits);
		for (uint32_t p = 0; p < PAGES; p++)
			extra += has(bits, p) && !written[p];
		if (!keep) {
			dirty_abort(r.d);
			continue;
		}
		commit(&r);
		memset(written, 0, PAGES);
	}
	is_int(lost, 0, "%s: no change was ever missed (%u scans)",
	       dirty_method_name(r.d), scans);
	is_int(extra, 0, "%s: nothing that was not touched was reported",
	       dirty_method_name(r.d));
	free(written);
	rig_down(&r);
}

/* A registration that is gone is an error, not "nothing was written". */
static void gone(void)
{
	uint64_t bits[WORDS] = { 0 };
	struct err e = { 0 };
	struct rig r;

	if (!rig_up(&r, DIRTY_UFFD))
		return;
	order(&r, CLOSE_UFFD, 0, 0);
	order(&r, WRITE, 5, 1);
	dirty_begin(r.d);
	is_int(dirty_scan(r.d, bits, &e), 1, "our copy alone keeps it");
	dirty_commit(r.d);
	close(r.uffd); /* the tracker's own, behind its back */
	open("/dev/null", O_RDONLY | O_CLOEXEC);
	order(&r, WRITE, 6, 1);
	dirty_begin(r.d);
	ok(dirty_scan(r.d, bits, &e) < 0, "without any: %s", e.msg);
	ok(dirty_is_unknown(r.d), "and the set is unknown");
	dirty_abort(r.d);
	rig_down(&r);
}

static void dead(enum dirty_method method)
{
	uint64_t bits[WORDS] = { 0 };
	struct err e = { 0 };
	struct rig r;

	if (!rig_up(&r, method))
		return;
	order(&r, WRITE, 5, 1);
	kill(r.pid, SIGKILL);
	waitpid(r.pid, NULL, 0);
	dirty_begin(r.d);
	ok(dirty_scan(r.d, bits, &e) < 0, "a dead VMM: %s", e.msg);
	dirty_abort(r.d);
	ok(guestmem_read(r.mem, 0, 1, r.now, &e) < 0, "its memory: %s", e.msg);
	rig_down(&r);
}

static void gather(void)
{
	uint64_t bits[WORDS] = { 0 };
	uint32_t pages[100], cursor = 0, seen = 0;
	static const uint32_t set[] = { 0, 62, 63, 64, 65, 499, 998, 999 };
	uint8_t *bytes = malloc((size_t)100 * CRYO_PAGE);
	bool right = true;
	struct err e = { 0 };
	struct rig r;
	int n;

	rig_up(&r, DIRTY_COMPARE);
	for (size_t i = 0; i < ARRAY_LEN(set); i++) {
		bits[set[i] / 64] |= 1ull << (set[i] % 64);
		order(&r, WRITE, set[i], set[i] + 7);
	}
	while ((n = guestmem_gather(r.mem, bits, &cursor, 3, pages, bytes, &e)) >
	       0)
		for (int i = 0; i < n; i++, seen++)
			right = right && pages[i] == set[seen] &&
				get_u32(bytes + (size_t)i * CRYO_PAGE) ==
					set[seen] + 7;
	is_int(n, 0, "gather comes to an end (%s)", e.msg);
	is_int(seen, 8, "of all eight");
	ok(right, "in order, with their bytes");
	is_int(cursor, PAGES, "and stays there");
	free(bytes);
	rig_down(&r);
}

static void wrong_image(void)
{
	uint8_t *bytes = malloc(LEN);
	struct guestmem *g = NULL;
	struct err e = { 0 };
	struct rig r;
	int other, maps, odd = memfd_create("odd", MFD_CLOEXEC);

	rig_up(&r, DIRTY_COMPARE);
	other = image(bytes);
	maps = open_proc(r.pid, "maps");
	is_int(guestmem_open(&g, -1, maps, other, &e), -ENOENT,
	       "an image that it does not map: %s", e.msg);
	is_int(ftruncate(odd, 100), 0, "an image of 100 bytes");
	is_int(guestmem_open(&g, -1, maps, odd, &e), -EINVAL, "is none: %s",
	       e.msg);
	close(maps);
	close(other);
	close(odd);
	free(bytes);
	rig_down(&r);
}

int main(void)
{
	static const enum dirty_method both[] = { DIRTY_UFFD, DIRTY_COMPARE };

	if (geteuid() != 0) {
		printf("1..0 # SKIP /proc/PID/mem of another needs root\n");
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		basics(both[i]);
		aborts(both[i]);
		law(both[i]);
		dead(both[i]);
	}
	gone();
	gather();
	wrong_image();
	return tap_done();
}
