/*
 * packset: indexes, opening on demand, pages from many threads, and errors
 * that name the pack.
 */
#include "snapshotter/packset.h"
#include "tests/packs.h"

#include <pthread.h>

#define FRAMES 40u

static struct packs packs;
static struct packs_disk disk = { .io.ops = &packs_disk_ops };
static struct err e;

/* A pack whose frame i holds pages 4i .. 4i+3; the last frame, one page. */
static void make_pack(uint64_t *at)
{
	static uint8_t raw[20000], plain[FRAME_DATA_MAX];
	struct packs_one *p = &packs.p[packs.nr];
	struct pack_head head = { 0 };
	uint8_t id[PACK_ID_LEN], key[CRYPT_KEY_LEN];
	uint64_t pos = PACK_HEAD_LEN;
	struct zst *z = zst_new(1);
	struct frame_key k;
	int fd = -1;

	packs_next(&packs, id, key, &fd, &e);
	memcpy(head.id, id, sizeof(id));
	pack_head_encode(raw, &head);
	base_pwrite_all(p->fd, raw, PACK_HEAD_LEN, 0);
	frame_key_init(&k, id, key);
	for (uint32_t i = 0; i < FRAMES; i++) {
		struct frame f = { .type = FRAME_PAGES, .number = i };

		f.pages = i == FRAMES - 1 ? 1 : 4;
		f.plain_len = f.pages * CRYO_PAGE;
		for (uint32_t s = 0; s < 4; s++)
			packs_page(plain + s * CRYO_PAGE, 1 + 4 * i + s);
		at[i] = pos;
		frame_seal(&k, z, pos, &f, plain, raw);
		base_pwrite_all(p->fd, raw, frame_size(&f), pos);
		pos += frame_size(&f);
	}
	frame_key_done(&k);
	zst_free(z);
	close(fd);
}

static void test_indexes(void)
{
	struct packset *ps = packset_new(&disk.io, packs_supply, &packs);
	uint8_t id[PACK_ID_LEN] = { 0 }, got[PACK_ID_LEN];
	uint32_t index = 0;
	bool good = true;

	for (uint32_t i = 0; i < 1000; i++) {
		put_u32(id + (i % 2 ? 0 : 9), i + 1);
		good &= !packset_index(ps, id, &index, &e) && index == i;
		packset_id(ps, index, got);
		good &= !memcmp(id, got, sizeof(id));
	}
	ok(good, "packs are numbered as they come");
	is_int(packset_count(ps), 1000, "and counted");
	good = !packset_index(ps, id, &index, &e) && index == 999;
	ok(good, "one that is known keeps its number");
	for (uint32_t i = 1000; i <= LOC_PACK_MAX; i++) {
		put_u32(id, 0x10000 + i);
		good &= !packset_index(ps, id, &index, &e);
	}
	ok(good && index == LOC_PACK_MAX, "65,536 of them");
	put_u32(id, 7777777);
	is_int(packset_index(ps, id, &index, &e), -ENOSPC, "no more: %s", e.msg);
	packset_free(ps);
	packset_free(NULL);
}

static bool page_is(struct packset_reader *rd, uint64_t loc, uint32_t n)
{
	_Alignas(8) uint8_t want[CRYO_PAGE], got[CRYO_PAGE];

	packs_page(want, n);
	return !packset_read_page(rd, loc, got, &e) &&
	       !memcmp(want, got, CRYO_PAGE);
}

static void test_pages(const uint64_t *at)
{
	struct packset *ps = packset_new(&disk.io, packs_supply, &packs);
	struct packset_reader *rd = packset_reader_new(ps);
	uint8_t page[CRYO_PAGE];
	char where[PACKSET_WHERE_LEN];
	uint64_t seed = tap_seed();
	bool good = true;
	uint32_t index;

	packset_index(ps, packs.p[0].id, &index, &e);
	packs.supplied = 0;
	for (int i = 0; i < 500; i++) {
		uint32_t f = (uint32_t)(tap_rand(&seed) % (FRAMES - 1));
		unsigned int slot = (unsigned int)(tap_rand(&seed) % 4);

		good &= page_is(rd, loc_make(index, at[f], slot),
				1 + 4 * f + slot);
	}
	ok(good, "any page by its place, in any order");
	is_int(packs.supplied, 1, "the pack was asked for once");
	ok(page_is(rd, loc_make(index, at[FRAMES - 1], 0), 157), "the last");
	is_int(packset_read_page(rd, loc_make(index, at[FRAMES - 1], 1), page, &e),
	       -EBADMSG, "a slot that the frame hasn't, from the cache");
	is_int(packset_read_page(rd, loc_make(index, at[1] + 16, 0), page, &e),
	       -EBADMSG, "between frames: %s", e.msg);
	ok(strstr(e.msg, packset_where(ps, loc_make(index, at[1] + 16, 0), where)),
	   "the error says where: %s", where);
	is_int(packset_read_page(rd, loc_make(index, 1 << 29, 0), page, &e),
	       -EBADMSG, "past the end");
	ok(page_is(rd, loc_make(index, at[1], 2), 7), "errors pass");
	packset_reader_free(rd);
	packset_reader_free(NULL);
	packset_free(ps);
}

