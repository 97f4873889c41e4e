/*
 * Tests of core/buf: varints against written-out bytes, laws of round trips,
 * and cursors over foreign bytes that lie.
 */
#include "core/buf.h"

#include <stdio.h>

#include "tests/tap.h"

static void test_put(void)
{
	static const uint8_t want[] = {
		0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f, 0x0e, 0x0d,
		0x0c, 0x0b, 0x0a, 0x09, 0x08, 'h',  'i',  '4',	'2',
	};
	SCOPED(buf_done) struct buf b = { 0 };

	buf_put_u8(&b, 1);
	buf_put_u16(&b, 0x0203);
	buf_put_u32(&b, 0x04050607);
	buf_put_u64(&b, 0x08090a0b0c0d0e0f);
	buf_put_str(&b, "hi");
	buf_printf(&b, "%d", 42);
	is_int(b.len, sizeof(want), "the length is counted");
	ok(!memcmp(b.p, want, sizeof(want)), "the bytes are little-endian");
	is_str(buf_cstr(&b) + 15, "hi42", "the string view is terminated");
	is_int(b.len, sizeof(want), "and does not count its NUL");
	buf_reset(&b);
	ok(!b.len && b.cap, "reset keeps the memory");
	is_str(buf_cstr(&b), "", "and leaves the empty string");
	buf_put(&b, NULL, 0);
	is_int(b.len, 0, "nothing appended is nothing");
	buf_done(&b);
	ok(!b.p && !b.len && !b.cap, "done leaves it empty");
}

static void test_varint_bytes(void)
{
	static const struct {
		uint64_t v;
		size_t len;
		const char *bytes;
	} want[] = {
		{ 0, 1, "\x00" },
		{ 127, 1, "\x7f" },
		{ 128, 2, "\x80\x01" },
		{ 300, 2, "\xac\x02" },
		{ 16383, 2, "\xff\x7f" },
		{ 16384, 3, "\x80\x80\x01" },
		{ UINT64_MAX, 10, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" },
	};

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		struct cur c;

		buf_put_varint(&b, want[i].v);
		ok(b.len == want[i].len && !memcmp(b.p, want[i].bytes, b.len),
		   "%" PRIu64 " has the %zu bytes of LEB128", want[i].v,
		   want[i].len);
		c = cur_init(b.p, b.len);
		ok(cur_get_varint(&c) == want[i].v && cur_done(&c),
		   "and is read back");
	}
}

