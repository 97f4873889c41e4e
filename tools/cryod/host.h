/*
 * host: the daemon's files and keys, as the QEMU driver and the readers of
 * transcripts need them. The only code that turns ids into paths below the
 * data folder. Any thread.
 *
 *   DATA/packs/ab/SESSION/HEX.pack        what the session wrote
 *   DATA/packs/ab/SESSION/base/HEX.pack   hard links: what it was granted
 *   DATA/transcripts/ab/SESSION/EXEC.EPOCH
 *   DATA/templates/DIGEST/{template.json,vmlinux,initrd.cpio,disk.img}
 *   DATA/run/SESSION.SLOT                 sockets of cryo-vms
 *
 * Granted packs are hard links, so that a parent's end leaves its children's
 * packs in place without anybody counting references.
 */
#ifndef TOOLS_CRYOD_HOST_H
#define TOOLS_CRYOD_HOST_H

#include "core/backend/qemu.h"
#include "store/keys.h"

struct host {
	const char *data; /* the data folder */
	struct keys *keys;
	struct qemu_host port;
};

/* Borrows both; h must stay where it is. */
void host_init(struct host *h, const char *data, struct keys *keys);

/* A transcript for reading, and its key. -ENOENT without touching e. */
int host_transcript_read(struct host *h, const char *session, const char *exec,
			 uint32_t epoch, uint8_t ret_key[32], int *ret_fd,
			 struct err *e);

/* A template's description, checked against its name; and its files, too. */
int host_template_describe(const struct host *h, const char *digest,
			   json_t **ret, struct err *e);
int host_template_check(const struct host *h, const char *digest, json_t **ret,
			struct err *e);

/* Folders of templates in DATA/templates; calls fn with each digest. */
int host_templates(const struct host *h,
		   void (*fn)(void *ctx, const char *digest), void *ctx,
		   struct err *e);

int host_template_open(void *ctx, const char *digest, struct qemu_template *ret,
		       struct err *e);

#endif
