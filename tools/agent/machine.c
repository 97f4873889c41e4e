/*
 * machine: what only process 1 of a virtual machine may do: set its clock,
 * reseed its generator, give it a new identity, hold still for a snapshot.
 *
 * Elsewhere (the agent run by a test on a plain host) these requests are
 * refused: they would change that host.
 *
 * Quiescing: an optional sync, on a worker, is waited for until its deadline;
 * an optional hold is waited for for HOLD_WAIT; then QUIESCED goes out as the
 * last frame, and the channel is silent until UNQUIESCE, RESET or QUIET_MAX.
 * RESET ends the silence but not the hold: the orders behind it in the
 * channel come first, and UNQUIESCE ends those.
 */
#include "tools/agent/agent.h"

#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <time.h>

#define NS_PER_S 1000000000ll
#define STEP_NS (500 * NS_PER_MS)
#define QUIET_MAX (10 * NS_PER_S)
#define HOLD_WAIT (20 * NS_PER_MS)

static bool refused(struct agent *a, const struct agent_msg *m)
{
	if (a->machine)
		return false;
	channel_fail(a, m->id, EPERM,
		     "%s: this agent isn't process 1 of a virtual machine",
		     agent_type_name(m->type));
	return true;
}

/* --- clock ------------------------------------------------------------------- */

void machine_settime(struct agent *a, const struct agent_msg *m)
{
	struct agent_msg d = { .type = AGENT_SETTIME_DONE, .id = m->id };
	int64_t want = (int64_t)m->settime.wall_ns, jump;
	struct timespec t;
	struct timeval slew;
	int r;

	if (refused(a, m))
		return;
	clock_gettime(CLOCK_REALTIME, &t);
	jump = want - (t.tv_sec * NS_PER_S + t.tv_nsec);
	if (m->settime.flags & AGENT_TIME_STEP || jump >= STEP_NS ||
	    jump <= -STEP_NS) {
		t.tv_sec = want / NS_PER_S;
		t.tv_nsec = want % NS_PER_S;
		slew = (struct timeval){ 0 };
		adjtime(&slew, NULL); /* what is left of an older slew */
		r = clock_settime(CLOCK_REALTIME, &t);
		d.settime_done.stepped = 1;
	} else {
		slew.tv_sec = jump < 0 ? -1 : 0;
		slew.tv_usec = (jump - slew.tv_sec * NS_PER_S) / 1000;
		r = adjtime(&slew, NULL);
	}
	if (r) {
		channel_result(a, m->id, d.type, -errno, "set the clock");
		return;
	}
	d.settime_done.jump_ns = jump;
	channel_send(a, &d);
}

/* --- random numbers ----------------------------------------------------------- */

/* random(4): credited entropy, then a generator made of it at once */
static int reseed(const struct agent_bytes *seed)
{
	/* a header with the bytes behind it, as the kernel wants them */
	_Alignas(struct rand_pool_info)
		uint8_t pool[sizeof(struct rand_pool_info) + AGENT_SEED_MAX] = { 0 };
	struct rand_pool_info *info = (void *)pool;
	SCOPED_FD int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	int r = 0;

	if (fd < 0)
		return -errno;
	info->entropy_count = (int)seed->len * 8;
	info->buf_size = (int)seed->len;
	memcpy(pool + sizeof(*info), seed->p, seed->len);
	if (ioctl(fd, RNDADDENTROPY, pool) || ioctl(fd, RNDRESEEDCRNG))
		r = -errno;
	base_wipe(pool, sizeof(pool));
	return r;
}

void machine_reseed(struct agent *a, const struct agent_msg *m)
{
	int r;

	if (refused(a, m))
		return;
	r = reseed(&m->reseed.seed);
	if (r)
		channel_result(a, m->id, AGENT_RESEED_DONE, r,
			       "reseed the kernel's generator");
	else
		channel_send(
			a, &(struct agent_msg){
				   .type = AGENT_RESEED_DONE,
				   .id = m->id,
				   .reseed_done = { m->reseed.seed.len * 8 } });
}

/* --- identity ------------------------------------------------------------------ */

/*
 * Rewrites a file of /run/cryo in place, since some are mounted over files of
 * the root disk; never empty in between. Few system calls: on a machine just
 * restored each runs through code that nobody has run yet.
 */
static int put_file(const char *path, const char *text)
{
	SCOPED_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	size_t len = strlen(text);

	if (fd < 0)
		return -errno;
	if (pwrite(fd, text, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len))
		return -EIO;
	return 0;
}

static bool put_generation(const struct agent_generation *g)
{
	char text[AGENT_NAME_MAX + 128];

	snprintf(text, sizeof(text), "generation=%llu\nsession=%s\nfork=%d\n",
		 (unsigned long long)g->number, g->session,
		 (g->flags & AGENT_GENERATION_FORK) != 0);
	return !put_file(RUN_DIR "/generation", text);
}

static bool put_line(const char *path, const char *line)
{
	char text[AGENT_NAME_MAX + 2];

	snprintf(text, sizeof(text), "%s\n", line);
	return !put_file(path, text);
}

