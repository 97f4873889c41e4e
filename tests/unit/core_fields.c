/* Rows as tables: known bytes, laws under a generator, refusals. */
#include "core/exec_row.h"
#include "core/operation.h"
#include "core/session_row.h"

#include "tests/tap.h"

static void random_text(uint64_t *seed, char *s, size_t len)
{
	static const char set[] = "abcXYZ019 \"\\/\n";
	size_t n = (size_t)(tap_rand(seed) % len);

	memset(s, 0, len);
	for (size_t i = 0; i < n; i++)
		s[i] = set[tap_rand(seed) % (sizeof(set) - 1)];
}

static void random_fields(uint64_t *seed, const struct fields *t, void *s);

static void random_field(uint64_t *seed, const struct field *f, void *p)
{
	uint64_t v = tap_rand(seed);

	if (tap_rand(seed) % 4 == 0)
		return; /* stays zero */
	switch (f->kind) {
	case FIELD_STR:
		random_text(seed, p, f->len);
		break;
	case FIELD_U32:
		*(uint32_t *)p = (uint32_t)v;
		break;
	case FIELD_I32:
		*(int *)p = (int)(int32_t)(uint32_t)v;
		break;
	case FIELD_U64:
		*(uint64_t *)p = v >> 11;
		break;
	case FIELD_NS:
		*(int64_t *)p = (int64_t)v;
		break;
	case FIELD_BOOL:
		*(bool *)p = v & 1;
		break;
	case FIELD_HEX:
		for (size_t i = 0; i < f->len; i++)
			((uint8_t *)p)[i] = (uint8_t)tap_rand(seed);
		break;
	case FIELD_ENUM:
		*(int *)p = (int)(v % f->len);
		break;
	case FIELD_PART:
		random_fields(seed, f->aux, p);
		break;
	case FIELD_JSON:
		*(json_t **)p = json_pack("[s,i]", "x", (int)(v % 1000));
		break;
	}
}

static void random_fields(uint64_t *seed, const struct fields *t, void *s)
{
	for (size_t i = 0; i < t->nr; i++)
		random_field(seed, &t->f[i], (char *)s + t->f[i].off);
}

/* decode(encode(x)) = x, told by encoding again */
static void test_law(const struct fields *t, const char *name, uint64_t *seed)
{
	int wrong = 0;

	for (int i = 0; i < 300; i++) {
		struct buf a SCOPED(buf_done) = { 0 };
		struct buf b SCOPED(buf_done) = { 0 };
		void *x = base_alloc(t->size), *y = base_alloc(t->size);
		struct err e;

		random_fields(seed, t, x);
		fields_row_encode(&a, t, x);
		memset(y, 0xa5, t->size);
		wrong += fields_row_decode(a.p, a.len, t, y, &e) != 0;
		fields_row_encode(&b, t, y);
		wrong += a.len != b.len || memcmp(a.p, b.p, a.len);
		fields_done(t, x);
		fields_done(t, y);
		free(x);
		free(y);
	}
	is_int(wrong, 0, "%s: decode(encode(x)) = x", name);
}

static void test_bytes(void)
{
	static const char want[] =
		"{\"capture_us\":0,\"disk_pages\":0,\"epoch\":2,"
		"\"freeze_us\":0,\"id\":\"p0000000000000000001\","
		"\"keyframe\":true,\"kind\":\"before-rewind\","
		"\"memory_pages\":0,\"offset\":4096,"
		"\"pack\":\"000102030405060708090a0b0c0d0e0f\",\"seq\":0,"
		"\"stored_bytes\":0,\"time_ns\":\"1700000000000000001\","
		"\"unquiesced\":false}";
	struct point p = { .epoch = 2,
			   .offset = 4096,
			   .keyframe = true,
			   .kind = POINT_BEFORE_REWIND,
			   .time_ns = 1700000000000000001 };
	struct buf b SCOPED(buf_done) = { 0 };
	struct point back;
	struct err e;

	base_strcpy(p.id, sizeof(p.id), "p0000000000000000001");
	for (uint8_t i = 0; i < 16; i++)
		p.pack[i] = i;
	point_encode(&b, &p);
	is_str(buf_cstr(&b), want, "a point's row, byte for byte");
	is_int(point_decode(&back, b.p, b.len, &e), 0, "and back");
	is_int(back.time_ns, p.time_ns, "time");
	is_mem(back.pack, p.pack, 16, "pack");
}

