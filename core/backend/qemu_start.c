/*
 * qemu_start: from an effect BOOT or RESTORE to a running sandbox:
 *
 *   slot, listening socket, cryo-vm      (helper)
 *   SETUP                                template image, overlay
 *   image                                hot, or LOAD: materialised there
 *   grants                               a fork may read its base's packs
 *   VMM on the image                     (helper)
 *   START                                devices, renewal, go
 *
 * Whatever fails, the slot is emptied and the outcome says why. What a crash
 * leaves is found by its socket: qemu_find() ends what never got to START. A
 * start that is given again while its sandbox runs is reported as done.
 *
 * Invariants: 1. a start that is cut short reports nothing; who cuts it does.
 * 2. STARTED comes before DIED, also when the sandbox ends at that moment.
 * 3. What a cryo-vm gives as an image is used only if it is sealed for good.
 */
#include "core/backend/qemu_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "core/backend/loop.h"
#include "core/log.h"

#define SETUP_MS 10000
#define LOAD_MS 300000
#define START_MS 240000
#define IMAGE_SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define VM_OVERHEAD (512ull << 20) /* cryo-vm: staging, caches, tables */

struct start {
	struct qemu *q;
	const struct effect *fx;
	struct hub_link *link;
	uint32_t slot;
	int start_ms; /* how long the guest may take to answer */
	struct image_hot image;
	struct qemu_template tpl;
	uint8_t compat[32];
};

void qemu_compat(const struct qemu *q, const struct session_spec *spec,
		 const uint8_t kernel_digest[32], uint8_t ret[32])
{
	SCOPED(buf_done) struct buf b = { 0 };

	buf_put_str(&b, "cryo-compat-v1 qemu microvm ");
	buf_printf(&b, "%u %s memory=%u vcpus=%u disk=%u ", VMM_ARGV_VERSION,
		   vmm_accel_name(q->conf.accel), spec->memory_mib, spec->vcpus,
		   spec->disk_mib);
	buf_put(&b, q->conf.vmm_digest, sizeof(q->conf.vmm_digest));
	buf_put(&b, kernel_digest, 32);
	q->conf.sha256(ret, b.p, b.len);
}

static void start_close_template(struct qemu_template *t)
{
	base_close_p(&t->kernel_fd);
	base_close_p(&t->initrd_fd);
	base_close_p(&t->disk_fd);
}

int qemu_fits(void *ctx, const struct session_spec *spec, const struct point *p,
	      struct err *e)
{
	struct qemu *q = ctx;
	const struct qemu_host *h = q->conf.host;
	struct qemu_template tpl = { -1, -1, -1, { 0 }, { 0 } };
	uint8_t now[32];
	int r = h->template_open(h->ctx, spec->template_digest, &tpl, e);

	if (r < 0)
		return r;
	qemu_compat(q, spec, tpl.kernel_digest, now);
	start_close_template(&tpl);
	if (memcmp(now, p->compat, sizeof(now)) == 0)
		return 0;
	return err_set(e, -EINVAL, ERR_MISMATCH,
		       "point %s was made by another build of QEMU, kernel or "
		       "machine than this host has now: it needs that one",
		       p->id);
}

/* --- slots ---------------------------------------------------------------------- */

