/*
 * Output of execs out of their transcripts: following one that grows, its
 * end, lines that part at restores, forks that go on in their parent's files.
 * Rows are put into a store in memory; the files are real ones.
 */
#include "tools/cryod/output.h"

#include <pthread.h>

#include "core/rows.h"
#include "store/datadir.h"
#include "store/transcript.h"

#include "tests/fds.h"
#include "tests/memstore.h"
#include "tests/unit/store_help.h"

#define TENANT "t0000000000000000001"
#define SESSION "s0000000000000000001"
#define CHILD "c0000000000000000001"
#define EXEC "e0000000000000000001"
#define COPY "f0000000000000000001" /* the exec's name in the child */

static char data[PATH_MAX];
static struct host host;
static struct memstore store;
static struct output *out;

/* --- the world ----------------------------------------------------------- */

static void put_exec(const char *id, const char *session, const char *origin,
		     uint64_t epoch, enum exec_state state)
{
	const struct store_port *p = &store.port;
	struct exec x = { .epoch = epoch, .state = state, .code = 3 };
	struct err e;

	base_strcpy(x.id, sizeof(x.id), id);
	base_strcpy(x.tag, sizeof(x.tag), EXEC);
	base_strcpy(x.session, sizeof(x.session), session);
	base_strcpy(x.origin, sizeof(x.origin), origin);
	x.argv = json_array();
	if (p->begin(p->ctx, &e) < 0 || rows_put_exec(p, &x, &e) < 0 ||
	    p->commit(p->ctx, &e) < 0)
		bail("%s", e.msg);
	exec_done(&x);
}

/* `epoch` of the session started from a point of `from`'s epoch `old`. */
static void put_epoch(const char *session, uint64_t epoch, const char *from,
		      uint64_t old)
{
	const struct store_port *p = &store.port;
	struct point_ref ref = { .epoch = old };
	SCOPED_JSON json_t *row = json_object();
	json_t *start = json_object();
	uint8_t key[ID_LEN + 8];
	struct err e;

	base_strcpy(ref.session, sizeof(ref.session), from);
	base_strcpy(ref.id, sizeof(ref.id), "q0000000000000000001");
	fields_encode(start, &point_ref_fields, &ref);
	json_object_set_new(row, "start", start);
	memcpy(key, session, ID_LEN);
	put_be64(key + ID_LEN, epoch);
	if (p->begin(p->ctx, &e) < 0 ||
	    rows_put_json(p, TABLE_EPOCHS, key, sizeof(key), row, &e) < 0 ||
	    p->commit(p->ctx, &e) < 0)
		bail("%s", e.msg);
}

/* The transcript of one epoch, as the session's cryo-vm gets it. */
static struct transcript *transcript(const char *session, const char *exec,
				     uint32_t epoch, uint64_t out_from,
				     uint64_t err_from)
{
	struct transcript_info info = { .tag = EXEC,
					.epoch = epoch,
					.out_from = out_from,
					.err_from = err_from };
	struct transcript *t;
	uint8_t key[32];
	struct err e;
	int fd;

	if (host.port.transcript(&host, session, exec, epoch, key, &fd, &e) < 0 ||
	    transcript_create(&t, fd, key, &info, &e) < 0)
		bail("%s", e.msg);
	return t;
}

static void say(struct transcript *t, uint64_t at, const char *text)
{
	if (transcript_append(t, TRANSCRIPT_OUT, at, text, strlen(text)) < 0)
		bail("can't append");
}

static void world_begin(void)
{
	struct keys *keys;
	struct err e;

	base_strcpy(data, sizeof(data), help_path("data"));
	if (datadir_create(data, (uid_t)-1, (gid_t)-1, &e) < 0 ||
	    keys_open(&keys, data, NULL, false, &clock_real, &e) < 0 ||
	    keys_session_create(keys, TENANT, SESSION, &e) < 0 ||
	    keys_session_create(keys, TENANT, CHILD, &e) < 0)
		bail("%s", e.msg);
	host_init(&host, data, keys);
	memstore_init(&store);
	out = output_new(&host, &store.views);
}

static void world_end(void)
{
	output_free(out);
	memstore_done(&store);
	keys_close(host.keys);
	help_rm(data);
}

/* --- reading ------------------------------------------------------------- */

static struct sandbox_chunk got;
static char text[SANDBOX_CHUNK_MAX + 1];

static int look(const char *exec, const struct sandbox_cursor *at, size_t max,
		int timeout_ms)
{
	struct err e;
	int r;

	memset(text, 0, sizeof(text));
	memset(&got, 0, sizeof(got));
	r = output_read(out, exec, at, text, max, timeout_ms, &got, &e);
	if (r < 0)
		printf("# %s\n", e.msg);
	return r;
}

/*
 * Reads on from the cursor until there is nothing or an end, `max` bytes at
 * once; what came of stdout, without holes. Moves the cursor.
 */
