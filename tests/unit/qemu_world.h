/*
 * qemu_world: the QEMU driver with everything around it but QEMU: a helper
 * that answers on its socket, cryo-vms that speak core/wire on theirs, files
 * and keys in memory. The fakes are threads; they outlive the driver, as the
 * real processes outlive the daemon, so a test can let the driver go and come
 * back. What they do can be held up (`hold`), refused (`refuse`) and counted.
 * Everything is static.
 */
#ifndef TESTS_UNIT_QEMU_WORLD_H
#define TESTS_UNIT_QEMU_WORLD_H

#include "core/backend/qemu_impl.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/fds.h"
#include "tests/memstore.h"
#include "tests/tap.h"

#define VMS 64 /* slots that tests use */
#define MEMORY_MIB 32u
#define ANSWERS 2048

/* A cryo-vm. Its thread is the only one that receives. */
struct fake_vm {
	bool alive;
	pthread_t thread;
	int listen_fd, conn, wake;
	_Atomic bool stop;
	char session[ID_LEN + 1];
	uint32_t slot, epoch;
	_Atomic uint32_t phase;
	_Atomic int nr[WIRE_NR]; /* requests of each type */
	_Atomic int capture_nr;
	uint64_t ticket; /* of the last CAPTURE */
	_Atomic bool hello_done;
	struct wire_exec_state exec[8];
	uint32_t nr_exec;
	uint32_t packs; /* that a point loaded here uses */
	bool bad_image; /* give one that is not sealed */
	uint32_t start_flags; /* of the last START */
	/* a report that goes out right behind each HELLO until answered */
	struct wire_captured report;
	_Atomic bool has_report;
	struct {
		bool done;
		int status, nr_fds;
		struct wire_pack pack;
	} answer[ANSWERS]; /* by call number */
};

struct fake_point {
	char session[ID_LEN + 1];
	uint8_t id[16];
};

static struct world {
	pthread_mutex_t lock; /* fakes and host */
	pthread_mutex_t kill_lock;
	/* helper */
	int helper_fd;
	pthread_t helper;
	struct fake_vm vm[VMS];
	_Atomic int op_nr[HELPER_OP_END], refuse_op[HELPER_OP_END];
	_Atomic bool hold_op[HELPER_OP_END];
	/* all cryo-vms */
	_Atomic bool hold[WIRE_NR]; /* don't answer these while set */
	_Atomic int refuse[WIRE_NR]; /* -errno, once */
	_Atomic bool die[WIRE_NR]; /* end instead of answering, once */
	/* host */
	char dir[64];
	_Atomic int nr_purged, nr_granted, nr_packs, nr_transcripts, unlistened;
	char purged[8][ID_LEN + 1];
	char last_grant[2 * ID_LEN + 2]; /* "child<parent" */
	_Atomic int refuse_grant, refuse_space, refuse_pack;
	char pack_owner[ID_LEN + 1]; /* only this session has packs */
	_Atomic int transcript_exists;
	/* the driver */
	struct helper_client *client;
	struct memstore store;
	struct qemu *q;
	struct qemu_host host;
	struct backend_live *live;
	int nr_live;
	/* outcomes */
	pthread_mutex_t got_lock;
	struct command *got[256];
	_Atomic int nr_got;
	int next; /* that a test looks at */
} w = { .lock = PTHREAD_MUTEX_INITIALIZER,
	.kill_lock = PTHREAD_MUTEX_INITIALIZER,
	.got_lock = PTHREAD_MUTEX_INITIALIZER };

/* --- cryo-vm ------------------------------------------------------------- */

static void vm_reply(struct fake_vm *v, const struct wire_msg *m, int status,
		     const void *p, size_t len, const void *tail,
		     size_t tail_len, const int *fds, int nr)
{
	wire_send(v->conn, m->type, m->call, true, status, p, len, tail,
		  tail_len, fds, nr);
}