static int start_take_slot(struct qemu *q, const char *session, uint32_t epoch,
			   uint32_t *ret, struct err *e)
{
	struct sandbox *s;
	uint32_t slot;

	pthread_mutex_lock(&q->lock);
	if (qemu_is_cut(q, session, epoch)) {
		pthread_mutex_unlock(&q->lock);
		return err_set(e, -ECANCELED, ERR_CONFLICT, "cut short");
	}
	s = qemu_sandbox(q, session);
	if (s) {
		pthread_mutex_unlock(&q->lock);
		return err_set(e, -EEXIST, ERR_CONFLICT,
			       "epoch %u of session %s runs already", s->epoch,
			       session);
	}
	for (slot = 0; slot < HELPER_SLOTS; slot++)
		if (!(q->slots[slot / 64] >> (slot % 64) & 1))
			break;
	if (slot == HELPER_SLOTS) {
		pthread_mutex_unlock(&q->lock);
		return err_set(
			e, -EAGAIN, ERR_LIMIT,
			"no room: %u sandboxes run on this host; suspend some",
			HELPER_SLOTS);
	}
	q->slots[slot / 64] |= (uint64_t)1 << (slot % 64);
	s = base_alloc(sizeof(*s));
	base_strcpy(s->session, sizeof(s->session), session);
	s->epoch = epoch;
	s->slot = slot;
	s->next = q->sandboxes;
	q->sandboxes = s;
	pthread_mutex_unlock(&q->lock);
	*ret = slot;
	return 0;
}

static bool start_is_cut(struct start *t)
{
	struct sandbox *s;
	bool cut;

	pthread_mutex_lock(&t->q->lock);
	s = qemu_sandbox(t->q, t->fx->session);
	cut = (s && s->kill) || t->q->stop ||
	      qemu_is_cut(t->q, t->fx->session, t->fx->epoch);
	pthread_mutex_unlock(&t->q->lock);
	return cut;
}

/* --- steps ------------------------------------------------------------------------ */

static int start_vm(struct start *t, struct err *e)
{
	const struct qemu_host *h = t->q->conf.host;
	const struct session_spec *spec = &t->fx->spec;
	SCOPED_FD int listen_fd = -1;
	SCOPED_FD int pidfd = -1;
	struct sandbox *s;
	uint64_t limit = ((uint64_t)spec->memory_mib * 2 + VMM_OVERHEAD_MIB)
			 << 20;
	int fd, pid, r;

	r = h->listen(h->ctx, t->fx->session, t->slot, &listen_fd, e);
	if (r == 0)
		r = helper_client_spawn_vm(t->q->conf.helper, t->slot,
					   t->fx->session, limit + VM_OVERHEAD,
					   listen_fd, h->log_fd, &pid, &pidfd, e);
	if (r == 0)
		r = h->connect(h->ctx, t->fx->session, t->slot, &fd, e);
	if (r < 0)
		return r;
	t->link = hub_add(t->q->hub, fd, t->fx->session, (uint32_t)t->fx->epoch,
			  t->slot, NULL);
	pthread_mutex_lock(&t->q->lock);
	s = qemu_sandbox(t->q, t->fx->session);
	s->link = hub_ref(t->link);
	pthread_mutex_unlock(&t->q->lock);
	/* a cut that came before the link was there could not close it */
	return start_is_cut(t)
		       ? err_set(e, -ECANCELED, ERR_CONFLICT, "cut short")
		       : 0;
}

static int64_t start_wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int start_setup(struct start *t, struct err *e)
{
	const struct effect *fx = t->fx;
	const struct qemu_host *h = t->q->conf.host;
	struct wire_hello hello = { .now_wall_ns = (uint64_t)start_wall_ns() };
	struct wire_setup u = { .epoch = (uint32_t)fx->epoch,
				.memory_mib = fx->spec.memory_mib,
				.vcpus = fx->spec.vcpus,
				.disk_blocks = fx->spec.disk_mib << 8,
				.snapshot_every_ns = fx->spec.snapshot_every_ns,
				.last_point_ns = fx->newest_ns };
	SCOPED_FD int overlay = -1;
	int fds[2], r;

	memcpy(u.session, fx->session, sizeof(u.session));
	memcpy(u.compat, t->compat, sizeof(u.compat));
	if (!fx->park && fx->spec.snapshot_every_ns > 0)
		u.flags |= WIRE_KEEP_ROLLING;
	r = hub_call(t->link, WIRE_HELLO, &hello, sizeof(hello), NULL, 0, NULL,
		     0, SETUP_MS, sizeof(struct wire_status), NULL, e);
	if (r == 0)
		r = h->overlay(h->ctx, fx->session, &overlay, e);
	if (r < 0)
		return r;
	fds[0] = t->tpl.disk_fd;
	fds[1] = overlay;
	return hub_call(t->link, WIRE_SETUP, &u, sizeof(u), NULL, 0, fds, 2,
			SETUP_MS, 0, NULL, e);
}

