/*
 * Moments in a line that was rewound once:
 *
 *   epoch 1   a(10) b(20) c(30)
 *                \
 *   epoch 2       d(40) e(50)      started at b
 *
 * and the session began as a fork of another's point at 5.
 */
#include "core/timespec.h"

#include "tests/memstore.h"
#include "tests/tap.h"

#define S_ID "s0000000000000000001"
#define PARENT "s0000000000000000000"
#define T0 (1700000000 * 1000000000ll) /* 2023-11-14T22:13:20Z */
#define SEC 1000000000ll

static struct memstore m;
static struct session s;
static struct reader r;

static void point_id(char ret[ID_LEN + 1], char letter)
{
	snprintf(ret, ID_LEN + 1, "p%018d%c", 0, letter);
}

static void add_point(char letter, int at, uint64_t epoch, const char *name)
{
	uint8_t key[POINT_KEY_LEN];
	struct point p = { .time_ns = T0 + at * SEC, .epoch = epoch };
	struct err e;

	point_id(p.id, letter);
	base_strcpy(p.session, sizeof(p.session), S_ID);
	base_strcpy(p.name, sizeof(p.name), name);
	point_key(key, S_ID, p.time_ns);
	rows_put_point(&m.port, &p, &e);
	mem_put(&m, TABLE_POINTS_BY_ID, p.id, ID_LEN, key, sizeof(key), &e);
	if (name[0]) {
		uint8_t by_name[ROW_KEY_MAX];
		size_t len = rows_key2(by_name, S_ID, name);

		mem_put(&m, TABLE_POINTS_BY_NAME, by_name, len, key,
			sizeof(key), &e);
	}
}

static void add_epoch(uint64_t epoch, const char *session, char letter, int at,
		      uint64_t of)
{
	uint8_t key[ID_LEN + 8];
	struct point_ref ref = { .time_ns = T0 + at * SEC, .epoch = of };
	json_t *o = json_object(), *start = json_object();
	struct err e;

	point_id(ref.id, letter);
	base_strcpy(ref.session, sizeof(ref.session), session);
	fields_encode(start, &point_ref_fields, &ref);
	json_object_set_new(o, "start", start);
	memcpy(key, S_ID, ID_LEN);
	put_be64(key + ID_LEN, epoch);
	rows_put_json(&m.port, TABLE_EPOCHS, key, sizeof(key), o, &e);
	json_decref(o);
}

static void add_event(enum event_type type, int at, char letter)
{
	struct event ev = { .type = type,
			    .wall_ns = T0 + at * SEC,
			    .data = json_object() };
	char id[ID_LEN + 1];
	struct err e;

	point_id(id, letter);
	json_put_str(ev.data, "id", id);
	base_strcpy(ev.actor, sizeof(ev.actor), "a");
	base_strcpy(ev.session, sizeof(ev.session), S_ID);
	if (mem_append(&m, &ev, &e))
		bail("append: %s", e.msg);
	event_done(&ev);
}

static void build(void)
{
	memstore_init(&m);
	r = reader_of(&m.port);
	m.in_txn = true;
	base_strcpy(s.id, sizeof(s.id), S_ID);
	s.epoch = 2;
	point_id(s.base.id, 'o');
	base_strcpy(s.base.session, sizeof(s.base.session), PARENT);
	s.base.time_ns = T0 + 5 * SEC;
	s.base.epoch = 9;
	add_point('a', 10, 1, "");
	add_point('b', 20, 1, "upgrade");
	add_point('c', 30, 1, "");
	add_point('d', 40, 2, "");
	add_point('e', 50, 2, "");
	add_epoch(1, PARENT, 'o', 5, 9);
	add_epoch(2, S_ID, 'b', 20, 1);
	add_event(EVENT_SESSION_STARTED, 12, 'z'); /* 1 */
	add_event(EVENT_SNAPSHOT_COMMITTED, 21, 'b'); /* 2 */
	add_event(EVENT_SESSION_STALLED, 35, 'z'); /* 3 */
}

static struct timespec_point got;
static struct err err;

static int resolve(const char *text)
{
	memset(&got, 0, sizeof(got));
	memset(&err, 0, sizeof(err));
	return timespec_resolve(&r, &s, text, T0 + 60 * SEC, &got, &err);
}