static void vm_load(struct fake_vm *v, const struct wire_msg *m)
{
	struct wire_loaded l = { .us = 1, .nr_packs = v->packs, .memory_pages = 5 };
	uint8_t packs[16][16] = { { 0 } };
	int fds[WIRE_IMAGE_FDS];

	for (uint32_t i = 0; i < v->packs; i++)
		packs[i][0] = (uint8_t)(i + 1);
	fds[0] = fds_memfd((off_t)MEMORY_MIB << 20,
			   v->bad_image ? 0 : FDS_SEALED);
	fds[1] = fds_memfd(4096, FDS_SEALED);
	fds[2] = fds_memfd(4096, FDS_SEALED);
	v->phase = WIRE_PHASE_LOADED;
	vm_reply(v, m, 0, &l, sizeof(l), packs, v->packs * 16ul, fds, 3);
	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		close(fds[i]);
}

static void vm_hello(struct fake_vm *v, const struct wire_msg *m)
{
	struct wire_status s = { .epoch = v->epoch,
				 .phase = v->phase,
				 .nr_execs = v->nr_exec };

	base_strcpy(s.session, sizeof(s.session), v->session);
	vm_reply(v, m, 0, &s, sizeof(s), v->exec,
		 v->nr_exec * sizeof(v->exec[0]), NULL, 0);
	if (v->has_report)
		wire_send(v->conn, WIRE_CAPTURED, 1, false, 0, &v->report,
			  sizeof(v->report), NULL, 0, NULL, 0);
	v->hello_done = true;
}

static void vm_started(struct fake_vm *v, const struct wire_msg *m)
{
	struct wire_started s = { .renewed = WIRE_RENEWED_RNG,
				  .nr_execs = v->nr_exec };
	struct wire_start q;

	wire_body(m, &q, sizeof(q));
	v->start_flags = q.flags;
	if (q.flags & WIRE_START_FORENSIC) { /* as if the agent were dead */
		s.renewed = 0;
		s.silent = 1;
	}
	v->phase = WIRE_PHASE_RUNNING;
	vm_reply(v, m, 0, &s, sizeof(s), v->exec,
		 v->nr_exec * sizeof(v->exec[0]), NULL, 0);
}

static void vm_setup(struct fake_vm *v, const struct wire_msg *m)
{
	struct wire_setup s;

	wire_body(m, &s, sizeof(s));
	pthread_mutex_lock(&w.lock);
	base_strcpy(v->session, sizeof(v->session), s.session);
	v->epoch = s.epoch;
	pthread_mutex_unlock(&w.lock);
	v->phase = WIRE_PHASE_SETUP;
	vm_reply(v, m, 0, NULL, 0, NULL, 0, NULL, 0);
}

static void vm_capture(struct fake_vm *v, const struct wire_msg *m)
{
	struct wire_capture c;
	bool fresh;

	wire_body(m, &c, sizeof(c));
	fresh = v->ticket != c.ticket;
	v->ticket = c.ticket;
	v->capture_nr += fresh;
	vm_reply(v, m, 0, NULL, 0, NULL, 0, NULL, 0);
}

static void vm_take_answer(struct fake_vm *v, struct wire_msg *m)
{
	pthread_mutex_lock(&w.lock);
	if (m->call < ANSWERS) {
		v->answer[m->call].status = m->status;
		v->answer[m->call].nr_fds = m->nr_fds;
		if (m->status == 0 && m->len == sizeof(struct wire_pack))
			memcpy(&v->answer[m->call].pack, m->body, m->len);
		v->answer[m->call].done = true;
	}
	if (m->type == WIRE_CAPTURED && m->call == 1 && m->status == 0)
		v->has_report = false;
	pthread_mutex_unlock(&w.lock);
}

/* While an answer is held up, answers to own questions still come. */
static void vm_hold(struct fake_vm *v, enum wire_type t)
{
	struct wire_buf *room = base_alloc(sizeof(*room));
	struct pollfd p = { .fd = v->conn, .events = POLLIN };
	struct wire_msg m;
	struct err e;

	while (w.hold[t] && !v->stop && !(p.revents & POLLHUP)) {
		if (poll(&p, 1, 1) <= 0 || !(p.revents & POLLIN) ||
		    wire_recv(v->conn, true, room, &m, &e) < 0)
			continue;
		if (m.reply)
			vm_take_answer(v, &m);
		wire_msg_done(&m);
	}
	free(room);
}