static void start_load_request(const struct point *p, struct wire_load *ret)
{
	*ret = (struct wire_load){ .offset = p->offset };
	memcpy(ret->point, p->id, sizeof(ret->point));
	memcpy(ret->pack, p->pack, sizeof(ret->pack));
	memcpy(ret->root, p->root, sizeof(ret->root));
}

/* The point materialised by this sandbox's cryo-vm. */
static int start_load(struct start *t, struct image_hot *ret, struct err *e)
{
	struct hub_reply reply = { 0 };
	struct wire_loaded l;
	struct wire_load q;
	int r;

	start_load_request(&t->fx->base, &q);
	r = hub_call(t->link, WIRE_LOAD, &q, sizeof(q), NULL, 0, NULL, 0,
		     LOAD_MS, sizeof(l), &reply, e);
	if (r < 0)
		return r;
	memcpy(&l, reply.body, sizeof(l));
	if (l.nr_packs > WIRE_PACKS_MAX ||
	    reply.len != sizeof(l) + l.nr_packs * 16ul) {
		hub_reply_done(&reply);
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "malformed answer to LOAD");
	}
	*ret = (struct image_hot){ .nr_packs = l.nr_packs };
	ret->packs = base_alloc(l.nr_packs * 16ul + 1);
	memcpy(ret->packs, reply.body + sizeof(l), l.nr_packs * 16ul);
	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		ret->fds[i] = base_steal_fd(&reply.fds[i]);
	hub_reply_done(&reply);
	log_info("event=loaded session=%s point=%s us=%lld pages=%u packs=%u",
		 t->fx->session, t->fx->base.id, (long long)l.us,
		 l.memory_pages, l.nr_packs);
	return 0;
}

/* Is what a cryo-vm gave as an image what others may be started on? */
static int start_check_image(const struct start *t, const struct image_hot *m,
			     struct err *e)
{
	off_t want = (off_t)t->fx->spec.memory_mib << 20;

	for (int i = 0; i < WIRE_IMAGE_FDS; i++) {
		int seals = fcntl(m->fds[i], F_GET_SEALS);

		/* -1: not a memfd at all */
		if (seals < 0 || (seals & IMAGE_SEALS) != IMAGE_SEALS)
			return err_set(e, -EPROTO, ERR_INTERNAL,
				       "image of point %s is not sealed",
				       t->fx->base.id);
	}
	if (lseek(m->fds[0], 0, SEEK_END) != want)
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "image of point %s has the wrong size",
			       t->fx->base.id);
	return 0;
}

/* What the image occupies, by the kernel's account and not by cryo-vm's. */
static void start_count_image(struct image_hot *m)
{
	struct stat st;

	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		if (fstat(m->fds[i], &st) == 0)
			m->bytes += (uint64_t)st.st_blocks * 512;
}

static int start_image(struct start *t, struct err *e)
{
	const struct effect *fx = t->fx;
	const struct image_key key = { .tenant = fx->tenant,
				       .session = fx->base.session,
				       .point = fx->base.id };
	struct image_hot hot = { .fds = { -1, -1, -1 } };
	struct wire_load q;
	int r;

	r = images_get(t->q->images, &key, &t->image);
	if (r == 0) {
		start_load_request(&fx->base, &q);
		return hub_call(t->link, WIRE_IMAGE, &q, sizeof(q), NULL, 0,
				t->image.fds, WIRE_IMAGE_FDS, SETUP_MS, 0, NULL,
				e);
	}
	r = start_load(t, &hot, e);
	if (r == 0)
		r = start_check_image(t, &hot, e);
	if (r < 0) {
		images_give_up(t->q->images, &key);
		image_hot_done(&hot);
		return r;
	}
	start_count_image(&hot);
	images_put(t->q->images, &key, &hot, &t->image);
	return t->image.fds[0] < 0
		       ? err_set(e, -EMFILE, ERR_LIMIT, "out of descriptors")
		       : 0;
}

