/*
 * The execs of a sandbox between a daemon and an agent, both played by this
 * test: output that is stored before it is acknowledged, exits that wait for
 * their output and for the log, and what becomes of them when the daemon, the
 * disk, or the agent's memory fails. Also tools/vm/agent.c, which hangs them
 * into the loop.
 */
#include "tools/vm/execs.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "store/transcript.h"
#include "tools/vm/agent.h"

#include "tests/fds.h"
#include "tests/unit/store_help.h"

#define X1 "x0000000000000000001"
#define X2 "x0000000000000000002"

static const uint8_t key[32] = { 7 };

static struct loop *loop;
static pthread_t loop_thread;
static struct link *link_of_vm;
static struct execs *execs;
static struct agent *agent;

static int d; /* the daemon's end */
static int a; /* the agent's end */
static struct agent_dec dec;
static uint64_t next_call;

/* --- the sandbox: what main.c does with requests ------------------------- */

static void on_request(void *ctx, struct wire_msg *m)
{
	struct wire_exec_state states[8];
	struct wire_status s = { .phase = WIRE_PHASE_RUNNING };

	(void)ctx;
	switch ((int)m->type) {
	case WIRE_HELLO:
		s.nr_execs = execs_states(execs, states, 8);
		link_greet(link_of_vm, link_from(link_of_vm, m), &s, sizeof(s),
			   states, s.nr_execs * sizeof(states[0]));
		return;
	case WIRE_EXEC:
		execs_start(execs, m);
		break;
	case WIRE_ATTACH:
		execs_attach(execs, m);
		break;
	case WIRE_SIGNAL:
		execs_signal(execs, m);
		break;
	case WIRE_STDIN:
		execs_stdin(execs, m);
		break;
	default:
		bail("unexpected request");
	}
	agent_poke(agent);
}

static void on_up(void *ctx)
{
	(void)ctx;
	execs_report(execs);
	agent_poke(agent);
}

static void on_down(void *ctx)
{
	(void)ctx;
}

static const struct link_ops ops = { .request = on_request,
				     .up = on_up,
				     .down = on_down };

static void *loop_main(void *ctx)
{
	loop_run(ctx);
	return NULL;
}

static void make_link(void *ctx)
{
	struct err e;

	if (link_new(&link_of_vm, loop, *(int *)ctx, getuid(), &ops, NULL, &e) < 0)
		bail("%s", e.msg);
	execs = execs_new(loop, link_of_vm, 3);
}

/* --- the agent ----------------------------------------------------------- */

/* The next thing that the host says; NULL if there is none in that time. */
static const struct agent_msg *a_next(int timeout_ms)
{
	static struct agent_msg m;

	for (;;) {
		struct pollfd p = { .fd = a, .events = POLLIN };
		int r = agent_dec_next(&dec, &m);
		size_t room;
		void *at;
		ssize_t n;

		if (r > 0)
			return &m;
		if (r < 0)
			continue; /* out of step: until the next RESET */
		if (poll(&p, 1, timeout_ms) <= 0)
			return NULL;
		at = agent_dec_room(&dec, &room);
		n = read(a, at, room);
		if (n <= 0)
			bail("the host hung up");
		agent_dec_fed(&dec, (size_t)n);
	}
}

static const struct agent_msg *a_take(enum agent_type t)
{
	const struct agent_msg *m = a_next(60000);

	if (!m || m->type != t)
		bail("the agent got %s instead of %s",
		     m ? agent_type_name(m->type) : "nothing",
		     agent_type_name(t));
	return m;
}

static void a_say(const struct agent_msg *m)
{
	SCOPED(buf_done) struct buf b = { 0 };

	if (agent_msg_encode(&b, m) < 0 || base_write_all(a, b.p, b.len) < 0)
		bail("the agent can't say %s", agent_type_name(m->type));
}

static void a_out(const char *tag, enum agent_stream s, uint64_t at,
		  const char *text)
{
	a_say(&(struct agent_msg){ .type = AGENT_OUT,
				   .out = { .tag = tag,
					    .stream = (uint8_t)s,
					    .offset = at,
					    .data = { (const uint8_t *)text,
						      (uint32_t)strlen(text) } } });
}

