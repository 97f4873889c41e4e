/*
 * daemon: cryod put together: what main.c parses and starts.
 */
#ifndef TOOLS_CRYOD_DAEMON_H
#define TOOLS_CRYOD_DAEMON_H

#include "api/api.h"
#include "api/listen.h"
#include "core/engine.h"
#include "store/view.h"
#include "tools/cryod/sandbox.h"

struct daemon_options {
	const char *data; /* relative to the working folder */
	const char *data_name; /* absolute, for people */
	const char *listen; /* "ADDR:PORT", or NULL */
	const char *provider_key; /* path, or NULL: in the data folder */
	bool insecure_plain;
	bool want_kvm, want_tcg;
};

struct daemon {
	struct daemon_options opt;
	struct helper_client *helper;
	struct helper_info info;
	struct keys *keys;
	struct evlog *log;
	struct view_port views;
	struct store_port store;
	struct host host;
	struct output *output;
	struct qemu_conf qemu_conf;
	struct qemu *qemu;
	struct engine *engine;
	struct sandbox_calls calls;
	struct api *api;
	struct listen_addr addr;
	char tenant[ID_LEN + 1]; /* the default one */
	char host_name[LISTEN_HOST_MAX + 8];
	char platform[33], boot_id[37];
	char accel_why[256];
	int unix_fd, tcp_fd;
};

/* Everything up to serving; on failure e says what to do. */
int daemon_start(struct daemon *d, const struct daemon_options *o, struct err *e);
/* Every few seconds: forgets keys, puts the ballast back. */
void daemon_tick(struct daemon *d);
/* Ends in order; sandboxes go on. Also after a failed start. */
void daemon_stop(struct daemon *d);

#endif
