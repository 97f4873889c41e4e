/*
 * qmp: QEMU's control protocol over a connected socket, for the one thread
 * that owns the VM. Calls are synchronous, each with a deadline. The VMM is
 * hostile: a line is at most 64 KiB, an answer must be JSON of the right
 * shape, text from it is cleaned before it enters an error. Whatever breaks
 * the protocol breaks the connection for good (-EPROTO, then -ENOTCONN).
 *
 * Source: docs/interop/qmp-spec.txt and the QMP reference of QEMU 7.2.
 */
#ifndef CORE_BACKEND_QMP_H
#define CORE_BACKEND_QMP_H

#include "core/buf.h"
#include "core/err.h"
#include "core/json.h"

#define QMP_LINE_MAX (64u << 10)
#define QMP_STATE_MAX (1u << 20) /* bytes of saved device state */

struct qmp;

/*
 * Called for each event, from inside any qmp function. `data` may be NULL;
 * both are borrowed. Must not call qmp functions.
 */
typedef void (*qmp_event_fn)(void *ctx, const char *name, const json_t *data);

/* Takes the socket and makes it non-blocking. `fn` may be NULL. */
struct qmp *qmp_new(int sock, qmp_event_fn fn, void *ctx);
void qmp_free(struct qmp *q);
int qmp_fd(const struct qmp *q); /* for poll: readable -> qmp_pump() */

/* Reads the greeting, negotiates, asks for migration events. First call. */
int qmp_handshake(struct qmp *q, int timeout_ms, struct err *e);

/*
 * Gives QEMU a file to save device state to. Takes both descriptors of one
 * memfd: `wr` opened write-only (QEMU takes nothing else for a write-only
 * open) and `rd`, readable, our view of it. Once, after the handshake. In
 * cryo-vm: HELPER_VM_STATE_WR_FD and HELPER_VM_STATE_RD_FD.
 */
int qmp_set_state_file(struct qmp *q, int wr, int rd, int timeout_ms,
		       struct err *e);

/*
 * Takes what is there without waiting and delivers its events. -EPIPE: the
 * VMM closed the connection.
 */
int qmp_pump(struct qmp *q, struct err *e);

/*
 * Executes one command. `args` is taken (may be NULL); `fd` goes along by
 * SCM_RIGHTS, -1 for none, borrowed. The caller owns *ret (may be NULL when
 * not wanted). -EREMOTEIO: QEMU answered with an error, its text is in e;
 * -ETIMEDOUT: no answer; a late one is dropped.
 */
int qmp_call(struct qmp *q, const char *command, json_t *args, int fd,
	     int timeout_ms, json_t **ret, struct err *e);

/* Waits for an event by name; the caller owns *ret_data (may be NULL). */
int qmp_wait_event(struct qmp *q, const char *name, int timeout_ms,
		   json_t **ret_data, struct err *e);

/* --- what a sandbox needs, on top ---------------------------------------- */

/* Stops the vCPUs; all disk requests have been answered on return. */
int qmp_vm_stop(struct qmp *q, int timeout_ms, struct err *e);

/* Lets them run; repeats while a load is still being finished. */
int qmp_vm_cont(struct qmp *q, int timeout_ms, struct err *e);

/* "running", "paused", "io-error", ... into ret (at least 32 bytes). */
int qmp_vm_status(struct qmp *q, char *ret, size_t len, int timeout_ms,
		  struct err *e);

/*
 * Appends the device state of the stopped VM to `ret` (`live:false`, so the
 * disk stays active; may be repeated), at most QMP_STATE_MAX bytes. Needs
 * qmp_set_state_file().
 */
int qmp_vm_save_devices(struct qmp *q, struct buf *ret, int timeout_ms,
			struct err *e);

/*
 * Loads device state into a VMM that was started in VMM_INCOMING; the VM is
 * paused afterwards. A state of another build or device list is an error
 * (and the VMM ends).
 */
int qmp_vm_load_devices(struct qmp *q, const void *state, size_t len,
			int timeout_ms, struct err *e);

/* Asks QEMU to end; the pidfd tells when it has. */
int qmp_vm_quit(struct qmp *q, int timeout_ms, struct err *e);

#endif
