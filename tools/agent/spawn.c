/*
 * spawn: from a request to a process: user, environment, fork, exec.
 *
 * Everything that needs memory or files happens before fork(2), because the
 * agent has threads: the child calls only what signal-safety(7) allows. It
 * gets a session and a process group of its own, no capability of the
 * agent's, default signals, normal priority (the agent has
 * SCHED_RESET_ON_FORK) and no descriptor but its three.
 *
 * Names come from /etc/passwd and /etc/group of the guest, read with bounds;
 * a user that isn't there may still be given as uid[:gid].
 */
#include "tools/agent/exec.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FILE_MAX (1u << 20)

struct user {
	char name[AGENT_NAME_MAX + 1], home[PATH_MAX];
	uint32_t uid, gid;
};

/* A regular file's first megabyte as a string; NULL if there is none. */
static char *read_small(const char *path)
{
	SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	char *text;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return NULL;
	text = base_alloc(FILE_MAX + 1);
	n = read(fd, text, FILE_MAX);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static bool parse_id(const char *s, char end, uint32_t *ret)
{
	char *stop;
	unsigned long v;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	v = strtoul(s, &stop, 10);
	if (errno || *stop != end || v >= UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* Cuts "a:b:c" in place; returns the number of fields, at most `max`. */
static int split(char *line, char **ret, int max)
{
	int n = 0;

	while (n < max && line)
		ret[n++] = strsep(&line, ":");
	return n;
}

static bool passwd_line(char *line, const char *name, struct user *u)
{
	char *f[7];
	uint32_t uid, gid;

	if (split(line, f, 7) < 6 || !parse_id(f[2], '\0', &uid) ||
	    !parse_id(f[3], '\0', &gid))
		return false;
	if (name ? strcmp(f[0], name) != 0 : uid != u->uid)
		return false;
	u->uid = uid;
	u->gid = gid;
	base_strcpy(u->name, sizeof(u->name), f[0]);
	base_strcpy(u->home, sizeof(u->home), f[5]);
	return true;
}

/* By name, or (NULL) by u->uid. */
static bool passwd_find(const char *name, struct user *u)
{
	SCOPED_FREE char *text = read_small("/etc/passwd");
	char *rest = text, *line;

	while ((line = strsep(&rest, "\n")))
		if (passwd_line(line, name, u))
			return true;
	return false;
}

static bool user_find(const char *spec, struct user *u)
{
	const char *colon = strchr(spec, ':');
	uint32_t gid = 0;

	*u = (struct user){ .home = "/" };
	if (!*spec)
		spec = "0";
	if (!parse_id(spec, colon ? ':' : '\0', &u->uid))
		return !colon && passwd_find(spec, u);
	if (colon && !parse_id(colon + 1, '\0', &gid))
		return false;
	u->gid = u->uid;
	snprintf(u->name, sizeof(u->name), "%u", u->uid);
	if (!passwd_find(NULL, u) && !u->uid)
		base_strcpy(u->name, sizeof(u->name), "root");
	if (colon)
		u->gid = gid;
	return true;
}

static bool listed(char *members, const char *name)
{
	char *m;

	while ((m = strsep(&members, ",")))
		if (!strcmp(m, name))
			return true;
	return false;
}

static void groups_find(struct spawn *s, const char *name)
{
	SCOPED_FREE char *text = read_small("/etc/group");
	char *rest = text, *line, *f[4];
	uint32_t gid;

	s->groups[s->nr_groups++] = s->gid;
	while ((line = strsep(&rest, "\n")) &&
	       s->nr_groups < (int)ARRAY_LEN(s->groups))
		if (split(line, f, 4) == 4 && parse_id(f[2], '\0', &gid) &&
		    gid != s->gid && listed(f[3], name))
			s->groups[s->nr_groups++] = gid;
}

/* --- environment ---------------------------------------------------------- */

static bool same_key(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return n == strcspn(b, "=") && !strncmp(a, b, n);
}

/* Later settings replace earlier ones of the same name. Takes kv. */
static void env_set(char **env, size_t *nr, char *kv)
{
	for (size_t i = 0; i < *nr; i++)
		if (same_key(env[i], kv)) {
			free(env[i]);
			env[i] = kv;
			return;
		}
	env[(*nr)++] = kv;
}

static char **env_make(const struct user *u, const char *const *given,
		       size_t nr_given)
{
	char **env = base_alloc((nr_given + 8) * sizeof(*env));
	size_t nr = 0;

	env_set(env, &nr,
		base_strdup("PATH=/usr/local/sbin:/usr/local/bin:"
			    "/usr/sbin:/usr/bin:/sbin:/bin"));
	env_set(env, &nr, base_printf("HOME=%s", u->home));
	env_set(env, &nr, base_printf("USER=%s", u->name));
	env_set(env, &nr, base_printf("LOGNAME=%s", u->name));
	for (size_t i = 0; i < nr_given; i++)
		if (strchr(given[i], '='))
			env_set(env, &nr, base_strdup(given[i]));
	return env;
}

static char **argv_make(const char *const *given, size_t nr)
{
	char **argv = base_alloc((nr + 1) * sizeof(*argv));

	for (size_t i = 0; i < nr; i++)
		argv[i] = base_strdup(given[i]);
	return argv;
}

int spawn_prepare(struct spawn *s, const struct agent_exec_start *r,
		  char *ret_why, size_t len)
{
	SCOPED_FREE const char **list =
		base_alloc((AGENT_ARGS_MAX + 1) * sizeof(*list));
	struct user u;
	int n;

	*s = (struct spawn){ .in = -1, .out = -1, .err = -1, .status = -1 };
	if (!user_find(r->user, &u)) {
		snprintf(ret_why, len,
			 "no user \"%s\" in the guest's /etc/passwd; give a "
			 "name that is there, or uid[:gid]",
			 r->user);
		return -ENOENT;
	}
	s->uid = u.uid;
	s->gid = u.gid;
	groups_find(s, u.name);
	s->cwd_given = *r->cwd;
	s->cwd = base_strdup(*r->cwd ? r->cwd : u.home);
	n = agent_strs_get(&r->argv, list, AGENT_ARGS_MAX + 1);
	POST(n > 0); /* the decoder has seen to it */
	s->argv = argv_make(list, (size_t)n);
	n = agent_strs_get(&r->env, list, AGENT_ARGS_MAX + 1);
	POST(n >= 0);
	s->env = env_make(&u, list, (size_t)n);
	return 0;
}

static void free_list(char **l)
{
	for (char **p = l; p && *p; p++)
		free(*p);
	free(l);
}

void spawn_done(struct spawn *s)
{
	free_list(s->argv);
	free_list(s->env);
	free((char *)(uintptr_t)s->cwd);
	*s = (struct spawn){ 0 };
}

/* --- the child: signal-safe from here on ---------------------------------- */

static _Noreturn void child_fail(const struct spawn *s, enum spawn_stage stage)
{
	const int msg[2] = { errno, (int)stage };

	if (write(s->status, msg, sizeof(msg)) != sizeof(msg))
		_exit(126);
	_exit(127);
}

static void child_signals(void)
{
	const struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		sigaction(i, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The agent is spared when memory runs out; what it starts is not. */
static void child_oom(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "0", 1) == 1)
		close(fd);
}

static void child_setup(const struct spawn *s)
{
	const struct rlimit files = { 1024, 524288 };

	if (setsid() < 0 || dup2(s->in, 0) < 0 || dup2(s->out, 1) < 0 ||
	    dup2(s->err, 2) < 0)
		child_fail(s, SPAWN_SETUP);
	child_signals();
	child_oom();
	setrlimit(RLIMIT_NOFILE, &files); /* lower is as good */
	umask(022);
}

static void child_user(const struct spawn *s)
{
	if (!s->uid && !s->gid && geteuid() == 0) {
		setgroups((size_t)s->nr_groups, s->groups);
		return;
	}
	if (geteuid() == s->uid && getegid() == s->gid)
		return; /* already, as when the agent isn't root */
	if (setgroups((size_t)s->nr_groups, s->groups) ||
	    setresgid(s->gid, s->gid, s->gid) ||
	    setresuid(s->uid, s->uid, s->uid))
		child_fail(s, SPAWN_USER);
}

static const char *child_path(char *const *env)
{
	for (; *env; env++)
		if (!strncmp(*env, "PATH=", 5))
			return *env + 5;
	return "";
}

/* execvp(3) with the PATH of the new environment and no allocation */
static void child_exec(const struct spawn *s)
{
	const char *name = s->argv[0], *dir = child_path(s->env);
	char path[PATH_MAX];
	int seen = ENOENT;

	if (strchr(name, '/')) {
		execve(name, s->argv, s->env);
		return;
	}
	for (; *dir; dir += strspn(dir, ":")) {
		size_t n = strcspn(dir, ":"), len = strlen(name);

		if (n + len + 2 <= sizeof(path)) {
			memcpy(path, dir, n);
			path[n] = '/';
			memcpy(path + n + 1, name, len + 1);
			execve(path, s->argv, s->env);
			if (errno != ENOENT && errno != ENOTDIR)
				seen = errno;
		}
		dir += n;
	}
	errno = seen;
}

int spawn_fork(const struct spawn *s, pid_t *ret_pid)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid) {
		*ret_pid = pid;
		return 0;
	}
	child_setup(s);
	child_user(s);
	if (chdir(s->cwd) && (s->cwd_given || chdir("/")))
		child_fail(s, SPAWN_CWD);
	child_exec(s);
	child_fail(s, SPAWN_EXEC);
}

/* --- hooks ------------------------------------------------------------------ */

#define HOOKS_MAX 64
#define HOOK_SECONDS 10

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static uint32_t hooks_find(const char *folder, char **ret, uint32_t max)
{
	DIR *d = opendir(folder);
	struct dirent *en;
	uint32_t nr = 0;

	while (d && nr < max && (en = readdir(d))) {
		char *path = base_printf("%s/%s", folder, en->d_name);
		struct stat st;

		if (en->d_name[0] != '.' && !stat(path, &st) &&
		    S_ISREG(st.st_mode) && st.st_mode & 0100)
			ret[nr++] = path;
		else
			free(path);
	}
	if (d)
		closedir(d);
	qsort(ret, nr, sizeof(*ret), by_text);
	return nr;
}

static _Noreturn void hooks_run(char *const *path, uint32_t nr)
{
	char search[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
	char *const env[] = { search, NULL };

	setsid();
	child_signals();
	child_oom();
	for (uint32_t i = 0; i < nr; i++) {
		char *const argv[] = { path[i], NULL };
		pid_t pid = fork();

		if (!pid) {
			alarm(HOOK_SECONDS);
			execve(path[i], argv, env);
			_exit(127);
		}
		if (pid > 0)
			waitpid(pid, NULL, 0);
	}
	_exit(0);
}

void spawn_hooks(const char *folder)
{
	char *path[HOOKS_MAX];
	uint32_t nr = hooks_find(folder, path, HOOKS_MAX);

	if (nr && !fork())
		hooks_run(path, nr);
	for (uint32_t i = 0; i < nr; i++)
		free(path[i]);
}
