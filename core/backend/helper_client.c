/*
 * helper_client: asks the root helper, waits for its one answer.
 *
 * A mutex makes a call of a request and its reply, so replies need no
 * matching beyond a check. The socket is blocking for sending (a request
 * fits its buffer: only one is ever on the way) and polled for the reply.
 *
 *  1. At most one request is unanswered.
 *  2. Once broken, always broken: no later reply can be taken for another's.
 *  3. Received descriptors are either handed to the caller or closed.
 *
 * If cryod dies in a call the helper finishes the request and finds the
 * socket closed; a sandbox that it started is found by HELPER_LIST.
 */
#include "core/backend/helper_client.h"

#include <poll.h>
#include <pthread.h>

#include "core/clock.h"

#define CALL_TIMEOUT_MS 30000 /* a kill may wait for a large RAM to go */

struct helper_client {
	pthread_mutex_t lock;
	int sock;
	bool broken;
	uint64_t next_id;
};

struct helper_client *helper_client_new(int sock)
{
	struct helper_client *c = base_alloc(sizeof(*c));

	pthread_mutex_init(&c->lock, NULL);
	c->sock = sock;
	c->next_id = 1;
	return c;
}

void helper_client_free(struct helper_client *c)
{
	if (!c)
		return;
	close(c->sock);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

int helper_client_fd(const struct helper_client *c)
{
	return c->sock;
}

static int wait_reply(int sock, struct err *e)
{
	int64_t end = clock_mono(&clock_real) + CALL_TIMEOUT_MS * NS_PER_MS;
	struct pollfd p = { .fd = sock, .events = POLLIN };

	for (;;) {
		int64_t left = end - clock_mono(&clock_real);
		int r = left <= 0 ? 0 : poll(&p, 1, (int)(left / NS_PER_MS) + 1);

		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return err_sys(e, errno, "poll of cryo-helper");
		if (r == 0)
			return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
				       "cryo-helper has not answered for %d "
				       "s: restart `cryo up`",
				       CALL_TIMEOUT_MS / 1000);
	}
}

static void close_fds(const int *fds, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		close(fds[i]);
}

/* Takes and checks the reply; a reply that says error fills e. */
static int take_reply(struct helper_client *c, const struct helper_req *req,
		      struct helper_rep *rep, int *ret_fds, struct err *e)
{
	unsigned nr = 0;
	ssize_t n;
	int r = wait_reply(c->sock, e);

	if (r < 0)
		return r;
	n = helper_recv(c->sock, rep, sizeof(*rep), ret_fds, HELPER_FDS_MAX, &nr);
	if (n < 0)
		return err_sys(e, (int)-n, "read from cryo-helper");
	if (n == 0)
		return err_set(e, -EPIPE, ERR_INTERNAL,
			       "cryo-helper is gone: restart `cryo up`");
	r = helper_rep_check(rep, (size_t)n, nr, req, e);
	if (r < 0)
		close_fds(ret_fds, nr);
	return r;
}

static int call_locked(struct helper_client *c, struct helper_req *req,
		       const int *fds, struct helper_rep *rep, int *ret_fds,
		       struct err *e)
{
	int r;

	if (c->broken)
		return err_set(e, -ENOTCONN, ERR_INTERNAL,
			       "the connection to cryo-helper is broken: "
			       "restart `cryo up`");
	req->id = c->next_id++;
	r = helper_send(c->sock, req, sizeof(*req), fds,
			(unsigned)__builtin_popcount(req->fds));
	if (r < 0)
		err_sys(e, -r, "write to cryo-helper");
	else
		r = take_reply(c, req, rep, ret_fds, e);
	c->broken = r < 0;
	return r;
}

static int call(struct helper_client *c, struct helper_req *req, const int *fds,
		struct helper_rep *rep, int *ret_fds, struct err *e)
{
	int r;

	pthread_mutex_lock(&c->lock);
	r = call_locked(c, req, fds, rep, ret_fds, e);
	pthread_mutex_unlock(&c->lock);
	if (r < 0)
		return r;
	if (rep->error)
		return err_set(e, rep->error, (enum err_code)rep->code, "%s",
			       rep->msg);
	return 0;
}

int helper_client_info(struct helper_client *c, struct helper_info *ret,
		       struct err *e)
{
	int fds[HELPER_FDS_MAX], r;
	struct helper_req req;
	struct helper_rep rep;

	helper_req_init(&req, HELPER_INFO, 0, 0);
	r = call(c, &req, NULL, &rep, fds, e);
	if (r == 0)
		*ret = rep.info;
	return r;
}

int helper_client_spawn_vm(struct helper_client *c, uint32_t slot,
			   const char *session, uint64_t memory_max,
			   int listen_fd, int log_fd, int *ret_pid,
			   int *ret_pidfd, struct err *e)
{
	const int send[HELPER_VM_FDS] = {
		[HELPER_VM_LISTEN] = listen_fd, [HELPER_VM_LOG] = log_fd
	};
	int fds[HELPER_FDS_MAX], r;
	struct helper_req req;
	struct helper_rep rep;

	helper_req_init(&req, HELPER_SPAWN_VM, 0, slot);
	req.fds = (1u << HELPER_VM_FDS) - 1;
	base_strcpy(req.vm.session, sizeof(req.vm.session), session);
	req.vm.memory_max = memory_max;
	r = call(c, &req, send, &rep, fds, e);
	if (r < 0)
		return r;
	*ret_pid = rep.pid;
	*ret_pidfd = fds[0];
	return 0;
}

int helper_client_spawn_vmm(struct helper_client *c, uint32_t slot,
			    const struct vmm_spec *spec, const uint8_t *digest,
			    const int fds[VMM_FD_ROLES], struct helper_vmm *ret,
			    struct err *e)
{
	int send[VMM_FD_ROLES], got[HELPER_FDS_MAX], r;
	struct helper_req req;
	struct helper_rep rep;
	unsigned nr = 0;

	helper_req_init(&req, HELPER_SPAWN_VMM, 0, slot);
	for (int i = 0; i < VMM_FD_ROLES; i++) {
		if (fds[i] < 0)
			continue;
		req.fds |= VMM_FD_BIT(i);
		send[nr++] = fds[i];
	}
	req.vmm.spec = *spec;
	if (digest)
		memcpy(req.vmm.digest, digest, HELPER_DIGEST);
	r = call(c, &req, send, &rep, got, e);
	if (r < 0)
		return r;
	*ret = (struct helper_vmm){
		.pid = rep.pid,
		.pidfd = got[HELPER_VMM_PIDFD],
		.pagemap_fd = got[HELPER_VMM_PAGEMAP],
		.mem_fd = got[HELPER_VMM_MEM],
		.maps_fd = got[HELPER_VMM_MAPS],
	};
	return 0;
}

int helper_client_kill(struct helper_client *c, uint32_t slot, struct err *e)
{
	int fds[HELPER_FDS_MAX];
	struct helper_req req;
	struct helper_rep rep;

	helper_req_init(&req, HELPER_KILL, 0, slot);
	return call(c, &req, NULL, &rep, fds, e);
}

int helper_client_list(struct helper_client *c,
		       uint64_t ret_slots[HELPER_SLOTS / 64], struct err *e)
{
	int fds[HELPER_FDS_MAX], r;
	struct helper_req req;
	struct helper_rep rep;

	helper_req_init(&req, HELPER_LIST, 0, 0);
	r = call(c, &req, NULL, &rep, fds, e);
	if (r == 0)
		memcpy(ret_slots, rep.slots, sizeof(rep.slots));
	return r;
}