static int start_grants_from(struct start *t, const char *lender, struct err *e)
{
	const struct qemu_host *h = t->q->conf.host;

	return h->grant(h->ctx, t->fx->session, lender,
			(const uint8_t(*)[16])t->image.packs, t->image.nr_packs,
			e);
}

static int start_grants(struct start *t, struct err *e)
{
	const struct effect *fx = t->fx;
	int r = 0;

	if (strcmp(fx->base.session, fx->session) != 0)
		r = start_grants_from(t, fx->base.session, e);
	/* destroyed: who was forked from it has grants of its own */
	if (r == -ENOENT && fx->parent[0])
		r = start_grants_from(t, fx->parent, e);
	if (r == 0)
		qemu_borrow_end(t->q, t->fx->session, t->fx->epoch);
	return r;
}

/* RAM of a plain boot: an empty image, sealed like the others. */
static int start_empty_ram(struct start *t, struct err *e)
{
	SCOPED_FD int fd =
		memfd_create("cryo-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)t->fx->spec.memory_mib << 20) < 0 ||
	    fcntl(fd, F_ADD_SEALS, IMAGE_SEALS) < 0)
		return err_sys(e, errno, "make an empty memory image");
	t->image = (struct image_hot){ .fds = { base_steal_fd(&fd), -1, -1 } };
	return 0;
}

enum { PAIR_QMP, PAIR_AGENT, PAIR_NBD, PAIR_UFFD, PAIRS };

static void start_vmm_fds(const struct start *t, int pair[PAIRS][2],
			  int fds[VMM_FD_ROLES])
{
	bool boot = t->fx->kind == EFFECT_BOOT;

	for (int i = 0; i < VMM_FD_ROLES; i++)
		fds[i] = -1;
	fds[VMM_FD_RAM] = t->image.fds[0];
	fds[VMM_FD_QMP] = pair[PAIR_QMP][1];
	fds[VMM_FD_AGENT] = pair[PAIR_AGENT][1];
	fds[VMM_FD_NBD] = pair[PAIR_NBD][1];
	fds[VMM_FD_UFFD_SOCK] = pair[PAIR_UFFD][1];
	fds[VMM_FD_LOG] = t->q->conf.host->log_fd;
	if (boot) {
		fds[VMM_FD_KERNEL] = t->tpl.kernel_fd;
		fds[VMM_FD_INITRD] = t->tpl.initrd_fd;
	}
}

static int start_vmm(struct start *t, int pair[PAIRS][2],
		     struct helper_vmm *ret, struct err *e)
{
	bool boot = t->fx->kind == EFFECT_BOOT;
	struct vmm_spec spec = { .memory_mib = t->fx->spec.memory_mib,
				 .vcpus = t->fx->spec.vcpus,
				 .tsc_khz = boot ? t->q->conf.tsc_khz : 0,
				 .accel = (uint8_t)t->q->conf.accel,
				 .mode = boot ? VMM_BOOT : VMM_INCOMING };
	int fds[VMM_FD_ROLES];

	start_vmm_fds(t, pair, fds);
	if (boot)
		base_strcpy(spec.cmdline, sizeof(spec.cmdline), t->tpl.cmdline);
	return helper_client_spawn_vmm(t->q->conf.helper, t->slot, &spec,
				       t->q->conf.vmm_digest, fds, ret, e);
}

static void start_identity(const struct start *t, struct wire_start *w)
{
	const struct effect *fx = t->fx;
	uint8_t hash[32];

	base_strcpy(w->hostname, sizeof(w->hostname),
		    fx->name[0] ? fx->name : fx->session);
	t->q->conf.sha256(hash, fx->session, ID_LEN);
	for (int i = 0; i < 16; i++)
		snprintf(w->machine_id + 2 * i, 3, "%02x", hash[i]);
}

