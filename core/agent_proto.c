/*
 * agent_proto: encoder and decoder of the agent's channel.
 *
 * Theory of operation. Each message type is a row of `specs`: a name, who
 * sends it, and the fields of its body in wire order, each with the place of
 * its value in struct agent_msg and its legal range. Encoding and decoding
 * walk that one table, so they can't disagree.
 *
 * A frame on the wire:
 *     0  u32 magic f5 63 72 79      8  u32 length of the body
 *     4  u8  layout, 1             12  u64 id
 *     5  u8  type                  20  u32 CRC-32C of bytes 0..19
 *     6  u16 flags, 0              24  body, then the trailer:
 *            u32 complement of the header's CRC, f5 65 6e 64
 * The trailer proves that a frame is whole: the two ends share memory, so
 * bytes are never altered, but a restore may replace the rest of a frame by
 * padding, and zeros are never a valid trailer (its last bytes are fixed).
 *
 * Invariants:
 *  1. at <= len <= ROOM; the bytes before `at` are spent.
 *  2. A message is returned only if all of its frame and fields were valid.
 *  3. Out of step, a guest returns nothing but RESET, and a host nothing but
 *     the HELLO with the nonce it waits for. Nonce 0 waits for nothing.
 *  4. A header that was valid in step consumes its whole frame, also when the
 *     trailer is wrong: the padding is at least that long, so the RESET
 *     behind it isn't swallowed, and what is inside is never scanned.
 *
 * Nothing here outlives the process; a crash leaves nothing behind.
 */
#include "core/agent_proto.h"

#define MAGIC  \
	"\xf5" \
	"cry"
#define TAIL   \
	"\xf5" \
	"end"
#define LAYOUT 1
#define ROOM (2 * AGENT_FRAME_MAX)

enum kind { U8, U16, U32, U64, TAG, STR, PATH, STRS, DATA, FIX };

struct field {
	uint8_t kind;
	uint16_t at; /* in struct agent_msg */
	uint32_t min, max; /* of the value or length; max 0: any */
};

struct spec {
	const char *name;
	const struct field *fields;
	uint8_t nr;
	uint8_t to; /* enum agent_side + 1; 0: no such type */
};

#define AT(m) offsetof(struct agent_msg, m)
#define F(kind, member, min, max)          \
	{                                  \
		kind, AT(member), min, max \
	}
#define FIELDS(...)                                           \
	.fields = (const struct field[]){ __VA_ARGS__ },      \
	.nr = sizeof((const struct field[]){ __VA_ARGS__ }) / \
	      sizeof(struct field)
#define TO_GUEST .to = AGENT_GUEST + 1
#define TO_HOST .to = AGENT_HOST + 1