static void a_exited(const char *tag, uint32_t code, uint64_t out)
{
	a_say(&(struct agent_msg){
		.type = AGENT_EXITED,
		.exited = { .tag = tag, .code = code, .out_total = out } });
}

/* The HELLO that answers a RESET, with these execs. */
static void a_hello(const struct agent_msg *reset,
		    const struct agent_exec_state *x, uint32_t nr)
{
	SCOPED(buf_done) struct buf list = { 0 };
	static const uint8_t boot_id[16] = { 1 };

	for (uint32_t i = 0; i < nr; i++)
		agent_exec_add(&list, &x[i]);
	a_say(&(struct agent_msg){
		.type = AGENT_HELLO,
		.id = reset->id,
		.hello = { .version = 1,
			   .boot_id = { boot_id, sizeof(boot_id) },
			   .nr_cpus = 1,
			   .agent = "test",
			   .nr_execs = nr,
			   .execs = { list.p, (uint32_t)list.len } } });
}

static void a_started(uint64_t start)
{
	a_say(&(struct agent_msg){ .type = AGENT_EXEC_STARTED,
				   .id = start,
				   .exec_started = { .pid = 9 } });
}

static void a_failed(uint64_t request, uint32_t error)
{
	a_say(&(struct agent_msg){
		.type = AGENT_FAILED,
		.id = request,
		.failed = { .error = error, .what = "no such program" } });
}

/* --- the daemon ---------------------------------------------------------- */

static bool d_next(struct wire_msg *m, int timeout_ms)
{
	static struct wire_buf room;
	struct pollfd p = { .fd = d, .events = POLLIN };
	struct err e;

	return poll(&p, 1, timeout_ms) > 0 &&
	       wire_recv(d, false, &room, m, &e) == 0;
}

/* The next message but notes, which must be of this type. */
static struct wire_msg d_take(enum wire_type t)
{
	struct wire_msg m;

	do {
		if (!d_next(&m, 60000))
			bail("the daemon got nothing instead of %s",
			     wire_type_name(t));
	} while (m.type == WIRE_OUTPUT && t != WIRE_OUTPUT);
	if (m.type != t)
		bail("the daemon got %s instead of %s", wire_type_name(m.type),
		     wire_type_name(t));
	return m;
}

static struct wire_exited d_exited(struct wire_msg *m)
{
	struct wire_exited x;

	*m = d_take(WIRE_EXITED);
	wire_body(m, &x, sizeof(x));
	return x;
}

static void d_answer(const struct wire_msg *m, int status)
{
	wire_send(d, m->type, m->call, true, status, NULL, 0, NULL, 0, NULL, 0);
}

static uint64_t d_ask(enum wire_type t, const void *p, size_t len,
		      const void *tail, size_t tail_len, int fd)
{
	if (wire_send(d, t, ++next_call, false, 0, p, len, tail, tail_len, &fd,
		      fd >= 0) < 0)
		bail("the daemon can't ask");
	return next_call;
}

static int file(void)
{
	int fd = fds_memfd(0, 0);

	fcntl(fd, F_SETFL, O_APPEND);
	return fd;
}

/* Asks for an exec of `/bin/echo hi` with K=V; its transcript is `fd`. */
static void d_exec(const char *tag, int fd)
{
	static const char strings[] = "/bin/echo\0hi\0K=V";
	struct wire_exec q = { .nr_argv = 2, .nr_env = 1 };

	base_strcpy(q.tag, sizeof(q.tag), tag);
	base_strcpy(q.user, sizeof(q.user), "user");
	base_strcpy(q.cwd, sizeof(q.cwd), "/tmp");
	memcpy(q.key, key, sizeof(key));
	d_ask(WIRE_EXEC, &q, sizeof(q), strings, sizeof(strings), fd);
}

static int d_status(enum wire_type t)
{
	struct wire_msg m = d_take(t);

	if (!m.reply || m.call != next_call)
		bail("not the answer to that");
	return m.status;
}