static int start_go(struct start *t, int pair[PAIRS][2],
		    const struct helper_vmm *vmm, struct hub_reply *ret,
		    struct err *e)
{
	struct wire_start w = { .generation = (uint32_t)t->fx->epoch };
	int fds[WIRE_START_FDS] = {
		[WIRE_START_QMP] = pair[PAIR_QMP][0],
		[WIRE_START_AGENT] = pair[PAIR_AGENT][0],
		[WIRE_START_NBD] = pair[PAIR_NBD][0],
		[WIRE_START_UFFD] = pair[PAIR_UFFD][0],
		[WIRE_START_PAGEMAP] = vmm->pagemap_fd,
		[WIRE_START_MEM] = vmm->mem_fd,
		[WIRE_START_MAPS] = vmm->maps_fd,
		[WIRE_START_PIDFD] = vmm->pidfd,
		[WIRE_START_RAM] = t->image.fds[0],
	};

	if (t->fx->kind == EFFECT_BOOT)
		w.flags |= WIRE_START_BOOT;
	if (t->fx->fork)
		w.flags |= WIRE_START_FORK;
	if (t->fx->forensic)
		w.flags |= WIRE_START_FORENSIC;
	if (t->fx->kind == EFFECT_BOOT || !t->fx->base.unquiesced)
		w.flags |= WIRE_START_CLEAN;
	start_identity(t, &w);
	return hub_call(t->link, WIRE_START, &w, sizeof(w), NULL, 0, fds,
			WIRE_START_FDS, t->start_ms,
			sizeof(struct wire_started), ret, e);
}

static int start_machine(struct start *t, struct hub_reply *ret, struct err *e)
{
	struct helper_vmm vmm = { 0, -1, -1, -1, -1 };
	int pair[PAIRS][2], n, r = 0;

	for (n = 0; n < PAIRS && r == 0; n++) {
		r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[n]);
		if (r < 0) {
			r = err_sys(e, errno, "make a socket pair");
			break;
		}
	}
	if (r == 0)
		r = start_vmm(t, pair, &vmm, e);
	for (int i = 0; i < n; i++)
		close(pair[i][1]); /* the VMM's end: its death must show */
	if (r == 0)
		r = start_go(t, pair, &vmm, ret, e);
	for (int i = 0; i < n; i++)
		close(pair[i][0]);
	base_close_p(&vmm.pidfd);
	base_close_p(&vmm.pagemap_fd);
	base_close_p(&vmm.mem_fd);
	base_close_p(&vmm.maps_fd);
	return r;
}

static int start_steps(struct start *t, struct hub_reply *ret, struct err *e)
{
	const struct effect *fx = t->fx;
	const struct qemu_host *h = t->q->conf.host;
	int r;

	r = h->template_open(h->ctx, fx->spec.template_digest, &t->tpl, e);
	if (r < 0)
		return r;
	qemu_compat(t->q, &fx->spec, t->tpl.kernel_digest, t->compat);
	if (fx->kind == EFFECT_RESTORE &&
	    memcmp(t->compat, fx->base.compat, sizeof(t->compat)) != 0)
		return err_set(
			e, -EINVAL, ERR_MISMATCH,
			"point %s was made by another build of the VMM, kernel or machine",
			fx->base.id);
	r = start_vm(t, e);
	if (r == 0)
		r = start_setup(t, e);
	if (r == 0)
		r = fx->kind == EFFECT_BOOT ? start_empty_ram(t, e)
					    : start_image(t, e);
	if (r == 0 && fx->kind == EFFECT_RESTORE)
		r = start_grants(t, e);
	if (r == 0 && start_is_cut(t))
		r = err_set(e, -ECANCELED, ERR_CONFLICT, "cut short");
	return r == 0 ? start_machine(t, ret, e) : r;
}

/* --- the outcome ---------------------------------------------------------------------- */

