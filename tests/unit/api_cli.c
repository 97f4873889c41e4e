/*
 * api_cli: the program `cryo` itself against the real server: every client
 * verb, its exit status and what it prints; standard input, signals, files,
 * a daemon that goes away in the middle.
 */
#include "tests/unit/api_world.h"

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <sys/wait.h>

static struct world w;
static char program[PATH_MAX];
static char tmp[64];

/* --- commands that the sandbox can play ----------------------------------- */

static void play_tar(struct world_exec *x)
{
	/* one file "result" with "42\n", made by hand after POSIX */
	uint8_t h[512] = "result";
	static const uint8_t zeros[1024];
	unsigned sum = 0;

	memcpy(h + 100, "0000644", 7);
	memcpy(h + 124, "00000000003", 11);
	h[156] = '0';
	memcpy(h + 257, "ustar\00000", 8);
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
	buf_put(&x->out[0], h, 512);
	buf_put(&x->out[0], "42\n", 3);
	buf_put(&x->out[0], zeros, 509);
	buf_put(&x->out[0], zeros, 1024);
	x->exited = true;
}

static void play_named(struct world_exec *x, const char *name, const char *arg)
{
	if (!strcmp(name, "echo")) {
		buf_printf(&x->out[0], "%s\n", arg ? arg : "");
		x->exited = true;
	} else if (!strcmp(name, "both")) {
		buf_put_str(&x->out[0], "to stdout");
		buf_put_str(&x->out[1], "to stderr");
		x->exited = true;
		x->code = 3;
	} else if (!strcmp(name, "die")) {
		x->exited = true;
		x->signal = 9;
	} else if (!strcmp(name, "tar")) {
		play_tar(x);
	} else if (!strcmp(name, "slow")) {
		buf_put_str(&x->out[0], "begun\n");
	}
	/* "cat" ends when its input does, "sleep" never */
}

static void play(struct world *world, struct world_exec *x)
{
	SCOPED(exec_done) struct exec row = { 0 };
	struct reader r = { .ops = world->store.views.ops };
	struct err e;

	world->store.views.open(world->store.views.ctx, &r.view, &e);
	if (rows_exec(&r, x->id, &row, &e) == 0)
		play_named(x, json_string_value(json_array_get(row.argv, 0)),
			   json_string_value(json_array_get(row.argv, 1)));
	world->store.views.close(r.view);
}

/* The exec that was started last, once it is followed. */
static struct world_exec *playing(void)
{
	struct world_exec *x = NULL;

	for (int n = 0; n < 1000; n++) {
		pthread_mutex_lock(&w.lock);
		for (int i = 0; i < WORLD_EXECS && w.execs[i].id[0]; i++)
			x = w.execs[i].exited ? x : &w.execs[i];
		pthread_mutex_unlock(&w.lock);
		if (x)
			return x;
		poll(NULL, 0, 10);
	}
	bail("no command is followed");
}

/* --- running cryo --------------------------------------------------------- */

struct run {
	pid_t pid;
	int in, out, err; /* our ends */
	struct buf text[2];
	int status;
};

static struct run run; /* the one at hand */

static void run_start(const char *const *argv, bool with_stdin)
{
	posix_spawn_file_actions_t fa;
	int in[2], out[2], err[2];

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) ||
	    pipe2(err, O_CLOEXEC))
		bail("making pipes");
	posix_spawn_file_actions_init(&fa);
	if (with_stdin)
		posix_spawn_file_actions_adddup2(&fa, in[0], 0);
	else
		posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY,
						 0);
	posix_spawn_file_actions_adddup2(&fa, out[1], 1);
	posix_spawn_file_actions_adddup2(&fa, err[1], 2);
	if (posix_spawn(&run.pid, program, &fa, NULL,
			(char *const *)(uintptr_t)argv, environ) != 0)
		bail("starting %s", program);
	posix_spawn_file_actions_destroy(&fa);
	close(in[0]);
	close(out[1]);
	close(err[1]);
	run.in = in[1];
	run.out = out[0];
	run.err = err[0];
	buf_reset(&run.text[0]);
	buf_reset(&run.text[1]);
}

