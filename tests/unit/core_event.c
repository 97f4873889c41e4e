/* Names of event types, and bodies as the log seals them. */
#include "core/event.h"

#include "tests/tap.h"

static void test_names(void)
{
	int bad = 0, twice = 0;

	for (int i = 1; i < EVENT_NR; i++) {
		const char *name = event_type_name((enum event_type)i);

		bad += event_type_parse(name) != (enum event_type)i;
		bad += !strchr(name, '.');
		for (int k = 1; k < i; k++)
			twice += !strcmp(name,
					 event_type_name((enum event_type)k));
	}
	is_int(bad, 0, "each name leads back to its type");
	is_int(twice, 0, "no name is used twice");
	is_int(event_type_parse("session.flown"), EVENT_UNKNOWN,
	       "an unknown name is unknown");
	is_str(event_type_name(EVENT_SNAPSHOT_COMMITTED), "snapshot.committed",
	       "a name, as it will be for ever");
}

/* Keys sorted, no spaces, as RFC 8785 has it: written by hand. */
static const char body_text[] =
	"{\"actor\":\"key:k1\",\"data\":{\"ttl_ns\":\"60000000000\","
	"\"why\":\"a \\\"b\\\"\\n\"},\"schema\":1,"
	"\"session\":\"s0000000000000000001\","
	"\"tenant\":\"t0000000000000000001\",\"type\":\"limit.ttl\"}";

static struct event sample(void)
{
	struct event ev = { .type = EVENT_LIMIT_TTL,
			    .schema = 1,
			    .seq = 7,
			    .wall_ns = 1700000000123456789 };

	base_strcpy(ev.actor, sizeof(ev.actor), "key:k1");
	base_strcpy(ev.session, sizeof(ev.session), "s0000000000000000001");
	base_strcpy(ev.tenant, sizeof(ev.tenant), "t0000000000000000001");
	ev.data = json_object();
	json_put_str(ev.data, "why", "a \"b\"\n");
	json_put_ns(ev.data, "ttl_ns", 60000000000);
	return ev;
}

static void test_body(void)
{
	struct buf b SCOPED(buf_done) = { 0 };
	struct event ev = sample(), back = { .wall_ns = 5, .seq = 9 };
	json_t *shown;
	struct err e;

	is_int(event_body_encode(&b, &ev, &e), 0, "encodes");
	is_str(buf_cstr(&b), body_text, "to these bytes");
	is_int(event_body_decode(&back, b.p, b.len, &e), 0, "decodes");
	is_int(back.type, EVENT_LIMIT_TTL, "type");
	is_str(back.session, ev.session, "session");
	is_str(back.tenant, ev.tenant, "tenant");
	is_str(back.actor, "key:k1", "actor");
	ok(json_equal(back.data, ev.data), "data");
	ok(back.wall_ns == 5 && back.seq == 9,
	   "the public part stays the caller's");
	shown = event_to_json(&ev);
	is_str(json_string_value(json_object_get(shown, "time")),
	       "2023-11-14T22:13:20.123456789Z", "shown with its time");
	is_int(json_integer_value(json_object_get(shown, "seq")), 7, "seq");
	json_decref(shown);
	event_done(&back);
	ok(!back.data && !back.session[0], "done leaves zeros");
	event_done(&ev);
}

static void test_unknown(void)
{
	static const char text[] = "{\"actor\":\"a\",\"data\":{\"x\":[1,2]},"
				   "\"schema\":3,\"type\":\"moon.landed\"}";
	struct buf b SCOPED(buf_done) = { 0 };
	struct event ev = { .seq = 0 };
	struct err e;

	is_int(event_body_decode(&ev, text, strlen(text), &e), 0,
	       "a type of a newer build is read");
	is_int(ev.type, EVENT_UNKNOWN, "as unknown");
	is_str(ev.type_name, "moon.landed", "its name is kept");
	is_int(event_body_encode(&b, &ev, &e), 0, "it is passed on");
	is_str(buf_cstr(&b), text, "byte for byte");
	event_done(&ev);
}

static void test_refused(void)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"actor\":\"a\",\"data\":{},\"schema\":1}",
		"{\"actor\":\"a\",\"data\":[],\"schema\":1,\"type\":\"x.y\"}",
		"{\"actor\":\"a\",\"schema\":1,\"type\":\"x.y\"}",
		"{\"actor\":\"a\",\"data\":{},\"schema\":-1,\"type\":\"x.y\"}",
		"{\"actor\":\"a\",\"data\":{},\"schema\":1,\"session\":"
		"\"s00000000000000000012\",\"type\":\"x.y\"}",
		"{\"actor\":\"a\",\"data\":{},\"schema\":1,\"type\":7}",
		"{\"actor\":\"a\",\"data\":{},\"schema\":1,\"type\":\"x\"} ",
	};
	struct event ev = { .seq = 3 };
	struct err e;

	for (size_t i = 0; i + 1 < ARRAY_LEN(bad); i++) {
		ok(event_body_decode(&ev, bad[i], strlen(bad[i]), &e) < 0,
		   "refused: %s", bad[i]);
		ok(!ev.data && ev.seq == 3, "and nothing was changed");
	}
}

static void test_bounds(void)
{
	struct buf b SCOPED(buf_done) = { 0 };
	struct event ev = sample();
	char *big = base_alloc(EVENT_DATA_MAX + 10);
	struct err e;

	buf_put_str(&b, "before");
	memset(big, 'x', EVENT_DATA_MAX + 9);
	json_put_str(ev.data, "why", big);
	is_int(event_body_encode(&b, &ev, &e), -EMSGSIZE, "too much data");
	is_str(buf_cstr(&b), "before", "nothing is left of it");
	is_int(event_body_decode(&ev, big, EVENT_DATA_MAX + 1, &e), -EMSGSIZE,
	       "nor is so much read");
	json_object_set_new(ev.data, "why", json_real(0.5));
	ok(event_body_encode(&b, &ev, &e) < 0, "no floats");
	event_done(&ev);
	free(big);
}

int main(void)
{
	test_names();
	test_body();
	test_unknown();
	test_refused();
	test_bounds();
	return tap_done();
}