static void test_key(void)
{
	uint8_t key[POINT_KEY_LEN];

	point_key(key, "s0000000000000000001", 0x0102030405060708);
	is_mem(key, "s0000000000000000001\x01\x02\x03\x04\x05\x06\x07\x08",
	       POINT_KEY_LEN, "a point's key sorts by time");
}

static void test_refused(void)
{
	static const char *const bad[] = {
		"[]",
		"{\"epoch\":-1}",
		"{\"epoch\":9007199254740993}",
		"{\"epoch\":\"1\"}",
		"{\"time_ns\":5}",
		"{\"time_ns\":\"5x\"}",
		"{\"kind\":\"weekly\"}",
		"{\"pack\":\"00\"}",
		"{\"keyframe\":1}",
		"{\"id\":\"p00000000000000000012\"}",
		"{\"id\":3}",
		"{",
	};
	struct point p;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ok(point_decode(&p, bad[i], strlen(bad[i]), &e) < 0 && !p.id[0],
		   "refused: %s", bad[i]);
	point_decode(&p, "{\"kind\":\"weekly\"}", 17, &e);
	ok(strstr(e.msg, "kind") && strstr(e.msg, "weekly"),
	   "the error names member and value");
	is_int(point_decode(&p, "{\"colour\":1}", 12, &e), 0,
	       "members of a newer build are ignored");
}

/* Two structs equal by members, with unlike bytes between them. */
static void test_padding(void)
{
	struct session a, b;
	struct buf x SCOPED(buf_done) = { 0 };
	struct buf y SCOPED(buf_done) = { 0 };

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	memset(&b.undo, 0xff, sizeof(b.undo));
	b.undo.time_ns = 0;
	b.undo.epoch = 0;
	memset(b.undo.id, 0, sizeof(b.undo.id));
	memset(b.undo.session, 0, sizeof(b.undo.session));
	session_encode(&x, &a);
	session_encode(&y, &b);
	is_str(buf_cstr(&x), buf_cstr(&y), "padding says nothing");
	ok(!strstr(buf_cstr(&x), "undo"), "an empty part is left out");
}

static void test_copy(void)
{
	struct exec a = { .argv = json_pack("[s]", "ls") }, b;

	fields_copy(&exec_fields, &b, &a);
	exec_done(&a);
	is_str(json_string_value(json_array_get(b.argv, 0)), "ls",
	       "a copy owns what it has");
	exec_done(&b);
	ok(!b.argv, "done drops it");
}

static void test_names(void)
{
	static const char *const good[] = { "a", "web-1", "A.b_c-9",
					    "abcdefghijklmnopqrs" };
	static const char *const bad[] = {
		"",	    "1a", "-a", "a b", "a/b", "abcdefghijklmnopqrst",
		"\xc3\xa4", "@1", "a\n"
	};
	char sixty_four[65];

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		ok(point_name_valid(good[i]), "a name: %s", good[i]);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ok(!point_name_valid(bad[i]), "no name: number %zu", i);
	memset(sixty_four, 'n', 64);
	sixty_four[64] = 0;
	ok(!point_name_valid(sixty_four), "64 bytes are too many");
	ok(point_name_valid(sixty_four + 1), "63 are not");
}

int main(void)
{
	uint64_t seed = tap_seed();

	test_law(&point_fields, "point", &seed);
	test_law(&session_fields, "session", &seed);
	test_law(&operation_fields, "operation", &seed);
	test_law(&exec_fields, "exec", &seed);
	test_bytes();
	test_key();
	test_refused();
	test_padding();
	test_copy();
	test_names();
	return tap_done();
}