static int identity(const struct agent_generation *g, uint32_t *done)
{
	size_t len = strlen(g->hostname);

	if (len) {
		if (sethostname(g->hostname, len))
			return -errno;
		put_line(RUN_DIR "/hostname", g->hostname);
		*done |= AGENT_DONE_HOSTNAME;
	}
	if (*g->machine_id && put_line(RUN_DIR "/machine-id", g->machine_id))
		*done |= AGENT_DONE_MACHINE_ID;
	return 0;
}

/* Hooks are found and started by a worker: user processes may go on. */
static bool start_hooks(struct agent *a, uint64_t id)
{
	struct job *j = job_new(AGENT_GENERATION, id);

	if (!worker_submit(a->files, j))
		return true;
	job_free(j);
	return false;
}

void machine_generation(struct agent *a, const struct agent_msg *m)
{
	const struct agent_generation *g = &m->generation;
	struct agent_msg d = { .type = AGENT_GENERATION_DONE, .id = m->id };
	struct agent_generation_done *r = &d.generation_done;
	bool again = g->number == a->generation;
	int e = 0;

	if (refused(a, m))
		return;
	a->generation = g->number;
	if (put_generation(g))
		r->done |= AGENT_DONE_FILE;
	if (g->flags & AGENT_GENERATION_FORK)
		e = identity(g, &r->done);
	if (e) {
		channel_result(a, m->id, d.type, e, "set the hostname");
		return;
	}
	/* asked twice, the files are the same, but hooks run once */
	if (g->flags & AGENT_GENERATION_FORK && (again || start_hooks(a, m->id)))
		r->done |= AGENT_DONE_HOOKS;
	channel_send(a, &d);
}

/* --- quiesce ------------------------------------------------------------------- */

static void quiesced(struct agent *a)
{
	struct agent_quieting *q = &a->quieting;

	q->pending = false;
	channel_send(a, &(struct agent_msg){ .type = AGENT_QUIESCED,
					     .id = q->id,
					     .quiesced = { q->got } });
	a->ctl_quiet = a->ctl.len;
	a->quiet_until = agent_now() + QUIET_MAX;
}

/* The sync has ended, or its time has: now the hold, or the end. */
static void quiesce_next(struct agent *a)
{
	struct agent_quieting *q = &a->quieting;
	int64_t now = agent_now();

	if (!(q->want & AGENT_QUIESCE_HOLD) || !q->hold_ms || !a->hold) {
		quiesced(a);
		return;
	}
	hold_begin(a->hold, now + q->hold_ms * NS_PER_MS);
	q->want = AGENT_QUIESCE_HOLD;
	q->deadline = now + HOLD_WAIT;
}

void machine_quiesce(struct agent *a, const struct agent_msg *m)
{
	struct agent_quieting *q = &a->quieting;

	if (q->pending) {
		channel_fail(a, m->id, EBUSY,
			     "another QUIESCE waits for its sync");
		return;
	}
	a->quiet_until = 0;
	*q = (struct agent_quieting){
		.pending = true,
		.id = m->id,
		.want = m->quiesce.flags,
		.hold_ms = m->quiesce.hold_ms,
		.deadline = agent_now() + m->quiesce.deadline_ms * NS_PER_MS,
	};
	if (!(q->want & AGENT_QUIESCE_SYNC)) {
		quiesce_next(a);
		return;
	}
	/* behind a sync that still hangs there is no use in queueing more */
	if (!a->syncing && !worker_submit(a->sync, job_new(m->type, m->id)))
		a->syncing = true;
}

void machine_synced(struct agent *a)
{
	struct agent_quieting *q = &a->quieting;
	struct job *j;

	while ((j = worker_done(a->sync))) {
		a->syncing = false;
		if (q->pending && j->id == q->id && q->want & AGENT_QUIESCE_SYNC) {
			q->got |= AGENT_QUIESCE_SYNC;
			q->want &= ~AGENT_QUIESCE_SYNC;
			quiesce_next(a);
		}
		job_free(j);
	}
}

void machine_unquiesce(struct agent *a, const struct agent_msg *m)
{
	if (a->quieting.pending)
		channel_fail(a, a->quieting.id, ECANCELED,
			     "UNQUIESCE came before it was quiet");
	a->quiet_until = 0;
	a->quieting.pending = false;
	if (a->hold)
		hold_end(a->hold);
	channel_result(a, m->id, AGENT_UNQUIESCED, 0, "");
}

static void quieting_tick(struct agent *a, int64_t now)
{
	struct agent_quieting *q = &a->quieting;
	bool holding = q->want == AGENT_QUIESCE_HOLD;

	if (holding && a->hold && hold_active(a->hold) && hold_reached(a->hold)) {
		q->got |= AGENT_QUIESCE_HOLD;
		quiesced(a);
	} else if (now >= q->deadline && holding) {
		quiesced(a);
	} else if (now >= q->deadline) {
		quiesce_next(a);
	}
}

int64_t machine_tick(struct agent *a, int64_t now)
{
	/* also when nobody waits for it: a late spinner may have told, and a
	 * readable descriptor would keep this loop from ever sleeping */
	if (a->hold)
		hold_drain(a->hold);
	if (a->quieting.pending)
		quieting_tick(a, now);
	if (a->quieting.pending)
		return a->quieting.deadline;
	if (a->quiet_until && now >= a->quiet_until)
		a->quiet_until = 0;
	return a->quiet_until ? a->quiet_until : INT64_MAX;
}