static void run_end(void)
{
	int status;

	close(run.in);
	world_receive(run.out, &run.text[0], NULL);
	world_receive(run.err, &run.text[1], NULL);
	close(run.out);
	close(run.err);
	waitpid(run.pid, &status, 0);
	run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const char *out(void)
{
	return buf_cstr(&run.text[0]);
}

static const char *err(void)
{
	return buf_cstr(&run.text[1]);
}

#define CRYO_ARGV(...)                    \
	(const char *const[])             \
	{                                 \
		"cryo", __VA_ARGS__, NULL \
	}
#define cryo(...) \
	(run_start(CRYO_ARGV(__VA_ARGS__), false), run_end(), run.status)

/* What was printed, without its line end, in a buffer of the caller. */
static void line(char *ret, size_t len)
{
	base_strcpy(ret, len, out());
	ret[strcspn(ret, "\n")] = 0;
}

/* --- tests ---------------------------------------------------------------- */

static char id[ID_LEN + 1];

static void usage(void)
{
	is_int(cryo("help"), 0, "help");
	ok(strstr(out(), "timeline") != NULL, "lists the verbs");
	is_int(cryo("fly"), 2, "an unknown verb is wrong usage");
	ok(strstr(err(), "fly") != NULL, "and named: %s", err());
	is_int(cryo("ls", "--nothing"), 2, "an unknown option as well");
	is_int(cryo("exec", "x"), 2, "so is a missing command");
	is_int(cryo("cp", "a", "b"), 2, "and a copy between nowhere");
	is_int(cryo("key", "polish"), 2, "and what no key verb is");
	is_int(cryo("run", "--out", "nonsense", "--", "x"), 2, "and a bad out");
	is_int(cryo("--version"), 0, "the version");
	is_str(out(), "cryo " CRYO_VERSION "\n", "is printed");
}

/* The page with its escapes taken off. */
static void read_page(struct buf *page)
{
	SCOPED_FD int fd = open("docs/man/cryo.1", O_RDONLY | O_CLOEXEC);
	size_t to = 0;
	ssize_t n;

	while ((n = read(fd, buf_reserve(page, 65536), 65536)) > 0)
		page->len += (size_t)n;
	for (size_t i = 0; i < page->len; i++) {
		if (page->p[i] == '\\' && page->p[i + 1] == 'f')
			i += 2;
		else if (page->p[i] != '\\')
			page->p[to++] = page->p[i];
	}
	page->len = to;
}

/* Where the text of a verb begins and ends in the page; NULL if nowhere. */
static const char *section(const char *page, const char *verb, size_t *ret)
{
	char head[64];
	const char *p, *end;

	snprintf(head, sizeof(head), "\n.SS %s", verb);
	p = strstr(page, head);
	if (!p || !strchr(" \n", p[strlen(head)]))
		return NULL;
	end = strstr(p + 1, "\n.S");
	*ret = end ? (size_t)(end - p) : strlen(p);
	return p;
}

static bool has_option(const char *text, size_t len, const char *option)
{
	char want[80];

	snprintf(want, sizeof(want), "\n%.70s", option);
	return memmem(text, len, want, strlen(want)) != NULL;
}

/* Every option that --help prints is in the verb's section of the page. */
static void manual(void)
{
	SCOPED(buf_done) struct buf page = { 0 }, verbs = { 0 };
	char *save = NULL;
	int nr = 0;

	read_page(&page);
	is_int(cryo("help"), 0, "help");
	buf_put_str(&verbs, out());
	buf_cstr(&verbs);
	for (char *l = strtok_r((char *)verbs.p, "\n", &save); l;
	     l = strtok_r(NULL, "\n", &save)) {
		char verb[32], option[64];
		const char *text;
		size_t len = 0;

		if (sscanf(l, "  %31[a-z]  ", verb) != 1 || l[0] != ' ')
			continue;
		nr++;
		text = section(buf_cstr(&page), verb, &len);
		ok(text != NULL, "the manual has %s", verb);
		is_int(cryo(verb, "--help"), 0, "as has --help");
		for (const char *p = out(); text && p; p = strchr(p, '\n')) {
			p += *p == '\n';
			if (sscanf(p, "  --%60[a-z-]", option + 2) != 1)
				continue;
			memcpy(option, "--", 2);
			ok(!strcmp(option, "--data") ||
				   !strcmp(option, "--json") ||
				   !strcmp(option, "--help") ||
				   has_option(text, len, option),
			   "%s %s is in the manual", verb, option);
		}
	}
	is_int(nr, 22, "verbs");
}

static void nobody_there(void)
{
	int64_t t = clock_mono(&clock_real);

	is_int(cryo("ls", "--data", "/nowhere"), 1, "no daemon");
	ok(strstr(err(), "/nowhere/run/api.sock") && strstr(err(), "cryo up"),
	   "what, where, what to do: %s", err());
	is_int(cryo("logs", "--data", "/nowhere", "x"), 1, "for streams too");
	t = (clock_mono(&clock_real) - t) / NS_PER_MS;
	ok(t < 5000, "said at once (%lld ms)", (long long)t);
	setenv("CRYO_URL", "http://127.0.0.1:1", 1);
	unsetenv("CRYO_DATA");
	is_int(cryo("ls"), 1, "a URL without a key");
	ok(strstr(err(), "CRYO_KEY") != NULL, "is told: %s", err());
	unsetenv("CRYO_URL");
	setenv("CRYO_DATA", w.dir, 1);
}

static void sessions(void)
{
	char first[64];

	is_int(cryo("create", "--name", "main", "--snapshot-every", "90s",
		    "--ttl", "1h"),
	       0, "create");
	line(id, sizeof(id));
	ok(id_valid(id) && strlen(out()) == ID_LEN + 1, "prints the id alone");
	is_int(cryo("ls"), 0, "ls");
	ok(strstr(out(), id) && strstr(out(), "running"), "shows it");
	is_int(cryo("ls", "--json"), 0, "ls --json");
	ok(out()[0] == '{' && strstr(out(), "\"snapshot_every\":\"1m30s\""),
	   "a document a line");
	is_int(cryo("show", "main"), 0, "show by name");
	ok(strstr(out(), id) != NULL, "finds it");
	is_int(cryo("show", "nobody"), 1, "an unknown one");
	ok(strstr(err(), "nobody") != NULL, "is named: %s", err());
	is_int(cryo("create", "--name", "main"), 1, "a name that is taken");
	is_int(cryo("create", "--memory", "x"), 2, "a number that is none");
	is_int(cryo("pause", "main"), 0, "pause");
	is_int(cryo("resume", "main"), 0, "resume");
	is_int(cryo("snapshot", "main", "--name", "mark"), 0, "snapshot");
	line(first, sizeof(first));
	ok(id_valid(first), "prints its id");
	is_int(cryo("snapshots", "main"), 0, "snapshots");
	ok(strstr(out(), first) && strstr(out(), "mark"), "lists it");
	is_int(cryo("suspend", "main"), 0, "suspend");
	is_int(cryo("resume", id, "--at", "mark"), 0, "resume --at");
	ok(strstr(err(), first) != NULL, "says which point: %s", err());
	is_int(cryo("resume", id, "--at", "2001-01-01T00:00:00Z"), 1,
	       "a time before the first point");
	ok(strlen(err()) > 40, "is explained: %s", err());
}

static void time_travel(void)
{
	char kids[3][64];
	int n = 0;

	is_int(cryo("rewind", "main"), 1, "a rewind to nowhere");
	is_int(cryo("rewind", "main", "--at", "mark"), 0, "rewind");
	is_int(cryo("rewind", "main", "--undo"), 0, "undo");
	is_int(cryo("fork", "main", "--at", "mark", "-n", "2", "--name", "kid"),
	       0, "fork");
	for (const char *p = out(); *p && n < 3; p += strcspn(p, "\n") + 1) {
		base_strcpy(kids[n], 64, p);
		kids[n++][strcspn(p, "\n")] = 0;
	}
	ok(n == 2 && id_valid(kids[0]) && id_valid(kids[1]),
	   "prints the ids, one a line");
	is_int(cryo("timeline", "main"), 0, "timeline");
	ok(strstr(out(), "mark") && strstr(out(), "before-rewind-1") &&
		   strstr(out(), "-> fork ") && strstr(out(), "now: running"),
	   "has the points, the line that was left, the forks, the present");
	is_int(cryo("rm", "kid", kids[1]), 0, "rm of two, by name and id");
	is_int(cryo("show", kids[0]), 1, "is gone");
}

static void commands(void)
{
	is_int(cryo("exec", "main", "--", "echo", "hello"), 0, "exec");
	is_str(out(), "hello\n", "its output");
	is_int(cryo("exec", "main", "--", "both"), 3, "its exit status");
	is_str(out(), "to stdout", "standard output");
	is_str(err(), "to stderr", "standard error");
	is_int(cryo("exec", "main", "--", "die"), 137, "128 + its signal");
	is_int(cryo("exec", "main", "--env", "NO_SUCH_THING", "--", "echo"), 1,
	       "a variable that isn't there");
	ok(strstr(err(), "NO_SUCH_THING") != NULL, "is named");
	is_int(cryo("exec", "main", "--detach", "--", "echo", "later"), 0,
	       "detached");
	{
		char x[64];

		line(x, sizeof(x));
		ok(id_valid(x), "prints the exec's id");
		is_int(cryo("logs", x), 0, "logs");
		is_str(out(), "later\n", "has its output");
		is_int(cryo("logs", x, "--json"), 0, "logs --json");
		is_str(out(), "{\"data\":\"later\\n\",\"stream\":\"stdout\"}\n",
		       "one object a piece");
	}
	is_int(cryo("logs", "aaaaaaaaaaaaaaaaaaaa"), 1, "an unknown exec");
	is_int(cryo("logs", "a b/../c?d"), 1, "or what can't be one");
}

static void input(void)
{
	struct world_exec *x;
	size_t len = 200000;
	SCOPED_FREE char *bytes = base_alloc(len);
	bool same;

	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)('a' + i % 23);
	run_start(CRYO_ARGV("exec", "main", "--", "cat"), true);
	world_send(run.in, bytes, len);
	x = playing();
	close(run.in);
	run.in = -1;
	for (int i = 0; i < 1000; i++) {
		bool closed;

		pthread_mutex_lock(&w.lock);
		closed = x->in_closed;
		pthread_mutex_unlock(&w.lock);
		if (closed)
			break;
		poll(NULL, 0, 10);
	}
	pthread_mutex_lock(&w.lock);
	same = x->in_closed && x->in.len == len && !memcmp(x->in.p, bytes, len);
	pthread_mutex_unlock(&w.lock);
	ok(same, "standard input arrives whole, with its end");
	world_say(&w, x->id, 0, "done", 4);
	world_exit(&w, x->id, 0, 0);
	run_end();
	is_int(run.status, 0, "the command's status");
	is_str(out(), "done", "and output");
}

