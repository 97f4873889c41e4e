/*
 * restore: a point comes back as it was or not at all. Every frame that a
 * point refers to is damaged in turn; manifests lie in every way that a
 * writer with the key could make them lie.
 */
#include "tests/rig.h"

#include <sys/stat.h>

#define MEMORY 17000u
#define DISK 20000u

static int try_open(struct rig *r, const struct pack_ref *at, const uint8_t *root)
{
	struct packset *ps = packset_new(&r->disk.io, packs_supply, &r->packs);
	struct restore *re;
	int n = restore_open(&re, ps, at, root, &r->e);

	if (n == 0)
		restore_free(re);
	packset_free(ps);
	return n;
}

static int try_all(struct rig *r, const struct packer_result *at)
{
	struct packset *ps = packset_new(&r->disk.io, packs_supply, &r->packs);
	struct restore *re;
	int n = restore_open(&re, ps, &at->at, at->root, &r->e);

	if (n == 0) {
		n = restore_check_point(re, 2, &r->e);
		restore_free(re);
	}
	packset_free(ps);
	return n;
}

static void test_memory(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packset *ps;
	struct packer_result res;
	struct restore *re;
	struct stat st;
	int ram = memfd_create("ram", MFD_CLOEXEC);
	_Alignas(8) uint8_t want[CRYO_PAGE], got[CRYO_PAGE];
	SCOPED(buf_done) struct buf dev = { 0 };
	bool good = true;

	rig_begin(r);
	for (uint32_t i = 0; i < 50; i++)
		rig_page(r, PAGE_MEMORY, i * 340, 1 + i % 20);
	res = rig_finish(r);
	ps = packset_new(&r->disk.io, packs_supply, &r->packs);
	is_int(restore_open(&re, ps, &res.at, res.root, &r->e), 0, "opens");
	is_int(restore_manifest(re)->epoch, 2, "epoch");
	is_int(restore_manifest(re)->time_ns, 77, "time");
	is_int(restore_manifest(re)->kind, 3, "kind");
	is_mem(restore_manifest(re)->exec, "ex", 2, "exec states");
	is_mem(restore_manifest(re)->root, res.root, 32, "root");
	is_int(restore_device(re, &dev, &r->e), 0, "device state");
	ok(dev.len == 3 && !memcmp(dev.p, "dev", 3), "its bytes");
	is_int(restore_memory(re, ram, 3, &r->e), -EINVAL,
	       "memory file of another size: %s", r->e.msg);
	if (ftruncate(ram, (off_t)MEMORY * CRYO_PAGE) < 0)
		bail("ftruncate");
	is_int(restore_memory(re, ram, 3, &r->e), 0, "memory");
	for (uint32_t i = 0; i < 50; i++) {
		packs_page(want, 1 + i % 20);
		base_pread_all(ram, got, CRYO_PAGE, i * 340ull * CRYO_PAGE);
		good &= !memcmp(want, got, CRYO_PAGE);
	}
	ok(good, "every page");
	fstat(ram, &st);
	is_int(st.st_blocks, 50 * 8, "zero pages are holes");
	restore_free(re);
	restore_free(NULL);
	packset_free(ps);
	close(ram);
	rig_free(r);
}

/* Byte `at` of a pack changes; the point must not come back, nor hide it. */
static void test_damage(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result res;
	struct packs_one *p = &r->packs.p[0];
	char nick[PACK_NICK_LEN];
	off_t size;
	int came = 0, unsaid = 0, tried = 0;

	rig_begin(r);
	for (uint32_t i = 0; i < 9; i++)
		rig_page(r, PAGE_MEMORY, i, 1 + i);
	rig_finish(r);
	rig_begin(r);
	for (uint32_t i = 0; i < 9; i++)
		rig_page(r, PAGE_DISK, i, 100 + i);
	res = rig_finish(r);
	is_int(try_all(r, &res), 0, "whole");
	pack_nick(nick, p->id);
	size = lseek(p->fd, 0, SEEK_END);
	for (off_t at = 0; at < size; at += 1 + at % 61) {
		uint8_t b, bad;

		base_pread_all(p->fd, &b, 1, (uint64_t)at);
		bad = b ^ 0x20;
		base_pwrite_all(p->fd, &bad, 1, (uint64_t)at);
		tried++;
		if (try_all(r, &res) != -EBADMSG)
			came++;
		else if (!strstr(r->e.msg, nick))
			unsaid++;
		base_pwrite_all(p->fd, &b, 1, (uint64_t)at);
	}
	/*
	 * Not authenticated, for they mean nothing: the device state of the
	 * first point (read by none of the second), and padding.
	 */
	ok(came < 8 && tried > 100, "%d of %d changes were not seen", came,
	   tried);
	is_int(unsaid, 0, "the error names the pack");
	is_int(try_all(r, &res), 0, "whole again");
	if (ftruncate(p->fd, size - 20) < 0)
		bail("ftruncate");
	is_int(try_all(r, &res), -EBADMSG, "cut off: %s", r->e.msg);
	rig_free(r);
}

