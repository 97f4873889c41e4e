/*
 * The agent's protocol: frames against vectors made by another program
 * (docs/adr/0050), laws under a seed, and a stream that is cut anywhere.
 */
#include "core/agent_proto.h"
#include "tests/hex.h"

#define TAG "a0123456789bcdefghij"

static const struct {
	const char *name, *hex;
} vectors[] = {
	{ "RESET", "f5637279010100000400000088776655443322118e239d06"
		   "0100010071dc62f9f5656e64" },
	{ "PING", "f563727901020000000000000700000000000000d592e1b2"
		  "2a6d1e4df5656e64" },
	{ "EXEC_START",
	  "f56372790103000050000000080000000000000055d68310613031323334353637"
	  "383962636465666768696a00010000000400757365720004002f746d7000030000"
	  "0013000000020073680002002d6300060065786974203300010000000600000003"
	  "00413d3100aa297ceff5656e64" },
	{ "OUT",
	  "f5637279014000002500000000000000000000002cb7b7d6613031323334353637"
	  "383962636465666768696a000100100000000000000300000068690ad3484829f5"
	  "656e64" },
	{ "EXITED",
	  "f5637279014100003d00000000000000000000004f457226613031323334353637"
	  "383962636465666768696a00890000000900000003000000000000000000000000"
	  "000000e803000000000000d007000000000000b0ba8dd9f5656e64" },
	{ "HELLO",
	  "f56372790181000074000000887766554433221154814363010000010203040506"
	  "0708090a0b0c0d0e0f15cd5b070000000002000000000000000100000001007400"
	  "0100000042000000613031323334353637383962636465666768696a00012a0000"
	  "0005000000000000000a0000000000000014000000000000000000000000000000"
	  "0700000000000000ab7ebc9cf5656e64" },
	{ "FAILED", "f563727901ff000009000000080000000000000075f2f56b"
		    "0200000002006e6f008a0d0a94f5656e64" },
	{ "FILE_ENTRIES",
	  "f5637279018d000030000000090000000000000057dac143000000000000000001"
	  "00000020000000a4810000e8030000e80300000c0000000000000000002a36fe9c"
	  "971701006600a8253ebcf5656e64" },
	{ "SETTIME_DONE", "f563727901900000090000000a0000000000000093dc70a6"
			  "fbffffffffffffff016c238f59f5656e64" },
};

static struct agent_bytes bytes_of(const struct buf *b)
{
	return (struct agent_bytes){ b->p, (uint32_t)b->len };
}

static void vector_exec_start(struct agent_msg *m, struct buf b[2])
{
	agent_strs_add(&b[0], "sh");
	agent_strs_add(&b[0], "-c");
	agent_strs_add(&b[0], "exit 3");
	agent_strs_add(&b[1], "A=1");
	m->exec_start.tag = TAG;
	m->exec_start.flags = AGENT_EXEC_STDIN;
	m->exec_start.user = "user";
	m->exec_start.cwd = "/tmp";
	m->exec_start.argv = (struct agent_strs){ 3, bytes_of(&b[0]) };
	m->exec_start.env = (struct agent_strs){ 1, bytes_of(&b[1]) };
}

static void vector_hello(struct agent_msg *m, struct buf *b)
{
	static const uint8_t boot[16] = { 0, 1, 2,  3,	4,  5,	6,  7,
					  8, 9, 10, 11, 12, 13, 14, 15 };
	struct agent_exec_state x = { TAG, AGENT_EXEC_RUNNING, 42, 5, 10, 20, 0,
				      7 };

	agent_exec_add(b, &x);
	m->hello.version = 1;
	m->hello.boot_id = (struct agent_bytes){ boot, 16 };
	m->hello.mono_ns = 123456789;
	m->hello.generation = 2;
	m->hello.nr_cpus = 1;
	m->hello.agent = "t";
	m->hello.nr_execs = 1;
	m->hello.execs = bytes_of(b);
}

static void vector_entries(struct agent_msg *m, struct buf *b)
{
	struct agent_entry en = { 0100644, 1000, 1000, 12, 1700000000000000000,
				  "f" };

	agent_entry_add(b, &en);
	m->file_entries = (struct agent_file_entries){ 0, 1, bytes_of(b) };
}

