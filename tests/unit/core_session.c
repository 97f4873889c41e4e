/* decide and evolve by themselves: clocks, late news, texts, totality. */
#include "core/session.h"

#include "tests/tap.h"

#define SEC 1000000000ll
#define S_ID "s0000000000000000001"
#define OP "o0000000000000000001"

static int64_t now = 1000 * SEC;
static uint8_t boot = 1;

/* An event about the session; `fmt` and what follows as json_pack. */
static struct event event(enum event_type type, json_t *data)
{
	struct event ev = {
		.type = type, .wall_ns = now, .mono_ns = now, .boot_id = { boot }
	};

	ev.data = data ? data : json_object();
	base_strcpy(ev.session, sizeof(ev.session), S_ID);
	return ev;
}

static int apply(struct session *s, enum event_type type, json_t *data)
{
	struct event ev = event(type, data);
	int r = session_evolve(s, &ev);

	event_done(&ev);
	return r;
}

static struct session created(int64_t ttl)
{
	struct session s = { .state = SESSION_NONE };
	json_t *spec = json_object();

	json_put_ns(spec, "ttl_ns", ttl);
	apply(&s, EVENT_SESSION_CREATED,
	      json_pack("{so,s{ssssss}}", "spec", spec, "operation", "id", OP,
			"kind", "create", "step", "restore"));
	return s;
}

static int64_t left(const struct session *s)
{
	uint8_t id[16] = { boot };

	return session_ttl_left(s, now, id);
}

static void test_ttl(void)
{
	struct session s = created(100 * SEC), none = created(0);

	is_int(left(&none), INT64_MAX, "no limit");
	now += 50 * SEC;
	is_int(left(&s), 100 * SEC, "creating takes none of its time");
	apply(&s, EVENT_SESSION_STARTED, NULL);
	now += 30 * SEC;
	is_int(left(&s), 70 * SEC, "running does");
	apply(&s, EVENT_SESSION_PAUSED, NULL);
	now += 1000 * SEC;
	is_int(left(&s), 70 * SEC, "pausing does not");
	apply(&s, EVENT_SESSION_CONTINUED, NULL);
	now += 10 * SEC;
	apply(&s, EVENT_SESSION_SUSPENDED, NULL);
	now += 1000 * SEC;
	is_int(left(&s), 60 * SEC, "nor being suspended");
	apply(&s, EVENT_SESSION_RESUMING, json_pack("{si}", "epoch", 2));
	apply(&s, EVENT_SESSION_STARTED, NULL);
	now += 20 * SEC;
	boot = 2; /* the host went down */
	is_int(left(&s), 60 * SEC, "another boot's clock says nothing");
	now = 5 * SEC;
	apply(&s, EVENT_SESSION_FAILED, NULL);
	is_int(s.ttl_used_ns, 40 * SEC, "nor does it take any time");
	apply(&s, EVENT_SESSION_RESUMING, json_pack("{si}", "epoch", 3));
	apply(&s, EVENT_SESSION_STARTED, NULL);
	now += 60 * SEC;
	is_int(left(&s), 0, "all of it is used");
	apply(&s, EVENT_SESSION_SUSPENDED, NULL);
	apply(&s, EVENT_SESSION_RESUMING, json_pack("{si}", "epoch", 4));
	is_int(left(&s), 100 * SEC, "asked for again: a new stretch");
	boot = 1;
	now = 5000 * SEC;
}

static void test_illegal(void)
{
	static const enum event_type never[] = {
		EVENT_SESSION_STARTED,	 EVENT_SESSION_PAUSED,
		EVENT_SESSION_CONTINUED, EVENT_SESSION_SUSPENDED,
		EVENT_SESSION_RESUMING,	 EVENT_SESSION_REWINDING,
		EVENT_SESSION_CREATED,	 EVENT_SESSION_BASED,
		EVENT_SESSION_FAILED,
	};
	struct session s = created(0), was;

	apply(&s, EVENT_SESSION_STOPPING, NULL);
	was = s;
	for (size_t i = 0; i < ARRAY_LEN(never); i++) {
		is_int(apply(&s, never[i], NULL), -EPROTO,
		       "%s can't follow stopping", event_type_name(never[i]));
		ok(!memcmp(&s, &was, sizeof(s)), "and changes nothing");
	}
	is_int(apply(&s, EVENT_NODE_STARTED, NULL), 0,
	       "events about other things");
	ok(!memcmp(&s, &was, sizeof(s)), "change nothing");
	is_int(apply(&s, EVENT_SESSION_DESTROYED, NULL), 0, "destroyed");
}

/* Any data at all: refused or taken, never worse. */
static void test_total(uint64_t *seed)
{
	static const char *const keys[] = { "operation", "kind",   "step",
					    "point",	 "epoch",  "base",
					    "spec",	 "id",	   "left",
					    "target",	 "time_ns" };
	int moved = 0;

	for (int i = 0; i < 3000; i++) {
		struct session s = created(0);
		struct event ev;
		int r;

		for (int k = 0; k < 6; k++) {
			json_t *o = json_object(), *v;

			for (int n = 0; n < 3; n++) {
				switch (tap_rand(seed) % 5) {
				case 0:
					v = json_string(OP);
					break;
				case 1:
					v = json_integer((int)tap_rand(seed));
					break;
				case 2:
					v = json_pack("{ss}", "id", "x");
					break;
				case 3:
					v = json_string("rewind");
					break;
				default:
					v = json_array();
				}
				json_object_set_new(
					o, keys[tap_rand(seed) % ARRAY_LEN(keys)],
					v);
			}
			ev = event((enum event_type)(tap_rand(seed) % EVENT_NR),
				   o);
			r = session_evolve(&s, &ev);
			moved += !r;
			if (r && r != -EPROTO)
				ok(false, "evolve answers %d", r);
			if (s.state >= SESSION_STATE_NR)
				ok(false, "no such state");
			event_done(&ev);
		}
	}
	ok(moved > 100, "evolve takes any data (%d of 18000 moved)", moved);
}

