/*
 * manifest: the vectors of ADR 0031, round trips of random points, and
 * refusal of every cut and of fields that no writer could have meant.
 */
#include "store/manifest.h"
#include "tests/hex.h"

static const char chunk_hex[] =
	"01000100020000000100a0a1a2a3a4a5a6a7a8a9aaabacadaeaf0400820100010104"
	"fb7f06";
static const char delta_head_hex[] =
	"01000600c800020071717171717171717171717171717171717171717373737373"
	"737373737373737373737373737373030000000000000015259ded5f7286180500"
	"000000000200409c00001111111111111111111111111111111111111111111111"
	"111111111111111111b85bb2318df974779ea5b9910e78984bfd78a413f9ba845e"
	"15789e461f4bebbd4ff35208265d323a4b45bd166f141692072cb7557692f60834"
	"ea718d38f69281a0a1a2a3a4a5a6a7a8a9aaabacadaeafc0c1c2c3c4c5c6c7c8c9"
	"cacbcccdcecf7070707070707070707070707070707070707070028002011400";
static const char delta_tail_hex[] =
	"000700000407800200010001a402fe07000311d1fd078280808002020004beb802"
	"ce01";

static struct err e;

static void add_packs(struct manifest_packs *p, uint32_t nr)
{
	uint32_t index;

	for (uint32_t n = 0; n < nr; n++) {
		uint8_t id[PACK_ID_LEN];

		for (size_t i = 0; i < PACK_ID_LEN; i++)
			id[i] = (uint8_t)((n ? 0xc0 : 0xa0) + i);
		if (manifest_packs_add(p, id, &index) || index != n)
			bail("pack table");
	}
}

static void copy_entries(struct manifest_entry **ret, uint32_t *ret_nr,
			 const struct manifest_entry *from, size_t nr)
{
	*ret = base_alloc(nr * sizeof(*from));
	memcpy(*ret, from, nr * sizeof(*from));
	*ret_nr = (uint32_t)nr;
}

/* The sums of ADR 0032. */
static void make_sums(struct manifest *m)
{
	struct digest *d = digest_new();
	uint8_t p[CRYO_PAGE], h[DIGEST_HASH_LEN];

	memset(p, 0xff, sizeof(p));
	digest_page(h, p);
	digest_add(d, &m->sum[PAGE_MEMORY], PAGE_MEMORY, 0, h);
	digest_add(d, &m->sum[PAGE_DISK], PAGE_DISK, 0, h);
	for (size_t i = 0; i < sizeof(p); i++)
		p[i] = (uint8_t)(i / 64);
	digest_page(h, p);
	digest_add(d, &m->sum[PAGE_MEMORY], PAGE_MEMORY, 70000, h);
	digest_add(d, &m->sum[PAGE_DISK], PAGE_DISK, 9, digest_zero_page);
	digest_free(d);
}

/* What both vectors have in common. */
static struct manifest make_common(void)
{
	struct manifest m = { .epoch = 3 };

	memset(m.session, 's', ID_LEN);
	m.rest.memory_pages = 131072;
	m.rest.disk_pages = 40000;
	memset(m.rest.compat, 0x11, CRYPT_HASH_LEN);
	crypt_sha256(m.rest.device, "cryo device state, not compressed", 33);
	hex_read(m.root, sizeof(m.root),
		 "4ff35208265d323a4b45bd166f141692072cb7557692f60834ea718d"
		 "38f69281");
	add_packs(&m.packs, 2);
	make_sums(&m);
	return m;
}

static struct manifest make_delta(void)
{
	const struct manifest_entry memory[] = {
		{ 0, LOC_BASE },
		{ 5, loc_make(1, 0x400, 0) },
		{ 6, loc_make(1, 0x400, 1) },
		{ 7, loc_make(1, 0x400, 2) },
		{ 300, loc_make(1, 0x200, 3) },
		{ 301, loc_make(0, 64, 1) },
		{ 131071, loc_make(0, 0x10000040, 0) },
	};
	const struct manifest_entry disk[] = {
		{ 0, LOC_ZERO },
		{ 39999, loc_make(0, 96, 3) },
	};
	struct manifest m = make_common();