/* The messages that the vectors spell out. `b` keeps their lists. */
static void vector_message(size_t i, struct agent_msg *m, struct buf b[2])
{
	static const struct agent_msg simple[ARRAY_LEN(vectors)] = {
		{ .type = AGENT_RESET, .id = 0x1122334455667788, .reset = { 1, 1 } },
		{ .type = AGENT_PING, .id = 7 },
		{ .type = AGENT_EXEC_START, .id = 8 },
		{ .type = AGENT_OUT,
		  .out = { TAG, AGENT_STDOUT, 4096, { (const uint8_t *)"hi\n", 3 } } },
		{ .type = AGENT_EXITED,
		  .exited = { TAG, 137, 9, 3, 0, 1000, 2000 } },
		{ .type = AGENT_HELLO, .id = 0x1122334455667788 },
		{ .type = AGENT_FAILED, .id = 8, .failed = { 2, "no" } },
		{ .type = AGENT_FILE_ENTRIES, .id = 9 },
		{ .type = AGENT_SETTIME_DONE, .id = 10, .settime_done = { -5, 1 } },
	};

	buf_reset(&b[0]);
	buf_reset(&b[1]);
	*m = simple[i];
	if (m->type == AGENT_EXEC_START)
		vector_exec_start(m, b);
	else if (m->type == AGENT_HELLO)
		vector_hello(m, &b[0]);
	else if (m->type == AGENT_FILE_ENTRIES)
		vector_entries(m, &b[0]);
}

static void feed(struct agent_dec *d, const void *p, size_t len)
{
	size_t room;
	void *to = agent_dec_room(d, &room);

	if (len > room)
		bail("no room in the decoder");
	memcpy(to, p, len);
	agent_dec_fed(d, len);
}

/* A guest's decoder that is in step, or a host's after its HELLO. */
static void decoder(struct agent_dec *d, enum agent_side side)
{
	struct agent_msg m = { .type = AGENT_RESET, .id = 99, .reset = { 1, 1 } };
	struct buf b SCOPED(buf_done) = { 0 };
	static const uint8_t boot[16];

	agent_dec_init(d, side);
	if (side == AGENT_HOST) {
		m.type = AGENT_HELLO;
		m.hello = (struct agent_hello){ .version = 1,
						.boot_id = { boot, 16 },
						.nr_cpus = 1 };
		agent_dec_resync(d, 99);
	}
	if (agent_msg_encode(&b, &m))
		bail("encode");
	feed(d, b.p, b.len);
	if (agent_dec_next(d, &m) != 1)
		bail("no start of the stream");
}

static enum agent_side reader(enum agent_type type)
{
	return type < 0x40 ? AGENT_GUEST : AGENT_HOST;
}

static void test_vectors(void)
{
	struct buf lists[2] = { { 0 }, { 0 } }, b = { 0 }, again = { 0 };
	struct agent_msg m;
	struct agent_dec d;
	uint8_t want[512];

	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		size_t len = hex_read(want, sizeof(want), vectors[i].hex);

		vector_message(i, &m, lists);
		buf_reset(&b);
		is_int(agent_msg_encode(&b, &m), 0, "%s encodes",
		       vectors[i].name);
		ok(b.len == len && !memcmp(b.p, want, len),
		   "to the vector's bytes");
		is_str(agent_type_name(m.type), vectors[i].name, "its name");
		decoder(&d, reader(m.type));
		if (m.type == AGENT_HELLO)
			agent_dec_resync(&d, m.id);
		feed(&d, want, len);
		is_int(agent_dec_next(&d, &m), 1, "the vector decodes");
		buf_reset(&again);
		is_int(agent_msg_encode(&again, &m), 0, "and encodes again");
		ok(again.len == len && !memcmp(again.p, want, len),
		   "to the same bytes");
		is_int(agent_dec_next(&d, &m), 0, "nothing is left");
		agent_dec_done(&d);
	}
	buf_done(&lists[0]);
	buf_done(&lists[1]);
	buf_done(&b);
	buf_done(&again);
}

static void test_fields(void)
{
	struct buf lists[2] = { { 0 }, { 0 } }, b = { 0 };
	const char *argv[4];
	struct agent_exec_state x;
	struct agent_bytes rest;
	struct agent_msg m;
	struct agent_dec d;

	decoder(&d, AGENT_GUEST);
	vector_message(2, &m, lists);
	agent_msg_encode(&b, &m);
	feed(&d, b.p, b.len);
	agent_dec_next(&d, &m);
	is_str(m.exec_start.tag, TAG, "tag");
	is_str(m.exec_start.user, "user", "user");
	is_str(m.exec_start.cwd, "/tmp", "cwd");
	is_int(agent_strs_get(&m.exec_start.argv, argv, 4), 3, "argv");
	is_str(argv[2], "exit 3", "its last");
	ok(!argv[3], "ends with NULL");
	is_int(agent_strs_get(&m.exec_start.argv, argv, 3), -E2BIG,
	       "no room for the NULL");
	agent_dec_done(&d);
	vector_message(5, &m, lists);
	rest = m.hello.execs;
	is_int(agent_exec_next(&rest, &x), 1, "an exec");
	is_int(x.pid, 42, "pid");
	is_int(x.stdin_offset, 5, "stdin");
	is_int(x.out_end, 20, "end of stdout");
	is_int(x.err_end, 7, "end of stderr");
	is_int(agent_exec_next(&rest, &x), 0, "and no other");
	buf_done(&lists[0]);
	buf_done(&lists[1]);
	buf_done(&b);
}

