/*
 * The NBD server with the client that counts: QEMU's own block layer, driven
 * by its monitor's `qemu-io` command on a machine without a CPU. Expected
 * bytes are compared on our side of the server.
 */
#include "snapshotter/disk_nbd.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/tap.h"

#define NR 4096u /* blocks: 16 MiB */
#define QEMU "qemu-system-x86_64"

static const struct disk_ops ops = { NULL, NULL, NULL };

struct qemu {
	pid_t pid;
	int to, from; /* its monitor */
	size_t len;
	char answer[8192];
};

/* The NBD socket becomes descriptor 3 of the child. */
static void qemu_exec(int in, int out, int nbd)
{
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(nbd, 3) < 0)
		_exit(126);
	fcntl(3, F_SETFD, 0);
	close_range(4, ~0u, 0);
	execlp(QEMU, QEMU, "-machine", "none", "-nodefaults", "-no-user-config",
	       "-display", "none", "-S", "-chardev", "stdio,id=m", "-mon",
	       "chardev=m,mode=control", "-blockdev",
	       "driver=nbd,node-name=d0,server.type=fd,server.str=3,"
	       "discard=unmap",
	       (char *)NULL);
	_exit(127);
}

static void qemu_start(struct qemu *q, int nbd)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		bail("pipe");
	q->pid = fork();
	if (q->pid < 0)
		bail("fork");
	if (!q->pid)
		qemu_exec(in[0], out[1], nbd);
	close(in[0]);
	close(out[1]);
	close(nbd);
	q->to = in[1];
	q->from = out[0];
}

/* Reads answers until one has `word`; false after 60 s or at the end. */
static bool qemu_wait(struct qemu *q, const char *word)
{
	struct pollfd p = { .fd = q->from, .events = POLLIN };

	q->len = 0;
	q->answer[0] = 0;
	while (q->len < sizeof(q->answer) - 1 && poll(&p, 1, 60000) > 0) {
		ssize_t n = read(q->from, q->answer + q->len,
				 sizeof(q->answer) - 1 - q->len);
		if (n <= 0)
			break;
		q->len += (size_t)n;
		q->answer[q->len] = 0;
		if (strstr(q->answer, word))
			return true;
	}
	return false;
}

static bool qemu_do(struct qemu *q, const char *json)
{
	if (base_write_all(q->to, json, strlen(json)))
		return false;
	return qemu_wait(q, "}\r\n");
}

/* A command of qemu-io; its words come back in the answer. */
static bool qemu_io(struct qemu *q, const char *command)
{
	char json[256];

	snprintf(json, sizeof(json),
		 "{\"execute\":\"human-monitor-command\",\"arguments\":"
		 "{\"command-line\":\"qemu-io d0 \\\"%s\\\"\"}}\n",
		 command);
	return qemu_do(q, json) && !strstr(q->answer, "error") &&
	       !strstr(q->answer, "failed");
}

/* Whether bytes [from, to) of the disk are all `fill`. */
static bool holds(struct disk *d, uint32_t from, uint32_t to, int fill)
{
	uint8_t page[DISK_BLOCK];
	struct err e;

	for (uint32_t at = from; at < to; at++) {
		if ((at == from || at % DISK_BLOCK == 0) &&
		    disk_read_current(d, at / DISK_BLOCK, page, &e))
			return false;
		if (page[at % DISK_BLOCK] != fill)
			return false;
	}
	return true;
}

static void test_io(struct qemu *q, struct disk *d)
{
	ok(qemu_do(q, "{\"execute\":\"query-named-block-nodes\"}\n") &&
		   strstr(q->answer, "\"virtual-size\": 16777216"),
	   "the size is understood");
	ok(qemu_io(q, "write -P 0x5a 8192 12288"), "write");
	ok(holds(d, 0, 8192, 0) && holds(d, 8192, 20480, 0x5a) &&
		   holds(d, 20480, 24576, 0),
	   "exactly these blocks hold it");
	ok(qemu_io(q, "read -P 0x5a 8192 12288"), "and it reads back");
	ok(!qemu_io(q, "read -P 0x5b 8192 4096"), "another pattern does not");
	ok(qemu_io(q, "write -P 0x21 9000 100"), "a write within a block");
	ok(holds(d, 8192, 9000, 0x5a) && holds(d, 9000, 9100, 0x21) &&
		   holds(d, 9100, 12288, 0x5a),
	   "is done by the client on whole blocks");
	ok(qemu_io(q, "write -P 0x77 0x400000 8M"), "8 MiB at once");
	ok(holds(d, 4 << 20, 12 << 20, 0x77), "arrive in pieces we offered");
	ok(qemu_io(q, "write -z 0x400000 4096"), "write zeroes");
	ok(qemu_io(q, "discard 0x402000 2M"), "discard");
	ok(holds(d, 4 << 20, (4 << 20) + 4096, 0) &&
		   holds(d, (4 << 20) + 4096, (4 << 20) + 8192, 0x77) &&
		   holds(d, (4 << 20) + 8192, (6 << 20) + 8192, 0) &&
		   holds(d, (6 << 20) + 8192, 12 << 20, 0x77),
	   "zero where asked, and nowhere else");
	ok(qemu_io(q, "flush"), "flush");
}

static bool have_qemu(void)
{
	int status = 1;
	pid_t pid = fork();

	if (!pid) {
		close(1);
		execlp(QEMU, QEMU, "--version", (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

int main(void)
{
	struct disk_config c = { .nr_blocks = NR,
				 .template_fd = -1,
				 .overlay_fd =
					 memfd_create("overlay", MFD_CLOEXEC),
				 .ops = &ops };
	struct qemu q = { 0 };
	struct disk_nbd *n;
	struct disk *d;
	struct err e;
	int sv[2];

	if (!have_qemu()) {
		printf("1..0 # SKIP no " QEMU "\n");
		return 0;
	}
	signal(SIGPIPE, SIG_IGN);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) ||
	    disk_new(&d, &c, &e) || disk_nbd_new(&n, d, sv[1], NULL, NULL, &e))
		bail("start");
	qemu_start(&q, sv[0]);
	ok(qemu_wait(&q, "QMP") &&
		   qemu_do(&q, "{\"execute\":\"qmp_capabilities\"}\n"),
	   "QEMU opens our export by descriptor");
	test_io(&q, d);
	qemu_do(&q, "{\"execute\":\"quit\"}\n");
	waitpid(q.pid, NULL, 0);
	disk_nbd_free(n);
	disk_free(d);
	return tap_done();
}