static const struct spec specs[256] = {
	[AGENT_RESET] = { "RESET",
			  FIELDS(F(U16, reset.version_min, 1, 0),
				 F(U16, reset.version_max, 1, 0)),
			  TO_GUEST },
	[AGENT_HELLO] = { "HELLO",
			  FIELDS(F(U16, hello.version, 1, 0),
				 F(FIX, hello.boot_id, 16, 16),
				 F(U64, hello.mono_ns, 0, 0),
				 F(U64, hello.generation, 0, 0),
				 F(U32, hello.nr_cpus, 1, 4096),
				 F(STR, hello.agent, 0, 64),
				 F(U32, hello.nr_execs, 0, AGENT_EXECS_MAX),
				 F(DATA, hello.execs, 0,
				   AGENT_EXECS_MAX *AGENT_EXEC_LEN)),
			  TO_HOST },
	[AGENT_PING] = { "PING", TO_GUEST },
	[AGENT_PONG] = { "PONG",
			 FIELDS(F(U64, pong.wall_ns, 0, 0),
				F(U64, pong.mono_ns, 0, 0)),
			 TO_HOST },
	[AGENT_EXEC_START] = { "EXEC_START",
			       FIELDS(F(TAG, exec_start.tag, 0, 0),
				      F(U32, exec_start.flags, 0, AGENT_EXEC_STDIN),
				      F(STR, exec_start.user, 0, AGENT_NAME_MAX),
				      F(STR, exec_start.cwd, 0, AGENT_PATH_MAX),
				      F(STRS, exec_start.argv, 1, AGENT_ARGS_MAX),
				      F(STRS, exec_start.env, 0, AGENT_ARGS_MAX)),
			       TO_GUEST },
	[AGENT_EXEC_STARTED] = { "EXEC_STARTED",
				 FIELDS(F(U32, exec_started.pid, 0, 0)), TO_HOST },
	[AGENT_STDIN] = { "STDIN",
			  FIELDS(F(TAG, stdin_data.tag, 0, 0),
				 F(U64, stdin_data.offset, 0, 0),
				 F(U8, stdin_data.eof, 0, 1),
				 F(DATA, stdin_data.data, 0, AGENT_DATA_MAX)),
			  TO_GUEST },
	[AGENT_STDIN_ACK] = { "STDIN_ACK",
			      FIELDS(F(TAG, stdin_ack.tag, 0, 0),
				     F(U64, stdin_ack.offset, 0, 0),
				     F(U8, stdin_ack.closed, 0, 1)),
			      TO_HOST },
	[AGENT_OUT_ACK] = { "OUT_ACK",
			    FIELDS(F(TAG, out_ack.tag, 0, 0),
				   F(U8, out_ack.stream, 1, 2),
				   F(U64, out_ack.offset, 0, 0)),
			    TO_GUEST },
	[AGENT_EXIT_ACK] = { "EXIT_ACK", FIELDS(F(TAG, exit_ack.tag, 0, 0)),
			     TO_GUEST },
	[AGENT_OUT] = { "OUT",
			FIELDS(F(TAG, out.tag, 0, 0), F(U8, out.stream, 1, 2),
			       F(U64, out.offset, 0, 0),
			       F(DATA, out.data, 1, AGENT_DATA_MAX)),
			TO_HOST },
	[AGENT_EXITED] = { "EXITED",
			   FIELDS(F(TAG, exited.tag, 0, 0),
				  F(U32, exited.code, 0, 255),
				  F(U32, exited.signal, 0, 127),
				  F(U64, exited.out_total, 0, 0),
				  F(U64, exited.err_total, 0, 0),
				  F(U64, exited.user_us, 0, 0),
				  F(U64, exited.sys_us, 0, 0)),
			   TO_HOST },
	[AGENT_SIGNAL] = { "SIGNAL",
			   FIELDS(F(TAG, signal.tag, 0, 0),
				  F(U32, signal.signal, 1, 64)),
			   TO_GUEST },
	[AGENT_SIGNAL_DONE] = { "SIGNAL_DONE", TO_HOST },
	[AGENT_FILE_STAT] = { "FILE_STAT",
			      FIELDS(F(PATH, file_stat.path, 0, 0),
				     F(U32, file_stat.flags, 0,
				       AGENT_FILE_NOFOLLOW)),
			      TO_GUEST },
	[AGENT_FILE_INFO] = { "FILE_INFO",
			      FIELDS(F(U32, file_info.mode, 0, 0),
				     F(U32, file_info.uid, 0, 0),
				     F(U32, file_info.gid, 0, 0),
				     F(U64, file_info.size, 0, 0),
				     F(U64, file_info.inode, 0, 0),
				     F(U64, file_info.mtime_ns, 0, 0),
				     F(STR, file_info.link, 0, AGENT_PATH_MAX)),
			      TO_HOST },
	[AGENT_FILE_READ] = { "FILE_READ",
			      FIELDS(F(PATH, file_read.path, 0, 0),
				     F(U64, file_read.offset, 0, 0),
				     F(U32, file_read.len, 1, AGENT_DATA_MAX)),
			      TO_GUEST },
	[AGENT_FILE_DATA] = { "FILE_DATA",
			      FIELDS(F(U64, file_data.size, 0, 0),
				     F(U64, file_data.inode, 0, 0),
				     F(U64, file_data.mtime_ns, 0, 0),
				     F(DATA, file_data.data, 0, AGENT_DATA_MAX)),
			      TO_HOST },
	[AGENT_FILE_WRITE] = { "FILE_WRITE",
			       FIELDS(F(TAG, file_write.tag, 0, 0),
				      F(PATH, file_write.path, 0, 0),
				      F(U64, file_write.offset, 0, 0),
				      F(DATA, file_write.data, 0, AGENT_DATA_MAX)),
			       TO_GUEST },
	[AGENT_FILE_WRITTEN] = { "FILE_WRITTEN",
				 FIELDS(F(U64, file_written.size, 0, 0)),
				 TO_HOST },
	[AGENT_FILE_COMMIT] = { "FILE_COMMIT",
				FIELDS(F(TAG, file_commit.tag, 0, 0),
				       F(PATH, file_commit.path, 0, 0),
				       F(U32, file_commit.mode, 0, 07777),
				       F(U32, file_commit.uid, 0, 0),
				       F(U32, file_commit.gid, 0, 0),
				       F(U64, file_commit.size, 0, 0)),
				TO_GUEST },
	[AGENT_FILE_COMMITTED] = { "FILE_COMMITTED", TO_HOST },
	[AGENT_FILE_ABORT] = { "FILE_ABORT",
			       FIELDS(F(TAG, file_abort.tag, 0, 0),
				      F(PATH, file_abort.path, 0, 0)),
			       TO_GUEST },
	[AGENT_FILE_ABORTED] = { "FILE_ABORTED", TO_HOST },
	[AGENT_FILE_LIST] = { "FILE_LIST",
			      FIELDS(F(PATH, file_list.path, 0, 0),
				     F(U64, file_list.cursor, 0, 0)),
			      TO_GUEST },
	[AGENT_FILE_ENTRIES] = { "FILE_ENTRIES",
				 FIELDS(F(U64, file_entries.next, 0, 0),
					F(U32, file_entries.nr, 0, 0),
					F(DATA, file_entries.entries, 0,
					  AGENT_DATA_MAX)),
				 TO_HOST },
	[AGENT_FILE_MKDIR] = { "FILE_MKDIR",
			       FIELDS(F(PATH, file_mkdir.path, 0, 0),
				      F(U32, file_mkdir.mode, 0, 07777),
				      F(U32, file_mkdir.uid, 0, 0),
				      F(U32, file_mkdir.gid, 0, 0),
				      F(U8, file_mkdir.parents, 0, 1)),
			       TO_GUEST },
	[AGENT_FILE_MKDIR_DONE] = { "FILE_MKDIR_DONE", TO_HOST },
	[AGENT_FILE_REMOVE] = { "FILE_REMOVE",
				FIELDS(F(PATH, file_remove.path, 0, 0)),
				TO_GUEST },
	[AGENT_FILE_REMOVED] = { "FILE_REMOVED", TO_HOST },
	[AGENT_SETTIME] = { "SETTIME",
			    FIELDS(F(U64, settime.wall_ns, 0, 0),
				   F(U32, settime.flags, 0, AGENT_TIME_STEP)),
			    TO_GUEST },
	[AGENT_SETTIME_DONE] = { "SETTIME_DONE",
				 FIELDS(F(U64, settime_done.jump_ns, 0, 0),
					F(U8, settime_done.stepped, 0, 1)),
				 TO_HOST },
	[AGENT_RESEED] = { "RESEED",
			   FIELDS(F(DATA, reseed.seed, AGENT_SEED_MIN,
				    AGENT_SEED_MAX)),
			   TO_GUEST },
	[AGENT_RESEED_DONE] = { "RESEED_DONE",
				FIELDS(F(U32, reseed_done.bits, 0, 0)), TO_HOST },
	[AGENT_GENERATION] = { "GENERATION",
			       FIELDS(F(U64, generation.number, 0, 0),
				      F(U32, generation.flags, 0,
					AGENT_GENERATION_FORK),
				      F(STR, generation.session, 0, AGENT_NAME_MAX),
				      F(STR, generation.hostname, 0, 63),
				      F(STR, generation.machine_id, 0, 32)),
			       TO_GUEST },
	[AGENT_GENERATION_DONE] = { "GENERATION_DONE",
				    FIELDS(F(U32, generation_done.done, 0, 15)),
				    TO_HOST },
	[AGENT_QUIESCE] = { "QUIESCE",
			    FIELDS(F(U32, quiesce.flags, 0,
				     AGENT_QUIESCE_SYNC | AGENT_QUIESCE_HOLD),
				   F(U32, quiesce.deadline_ms, 0, 10000),
				   F(U32, quiesce.hold_ms, 0, 200)),
			    TO_GUEST },
	[AGENT_QUIESCED] = { "QUIESCED",
			     FIELDS(F(U32, quiesced.flags, 0,
				      AGENT_QUIESCE_SYNC | AGENT_QUIESCE_HOLD)),
			     TO_HOST },
	[AGENT_UNQUIESCE] = { "UNQUIESCE", TO_GUEST },
	[AGENT_UNQUIESCED] = { "UNQUIESCED", TO_HOST },
	[AGENT_FAILED] = { "FAILED",
			   FIELDS(F(U32, failed.error, 1, 4095),
				  F(STR, failed.what, 0, 512)),
			   TO_HOST },
};