static void test_files(const uint64_t *at)
{
	struct packset *ps = packset_new(&disk.io, packs_supply, &packs);
	struct packset_reader *rd = packset_reader_new(ps);
	uint8_t page[CRYO_PAGE], nobody[PACK_ID_LEN] = { 1 };
	uint32_t index;
	int fd = fcntl(packs.p[1].fd, F_DUPFD_CLOEXEC, 0);

	packset_index(ps, nobody, &index, &e);
	is_int(packset_read_page(rd, loc_make(index, 64, 0), page, &e), -ENOENT,
	       "a pack that nobody has: %s", e.msg);
	ok(strstr(e.msg, "get pack 01000000"), "is named");
	is_int(packset_put(ps, packs.p[0].id, fd, packs.p[0].key, &e), -EBADMSG,
	       "a file of another pack: %s", e.msg);
	is_int(packset_put(ps, packs.p[1].id, fd, packs.p[1].key, &e), 0,
	       "the right file, without being asked");
	packs.supplied = 0;
	packset_index(ps, packs.p[1].id, &index, &e);
	ok(page_is(rd, loc_make(index, at[3], 1), 14), "is used");
	is_int(packs.supplied, 0, "and nobody else is asked");
	fd = fcntl(packs.p[1].fd, F_DUPFD_CLOEXEC, 0);
	is_int(packset_put(ps, packs.p[1].id, fd, packs.p[1].key, &e), 0,
	       "given twice");
	is_int(fcntl(fd, F_GETFD), -1, "the second one is closed");

	packs.p[0].key[0] ^= 1; /* a supplier with a wrong key */
	packset_index(ps, packs.p[0].id, &index, &e);
	is_int(packset_read_page(rd, loc_make(index, at[0], 0), page, &e),
	       -EBADMSG, "a wrong key opens nothing");
	packs.p[0].key[0] ^= 1;
	packset_reader_free(rd);
	packset_free(ps);
}

/* What is open stays readable when nobody supplies packs any more. */
static void test_open(const uint64_t *at)
{
	struct packset *ps = packset_new(&disk.io, packs_supply, &packs);
	struct packset_reader *rd = packset_reader_new(ps);
	uint8_t nobody[PACK_ID_LEN] = { 2 };
	uint32_t index, other;

	packset_index(ps, packs.p[0].id, &index, &e);
	packset_index(ps, nobody, &other, &e);
	packs.supplied = 0;
	is_int(packset_open(ps, index, &e), 0, "a pack is opened ahead");
	is_int(packs.supplied, 1, "by asking for it");
	is_int(packset_open(ps, other, &e), -ENOENT, "one that nobody has");
	packs.supplied = 0;
	ok(page_is(rd, loc_make(index, at[5], 2), 23), "it is read");
	is_int(packset_open(ps, index, &e), 0, "opened again");
	is_int(packs.supplied, 0, "without asking");
	packset_reader_free(rd);
	packset_free(ps);
}

struct thread {
	struct packset *ps;
	const uint64_t *at;
	uint64_t seed;
	bool bad;
};

static void *read_many(void *arg)
{
	struct thread *t = arg;
	struct packset_reader *rd = packset_reader_new(t->ps);
	struct err err;

	for (int i = 0; i < 300; i++) {
		_Alignas(8) uint8_t want[CRYO_PAGE], got[CRYO_PAGE];
		uint64_t r = tap_rand(&t->seed);
		uint32_t f = (uint32_t)(r >> 8) % (FRAMES - 1), index = 9;

		t->bad |= packset_index(t->ps, packs.p[r % 2].id, &index, &err) <
			  0;
		packs_page(want, 1 + 4 * f + r / 2 % 4);
		t->bad |= packset_read_page(rd,
					    loc_make(index, t->at[f], r / 2 % 4),
					    got, &err) < 0 ||
			  memcmp(want, got, CRYO_PAGE) != 0;
	}
	packset_reader_free(rd);
	return NULL;
}

static void test_threads(const uint64_t *at)
{
	struct packset *ps = packset_new(&disk.io, packs_supply, &packs);
	struct thread t[4];
	pthread_t id[4];

	packs.supplied = 0;
	for (uint64_t i = 0; i < 4; i++) {
		t[i] = (struct thread){ .ps = ps, .at = at, .seed = i };
		pthread_create(&id[i], NULL, read_many, &t[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(id[i], NULL);
	ok(!t[0].bad && !t[1].bad && !t[2].bad && !t[3].bad,
	   "four threads read the right pages");
	is_int(packs.supplied, 2, "each pack is asked for once");
	packset_free(ps);
}

int main(void)
{
	uint64_t at[FRAMES], same[FRAMES];

	test_indexes();
	make_pack(at);
	make_pack(same);
	ok(!memcmp(at, same, sizeof(at)), "two packs alike");
	test_pages(at);
	test_files(at);
	test_open(at);
	test_threads(at);
	packs_done(&packs);
	return tap_done();
}
