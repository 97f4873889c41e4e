/*
 * qmp: the client of QEMU's control protocol.
 *
 * Lines of JSON come in through one fixed buffer. A dispatcher sorts them:
 * the greeting, events (to the callback, and to whoever waits for one), and
 * answers, which carry the number of the command. A wait is "dispatch until
 * this condition or that moment"; all of the module is built on it.
 *
 * Device state comes out through a memfd that QEMU got once (add-fd) and that
 * is emptied and rewound before each save: the offset is shared. The bytes
 * are copied out before anybody looks at them.
 *
 *  1. No call waits longer than its deadline, whatever the VMM sends.
 *  2. No line is longer than QMP_LINE_MAX, no state than QMP_STATE_MAX.
 *  3. Text of the VMM reaches an error message only cleaned and cut.
 *  4. Once the protocol was broken nothing is sent or believed any more.
 *
 * A crash of this process closes the socket; QEMU, nested in our pid
 * namespace, dies with us.
 */
#include "core/backend/qmp.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/backend/helper_proto.h"
#include "core/clock.h"

#define FDSET 1
#define FDSET_PATH "/dev/fdset/1"
#define PUMP_LINES_MAX 256 /* per qmp_pump(): the caller has other work */
#define CONT_RETRY_MS 5

struct qmp {
	int sock;
	bool broken;
	bool greeted;
	int state_wr, state_rd; /* one memfd, or -1 */
	qmp_event_fn fn;
	void *ctx;
	int64_t last_id;
	json_t *reply; /* answer to last_id, while one waits */
	const char *want; /* event that somebody waits for */
	json_t *event; /* it */
	char migration[16]; /* status of the last MIGRATION event */
	size_t len, scanned;
	char line[QMP_LINE_MAX];
};

struct qmp *qmp_new(int sock, qmp_event_fn fn, void *ctx)
{
	struct qmp *q = base_alloc(sizeof(*q));

	q->sock = sock;
	q->fn = fn;
	q->ctx = ctx;
	q->state_wr = q->state_rd = -1;
	fcntl(sock, F_SETFL, O_NONBLOCK);
	return q;
}

void qmp_free(struct qmp *q)
{
	if (!q)
		return;
	close(q->sock);
	base_close_p(&q->state_wr);
	base_close_p(&q->state_rd);
	json_decref(q->reply);
	json_decref(q->event);
	free(q);
}

int qmp_fd(const struct qmp *q)
{
	return q->sock;
}

static int64_t deadline(int timeout_ms)
{
	return clock_mono(&clock_real) + timeout_ms * NS_PER_MS;
}

static int left_ms(int64_t end)
{
	int64_t left = end - clock_mono(&clock_real);

	if (left <= 0)
		return 0;
	return (int)MIN(left / NS_PER_MS + 1, 3600 * 1000);
}

static int broken(struct qmp *q, struct err *e, const char *what)
{
	q->broken = true;
	return err_set(e, -EPROTO, ERR_INTERNAL,
		       "QEMU broke the QMP protocol: %s", what);
}

static int check_alive(const struct qmp *q, struct err *e)
{
	if (!q->broken)
		return 0;
	return err_set(e, -ENOTCONN, ERR_INTERNAL,
		       "the QMP connection is broken");
}

/* --- what comes in -------------------------------------------------------- */

static void take_event(struct qmp *q, const char *name, json_t *data)
{
	const char *status = NULL;

	if (!strcmp(name, "MIGRATION"))
		status = json_string_value(json_object_get(data, "status"));
	if (status)
		base_strcpy(q->migration, sizeof(q->migration), status);
	if (q->want && !q->event && !strcmp(name, q->want))
		q->event = data ? json_incref(data) : json_object();
	if (q->fn)
		q->fn(q->ctx, name, data);
}

/* An answer to a command given up earlier is dropped. */
static int take_reply(struct qmp *q, json_t *o, struct err *e)
{
	const json_t *id = json_object_get(o, "id");
	json_int_t nr = json_integer_value(id);

	if (!json_is_integer(id) || nr < 1 || nr > q->last_id)
		return broken(q, e, "an answer to no command");
	if (nr == q->last_id) {
		if (q->reply)
			return broken(q, e, "two answers to one command");
		q->reply = json_incref(o);
	}
	return 0;
}