static void interrupt(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	struct world_exec *x;
	char path[96];

	run_start(CRYO_ARGV("exec", "main", "--", "sleep"), false);
	x = playing();
	kill(run.pid, SIGINT);
	snprintf(path, sizeof(path), "/v1/events?session=%s", id);
	for (int i = 0; i < 500; i++) {
		world_do(&w, &a, "GET", path, NULL);
		if (strstr(buf_cstr(&a.body), "exec.signalled"))
			break;
		poll(NULL, 0, 20);
	}
	ok(strstr(buf_cstr(&a.body), "\"signal\":2") != NULL,
	   "an interrupt goes to the command");
	world_exit(&w, x->id, 0, 2);
	run_end();
	is_int(run.status, 130, "whose end is ours");
}

/* The daemon goes away in the middle of a stream and comes back. */
static void restart(void)
{
	struct world_exec *x;

	run_start(CRYO_ARGV("exec", "main", "--", "slow"), false);
	x = playing();
	world_receive(run.out, &run.text[0], "begun\n");
	api_stop(w.api);
	world_say(&w, x->id, 0, "meanwhile\n", 10);
	poll(NULL, 0, 500);
	world_open(&w, 64);
	world_say(&w, x->id, 0, "after\n", 6);
	world_exit(&w, x->id, 5, 0);
	run_end();
	is_int(run.status, 5, "a command outlives the daemon");
	is_str(out(), "begun\nmeanwhile\nafter\n", "no byte lost, none twice");
}

