/*
 * fields: rows and event data as tables.
 *
 * How it works: one switch per direction over the kind of a field. What is
 * left out when empty (strings, digests, parts, JSON) reads back as zero, so
 * decode(encode(x)) = x for every struct whose strings are terminated.
 *
 * Invariants
 *  1. Encoding depends on the struct's members alone: equal structs give
 *     equal bytes.
 *  2. Decoding never writes outside the struct and leaves every string
 *     terminated.
 *
 * A crash leaves nothing behind: there is no state.
 */
#include "core/fields.h"

#define INT_MAX_JSON ((1ll << 53) - 1)

static bool all_zero(const void *p, size_t len)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++)
		if (b[i])
			return false;
	return true;
}

static bool part_empty(const struct fields *t, const void *s);

static bool field_empty(const struct field *f, const void *p)
{
	switch (f->kind) {
	case FIELD_STR:
		return !*(const char *)p;
	case FIELD_PART:
		return part_empty(f->aux, p);
	case FIELD_ENUM:
		return !*(const int *)p;
	case FIELD_U32:
	case FIELD_I32:
	case FIELD_U64:
	case FIELD_NS:
	case FIELD_BOOL:
	case FIELD_HEX:
	case FIELD_JSON:
		return all_zero(p, f->len);
	}
	NEVER("unknown kind of field");
}

/* By members, not by memory: padding says nothing. */
static bool part_empty(const struct fields *t, const void *s)
{
	for (size_t i = 0; i < t->nr; i++)
		if (!field_empty(&t->f[i], (const char *)s + t->f[i].off))
			return false;
	return true;
}

static void encode_part(json_t *o, const struct field *f, const void *p)
{
	const struct fields *t = f->aux;
	json_t *part;

	if (part_empty(t, p))
		return;
	part = json_object();
	fields_encode(part, t, p);
	json_object_set_new(o, f->name, part);
}

static void encode_enum(json_t *o, const struct field *f, const void *p)
{
	const char *const *words = f->aux;
	int v = *(const int *)p;

	PRE(v >= 0 && (size_t)v < f->len && words[v]);
	json_put_str(o, f->name, words[v]);
}

static void encode_one(json_t *o, const struct field *f, const void *p)
{
	switch (f->kind) {
	case FIELD_STR:
		if (*(const char *)p)
			json_put_str(o, f->name, p);
		break;
	case FIELD_U32:
		json_put_int(o, f->name, *(const uint32_t *)p);
		break;
	case FIELD_I32:
		json_put_int(o, f->name, *(const int *)p);
		break;
	case FIELD_U64:
		PRE(*(const uint64_t *)p <= INT_MAX_JSON);
		json_put_int(o, f->name, (int64_t) * (const uint64_t *)p);
		break;
	case FIELD_NS:
		json_put_ns(o, f->name, *(const int64_t *)p);
		break;
	case FIELD_BOOL:
		json_put_bool(o, f->name, *(const bool *)p);
		break;
	case FIELD_HEX:
		if (!all_zero(p, f->len))
			json_put_hex(o, f->name, p, f->len);
		break;
	case FIELD_ENUM:
		encode_enum(o, f, p);
		break;
	case FIELD_PART:
		encode_part(o, f, p);
		break;
	case FIELD_JSON:
		if (*(json_t *const *)p)
			json_object_set(o, f->name, *(json_t *const *)p);
		break;
	}
}

void fields_encode(json_t *o, const struct fields *t, const void *s)
{
	PRE(json_is_object(o));
	for (size_t i = 0; i < t->nr; i++)
		encode_one(o, &t->f[i], (const char *)s + t->f[i].off);
}

static int decode_str(const json_t *o, const struct field *f, char *ret,
		      struct err *e)
{
	const char *v;
	int r = json_get_str(o, f->name, &v, e);

	if (r)
		return r;
	if (strlen(v) >= f->len)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "member \"%s\" is longer than %zu bytes",
			       f->name, f->len - 1);
	memset(ret, 0, f->len);
	base_strcpy(ret, f->len, v);
	return 0;
}

static int decode_enum(const json_t *o, const struct field *f, int *ret,
		       struct err *e)
{
	const char *v;
	int r = json_get_str(o, f->name, &v, e);