static int take_line(struct qmp *q, const char *p, size_t len, struct err *e)
{
	SCOPED_JSON json_t *o = NULL;
	const char *name;
	json_t *data;

	if (len && p[len - 1] == '\r')
		len--;
	if (json_parse(&o, p, len, e) < 0 || !json_is_object(o))
		return broken(q, e, "a line is not a JSON object");
	data = json_object_get(o, "data");
	name = json_string_value(json_object_get(o, "event"));
	if (name && (!data || json_is_object(data))) {
		take_event(q, name, data);
		return 0;
	}
	if (json_object_get(o, "return") || json_object_get(o, "error"))
		return take_reply(q, o, e);
	if (json_is_object(json_object_get(o, "QMP")) && !q->greeted) {
		q->greeted = true;
		return 0;
	}
	return broken(q, e, "a line of unknown kind");
}

/* Dispatches one buffered line: 1, or 0 when there is none. */
static int take_buffered(struct qmp *q, struct err *e)
{
	char *nl = memchr(q->line + q->scanned, '\n', q->len - q->scanned);
	size_t n;
	int r;

	if (!nl) {
		q->scanned = q->len;
		if (q->len == sizeof(q->line))
			return broken(q, e, "a line is longer than 64 KiB");
		return 0;
	}
	n = (size_t)(nl - q->line);
	r = take_line(q, q->line, n, e);
	q->len -= n + 1;
	memmove(q->line, nl + 1, q->len);
	q->scanned = 0;
	return r < 0 ? r : 1;
}

/* Reads what is there: 1, 0 when nothing is, -EPIPE at the end. */
static int fill(struct qmp *q, struct err *e)
{
	ssize_t n = recv(q->sock, q->line + q->len, sizeof(q->line) - q->len,
			 MSG_DONTWAIT);

	if (n > 0) {
		q->len += (size_t)n;
		return 1;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	q->broken = true;
	if (n < 0 && errno != ECONNRESET)
		return err_sys(e, errno, "read from QMP");
	return err_set(e, -EPIPE, ERR_INTERNAL,
		       "QEMU closed its QMP connection: it has ended; its "
		       "log says why");
}

int qmp_pump(struct qmp *q, struct err *e)
{
	int r = check_alive(q, e);

	for (int i = 0; r >= 0 && i < PUMP_LINES_MAX; i++) {
		r = take_buffered(q, e);
		if (r == 0)
			r = fill(q, e);
		if (r == 0)
			return 0;
	}
	return MIN(r, 0);
}

typedef bool (*done_fn)(const struct qmp *q);

/* Dispatches until done() or `end`. */
static int wait_until(struct qmp *q, done_fn done, int64_t end,
		      const char *what, struct err *e)
{
	struct pollfd p = { .fd = q->sock, .events = POLLIN };

	for (;;) {
		int r = take_buffered(q, e), ms;

		if (r < 0 || done(q))
			return MIN(r, 0);
		ms = left_ms(end);
		if (ms == 0)
			return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
				       "QEMU did not answer in time: QMP %s",
				       what);
		if (r > 0)
			continue;
		if (poll(&p, 1, ms) < 0 && errno != EINTR)
			return err_sys(e, errno, "poll of QMP");
		r = p.revents ? fill(q, e) : 0;
		if (r < 0)
			return r;
	}
}

/* --- commands ------------------------------------------------------------- */

static int send_text(struct qmp *q, const struct buf *b, int fd, int64_t end,
		     struct err *e)
{
	size_t off = 0;

	while (off < b->len) {
		struct pollfd p = { .fd = q->sock, .events = POLLOUT };
		ssize_t n;

		if (fd >= 0) /* rides on the first byte */
			n = helper_send(q->sock, b->p, 1, &fd, 1) ? -1 : 1;
		else
			n = send(q->sock, b->p + off, b->len - off, MSG_NOSIGNAL);
		if (n > 0) {
			off += (size_t)n;
			fd = -1;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR) {
			q->broken = true;
			return err_sys(e, errno, "write to QMP");
		}
		if (left_ms(end) == 0) {
			q->broken = true; /* half a command may be out */
			return err_set(e, -ETIMEDOUT, ERR_TIMEOUT,
				       "QEMU does not read from QMP");
		}
		poll(&p, 1, left_ms(end));
	}
	return 0;
}

