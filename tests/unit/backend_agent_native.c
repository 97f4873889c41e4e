/*
 * The real agent, run on this machine over a socketpair: execs, streams,
 * files, resets. What only a virtual machine may do is refused here and
 * tested in one (tests/e2e/05-guest-boot.sh).
 */
#include "tests/unit/agent_host.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static pid_t agent;
static char dir[] = "/tmp/cryo-agent-test-XXXXXX";

static int start_agent(void)
{
	char self[PATH_MAX], path[PATH_MAX + 32], num[16];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int s[2];

	if (n < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		bail("socketpair");
	self[n] = '\0';
	for (int i = 0; i < 3; i++)
		*strrchr(self, '/') = '\0';
	snprintf(path, sizeof(path), "%s/cryo-agent", self);
	fcntl(s[0], F_SETFD, FD_CLOEXEC);
	agent = fork();
	if (!agent) {
		snprintf(num, sizeof(num), "%d", s[1]);
		execl(path, path, "--fd", num, (char *)NULL);
		_exit(127);
	}
	close(s[1]);
	return s[0];
}

static void test_hello(struct host *h)
{
	struct agent_msg m = { .type = AGENT_PING };
	uint64_t now = (uint64_t)time(NULL);

	is_int(host_reset(h, true), 0, "RESET is answered");
	ok(agent_link_up(h->l), "then the link is up");
	is_int(h->reply.hello.version, 1, "version 1");
	is_int(h->reply.hello.nr_execs, 0, "no exec yet");
	is_int(h->reply.hello.nr_cpus, sysconf(_SC_NPROCESSORS_ONLN),
	       "CPUs counted");
	is_int(host_call(h, &m), 0, "PING");
	ok(h->reply.pong.wall_ns / 1000000000 - now <= 5, "and its clock");
}

static void test_exec(struct host *h)
{
	struct host_exec *x = host_run(
		h, "", "echo \"$GREETING $HOME $0\"; echo oops >&2; pwd; exit 7");
	struct host_exec *y;

	ok(x, "a shell ran to its end");
	is_str(host_out(x, AGENT_STDOUT), "hello there /root sh\n/\n",
	       "its standard output, with env and home");
	is_str(host_out(x, AGENT_STDERR), "oops\n", "its standard error");
	is_int(x->exit.code, 7, "its exit code");
	is_int(x->exit.signal, 0, "no signal");
	is_int(x->exit.out_total, 23, "total of stdout");
	is_int(x->exit.err_total, 5, "total of stderr");
	y = host_run(h, "", "kill -9 $$");
	is_int(y->exit.signal, 9, "death by signal is told");
	is_int(y->exit.code, 137, "and gives 128 + 9");
}

static void test_user(struct host *h)
{
	struct host_exec *x;

	if (geteuid()) {
		ok(true, "# SKIP other users need root");
		return;
	}
	x = host_run(h, "nobody",
		     "id -u; id -g; echo $USER; "
		     "grep -c '^CapEff:.0*$' /proc/self/status");
	is_str(host_out(x, AGENT_STDOUT), "65534\n65534\nnobody\n1\n",
	       "runs as nobody, without capabilities");
	x = host_run(h, "12345:23456", "id -u; id -g; id -G");
	is_str(host_out(x, AGENT_STDOUT), "12345\n23456\n23456\n",
	       "as a bare uid:gid");
	ok(!host_sh(h, "no-such-user", 0, "true"), "unknown user refused");
	is_int(h->ret, -ENOENT, "with ENOENT");
	ok(strstr(h->err.msg, "no user \"no-such-user\""), "named: %s",
	   h->err.msg);
}

static void test_exec_refused(struct host *h)
{
	const char *bad[] = { "/no/such/program", NULL };
	const char *good[] = { "true", NULL };
	struct host_exec *x = host_exec_new(h);

	h->answered = false;
	agent_link_exec(h->l, x->tag, 0, "", "/", bad, NULL, HOST_WAIT_MS,
			host_on_reply, h, &h->err);
	host_wait(h, &h->answered);
	is_int(h->ret, -ENOENT, "a program that isn't there: ENOENT");
	ok(strstr(h->err.msg, "can't run the program"), "says so: %s",
	   h->err.msg);
	h->answered = false;
	agent_link_exec(h->l, x->tag, 0, "", "/no/such/dir", good, NULL,
			HOST_WAIT_MS, host_on_reply, h, &h->err);
	host_wait(h, &h->answered);
	is_int(h->ret, -ENOENT, "a folder that isn't there: ENOENT");
	ok(strstr(h->err.msg, "working directory"), "says so: %s", h->err.msg);
}

/* The same EXEC_START twice starts one process; over is over. */
static void test_exec_once(struct host *h)
{
	const char *argv[] = { "sh", "-c", "echo once; sleep 0.2", NULL };
	struct host_exec *x = host_exec_new(h);
	uint32_t pid = 0;
	struct err e;

	for (int i = 0; i < 2; i++) {
		h->answered = false;
		agent_link_exec(h->l, x->tag, 0, "", "/", argv, NULL,
				HOST_WAIT_MS, host_on_reply, h, &e);
		host_wait(h, &h->answered);
		is_int(h->ret, 0, "start %d answered", i + 1);
		if (!i)
			pid = h->reply.exec_started.pid;
	}
	is_int(h->reply.exec_started.pid, pid, "by the same process");
	host_wait(h, &x->exited);
	is_str(host_out(x, AGENT_STDOUT), "once\n", "which ran once");
	agent_link_exit_ack(h->l, x->tag, &e);
	h->answered = false;
	agent_link_exec(h->l, x->tag, 0, "", "/", argv, NULL, HOST_WAIT_MS,
			host_on_reply, h, &e);
	host_wait(h, &h->answered);
	is_int(h->ret, -EEXIST, "after its end it can't be started again");
}

static void test_stdin(struct host *h)
{
	struct host_exec *x = host_sh(h, "", AGENT_EXEC_STDIN, "cat; echo end");
	static uint8_t big[200000];
	size_t sent = 0;
	struct err e;

	ok(x, "cat started");
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (uint8_t)(i * 7 + i / 251);
	while (sent < sizeof(big)) {
		size_t room = x->stdin_acked + AGENT_STDIN_WINDOW - sent;
		size_t n = MIN(MIN(room, sizeof(big) - sent), 30000);

		if (n)
			agent_link_stdin(h->l, x->tag, sent, big + sent, n,
					 false, &e);
		/* again, as after a lost connection: must not come twice */
		if (n && !sent)
			agent_link_stdin(h->l, x->tag, 0, big, n, false, &e);
		sent += n;
		host_turn(h, 100);
	}
	agent_link_stdin(h->l, x->tag, sent, NULL, 0, true, &e);
	host_wait(h, &x->exited);
	is_int(x->out[0].len, sizeof(big) + 4, "all of stdin came back");
	is_mem(x->out[0].p, big, sizeof(big), "byte for byte");
	is_int(x->stdin_acked, sizeof(big), "and was acknowledged");
	ok(x->stdin_closed, "its end as well");
	agent_link_exit_ack(h->l, x->tag, &e);
}

static void test_stdin_closed(struct host *h)
{
	struct host_exec *x =
		host_sh(h, "", AGENT_EXEC_STDIN, "exec <&-; sleep 30");
	struct err e;

	agent_link_stdin(h->l, x->tag, 0, "x", 1, false, &e);
	ok(host_wait(h, &x->stdin_closed), "a closed stdin is told");
	for (int i = 0; i < 200 && !x->stdin_acked; i++)
		host_turn(h, 50); /* the end may have been told first */
	is_int(x->stdin_acked, 1, "what was sent is dropped and acknowledged");
	h->answered = false;
	agent_link_signal(h->l, x->tag, SIGTERM, HOST_WAIT_MS, host_on_reply, h,
			  &e);
	host_wait(h, &h->answered);
	is_int(h->ret, 0, "SIGTERM sent");
	ok(host_wait(h, &x->exited), "the group has ended");
	is_int(x->exit.signal, SIGTERM, "by it");
	agent_link_exit_ack(h->l, x->tag, &e);
}

/* Sum of the numbers 1..n as `seq` prints them, byte by byte. */
static bool is_sequence(const struct buf *b, unsigned n)
{
	char line[16];
	size_t at = 0;

	for (unsigned i = 1; i <= n; i++) {
		int len = snprintf(line, sizeof(line), "%u\n", i);

		if (at + (size_t)len > b->len ||
		    memcmp(b->p + at, line, (size_t)len))
			return false;
		at += (size_t)len;
	}
	return at == b->len;
}

static void test_big_output(struct host *h)
{
	struct host_exec *x = host_run(h, "", "seq 1 1000000; seq 1 200000 >&2");

	ok(is_sequence(&x->out[0], 1000000), "6.9 MB of stdout in order");
	ok(is_sequence(&x->out[1], 200000), "1.3 MB of stderr beside it");
	ok(!x->wrong, "offsets without gap or overlap");
	is_int(x->exit.out_total, 6888896, "total as sent");
}

/* Nothing acknowledged: the process is slowed, nothing lost over a reset. */
static void test_back_pressure(struct host *h)
{
	struct host_exec *x = host_exec_new(h);
	const char *argv[] = { "seq", "1", "400000", NULL };
	struct agent_exec_state st;
	struct agent_bytes rest;
	struct err e;

	x->no_ack = true;
	h->answered = false;
	agent_link_exec(h->l, x->tag, 0, "", "", argv, NULL, HOST_WAIT_MS,
			host_on_reply, h, &e);
	host_wait(h, &h->answered);
	host_wait_out(h, x, AGENT_STDOUT, AGENT_RING_LEN);
	host_for(h, 200);
	is_int(x->out[0].len, AGENT_RING_LEN, "one ring, then no more");
	ok(!x->exited, "the process waits");
	is_int(host_reset(h, false), 0, "a dirty RESET");
	is_int(h->reply.hello.nr_execs, 1, "HELLO knows the exec");
	rest = (struct agent_bytes){ h->data.p, (uint32_t)h->data.len };
	is_int(agent_exec_next(&rest, &st), 1, "its state");
	is_str(st.tag, x->tag, "its tag");
	is_int(st.phase, AGENT_EXEC_RUNNING, "it runs");
	is_int(st.out_acked, 0, "nothing acknowledged");
	is_int(st.out_end, AGENT_RING_LEN, "the ring is kept");
	x->no_ack = false;
	ok(host_wait(h, &x->exited), "acknowledged, it runs to its end");
	ok(is_sequence(&x->out[0], 400000) && !x->wrong,
	   "all output, from the start, once");
	x->exited = false;
	is_int(host_reset(h, true), 0, "another RESET");
	ok(host_wait(h, &x->exited), "the exit is told again");
	agent_link_exit_ack(h->l, x->tag, &e);
	while (agent_link_queued(h->l))
		host_turn(h, 10); /* a reset would drop it */
	is_int(host_reset(h, true), 0, "once acknowledged");
	is_int(h->reply.hello.nr_execs, 0, "it is forgotten");
}

/* A process in the background keeps the pipe: the exec still ends. */
static void test_background(struct host *h)
{
	int64_t t0 = host_ms();
	struct host_exec *x =
		host_run(h, "", "echo first; (sleep 5; echo late) & exit 3");

	is_int(x->exit.code, 3, "the exec ends with its process");
	is_str(host_out(x, AGENT_STDOUT), "first\n", "with what was written");
	ok(host_ms() - t0 < 4500, "without waiting for the background");
}

static void test_files(struct host *h)
{
	char path[128], text[64];
	struct agent_msg m = { .type = AGENT_FILE_STAT };
	struct stat st;

	snprintf(path, sizeof(path), "%s/a file", dir);
	is_int(host_put(h, path, "content\n", 0640), 0, "a file is put");
	ok(!stat(path, &st) && st.st_size == 8, "and is there");
	is_int(st.st_mode, S_IFREG | 0640, "with its mode");
	is_int(host_get(h, path, 0), 0, "and got");
	is_str(buf_cstr(&h->data), "content\n", "the same");
	is_int(h->reply.file_data.size, 8, "with its size");
	is_int(host_get(h, path, 5), 0, "from an offset");
	is_str(buf_cstr(&h->data), "nt\n", "the rest");
	m.file_stat.path = path;
	is_int(host_call(h, &m), 0, "stat");
	is_int(h->reply.file_info.mode, S_IFREG | 0640, "mode");
	is_int(h->reply.file_info.inode, st.st_ino, "inode");
	is_int(h->reply.file_info.mtime_ns,
	       st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec, "mtime");
	snprintf(text, sizeof(text), "%s/none", dir);
	is_int(host_get(h, text, 0), -ENOENT, "a missing file: ENOENT");
	ok(strstr(h->err.msg, text), "named: %s", h->err.msg);
	is_int(host_get(h, dir, 0), -EISDIR, "a folder: EISDIR");
	is_int(host_get(h, "/dev/zero", 0), -EINVAL, "a device: refused");
	is_int(host_get(h, "/proc/self/status", 0), 0, "/proc can be read");
	ok(strstr(buf_cstr(&h->data), "cryo-agent"), "with its content");
}

static void test_links(struct host *h)
{
	char path[128];
	struct agent_msg m = { .type = AGENT_FILE_STAT };

	snprintf(path, sizeof(path), "%s/link", dir);
	ok(!symlink("a file", path), "a link");
	m.file_stat.path = path;
	host_call(h, &m);
	ok(S_ISREG(h->reply.file_info.mode), "followed");
	m.file_stat.flags = AGENT_FILE_NOFOLLOW;
	host_call(h, &m);
	ok(S_ISLNK(h->reply.file_info.mode), "not followed");
	is_str((char *)h->data.p, "a file", "its target");
}

/* Pieces, repeats, gaps; nobody sees half a file. */
static void test_upload(struct host *h)
{
	char path[128], temp[160];
	struct agent_msg w = { .type = AGENT_FILE_WRITE };
	struct agent_msg c = { .type = AGENT_FILE_COMMIT };
	struct id id;

	id_new(&id);
	snprintf(path, sizeof(path), "%s/up", dir);
	snprintf(temp, sizeof(temp), "%s/.cryo-%s", dir, id.s);
	w.file_write = (struct agent_file_write){
		id.s, path, 0, { (const uint8_t *)"abcd", 4 }
	};
	is_int(host_call(h, &w), 0, "first piece");
	is_int(h->reply.file_written.size, 4, "4 bytes");
	is_int(host_call(h, &w), 0, "the same again");
	is_int(h->reply.file_written.size, 4, "still 4 bytes");
	w.file_write.offset = 5;
	is_int(host_call(h, &w), -ESPIPE, "a gap is refused");
	w.file_write.offset = 4;
	is_int(host_call(h, &w), 0, "the next piece");
	is_int(access(path, F_OK), -1, "not there before the commit");
	c.file_commit = (struct agent_file_commit){ id.s,     path,	0600,
						    getuid(), getgid(), 7 };
	is_int(host_call(h, &c), -EPROTO, "a wrong size is refused");
	c.file_commit.size = 8;
	is_int(host_call(h, &c), 0, "committed");
	is_int(access(temp, F_OK), -1, "the temporary file is gone");
	host_get(h, path, 0);
	is_str(buf_cstr(&h->data), "abcdabcd", "the content is whole");
	w.file_write.offset = 0;
	host_call(h, &w);
	c.type = AGENT_FILE_ABORT;
	c.file_abort = (struct agent_file_abort){ id.s, path };
	is_int(host_call(h, &c), 0, "aborted");
	is_int(access(temp, F_OK), -1, "leaves nothing");
}

static void test_folders(struct host *h)
{
	struct agent_msg m = { .type = AGENT_FILE_MKDIR };
	char path[160], name[192];
	struct agent_entry en;
	struct agent_bytes rest;
	unsigned seen = 0;
	uint64_t cursor = 0;
	bool twice = false;
	static char got[1500];

	snprintf(path, sizeof(path), "%s/p/q/r", dir);
	m.file_mkdir =
		(struct agent_file_mkdir){ path, 0750, getuid(), getgid(), 0 };
	is_int(host_call(h, &m), -ENOENT, "mkdir without its parents");
	m.file_mkdir.parents = 1;
	is_int(host_call(h, &m), 0, "and with them");
	for (int i = 0; i < 1500; i++) {
		snprintf(name, sizeof(name), "%s/file-%04d", path, i);
		close(open(name, O_CREAT | O_WRONLY, 0600));
	}
	do {
		int nr;

		m = (struct agent_msg){ .type = AGENT_FILE_LIST };
		m.file_list = (struct agent_file_list){ path, cursor };
		if (host_call(h, &m))
			break;
		rest = (struct agent_bytes){ h->data.p, (uint32_t)h->data.len };
		while (agent_entry_next(&rest, &en) > 0) {
			nr = (int)strtol(en.name + 5, NULL, 10);
			twice |= got[nr]++ > 0;
			seen++;
		}
		cursor = h->reply.file_entries.next;
	} while (cursor);
	is_int(seen, 1500, "a long folder is listed in pieces");
	ok(!twice, "each name once");
	m = (struct agent_msg){ .type = AGENT_FILE_REMOVE };
	m.file_remove.path = path;
	is_int(host_call(h, &m), -ENOTEMPTY, "a full folder stays");
	snprintf(name, sizeof(name), "%s/file-0000", path);
	m.file_remove.path = name;
	is_int(host_call(h, &m), 0, "a file is removed");
	is_int(access(name, F_OK), -1, "and is gone");
}

static void test_refused_here(struct host *h)
{
	struct agent_msg m = { .type = AGENT_SETTIME };
	uint8_t seed[32] = { 1 };

	m.settime.wall_ns = 1000000000;
	is_int(host_call(h, &m), -EPERM, "this machine's clock is left alone");
	m = (struct agent_msg){ .type = AGENT_RESEED };
	m.reseed.seed = (struct agent_bytes){ seed, 32 };
	is_int(host_call(h, &m), -EPERM, "its generator too");
	m = (struct agent_msg){ .type = AGENT_GENERATION };
	m.generation.number = 2;
	is_int(host_call(h, &m), -EPERM, "and its name");
}

static void test_quiesce(struct host *h)
{
	struct host_exec *x =
		host_sh(h, "", 0, "while :; do echo tick; sleep 0.01; done");
	size_t before;
	struct err e;
	int r;

	h->answered = false;
	r = agent_link_quiesce(h->l, AGENT_QUIESCE_SYNC, 5000, 0, HOST_WAIT_MS,
			       host_on_reply, h, &e);
	host_wait(h, &h->answered);
	is_int(r | h->ret, 0, "quiesced");
	is_int(h->reply.quiesced.flags, AGENT_QUIESCE_SYNC, "and synced");
	before = x->out[0].len;
	host_for(h, 200);
	is_int(x->out[0].len, before, "no output while quiesced");
	h->answered = false;
	r = agent_link_unquiesce(h->l, HOST_WAIT_MS, host_on_reply, h, &e);
	host_wait(h, &h->answered);
	is_int(r | h->ret, 0, "unquiesced");
	ok(host_wait_out(h, x, AGENT_STDOUT, before + 1) && !x->wrong,
	   "then it goes on");
	agent_link_signal(h->l, x->tag, SIGKILL, HOST_WAIT_MS, host_on_reply, h,
			  &e);
	ok(host_wait(h, &x->exited), "until it is killed");
	agent_link_exit_ack(h->l, x->tag, &e);
}

/* Half a frame, then another host: as after a restore. */
static void test_half_frame(struct host *h, int fd)
{
	struct agent_msg m = { .type = AGENT_PING, .id = 1 };
	struct buf b SCOPED(buf_done) = { 0 };
	uint8_t data[20000] = { 0 };

	m.type = AGENT_STDIN;
	m.stdin_data = (struct agent_stdin){
		"aaaaaaaaaaaaaaaaaaaa", 0, 0, { data, sizeof(data) }
	};
	if (agent_msg_encode(&b, &m))
		bail("encode");
	is_int(write(fd, b.p, 9000), 9000, "half a frame is sent");
	is_int(host_reset(h, false), 0, "a padded RESET gets through");
	is_int(write(fd, b.p, 10), 10, "a piece of a header is sent");
	is_int(host_reset(h, false), 0, "and again");
}

static void clean_up(void)
{
	char cmd[64 + sizeof(dir)];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	if (!fork()) {
		execl("/bin/sh", "sh", "-c", cmd, (char *)NULL);
		_exit(127);
	}
	while (wait(NULL) > 0)
		;
}

int main(void)
{
	struct host h = { 0 };
	int fd, status = 0;

	if (!mkdtemp(dir))
		bail("mkdtemp");
	fd = start_agent();
	host_open(&h, fd);
	test_hello(&h);
	test_exec(&h);
	test_user(&h);
	test_exec_refused(&h);
	test_exec_once(&h);
	test_stdin(&h);
	test_stdin_closed(&h);
	test_big_output(&h);
	test_back_pressure(&h);
	test_background(&h);
	test_files(&h);
	test_links(&h);
	test_upload(&h);
	test_folders(&h);
	test_refused_here(&h);
	test_quiesce(&h);
	test_half_frame(&h, fd);
	ok(!h.broken, "the link held");
	host_close(&h);
	waitpid(agent, &status, 0);
	ok(WIFEXITED(status) && !WEXITSTATUS(status),
	   "the agent ends with its socket");
	clean_up();
	return tap_done();
}