static void test_wrong_place(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result a, b;
	struct pack_ref at;
	uint8_t root[32];

	a = rig_point(r, PAGE_MEMORY, 1, 1);
	b = rig_point(r, PAGE_MEMORY, 1, 2);
	is_int(try_open(r, &a.at, NULL), 0, "without a root from the log");
	is_int(try_open(r, &a.at, b.root), -EBADMSG, "another point's root");
	ok(strstr(r->e.msg, "not the one in the log"), "%s", r->e.msg);
	memcpy(root, a.root, 32);
	root[31] ^= 1;
	is_int(try_open(r, &a.at, root), -EBADMSG, "a root, one bit off");
	at = a.at;
	at.offset += 16;
	is_int(try_open(r, &at, NULL), -EBADMSG, "no frame there");
	at.offset = 0;
	is_int(try_open(r, &at, NULL), -EBADMSG, "in the header");
	at.offset = a.at.offset + 1;
	is_int(try_open(r, &at, NULL), -EBADMSG, "at an odd place");
	at.offset = PACK_HEAD_LEN;
	is_int(try_open(r, &at, NULL), -EBADMSG, "a frame of pages");
	at = a.at;
	at.id[0] ^= 1;
	is_int(try_open(r, &at, NULL), -ENOENT, "no such pack: %s", r->e.msg);
	rig_free(r);
}

/* --- liars: a pack written by hand under a good key ----------------------- */

struct liar {
	struct rig *r;
	struct frame_key key;
	struct zst *z;
	int fd;
	uint32_t number;
	uint64_t pos;
	uint8_t id[PACK_ID_LEN];
};

static void liar_open(struct liar *l, struct rig *r)
{
	uint8_t key[CRYPT_KEY_LEN], raw[PACK_HEAD_LEN];
	struct pack_head head = { 0 };

	*l = (struct liar){ .r = r, .z = zst_new(1), .pos = PACK_HEAD_LEN };
	packs_next(&r->packs, l->id, key, &l->fd, &r->e);
	memcpy(head.id, l->id, PACK_ID_LEN);
	pack_head_encode(raw, &head);
	base_pwrite_all(l->fd, raw, sizeof(raw), 0);
	frame_key_init(&l->key, l->id, key);
}

static void liar_close(struct liar *l)
{
	frame_key_done(&l->key);
	zst_free(l->z);
	close(l->fd);
}

static uint64_t liar_frame(struct liar *l, enum frame_type type,
			   unsigned int pages, const void *p, size_t len)
{
	struct frame f = { .type = type,
			   .pages = (uint16_t)pages,
			   .number = l->number++,
			   .plain_len = (uint32_t)len };
	uint8_t *raw = base_alloc(frame_bound(len));
	uint64_t at = l->pos;
	size_t n = frame_seal(&l->key, l->z, at, &f, p, raw);

	base_pwrite_all(l->fd, raw, n, at);
	l->pos += n;
	free(raw);
	return loc_make(0, at, 0);
}

static struct pack_ref liar_manifest(struct liar *l, struct manifest *m,
				     bool right_root)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct pack_ref at;

	if (right_root)
		digest_root(m->root, &m->sum[0], &m->sum[1], &m->rest);
	if (manifest_encode(&b, m) < 0)
		bail("encode");
	memcpy(at.id, l->id, PACK_ID_LEN);
	at.offset = loc_offset(liar_frame(l, FRAME_MANIFEST, 0, b.p, b.len));
	return at;
}

/* A keyframe of 4 pages of memory; chunk and sum as the test wants. */
static struct manifest liar_keyframe(struct liar *l, uint64_t chunk)
{
	struct manifest m = { .keyframe = true };
	uint32_t index;

	memset(m.point, 'p', ID_LEN);
	memset(m.session, 's', ID_LEN);
	m.has_sum[0] = m.has_sum[1] = true;
	m.rest.memory_pages = 4;
	crypt_sha256(m.rest.device, "", 0);
	manifest_packs_add(&m.packs, l->id, &index);
	m.map[0].nr_chunks = 1;
	m.map[0].chunks = base_alloc(sizeof(uint64_t));
	m.map[0].chunks[0] = chunk;
	return m;
}