	m.kind = 200;
	m.time_ns = 1767225660123456789;
	m.depth = 5;
	memset(m.point, 'q', ID_LEN);
	memset(m.parent_point, 'p', ID_LEN);
	m.has_parent = m.has_sum[PAGE_MEMORY] = true;
	m.parent = loc_make(1, 4096, 0);
	m.base = loc_make(0, 320, 0);
	copy_entries(&m.map[0].entries, &m.map[0].nr_entries, memory, 7);
	copy_entries(&m.map[1].entries, &m.map[1].nr_entries, disk, 2);
	return m;
}

static struct manifest make_keyframe(void)
{
	struct manifest m = make_common();

	m.kind = 7;
	m.time_ns = 1767225600123456789;
	memset(m.point, 'p', ID_LEN);
	m.keyframe = m.has_sum[PAGE_MEMORY] = m.has_sum[PAGE_DISK] = true;
	m.device = loc_make(0, 64, 0);
	m.device_len = 33;
	m.exec_len = 5;
	m.exec = base_alloc(5);
	memcpy(m.exec, "execs", 5);
	m.map[0].nr_chunks = 8;
	m.map[0].chunks = base_alloc(8 * sizeof(uint64_t));
	m.map[0].chunks[0] = loc_make(0, 160, 0);
	m.map[0].chunks[4] = loc_make(1, 0x12340, 0);
	m.map[1].nr_chunks = 3;
	m.map[1].chunks = base_alloc(3 * sizeof(uint64_t));
	m.map[1].chunks[0] = loc_make(0, 240, 0);
	return m;
}

static bool same_map(const struct manifest_map *a, const struct manifest_map *b)
{
	if (a->nr_entries != b->nr_entries || a->nr_chunks != b->nr_chunks)
		return false;
	for (uint32_t i = 0; i < a->nr_entries; i++) {
		if (a->entries[i].index != b->entries[i].index ||
		    a->entries[i].loc != b->entries[i].loc)
			return false;
	}
	return !a->nr_chunks ||
	       !memcmp(a->chunks, b->chunks, a->nr_chunks * sizeof(*a->chunks));
}

/* Field by field, so that a field that a coder forgets is seen. */
static bool same(const struct manifest *a, const struct manifest *b)
{
	for (size_t k = 0; k < PAGE_KINDS; k++) {
		if (a->has_sum[k] != b->has_sum[k] ||
		    !same_map(&a->map[k], &b->map[k]) ||
		    (a->has_sum[k] &&
		     memcmp(&a->sum[k], &b->sum[k], sizeof(a->sum[k]))))
			return false;
	}
	return !strcmp(a->point, b->point) && !strcmp(a->session, b->session) &&
	       a->kind == b->kind && a->epoch == b->epoch &&
	       a->time_ns == b->time_ns && a->keyframe == b->keyframe &&
	       a->has_parent == b->has_parent && a->depth == b->depth &&
	       !strcmp(a->parent_point, b->parent_point) &&
	       a->parent == b->parent && a->base == b->base &&
	       a->device == b->device && a->device_len == b->device_len &&
	       !memcmp(&a->rest, &b->rest, sizeof(a->rest)) &&
	       !memcmp(a->root, b->root, CRYPT_HASH_LEN) &&
	       a->exec_len == b->exec_len &&
	       (!a->exec_len || !memcmp(a->exec, b->exec, a->exec_len)) &&
	       a->packs.nr == b->packs.nr &&
	       (!a->packs.nr || !memcmp(a->packs.id, b->packs.id,
					a->packs.nr * (size_t)PACK_ID_LEN));
}

