/*
 * api: the door as the daemon sees it: fill in a `struct api_conf`, start,
 * and stop. Everything the door needs from elsewhere is handed in here, so
 * that tests can put fakes behind the real HTTP server.
 */
#ifndef API_API_H
#define API_API_H

#include "core/clock.h"
#include "core/err.h"
#include "core/ports.h"

#include "api/engine_port.h"
#include "api/sandbox_port.h"
#include "api/template_port.h"

#include <sys/types.h>

struct api;

/* What GET /v1/node tells; all by reference, outlive the door. */
struct api_node {
	const char *version; /* CRYO_VERSION */
	const char *backend; /* "qemu" */
	const char *accel; /* "kvm", "tcg" */
	const char *isolation; /* a sentence: what the wall is worth */
	const char *boot_id; /* text form */
	const char *data_dir; /* told to local administration only */
};

struct api_listener {
	int fd; /* listening, non-blocking or not; caller keeps it */
	bool local; /* unix socket: peer's uid decides, no keys */
	const char *host; /* TCP: "ADDR:PORT" that Host may name; else NULL */
};

#define API_LISTENERS_MAX 4

struct api_conf {
	struct engine_port engine;
	struct view_port view;
	struct sandbox_port sandbox;
	struct template_port templates;
	const struct clock *clock;
	/* SHA-256 (FIPS 180-4) of one message: store/crypt has it */
	void (*sha256)(uint8_t ret[32], const void *p, size_t len);
	struct api_node node;
	uid_t owner_uid; /* besides root and our own uid: local admin */
	const char *default_tenant; /* id; whom local administration is */
	struct api_listener listeners[API_LISTENERS_MAX];
	unsigned nr_listeners;
	unsigned max_connections; /* all together; 0: 256 */
	uint64_t max_file_bytes; /* PUT of a file; 0: 1 GiB */
};

/* Starts serving on own threads. Copies `conf`, borrows what it points to. */
int api_start(struct api **ret, const struct api_conf *conf, struct err *e);

/*
 * No new requests; running ones are told to end (streams end within a
 * second) and waited for. The engine must still answer while this runs.
 * NULL is fine.
 */
void api_stop(struct api *a);

#endif
