/*
 * Rows from events: what each type leaves in the tables, and logs that can't
 * be, which must be told from good ones.
 */
#include "core/rows.h"
#include "core/session_row.h"

#include "tests/memstore.h"
#include "tests/tap.h"

#define S_ID "s0000000000000000001"
#define C_ID "s0000000000000000002"
#define T_ID "t0000000000000000001"
#define OP "o0000000000000000001"
#define P_ID "p0000000000000000001"
#define X_ID "e0000000000000000001"

static struct memstore m;
static struct reader r;
static struct err err;
static int64_t now;

/* Appends and applies one event about a session; `json` is its data. */
static int put(enum event_type type, const char *session, const char *json)
{
	struct event ev = { .type = type, .wall_ns = ++now, .mono_ns = now };
	int rc;

	base_strcpy(ev.type_name, sizeof(ev.type_name), event_type_name(type));
	base_strcpy(ev.session, sizeof(ev.session), session);
	base_strcpy(ev.tenant, sizeof(ev.tenant), T_ID);
	base_strcpy(ev.actor, sizeof(ev.actor), "test");
	if (json_parse(&ev.data, json, strlen(json), &err))
		bail("bad data in the test: %s", err.msg);
	mem_append(&m, &ev, &err);
	rc = project_apply(&m.port, &ev, &err);
	event_done(&ev);
	return rc;
}

static size_t rows_in(enum table t)
{
	size_t n = 0;

	for (size_t i = 0; i < m.now.nr; i++)
		n += m.now.row[i]->table == t;
	return n;
}

static bool has(enum table t, const char *a, const char *b)
{
	struct buf buf SCOPED(buf_done) = { 0 };
	uint8_t key[ROW_KEY_MAX];
	size_t len = rows_key2(key, a, b);

	return !mem_rows_get(&m.now, t, key, len, &buf);
}

static void open_store(void)
{
	memstore_init(&m);
	r = reader_of(&m.port);
	mem_begin(&m, &err);
}

static void begin_life(void)
{
	open_store();
	put(EVENT_SESSION_CREATED, S_ID,
	    "{\"name\":\"web\",\"operation\":{\"id\":\"" OP
	    "\",\"kind\":\"create\",\"step\":\"boot\"},"
	    "\"spec\":{\"memory_mib\":256}}");
	put(EVENT_OPERATION_ACCEPTED, S_ID,
	    "{\"operation\":\"" OP
	    "\",\"kind\":\"create\",\"step\":\"boot\",\"sessions\":[\"" S_ID
	    "\"]}");
}

static void test_life(void)
{
	struct session s;
	struct operation op;
	struct point p;

	begin_life();
	ok(has(TABLE_SESSIONS_BY_TENANT, T_ID, S_ID), "listed for its tenant");
	ok(has(TABLE_SESSIONS_BY_NAME, T_ID, "web"), "found by name");
	is_int(rows_operation(&r, OP, &op, &err), 0, "its operation");
	is_str(op.stage, "booting", "says what it waits for");
	operation_done(&op);
	is_int(put(EVENT_SESSION_STARTED, S_ID,
		   "{\"epoch\":1,\"backend\":\"fake\",\"agent\":true}"),
	       0, "started");
	is_int(put(EVENT_OPERATION_DONE, S_ID, "{\"operation\":\"" OP "\"}"), 0,
	       "done");
	is_int((int)rows_in(TABLE_OPERATIONS_OPEN), 0, "no longer open");
	is_int(rows_session(&r, S_ID, &s, &err), 0, "the row");
	ok(s.state == SESSION_RUNNING && s.agent && !s.op.id[0],
	   "is that of a running session");
	is_int(s.spec.memory_mib, 256, "with its spec");

	is_int(put(EVENT_SNAPSHOT_COMMITTED, S_ID,
		   "{\"id\":\"" P_ID "\",\"time_ns\":\"500\",\"kind\":"
		   "\"manual\",\"name\":\"first\",\"epoch\":1}"),
	       0, "a point");
	is_int(rows_point(&r, P_ID, &p, &err), 0, "is found by id");
	is_int((long long)p.seq, (long long)m.now.nr_events, "knows its event");
	is_int(rows_point_by_name(&r, S_ID, "first", &p, &err), 0, "and by name");
	put(EVENT_SNAPSHOT_NAMED, S_ID,
	    "{\"point\":\"" P_ID "\",\"name\":\"second\"}");
	ok(!has(TABLE_POINTS_BY_NAME, S_ID, "first") &&
		   has(TABLE_POINTS_BY_NAME, S_ID, "second"),
	   "a new name takes the place of the old one");
	put(EVENT_EXEC_STARTED, S_ID,
	    "{\"id\":\"" X_ID "\",\"tag\":\"" X_ID
	    "\",\"epoch\":1,\"argv\":[\"ls\"]}");
	ok(has(TABLE_EXECS_BY_SESSION, S_ID, X_ID), "an exec is listed");

	put(EVENT_SESSION_STOPPING, S_ID, "{}");
	put(EVENT_SESSION_DESTROYED, S_ID, "{}");
	is_int((int)m.now.nr, 1, "destroyed: one row is left");
	is_int((int)rows_in(TABLE_OPERATIONS), 1, "the operation");
	mem_abort(&m);
	memstore_done(&m);
}