/* Header sizes and file lists must fit; a row can't promise too much. */
static_assert(AGENT_EXECS_MAX * AGENT_EXEC_LEN < AGENT_BODY_MAX - 256,
	      "HELLO with all execs fits into a body");
static_assert(AGENT_HEADER_LEN + AGENT_TRAILER_LEN + ID_LEN + 64 + AGENT_DATA_MAX <=
		      32u << 10,
	      "a frame of OUT fits into one write to a virtio console");
static_assert(sizeof(struct agent_msg) <= UINT16_MAX, "field.at is 16 bits");

const char *agent_type_name(enum agent_type type)
{
	return (unsigned)type < ARRAY_LEN(specs) ? specs[type].name : NULL;
}

/* CRC-32C (Castagnoli, RFC 3720 appendix B.4), four bits at a time */
static uint32_t crc32c(const uint8_t *p, size_t len)
{
	static const uint32_t nibble[16] = {
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
		0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
		0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
	};
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		crc = crc >> 4 ^ nibble[crc & 15];
		crc = crc >> 4 ^ nibble[crc & 15];
	}
	return ~crc;
}

/* --- encode --------------------------------------------------------------- */

static int put_text(struct buf *b, const char *s, size_t min, size_t max)
{
	size_t len = s ? strlen(s) : 0;

	if (len < min || len > max)
		return -EINVAL;
	buf_put_u16(b, (uint16_t)len);
	buf_put(b, s ? s : "", len);
	buf_put_u8(b, 0);
	return 0;
}

