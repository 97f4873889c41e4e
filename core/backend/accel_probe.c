/*
 * accel_probe: decides between KVM and TCG, once per boot of the host.
 *
 * The order of the questions: what does the operator wish; does /dev/kvm
 * answer at all; do we remember an answer for this boot, kernel and VMM
 * build; else boot and see. The answer is one line in a small file, written
 * beside and renamed, keyed by all that could change it. What is in the file
 * is believed only if it has exactly the form that we write.
 *
 * A crash in a probe leaves no file: the next start probes again.
 */
#include "core/backend/accel_probe.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "core/buf.h"
#include "core/clock.h"

#define CACHE "accel-probe"
#define CACHE_NEW ".accel-probe.new"
#define LINE_MAX_LEN 512
#define ROUNDS 3
#define ROUND_NS (20 * NS_PER_MS)

static void put_hex(struct buf *b, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf_printf(b, "%02x", p[i]);
}

/* "v1 BOOT KERNEL VMM " : what the answer that follows is about */
static void cache_key(struct buf *b, const struct accel_probe *p)
{
	buf_printf(b, "v1 %.64s ", p->boot_id);
	put_hex(b, p->kernel_digest, 32);
	buf_put_u8(b, ' ');
	put_hex(b, p->vmm_digest, 32);
	buf_put_u8(b, ' ');
}

/* True if an answer for this key was there: "kvm WHY\n" or "tcg WHY\n". */
static bool cache_read(const struct accel_probe *p, struct accel_result *ret)
{
	SCOPED(buf_done) struct buf key = { 0 };
	char line[LINE_MAX_LEN] = "", *answer;
	SCOPED_FD int fd = -1;
	ssize_t n = -1;

	if (p->cache_dir >= 0)
		fd = openat(p->cache_dir, CACHE,
			    O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		n = read(fd, line, sizeof(line) - 1);
	cache_key(&key, p);
	if (n <= (ssize_t)key.len + 4 || memcmp(line, key.p, key.len) != 0 ||
	    line[n - 1] != '\n')
		return false;
	line[n - 1] = 0;
	answer = line + key.len;
	if (memcmp(answer, "kvm ", 4) != 0 && memcmp(answer, "tcg ", 4) != 0)
		return false;
	ret->accel = answer[0] == 'k' ? VMM_ACCEL_KVM : VMM_ACCEL_TCG;
	ret->remembered = true;
	base_strcpy(ret->why, sizeof(ret->why), answer + 4);
	return true;
}

/* Best effort: without the file the next start only probes again. */
static void cache_write(const struct accel_probe *p,
			const struct accel_result *res)
{
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED_FD int fd = -1;

	if (p->cache_dir < 0)
		return;
	cache_key(&b, p);
	buf_printf(&b, "%s %.200s\n", vmm_accel_name(res->accel), res->why);
	fd = openat(p->cache_dir, CACHE_NEW,
		    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0 && base_write_all(fd, b.p, b.len) == 0 && fsync(fd) == 0)
		renameat(p->cache_dir, CACHE_NEW, p->cache_dir, CACHE);
}

static void probe_boot(const struct accel_probe *p, struct accel_result *ret)
{
	int64_t t0 = clock_mono(&clock_real), ms;
	struct err why = { 0 };
	int r = p->boot(p->ctx, ACCEL_PROBE_DEADLINE_MS, &why);

	ms = (clock_mono(&clock_real) - t0) / NS_PER_MS;
	ret->accel = r == 0 ? VMM_ACCEL_KVM : VMM_ACCEL_TCG;
	if (r == 0)
		snprintf(ret->why, sizeof(ret->why),
			 "a Linux guest booted under KVM in %lld ms",
			 (long long)ms);
	else
		snprintf(ret->why, sizeof(ret->why),
			 "/dev/kvm opens but a Linux guest did not come up "
			 "under it: %.120s",
			 why.msg);
	for (char *s = ret->why; *s; s++) /* it becomes a line of a file */
		if (*s < ' ' || *s > '~')
			*s = '?';
}

int accel_probe(const struct accel_probe *p, struct accel_result *ret,
		struct err *e)
{
	*ret = (struct accel_result){ .accel = VMM_ACCEL_TCG };
	if (p->wish == ACCEL_WANT_TCG) {
		base_strcpy(ret->why, sizeof(ret->why), "TCG was asked for");
		return 0;
	}
	if (!p->has_kvm) {
		base_strcpy(ret->why, sizeof(ret->why),
			    "no usable /dev/kvm on this host");
	} else if (!cache_read(p, ret)) {
		probe_boot(p, ret);
		cache_write(p, ret);
	}
	if (p->wish == ACCEL_WANT_KVM && ret->accel != VMM_ACCEL_KVM)
		return err_set(e, -ENODEV, ERR_INVALID,
			       "KVM was asked for: %.150s; start without it "
			       "to use TCG",
			       ret->why);
	return 0;
}

/* --- the time stamp counter ----------------------------------------------- */

#ifdef __x86_64__
static inline uint64_t ticks(void)
{
	return __builtin_ia32_rdtsc();
}
#else
#error "which counter does this architecture's guest clock run on?"
#endif

/* One reading of both clocks, the tightest of a few tries. */
static void read_both(uint64_t *ret_ticks, int64_t *ret_ns)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 8; i++) {
		uint64_t a = ticks(), b;
		struct timespec t;

		clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		b = ticks();
		if (b - a >= best)
			continue;
		best = b - a;
		*ret_ticks = a + (b - a) / 2;
		*ret_ns = t.tv_sec * NS_PER_S + t.tv_nsec;
	}
}

int accel_tsc_khz(uint32_t *ret_khz, struct err *e)
{
	const struct timespec nap = { .tv_nsec = ROUND_NS };
	uint64_t khz[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t t0 = 0, t1 = 0;
		int64_t n0 = 0, n1 = 0;

		read_both(&t0, &n0);
		nanosleep(&nap, NULL);
		read_both(&t1, &n1);
		khz[i] = (t1 - t0) * 1000000u / (uint64_t)(n1 - n0);
	}
	/* the middle one: a pause of this thread spoils one round */
	for (int i = 0; i < ROUNDS; i++)
		for (int j = i + 1; j < ROUNDS; j++)
			if (khz[j] < khz[i]) {
				uint64_t x = khz[i];

				khz[i] = khz[j];
				khz[j] = x;
			}
	if (khz[ROUNDS / 2] < 100000 || khz[ROUNDS / 2] > 20000000)
		return err_set(e, -ERANGE, ERR_INTERNAL,
			       "the time stamp counter runs at %llu kHz: not "
			       "a clock for guests",
			       (unsigned long long)khz[ROUNDS / 2]);
	*ret_khz = (uint32_t)khz[ROUNDS / 2];
	return 0;
}
