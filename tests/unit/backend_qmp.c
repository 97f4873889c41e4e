/*
 * The QMP client against a QEMU of our own in a thread: a good one that
 * keeps to the protocol, and bad ones that lie, stall or never stop.
 */
#include "core/backend/qmp.h"
#include "core/backend/helper_proto.h"
#include "core/clock.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define MS 3000

static const char greeting[] =
	"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22}}, "
	"\"capabilities\": [\"oob\"]}}\r\n";

struct fake {
	int sock;
	int state_fd; /* from add-fd */
	int conts; /* answered with an error so far */
	int saves;
	int fd_from_getfd;
	const char *migration; /* what migrate-incoming ends in */
	const char *bad; /* command that gets bad_answer */
	const char *bad_answer; /* printf format of the id */
	bool silent; /* bad: no answer at all */
	char last[4096]; /* the last line that came */
};

static void say(struct fake *f, const char *fmt, ...)
{
	static char text[1 << 18];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n > 0 && send(f->sock, text, (size_t)n, MSG_NOSIGNAL) < 0)
		return;
}

static void on_save(struct fake *f, long long id)
{
	char state[64];
	int n = snprintf(state, sizeof(state), "state number %d", ++f->saves);

	/* as QEMU does: truncates, writes at the offset it shares with us */
	if (ftruncate(f->state_fd, 0) < 0 ||
	    write(f->state_fd, state, (size_t)n) != n)
		return;
	say(f, "{\"return\": {}, \"id\": %lld}\r\n", id);
}

static void answer(struct fake *f, const char *cmd, long long id)
{
	if (f->bad && !strcmp(cmd, f->bad)) {
		if (!f->silent)
			say(f, f->bad_answer, id);
	} else if (!strcmp(cmd, "xen-save-devices-state")) {
		on_save(f, id);
	} else if (!strcmp(cmd, "query-status")) {
		say(f, "{\"event\": \"STOP\", \"timestamp\": {}}\r\n");
		say(f,
		    "{\"return\": {\"status\": \"paused\", \"running\": "
		    "false}, \"id\": %lld}\r\n",
		    id);
	} else if (!strcmp(cmd, "cont") && f->conts > 0) {
		f->conts--;
		say(f,
		    "{\"error\": {\"class\": \"GenericError\", \"desc\": "
		    "\"Migration is not finalized yet\"}, \"id\": %lld}\r\n",
		    id);
	} else if (!strcmp(cmd, "migrate-incoming")) {
		say(f,
		    "{\"event\": \"MIGRATION\", \"data\": {\"status\": "
		    "\"active\"}}\r\n{\"return\": {}, \"id\": %lld}\r\n",
		    id);
		say(f,
		    "{\"event\": \"MIGRATION\", \"data\": {\"status\": "
		    "\"%s\"}}\r\n",
		    f->migration);
	} else {
		say(f, "{\"return\": {}, \"id\": %lld}\r\n", id);
	}
}

static void take(struct fake *f, const char *line, size_t len, int fd)
{
	json_t *o = NULL;
	const char *cmd;
	struct err e;

	if (json_parse(&o, line, len, &e) < 0)
		return;
	cmd = json_string_value(json_object_get(o, "execute"));
	snprintf(f->last, sizeof(f->last), "%.*s", (int)len, line);
	if (!strcmp(cmd, "add-fd"))
		f->state_fd = fd;
	if (!strcmp(cmd, "getfd"))
		f->fd_from_getfd = fd;
	answer(f, cmd, json_integer_value(json_object_get(o, "id")));
	json_decref(o);
}

static void *play(void *arg)
{
	static char buf[1 << 16];
	struct fake *f = arg;
	int fds[2], fd = -1;
	size_t len = 0;

	say(f, greeting);
	for (;;) {
		unsigned nr = 0;
		char *nl;
		ssize_t n = helper_recv(f->sock, buf + len, sizeof(buf) - len,
					fds, 2, &nr);

		if (n <= 0)
			return NULL;
		if (nr)
			fd = fds[0];
		len += (size_t)n;
		while ((nl = memchr(buf, '\n', len))) {
			size_t l = (size_t)(nl - buf);

			take(f, buf, l, fd);
			len -= l + 1;
			memmove(buf, nl + 1, len);
		}
	}
}

static char seen[256];

static void on_event(void *ctx, const char *name, const json_t *data)
{
	(void)ctx;
	(void)data;
	snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s ", name);
}

struct rig {
	struct fake f;
	struct qmp *q;
	pthread_t t;
	struct err e;
};