/* Goes, comes back; what HELLO says of the execs. */
static uint32_t d_again(struct wire_exec_state ret[8])
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct wire_hello h = { 0 };
	struct wire_status s;
	struct wire_msg m;

	if (d >= 0)
		close(d);
	base_strcpy(addr.sun_path, sizeof(addr.sun_path), help_path("vm.sock"));
	d = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(d, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		bail("connect");
	d_ask(WIRE_HELLO, &h, sizeof(h), NULL, 0, -1);
	m = d_take(WIRE_HELLO);
	wire_body(&m, &s, sizeof(s));
	memcpy(ret, m.body + sizeof(s), m.len - sizeof(s));
	return s.nr_execs;
}

/* --- the world ----------------------------------------------------------- */

static void begin(const struct agent_exec_state *x, uint32_t nr)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct wire_start boot = { .flags = WIRE_START_BOOT };
	struct wire_exec_state states[8];
	struct wire_started started;
	int p[2], l = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct err e;

	base_strcpy(addr.sun_path, sizeof(addr.sun_path), help_path("vm.sock"));
	unlink(addr.sun_path);
	if (bind(l, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(l, 4) < 0 || loop_new(&loop, &e) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0 ||
	    pthread_create(&loop_thread, NULL, loop_main, loop))
		bail("no world");
	fcntl(l, F_SETFL, O_NONBLOCK);
	loop_call(loop, make_link, &l);
	a = p[1];
	agent_dec_init(&dec, AGENT_GUEST);
	agent = agent_new(loop, p[0], execs);
	if (agent_prepare(agent, &boot, "s0000000000000000001", true, &e) < 0)
		bail("%s", e.msg);
	a_hello(a_take(AGENT_RESET), x, nr);
	if (agent_wait_up(agent, 30000, &started, &e) < 0)
		bail("%s", e.msg);
	d = -1;
	d_again(states);
}

/* What has no end of its own: within reach, for LeakSanitizer. */
static struct kept {
	struct kept *next;
	void *p[3];
} * kept;

/* cryo-vm ends as a process; here its threads do, and its memory stays. */
static void end(void)
{
	struct kept *k = base_alloc(sizeof(*k));

	*k = (struct kept){ kept, { link_of_vm, execs, agent } };
	kept = k;
	loop_stop(loop);
	pthread_join(loop_thread, NULL);
	loop_free(loop);
	agent_dec_done(&dec);
	close(a);
	close(d);
}

/* What the transcript holds of standard output. */
static const char *stored(int fd, uint64_t *ret_from)
{
	static char all[4096];
	struct transcript_reader *r;
	struct transcript_piece p;
	size_t len = 0;
	struct err e;

	if (transcript_reader_open(&r, dup(fd), key, &e) < 0)
		return "not to be opened";
	if (ret_from)
		*ret_from = transcript_reader_info(r)->out_from;
	while (transcript_reader_next(r, &p, &e) == 0) {
		if (p.stream != TRANSCRIPT_OUT)
			continue;
		memcpy(all + len, p.p, p.len);
		len += p.len;
	}
	transcript_reader_free(r);
	all[len] = 0;
	return all;
}

/* An exec that runs, with the transcript *ret_fd. */
static void run(const char *tag, int *ret_fd)
{
	*ret_fd = file();
	d_exec(tag, *ret_fd);
	a_started(a_take(AGENT_EXEC_START)->id);
	if (d_status(WIRE_EXEC) != 0)
		bail("exec not started");
}

static void acked(const char *tag, uint64_t offset, const char *what)
{
	const struct agent_msg *m = a_take(AGENT_OUT_ACK);

	ok(!strcmp(m->out_ack.tag, tag) && m->out_ack.offset == offset, "%s",
	   what);
}

/* --- one exec from start to end
 * ---------------------------------------------------------------- */