/* What must not be encoded, and leaves the buffer as it was. */
static void test_refused(void)
{
	struct buf b = { 0 }, raw = { 0 };
	static char big[5000];
	static const uint8_t data[AGENT_DATA_MAX + 1];
	struct agent_msg m = { .type = AGENT_FILE_READ };

	buf_put_u8(&b, 7);
	memset(big, 'x', sizeof(big) - 1);
	big[0] = '/';
	m.file_read = (struct agent_file_read){ "relative", 0, 10 };
	is_int(agent_msg_encode(&b, &m), -EINVAL, "a relative path");
	m.file_read.path = big;
	is_int(agent_msg_encode(&b, &m), -EINVAL, "a path of 4999 bytes");
	big[AGENT_PATH_MAX] = '\0';
	is_int(agent_msg_encode(&b, &m), 0, "one of 4095 is good");
	b.len = 1;
	m.file_read = (struct agent_file_read){ "/a", 0, AGENT_DATA_MAX + 1 };
	is_int(agent_msg_encode(&b, &m), -EINVAL, "too long a read");
	m.type = AGENT_SIGNAL;
	m.signal = (struct agent_signal){ "short", 9 };
	is_int(agent_msg_encode(&b, &m), -EINVAL, "a tag that is none");
	m.signal = (struct agent_signal){ TAG, 0 };
	is_int(agent_msg_encode(&b, &m), -EINVAL, "signal 0");
	m.signal.signal = 65;
	is_int(agent_msg_encode(&b, &m), -EINVAL, "signal 65");
	m.type = AGENT_STDIN;
	m.stdin_data =
		(struct agent_stdin){ TAG, 0, 0, { data, AGENT_DATA_MAX + 1 } };
	is_int(agent_msg_encode(&b, &m), -EINVAL, "too much data");
	m.type = AGENT_EXEC_START;
	m.exec_start = (struct agent_exec_start){ .tag = TAG };
	is_int(agent_msg_encode(&b, &m), -EINVAL, "an empty argv");
	for (int i = 0; i < 20; i++)
		agent_strs_add(&raw, big);
	m.exec_start.argv =
		(struct agent_strs){ 20, { raw.p, (uint32_t)raw.len } };
	is_int(agent_msg_encode(&b, &m), -E2BIG, "80 KB of arguments");
	m.type = AGENT_RESEED;
	m.reseed.seed = (struct agent_bytes){ data, 31 };
	is_int(agent_msg_encode(&b, &m), -EINVAL, "a seed of 31 bytes");
	ok(b.len == 1 && b.p[0] == 7, "the buffer is as before");
	buf_done(&b);
	buf_done(&raw);
}

/* Each single bit flipped in header or trailer is noticed. */
static void test_flips(void)
{
	struct buf lists[2] = { { 0 }, { 0 } }, b = { 0 };
	struct agent_msg m;
	struct agent_dec d;
	unsigned taken = 0;

	vector_message(3, &m, lists);
	agent_msg_encode(&b, &m);
	for (size_t bit = 0; bit < b.len * 8; bit++) {
		bool framing = bit / 8 < AGENT_HEADER_LEN ||
			       bit / 8 >= b.len - AGENT_TRAILER_LEN;

		if (!framing)
			continue;
		decoder(&d, AGENT_HOST);
		b.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		feed(&d, b.p, b.len);
		taken += agent_dec_next(&d, &m) != -EPROTO;
		b.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		agent_dec_done(&d);
	}
	is_int(taken, 0, "every flipped bit of the framing is refused");
	buf_done(&b);
	buf_done(&lists[0]);
}