static void vm_request(struct fake_vm *v, struct wire_msg *m)
{
	int status;

	wire_msg_done(m); /* before the answer, so that tests can count */
	v->nr[m->type]++;
	vm_hold(v, m->type);
	status = w.refuse[m->type];
	if (w.die[m->type]) {
		w.die[m->type] = false;
		v->stop = true;
		return;
	}
	w.refuse[m->type] = 0;
	if (status) {
		vm_reply(v, m, status, "scripted", 8, NULL, 0, NULL, 0);
		return;
	}
	switch ((int)m->type) {
	case WIRE_HELLO:
		return vm_hello(v, m);
	case WIRE_SETUP:
		return vm_setup(v, m);
	case WIRE_LOAD:
		return vm_load(v, m);
	case WIRE_START:
		return vm_started(v, m);
	case WIRE_CAPTURE:
		return vm_capture(v, m);
	case WIRE_PAUSE:
		v->phase = WIRE_PHASE_PAUSED;
		break;
	case WIRE_IMAGE:
		v->phase = WIRE_PHASE_LOADED;
		break;
	case WIRE_CONT:
		v->phase = WIRE_PHASE_RUNNING;
		break;
	default:
		break;
	}
	vm_reply(v, m, 0, NULL, 0, NULL, 0, NULL, 0);
}