static void put(const char *path, const char *text)
{
	SCOPED_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0750);

	if (fd < 0 || base_write_all(fd, text, strlen(text)) < 0)
		bail("writing %s", path);
	fchmod(fd, 0750);
}

static bool has(const char *path, const char *text, mode_t mode)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	char got[64] = "";
	struct stat st;

	return fd >= 0 && read(fd, got, sizeof(got) - 1) >= 0 &&
	       !strcmp(got, text) && fstat(fd, &st) == 0 &&
	       (st.st_mode & 0777) == mode;
}

static void files(void)
{
	char here[96], there[96], dir[96];

	snprintf(here, sizeof(here), "%s/file", tmp);
	put(here, "content");
	is_int(cryo("cp", here, "main:/srv/data"), 0, "cp in");
	ok(world_file(&w, "/srv/data")->mode == 0750, "with its mode");
	is_int(cryo("cp", here, "main:/srv/"), 0, "cp into a folder");
	ok(world_file(&w, "/srv/file")->there, "keeps the name");
	snprintf(there, sizeof(there), "%s/back", tmp);
	is_int(cryo("cp", "main:/srv/data", there), 0, "cp out");
	ok(has(there, "content", 0750), "the same bytes and mode");
	is_int(cryo("cp", "main:/srv/data", tmp), 0, "cp out into a folder");
	snprintf(dir, sizeof(dir), "%s/data", tmp);
	ok(has(dir, "content", 0750), "keeps the name");
	is_int(cryo("cp", "main:/none", there), 1, "a file that isn't there");
	ok(has(there, "content", 0750), "leaves what was here");
	is_int(cryo("cp", "/no/such/file", "main:/x"), 1, "nor here");
	is_int(cryo("cp", tmp, "main:/x"), 1, "a folder doesn't go in");
	snprintf(dir, sizeof(dir), "%s/tree", tmp);
	is_int(cryo("cp", "main:/tmp", dir), 0, "but it comes out");
	snprintf(there, sizeof(there), "%s/tree/result", tmp);
	ok(has(there, "42\n", 0644 & ~umask(022)), "with what is in it");
}