static void test_fork(void)
{
	struct operation op;

	begin_life();
	put(EVENT_SESSION_STARTED, S_ID, "{\"epoch\":1}");
	put(EVENT_OPERATION_DONE, S_ID, "{\"operation\":\"" OP "\"}");
	put(EVENT_OPERATION_ACCEPTED, S_ID,
	    "{\"operation\":\"o0000000000000000002\",\"kind\":\"fork\","
	    "\"step\":\"capture\",\"sessions\":[\"" C_ID
	    "\",\"s0000000000000000003\"]}");
	rows_operation(&r, "o0000000000000000002", &op, &err);
	is_int(op.waiting, 2, "a fork waits for two children");
	operation_done(&op);
	put(EVENT_SESSION_CREATED, C_ID,
	    "{\"parent\":\"" S_ID
	    "\",\"operation\":{\"id\":\"o0000000000000000002\",\"kind\":"
	    "\"fork\",\"step\":\"restore\"}}");
	put(EVENT_SESSION_FAILED, C_ID,
	    "{\"why\":\"x\",\"operation\":\"o0000000000000000002\"}");
	rows_operation(&r, "o0000000000000000002", &op, &err);
	is_int(op.waiting, 1, "one has come to its end");
	is_int(op.broken, 1, "a bad one");
	operation_done(&op);
	is_int(put(EVENT_OPERATION_FAILED, C_ID,
		   "{\"operation\":\"o0000000000000000002\",\"code\":"
		   "\"timeout\",\"why\":\"x\"}"),
	       0, "a child ends the operation");
	{
		struct session s;

		rows_session(&r, S_ID, &s, &err);
		ok(!s.op.id[0], "which frees the parent");
	}
	rows_operation(&r, "o0000000000000000002", &op, &err);
	is_int(op.error_code, ERR_TIMEOUT, "the code is kept");
	operation_done(&op);
	mem_abort(&m);
	memstore_done(&m);
}

static void test_node(void)
{
	json_t *row;

	open_store();
	put(EVENT_KEY_CREATED, "",
	    "{\"id\":\"k0000000000000000001\",\"hash\":\"ab\",\"name\":"
	    "\"ci\",\"scopes\":[\"read\"]}");
	is_int(rows_json(&r, TABLE_KEYS, "k0000000000000000001", 20, &row, &err),
	       0, "a key's row");
	is_str(json_string_value(json_object_get(row, "hash")), "ab", "hash");
	is_str(json_string_value(json_object_get(row, "tenant")), T_ID,
	       "whose it is");
	json_decref(row);
	put(EVENT_KEY_REMOVED, "", "{\"id\":\"k0000000000000000001\"}");
	is_int((int)rows_in(TABLE_KEYS), 0, "removed");
	put(EVENT_TEMPLATE_ADDED, "",
	    "{\"name\":\"tiny:latest\",\"digest\":\"00\"}");
	put(EVENT_TEMPLATE_ADDED, "",
	    "{\"name\":\"tiny:latest\",\"digest\":\"11\"}");
	rows_json(&r, TABLE_TEMPLATES, "tiny:latest", 11, &row, &err);
	is_str(json_string_value(json_object_get(row, "digest")), "11",
	       "a template's name leads to its newest digest");
	json_decref(row);
	mem_abort(&m);
	memstore_done(&m);
}