static void test_life(void)
{
	const struct agent_msg *s;
	struct wire_output note;
	struct wire_exited x;
	const char *strs[4];
	struct wire_msg m;
	uint64_t id;
	int fd = file();

	begin(NULL, 0);
	d_exec(X1, fd);
	s = a_take(AGENT_EXEC_START);
	ok(!strcmp(s->exec_start.tag, X1) && !strcmp(s->exec_start.user, "user") &&
		   !strcmp(s->exec_start.cwd, "/tmp") && !s->exec_start.flags,
	   "the agent is asked to start it");
	ok(agent_strs_get(&s->exec_start.argv, strs, 4) == 2 &&
		   !strcmp(strs[1], "hi") &&
		   agent_strs_get(&s->exec_start.env, strs, 4) == 1 &&
		   !strcmp(strs[0], "K=V"),
	   "with arguments and environment");
	id = s->id;
	/* it is quicker than the answer */
	a_say(&(struct agent_msg){ .type = AGENT_PONG, .id = 12345 });
	a_out(X1, AGENT_STDOUT, 0, "hi");
	acked(X1, 2, "output is acknowledged");
	is_str(stored(fd, NULL), "hi", "once it is stored");
	a_exited(X1, 0, 3);
	a_started(id);
	is_int(d_status(WIRE_EXEC), 0, "the daemon hears that it was started");
	m = d_take(WIRE_OUTPUT);
	wire_body(&m, &note, sizeof(note));
	ok(!strcmp(note.tag, X1) && note.out_end == 2 && !note.full,
	   "and how far its output is");
	while (d_next(&m, 30))
		is_int(m.type, WIRE_OUTPUT, "(a note)");
	a_out(X1, AGENT_STDOUT, 2, "\n");
	x = d_exited(&m);
	ok(!strcmp(x.tag, X1) && x.code == 0 && x.out_total == 3 && !x.lost,
	   "of its exit it hears when all output is there");
	is_str(stored(fd, NULL), "hi\n", "which it then is");
	acked(X1, 3, "(acknowledged)");
	d_answer(&m, 0);
	ok(!strcmp(a_take(AGENT_EXIT_ACK)->exit_ack.tag, X1),
	   "the agent may forget it when the event is in the log");
	close(fd);
	end();
}

static void test_exit_before_start(void)
{
	struct wire_msg m;
	int fd = file();
	uint64_t id;

	begin(NULL, 0);
	d_exec(X1, fd);
	id = a_take(AGENT_EXEC_START)->id;
	a_exited(X1, 5, 0);
	ok(!d_next(&m, 50), "an exit before its start is held back");
	a_started(id);
	is_int(d_status(WIRE_EXEC), 0, "first the start");
	is_int(d_exited(&m).code, 5, "then the exit");
	close(fd);
	end();
}

static void test_refused(void)
{
	struct wire_exec_state states[8];
	struct wire_exited x;
	struct wire_msg m;
	int fd = file(), fd2 = file();
	uint64_t id;

	begin(NULL, 0);
	d_exec(X1, fd);
	a_failed(a_take(AGENT_EXEC_START)->id, ENOENT);
	is_int(d_status(WIRE_EXEC), -ENOENT, "a refusal is answered");
	is_int((int)d_again(states), 0, "and forgotten");
	d_exec(X2, fd2);
	id = a_take(AGENT_EXEC_START)->id;
	ok(d_again(states) == 1 && !strcmp(states[0].tag, X2) &&
		   states[0].attached,
	   "a new daemon finds one that is being started");
	a_failed(id, ENOENT);
	x = d_exited(&m);
	ok(!strcmp(x.tag, X2) && x.refused && x.code == 127,
	   "a refusal that nobody waits for any more is its exit");
	d_answer(&m, 0);
	a_take(AGENT_EXIT_ACK);
	is_int((int)d_again(states), 0, "which ends it");
	close(fd);
	close(fd2);
	end();
}

static void test_asked_again(void)
{
	struct wire_msg m;
	int fd;

	begin(NULL, 0);
	run(X1, &fd);
	d_exec(X1, fd);
	is_int(d_status(WIRE_EXEC), 0, "who is asked again says that it runs");
	ok(!a_next(30), "and does not ask the agent");
	a_exited(X1, 1, 0);
	d_exited(&m);
	d_exec(X1, fd);
	is_int(d_status(WIRE_EXEC), 0, "also when it has ended");
	close(fd);
	end();
}

