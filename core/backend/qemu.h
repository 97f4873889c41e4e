/*
 * qemu: the driver for QEMU microVMs, inside cryod: turns effects into
 * requests to the helper and to the session's cryo-vm (core/wire.h), and what
 * comes back into outcome commands. It names no file and knows no key: both
 * come through the port below.
 */
#ifndef CORE_BACKEND_QEMU_H
#define CORE_BACKEND_QEMU_H

#include "core/backend.h"
#include "core/backend/helper_client.h"
#include "core/backend/hub.h"
#include "core/ports.h"

/* Descriptors of a template's files, the caller's; -1 where absent. */
struct qemu_template {
	int kernel_fd, initrd_fd, disk_fd;
	char cmdline[VMM_CMDLINE_MAX];
	uint8_t kernel_digest[32];
};

/*
 * What the driver needs of the host's files and keys. All calls may block on
 * the disk and come from any thread. Descriptors are the caller's.
 */
struct qemu_host {
	void *ctx;
	/* A listening SEQPACKET socket that a later daemon finds again. */
	int (*listen)(void *ctx, const char *session, uint32_t slot,
		      int *ret_fd, struct err *e);
	int (*connect)(void *ctx, const char *session, uint32_t slot,
		       int *ret_fd, struct err *e);
	void (*unlisten)(void *ctx, const char *session, uint32_t slot);
	/* Calls fn for each socket there is; 0. */
	int (*sockets)(void *ctx,
		       void (*fn)(void *arg, const char *session, uint32_t slot),
		       void *arg, struct err *e);
	int (*template_open)(void *ctx, const char *digest,
			     struct qemu_template *ret, struct err *e);
	int (*overlay)(void *ctx, const char *session, int *ret_fd,
		       struct err *e);
	int (*pack_new)(void *ctx, const char *session, uint8_t ret_id[16],
			uint8_t ret_key[32], int *ret_fd, struct err *e);
	/* -ENOENT: the session has no right to it, or it is gone. */
	int (*pack_open)(void *ctx, const char *session, const uint8_t id[16],
			 uint8_t ret_key[32], int *ret_fd, struct err *e);
	/*
	 * Lets `session` read these packs of `from` for as long as it lives.
	 * -ENOENT: it hasn't the right yet, and `from` is gone or has none.
	 */
	int (*grant)(void *ctx, const char *session, const char *from,
		     const uint8_t (*ids)[16], uint32_t nr, struct err *e);
	/* Makes the transcript's file; its key. -EEXIST: it has records. */
	int (*transcript)(void *ctx, const char *session, const char *exec,
			  uint32_t epoch, uint8_t ret_key[32], int *ret_fd,
			  struct err *e);
	/* -ENOSPC when the watermark forbids captures. */
	int (*capture_allowed)(void *ctx, struct err *e);
	/* Keys, packs, transcripts of a destroyed session; repeatable. */
	int (*purge)(void *ctx, const char *session, struct err *e);
	int log_fd; /* stderr of cryo-vm and VMM */
};

#define QEMU_WORKERS 16
#define QEMU_CAPTURES_MAX 2 /* rolling captures at once: the tokens */

struct qemu_conf {
	struct helper_client *helper;
	const struct qemu_host *host;
	const struct view_port *views;
	enum vmm_accel accel;
	uint32_t tsc_khz;
	uint8_t vmm_digest[HELPER_DIGEST];
	uint64_t image_cache_bytes; /* RAM of hot images kept */
	void (*sha256)(uint8_t ret[32], const void *p, size_t len);
	/* An exec's transcript has grown or ended; any thread; or NULL. */
	void (*on_output)(void *ctx, const char *session, const char *tag,
			  const struct wire_output *o);
	void *on_output_ctx;
};

struct qemu;

int qemu_new(struct qemu **ret, const struct qemu_conf *c, struct err *e);

/*
 * Ends the threads and links; sandboxes live on, and what was under way is
 * neither undone nor reported: the next daemon finds it. Comes before the
 * engine is freed, which comes before qemu_free(). NULL is fine.
 */
void qemu_stop(struct qemu *q);
void qemu_free(struct qemu *q);

const struct backend *qemu_backend(struct qemu *q);

/*
 * Finds the sandboxes that an earlier daemon left: connects to each socket.
 * Must come before engine_recover(), which gets *ret (owned, with its
 * hellos), and before qemu_run(), which lets outcomes go to the engine.
 */
int qemu_find(struct qemu *q, struct backend_live **ret, int *ret_nr,
	      struct err *e);
int qemu_run(struct qemu *q, struct outcome_sink sink, struct err *e);

/*
 * Boots a machine of this shape once and ends it: the proof that the
 * accelerator of this driver runs a Linux guest. Blocks; before qemu_run().
 */
int qemu_try_boot(struct qemu *q, const struct session_spec *spec,
		  int timeout_ms, struct err *e);

/* The link to a running sandbox, one reference; NULL if there is none. */
struct hub_link *qemu_link(struct qemu *q, const char *session);

/* The compatibility key of points of this shape on this host. */
void qemu_compat(const struct qemu *q, const struct session_spec *spec,
		 const uint8_t kernel_digest[32], uint8_t ret[32]);

#endif
