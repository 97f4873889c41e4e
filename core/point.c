/*
 * point: the row of one moment of a session, and the rules for names.
 * The codec is the table below; nothing else knows the members' names.
 * No state; a crash leaves nothing behind.
 */
#include "core/point.h"

const char *const point_kind_words[POINT_KIND_NR] = {
#define X(name, word) [POINT_##name] = word,
	POINT_KINDS(X)
#undef X
};

static const struct field ref_table[] = {
	FIELD(struct point_ref, STR, id, "id"),
	FIELD(struct point_ref, STR, session, "session"),
	FIELD(struct point_ref, NS, time_ns, "time_ns"),
	FIELD(struct point_ref, U64, epoch, "epoch"),
};

const struct fields point_ref_fields = FIELDS(struct point_ref, ref_table);

static const struct field point_table[] = {
	FIELD(struct point, STR, id, "id"),
	FIELD(struct point, STR, session, "session"),
	FIELD(struct point, NS, time_ns, "time_ns"),
	FIELD(struct point, U64, epoch, "epoch"),
	FIELD(struct point, U64, seq, "seq"),
	FIELD(struct point, STR, parent, "parent"),
	FIELD_OF_ENUM(struct point, kind, "kind", point_kind_words),
	FIELD(struct point, STR, name, "name"),
	FIELD(struct point, HEX, pack, "pack"),
	FIELD(struct point, U64, offset, "offset"),
	FIELD(struct point, HEX, root, "root"),
	FIELD(struct point, HEX, compat, "compat"),
	FIELD(struct point, U64, memory_pages, "memory_pages"),
	FIELD(struct point, U64, disk_pages, "disk_pages"),
	FIELD(struct point, U64, stored_bytes, "stored_bytes"),
	FIELD(struct point, U64, freeze_us, "freeze_us"),
	FIELD(struct point, U64, capture_us, "capture_us"),
	FIELD(struct point, BOOL, unquiesced, "unquiesced"),
	FIELD(struct point, BOOL, keyframe, "keyframe"),
};

const struct fields point_fields = FIELDS(struct point, point_table);

struct point_ref point_ref_of(const struct point *p)
{
	struct point_ref r = { .time_ns = p->time_ns, .epoch = p->epoch };

	base_strcpy(r.id, sizeof(r.id), p->id);
	base_strcpy(r.session, sizeof(r.session), p->session);
	return r;
}

void point_key(uint8_t ret_key[POINT_KEY_LEN], const char *session,
	       int64_t time_ns)
{
	PRE(strlen(session) == ID_LEN);
	PRE(time_ns >= 0);
	memcpy(ret_key, session, ID_LEN);
	put_be64(ret_key + ID_LEN, (uint64_t)time_ns);
}

void point_encode(struct buf *b, const struct point *p)
{
	fields_row_encode(b, &point_fields, p);
}

int point_decode(struct point *ret, const void *row, size_t len, struct err *e)
{
	return fields_row_decode(row, len, &point_fields, ret, e);
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool point_name_valid(const char *name)
{
	size_t len = strlen(name);

	if (!len || len > NAME_MAX_LEN || !is_letter(name[0]) || id_valid(name))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_letter(name[i]) && !strchr("0123456789._-", name[i]))
			return false;
	return true;
}