static void test_malformed(void)
{
	static const char strings[] = "a\0b";
	struct wire_exec q = { .tag = X1, .nr_argv = 1 };
	int fd = file();

	begin(NULL, 0);
	d_ask(WIRE_EXEC, &q, sizeof(q), strings, 1, fd);
	is_int(d_status(WIRE_EXEC), -EINVAL,
	       "a string without an end is refused");
	q.nr_argv = 3;
	d_ask(WIRE_EXEC, &q, sizeof(q), strings, sizeof(strings), fd);
	is_int(d_status(WIRE_EXEC), -EINVAL, "or fewer than were announced");
	q.nr_argv = 0;
	q.nr_env = 2;
	d_ask(WIRE_EXEC, &q, sizeof(q), strings, sizeof(strings), fd);
	is_int(d_status(WIRE_EXEC), -EINVAL, "or no program");
	q.nr_argv = UINT32_MAX;
	d_ask(WIRE_EXEC, &q, sizeof(q), strings, sizeof(strings), fd);
	is_int(d_status(WIRE_EXEC), -EINVAL, "or absurd numbers");
	q.nr_argv = 1;
	q.tag[0] = '/';
	d_ask(WIRE_EXEC, &q, sizeof(q), strings, sizeof(strings), fd);
	is_int(d_status(WIRE_EXEC), -EINVAL, "or a tag that is none");
	memset(q.tag, 'a', sizeof(q.tag));
	d_ask(WIRE_EXEC, &q, sizeof(q), strings, sizeof(strings), fd);
	is_int(d_status(WIRE_EXEC), -EINVAL, "or one without an end");
	ok(!a_next(30), "the agent hears of none");
	close(fd);
	end();
}

/* --- the daemon is away -------------------------------------------------- */

static void test_exit_while_away(void)
{
	struct wire_exec_state states[8];
	struct wire_msg m;
	int64_t since;
	int fd;

	begin(NULL, 0);
	run(X1, &fd);
	close(d);
	d = -1;
	a_out(X1, AGENT_STDOUT, 0, "bye");
	acked(X1, 3, "output is stored while the daemon is away");
	a_exited(X1, 4, 3);
	ok(d_again(states) == 1 && states[0].out_end == 3, "it comes back");
	is_int(d_exited(&m).code, 4, "and hears of the exit");
	is_int((int)d_again(states), 1, "it goes before that is in the log");
	is_int(states[0].phase, WIRE_EXEC_EXITED, "so it is still there");
	d_exited(&m);
	since = fds_now_ns();
	d_answer(&m, -EBUSY);
	is_int(d_exited(&m).code, 4, "who could not log it is told again");
	ok(fds_now_ns() - since > 500 * 1000000ll, "after a while");
	d_answer(&m, 0);
	a_take(AGENT_EXIT_ACK);
	is_int((int)d_again(states), 0, "until it is");
	close(fd);
	end();
}

/* --- execs that a restore brought back
 * --------------------------------------------------------------- */

static void test_attach(void)
{
	const struct agent_exec_state had[] = {
		{ .tag = X1,
		  .phase = AGENT_EXEC_RUNNING,
		  .out_acked = 5,
		  .out_end = 8 },
		{ .tag = X2, .phase = AGENT_EXEC_EXITED },
	};
	struct wire_attach q = { .tag = X1 };
	struct wire_exec_state states[8];
	const struct agent_msg *r;
	uint64_t from;
	int fd = file(), fd2 = file();
	struct wire_msg m;

	begin(had, 2);
	ok(d_again(states) == 2 && !states[0].attached && !states[1].attached,
	   "execs that came with a restore have no transcript yet");
	a_out(X1, AGENT_STDOUT, 5, "678");
	a_exited(X2, 1, 0);
	ok(!a_next(50), "their output is not acknowledged");
	ok(!d_next(&m, 30), "nor are their exits told");
	memcpy(q.key, key, sizeof(key));
	d_ask(WIRE_ATTACH, &q, sizeof(q), NULL, 0, fd);
	is_int(d_status(WIRE_ATTACH), 0, "then one gets its transcript");
	r = a_take(AGENT_RESET);
	a_hello(r, had, 2);
	a_out(X1, AGENT_STDOUT, 5, "678");
	acked(X1, 8, "and the agent is asked to say it again");
	is_str(stored(fd, &from), "678", "the transcript has it");
	is_int((long long)from, 5, "from where this epoch began");
	base_strcpy(q.tag, sizeof(q.tag), X2);
	d_ask(WIRE_ATTACH, &q, sizeof(q), NULL, 0, fd2);
	is_int(d_status(WIRE_ATTACH), 0, "the other gets its own");
	is_int(d_exited(&m).code, 1, "and its exit is told");
	ok(d_again(states) == 2 && states[0].attached && states[1].attached,
	   "a new daemon sees who has one");
	d_exited(&m);
	base_strcpy(q.tag, sizeof(q.tag), "y0000000000000000001");
	d_ask(WIRE_ATTACH, &q, sizeof(q), NULL, 0, fd2);
	is_int(d_status(WIRE_ATTACH), -ENOENT, "an exec that is none gets none");
	close(fd);
	close(fd2);
	end();
}