static void start_attach_later(void *ctx, const struct reply *r)
{
	struct qemu *q = ctx;
	struct sandbox *s;

	if (r->rc < 0)
		return;
	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, r->session);
	if (s)
		qemu_work_put(q, WORK_ATTACH, s->session, s->epoch, NULL);
	pthread_mutex_unlock(&q->lock);
}

static json_t *start_renewed(const struct wire_started *w)
{
	json_t *o = json_object(), *what = json_array();

	if (w->renewed & WIRE_RENEWED_CLOCK)
		json_array_append_new(what, json_string("clock"));
	if (w->renewed & WIRE_RENEWED_RNG)
		json_array_append_new(what, json_string("rng"));
	if (w->renewed & WIRE_RENEWED_IDENTITY)
		json_array_append_new(what, json_string("machine-id"));
	if (w->renewed & WIRE_RENEWED_HOOKS)
		json_array_append_new(what, json_string("hooks"));
	json_object_set_new(o, "what", what);
	json_put_str(o, "by", "agent");
	json_put_int(o, "us", w->renew_us);
	json_put_ns(o, "clock_jump_ns", w->clock_jump_ns);
	json_put_str(o, "stale", "random generators inside user processes");
	return o;
}

static void start_put_hello(struct command *c, const uint8_t *states, uint32_t nr)
{
	struct exec_hello *hello = command_hello(c, (int)nr);
	struct wire_exec_state x;

	for (uint32_t i = 0; i < nr; i++) {
		memcpy(&x, states + i * sizeof(x), sizeof(x));
		WIRE_TEXT(x.tag);
		memcpy(hello[i].tag, x.tag, sizeof(hello[i].tag));
		hello[i].exited = x.phase == WIRE_EXEC_EXITED;
		hello[i].out = x.out_from;
		hello[i].err = x.err_from;
	}
	c->hello_ns = start_wall_ns();
}

static struct command *start_command(struct qemu *q, const struct effect *fx,
				     int64_t since_ns)
{
	struct command *c = qemu_command(fx, COMMAND_STARTED);

	base_strcpy(c->backend, sizeof(c->backend), "qemu");
	base_strcpy(c->accel, sizeof(c->accel), vmm_accel_name(q->conf.accel));
	c->us = (uint64_t)((loop_now_ns() - since_ns) / 1000);
	c->agent = true;
	c->done = start_attach_later;
	c->done_ctx = q;
	return c;
}

static void start_report(struct start *t, const struct hub_reply *reply,
			 int64_t since_ns)
{
	struct command *c = start_command(t->q, t->fx, since_ns);
	struct wire_started w;
	size_t max;

	memcpy(&w, reply->body, sizeof(w));
	c->agent = !w.silent;
	max = (reply->len - sizeof(w)) / sizeof(struct wire_exec_state);
	max = MIN(max, (size_t)EXEC_HELLO_MAX);
	start_put_hello(c, reply->body + sizeof(w),
			MIN(w.nr_execs, (uint32_t)max));
	if (t->fx->kind == EFFECT_RESTORE)
		c->info = start_renewed(&w);
	qemu_outcome(t->q, c);
}

static bool start_mark_up(struct start *t)
{
	struct sandbox *s;
	bool up;

	pthread_mutex_lock(&t->q->lock);
	s = qemu_sandbox(t->q, t->fx->session);
	/* a link that goes down after this look finds the sandbox UP */
	up = !s->kill && hub_is_up(t->link);
	if (up)
		s->state = SANDBOX_UP;
	pthread_mutex_unlock(&t->q->lock);
	return up;
}

/* STARTED is on its way: from now on an end is told, also one just missed. */
static void start_mark_told(struct start *t)
{
	struct sandbox *s;
	bool died;

	pthread_mutex_lock(&t->q->lock);
	s = qemu_sandbox(t->q, t->fx->session);
	s->told = true;
	died = s->state == SANDBOX_GONE && !s->kill;
	if (died)
		qemu_work_put(t->q, WORK_CLEAN, s->session, s->epoch, NULL);
	pthread_mutex_unlock(&t->q->lock);
	if (died)
		qemu_report_died(t->q, t->fx->session, t->fx->epoch,
				 "the sandbox's keeper ended");
}

