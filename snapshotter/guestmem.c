/*
 * guestmem: finds guest RAM in a VMM's address space and reads pages of it.
 *
 * The VMM maps the memfd that it was started on; maps names each mapping's
 * device, inode and offset, so RAM is found by identity, not by size or
 * guess. The kernel may show it as several neighbours; they must cover the
 * memfd from its start without a hole, at one stretch of addresses.
 *
 *  1. Only addresses inside that stretch are ever read.
 *  2. The maps file is the VMM's (hostile) address space: bounded lines,
 *     checked numbers, nothing of it is kept but one address.
 *
 * Holds one descriptor and no state: a crash leaves nothing.
 */
#include "snapshotter/guestmem.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/buf.h"

#define MAPS_MAX (8u << 20) /* QEMU's are some 30 KiB */

struct guestmem {
	int mem_fd;
	uint32_t pages;
	uint64_t addr;
};

struct find {
	dev_t dev;
	ino_t ino;
	uint64_t len;
	uint64_t addr, found; /* start, and bytes found in a row */
};

/* "start-end perms offset major:minor inode  path" */
static void look_at(struct find *f, const char *line)
{
	unsigned long long start, end, off, ino;
	unsigned major, minor;
	char perms[5];

	if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &start, &end, perms,
		   &off, &major, &minor, &ino) != 7)
		return;
	if (ino != f->ino || makedev(major, minor) != f->dev || end <= start)
		return;
	if (f->found == f->len)
		return; /* complete: a second mapping is not ours to read */
	if (off == 0) {
		f->addr = start;
		f->found = end - start;
	} else if (off == f->found && start == f->addr + f->found) {
		f->found += end - start;
	}
}

static int read_maps(int fd, struct buf *b)
{
	for (;;) {
		ssize_t n =
			pread(fd, buf_reserve(b, 65536), 65536, (off_t)b->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		b->len += (size_t)n;
		if (b->len > MAPS_MAX)
			return -E2BIG;
	}
}

static int find_ram(struct find *f, int maps_fd, struct err *e)
{
	SCOPED(buf_done) struct buf b = { 0 };
	int r = read_maps(maps_fd, &b);
	char *save = NULL;

	if (r < 0)
		return err_sys(e, -r, "read of the VMM's maps");
	buf_cstr(&b);
	for (char *l = strtok_r((char *)b.p, "\n", &save); l;
	     l = strtok_r(NULL, "\n", &save))
		look_at(f, l);
	if (f->found != f->len)
		return err_set(e, -ENOENT, ERR_INTERNAL,
			       "the VMM maps %llu of %llu bytes of its RAM "
			       "image: is it up?",
			       (unsigned long long)f->found,
			       (unsigned long long)f->len);
	return 0;
}

int guestmem_open(struct guestmem **ret, int mem_fd, int maps_fd, int ram_fd,
		  struct err *e)
{
	struct guestmem *g;
	struct stat st;
	struct find f;
	int r;

	if (fstat(ram_fd, &st) < 0)
		return err_sys(e, errno, "fstat of the RAM image");
	if (st.st_size <= 0 || st.st_size % CRYO_PAGE ||
	    (uint64_t)st.st_size / CRYO_PAGE > UINT32_MAX)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "a RAM image of %lld bytes is not whole pages",
			       (long long)st.st_size);
	f = (struct find){ .dev = st.st_dev,
			   .ino = st.st_ino,
			   .len = (uint64_t)st.st_size };
	r = find_ram(&f, maps_fd, e);
	if (r < 0)
		return r;
	g = base_alloc(sizeof(*g));
	g->mem_fd = mem_fd;
	g->addr = f.addr;
	g->pages = (uint32_t)(f.len / CRYO_PAGE);
	*ret = g;
	return 0;
}

void guestmem_free(struct guestmem *g)
{
	if (!g)
		return;
	close(g->mem_fd);
	free(g);
}

uint64_t guestmem_addr(const struct guestmem *g)
{
	return g->addr;
}

uint32_t guestmem_pages(const struct guestmem *g)
{
	return g->pages;
}

int guestmem_read(const struct guestmem *g, uint32_t first, uint32_t nr,
		  void *dst, struct err *e)
{
	uint64_t at = g->addr + (uint64_t)first * CRYO_PAGE;
	int r;

	PRE(first <= g->pages && nr <= g->pages - first);
	r = base_pread_all(g->mem_fd, dst, (size_t)nr * CRYO_PAGE, at);
	if (r == -EPIPE) /* no mm left */
		return err_set(e, -ESRCH, ERR_INTERNAL,
			       "the VMM ended while its memory was read");
	if (r < 0)
		return err_sys(e, -r, "read of guest pages %u to %u", first,
			       first + nr - 1);
	return 0;
}

/* First set bit at or after `from`, or `end`. */
static uint32_t next_set(const uint64_t *bits, uint32_t from, uint32_t end)
{
	while (from < end) {
		uint64_t w = bits[from / 64] >> (from % 64);

		if (w)
			return MIN(from + (uint32_t)__builtin_ctzll(w), end);
		from = (from | 63) + 1;
	}
	return end;
}

static uint32_t run_length(const uint64_t *bits, uint32_t from, uint32_t end)
{
	uint32_t p = from;

	while (p < end && bits[p / 64] >> (p % 64) & 1)
		p++;
	return p - from;
}

int guestmem_gather(const struct guestmem *g, const uint64_t *bits,
		    uint32_t *cursor, uint32_t max, uint32_t *ret_pages,
		    void *dst, struct err *e)
{
	uint32_t nr = 0;

	PRE(*cursor <= g->pages && max <= INT32_MAX);
	while (nr < max) {
		uint32_t p = next_set(bits, *cursor, g->pages);
		uint32_t end = (uint32_t)MIN((uint64_t)p + (max - nr), g->pages);
		uint32_t run = run_length(bits, p, end);
		int r;

		*cursor = p;
		if (run == 0)
			break;
		r = guestmem_read(g, p, run,
				  (uint8_t *)dst + (size_t)nr * CRYO_PAGE, e);
		if (r < 0)
			return r;
		for (uint32_t i = 0; i < run; i++)
			ret_pages[nr++] = p + i;
		*cursor = p + run;
	}
	return (int)nr;
}