/* After a reset the agent no longer knows an exec that it had started. */
static void test_lost(void)
{
	const struct agent_exec_state had[] = { { .tag = X2,
						  .phase = AGENT_EXEC_RUNNING } };
	struct wire_attach q = { .tag = X2 };
	struct wire_exited x;
	struct wire_msg m;
	int fd, fd2 = file();

	begin(had, 1);
	run(X1, &fd);
	a_out(X1, AGENT_STDOUT, 0, "abc");
	acked(X1, 3, "an exec runs");
	a_out(X2, AGENT_STDOUT, 0, "x"); /* so that ATTACH resets */
	a_say(&(struct agent_msg){ .type = AGENT_PONG, .id = 1 });
	ok(!a_next(50), "another waits for its transcript");
	memcpy(q.key, key, sizeof(key));
	d_ask(WIRE_ATTACH, &q, sizeof(q), NULL, 0, fd2);
	is_int(d_status(WIRE_ATTACH), 0, "which it gets");
	a_hello(a_take(AGENT_RESET), had, 1);
	x = d_exited(&m);
	ok(!strcmp(x.tag, X1) && x.lost && x.out_total == 3,
	   "one that the agent has forgotten has ended, with what it had said");
	close(fd);
	close(fd2);
	end();
}

/* --- the disk is full
 * -------------------------------------------------------------------------------------- */

static void test_no_space(void)
{
	const struct agent_exec_state now[] = {
		{ .tag = X1, .phase = AGENT_EXEC_RUNNING, .out_end = 3 }
	};
	struct rlimit old, tight;
	int64_t since = fds_now_ns();
	int fd, resets = 0;

	begin(NULL, 0);
	run(X1, &fd);
	getrlimit(RLIMIT_FSIZE, &old);
	tight = old;
	tight.rlim_cur = TRANSCRIPT_HEADER_LEN + 10;
	setrlimit(RLIMIT_FSIZE, &tight);
	for (; resets < 2; resets++) {
		a_out(X1, AGENT_STDOUT, 0, "abc");
		a_hello(a_take(AGENT_RESET), now, 1);
	}
	setrlimit(RLIMIT_FSIZE, &old);
	ok(fds_now_ns() - since > 1500 * 1000000ll,
	   "output that can't be stored is asked for again each second");
	a_out(X1, AGENT_STDOUT, 0, "abc");
	acked(X1, 3, "and acknowledged once it can");
	is_str(stored(fd, NULL), "abc", "stored once");
	close(fd);
	end();
}

static void test_no_transcript(void)
{
	struct wire_exec_state states[8];

	begin(NULL, 0);
	d_exec(X1, open("/dev/full", O_WRONLY | O_CLOEXEC));
	is_int(d_status(WIRE_EXEC), -ENOSPC, "no room for a transcript: no exec");
	ok(!a_next(30) && d_again(states) == 0, "and nobody hears of it");
	end();
}

/* --- standard input, signals
 * ------------------------------------------------------------------------------------ */

static uint64_t d_stdin(const char *tag, uint64_t at, const char *text, bool eof)
{
	struct wire_stdin q = { .offset = at, .eof = eof };

	base_strcpy(q.tag, sizeof(q.tag), tag);
	return d_ask(WIRE_STDIN, &q, sizeof(q), text, strlen(text), -1);
}