/* Bodies that lie about themselves; the frame around them is right. */
static void body_refused(enum agent_side side, const char *hex, const char *name)
{
	struct agent_msg m;
	struct agent_dec d;
	uint8_t p[256];
	size_t len = hex_read(p, sizeof(p), hex);

	decoder(&d, side);
	feed(&d, p, len);
	is_int(agent_dec_next(&d, &m), -EPROTO, "%s", name);
	ok(!d.synced, "and the stream is out of step");
	agent_dec_done(&d);
}

static void test_bodies(void)
{
	/* made by the same program as the vectors */
	body_refused(AGENT_HOST,
		     "f563727901400000250000000000000000000000"
		     "2cb7b7d6613031323334353637383962636465666768696a00"
		     "0300100000000000000300000068690ad3484829f5656e64",
		     "OUT of stream 3");
	body_refused(AGENT_HOST,
		     "f563727901400000250000000000000000000000"
		     "2cb7b7d6613031323334353637383962636465666768696a00"
		     "0100100000000000000200000068690ad3484829f5656e64",
		     "a byte too many");
	body_refused(AGENT_HOST,
		     "f563727901400000250000000000000000000000"
		     "2cb7b7d6613031323334353637383962636465666768696a00"
		     "0100100000000000000400000068690ad3484829f5656e64",
		     "a byte too few");
	body_refused(AGENT_HOST,
		     "f563727901400000250000000000000000000000"
		     "2cb7b7d6413031323334353637383962636465666768696a00"
		     "0100100000000000000300000068690ad3484829f5656e64",
		     "a tag with a capital");
	body_refused(AGENT_HOST,
		     "f5637279018d000030000000090000000000000057dac143"
		     "00000000000000000100000020000000a4810000e8030000e803"
		     "00000c0000000000000000002a36fe9c971701002f00a8253e"
		     "bcf5656e64",
		     "an entry named /");
	body_refused(AGENT_HOST,
		     "f5637279018d000030000000090000000000000057dac143"
		     "00000000000000000100000020000000a4810000e8030000e803"
		     "00000c0000000000000000002a36fe9c971701002e00a8253e"
		     "bcf5656e64",
		     "an entry named .");
	body_refused(AGENT_GUEST,
		     "f563727901400000250000000000000000000000"
		     "2cb7b7d6613031323334353637383962636465666768696a00"
		     "0100100000000000000300000068690ad3484829f5656e64",
		     "OUT sent to a guest");
	body_refused(AGENT_HOST,
		     "f563727901020000000000000700000000000000"
		     "d592e1b22a6d1e4df5656e64",
		     "PING sent to a host");
}

/* --- the stream ---------------------------------------------------------------- */

static void random_message(uint64_t *seed, struct agent_msg *m, uint8_t *data)
{
	uint32_t len = (uint32_t)(tap_rand(seed) % 3000);

	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)(tap_rand(seed) % 5 ? tap_rand(seed) : 0xf5);
	*m = (struct agent_msg){ .type = AGENT_STDIN };
	m->stdin_data = (struct agent_stdin){
		TAG, tap_rand(seed), (uint8_t)(tap_rand(seed) % 2), { data, len }
	};
}

/* However the bytes are cut, the same messages come out. */
static void test_pieces(uint64_t *seed)
{
	enum { NR = 200 };
	struct buf b = { 0 };
	static uint8_t data[3000];
	static uint64_t offsets[NR];
	struct agent_msg m;
	struct agent_dec d;
	size_t at = 0, got = 0, wrong = 0;

	for (int i = 0; i < NR; i++) {
		random_message(seed, &m, data);
		offsets[i] = m.stdin_data.offset;
		if (agent_msg_encode(&b, &m))
			bail("encode");
	}
	decoder(&d, AGENT_GUEST);
	while (at < b.len) {
		size_t n = MIN(1 + tap_rand(seed) % 5000, b.len - at);

		feed(&d, b.p + at, n);
		at += n;
		while (agent_dec_next(&d, &m) == 1)
			wrong += m.stdin_data.offset != offsets[got++];
	}
	is_int(got, NR, "all messages, whatever the pieces");
	is_int(wrong, 0, "in order");
	buf_done(&b);
	agent_dec_done(&d);
}

/*
 * A stream cut at any byte, padding, RESET: the guest returns what was whole
 * before the cut, then that RESET, and is in step.
 */