static void rig_up(struct rig *r)
{
	int s[2];

	seen[0] = 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) < 0)
		bail("socketpair");
	r->f.sock = s[1];
	r->f.state_fd = r->f.fd_from_getfd = -1;
	r->q = qmp_new(s[0], on_event, NULL);
	if (pthread_create(&r->t, NULL, play, &r->f))
		bail("thread");
}

static void rig_down(struct rig *r)
{
	qmp_free(r->q);
	shutdown(r->f.sock, SHUT_RDWR);
	pthread_join(r->t, NULL);
	close(r->f.sock);
}

static int state_file(struct rig *r)
{
	int rd = memfd_create("state", MFD_CLOEXEC);
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", rd);
	return qmp_set_state_file(r->q, open(path, O_WRONLY | O_CLOEXEC), rd,
				  MS, &r->e);
}

static void good(void)
{
	struct rig r = { .f = { .conts = 2, .migration = "completed" } };
	struct buf b = { 0 };
	char status[32] = "", text[16];
	json_t *ret = NULL;

	rig_up(&r);
	is_int(qmp_handshake(r.q, MS, &r.e), 0, "handshake (%s)", r.e.msg);
	is_str(r.f.last,
	       "{\"arguments\":{\"capabilities\":[{\"capability\":\"events\","
	       "\"state\":true}]},\"execute\":\"migrate-set-capabilities\","
	       "\"id\":2}\r",
	       "asks for migration events");
	is_int(qmp_call(r.q, "query-x", NULL, -1, MS, &ret, &r.e), 0, "call");
	ok(json_is_object(ret), "its value");
	json_decref(ret);
	is_int(qmp_vm_stop(r.q, MS, &r.e), 0, "stop");
	is_int(qmp_vm_status(r.q, status, sizeof(status), MS, &r.e), 0, "status");
	is_str(status, "paused", "is this");
	is_str(seen, "STOP ", "an event before the answer is delivered");
	is_int(state_file(&r), 0, "state file (%s)", r.e.msg);
	is_int(qmp_vm_save_devices(r.q, &b, MS, &r.e), 0, "save (%s)", r.e.msg);
	is_str(r.f.last,
	       "{\"arguments\":{\"filename\":\"/dev/fdset/1\",\"live\":false},"
	       "\"execute\":\"xen-save-devices-state\",\"id\":7}\r",
	       "live is false");
	is_int(qmp_vm_save_devices(r.q, &b, MS, &r.e), 0, "again");
	is_str(buf_cstr(&b), "state number 1state number 2",
	       "each save is read from its start");
	is_int(qmp_vm_cont(r.q, MS, &r.e), 0, "cont tries until it may");
	is_int(r.f.conts, 0, "three times");
	is_int(qmp_vm_load_devices(r.q, "abc", 3, MS, &r.e), 0, "load (%s)",
	       r.e.msg);
	is_int(pread(r.f.fd_from_getfd, text, 16, 0), 3, "from a descriptor");
	is_mem(text, "abc", 3, "with the bytes");
	is_int(qmp_vm_quit(r.q, MS, &r.e), 0, "quit");
	buf_done(&b);
	rig_down(&r);
	is_int(r.f.saves, 2, "two saves in all");
}

static void failed_load(void)
{
	struct rig r = { .f = { .migration = "failed" } };

	rig_up(&r);
	qmp_handshake(r.q, MS, &r.e);
	is_int(qmp_vm_load_devices(r.q, "abc", 3, MS, &r.e), -EBADMSG, "%s",
	       r.e.msg);
	rig_down(&r);
}

/* One call of "stop" gets this answer. */
static void bad(const char *what, const char *reply, int want, int then)
{
	struct rig r = { .f = { .bad = "stop", .bad_answer = reply } };
	int got;

	rig_up(&r);
	got = qmp_handshake(r.q, MS, &r.e);
	is_int(got, 0, "%s: handshake", what);
	is_int(qmp_vm_stop(r.q, 500, &r.e), want, "%s: %s", what, r.e.msg);
	got = qmp_call(r.q, "query-x", NULL, -1, MS, NULL, &r.e);
	is_int(got, then, "%s: and then", what);
	rig_down(&r);
}

