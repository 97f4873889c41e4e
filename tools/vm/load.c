/*
 * load: the image that this sandbox starts from: a point materialised out of
 * its packs (LOAD), or one that another cryo-vm of the same tenant has
 * materialised and the daemon hands over (IMAGE). Three sealed memfds make an
 * image: RAM, the page table, the device state.
 *
 * Invariants: 1. what goes to the daemon is sealed against every change.
 * 2. A loaded point was checked page by page against the root in its event.
 */
#include "tools/vm/vm.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "core/log.h"
#include "snapshotter/restore.h"

#define LOAD_THREADS 2
#define DEVICE_MAX FRAME_PLAIN_MAX
#define LOAD_SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int load_read_base(void *ctx, uint32_t block, void *page)
{
	struct vm *vm = ctx;
	uint64_t loc = image_disk_loc(vm->image, block);
	struct err e;
	int r;

	if (loc == LOC_BASE)
		return 1;
	if (loc == LOC_ZERO) {
		memset(page, 0, CRYO_PAGE);
		return 0;
	}
	pthread_mutex_lock(&vm->base_lock);
	r = packset_read_page(vm->base_reader, loc, page, &e);
	pthread_mutex_unlock(&vm->base_lock);
	return r;
}

bool load_maps_base(void *ctx, uint32_t block)
{
	struct vm *vm = ctx;

	return image_disk_loc(vm->image, block) != LOC_BASE;
}

void load_open_packs(struct vm *vm)
{
	uint32_t nr = packset_count(vm->packs);
	SCOPED_FREE bool *used = base_alloc((nr + 1) * sizeof(*used));
	struct err e;

	for (uint32_t i = 0; i < image_pages(vm->image, PAGE_DISK); i++) {
		uint64_t loc = image_disk_loc(vm->image, i);

		if (loc != LOC_BASE && loc != LOC_ZERO)
			used[loc_pack(loc)] = true;
	}
	for (uint32_t i = 0; i < nr; i++)
		if (used[i] && packset_open(vm->packs, i, &e) < 0)
			log_warn("event=pack_not_open session=%s why=\"%s\"",
				 vm->setup.session, e.msg);
}

static int load_memfd(const char *name, uint64_t len, int *ret_fd, struct err *e)
{
	SCOPED_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)len) < 0)
		return err_sys(e, errno, "make a memfd of %llu bytes",
			       (unsigned long long)len);
	*ret_fd = base_steal_fd(&fd);
	return 0;
}

static int load_seal(int fd, struct err *e)
{
	if (fcntl(fd, F_ADD_SEALS, LOAD_SEALS) < 0)
		return err_sys(e, errno, "seal a memory image");
	return 0;
}

static uint64_t load_ram_len(const struct vm *vm)
{
	return (uint64_t)vm->setup.memory_mib << 20;
}

/* Is the point of the size that this sandbox was set up for? */
static int load_check_sizes(const struct vm *vm, const struct manifest *m,
			    struct err *e)
{
	uint32_t pages = manifest_pages(m, PAGE_MEMORY);

	if (pages != load_ram_len(vm) / CRYO_PAGE ||
	    manifest_pages(m, PAGE_DISK) != vm->setup.disk_blocks)
		return err_set(
			e, -EINVAL, ERR_MISMATCH,
			"point has %u pages of memory and %u blocks of disk, the session has %llu and %u",
			pages, manifest_pages(m, PAGE_DISK),
			(unsigned long long)(load_ram_len(vm) / CRYO_PAGE),
			vm->setup.disk_blocks);
	return 0;
}

/* What follows from an image that is there: packer, readers. */
static void load_ready(struct vm *vm, struct image *img)
{
	vm->image = img;
	vm->base_reader = packset_reader_new(vm->packs);
	vm->phase = WIRE_PHASE_LOADED;
}

static int load_restore(struct vm *vm, const struct wire_load *q, int ram_fd,
			struct err *e)
{
	struct pack_ref at = { .offset = q->offset };
	struct restore *rs = NULL;
	int r;

	memcpy(at.id, q->pack, sizeof(at.id));
	r = restore_open(&rs, vm->packs, &at, q->root, e);
	if (r == 0)
		r = load_check_sizes(vm, restore_manifest(rs), e);
	if (r == 0)
		r = restore_device(rs, &vm->device, e);
	if (r == 0)
		r = restore_memory(rs, ram_fd, LOAD_THREADS, e);
	if (r == 0)
		load_ready(vm, restore_take_image(rs));
	restore_free(rs);
	return r;
}