/* The engine asks again after a restart, and it runs: 0, reported. */
static int start_again(struct qemu *q, const struct effect *fx)
{
	struct command *c = start_command(q, fx, loop_now_ns());
	struct sandbox *s;
	bool runs;

	pthread_mutex_lock(&q->lock);
	s = qemu_sandbox(q, fx->session);
	runs = s && s->epoch == fx->epoch && s->state == SANDBOX_UP && !s->kill;
	if (runs)
		start_put_hello(c, (const uint8_t *)s->hello, s->nr_hello);
	pthread_mutex_unlock(&q->lock);
	if (!runs) {
		command_free(c);
		return -ENOENT;
	}
	qemu_outcome(q, c);
	return 0;
}

/* Ends a start that went wrong; says so unless somebody cut it short. */
static void start_undo(struct start *t, const struct err *why)
{
	bool cut = start_is_cut(t), stop;
	struct err e;

	pthread_mutex_lock(&t->q->lock);
	stop = t->q->stop;
	pthread_mutex_unlock(&t->q->lock);
	if (stop)
		return; /* the next daemon looks at what is there */
	qemu_session_end(t->q, t->fx->session, t->fx->epoch, &e);
	if (!cut)
		qemu_effect_failed(t->q, t->fx, why);
}

void qemu_start_run(struct qemu *q, struct effect *fx)
{
	struct start t = { .q = q,
			   .fx = fx,
			   .start_ms = START_MS,
			   .image = { .fds = { -1, -1, -1 } },
			   .tpl = { -1, -1, -1, { 0 }, { 0 } } };
	struct hub_reply reply = { 0 };
	int64_t since = loop_now_ns();
	struct err e;
	int r = 0;

	if (start_again(q, fx) < 0) {
		/* older epochs, or one of this epoch that has just ended */
		r = qemu_session_end(q, fx->session, fx->epoch, &e);
		if (r == 0)
			r = start_take_slot(q, fx->session, (uint32_t)fx->epoch,
					    &t.slot, &e);
		if (r == 0)
			r = start_steps(&t, &reply, &e);
		if (r == 0 && !start_mark_up(&t))
			r = err_set(&e, -EPIPE, ERR_INTERNAL,
				    "the sandbox ended while it started");
		if (r == 0) {
			start_report(&t, &reply, since);
			start_mark_told(&t);
		} else {
			start_undo(&t, &e);
		}
	}
	qemu_borrow_end(q, fx->session, fx->epoch);
	hub_reply_done(&reply);
	image_hot_done(&t.image);
	start_close_template(&t.tpl);
	hub_unref(t.link);
}

int qemu_try_boot(struct qemu *q, const struct session_spec *spec,
		  int timeout_ms, struct err *e)
{
	struct effect *fx = effect_new(EFFECT_BOOT);
	struct start t = { .q = q,
			   .fx = fx,
			   .start_ms = timeout_ms,
			   .image = { .fds = { -1, -1, -1 } },
			   .tpl = { -1, -1, -1, { 0 }, { 0 } } };
	struct hub_reply reply = { 0 };
	struct err end;
	struct id id;
	int r;

	id_new(&id);
	memcpy(fx->session, id.s, sizeof(fx->session));
	fx->epoch = 1;
	fx->spec = *spec;
	fx->park = true; /* no rolling captures */
	r = start_take_slot(q, fx->session, 1, &t.slot, e);
	if (r == 0) {
		r = start_steps(&t, &reply, e);
		qemu_session_end(q, fx->session, fx->epoch, &end);
	}
	hub_reply_done(&reply);
	image_hot_done(&t.image);
	start_close_template(&t.tpl);
	hub_unref(t.link);
	effect_free(fx);
	return r;
}
