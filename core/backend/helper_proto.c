/*
 * helper_proto: checks and carries the messages between cryod and the root
 * helper.
 *
 * The checks are pure: what a request says about itself, its numbers and its
 * descriptors' roles. What the descriptors really are is checked by the
 * helper, which alone may look. Sending and taking is one sendmsg/recvmsg
 * per message: SEQPACKET keeps boundaries, so there is no framing.
 *
 *  1. A request that fails the check has no effect.
 *  2. Descriptors of a message that is not accepted are closed.
 *
 * A crash on either side ends the connection; nothing is queued elsewhere.
 */
#include "core/backend/helper_proto.h"

#include <sys/socket.h>
#include <sys/uio.h>

/* Which fields a request of each kind uses. */
static const struct {
	bool slot;
	uint32_t fds_must;
} ops[HELPER_OP_END] = {
	[HELPER_INFO] = { false, 0 },
	[HELPER_SPAWN_VM] = { true, (1u << HELPER_VM_FDS) - 1 },
	[HELPER_SPAWN_VMM] = { true, 0 }, /* by vmm_spec_check() */
	[HELPER_KILL] = { true, 0 },
	[HELPER_LIST] = { false, 0 },
};

void helper_req_init(struct helper_req *r, enum helper_op op, uint64_t id,
		     uint32_t slot)
{
	memset(r, 0, sizeof(*r));
	r->magic = HELPER_MAGIC;
	r->version = HELPER_VERSION;
	r->op = (uint16_t)op;
	r->size = sizeof(*r);
	r->id = id;
	r->slot = slot;
}

static int check_vm(const struct helper_req *r, struct err *e)
{
	if (!memchr(r->vm.session, 0, sizeof(r->vm.session)) ||
	    !id_valid(r->vm.session))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "session of slot %u is not an id", r->slot);
	if (r->vm.memory_max < (uint64_t)VMM_MEMORY_MIB_MIN << 20)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "memory limit of slot %u is under %u MiB",
			       r->slot, VMM_MEMORY_MIB_MIN);
	if (r->vm.memory_max > (uint64_t)INT64_MAX)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "memory limit of slot %u is absurd", r->slot);
	return 0;
}

static int check_fields(const struct helper_req *r, struct err *e)
{
	if (ops[r->op].slot ? r->slot >= HELPER_SLOTS : r->slot != 0)
		return err_set(e, -EINVAL, ERR_INVALID, "slot %u: there are %u",
			       r->slot, HELPER_SLOTS);
	if (r->op == HELPER_SPAWN_VMM)
		return vmm_spec_check(&r->vmm.spec, r->fds, e);
	if (r->fds != ops[r->op].fds_must)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "request %u: descriptors 0x%x instead of 0x%x",
			       r->op, r->fds, ops[r->op].fds_must);
	return r->op == HELPER_SPAWN_VM ? check_vm(r, e) : 0;
}

int helper_req_check(const struct helper_req *r, size_t len, unsigned nr_fds,
		     struct err *e)
{
	if (len != sizeof(*r) || r->magic != HELPER_MAGIC ||
	    r->version != HELPER_VERSION || r->size != sizeof(*r))
		return err_set(e, -EPROTO, ERR_INVALID,
			       "not a request of this helper's version %d: "
			       "cryod and cryo-helper must be of one build",
			       HELPER_VERSION);
	if (r->op == 0 || r->op >= HELPER_OP_END || r->pad != 0)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "request of unknown kind %u", r->op);
	if ((unsigned)__builtin_popcount(r->fds) != nr_fds)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "request %u: %u descriptors instead of %d",
			       r->op, nr_fds, __builtin_popcount(r->fds));
	return check_fields(r, e);
}

static unsigned reply_fds(uint16_t op)
{
	return op == HELPER_SPAWN_VM	? 1u
	       : op == HELPER_SPAWN_VMM ? (unsigned)HELPER_VMM_FDS
					: 0u;
}

int helper_rep_check(const struct helper_rep *r, size_t len, unsigned nr_fds,
		     const struct helper_req *req, struct err *e)
{
	unsigned want;

	if (len != sizeof(*r) || r->magic != HELPER_MAGIC ||
	    r->version != HELPER_VERSION || r->size != sizeof(*r))
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "cryo-helper's reply is not of version %d: "
			       "cryod and cryo-helper must be of one build",
			       HELPER_VERSION);
	if (r->op != req->op || r->id != req->id)
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "cryo-helper answered another request");
	if (!memchr(r->msg, 0, sizeof(r->msg)) || r->code >= ERR_NR ||
	    r->error > 0 || r->error < -4095)
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "cryo-helper's reply is malformed");
	want = r->error ? 0 : reply_fds(r->op);
	if (nr_fds != want || r->nr_fds != want)
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "cryo-helper's reply has %u descriptors "
			       "instead of %u",
			       nr_fds, want);
	return 0;
}

int helper_send(int sock, const void *p, size_t len, const int *fds,
		unsigned nr_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(HELPER_FDS_MAX * sizeof(int))];
	} control = { .buf = { 0 } };
	struct iovec iov = { .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	PRE(nr_fds <= HELPER_FDS_MAX);
	memcpy(&iov.iov_base, &p, sizeof(p)); /* sendmsg only reads */
	if (nr_fds) {
		struct cmsghdr *c = &control.align;

		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nr_fds * sizeof(int));
	}
	do
		n = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EMSGSIZE;
}

/* Collects descriptors; closes and counts those that don't fit. */
static unsigned take_fds(struct msghdr *m, int *ret, unsigned max,
			 unsigned *ret_nr)
{
	unsigned lost = 0;

	*ret_nr = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (*ret_nr < max) {
				ret[(*ret_nr)++] = fd;
			} else {
				close(fd);
				lost++;
			}
		}
	}
	return lost;
}

ssize_t helper_recv(int sock, void *p, size_t len, int *ret_fds,
		    unsigned max_fds, unsigned *ret_nr_fds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(HELPER_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = p, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	int fds[HELPER_FDS_MAX];
	unsigned nr = 0, lost;
	ssize_t n;

	PRE(max_fds <= HELPER_FDS_MAX);
	do
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	lost = take_fds(&m, fds, max_fds, &nr);
	if (lost || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		for (unsigned i = 0; i < nr; i++)
			close(fds[i]);
		return -EPROTO;
	}
	if (nr)
		memcpy(ret_fds, fds, nr * sizeof(int));
	*ret_nr_fds = nr;
	return n;
}
