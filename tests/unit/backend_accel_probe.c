/*
 * KVM or TCG: each way to an answer, with the boot played by the test.
 */
#include "core/backend/accel_probe.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

static int boots, boot_result;

static int boot(void *ctx, int timeout_ms, struct err *e)
{
	(void)ctx;
	boots++;
	is_int(timeout_ms, ACCEL_PROBE_DEADLINE_MS, "the boot's deadline");
	if (boot_result)
		return err_set(e, boot_result, ERR_TIMEOUT,
			       "the agent was silent\n");
	return 0;
}

static struct accel_probe probe(int dir)
{
	static const uint8_t kernel[32] = { 1 }, vmm[32] = { 2 };

	return (struct accel_probe){ .has_kvm = true,
				     .boot = boot,
				     .cache_dir = dir,
				     .boot_id = "0b-1d",
				     .kernel_digest = kernel,
				     .vmm_digest = vmm };
}

static enum vmm_accel ask(const struct accel_probe *p, int want_boots,
			  const char *what)
{
	struct accel_result res;
	struct err e = { 0 };
	int before = boots;

	is_int(accel_probe(p, &res, &e), 0, "%s: answered (%s)", what, e.msg);
	is_int(boots - before, want_boots, "%s: boots", what);
	is_int(res.remembered, p->has_kvm && p->wish == ACCEL_AUTO && !want_boots,
	       "%s: remembered", what);
	ok(res.why[0] && !strchr(res.why, '\n'), "%s: %s", what, res.why);
	return res.accel;
}

static void spoil(int dir, const char *text)
{
	int fd = openat(dir, "accel-probe", O_WRONLY | O_TRUNC);

	if (fd < 0 || base_write_all(fd, text, strlen(text)) < 0)
		bail("cache");
	close(fd);
}

static void decisions(int dir)
{
	static const uint8_t other[32] = { 9 };
	struct accel_probe p = probe(dir);
	struct accel_result res;
	struct err e = { 0 };

	is_int(ask(&p, 1, "first time"), VMM_ACCEL_KVM, "Linux boots: KVM");
	is_int(ask(&p, 0, "second time"), VMM_ACCEL_KVM, "KVM still");
	boot_result = -ETIMEDOUT;
	p.boot_id = "0b-1e";
	is_int(ask(&p, 1, "another boot of the host"), VMM_ACCEL_TCG, "TCG");
	is_int(ask(&p, 0, "and again"), VMM_ACCEL_TCG, "TCG still");
	boot_result = 0;
	p.kernel_digest = other;
	is_int(ask(&p, 1, "another kernel"), VMM_ACCEL_KVM, "KVM");
	p.vmm_digest = other;
	is_int(ask(&p, 1, "another VMM build"), VMM_ACCEL_KVM, "KVM");
	spoil(dir, "v1 nonsense\n");
	is_int(ask(&p, 1, "a spoilt memory"), VMM_ACCEL_KVM, "KVM");
	p.wish = ACCEL_WANT_TCG;
	is_int(ask(&p, 0, "TCG wanted"), VMM_ACCEL_TCG, "TCG");
	p.wish = ACCEL_AUTO;
	p.has_kvm = false;
	is_int(ask(&p, 0, "no /dev/kvm"), VMM_ACCEL_TCG, "TCG");
	p.wish = ACCEL_WANT_KVM;
	is_int(accel_probe(&p, &res, &e), -ENODEV, "KVM wanted: %s", e.msg);
	p = probe(-1);
	is_int(ask(&p, 1, "no folder to remember in"), VMM_ACCEL_KVM, "KVM");
}

/* The rate against another clock than the one it is measured with. */
static void rate(void)
{
	const struct timespec nap = { .tv_nsec = 200000000 };
	struct timespec a, b;
	struct err e = { 0 };
	uint64_t t0, t1;
	double khz;
	uint32_t r = 0;

	is_int(accel_tsc_khz(&r, &e), 0, "the counter's rate (%s)", e.msg);
	clock_gettime(CLOCK_MONOTONIC, &a);
	t0 = __builtin_ia32_rdtsc();
	nanosleep(&nap, NULL);
	t1 = __builtin_ia32_rdtsc();
	clock_gettime(CLOCK_MONOTONIC, &b);
	khz = (double)(t1 - t0) / ((double)(b.tv_sec - a.tv_sec) * 1e3 +
				   (double)(b.tv_nsec - a.tv_nsec) / 1e6);
	ok((double)r > khz * 0.99 && (double)r < khz * 1.01,
	   "%u kHz is within 1 %% of %.0f", r, khz);
}

int main(void)
{
	char dir[] = "/tmp/cryo-accel-XXXXXX";
	int fd;

	if (!mkdtemp(dir))
		bail("mkdtemp");
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	decisions(fd);
	rate();
	unlinkat(fd, "accel-probe", 0);
	close(fd);
	is_int(rmdir(dir), 0, "only that one file was made");
	return tap_done();
}