/* --- decide -------------------------------------------------------------- */

static struct decision decide(const struct session *s, struct command *c,
			      struct facts *f)
{
	struct decision d;

	c->wall_ns = c->mono_ns = now;
	c->admin = true;
	f->limits = &limits_default;
	if (!c->operation[0])
		base_strcpy(c->operation, sizeof(c->operation), OP);
	base_strcpy(c->session, sizeof(c->session), S_ID);
	session_decide(s, c, f, &d);
	return d;
}

static void test_pure(void)
{
	struct session s = created(0), was;
	struct facts f = { 0 };
	struct decision a, b;
	struct command c = { .kind = COMMAND_STARTED, .epoch = 1 };

	was = s;
	a = decide(&s, &c, &f);
	b = decide(&s, &c, &f);
	ok(!memcmp(&s, &was, sizeof(s)), "decide changes no state");
	is_int(a.nr_events, 2, "started, and the operation is done");
	is_int(b.nr_events, a.nr_events, "the same again");
	for (int i = 0; i < a.nr_events; i++)
		ok(json_equal(a.events[i].data, b.events[i].data),
		   "event %d is the same", i);
	decision_done(&a);
	decision_done(&b);
}

static void refusal(const struct session *s, enum command_kind kind,
		    enum err_code code, const char *says)
{
	struct command c = { .kind = kind };
	struct facts f = { 0 };
	struct decision d = decide(s, &c, &f);

	ok(d.rc < 0, "%s is refused when %s", command_word(kind),
	   s ? session_state_word(s->state) : "there is no session");
	is_int(d.err.code, code, "with the right code");
	ok(strstr(d.err.msg, says), "it says \"%s\"", says);
	if (!strstr(d.err.msg, says))
		printf("#   %s\n", d.err.msg);
	decision_done(&d);
}

static void test_texts(void)
{
	struct session s = created(0);

	refusal(NULL, COMMAND_PAUSE, ERR_NOT_FOUND, "no session " S_ID);
	refusal(&s, COMMAND_PAUSE, ERR_BUSY, "create: restoring");
	s.op.id[0] = 0;
	s.state = SESSION_FAILED;
	refusal(&s, COMMAND_PAUSE, ERR_CONFLICT, "is failed: can't pause it");
	refusal(&s, COMMAND_RESUME, ERR_CONFLICT, "`cryo rm " S_ID "`");
	refusal(&s, COMMAND_SNAPSHOT, ERR_CONFLICT, "`cryo resume`");
	s.state = SESSION_RUNNING;
	refusal(&s, COMMAND_REWIND, ERR_NOT_FOUND, "no point");
	refusal(&s, COMMAND_EXEC_START, ERR_INVALID, "argv");
	refusal(&s, COMMAND_FORK, ERR_INVALID, "1 to 64");
	s.state = SESSION_STOPPING;
	refusal(&s, COMMAND_RESUME, ERR_GONE, "being destroyed");
	s.state = SESSION_RUNNING;
	s.park = true;
	refusal(&s, COMMAND_DESTROY, ERR_NOT_FOUND, "no session");
}

/* Point times rise, whatever the clock does. */
static void test_times_rise(void)
{
	struct session s = created(0);
	struct facts f = { 0 };
	struct command c = { .kind = COMMAND_CAPTURED, .epoch = 1 };
	int64_t last = 0;

	apply(&s, EVENT_SESSION_STARTED, NULL);
	base_strcpy(c.made.id, sizeof(c.made.id), "p0000000000000000001");
	for (int i = 0; i < 4; i++) {
		struct decision d;

		c.made.time_ns = 1000 - i * 100; /* the clock goes back */
		d = decide(&s, &c, &f);
		is_int(d.nr_events, 1, "a point is committed");
		if (d.nr_events)
			session_evolve(&s, &d.events[0]);
		ok(s.newest_ns > last, "later than the one before");
		last = s.newest_ns;
		decision_done(&d);
	}
	is_int(s.points, 4, "four points");
	is_int(last, 1003, "each a nanosecond after the one before");
}

static void test_park_key(void)
{
	struct session_spec spec = { .memory_mib = 256,
				     .vcpus = 2,
				     .disk_mib = 300 };
	struct limits l = limits_default;
	char key[PARK_KEY_LEN + 1];

	base_strcpy(spec.template_digest, sizeof(spec.template_digest), "abcd");
	base_strcpy(l.platform, sizeof(l.platform), "vmm7");
	session_park_key(key, &spec, &l);
	is_str(key, "abcd/256/2/300/vmm7", "shape and platform make the key");
	memset(&spec, 0, sizeof(spec));
	base_strcpy(spec.template, sizeof(spec.template), "base");
	session_spec_fill(&spec, &l);
	is_str(spec.template, "base:latest", "a tag is put");
	is_int(spec.snapshot_every_ns, 60 * SEC, "a minute between points");
	spec.keep = KEEP_NONE;
	session_spec_fill(&spec, &l);
	is_int(spec.snapshot_every_ns, 0, "none when nothing is kept");
}

int main(void)
{
	uint64_t seed = tap_seed();

	test_ttl();
	test_illegal();
	test_total(&seed);
	test_pure();
	test_texts();
	test_times_rise();
	test_park_key();
	return tap_done();
}