static void hostile(void)
{
	static char deep[200] = "{\"return\": ", *p = deep + 11;

	for (int i = 0; i < 60; i++)
		*p++ = '[';
	memcpy(p, "\r\n", 3);
	bad("error", "{\"error\": {\"desc\": \"a\\u0001b\"}, \"id\": %lld}\n",
	    -EREMOTEIO, 0);
	bad("no text", "{\"error\": {}, \"id\": %lld}\n", -EREMOTEIO, 0);
	bad("no JSON", "hello %lld\n", -EPROTO, -ENOTCONN);
	bad("an array", "[%lld]\n", -EPROTO, -ENOTCONN);
	bad("deep", deep, -EPROTO, -ENOTCONN);
	bad("no id", "{\"return\": {}}\n", -EPROTO, -ENOTCONN);
	bad("a number of no command", "{\"return\": {}, \"id\": 99%lld}\n",
	    -EPROTO, -ENOTCONN);
	bad("two answers",
	    "{\"return\": {}, \"id\": %1$lld}\n"
	    "{\"return\": {}, \"id\": %1$lld}\n",
	    0, 0); /* the second comes too late to be believed */
	bad("a second greeting", "{\"QMP\": {}, \"x\": %lld}\n", -EPROTO,
	    -ENOTCONN);
	bad("unknown kind", "{\"x\": %lld}\n", -EPROTO, -ENOTCONN);
	bad("event data of another type",
	    "{\"event\": \"X\", \"data\": %lld}\n", -EPROTO, -ENOTCONN);
}

static void stalls(void)
{
	struct rig r = { .f = { .bad = "stop", .silent = true } };
	int64_t t0;

	rig_up(&r);
	qmp_handshake(r.q, MS, &r.e);
	t0 = clock_mono(&clock_real);
	is_int(qmp_vm_stop(r.q, 200, &r.e), -ETIMEDOUT, "%s", r.e.msg);
	ok(clock_mono(&clock_real) - t0 >= 200 * NS_PER_MS, "not before");
	ok(clock_mono(&clock_real) - t0 < 2000 * NS_PER_MS, "not long after");
	say(&r.f, "{\"return\": {}, \"id\": 3}\n");
	is_int(qmp_call(r.q, "query-x", NULL, -1, MS, NULL, &r.e), 0,
	       "the late answer is not taken for another's (%s)", r.e.msg);
	rig_down(&r);
}

static void *flood(void *arg)
{
	static const char line[] = "{\"event\": \"X\"}\r\n";
	int sock = *(int *)arg;

	send(sock, greeting, strlen(greeting), MSG_NOSIGNAL);
	while (send(sock, line, strlen(line), MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

static void *endless_line(void *arg)
{
	int sock = *(int *)arg;

	send(sock, "{\"a\": \"", 7, MSG_NOSIGNAL);
	while (send(sock, "aaaaaaaaaaaaaaaa", 16, MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

/* A VMM that never stops talking holds nobody longer than the deadline. */
static void endless(const char *what, void *(*fn)(void *), int want)
{
	int64_t t0 = clock_mono(&clock_real);
	struct err e = { 0 };
	struct qmp *q;
	pthread_t t;
	int s[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) < 0 ||
	    pthread_create(&t, NULL, fn, &s[1]))
		bail("socketpair");
	q = qmp_new(s[0], NULL, NULL);
	is_int(qmp_handshake(q, 300, &e), want, "%s: %s", what, e.msg);
	ok(clock_mono(&clock_real) - t0 < 3000 * NS_PER_MS, "%s: in time", what);
	if (want == -ETIMEDOUT)
		is_int(qmp_pump(q, &e), 0, "%s: a pump ends, too", what);
	qmp_free(q);
	pthread_join(t, NULL);
	close(s[1]);
}

static void events(void)
{
	struct rig r = { 0 };
	json_t *data = NULL;

	rig_up(&r);
	qmp_handshake(r.q, MS, &r.e);
	say(&r.f, "{\"event\": \"A\"}\n{\"event\": \"B\", \"data\": "
		  "{\"x\": 5}}\n");
	is_int(qmp_wait_event(r.q, "B", MS, &data, &r.e), 0, "event (%s)",
	       r.e.msg);
	is_int(json_integer_value(json_object_get(data, "x")), 5, "its data");
	is_str(seen, "A B ", "both were delivered");
	json_decref(data);
	is_int(qmp_wait_event(r.q, "C", 100, NULL, &r.e), -ETIMEDOUT,
	       "no such event: %s", r.e.msg);
	shutdown(r.f.sock, SHUT_RDWR);
	is_int(qmp_pump(r.q, &r.e), -EPIPE, "the end: %s", r.e.msg);
	is_int(qmp_vm_stop(r.q, MS, &r.e), -ENOTCONN, "after it: %s", r.e.msg);
	rig_down(&r);
}

int main(void)
{
	good();
	failed_load();
	hostile();
	stalls();
	endless("a flood of events", flood, -ETIMEDOUT);
	endless("an endless line", endless_line, -EPROTO);
	events();
	return tap_done();
}