static void runs(void)
{
	SCOPED(answer_done) struct answer a = { 0 };
	char dir[96], file[128], spec[128];
	long long before;

	world_do(&w, &a, "GET", "/v1/sessions?limit=1000", NULL);
	before = world_nr(answer_str(&a, "items"));
	is_int(cryo("run", "--", "echo", "once"), 0, "run");
	is_str(out(), "once\n", "its output alone");
	is_int(cryo("run", "--", "both"), 3, "the command's status");
	snprintf(dir, sizeof(dir), "%s/out", tmp);
	snprintf(file, sizeof(file), "%s/result", dir);
	snprintf(spec, sizeof(spec), "/tmp=%s", dir);
	is_int(cryo("run", "--out", spec, "--", "echo"), 0, "with --out");
	ok(access(file, R_OK) == 0, "a folder is fetched");
	is_int(cryo("run", "--out", "/none=x", "--", "echo"), 1,
	       "an output that isn't there is a failure");
	world_do(&w, &a, "GET", "/v1/sessions?limit=1000", NULL);
	is_int(world_nr(answer_str(&a, "items")), before,
	       "nothing is left behind");
	is_int(cryo("run", "--keep", "durable", "--", "echo"), 0, "kept");
	ok(strstr(err(), "is kept") != NULL, "when asked: %s", err());
	is_int(cryo("run", "--template", "none", "--", "echo"), 1,
	       "a template that isn't there");
	ok(strstr(err(), "none") != NULL, "is named: %s", err());
}