static const char *drain(const char *exec, struct sandbox_cursor *at, size_t max)
{
	static char all[4096];
	size_t len = 0;

	for (;;) {
		if (look(exec, at, max, 0) < 0)
			return "failed";
		if (got.kind != SANDBOX_DATA)
			break;
		if (got.off != at->off[got.stream])
			return "a hole";
		if (got.stream == SANDBOX_STDOUT) {
			memcpy(all + len, text, got.len);
			len += got.len;
		}
		at->off[got.stream] += got.len;
		at->epoch = got.epoch;
	}
	all[len] = 0;
	return all;
}

static void test_follow(void)
{
	struct sandbox_cursor at = { 0 };
	struct transcript *t;
	uint8_t key[32];
	struct err e;
	int fd;

	world_begin();
	ok(look(EXEC, &at, 100, 0) == -ENOENT, "an exec that is none");
	put_exec(EXEC, SESSION, "", 1, EXEC_RUNNING);
	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_NOTHING,
	   "no file yet: nothing yet");
	host.port.transcript(&host, SESSION, EXEC, 1, key, &fd, &e);
	close(fd);
	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_NOTHING,
	   "nor is there while the file has no header");
	t = transcript(SESSION, EXEC, 1, 0, 0);
	say(t, 0, "one ");
	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_DATA &&
		   got.stream == SANDBOX_STDOUT && got.off == 0 &&
		   got.epoch == 1 && !strcmp(text, "one "),
	   "the first piece");
	ok(look(EXEC, &at, 100, 0) == 0 && !strcmp(text, "one "),
	   "as often as it is asked for");
	transcript_append(t, TRANSCRIPT_ERR, 0, "bad", 3);
	say(t, 4, "two");
	is_str(drain(EXEC, &at, 100), "one two", "and all that came since");
	ok(at.off[0] == 7 && at.off[1] == 3 && at.epoch == 1, "of both streams");
	is_int(got.kind, SANDBOX_NOTHING, "then nothing");
	at.off[0] = 5;
	is_str(drain(EXEC, &at, 100), "wo", "from any byte on");
	at = (struct sandbox_cursor){ 0 };
	is_str(drain(EXEC, &at, 2), "one two", "in any portions");
	put_exec(EXEC, SESSION, "", 1, EXEC_EXITED);
	at.off[0] = 4;
	is_str(drain(EXEC, &at, 100), "two", "an exec that has ended is read on");
	ok(got.kind == SANDBOX_EXIT && got.code == 3 && got.epoch == 1,
	   "and its end comes last");
	put_exec(EXEC, SESSION, "", 1, EXEC_LOST);
	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_LOST,
	   "a lost one says so");
	transcript_free(t);
	world_end();
}

/* --- waiting ------------------------------------------------------------- */

static struct transcript *growing;
static _Atomic bool asked;

static void *grow(void *ctx)
{
	(void)ctx;
	wait_for(asked);
	say(growing, 0, "late");
	output_poke(out);
	return NULL;
}

static void test_wait(void)
{
	struct sandbox_cursor at = { 0 };
	int64_t since = fds_now_ns();
	pthread_t t;

	world_begin();
	put_exec(EXEC, SESSION, "", 1, EXEC_RUNNING);
	growing = transcript(SESSION, EXEC, 1, 0, 0);
	ok(look(EXEC, &at, 100, 30) == 0 && got.kind == SANDBOX_NOTHING &&
		   fds_now_ns() - since >= 30 * 1000000,
	   "nothing within the time is nothing");
	if (pthread_create(&t, NULL, grow, NULL))
		bail("thread");
	since = fds_now_ns();
	asked = true;
	ok(look(EXEC, &at, 100, 50000) == 0 && got.kind == SANDBOX_DATA &&
		   !strcmp(text, "late") &&
		   fds_now_ns() - since < 40 * 1000000000ll,
	   "what comes while one waits is given at once");
	pthread_join(t, NULL);
	transcript_free(growing);
	world_end();
}

/* --- lines --------------------------------------------------------------- */

/*
 *   epoch 1   0123456789        a point at 6
 *   epoch 2         abcdefgh    from the point; another at 6 + 4
 *   epoch 3             XYZ     from that
 *   epoch 4         uvw         from the point in epoch 1 again
 */
static void put_lines(int upto)
{
	struct transcript *t = transcript(SESSION, EXEC, 1, 0, 0);

	say(t, 0, "0123456789");
	transcript_free(t);
	t = transcript(SESSION, EXEC, 2, 6, 0);
	say(t, 6, "abcdefgh");
	transcript_free(t);
	put_epoch(SESSION, 2, SESSION, 1);
	if (upto >= 3) {
		t = transcript(SESSION, EXEC, 3, 10, 0);
		say(t, 10, "XYZ");
		transcript_free(t);
		put_epoch(SESSION, 3, SESSION, 2);
	}
	if (upto >= 4) {
		t = transcript(SESSION, EXEC, 4, 6, 0);
		say(t, 6, "uvw");
		transcript_free(t);
		put_epoch(SESSION, 4, SESSION, 1);
	}
	put_exec(EXEC, SESSION, "", (uint64_t)upto, EXEC_RUNNING);
}