static int put_path(struct buf *b, const char *s)
{
	if (!s || s[0] != '/')
		return -EINVAL;
	return put_text(b, s, 1, AGENT_PATH_MAX);
}

static int put_tag(struct buf *b, const char *s)
{
	if (!s || !id_valid(s))
		return -EINVAL;
	buf_put(b, s, ID_LEN + 1);
	return 0;
}

static int put_bytes(struct buf *b, const struct field *f,
		     const struct agent_bytes *v)
{
	if (v->len < f->min || v->len > f->max)
		return -EINVAL;
	if (f->kind == DATA)
		buf_put_u32(b, v->len);
	buf_put(b, v->p, v->len);
	return 0;
}

static int put_strs(struct buf *b, const struct field *f,
		    const struct agent_strs *l)
{
	if (l->nr < f->min || l->nr > f->max)
		return -EINVAL;
	if (l->raw.len > AGENT_BODY_MAX)
		return -E2BIG;
	buf_put_u32(b, l->nr);
	buf_put_u32(b, l->raw.len);
	buf_put(b, l->raw.p, l->raw.len);
	return 0;
}

static bool in_range(const struct field *f, uint64_t v)
{
	return v >= f->min && (!f->max || v <= f->max);
}

static int put_number(struct buf *b, const struct field *f, const void *at)
{
	uint64_t v = 0;

	switch (f->kind) {
	case U8:
		v = *(const uint8_t *)at;
		buf_put_u8(b, (uint8_t)v);
		break;
	case U16:
		v = *(const uint16_t *)at;
		buf_put_u16(b, (uint16_t)v);
		break;
	case U32:
		v = *(const uint32_t *)at;
		buf_put_u32(b, (uint32_t)v);
		break;
	case U64:
		v = *(const uint64_t *)at;
		buf_put_u64(b, v);
		break;
	default:
		NEVER("not a number");
	}
	return in_range(f, v) ? 0 : -EINVAL;
}

static int put_field(struct buf *b, const struct field *f,
		     const struct agent_msg *m)
{
	const void *at = (const uint8_t *)m + f->at;

	switch ((enum kind)f->kind) {
	case TAG:
		return put_tag(b, *(const char *const *)at);
	case STR:
		return put_text(b, *(const char *const *)at, f->min, f->max);
	case PATH:
		return put_path(b, *(const char *const *)at);
	case STRS:
		return put_strs(b, f, at);
	case DATA:
	case FIX:
		return put_bytes(b, f, at);
	case U8:
	case U16:
	case U32:
	case U64:
		return put_number(b, f, at);
	}
	NEVER("no such kind");
}