/* The point that a text leads to, by its letter. */
static void leads_to(const char *text, char letter, int off_ms, bool off_line)
{
	char id[ID_LEN + 1];

	point_id(id, letter);
	is_int(resolve(text), 0, "%s is a moment", text);
	if (err.msg[0])
		printf("#   %s\n", err.msg);
	is_str(got.point.id, id, "%s is point %c", text, letter);
	is_int(got.off_ns, off_ms * (SEC / 1000), "%s: off by %d ms", text,
	       off_ms);
	is_int(got.off_line, off_line, "%s: %s the line", text,
	       off_line ? "off" : "on");
}

static void test_times(void)
{
	leads_to("2023-11-14T22:14:10Z", 'e', 0, false); /* T0 + 50 */
	leads_to("2023-11-14T22:14:09.9Z", 'd', 9900, false);
	leads_to("2023-11-15T00:14:05+02:00", 'd', 5000, false);
	leads_to("2023-11-14T22:13:55Z", 'c', 5000, true);
	leads_to("2023-11-14T22:13:40Z", 'b', 0, false);
	leads_to("2023-11-14T22:13:39Z", 'a', 9000, false);
	leads_to("-0s", 'e', 10000, false);
	leads_to("-10s", 'e', 0, false);
	leads_to("-11s", 'd', 9000, false);
	leads_to("-10001ms", 'd', 9999, false);
	leads_to("-53s", 'o', 2000, false);
	ok(got.inherited, "the point it began with is another's");
}

static void test_names(void)
{
	char id[ID_LEN + 1];

	leads_to("upgrade", 'b', 0, false);
	ok(got.exact, "a name is exact");
	point_id(id, 'c');
	leads_to(id, 'c', 0, true);
	point_id(id, 'o');
	leads_to(id, 'o', 0, false);
	leads_to("@1", 'a', 2000, false);
	leads_to("@2", 'b', 0, false);
	leads_to("@3", 'c', 5000, true);
}

static void refused(const char *text, enum err_code code, const char *says)
{
	ok(resolve(text) < 0, "refused: \"%s\"", text);
	is_int(err.code, code, "with the right code");
	ok(strstr(err.msg, says), "it says \"%s\"", says);
	if (!strstr(err.msg, says))
		printf("#   %s\n", err.msg);
}

static void test_refused(void)
{
	char id[ID_LEN + 1];

	point_id(id, 'o');
	refused("-56s", ERR_NOT_FOUND,
		"its first is p000000000000000000a at "
		"2023-11-14T22:13:30Z");
	refused("2023-11-14T22:14:21Z", ERR_INVALID, "future");
	refused("-99999999999s", ERR_INVALID, "span");
	refused("-x", ERR_INVALID, "span");
	refused("--5s", ERR_INVALID, "span");
	refused("@0", ERR_INVALID, "@0");
	refused("@-1", ERR_INVALID, "event");
	refused("@2x", ERR_INVALID, "event");
	refused("@99999999999999999999", ERR_INVALID, "event");
	refused("@4", ERR_NOT_FOUND, "the last is 3");
	refused("downgrade", ERR_NOT_FOUND, "no point \"downgrade\"");
	refused("z0000000000000000009", ERR_NOT_FOUND, "cryo snapshots");
	refused("", ERR_INVALID, "no moment");
	refused("yesterday at noon", ERR_INVALID, "no moment");
}

/* A point of another session is not found, though its id is known. */
static void test_foreign(void)
{
	struct session other = { .epoch = 1 };
	char id[ID_LEN + 1];

	base_strcpy(other.id, sizeof(other.id), "s0000000000000000007");
	point_id(id, 'a');
	ok(timespec_resolve(&r, &other, id, T0 + 60 * SEC, &got, &err) < 0,
	   "a foreign point's id leads nowhere");
	is_int(err.code, ERR_NOT_FOUND, "as if there were none");
	ok(timespec_resolve(&r, &other, "-1s", T0 + 60 * SEC, &got, &err) < 0,
	   "a session without points has no past");
	ok(strstr(err.msg, "no point yet"), "and says so");
}

int main(void)
{
	build();
	test_times();
	test_names();
	test_refused();
	test_foreign();
	memstore_done(&m);
	return tap_done();
}