static void rewound(uint64_t epoch, uint64_t off, uint64_t want_epoch,
		    uint64_t want, const char *rest)
{
	struct sandbox_cursor at = { .epoch = epoch, .off = { off } };

	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_REWOUND &&
		   got.at.epoch == want_epoch && got.at.off[0] == want,
	   "who read epoch %d up to %d goes on at %d (%d)", (int)epoch,
	   (int)off, (int)want, (int)got.at.off[0]);
	at = got.at;
	is_str(drain(EXEC, &at, 100), rest, "with \"%s\"", rest);
}

static void test_lines(void)
{
	struct sandbox_cursor at = { 0 };

	world_begin();
	put_lines(2);
	is_str(drain(EXEC, &at, 100), "012345abcdefgh",
	       "the present line is a chain of files, each cut at the next");
	rewound(1, 9, 2, 6, "abcdefgh");
	rewound(1, 4, 2, 4, "45abcdefgh");
	world_end();

	world_begin();
	put_lines(3);
	at = (struct sandbox_cursor){ 0 };
	is_str(drain(EXEC, &at, 100), "012345abcdXYZ", "three epochs long");
	rewound(2, 13, 3, 10, "XYZ");
	rewound(1, 8, 3, 6, "abcdXYZ");
	world_end();

	world_begin();
	put_lines(4);
	at = (struct sandbox_cursor){ 0 };
	is_str(drain(EXEC, &at, 100), "012345uvw",
	       "a line that was left is left");
	rewound(3, 12, 4, 6, "uvw");
	rewound(3, 3, 4, 3, "345uvw");
	rewound(2, 14, 4, 6, "uvw");
	rewound(1, 10, 4, 6, "uvw");
	rewound(99, 5, 4, 0, "012345uvw"); /* an epoch that nobody knows */
	world_end();
}

/* The new epoch's file is not there yet: its reader waits, never guesses. */
static void test_line_not_ready(void)
{
	struct sandbox_cursor at = { .epoch = 1, .off = { 9 } };
	struct transcript *t;

	world_begin();
	t = transcript(SESSION, EXEC, 1, 0, 0);
	say(t, 0, "0123456789");
	transcript_free(t);
	put_epoch(SESSION, 2, SESSION, 1);
	put_exec(EXEC, SESSION, "", 2, EXEC_RUNNING);
	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_NOTHING,
	   "until it is known where the lines part nothing is given");
	at = (struct sandbox_cursor){ 0 };
	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_NOTHING,
	   "from no cursor");
	t = transcript(SESSION, EXEC, 2, 6, 0);
	rewound(1, 9, 2, 6, "");
	transcript_free(t);
	world_end();
}

static void test_fork(void)
{
	struct sandbox_cursor at = { 0 };
	struct transcript *t;

	world_begin();
	put_lines(2);
	t = transcript(CHILD, COPY, 1, 8, 0);
	say(t, 8, "forked");
	put_epoch(CHILD, 1, SESSION, 2);
	put_exec(COPY, CHILD, EXEC, 1, EXEC_RUNNING);
	is_str(drain(COPY, &at, 100), "012345abforked",
	       "a fork's output goes on where its parent's was");
	is_str(drain(EXEC, &(struct sandbox_cursor){ 0 }, 100),
	       "012345abcdefgh", "and the parent's is not changed by it");
	transcript_free(t);
	world_end();
}

/* Files that were purged, or never made. */
static void test_gone(void)
{
	struct sandbox_cursor at = { 0 };
	struct err e;

	world_begin();
	put_lines(2);
	put_exec(EXEC, SESSION, "", 2, EXEC_EXITED);
	host.port.purge(&host, SESSION, &e);
	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_EXIT,
	   "an exec without any file has ended all the same");
	at.epoch = 1;
	ok(look(EXEC, &at, 100, 0) == 0 && got.kind == SANDBOX_REWOUND,
	   "also for a reader of an older epoch");
	world_end();
}

/* Many readers at once, each at its own pace, none keeps a descriptor. */
static void test_many_readers(void)
{
	static char want[3000];
	int before = fds_count(), wrong = 0;
	struct sandbox_cursor at[100] = { 0 };
	struct transcript *t;

	world_begin();
	put_exec(EXEC, SESSION, "", 1, EXEC_RUNNING);
	t = transcript(SESSION, EXEC, 1, 0, 0);
	for (int i = 0; i < 100; i++) {
		char part[16];

		snprintf(part, sizeof(part), "%04d,", i);
		say(t, (uint64_t)i * 5, part);
		base_strcpy(want + i * 5, 6, part);
		for (int k = 0; k <= i; k += 1 + k / 7) {
			size_t from = at[k].off[0];
			const char *s = drain(EXEC, &at[k], 3 + (size_t)k % 9);

			wrong += strcmp(s, want + from) != 0;
		}
	}
	is_int(wrong, 0, "each reader gets all of it, once");
	transcript_free(t);
	world_end();
	is_int(fds_count(), before, "no descriptor is left");
}

int main(void)
{
	int before = fds_count();

	test_follow();
	test_wait();
	test_lines();
	test_line_not_ready();
	test_fork();
	test_gone();
	test_many_readers();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
