/*
 * packs: what the snapshotter needs from outside, for tests: packs that are
 * memory files, and a disk that forgets what was not synced and fails when
 * told to.
 */
#ifndef TESTS_PACKS_H
#define TESTS_PACKS_H

#include "snapshotter/io.h"
#include "store/pack.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <sys/mman.h>

#define PACKS_MAX 4096

struct packs_one {
	uint8_t id[PACK_ID_LEN];
	uint8_t key[CRYPT_KEY_LEN];
	int fd;
};

struct packs {
	struct packs_one p[PACKS_MAX];
	unsigned int nr;
	unsigned int supplied; /* times that a pack was asked for */
	bool refuse_next; /* give no new pack */
	uint8_t data_key[CRYPT_KEY_LEN];
};

__attribute__((unused)) static int packs_next(void *ctx, uint8_t *ret_id,
					      uint8_t *ret_key, int *ret_fd,
					      struct err *e)
{
	struct packs *ps = ctx;
	struct packs_one *p = &ps->p[ps->nr];

	if (ps->refuse_next)
		return err_set(e, -ENOSPC, ERR_NO_SPACE, "no pack for a test");
	if (ps->nr == PACKS_MAX)
		bail("the test needs more packs");
	base_random(p->id, sizeof(p->id));
	pack_key_derive(p->key, ps->data_key, p->id);
	p->fd = memfd_create("pack", MFD_CLOEXEC);
	ps->nr++;
	memcpy(ret_id, p->id, sizeof(p->id));
	memcpy(ret_key, p->key, sizeof(p->key));
	*ret_fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
	return 0;
}

__attribute__((unused)) static struct packs_one *packs_find(struct packs *ps,
							    const uint8_t *id)
{
	for (unsigned int i = 0; i < ps->nr; i++) {
		if (!memcmp(ps->p[i].id, id, PACK_ID_LEN))
			return &ps->p[i];
	}
	return NULL;
}

__attribute__((unused)) static int packs_supply(void *ctx, const uint8_t *id,
						int *ret_fd, uint8_t *ret_key,
						struct err *e)
{
	struct packs *ps = ctx;
	struct packs_one *p = packs_find(ps, id);

	ps->supplied++;
	if (!p)
		return err_set(e, -ENOENT, ERR_NOT_FOUND, "no such pack");
	*ret_fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
	memcpy(ret_key, p->key, sizeof(p->key));
	return 0;
}

__attribute__((unused)) static void packs_done(struct packs *ps)
{
	for (unsigned int i = 0; i < ps->nr; i++)
		close(ps->p[i].fd);
	ps->nr = 0;
}

/* --- a disk that forgets -------------------------------------------------- */

struct packs_write {
	struct packs_write *next;
	int fd; /* our own copy */
	int same_as; /* the writer's number, to match syncs */
	uint8_t *p;
	size_t len;
	uint64_t off;
};

struct packs_disk {
	struct io io; /* first */
	struct packs_write *pending;
	int fail_write_in; /* the n-th write from now fails; 0: none */
	int fail_sync_in;
	unsigned int writes, syncs;
};

__attribute__((unused)) static void packs_settle(struct packs_write *w, size_t len)
{
	if (len && base_pwrite_all(w->fd, w->p, len, w->off) < 0)
		bail("memory file is full");
	close(w->fd);
	free(w->p);
	free(w);
}

__attribute__((unused)) static void packs_submit(struct io *io, struct io_op *op)
{
	struct packs_disk *d = (struct packs_disk *)io;
	struct packs_write *w;

	if (op->kind == IO_WRITE) {
		d->writes++;
		op->result = d->fail_write_in && --d->fail_write_in == 0 ? -ENOSPC
									 : 0;
		if (op->result < 0)
			return;
		w = base_alloc(sizeof(*w));
		w->fd = fcntl(op->fd, F_DUPFD_CLOEXEC, 0);
		w->same_as = op->fd;
		w->p = base_alloc(op->len);
		memcpy(w->p, op->p, op->len);
		w->len = op->len;
		w->off = op->off;
		w->next = d->pending;
		d->pending = w;
		return;
	}
	d->syncs++;
	op->result = d->fail_sync_in && --d->fail_sync_in == 0 ? -EIO : 0;
	for (struct packs_write **at = &d->pending; *at && !op->result;) {
		w = *at;
		if (w->same_as != op->fd) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		packs_settle(w, w->len);
	}
}

__attribute__((unused)) static void packs_wait(struct io *io)
{
	(void)io;
}

__attribute__((unused)) static ssize_t packs_read(struct io *io, int fd, void *p,
						  size_t len, uint64_t off)
{
	(void)io;
	return io_pread(fd, p, len, off);
}

/* Power is lost: of what was not synced, some pieces got to the disk. */
__attribute__((unused)) static void packs_crash(struct packs_disk *d,
						uint64_t *seed)
{
	while (d->pending) {
		struct packs_write *w = d->pending;
		uint64_t r = tap_rand(seed);

		d->pending = w->next;
		packs_settle(w, r % 3 ? 0 : (r >> 8) % (w->len + 1));
	}
	d->fail_write_in = d->fail_sync_in = 0;
}

__attribute__((unused)) static const struct io_ops packs_disk_ops = {
	.submit = packs_submit,
	.wait = packs_wait,
	.read = packs_read,
};

/* --- content -------------------------------------------------------------- */

/* Pages by number: 0 is zeros, others differ; some compress, some don't. */
__attribute__((unused)) static void packs_page(void *page, uint32_t n)
{
	uint64_t seed = n, *w = page;

	memset(page, 0, CRYO_PAGE);
	for (size_t i = 0; n && i < CRYO_PAGE / 8; i++)
		w[i] = n % 3 == 0 || i % 8 == 0 ? tap_rand(&seed) : n;
}

#endif