static void the_log(void)
{
	char after[24];
	const char *p;

	is_int(cryo("events", "main", "--json"), 0, "events of one session");
	ok(strstr(out(), "session.created") && !strstr(out(), "key.created"),
	   "its own");
	p = strstr(out(), "\"seq\":");
	snprintf(after, sizeof(after), "%lld", p ? world_nr(p + 6) : 0);
	is_int(cryo("events", "main", "--json", "--after", after), 0, "after");
	ok(!strstr(out(), "session.created"), "leaves out what was before");
	is_int(cryo("events"), 0, "all of them");
	ok(strstr(out(), "key.created") != NULL, "for people");
	run_start(CRYO_ARGV("events", "--follow", "--json"), false);
	world_receive(run.out, &run.text[0], "session.created");
	{
		SCOPED(answer_done) struct answer a = { 0 };

		world_do(&w, &a, "POST", "/v1/keys", "{\"name\":\"fresh\"}");
	}
	world_receive(run.out, &run.text[0], "fresh");
	ok(strstr(out(), "fresh") != NULL, "followed, new ones come");
	kill(run.pid, SIGTERM);
	run_end();
}

static void keys(void)
{
	char token[128], key[ID_LEN + 1];

	is_int(cryo("key", "create", "--name", "ci", "--scope", "read"), 0,
	       "a key");
	line(token, sizeof(token));
	is_int((int)strlen(token), AUTH_TOKEN_LEN, "is printed");
	memcpy(key, token + 5, ID_LEN);
	key[ID_LEN] = 0;
	is_int(cryo("key", "ls"), 0, "key ls");
	ok(strstr(out(), key) && !strstr(out(), token), "lists it, not it");
	{
		char url[64];

		snprintf(url, sizeof(url), "http://127.0.0.1:%u/", w.port);
		setenv("CRYO_URL", url, 1);
		setenv("CRYO_KEY", token, 1);
	}
	is_int(cryo("ls"), 0, "by CRYO_URL and CRYO_KEY");
	is_int(cryo("pause", "main"), 1, "a key may what it may");
	ok(strstr(err(), "scope") != NULL, "and no more: %s", err());
	is_int(cryo("key", "rm", key, "--data", w.dir), 0, "key rm");
	is_int(cryo("ls"), 1, "and it is over");
	unsetenv("CRYO_URL");
	unsetenv("CRYO_KEY");
	is_int(cryo("template", "ls"), 0, "template ls");
	ok(strstr(out(), "tiny:latest") != NULL, "lists them");
}

static bool find_program(void)
{
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 32);

	if (n < 0)
		return false;
	program[n] = 0;
	for (int i = 0; i < 3; i++) /* B/tests/unit/NAME */
		*strrchr(program, '/') = 0;
	base_strcpy(program + strlen(program), 8, "/cryo");
	return access(program, X_OK) == 0;
}

int main(void)
{
	if (!find_program()) {
		printf("1..0 # SKIP %s is not built\n", program);
		return 0;
	}
	world_start(&w, 64);
	w.play = play;
	setenv("LC_ALL", "C", 1);
	setenv("CRYO_DATA", w.dir, 1);
	unsetenv("CRYO_URL");
	snprintf(tmp, sizeof(tmp), "/tmp/cryo-cli-XXXXXX");
	if (!mkdtemp(tmp))
		bail("making a folder");
	usage();
	manual();
	nobody_there();
	sessions();
	time_travel();
	commands();
	input();
	interrupt();
	restart();
	files();
	runs();
	the_log();
	keys();
	world_stop(&w);
	if (fork() == 0)
		execl("/bin/rm", "rm", "-rf", tmp, (char *)NULL);
	wait(NULL);
	buf_done(&run.text[0]);
	buf_done(&run.text[1]);
	return tap_done();
}