static void frame_seal(uint8_t *hdr, const struct agent_msg *m, size_t len)
{
	memcpy(hdr, MAGIC, 4);
	hdr[4] = LAYOUT;
	hdr[5] = (uint8_t)m->type;
	put_u16(hdr + 6, 0);
	put_u32(hdr + 8, (uint32_t)len);
	put_u64(hdr + 12, m->id);
	put_u32(hdr + 20, crc32c(hdr, 20));
}

int agent_msg_encode(struct buf *b, const struct agent_msg *m)
{
	const struct spec *s = &specs[(uint8_t)m->type];
	size_t start = b->len;
	uint8_t hdr[AGENT_HEADER_LEN] = { 0 };
	size_t len;
	int r = 0;

	PRE(s->to);
	buf_put(b, hdr, sizeof(hdr));
	for (int i = 0; i < s->nr && !r; i++)
		r = put_field(b, &s->fields[i], m);
	len = b->len - start - sizeof(hdr);
	if (!r && len > AGENT_BODY_MAX)
		r = -E2BIG;
	if (r) {
		b->len = start;
		return r;
	}
	frame_seal(b->p + start, m, len);
	buf_put_u32(b, ~get_u32(b->p + start + 20));
	buf_put(b, TAIL, 4);
	return 0;
}

/* --- decode --------------------------------------------------------------- */

/* Text with its NUL: NULL if it isn't whole, or has a NUL inside. */
static const char *get_text(struct cur *c, size_t min, size_t max)
{
	size_t len = cur_get_u16(c);
	const char *s = (const char *)cur_get(c, len + 1);

	if (s && (len < min || len > max || s[len] || strlen(s) != len))
		c->failed = true;
	return s && !c->failed ? s : NULL;
}

static void get_path(struct cur *c, const char **ret)
{
	*ret = get_text(c, 1, AGENT_PATH_MAX);
	if (*ret && **ret != '/')
		c->failed = true;
}

static void get_tag(struct cur *c, const char **ret)
{
	const char *s = (const char *)cur_get(c, ID_LEN + 1);

	if (s && (s[ID_LEN] || !id_valid(s)))
		c->failed = true;
	*ret = s;
}

static void get_bytes(struct cur *c, const struct field *f,
		      struct agent_bytes *ret)
{
	uint32_t len = f->kind == DATA ? cur_get_u32(c) : f->max;

	if (len < f->min || len > f->max)
		c->failed = true;
	ret->p = cur_get(c, len);
	ret->len = c->failed ? 0 : len;
}

static void get_strs(struct cur *c, const struct field *f, struct agent_strs *ret)
{
	struct cur in;

	ret->nr = cur_get_u32(c);
	ret->raw.len = cur_get_u32(c);
	ret->raw.p = cur_get(c, ret->raw.len);
	if (c->failed || ret->nr < f->min || ret->nr > f->max) {
		c->failed = true;
		return;
	}
	in = cur_init(ret->raw.p, ret->raw.len);
	for (uint32_t i = 0; i < ret->nr && !in.failed; i++)
		get_text(&in, 0, UINT16_MAX);
	if (!cur_done(&in))
		c->failed = true;
}

static void get_number(struct cur *c, const struct field *f, void *at)
{
	uint64_t v = 0;

	switch (f->kind) {
	case U8:
		v = *(uint8_t *)at = cur_get_u8(c);
		break;
	case U16:
		v = *(uint16_t *)at = cur_get_u16(c);
		break;
	case U32:
		v = *(uint32_t *)at = cur_get_u32(c);
		break;
	case U64:
		v = *(uint64_t *)at = cur_get_u64(c);
		break;
	default:
		NEVER("not a number");
	}
	if (!in_range(f, v))
		c->failed = true;
}

static void get_field(struct cur *c, const struct field *f, struct agent_msg *m)
{
	void *at = (uint8_t *)m + f->at;

	switch ((enum kind)f->kind) {
	case TAG:
		get_tag(c, at);
		return;
	case STR:
		*(const char **)at = get_text(c, f->min, f->max);
		return;
	case PATH:
		get_path(c, at);
		return;
	case STRS:
		get_strs(c, f, at);
		return;
	case DATA:
	case FIX:
		get_bytes(c, f, at);
		return;
	case U8:
	case U16:
	case U32:
	case U64:
		get_number(c, f, at);
		return;
	}
}