static void test_varint_refused(void)
{
	static const struct {
		const char *what, *bytes;
		size_t len;
	} bad[] = {
		{ "overlong zero", "\x80\x00", 2 },
		{ "overlong one", "\x81\x80\x00", 3 },
		{ "65 bits", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10 },
		{ "eleven bytes",
		  "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x81\x00", 11 },
		{ "an early end", "\xff\xff", 2 },
		{ "no byte", "", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct cur c = cur_init(bad[i].bytes, bad[i].len);

		ok(!cur_get_varint(&c) && c.failed, "refuses %s", bad[i].what);
	}
}

static void test_cursor(void)
{
	static const uint8_t text[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct cur c = cur_init(text, sizeof(text));
	uint8_t copy[4] = { 9, 9, 9, 9 };

	is_int(cur_get_u8(&c), 1, "a byte");
	is_int(cur_get_u16(&c), 0x0302, "two");
	is_int(cur_left(&c), 5, "five are left");
	ok(!cur_done(&c), "so it is not done");
	ok(!cur_get(&c, 6) && c.failed, "six can't be had");
	is_int(cur_get_u8(&c), 0, "once failed it yields zeros");
	is_int(cur_get_u32(&c) + cur_get_u64(&c), 0, "of every size");
	ok(!cur_get_copy(&c, copy, 4) && !get_u32(copy), "also as copies");
	ok(!cur_get(&c, 0), "and NULL even for nothing");
	ok(!cur_done(&c), "and is never done");
	c = cur_init(text, sizeof(text));
	ok(!cur_get(&c, SIZE_MAX) && c.failed, "a huge length can't wrap");
	c = cur_init(text, 4);
	ok(cur_get_copy(&c, copy, 4) && !memcmp(copy, text, 4) && cur_done(&c),
	   "a copy of all is done");
	c = cur_init(NULL, 0);
	ok(cur_done(&c) && cur_get_copy(&c, copy, 0), "nothing is done");
}

/* One random item written and noted; read back in the same order. */
struct item {
	int kind;
	uint64_t v;
};

static uint64_t item_mask(int kind)
{
	static const uint64_t mask[] = { 0xff, 0xffff, 0xffffffff, UINT64_MAX,
					 UINT64_MAX };

	return mask[kind];
}

static void item_put(struct buf *b, const struct item *it)
{
	switch (it->kind) {
	case 0:
		buf_put_u8(b, (uint8_t)it->v);
		break;
	case 1:
		buf_put_u16(b, (uint16_t)it->v);
		break;
	case 2:
		buf_put_u32(b, (uint32_t)it->v);
		break;
	case 3:
		buf_put_u64(b, it->v);
		break;
	default:
		buf_put_varint(b, it->v);
	}
}

static uint64_t item_get(struct cur *c, int kind)
{
	switch (kind) {
	case 0:
		return cur_get_u8(c);
	case 1:
		return cur_get_u16(c);
	case 2:
		return cur_get_u32(c);
	case 3:
		return cur_get_u64(c);
	default:
		return cur_get_varint(c);
	}
}

static void law_round_trip(uint64_t *rng)
{
	enum { NR = 5000 };
	SCOPED_FREE struct item *items = base_alloc(NR * sizeof(*items));
	SCOPED(buf_done) struct buf b = { 0 };
	int wrong = 0;
	struct cur c;

	for (int i = 0; i < NR; i++) {
		items[i].kind = (int)(tap_rand(rng) % 5);
		items[i].v = tap_rand(rng) >> (tap_rand(rng) % 64);
		items[i].v &= item_mask(items[i].kind);
		item_put(&b, &items[i]);
	}
	c = cur_init(b.p, b.len);
	for (int i = 0; i < NR; i++)
		wrong += item_get(&c, items[i].kind) != items[i].v;
	is_int(wrong, 0, "what was written is read, %d items", NR);
	ok(cur_done(&c), "to the last byte");
	c = cur_init(b.p, b.len - 1);
	for (int i = 0; i < NR; i++)
		item_get(&c, items[i].kind);
	ok(c.failed, "one byte less and it fails");
}

/* Bytes that decode as a varint are the bytes that it encodes to. */
static void law_one_form(uint64_t *rng)
{
	int wrong = 0, accepted = 0;

	for (int i = 0; i < 200000; i++) {
		SCOPED(buf_done) struct buf b = { 0 };
		uint8_t raw[12];
		struct cur c = cur_init(raw, 1 + tap_rand(rng) % 12);
		uint64_t v;

		for (size_t k = 0; k < sizeof(raw); k++)
			raw[k] = (uint8_t)(tap_rand(rng) |
					   (tap_rand(rng) % 4 ? 0x80 : 0));
		v = cur_get_varint(&c);
		if (c.failed)
			continue;
		accepted++;
		buf_put_varint(&b, v);
		wrong += b.len != (size_t)(c.p - raw) ||
			 memcmp(b.p, raw, b.len) != 0;
	}
	is_int(wrong, 0, "each number has one form (%d accepted)", accepted);
	ok(accepted > 1000, "and the law met enough of them");
}

int main(void)
{
	uint64_t rng = tap_seed();

	test_put();
	test_varint_bytes();
	test_varint_refused();
	test_cursor();
	law_round_trip(&rng);
	law_one_form(&rng);
	return tap_done();
}