static uint64_t liar_chunk(struct liar *l, uint32_t number, uint32_t index,
			   uint64_t loc)
{
	struct manifest_chunk c = { .number = number, .nr_entries = 1 };
	SCOPED(buf_done) struct buf b = { 0 };
	uint32_t at;
	uint64_t r;

	manifest_packs_add(&c.packs, l->id, &at);
	c.entries = base_alloc(sizeof(*c.entries));
	c.entries[0] = (struct manifest_entry){ index, loc };
	manifest_chunk_encode(&b, &c);
	r = liar_frame(l, FRAME_MAPCHUNK, 0, b.p, b.len);
	manifest_chunk_done(&c);
	return r;
}

static int liar_check(struct liar *l, const struct pack_ref *at)
{
	struct packset *ps =
		packset_new(&l->r->disk.io, packs_supply, &l->r->packs);
	struct restore *re;
	int n = restore_open(&re, ps, at, NULL, &l->r->e);

	if (n == 0) {
		n = restore_memory(re, -1, 1, &l->r->e);
		restore_free(re);
	}
	packset_free(ps);
	return n;
}

static void sum_up(struct manifest *m, uint32_t index, const uint8_t *page)
{
	struct digest *d = digest_new();
	uint8_t h[DIGEST_HASH_LEN];

	digest_page(h, page);
	digest_add(d, &m->sum[PAGE_MEMORY], PAGE_MEMORY, index, h);
	digest_free(d);
}

static void test_liars(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	_Alignas(8) uint8_t page[CRYO_PAGE];
	uint64_t pages, chunk;
	struct manifest m;
	struct pack_ref at;
	struct liar l;

	liar_open(&l, r);
	packs_page(page, 7);
	pages = liar_frame(&l, FRAME_PAGES, 1, page, CRYO_PAGE);
	chunk = liar_chunk(&l, 0, 2, pages);
	m = liar_keyframe(&l, chunk);
	sum_up(&m, 2, page);
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), 0, "an honest point: %s", r->e.msg);
	m.root[0] ^= 1;
	at = liar_manifest(&l, &m, false);
	is_int(liar_check(&l, &at), -EBADMSG, "a root of something else");
	ok(strstr(r->e.msg, "contradicts its root"), "%s", r->e.msg);
	sum_up(&m, 3, page);
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "a sum of other pages");
	ok(strstr(r->e.msg, "memory of point"), "%s", r->e.msg);
	manifest_done(&m);

	m = liar_keyframe(&l, liar_chunk(&l, 1, 16384, pages));
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "a chunk of other pages");
	m.map[0].chunks[0] = liar_chunk(&l, 0, 4, pages);
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "a page past the end");
	ok(strstr(r->e.msg, "of another map"), "%s", r->e.msg);
	m.map[0].chunks[0] = liar_chunk(&l, 0, 2, pages + 1);
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "a slot that is not there");
	ok(strstr(r->e.msg, "has 1 pages"), "%s", r->e.msg);
	m.map[0].chunks[0] = liar_chunk(&l, 0, 2, chunk);
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "a page that is a map");
	m.map[0].chunks[0] = pages;
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "a map that is pages");
	m.map[0].chunks[0] = loc_make(0, 1 << 30, 0);
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "a map past the pack's end");
	manifest_done(&m);
	liar_close(&l);
	rig_free(r);
}

/* A delta whose parent isn't what it says. */
static void test_false_parents(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct manifest key, m;
	struct pack_ref at;
	struct liar l;

	liar_open(&l, r);
	key = liar_keyframe(&l, LOC_BASE);
	at = liar_manifest(&l, &key, true);
	m = liar_keyframe(&l, LOC_BASE);
	free(m.map[0].chunks);
	m.map[0] = (struct manifest_map){ 0 };
	m.keyframe = false;
	m.has_parent = true;
	m.depth = 1;
	memset(m.point, 'q', ID_LEN);
	memset(m.parent_point, 'p', ID_LEN);
	m.parent = m.base = loc_make(0, at.offset, 0);
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), 0, "an honest delta: %s", r->e.msg);
	m.parent_point[0] = 'x';
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "another parent's name");
	ok(strstr(r->e.msg, "where the parent should be"), "%s", r->e.msg);
	m.parent_point[0] = 'p';
	m.depth = 2;
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "another depth");
	m.depth = 1;
	m.rest.memory_pages = 5;
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "another size");
	m.rest.memory_pages = 4;
	m.base = loc_make(0, 4096, 0);
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "another keyframe");
	m.parent = loc_make(0, l.pos, 0); /* itself */
	at = liar_manifest(&l, &m, true);
	is_int(liar_check(&l, &at), -EBADMSG, "its own parent");
	manifest_done(&m);
	manifest_done(&key);
	liar_close(&l);
	rig_free(r);
}

/* --- going on from a restored point --------------------------------------- */