/* What the table can't say: lists of fixed records must come out even. */
static bool body_lists_ok(const struct agent_msg *m)
{
	struct agent_bytes rest;
	struct agent_exec_state x;
	struct agent_entry en;
	uint32_t nr = 0;
	int r = 0;

	if (m->type == AGENT_HELLO) {
		rest = m->hello.execs;
		while ((r = agent_exec_next(&rest, &x)) > 0)
			nr++;
		return !r && nr == m->hello.nr_execs;
	}
	if (m->type == AGENT_FILE_ENTRIES) {
		rest = m->file_entries.entries;
		while ((r = agent_entry_next(&rest, &en)) > 0)
			nr++;
		return !r && nr == m->file_entries.nr;
	}
	return true;
}

static bool decode_body(const struct spec *s, const uint8_t *body, size_t len,
			struct agent_msg *m)
{
	struct cur c = cur_init(body, len);

	for (int i = 0; i < s->nr && !c.failed; i++)
		get_field(&c, &s->fields[i], m);
	return cur_done(&c) && body_lists_ok(m);
}

/* --- lists ---------------------------------------------------------------- */

void agent_strs_add(struct buf *raw, const char *s)
{
	size_t len = strlen(s);

	/* too long for its length field: no frame would take it either */
	buf_put_u16(raw, (uint16_t)MIN(len, UINT16_MAX));
	buf_put(raw, s, len + 1);
}

int agent_strs_get(const struct agent_strs *l, const char **ret, size_t max)
{
	struct cur c = cur_init(l->raw.p, l->raw.len);

	if (l->nr >= max)
		return -E2BIG;
	for (uint32_t i = 0; i < l->nr; i++)
		ret[i] = get_text(&c, 0, UINT16_MAX);
	ret[l->nr] = NULL;
	return (int)l->nr;
}

void agent_exec_add(struct buf *raw, const struct agent_exec_state *x)
{
	buf_put(raw, x->tag, ID_LEN + 1);
	buf_put_u8(raw, x->phase);
	buf_put_u32(raw, x->pid);
	buf_put_u64(raw, x->stdin_offset);
	buf_put_u64(raw, x->out_acked);
	buf_put_u64(raw, x->out_end);
	buf_put_u64(raw, x->err_acked);
	buf_put_u64(raw, x->err_end);
}

int agent_exec_next(struct agent_bytes *rest, struct agent_exec_state *ret)
{
	struct cur c = cur_init(rest->p, rest->len);
	const char *tag = NULL;

	if (!rest->len)
		return 0;
	get_tag(&c, &tag);
	ret->phase = cur_get_u8(&c);
	ret->pid = cur_get_u32(&c);
	ret->stdin_offset = cur_get_u64(&c);
	ret->out_acked = cur_get_u64(&c);
	ret->out_end = cur_get_u64(&c);
	ret->err_acked = cur_get_u64(&c);
	ret->err_end = cur_get_u64(&c);
	if (c.failed || !tag || ret->phase < AGENT_EXEC_RUNNING ||
	    ret->phase > AGENT_EXEC_EXITED || ret->out_acked > ret->out_end ||
	    ret->err_acked > ret->err_end)
		return -EPROTO;
	memcpy(ret->tag, tag, ID_LEN + 1);
	*rest = (struct agent_bytes){ c.p, (uint32_t)cur_left(&c) };
	return 1;
}

void agent_entry_add(struct buf *raw, const struct agent_entry *x)
{
	buf_put_u32(raw, x->mode);
	buf_put_u32(raw, x->uid);
	buf_put_u32(raw, x->gid);
	buf_put_u64(raw, x->size);
	buf_put_u64(raw, (uint64_t)x->mtime_ns);
	agent_strs_add(raw, x->name);
}

int agent_entry_next(struct agent_bytes *rest, struct agent_entry *ret)
{
	struct cur c = cur_init(rest->p, rest->len);

	if (!rest->len)
		return 0;
	ret->mode = cur_get_u32(&c);
	ret->uid = cur_get_u32(&c);
	ret->gid = cur_get_u32(&c);
	ret->size = cur_get_u64(&c);
	ret->mtime_ns = (int64_t)cur_get_u64(&c);
	ret->name = get_text(&c, 1, AGENT_NAME_MAX);
	/* a name goes into paths on the host: never let it climb */
	if (c.failed || !ret->name || strchr(ret->name, '/') ||
	    !strcmp(ret->name, ".") || !strcmp(ret->name, ".."))
		return -EPROTO;
	*rest = (struct agent_bytes){ c.p, (uint32_t)cur_left(&c) };
	return 1;
}