static void cant_be(const char *what, enum event_type type, const char *session,
		    const char *data)
{
	memset(&err, 0, sizeof(err));
	is_int(put(type, session, data), -EPROTO, "%s: told", what);
	is_int(err.code, ERR_CORRUPT, "as a broken log");
	ok(strstr(err.msg, event_type_name(type)), "naming the event");
}

static void test_broken(void)
{
	begin_life();
	cant_be("a session from nowhere", EVENT_SESSION_PAUSED, C_ID, "{}");
	cant_be("the same id twice", EVENT_SESSION_CREATED, S_ID, "{}");
	cant_be("paused while creating", EVENT_SESSION_PAUSED, S_ID, "{}");
	cant_be("an operation from nowhere", EVENT_OPERATION_DONE, S_ID,
		"{\"operation\":\"o0000000000000000009\"}");
	cant_be("an operation without a name", EVENT_OPERATION_ACCEPTED, S_ID,
		"{\"kind\":\"pause\",\"step\":\"stop\"}");
	cant_be("an operation of no kind", EVENT_OPERATION_ACCEPTED, S_ID,
		"{\"operation\":\"" OP "\",\"kind\":\"x\",\"step\":\"stop\"}");
	put(EVENT_SESSION_STARTED, S_ID, "{\"epoch\":1}");
	put(EVENT_OPERATION_DONE, S_ID, "{\"operation\":\"" OP "\"}");
	cant_be("an operation that ends twice", EVENT_OPERATION_FAILED, S_ID,
		"{\"operation\":\"" OP "\"}");
	cant_be("a point without id", EVENT_SNAPSHOT_COMMITTED, S_ID,
		"{\"time_ns\":\"9\"}");
	put(EVENT_SNAPSHOT_COMMITTED, S_ID,
	    "{\"id\":\"" P_ID "\",\"time_ns\":\"500\"}");
	cant_be("a point that is older than the newest", EVENT_SNAPSHOT_COMMITTED,
		S_ID, "{\"id\":\"p0000000000000000002\",\"time_ns\":\"500\"}");
	cant_be("a name for no point", EVENT_SNAPSHOT_NAMED, S_ID,
		"{\"point\":\"p0000000000000000009\",\"name\":\"n\"}");
	cant_be("an exec that was never started", EVENT_EXEC_EXITED, S_ID,
		"{\"id\":\"" X_ID "\"}");
	cant_be("a key without a name", EVENT_KEY_CREATED, "", "{}");
	put(EVENT_EXEC_STARTED, S_ID,
	    "{\"id\":\"" X_ID "\",\"tag\":\"" X_ID "\"}");
	put(EVENT_EXEC_EXITED, S_ID, "{\"id\":\"" X_ID "\",\"code\":0}");
	cant_be("an exec that ends twice", EVENT_EXEC_LOST, S_ID,
		"{\"id\":\"" X_ID "\"}");
	mem_abort(&m);
	memstore_done(&m);
}

/* Types of newer builds are kept by the log and leave no rows. */
static void test_unknown(void)
{
	struct event ev = { .type = EVENT_UNKNOWN };
	size_t before;

	begin_life();
	before = m.now.nr;
	base_strcpy(ev.session, sizeof(ev.session), S_ID);
	base_strcpy(ev.type_name, sizeof(ev.type_name), "session.flown");
	is_int(project_apply(&m.port, &ev, &err), 0, "an unknown type");
	is_int((int)m.now.nr, (int)before, "changes no rows");
	mem_abort(&m);
	memstore_done(&m);
}

int main(void)
{
	test_life();
	test_fork();
	test_node();
	test_broken();
	test_unknown();
	return tap_done();
}