static void vm_turn(struct fake_vm *v, struct wire_buf *room)
{
	struct pollfd p[3] = { { .fd = v->listen_fd, .events = POLLIN },
			       { .fd = v->wake, .events = POLLIN },
			       { .fd = v->conn, .events = POLLIN } };
	struct wire_msg m;
	struct err e;
	int r;

	poll(p, v->conn >= 0 ? 3 : 2, -1);
	if (p[0].revents & POLLIN) {
		if (v->conn >= 0)
			close(v->conn);
		v->conn = accept4(v->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		return;
	}
	if (v->conn < 0 || !p[2].revents)
		return;
	r = wire_recv(v->conn, true, room, &m, &e);
	if (r < 0) {
		close(base_steal_fd(&v->conn));
		return;
	}
	if (m.reply)
		vm_take_answer(v, &m);
	else
		vm_request(v, &m);
	wire_msg_done(&m);
}

static void *vm_main(void *ctx)
{
	struct fake_vm *v = ctx;
	struct wire_buf *room = base_alloc(sizeof(*room));

	while (!v->stop)
		vm_turn(v, room);
	free(room);
	if (v->conn >= 0)
		close(base_steal_fd(&v->conn));
	close(base_steal_fd(&v->listen_fd));
	return NULL;
}

static void vm_spawn(uint32_t slot, const char *session, int listen_fd)
{
	struct fake_vm *v = &w.vm[slot];

	*v = (struct fake_vm){ .alive = true,
			       .listen_fd = listen_fd,
			       .conn = -1,
			       .slot = slot,
			       .packs = 2,
			       .wake = eventfd(0, EFD_CLOEXEC) };
	base_strcpy(v->session, sizeof(v->session), session);
	if (pthread_create(&v->thread, NULL, vm_main, v))
		bail("thread");
}

/* Ends it for good, as the helper's KILL or a kill -9 would. */
static void vm_kill(uint32_t slot)
{
	struct fake_vm *v = &w.vm[slot];
	uint64_t one = 1;

	pthread_mutex_lock(&w.kill_lock);
	if (v->alive) {
		v->stop = true;
		if (write(v->wake, &one, sizeof(one)) < 0)
			bail("wake");
		pthread_join(v->thread, NULL);
		close(v->wake);
		pthread_mutex_lock(&w.lock);
		v->alive = false;
		pthread_mutex_unlock(&w.lock);
	}
	pthread_mutex_unlock(&w.kill_lock);
}

/* The cryo-vm of a session, wherever it is. */
static struct fake_vm *vm_of(const char *session)
{
	struct fake_vm *found = NULL;

	pthread_mutex_lock(&w.lock);
	for (int i = 0; i < VMS; i++)
		if (w.vm[i].alive && !strcmp(w.vm[i].session, session))
			found = &w.vm[i];
	pthread_mutex_unlock(&w.lock);
	return found;
}

static void vm_ask(struct fake_vm *v, enum wire_type t, uint64_t call,
		   const void *p, size_t len)
{
	pthread_mutex_lock(&w.lock);
	v->answer[call].done = false;
	pthread_mutex_unlock(&w.lock);
	if (wire_send(v->conn, t, call, false, 0, p, len, NULL, 0, NULL, 0) < 0)
		bail("cryo-vm can't ask %s", wire_type_name(t));
}

static bool vm_answered(struct fake_vm *v, uint64_t call)
{
	bool done;

	pthread_mutex_lock(&w.lock);
	done = v->answer[call].done;
	pthread_mutex_unlock(&w.lock);
	return done;
}

/* Waits for the answer; its status. */
static int vm_status(struct fake_vm *v, uint64_t call)
{
	if (!wait_for(vm_answered(v, call)))
		bail("question %d was not answered", (int)call);
	return v->answer[call].status;
}

/* --- helper -------------------------------------------------------------- */

static void helper_spawn_vm(const struct helper_req *q, struct helper_rep *r,
			    int *fds, int *ret)
{
	pthread_mutex_lock(&w.lock);
	if (w.vm[q->slot].alive) {
		r->error = -EBUSY;
	} else {
		vm_spawn(q->slot, q->vm.session, base_steal_fd(&fds[0]));
		ret[r->nr_fds++] = eventfd(0, EFD_CLOEXEC);
	}
	pthread_mutex_unlock(&w.lock);
}

static void helper_do(const struct helper_req *q, struct helper_rep *r,
		      int *fds, int *ret)
{
	w.op_nr[q->op]++;
	while (w.hold_op[q->op])
		poll(NULL, 0, 1);
	r->error = w.refuse_op[q->op];
	w.refuse_op[q->op] = 0;
	if (r->error) {
		base_strcpy(r->msg, sizeof(r->msg), "scripted");
		return;
	}
	switch (q->op) {
	case HELPER_SPAWN_VM:
		helper_spawn_vm(q, r, fds, ret);
		break;
	case HELPER_SPAWN_VMM:
		for (int i = 0; i < HELPER_VMM_FDS; i++)
			ret[r->nr_fds++] = eventfd(0, EFD_CLOEXEC);
		break;
	case HELPER_KILL:
		vm_kill(q->slot);
		break;
	case HELPER_LIST:
		for (uint32_t i = 0; i < VMS; i++)
			if (w.vm[i].alive)
				r->slots[i / 64] |= 1ull << (i % 64);
		break;
	default:
		break;
	}
}

static void *helper_main(void *ctx)
{
	int fds[HELPER_FDS_MAX], ret[HELPER_FDS_MAX];
	struct helper_req q;
	struct helper_rep r;
	unsigned nr;

	(void)ctx;
	while (helper_recv(w.helper_fd, &q, sizeof(q), fds, HELPER_FDS_MAX,
			   &nr) > 0) {
		r = (struct helper_rep){ .magic = HELPER_MAGIC,
					 .version = HELPER_VERSION,
					 .op = q.op,
					 .size = sizeof(r),
					 .id = q.id };
		helper_do(&q, &r, fds, ret);
		helper_send(w.helper_fd, &r, sizeof(r), ret, r.nr_fds);
		for (unsigned i = 0; i < r.nr_fds; i++)
			close(ret[i]);
		for (unsigned i = 0; i < nr; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
	return NULL;
}

/* --- host ---------------------------------------------------------------- */

static void host_path(char ret[108], const char *session, uint32_t slot)
{
	snprintf(ret, 108, "%s/%s.%u", w.dir, session, slot);
}

static int host_socket(const char *session, uint32_t slot, bool listening,
		       int *ret, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX,
			SOCK_SEQPACKET | SOCK_CLOEXEC |
				(listening ? 0 : SOCK_NONBLOCK),
			0);

	host_path(a.sun_path, session, slot);
	if (listening ? bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
				listen(fd, 4) < 0
		      : connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		int en = errno;

		close(fd);
		return err_sys(e, en, "socket %s", a.sun_path);
	}
	*ret = fd;
	return 0;
}

static int host_listen(void *ctx, const char *session, uint32_t slot, int *ret,
		       struct err *e)
{
	(void)ctx;
	return host_socket(session, slot, true, ret, e);
}

static int host_connect(void *ctx, const char *session, uint32_t slot, int *ret,
			struct err *e)
{
	(void)ctx;
	return host_socket(session, slot, false, ret, e);
}

static void host_unlisten(void *ctx, const char *session, uint32_t slot)
{
	char path[108];

	(void)ctx;
	host_path(path, session, slot);
	w.unlistened += unlink(path) == 0;
}

static int host_sockets(void *ctx,
			void (*fn)(void *arg, const char *session, uint32_t slot),
			void *arg, struct err *e)
{
	DIR *dir = opendir(w.dir);
	struct dirent *d;

	(void)ctx;
	(void)e;
	while ((d = readdir(dir))) {
		char session[ID_LEN + 1] = "";

		if (strlen(d->d_name) < ID_LEN + 2)
			continue;
		memcpy(session, d->d_name, ID_LEN);
		fn(arg, session,
		   (uint32_t)strtoul(d->d_name + ID_LEN + 1, NULL, 10));
	}
	closedir(dir);
	return 0;
}

static int host_template(void *ctx, const char *digest,
			 struct qemu_template *ret, struct err *e)
{
	(void)ctx;
	if (strcmp(digest, "missing") == 0)
		return err_set(e, -ENOENT, ERR_NOT_FOUND, "no such template");
	*ret = (struct qemu_template){ .kernel_fd = fds_memfd(1, 0),
				       .initrd_fd = fds_memfd(1, 0),
				       .disk_fd = fds_memfd(1, 0),
				       .kernel_digest = { 7 } };
	return 0;
}

static int host_overlay(void *ctx, const char *session, int *ret, struct err *e)
{
	(void)ctx, (void)session, (void)e;
	*ret = fds_memfd(0, 0);
	return 0;
}

static int host_pack_new(void *ctx, const char *session, uint8_t id[16],
			 uint8_t key[32], int *ret, struct err *e)
{
	(void)ctx, (void)session;
	if (w.refuse_pack)
		return err_set(e, w.refuse_pack, ERR_NO_SPACE, "scripted");
	memset(id, 0x11, 16);
	memset(key, 0x22, 32);
	w.nr_packs++;
	*ret = fds_memfd(0, 0);
	return 0;
}

static int host_pack_open(void *ctx, const char *session, const uint8_t id[16],
			  uint8_t key[32], int *ret, struct err *e)
{
	(void)ctx, (void)id;
	if (strcmp(session, w.pack_owner) != 0)
		return err_set(e, -ENOENT, ERR_NOT_FOUND, "no right to it");
	memset(key, 0x33, 32);
	*ret = fds_memfd(0, 0);
	return 0;
}

static int host_grant(void *ctx, const char *session, const char *from,
		      const uint8_t (*ids)[16], uint32_t nr, struct err *e)
{
	(void)ctx;
	if (w.refuse_grant)
		return err_set(e, w.refuse_grant, ERR_INTERNAL, "scripted");
	if (w.pack_owner[0] && strcmp(from, w.pack_owner) != 0)
		return err_set(e, -ENOENT, ERR_GONE, "%s has none", from);
	pthread_mutex_lock(&w.lock);
	snprintf(w.last_grant, sizeof(w.last_grant), "%s<%s", session, from);
	pthread_mutex_unlock(&w.lock);
	w.nr_granted += nr == 2 && ids[0][0] == 1 && ids[1][0] == 2;
	return 0;
}

static int host_transcript(void *ctx, const char *session, const char *exec,
			   uint32_t epoch, uint8_t key[32], int *ret,
			   struct err *e)
{
	(void)ctx, (void)session, (void)exec, (void)epoch;
	if (w.transcript_exists)
		return err_set(e, -EEXIST, ERR_CONFLICT, "it has records");
	memset(key, 0x44, 32);
	w.nr_transcripts++;
	*ret = fds_memfd(0, 0);
	return 0;
}

static int host_space(void *ctx, struct err *e)
{
	(void)ctx;
	return w.refuse_space ? err_set(e, -ENOSPC, ERR_NO_SPACE, "disk full")
			      : 0;
}

static int host_purge(void *ctx, const char *session, struct err *e)
{
	(void)ctx, (void)e;
	pthread_mutex_lock(&w.lock);
	base_strcpy(w.purged[w.nr_purged % 8], ID_LEN + 1, session);
	w.nr_purged++;
	pthread_mutex_unlock(&w.lock);
	return 0;
}

/* --- outcomes ------------------------------------------------------------ */

static void got_submit(void *ctx, struct command *c)
{
	(void)ctx;
	pthread_mutex_lock(&w.got_lock);
	if (w.nr_got == 256)
		bail("too many outcomes");
	w.got[w.nr_got] = c;
	w.nr_got++; /* only now: tests look without the lock */
	pthread_mutex_unlock(&w.got_lock);
}

/* The next outcome, which must be of this kind; the world owns it. */
static struct command *got(enum command_kind kind)
{
	struct command *c;

	if (!wait_for(w.nr_got > w.next))
		bail("no outcome, %s is missing", command_word(kind));
	pthread_mutex_lock(&w.got_lock);
	c = w.got[w.next++];
	pthread_mutex_unlock(&w.got_lock);
	if (c->kind != kind)
		bail("%s (%s) instead of %s", command_word(c->kind), c->err.msg,
		     command_word(kind));
	return c;
}

/* What the engine would say: committed (0) or refused. */
static void got_done(struct command *c, int rc)
{
	struct reply r = { .rc = rc };

	base_strcpy(r.session, sizeof(r.session), c->session);
	if (rc < 0)
		err_set(&r.err, rc, ERR_GONE, "scripted");
	if (c->done)
		c->done(c->done_ctx, &r);
	c->done = NULL;
}

/* --- the driver ---------------------------------------------------------- */

static void fake_sha256(uint8_t ret[32], const void *p, size_t len)
{
	const uint8_t *b = p;

	memset(ret, 0x5a, 32);
	for (size_t i = 0; i < len; i++)
		ret[i % 32] = (uint8_t)(ret[i % 32] * 31 + b[i]);
}

static bool driver_idle(void)
{
	bool idle;

	pthread_mutex_lock(&w.q->lock);
	idle = !w.q->work && !w.q->queries;
	for (int i = 0; i < QEMU_WORKERS; i++)
		idle = idle && !w.q->at[i].session[0];
	pthread_mutex_unlock(&w.q->lock);
	return idle;
}

/* Descriptors open once the driver has nothing more to do. */
__attribute__((unused)) static int fds_at_rest(void)
{
	if (!wait_for(driver_idle()))
		bail("the driver does not come to rest");
	return fds_count();
}

static void driver_new(void)
{
	struct qemu_conf c = { .helper = w.client,
			       .host = &w.host,
			       .views = &w.store.views,
			       .image_cache_bytes = 1 << 30,
			       .sha256 = fake_sha256 };
	struct err e;

	if (qemu_new(&w.q, &c, &e) < 0 ||
	    qemu_find(w.q, &w.live, &w.nr_live, &e) < 0)
		bail("%s", e.msg);
}

static void driver_run(void)
{
	struct outcome_sink sink = { .submit = got_submit };
	struct err e;

	if (qemu_run(w.q, sink, &e) < 0)
		bail("%s", e.msg);
}

/* The daemon ends, or is killed: its links and threads are gone. */
static void driver_gone(void)
{
	for (int i = 0; i < w.nr_live; i++)
		free(w.live[i].hello);
	free(w.live);
	w.live = NULL;
	w.nr_live = 0;
	qemu_stop(w.q);
	for (int i = 0; i < w.nr_got; i++) {
		if (w.got[i]->done)
			got_done(w.got[i], -EBUSY);
		command_free(w.got[i]);
	}
	w.nr_got = w.next = 0;
	qemu_free(w.q);
	w.q = NULL;
}

MEM_UNUSED static void driver_again(void)
{
	driver_gone();
	driver_new();
	driver_run();
}

static void world_begin(void)
{
	int p[2];

	base_strcpy(w.dir, sizeof(w.dir), "/tmp/cryo-test-XXXXXX");
	if (!mkdtemp(w.dir) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		bail("no world");
	w.helper_fd = p[1];
	w.client = helper_client_new(p[0]);
	if (pthread_create(&w.helper, NULL, helper_main, NULL))
		bail("thread");
	w.host = (struct qemu_host){
		.listen = host_listen,
		.connect = host_connect,
		.unlisten = host_unlisten,
		.sockets = host_sockets,
		.template_open = host_template,
		.overlay = host_overlay,
		.pack_new = host_pack_new,
		.pack_open = host_pack_open,
		.grant = host_grant,
		.transcript = host_transcript,
		.capture_allowed = host_space,
		.purge = host_purge,
		.log_fd = STDERR_FILENO,
	};
	memstore_init(&w.store);
	driver_new();
	driver_run();
}

static void world_end(void)
{
	driver_gone();
	for (uint32_t i = 0; i < VMS; i++) {
		char path[108];

		host_path(path, w.vm[i].session, i);
		unlink(path);
		vm_kill(i);
	}
	helper_client_free(w.client);
	pthread_join(w.helper, NULL);
	close(w.helper_fd);
	memstore_done(&w.store);
	rmdir(w.dir);
	for (int i = 0; i < WIRE_NR; i++)
		w.hold[i] = w.refuse[i] = w.die[i] = 0;
	for (int i = 0; i < HELPER_OP_END; i++)
		w.op_nr[i] = w.refuse_op[i] = w.hold_op[i] = 0;
	w.nr_purged = w.nr_granted = w.nr_packs = w.nr_transcripts = 0;
	w.unlistened = w.refuse_grant = w.refuse_space = w.refuse_pack = 0;
	w.transcript_exists = 0;
	w.pack_owner[0] = w.last_grant[0] = 0;
}

/* --- effects ------------------------------------------------------------- */

static struct effect *effect_of(enum effect_kind kind, const char *session,
				uint64_t epoch, const char *op)
{
	struct effect *fx = effect_new(kind);

	base_strcpy(fx->session, sizeof(fx->session), session);
	base_strcpy(fx->tenant, sizeof(fx->tenant), "t0000000000000000001");
	base_strcpy(fx->operation, sizeof(fx->operation), op);
	fx->epoch = epoch;
	fx->spec.memory_mib = MEMORY_MIB;
	fx->spec.vcpus = 1;
	fx->spec.disk_mib = 64;
	fx->spec.snapshot_every_ns = 60000000000ll;
	return fx;
}

static void give(struct effect *fx)
{
	qemu_backend(w.q)->start(qemu_backend(w.q)->ctx, fx);
}

static void give_kind(enum effect_kind kind, const char *session, uint64_t epoch)
{
	give(effect_of(kind, session, epoch, "o0000000000000000001"));
}

/* A point of `base` that this host can start from. */
static struct effect *restore_of(const char *session, uint64_t epoch,
				 const char *base, const char *point)
{
	struct effect *fx = effect_of(EFFECT_RESTORE, session, epoch,
				      "o0000000000000000001");
	static const uint8_t kernel[32] = { 7 };

	base_strcpy(fx->base.session, sizeof(fx->base.session), base);
	base_strcpy(fx->base.id, sizeof(fx->base.id), point);
	fx->fork = strcmp(session, base) != 0;
	qemu_compat(w.q, &fx->spec, kernel, fx->base.compat);
	return fx;
}

static void give_restore(const char *session, uint64_t epoch, const char *base,
			 const char *point)
{
	give(restore_of(session, epoch, base, point));
}

#endif