static void cut_at(const struct buf *b, size_t cut, const struct buf *rest,
		   unsigned *ret_bad)
{
	static const uint8_t zeros[AGENT_PAD_LEN];
	const struct buf *parts = rest;
	struct agent_msg m;
	struct agent_dec d;
	uint64_t last = 0;
	int r;

	decoder(&d, AGENT_GUEST);
	feed(&d, b->p, cut);
	while (agent_dec_next(&d, &m) == 1)
		*ret_bad += m.type != AGENT_STDIN;
	feed(&d, zeros, sizeof(zeros));
	while ((r = agent_dec_next(&d, &m)))
		*ret_bad += r == 1; /* nothing is made of the padding */
	feed(&d, parts->p, parts->len);
	while ((r = agent_dec_next(&d, &m)))
		if (r == 1)
			last = last * 10 + (m.type == AGENT_RESET ? 1 : 2);
	*ret_bad += last != 12; /* RESET, then PING */
	agent_dec_done(&d);
}

static void test_cuts(uint64_t *seed)
{
	struct buf b = { 0 }, rest = { 0 };
	static uint8_t data[3000];
	struct agent_msg m;
	unsigned bad = 0, tried = 0;

	for (int i = 0; i < 3; i++) {
		random_message(seed, &m, data);
		agent_msg_encode(&b, &m);
	}
	m = (struct agent_msg){ .type = AGENT_RESET, .id = 77, .reset = { 1, 1 } };
	agent_msg_encode(&rest, &m);
	m = (struct agent_msg){ .type = AGENT_PING, .id = 78 };
	agent_msg_encode(&rest, &m);
	for (size_t cut = 1; cut < b.len;
	     cut += cut < 100 ? 1 : 1 + tap_rand(seed) % 50, tried++)
		cut_at(&b, cut, &rest, &bad);
	ok(tried > 100, "%u cuts", tried);
	is_int(bad, 0, "each heals with padding and RESET, and loses nothing");
	buf_done(&b);
	buf_done(&rest);
}

/* The longest frame, cut in its header's last byte: the padding is enough. */
static void test_longest_cut(void)
{
	struct buf raw = { 0 }, b = { 0 }, rest = { 0 };
	static char arg[4000];
	struct agent_msg m = { .type = AGENT_EXEC_START };
	unsigned bad = 0;

	memset(arg, 'y', sizeof(arg) - 1);
	for (int i = 0; i < 16; i++)
		agent_strs_add(&raw, arg);
	m.exec_start = (struct agent_exec_start){
		.tag = TAG, .argv = { 16, { raw.p, (uint32_t)raw.len } }
	};
	is_int(agent_msg_encode(&b, &m), 0, "a frame of %zu bytes", b.len);
	m = (struct agent_msg){ .type = AGENT_RESET, .id = 77, .reset = { 1, 1 } };
	agent_msg_encode(&rest, &m);
	m = (struct agent_msg){ .type = AGENT_PING, .id = 78 };
	agent_msg_encode(&rest, &m);
	cut_at(&b, AGENT_HEADER_LEN, &rest, &bad);
	cut_at(&b, b.len - 1, &rest, &bad);
	is_int(bad, 0, "heals too");
	buf_done(&raw);
	buf_done(&b);
	buf_done(&rest);
}

/* A host takes only the HELLO that answers its RESET. */
static void test_nonce(void)
{
	struct buf lists[2] = { { 0 }, { 0 } }, b = { 0 };
	struct agent_msg m;
	struct agent_dec d;

	vector_message(3, &m, lists);
	agent_msg_encode(&b, &m); /* OUT of before */
	vector_message(5, &m, lists);
	m.id = 5;
	agent_msg_encode(&b, &m); /* HELLO of another RESET */
	m.id = 6;
	agent_msg_encode(&b, &m); /* ours */
	agent_msg_encode(&b, &m); /* and a second one */
	agent_dec_init(&d, AGENT_HOST);
	feed(&d, b.p, b.len / 2);
	is_int(agent_dec_next(&d, &m), 0, "nothing before a RESET was sent");
	agent_dec_done(&d);
	agent_dec_init(&d, AGENT_HOST);
	agent_dec_resync(&d, 6);
	feed(&d, b.p + 3, b.len - 3);
	is_int(agent_dec_next(&d, &m), 1, "a message");
	is_int(m.type, AGENT_HELLO, "a HELLO");
	is_int(m.id, 6, "ours");
	is_int(agent_dec_next(&d, &m), -EPROTO, "a second HELLO is refused");
	is_int(agent_dec_next(&d, &m), 0, "then silence");
	agent_dec_done(&d);
	buf_done(&lists[0]);
	buf_done(&b);
}

int main(void)
{
	uint64_t seed = tap_seed();

	test_vectors();
	test_fields();
	test_refused();
	test_flips();
	test_bodies();
	test_pieces(&seed);
	test_cuts(&seed);
	test_longest_cut();
	test_nonce();
	return tap_done();
}