static void check_vector(struct manifest *m, size_t len, const char *sha_hex,
			 const char *name)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct manifest back = { 0 };
	uint8_t h[CRYPT_HASH_LEN];

	is_int(manifest_encode(&b, m), 0, "%s: encodes", name);
	is_int(b.len, len, "%s: to the length of the ADR", name);
	crypt_sha256(h, b.p, b.len);
	ok(hex_same(h, sha_hex), "%s: every byte as in the ADR", name);
	is_int(manifest_decode(&back, b.p, b.len, &e), 0, "%s: decodes", name);
	ok(same(m, &back), "%s: to what it was", name);
	manifest_done(&back);
	for (size_t n = 0; n < b.len; n++) {
		if (manifest_decode(&back, b.p, n, &e) != -EBADMSG)
			ok(false, "%s: cut to %zu bytes and accepted", name, n);
	}
	buf_put_u8(&b, 0);
	is_int(manifest_decode(&back, b.p, b.len, &e), -EBADMSG,
	       "%s: a byte too many", name);
}

static void test_vectors(void)
{
	struct manifest key = make_keyframe(), delta = make_delta();
	SCOPED(buf_done) struct buf b = { 0 };

	check_vector(&key, 4326,
		     "19140e73e386a6b63313e0226c32e82f"
		     "2af721fdfea8eaf4915a921eb98f3889",
		     "keyframe");
	check_vector(&delta, 2313,
		     "9d8a63acba3f56e7e8d166cc45bb0f13"
		     "0b25f5abca51b4a04525bda23668c0a8",
		     "delta");
	manifest_encode(&b, &delta);
	ok(hex_same(b.p, delta_head_hex), "delta: bytes before the sum");
	ok(hex_same(b.p + 230 + 2048, delta_tail_hex),
	   "delta: bytes after the sum");
	manifest_done(&key);
	manifest_done(&delta);
	manifest_done(&delta);
}

static void test_chunk(void)
{
	const struct manifest_entry want[] = {
		{ 32768, loc_make(0, 64, 0) },
		{ 32769, loc_make(0, 64, 1) },
		{ 32771, LOC_ZERO },
		{ 49151, loc_make(0, 64, 1) },
	};
	struct manifest_chunk c = { .kind = PAGE_DISK, .number = 2 }, back;
	SCOPED(buf_done) struct buf b = { 0 };
	uint8_t raw[64];
	size_t n = hex_read(raw, sizeof(raw), chunk_hex);
	bool good = true;

	add_packs(&c.packs, 1);
	copy_entries(&c.entries, &c.nr_entries, want, 4);
	is_int(manifest_chunk_encode(&b, &c), 0, "chunk: encodes");
	ok(b.len == n && !memcmp(b.p, raw, n), "chunk: as in the ADR");
	is_int(manifest_chunk_decode(&back, raw, n, &e), 0, "chunk: decodes");
	is_int(back.kind, PAGE_DISK, "chunk: kind");
	is_int(back.number, 2, "chunk: number");
	is_int(back.nr_entries, 4, "chunk: entries");
	for (size_t i = 0; i < 4; i++)
		good &= back.entries[i].index == want[i].index &&
			back.entries[i].loc == want[i].loc;
	ok(good, "chunk: to what it was");
	manifest_chunk_done(&back);
	manifest_chunk_done(&c);
	for (size_t len = 0; len < n; len++)
		good &= manifest_chunk_decode(&back, raw, len, &e) == -EBADMSG;
	ok(good, "chunk: every cut is refused");
}

/* A chunk of `entries` (coded bytes) with one pack. */
static int decode_entries(enum page_kind kind, const char *entries)
{
	struct manifest_chunk c;
	uint8_t raw[128] = { 1, 0, (uint8_t)kind };
	size_t n;
	int r;

	raw[8] = 1;
	n = 26 + hex_read(raw + 26, sizeof(raw) - 26, entries);
	r = manifest_chunk_decode(&c, raw, n, &e);
	if (r == 0)
		manifest_chunk_done(&c);
	return r;
}