/* --- stream --------------------------------------------------------------- */

void agent_dec_init(struct agent_dec *d, enum agent_side side)
{
	*d = (struct agent_dec){ .side = side, .p = base_alloc(ROOM) };
}

void agent_dec_done(struct agent_dec *d)
{
	free(d->p);
	*d = (struct agent_dec){ 0 };
}

void agent_dec_resync(struct agent_dec *d, uint64_t nonce)
{
	d->synced = false;
	d->nonce = nonce;
}

void *agent_dec_room(struct agent_dec *d, size_t *ret_len)
{
	if (d->at == d->len) {
		d->at = d->len = 0;
	} else if (ROOM - d->len < AGENT_FRAME_MAX / 2) {
		memmove(d->p, d->p + d->at, d->len - d->at);
		d->len -= d->at;
		d->at = 0;
	}
	POST(d->len < ROOM);
	*ret_len = ROOM - d->len;
	return d->p + d->len;
}

void agent_dec_fed(struct agent_dec *d, size_t len)
{
	PRE(len <= ROOM - d->len);
	d->len += len;
}

static bool header_ok(const uint8_t *h)
{
	return !memcmp(h, MAGIC, 4) && h[4] == LAYOUT && !get_u16(h + 6) &&
	       get_u32(h + 8) <= AGENT_BODY_MAX &&
	       get_u32(h + 20) == crc32c(h, 20);
}

static bool starts_stream(const struct agent_dec *d, const uint8_t *h)
{
	if (!header_ok(h))
		return false;
	if (d->side == AGENT_GUEST)
		return h[5] == AGENT_RESET;
	return h[5] == AGENT_HELLO && d->nonce && get_u64(h + 12) == d->nonce;
}

/* Throws bytes away up to the frame that starts a stream, if it is there. */
static void dec_scan(struct agent_dec *d)
{
	size_t from = d->at;

	while (d->at < d->len) {
		const uint8_t *h = d->p + d->at;
		size_t left = d->len - d->at;

		h = memchr(h, (uint8_t)MAGIC[0], left);
		d->at = h ? (size_t)(h - d->p) : d->len;
		if (d->len - d->at < AGENT_HEADER_LEN)
			break;
		if (starts_stream(d, h)) {
			d->synced = true;
			break;
		}
		d->at++;
	}
	d->skipped += d->at - from;
}

static int dec_lost(struct agent_dec *d)
{
	d->synced = false;
	d->nonce = 0;
	return -EPROTO;
}

/* Is this type legal here, now? A HELLO only answers the RESET. */
static bool dec_expects(struct agent_dec *d, const uint8_t *h)
{
	const struct spec *s = &specs[h[5]];

	if (s->to != (uint8_t)d->side + 1)
		return false;
	if (h[5] != AGENT_HELLO)
		return true;
	if (!d->nonce || get_u64(h + 12) != d->nonce)
		return false;
	d->nonce = 0;
	return true;
}

int agent_dec_next(struct agent_dec *d, struct agent_msg *ret)
{
	const uint8_t *h, *tail;
	size_t len;

	if (!d->synced)
		dec_scan(d);
	if (!d->synced || d->len - d->at < AGENT_HEADER_LEN)
		return 0;
	h = d->p + d->at;
	if (!header_ok(h))
		return dec_lost(d);
	len = get_u32(h + 8);
	if (d->len - d->at < AGENT_HEADER_LEN + len + AGENT_TRAILER_LEN)
		return 0;
	d->at += AGENT_HEADER_LEN + len + AGENT_TRAILER_LEN;
	tail = h + AGENT_HEADER_LEN + len;
	if (get_u32(tail) != ~get_u32(h + 20) || memcmp(tail + 4, TAIL, 4))
		return dec_lost(d);
	if (!dec_expects(d, h))
		return dec_lost(d);
	ret->type = h[5];
	ret->id = get_u64(h + 12);
	if (!decode_body(&specs[h[5]], h + AGENT_HEADER_LEN, len, ret))
		return dec_lost(d);
	return 1;
}