	if (r)
		return r;
	r = fields_word(f->aux, f->len, v);
	if (r < 0)
		return err_set(e, -EINVAL, ERR_INVALID,
			       "member \"%s\" has the unknown value \"%.40s\"",
			       f->name, v);
	*ret = r;
	return 0;
}

static int decode_int(const json_t *o, const struct field *f, void *ret,
		      struct err *e)
{
	bool is64 = f->kind == FIELD_U64;
	int64_t lo = f->kind == FIELD_I32 ? INT32_MIN : 0;
	int64_t hi = is64		    ? INT_MAX_JSON
		     : f->kind == FIELD_I32 ? INT32_MAX
					    : (int64_t)UINT32_MAX;
	int64_t v;
	int r = json_get_int(o, f->name, lo, hi, &v, e);

	if (r)
		return r;
	if (is64)
		*(uint64_t *)ret = (uint64_t)v;
	else if (f->kind == FIELD_I32)
		*(int *)ret = (int)v;
	else
		*(uint32_t *)ret = (uint32_t)v;
	return 0;
}

static int decode_part(const json_t *o, const struct field *f, void *ret,
		       struct err *e)
{
	json_t *part = json_object_get(o, f->name);

	if (!json_is_object(part))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "member \"%s\" must be an object", f->name);
	return fields_decode(part, f->aux, ret, e);
}

static int decode_json(const json_t *o, const struct field *f, json_t **ret)
{
	json_decref(*ret);
	*ret = json_incref(json_object_get(o, f->name));
	return 0;
}

static int decode_one(const json_t *o, const struct field *f, void *p,
		      struct err *e)
{
	switch (f->kind) {
	case FIELD_STR:
		return decode_str(o, f, p, e);
	case FIELD_U32:
	case FIELD_I32:
	case FIELD_U64:
		return decode_int(o, f, p, e);
	case FIELD_NS:
		return json_get_ns(o, f->name, p, e);
	case FIELD_BOOL:
		return json_get_bool(o, f->name, p, e);
	case FIELD_HEX:
		return json_get_hex(o, f->name, p, f->len, e);
	case FIELD_ENUM:
		return decode_enum(o, f, p, e);
	case FIELD_PART:
		return decode_part(o, f, p, e);
	case FIELD_JSON:
		return decode_json(o, f, p);
	}
	NEVER("unknown kind of field");
}

int fields_decode(const json_t *o, const struct fields *t, void *ret,
		  struct err *e)
{
	if (!json_is_object(o))
		return err_set(e, -EINVAL, ERR_INVALID, "not an object");
	for (size_t i = 0; i < t->nr; i++) {
		const struct field *f = &t->f[i];
		int r;

		if (!json_object_get(o, f->name))
			continue;
		r = decode_one(o, f, (char *)ret + f->off, e);
		if (r)
			return r;
	}
	return 0;
}

void fields_row_encode(struct buf *b, const struct fields *t, const void *s)
{
	json_t *o SCOPED_JSON = json_object();

	fields_encode(o, t, s);
	if (json_canonical(b, o))
		NEVER("a row of ours has no canonical form");
}

int fields_row_decode(const void *p, size_t len, const struct fields *t,
		      void *ret, struct err *e)
{
	json_t *o SCOPED_JSON = NULL;
	int r = json_parse(&o, p, len, e);

	memset(ret, 0, t->size);
	if (r)
		return r;
	r = fields_decode(o, t, ret, e);
	if (r)
		fields_done(t, ret);
	return r;
}

void fields_done(const struct fields *t, void *s)
{
	for (size_t i = 0; i < t->nr; i++)
		if (t->f[i].kind == FIELD_JSON)
			json_decref(*(json_t **)(void *)((char *)s + t->f[i].off));
	memset(s, 0, t->size);
}

void fields_copy(const struct fields *t, void *dst, const void *src)
{
	memcpy(dst, src, t->size);
	for (size_t i = 0; i < t->nr; i++)
		if (t->f[i].kind == FIELD_JSON)
			json_incref(
				*(json_t **)(void *)((char *)dst + t->f[i].off));
}

int fields_word(const char *const *words, size_t nr, const char *word)
{
	for (size_t i = 0; i < nr; i++)
		if (words[i] && !strcmp(words[i], word))
			return (int)i;
	return -1;
}