/* Blocks whose hashes the restore didn't read are learnt when they matter. */
static void test_unknown_hashes(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result a, b;

	rig_begin(r);
	rig_page(r, PAGE_DISK, 3, 30);
	rig_page(r, PAGE_DISK, 4, 40);
	rig_page(r, PAGE_DISK, 5, 0);
	a = rig_finish(r);
	rig_stop(r);
	rig_resume(r, &a);
	rig_begin(r);
	rig_page(r, PAGE_DISK, 3, 30); /* written, but the same */
	rig_page(r, PAGE_DISK, 4, 41);
	rig_page(r, PAGE_DISK, 5, 30);
	b = rig_finish(r);
	is_int(b.changed[PAGE_DISK], 2, "a block written as it was");
	is_int(b.stored, 1, "one content is new");
	is_int(b.duplicate, 1, "one is known, since it was looked at");
	ok(rig_is(r, &b, PAGE_DISK, 3, 30) && rig_is(r, &b, PAGE_DISK, 4, 41) &&
		   rig_is(r, &b, PAGE_DISK, 5, 30),
	   "the sum followed: all of it checks");
	rig_free(r);
}

/* A chunk that changed before the restore must be written at the keyframe. */
static void test_dirty_chunks(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result res;

	rig_begin(r);
	rig_page(r, PAGE_DISK, 17000, 1);
	rig_page(r, PAGE_MEMORY, 1, 1);
	rig_finish(r);
	res = rig_point(r, PAGE_DISK, 17000, 2); /* a delta */
	rig_stop(r);
	rig_resume(r, &res);
	do {
		res = rig_point(r, PAGE_MEMORY, 1, 10 + res.depth);
	} while (!res.keyframe);
	ok(rig_is(r, &res, PAGE_DISK, 17000, 2),
	   "the keyframe knows what a delta before the restore said");
	rig_free(r);
}

/* A keyframe writes chunks that changed and refers to those that didn't. */
static void test_keyframes(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result res, key;
	SCOPED(buf_done) struct buf b = { 0 };
	SCOPED(manifest_done) struct manifest m = { 0 };
	struct packset_reader *rd;
	unsigned int points = 1;

	rig_begin(r);
	rig_page(r, PAGE_DISK, 1, 1);
	rig_page(r, PAGE_MEMORY, 1, 1);
	rig_page(r, PAGE_MEMORY, 16999, 2);
	key = rig_finish(r);
	do {
		res = rig_point(r, PAGE_MEMORY, 1, 10 + points++);
	} while (!res.keyframe);
	is_int(points, 61, "a keyframe after 60 points");
	rd = packset_reader_new(r->ps);
	packset_read_meta(rd, r->img->point.loc, FRAME_MANIFEST, &b, &r->e);
	is_int(manifest_decode(&m, b.p, b.len, &r->e), 0, "its manifest");
	ok(loc_offset(m.map[PAGE_MEMORY].chunks[0]) > key.at.offset,
	   "the chunk that changed is new");
	ok(loc_offset(m.map[PAGE_MEMORY].chunks[1]) < key.at.offset &&
		   loc_offset(m.map[PAGE_DISK].chunks[0]) < key.at.offset,
	   "those that didn't are the old ones");
	is_int(m.map[PAGE_DISK].chunks[1], LOC_BASE, "and empty ones nowhere");
	ok(m.has_parent, "a keyframe has a parent");
	ok(rig_is(r, &res, PAGE_MEMORY, 16999, 2) &&
		   rig_is(r, &res, PAGE_MEMORY, 1, 70) &&
		   rig_is(r, &res, PAGE_DISK, 1, 1),
	   "all of it comes back");
	packset_reader_free(rd);
	rig_free(r);
}

/* A fork reads its ancestors' packs and writes its own. */
static void test_fork(void)
{
	struct rig *r = rig_new(MEMORY, DISK);
	struct packer_result base, left, right;

	rig_begin(r);
	rig_page(r, PAGE_MEMORY, 1, 1);
	rig_page(r, PAGE_MEMORY, 2, 2);
	base = rig_finish(r);
	left = rig_point(r, PAGE_MEMORY, 1, 11);
	rig_stop(r);
	rig_resume(r, &base);
	right = rig_point(r, PAGE_MEMORY, 2, 22);
	ok(memcmp(left.at.id, right.at.id, PACK_ID_LEN), "own packs");
	ok(rig_is(r, &left, PAGE_MEMORY, 1, 11) &&
		   rig_is(r, &left, PAGE_MEMORY, 2, 2),
	   "the one line");
	ok(rig_is(r, &right, PAGE_MEMORY, 1, 1) &&
		   rig_is(r, &right, PAGE_MEMORY, 2, 22),
	   "the other line");
	rig_free(r);
}

int main(void)
{
	test_memory();
	test_damage();
	test_wrong_place();
	test_liars();
	test_false_parents();
	test_unknown_hashes();
	test_dirty_chunks();
	test_keyframes();
	test_fork();
	return tap_done();
}