static void test_entries(void)
{
	static const struct {
		const char *what, *hex;
		int want;
	} t[] = {
		{ "none", "00", 0 },
		{ "one at 64", "01 00 8201", 0 },
		{ "index 16383", "01 ff7f 8201", 0 },
		{ "index 16384", "01 8080 01 8201", -EBADMSG },
		{ "gap past 64 bits", "01 ffffffffffffffffffff01 8201", -EBADMSG },
		{ "second index past the end", "02 fe7f 8201 01 01", -EBADMSG },
		{ "base in a chunk", "01 00 00", -EBADMSG },
		{ "zero of memory", "01 00 04", -EBADMSG },
		{ "an unknown special", "01 00 08", -EBADMSG },
		{ "next of nothing", "01 00 01", -EBADMSG },
		{ "next of slot 3", "02 00 8e01 00 01", -EBADMSG },
		{ "next with an argument", "02 00 8201 00 05", -EBADMSG },
		{ "inside the header", "01 00 62", -EBADMSG },
		{ "before the file", "01 00 12", -EBADMSG },
		{ "pack 0 by number", "01 00 03 10", 0 },
		{ "a pack not in the table", "01 00 07 10", -EBADMSG },
		{ "past the largest offset", "01 00 03 8080808040", -EBADMSG },
		{ "the largest offset", "01 00 03 ffffffff3f", 0 },
		{ "beyond it by moving", "02 00 03 ffffffff3f 00 22", -EBADMSG },
		{ "a longer count", "02 00 8201", -EBADMSG },
		{ "a count without end", "ffffffff0f 00 8201", -EBADMSG },
		{ "an overlong varint", "01 8000 8201", -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		is_int(decode_entries(PAGE_MEMORY, t[i].hex), t[i].want,
		       "entries: %s", t[i].what);
	is_int(decode_entries(PAGE_DISK, "01 00 04"), 0,
	       "entries: zero of a disk");
}

/* Encodes a point, changes bytes at `at`, decodes; what is wrong is in e. */
static bool refuses(struct manifest m, size_t at, const char *hex, const char *why)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct manifest back = { 0 };
	int r;

	manifest_encode(&b, &m);
	hex_read(b.p + at, b.len - at, hex);
	manifest_done(&m);
	r = manifest_decode(&back, b.p, b.len, &e);
	if (r == 0)
		manifest_done(&back);
	return r == -EBADMSG && strstr(e.msg, why);
}

static void test_refused(void)
{
	ok(refuses(make_delta(), 0, "02", "version"), "a later version");
	ok(refuses(make_delta(), 2, "16", "flags"), "an unknown flag");
	ok(refuses(make_delta(), 5, "01", "reserved"), "reserved byte");
	ok(refuses(make_delta(), 6, "ffff", "pack table"), "pack table");
	ok(refuses(make_delta(), 8, "20", "no point"), "point id");
	ok(refuses(make_delta(), 28, "00", "no session"), "session id");
	ok(refuses(make_delta(), 64, "3c", "depth"), "depth 60");
	ok(refuses(make_delta(), 64, "00", "depth"), "delta of depth 0");
	ok(refuses(make_keyframe(), 64, "01", "depth"), "keyframe of depth 1");
	ok(refuses(make_delta(), 68, "01001000", "too many pages"), "memory");
	ok(refuses(make_delta(), 72, "01004000", "too many pages"), "disk");
	ok(refuses(make_delta(), 72, "3f9c0000", "out of range"),
	   "an entry past the disk's end");
	ok(refuses(make_delta(), 204, "20", "parent"), "parent's id");
	ok(refuses(make_delta(), 224, "03", "leads nowhere"), "parent's pack");
	ok(refuses(make_delta(), 225, "0300", "leads nowhere"),
	   "a parent in the header of a pack");
	ok(refuses(make_keyframe(), 2, "0500", "without sums"),
	   "a keyframe without a disk sum");
	ok(refuses(make_keyframe(), 68, "01400000", "map chunks"),
	   "fewer chunks than pages need");
}

static uint64_t random_loc(uint64_t *seed, uint32_t packs, uint64_t last)
{
	uint64_t r = tap_rand(seed);

	if (r % 2 && loc_is_stored(last) && loc_slot(last) < 3)
		return last + 1;
	return loc_make((uint32_t)(r >> 8) % packs,
			(4 + (r >> 16) % (r % 3 ? 5000 : 0xfffffff0)) * 16,
			(unsigned int)(r >> 4) % 4);
}

static void random_map(struct manifest *m, enum page_kind kind, uint64_t *seed)
{
	uint32_t pages = manifest_pages(m, kind), i = 0, nr = 0;
	struct manifest_entry *en = base_alloc(2000 * sizeof(*en));
	uint64_t last = 0;

	while (nr < 2000) {
		uint64_t r = tap_rand(seed);

		i += 1 + (uint32_t)(r % 7 ? 0 : (r >> 8) % 3000);
		if (i >= pages)
			break;
		en[nr].index = i;
		if (r >> 60 == 0)
			en[nr].loc = kind == PAGE_DISK ? LOC_ZERO : LOC_BASE;
		else
			en[nr].loc = last = random_loc(seed, m->packs.nr, last);
		nr++;
	}
	m->map[kind].entries = en;
	m->map[kind].nr_entries = nr;
}

static void test_laws(void)
{
	uint64_t seed = tap_seed();
	int bad = 0;

	for (int i = 0; i < 200; i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		struct manifest m = make_delta(), back = { 0 };

		free(m.map[0].entries);
		free(m.map[1].entries);
		m.rest.memory_pages =
			1 + (uint32_t)tap_rand(&seed) % PAGE_MEMORY_MAX;
		m.rest.disk_pages =
			(uint32_t)tap_rand(&seed) % (PAGE_DISK_MAX + 1);
		m.has_sum[PAGE_DISK] = i % 2;
		m.epoch = tap_rand(&seed);
		m.time_ns = (int64_t)tap_rand(&seed);
		random_map(&m, PAGE_MEMORY, &seed);
		random_map(&m, PAGE_DISK, &seed);
		bad += manifest_encode(&b, &m) ||
		       manifest_decode(&back, b.p, b.len, &e) ||
		       !same(&m, &back);
		manifest_done(&back);
		manifest_done(&m);
	}
	is_int(bad, 0, "decode(encode(m)) = m for 200 random deltas");
}

/* The promise behind FRAME_META_MAX: the worst legal delta still fits. */
static void test_worst(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	struct manifest m = make_delta();
	struct manifest_entry *en = base_alloc(MANIFEST_DELTA_MAX * sizeof(*en));

	for (uint32_t i = 0; i < MANIFEST_DELTA_MAX; i++)
		en[i] = (struct manifest_entry){
			i * 31, loc_make(i % 2, i % 4 / 2 ? 64 : 0xffffffff0ull, 3)
		};
	free(m.map[0].entries);
	m.map[0].entries = en;
	m.map[0].nr_entries = MANIFEST_DELTA_MAX;
	m.rest.memory_pages = PAGE_MEMORY_MAX;
	is_int(manifest_encode(&b, &m), 0, "the largest delta fits a frame");
	ok(b.len + MANIFEST_EXEC_MAX + MANIFEST_PACKS_MAX * PACK_ID_LEN <
		   FRAME_META_MAX,
	   "also with all packs and exec states: %zu bytes of entries", b.len);
	manifest_done(&m);
}

int main(void)
{
	test_vectors();
	test_chunk();
	test_entries();
	test_refused();
	test_laws();
	test_worst();
	return tap_done();
}