static int load_export(struct vm *vm, int fds[WIRE_IMAGE_FDS], struct err *e)
{
	int r = load_seal(vm->ram_fd, e);

	if (r == 0)
		r = image_export(vm->image, vm->packs, &fds[1], e);
	if (r == 0)
		r = load_memfd("cryo-device", vm->device.len, &fds[2], e);
	if (r < 0)
		return r;
	r = base_pwrite_all(fds[2], vm->device.p, vm->device.len, 0);
	if (r < 0)
		return err_sys(e, -r, "write the device state");
	fds[0] = vm->ram_fd;
	return load_seal(fds[2], e);
}

static void load_answer(struct vm *vm, struct job *j, int64_t since_ns,
			const int fds[WIRE_IMAGE_FDS])
{
	struct wire_loaded l = { .us = (loop_now_ns() - since_ns) / 1000 };
	SCOPED(buf_done) struct buf packs = { 0 };
	const struct image_map *m = &vm->image->map[PAGE_MEMORY];
	struct err e;

	image_packs(vm->image, vm->packs, &packs);
	l.nr_packs = (uint32_t)(packs.len / PACK_ID_LEN);
	for (uint32_t i = 0; i < m->nr_chunks; i++)
		l.memory_pages += m->chunk[i].mapped;
	if (l.nr_packs > WIRE_PACKS_MAX) {
		err_set(&e, -E2BIG, ERR_LIMIT,
			"point uses %u packs, at most %u are supported",
			l.nr_packs, WIRE_PACKS_MAX);
		link_reply_err(vm->link, j->from, -E2BIG, &e);
		return;
	}
	link_reply(vm->link, j->from, &l, sizeof(l), packs.p, packs.len, fds,
		   WIRE_IMAGE_FDS);
}

void load_point(struct vm *vm, struct job *j)
{
	int fds[WIRE_IMAGE_FDS] = { -1, -1, -1 };
	int64_t since = loop_now_ns();
	struct wire_load q;
	struct err e;
	int r;

	memcpy(&q, j->body, sizeof(q));
	if (vm->phase != WIRE_PHASE_SETUP)
		r = err_set(&e, -EINVAL, ERR_INTERNAL, "LOAD in the wrong phase");
	else
		r = load_memfd("cryo-ram", load_ram_len(vm), &vm->ram_fd, &e);
	if (r == 0)
		r = load_restore(vm, &q, vm->ram_fd, &e);
	if (r == 0)
		r = load_export(vm, fds, &e);
	if (r == 0)
		load_answer(vm, j, since, fds);
	else
		link_reply_err(vm->link, j->from, r, &e);
	base_close_p(&fds[1]);
	base_close_p(&fds[2]);
}

/* Reads a sealed memfd of another process whole. */
static int load_read_device(int fd, struct buf *ret, struct err *e)
{
	off_t len = lseek(fd, 0, SEEK_END);
	int r;

	if (len <= 0 || len > (off_t)DEVICE_MAX)
		return err_set(e, -EINVAL, ERR_INTERNAL,
			       "device state of %lld bytes", (long long)len);
	r = base_pread_all(fd, buf_reserve(ret, (size_t)len), (size_t)len, 0);
	if (r < 0)
		return err_sys(e, -r, "read the device state");
	ret->len += (size_t)len;
	return 0;
}

void load_image(struct vm *vm, struct job *j)
{
	struct image *img = NULL;
	struct err e;
	int r;

	if (vm->phase != WIRE_PHASE_SETUP)
		r = err_set(&e, -EINVAL, ERR_INTERNAL,
			    "IMAGE in the wrong phase");
	else
		r = load_read_device(j->fds[2], &vm->device, &e);
	if (r == 0)
		r = image_import(&img, j->fds[1], vm->packs, &e);
	if (r == 0 &&
	    (img->map[PAGE_MEMORY].nr_pages != load_ram_len(vm) / CRYO_PAGE ||
	     img->map[PAGE_DISK].nr_pages != vm->setup.disk_blocks)) {
		image_free(img);
		r = err_set(&e, -EINVAL, ERR_MISMATCH,
			    "image and session differ in size");
	}
	if (r < 0) {
		link_reply_err(vm->link, j->from, r, &e);
		return;
	}
	vm->ram_fd = job_take_fd(j, 0);
	load_ready(vm, img);
	link_reply(vm->link, j->from, NULL, 0, NULL, 0, NULL, 0);
}