static void a_stdin_ack(uint64_t offset, bool closed)
{
	a_say(&(struct agent_msg){
		.type = AGENT_STDIN_ACK,
		.stdin_ack = { .tag = X1, .offset = offset, .closed = closed } });
}

static struct wire_stdin_ack d_stdin_ack(void)
{
	struct wire_msg m = d_take(WIRE_STDIN);
	struct wire_stdin_ack r = { 0 };

	if (m.status || wire_body(&m, &r, sizeof(r)) < 0)
		bail("no acknowledgement");
	return r;
}

static void test_stdin(void)
{
	struct wire_stdin_ack r;
	const struct agent_msg *m;
	struct wire_msg x;
	int fd;

	begin(NULL, 0);
	run(X1, &fd);
	d_stdin(X1, 0, "hello", false);
	m = a_take(AGENT_STDIN);
	ok(m->stdin_data.offset == 0 && m->stdin_data.data.len == 5 &&
		   !m->stdin_data.eof &&
		   !memcmp(m->stdin_data.data.p, "hello", 5),
	   "standard input goes to the agent");
	a_stdin_ack(5, false);
	r = d_stdin_ack();
	ok(r.offset == 5 && r.end == 5, "and is answered when it is taken");
	d_stdin(X1, UINT64_MAX, "!", false);
	is_int((long long)a_take(AGENT_STDIN)->stdin_data.offset, 5,
	       "more goes to its end");
	r = d_stdin_ack(); /* nobody reads: after a second */
	ok(r.offset == 5 && r.end == 6, "what is not taken is said to be so");
	d_stdin(X1, 9, "hole", false);
	is_int(d_status(WIRE_STDIN), -EINVAL, "a hole is refused");
	a_stdin_ack(99, false); /* a lie */
	d_stdin(X1, 6, "", true);
	ok(a_take(AGENT_STDIN)->stdin_data.eof, "its end is told");
	a_stdin_ack(6, true);
	is_int(d_status(WIRE_STDIN), -EPIPE, "one that is closed says so");
	d_stdin(X1, 6, "x", false);
	is_int(d_status(WIRE_STDIN), -EPIPE, "from then on");
	d_stdin(X2, 0, "x", false);
	ok(d_status(WIRE_STDIN) < 0, "no exec has no standard input");
	close(fd);

	/* it ends while somebody waits */
	run(X2, &fd);
	d_stdin(X2, 0, "never read", false);
	a_take(AGENT_STDIN);
	a_exited(X2, 0, 0);
	d_exited(&x);
	d_answer(&x, 0);
	is_int(d_status(WIRE_STDIN), -EPIPE,
	       "who waits for an exec that ends is told");
	close(fd);
	end();
}

static void test_signal(void)
{
	struct wire_signal q = { .tag = X1, .signal = 15 };
	const struct agent_msg *m;
	int fd;

	begin(NULL, 0);
	run(X1, &fd);
	d_ask(WIRE_SIGNAL, &q, sizeof(q), NULL, 0, -1);
	m = a_take(AGENT_SIGNAL);
	ok(!strcmp(m->signal.tag, X1) && m->signal.signal == 15,
	   "a signal goes to the agent");
	a_say(&(struct agent_msg){ .type = AGENT_SIGNAL_DONE, .id = m->id });
	is_int(d_status(WIRE_SIGNAL), 0, "and is answered");
	d_ask(WIRE_SIGNAL, &q, sizeof(q), NULL, 0, -1);
	a_failed(a_take(AGENT_SIGNAL)->id, ESRCH);
	is_int(d_status(WIRE_SIGNAL), -ESRCH, "as the agent says");
	close(fd);
	end();
}

int main(void)
{
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	help_tmp();
	test_life();
	test_exit_before_start();
	test_refused();
	test_asked_again();
	test_malformed();
	test_exit_while_away();
	test_attach();
	test_lost();
	test_no_space();
	test_no_transcript();
	test_stdin();
	test_signal();
	return tap_done();
}
