/*
 * hold: one thread per CPU, pinned to it, at the lowest real-time priority.
 * They sleep on a futex; while a hold lasts they spin. User processes have
 * normal priority, so they get no CPU; interrupts and the main thread (a
 * higher real-time priority) do.
 *
 * The state is one word: the time until which to spin (0: sleep), read by
 * all, written by the main thread alone. A spinner leaves by itself when the
 * time has passed, so a host that dies can't stop the guest. CLOCK_MONOTONIC
 * stands still while the machine is stopped: a hold survives a snapshot.
 * The kernel's own guard against real-time hogs takes effect at 950 ms in a
 * second; holds are at most 200 ms.
 */
#include "tools/agent/hold.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>

#define HOLD_PRIORITY 10

struct hold {
	_Atomic int64_t until;
	_Atomic uint32_t round; /* futex: grows with each hold_begin() */
	_Atomic uint32_t spinning;
	uint32_t nr_cpus;
	int event;
};

struct spinner {
	struct hold *h;
	int cpu;
};

static int64_t hold_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static bool spinner_setup(int cpu)
{
	const struct sched_param p = { .sched_priority = HOLD_PRIORITY };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	return !sched_setaffinity(0, sizeof(set), &set) &&
	       !sched_setscheduler(0, SCHED_FIFO, &p);
}

static void spinner_tell(struct hold *h)
{
	const uint64_t one = 1;

	if (write(h->event, &one, sizeof(one)) < 0)
		NEVER("an eventfd takes a 1");
}

static void *spinner_run(void *arg)
{
	struct spinner *s = arg;
	struct hold *h = s->h;
	uint32_t seen = 0;

	if (!spinner_setup(s->cpu))
		return NULL; /* hold_reached() will never be true */
	for (;;) {
		uint32_t round = atomic_load(&h->round);

		if (round == seen) {
			syscall(SYS_futex, &h->round, FUTEX_WAIT_PRIVATE, seen,
				NULL, NULL, 0);
			continue;
		}
		seen = round;
		if (atomic_fetch_add(&h->spinning, 1) + 1 == h->nr_cpus)
			spinner_tell(h);
		while (hold_now() < atomic_load(&h->until))
			__builtin_ia32_pause();
		atomic_fetch_sub(&h->spinning, 1);
	}
	return NULL;
}

struct hold *hold_new(uint32_t nr_cpus)
{
	struct hold *h = base_alloc(sizeof(*h));
	pthread_attr_t attr;

	h->nr_cpus = nr_cpus;
	h->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->event < 0)
		base_panic("start", "hold", __FILE__, __LINE__);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64u << 10);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (uint32_t i = 0; i < nr_cpus; i++) {
		struct spinner *s = base_alloc(sizeof(*s));
		pthread_t t;

		*s = (struct spinner){ h, (int)i };
		if (pthread_create(&t, &attr, spinner_run, s))
			free(s); /* hold_reached() will never be true */
	}
	pthread_attr_destroy(&attr);
	return h;
}

void hold_begin(struct hold *h, int64_t until_ns)
{
	if (atomic_exchange(&h->until, until_ns) > hold_now())
		return; /* all are awake, or about to look */
	atomic_fetch_add(&h->round, 1);
	syscall(SYS_futex, &h->round, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void hold_end(struct hold *h)
{
	atomic_store(&h->until, 0);
}

void hold_drain(struct hold *h)
{
	uint64_t n;

	if (read(h->event, &n, sizeof(n)) < 0)
		POST(errno == EAGAIN);
}

bool hold_reached(struct hold *h)
{
	return atomic_load(&h->spinning) == h->nr_cpus;
}

int hold_fd(const struct hold *h)
{
	return h->event;
}

bool hold_active(struct hold *h)
{
	return atomic_load(&h->until) > hold_now();
}
