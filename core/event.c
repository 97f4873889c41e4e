/*
 * event: names of types, and the body of an event as the log seals it.
 *
 * The body is canonical JSON {actor, data, schema, session, tenant, type};
 * empty session and tenant are left out. seq, times and boot id belong to
 * the public part, which the store writes.
 *
 * Invariants
 *  1. decode(encode(ev)) gives the same body, also for types that this
 *     build doesn't know: type_name and data are kept as they came.
 *  2. One event has one encoding.
 */
#include "core/event.h"

#include "core/clock.h"

static const char *const names[EVENT_NR] = { [EVENT_UNKNOWN] = "unknown",
#define X(name, word, schema) [EVENT_##name] = word,
					     EVENT_TYPES(X)
#undef X
};

const char *event_type_name(enum event_type t)
{
	PRE(t < EVENT_NR);
	return names[t];
}

enum event_type event_type_parse(const char *name)
{
	for (int i = EVENT_UNKNOWN + 1; i < EVENT_NR; i++)
		if (!strcmp(names[i], name))
			return (enum event_type)i;
	return EVENT_UNKNOWN;
}

void event_done(struct event *ev)
{
	json_decref(ev->data);
	memset(ev, 0, sizeof(*ev));
}

static const char *type_word(const struct event *ev)
{
	return ev->type == EVENT_UNKNOWN ? ev->type_name
					 : event_type_name(ev->type);
}

static json_t *body_json(const struct event *ev)
{
	json_t *o = json_object();

	json_put_str(o, "actor", ev->actor);
	json_put_int(o, "schema", ev->schema);
	json_put_str(o, "type", type_word(ev));
	if (ev->session[0])
		json_put_str(o, "session", ev->session);
	if (ev->tenant[0])
		json_put_str(o, "tenant", ev->tenant);
	if (ev->data)
		json_object_set(o, "data", ev->data);
	else
		json_object_set_new(o, "data", json_object());
	return o;
}

int event_body_encode(struct buf *b, const struct event *ev, struct err *e)
{
	json_t *o SCOPED_JSON = body_json(ev);
	size_t before = b->len;

	if (json_canonical(b, o))
		return err_set(e, -EINVAL, ERR_INTERNAL,
			       "event %s: its data has no canonical form",
			       type_word(ev));
	if (b->len - before > EVENT_DATA_MAX) {
		b->len = before;
		return err_set(e, -EMSGSIZE, ERR_TOO_LARGE,
			       "event %s: more than %u bytes of data",
			       type_word(ev), EVENT_DATA_MAX);
	}
	return 0;
}

static int decode_text(const json_t *o, const char *key, char *ret, size_t len,
		       bool optional, struct err *e)
{
	const char *v = "";
	int r = 0;

	if (!optional || json_object_get(o, key))
		r = json_get_str(o, key, &v, e);
	if (r)
		return r;
	if (!base_strcpy(ret, len, v))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "member \"%s\" is too long", key);
	return 0;
}

static int decode_members(struct event *ev, const json_t *o, struct err *e)
{
	int64_t schema;
	int r = decode_text(o, "type", ev->type_name, sizeof(ev->type_name),
			    false, e);

	if (!r)
		r = decode_text(o, "actor", ev->actor, sizeof(ev->actor), false,
				e);
	if (!r)
		r = decode_text(o, "session", ev->session, sizeof(ev->session),
				true, e);
	if (!r)
		r = decode_text(o, "tenant", ev->tenant, sizeof(ev->tenant),
				true, e);
	if (!r)
		r = json_get_int(o, "schema", 0, UINT16_MAX, &schema, e);
	if (r)
		return r;
	ev->schema = (uint16_t)schema;
	ev->type = event_type_parse(ev->type_name);
	ev->data = json_incref(json_object_get(o, "data"));
	if (json_is_object(ev->data))
		return 0;
	return err_set(e, -EINVAL, ERR_INVALID, "\"data\" is not an object");
}

int event_body_decode(struct event *ret_ev, const void *p, size_t len,
		      struct err *e)
{
	struct event ev = { .seq = ret_ev->seq };
	json_t *o SCOPED_JSON = NULL;
	int r;

	if (len > EVENT_DATA_MAX)
		return err_set(e, -EMSGSIZE, ERR_TOO_LARGE,
			       "event body of %zu bytes", len);
	r = json_parse(&o, p, len, e);
	if (!r && !json_is_object(o))
		r = err_set(e, -EINVAL, ERR_INVALID, "not an object");
	if (!r)
		r = decode_members(&ev, o, e);
	if (r) {
		event_done(&ev);
		return err_wrap(e, r, "event body");
	}
	/* the public part is the caller's */
	ev.wall_ns = ret_ev->wall_ns;
	ev.mono_ns = ret_ev->mono_ns;
	memcpy(ev.boot_id, ret_ev->boot_id, sizeof(ev.boot_id));
	*ret_ev = ev;
	return 0;
}

json_t *event_to_json(const struct event *ev)
{
	json_t *o = body_json(ev);
	char text[CLOCK_TEXT_LEN];

	clock_format(text, ev->wall_ns);
	json_put_int(o, "seq", (int64_t)ev->seq);
	json_put_str(o, "time", text);
	json_put_ns(o, "mono_ns", ev->mono_ns);
	json_put_hex(o, "boot", ev->boot_id, sizeof(ev->boot_id));
	return o;
}
