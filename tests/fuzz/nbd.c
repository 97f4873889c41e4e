/*
 * Fuzz target (libFuzzer): the NBD server fed with a VMM's bytes. The first
 * byte says whether the input begins before the negotiation or right after a
 * good one, so that both halves are reached. Each capture protocol step the
 * second byte asks for runs before: what the VMM says may never break it.
 */
#include "snapshotter/disk_nbd.h"

#include <sys/mman.h>

#define NR 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct input {
	const uint8_t *p;
	size_t len;
};

static int input_recv(void *ctx, void *p, size_t len)
{
	struct input *in = ctx;

	if (len > in->len)
		return in->len ? -ECONNRESET : -EPIPE;
	memcpy(p, in->p, len);
	in->p += len;
	in->len -= len;
	return 0;
}

/* Reads all that is sent, so that a sanitizer sees every byte. */
static int input_send(void *ctx, const void *head, size_t head_len,
		      const void *body, size_t body_len)
{
	const uint8_t *h = head, *b = body;
	volatile uint8_t sum = 0;

	(void)ctx;
	for (size_t i = 0; i < head_len; i++)
		sum ^= h[i];
	for (size_t i = 0; i < body_len; i++)
		sum ^= b[i];
	return 0;
}

static const struct disk_ops ops = { NULL, NULL, NULL };

static void serve(struct disk *d, const uint8_t *data, size_t len)
{
	struct input in = { data, len };
	struct disk_nbd_io io = { input_recv, input_send, &in };
	struct err e;

	(void)disk_nbd_serve(d, &io, &e);
}

/* Negotiation, then the input as requests. */
static void serve_requests(struct disk *d, const uint8_t *data, size_t len)
{
	static const uint8_t good[] = "\0\0\0\3IHAVEOPT\0\0\0\7\0\0\0\10"
				      "\0\0\0\0\0\1\0\3";
	const size_t good_len = sizeof(good) - 1;
	SCOPED_FREE uint8_t *all = base_alloc(good_len + len);

	memcpy(all, good, good_len);
	memcpy(all + good_len, data, len);
	serve(d, all, good_len + len);
}

static void drain(struct disk *d, bool commit)
{
	uint8_t page[DISK_BLOCK];
	uint32_t block;
	struct err e;

	while (commit && disk_frozen_next(d, &block, page, &e) == 1)
		if (block >= NR)
			abort();
	if (commit)
		disk_commit(d);
	else
		disk_abort(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct disk_config c = { .nr_blocks = NR,
				 .staging_blocks = NR, /* nobody drains */
				 .template_fd = -1,
				 .ops = &ops };
	struct disk *d;
	struct err e;

	if (len < 2)
		return 0;
	c.overlay_fd = memfd_create("overlay", 0);
	if (disk_new(&d, &c, &e))
		abort();
	if (data[1] & 1) {
		serve_requests(d, data + 2, len - 2);
		disk_freeze(d);
	}
	if (data[0] & 1)
		serve_requests(d, data + 2, len - 2);
	else
		serve(d, data + 2, len - 2);
	if (data[1] & 1)
		drain(d, data[1] & 2);
	disk_free(d);
	return 0;
}