/* Sends a command; takes args. Its answer will be q->reply. */
static int send_command(struct qmp *q, const char *command, json_t *args,
			int fd, int64_t end, struct err *e)
{
	SCOPED_JSON json_t *o = json_object();
	SCOPED(buf_done) struct buf b = { 0 };
	int r;

	json_put_str(o, "execute", command);
	if (args)
		json_object_set_new(o, "arguments", args);
	json_put_int(o, "id", q->last_id + 1);
	r = check_alive(q, e);
	if (r < 0)
		return r;
	r = json_canonical(&b, o);
	PRE(r == 0);
	buf_put_str(&b, "\r\n");
	json_decref(q->reply);
	q->reply = NULL;
	q->last_id++;
	return send_text(q, &b, fd, end, e);
}

static bool has_reply(const struct qmp *q)
{
	return q->reply != NULL;
}

/* What QEMU says, made fit for a log line. */
static void clean_text(char ret[160], const char *text)
{
	size_t n = strnlen(text, 159);

	for (size_t i = 0; i < n; i++)
		ret[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	ret[n] = 0;
}

/* Opens the answer: the caller owns *ret. */
static int open_reply(struct qmp *q, const char *command, json_t **ret,
		      struct err *e)
{
	SCOPED_JSON json_t *o = STEAL(q->reply);
	json_t *error = json_object_get(o, "error");
	const char *desc = json_string_value(json_object_get(error, "desc"));
	char text[160];

	if (!error) {
		if (ret)
			*ret = json_incref(json_object_get(o, "return"));
		return 0;
	}
	clean_text(text, desc ? desc : "no reason given");
	return err_set(e, -EREMOTEIO, ERR_INTERNAL, "QEMU refused %s: %s",
		       command, text);
}

/* A call with an absolute end. */
static int call(struct qmp *q, const char *command, json_t *args, int fd,
		int64_t end, json_t **ret, struct err *e)
{
	int r = send_command(q, command, args, fd, end, e);

	if (r == 0)
		r = wait_until(q, has_reply, end, command, e);
	return r < 0 ? r : open_reply(q, command, ret, e);
}

int qmp_call(struct qmp *q, const char *command, json_t *args, int fd,
	     int timeout_ms, json_t **ret, struct err *e)
{
	return call(q, command, args, fd, deadline(timeout_ms), ret, e);
}

static bool has_event(const struct qmp *q)
{
	return q->event != NULL;
}

int qmp_wait_event(struct qmp *q, const char *name, int timeout_ms,
		   json_t **ret_data, struct err *e)
{
	int r = check_alive(q, e);

	if (r < 0)
		return r;
	q->want = name;
	r = wait_until(q, has_event, deadline(timeout_ms), name, e);
	q->want = NULL;
	if (r == 0 && ret_data)
		*ret_data = STEAL(q->event);
	json_decref(q->event);
	q->event = NULL;
	return r;
}

/* --- the handshake -------------------------------------------------------- */

static bool is_greeted(const struct qmp *q)
{
	return q->greeted;
}

int qmp_handshake(struct qmp *q, int timeout_ms, struct err *e)
{
	int64_t end = deadline(timeout_ms);
	int r = wait_until(q, is_greeted, end, "greeting", e);

	if (r == 0)
		r = call(q, "qmp_capabilities", NULL, -1, end, NULL, e);
	if (r == 0)
		r = call(q, "migrate-set-capabilities",
			 json_pack("{s:[{s:s,s:b}]}", "capabilities",
				   "capability", "events", "state", 1),
			 -1, end, NULL, e);
	return r;
}

int qmp_set_state_file(struct qmp *q, int wr, int rd, int timeout_ms,
		       struct err *e)
{
	PRE(q->state_wr < 0 && wr >= 0 && rd >= 0);
	q->state_wr = wr;
	q->state_rd = rd;
	return qmp_call(q, "add-fd", json_pack("{s:i}", "fdset-id", FDSET), wr,
			timeout_ms, NULL, e);
}

/* --- what a sandbox needs ------------------------------------------------- */

int qmp_vm_stop(struct qmp *q, int timeout_ms, struct err *e)
{
	return qmp_call(q, "stop", NULL, -1, timeout_ms, NULL, e);
}

int qmp_vm_cont(struct qmp *q, int timeout_ms, struct err *e)
{
	int64_t end = deadline(timeout_ms);

	for (;;) {
		int r = call(q, "cont", NULL, -1, end, NULL, e);

		if (r != -EREMOTEIO || !strstr(e->msg, "not finalized") ||
		    left_ms(end) <= CONT_RETRY_MS)
			return r;
		poll(NULL, 0, CONT_RETRY_MS);
	}
}

int qmp_vm_status(struct qmp *q, char *ret, size_t len, int timeout_ms,
		  struct err *e)
{
	SCOPED_JSON json_t *o = NULL;
	const char *s = NULL;
	int r = qmp_call(q, "query-status", NULL, -1, timeout_ms, &o, e);

	if (r < 0)
		return r;
	if (json_get_str(o, "status", &s, e) < 0 || strlen(s) >= 32)
		return broken(q, e, "query-status without a status");
	base_strcpy(ret, len, s);
	return 0;
}

/* What QEMU wrote, bounded, as a copy. */
static int read_state(struct qmp *q, struct buf *ret, struct err *e)
{
	off_t len = lseek(q->state_rd, 0, SEEK_END);
	int r;

	if (len <= 0 || len > QMP_STATE_MAX)
		return broken(q, e, "a save without, or without end of, state");
	r = base_pread_all(q->state_rd, buf_reserve(ret, (size_t)len),
			   (size_t)len, 0);
	if (r < 0)
		return err_sys(e, -r, "read of device state");
	ret->len += (size_t)len;
	return 0;
}

int qmp_vm_save_devices(struct qmp *q, struct buf *ret, int timeout_ms,
			struct err *e)
{
	int r;

	PRE(q->state_wr >= 0);
	if (ftruncate(q->state_rd, 0) < 0 || lseek(q->state_wr, 0, SEEK_SET))
		return err_sys(e, errno, "emptying the device state's memfd");
	r = qmp_call(q, "xen-save-devices-state",
		     json_pack("{s:s,s:b}", "filename", FDSET_PATH, "live", 0),
		     -1, timeout_ms, NULL, e);
	return r < 0 ? r : read_state(q, ret, e);
}

static bool is_migrated(const struct qmp *q)
{
	return !strcmp(q->migration, "completed") ||
	       !strcmp(q->migration, "failed");
}

/* A memfd with the bytes, at its start. */
static int state_file(const void *state, size_t len, int *ret, struct err *e)
{
	int fd = memfd_create("device-state", MFD_CLOEXEC), r;

	if (fd < 0)
		return err_sys(e, errno, "memfd for device state");
	r = base_pwrite_all(fd, state, len, 0);
	if (r < 0) {
		close(fd);
		return err_sys(e, -r, "write of device state to a memfd");
	}
	*ret = fd;
	return 0;
}

int qmp_vm_load_devices(struct qmp *q, const void *state, size_t len,
			int timeout_ms, struct err *e)
{
	int64_t end = deadline(timeout_ms);
	SCOPED_FD int fd = -1;
	int r = state_file(state, len, &fd, e);

	q->migration[0] = 0;
	if (r == 0)
		r = call(q, "getfd", json_pack("{s:s}", "fdname", "state"), fd,
			 end, NULL, e);
	if (r == 0)
		r = call(q, "migrate-incoming",
			 json_pack("{s:s}", "uri", "fd:state"), -1, end, NULL, e);
	if (r == 0)
		r = wait_until(q, is_migrated, end, "migrate-incoming", e);
	if (r == 0 && strcmp(q->migration, "completed") != 0)
		r = err_set(e, -EBADMSG, ERR_MISMATCH,
			    "QEMU could not load this device state: it is of "
			    "another VMM build or machine");
	return r < 0 ? err_wrap(e, r, "load of device state") : 0;
}

int qmp_vm_quit(struct qmp *q, int timeout_ms, struct err *e)
{
	int r = qmp_call(q, "quit", NULL, -1, timeout_ms, NULL, e);

	return r == -EPIPE ? 0 : r;
}
