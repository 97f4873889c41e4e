/*
 * session_exec: commands inside a sandbox. Values of env live in the effect
 * only; an event has their names. What the guest says about its execs is a
 * claim: a tag it made up is never given a row, except in the first sandbox
 * of a fork, whose memory holds the parent's execs.
 */
#include "core/session_internal.h"

static bool usable(struct decide *x)
{
	const struct session *s = x->s;
	const struct command *c = x->c;

	if (!s || s->park || (!c->admin && strcmp(s->tenant, c->tenant))) {
		decide_refuse(x, -ENOENT, ERR_NOT_FOUND,
			      "no session %s: `cryo ls` lists those there are",
			      c->session);
	} else if (s->state == SESSION_CREATING || s->state == SESSION_RESUMING ||
		   (s->state == SESSION_RUNNING && s->op.id[0] &&
		    s->op.kind != OPERATION_SNAPSHOT &&
		    s->op.kind != OPERATION_FORK)) {
		decide_busy(x);
	} else if (s->state != SESSION_RUNNING) {
		decide_refuse(x, -EPERM, ERR_CONFLICT,
			      "session %s is %s: no command can run in it; "
			      "`cryo resume %s` starts it again",
			      s->id, session_state_word(s->state), s->id);
	}
	return !decide_refused(x);
}

static bool all_strings(const json_t *list)
{
	json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
		if (!json_is_string(v))
			return false;
	return true;
}

static bool bounded(const json_t *j)
{
	struct buf b SCOPED(buf_done) = { 0 };

	return !j || (!json_canonical(&b, j) && b.len <= EXEC_ARGV_MAX);
}

static bool good_env(const json_t *env)
{
	const char *key;
	json_t *v;

	if (!env)
		return true;
	if (!json_is_object(env))
		return false;
	json_object_foreach((json_t *)(uintptr_t)env, key, v)
		if (!key[0] || strchr(key, '=') || !json_is_string(v))
			return false;
	return true;
}

static bool good_exec(struct decide *x)
{
	const struct command *c = x->c;

	if (!json_is_array(c->argv) || !json_array_size(c->argv) ||
	    !all_strings(c->argv))
		decide_refuse(x, -EINVAL, ERR_INVALID,
			      "argv must be a list of at least one string");
	else if (!good_env(c->env))
		decide_refuse(x, -EINVAL, ERR_INVALID,
			      "env must be an object of strings; a name is "
			      "not empty and has no '='");
	else if (!bounded(c->argv) || !bounded(c->env))
		decide_refuse(x, -E2BIG, ERR_TOO_LARGE,
			      "argv and env may each be at most %u KiB: put "
			      "more into a file or into stdin",
			      EXEC_ARGV_MAX >> 10);
	else if (c->cwd && (strlen(c->cwd) > EXEC_CWD_MAX || c->cwd[0] != '/'))
		decide_refuse(x, -EINVAL, ERR_INVALID,
			      "cwd must be an absolute path of at most %d "
			      "bytes",
			      EXEC_CWD_MAX);
	else if (x->f->have_exec || (c->exec[0] && !id_valid(c->exec)))
		decide_refuse(x, -EEXIST, ERR_CONFLICT,
			      "\"%s\" is the id of another exec, or none",
			      c->exec);
	else if (x->f->running >= x->f->limits->execs_max)
		decide_refuse(x, -EDQUOT, ERR_LIMIT,
			      "%u commands run in session %s already, the "
			      "limit: wait for one to end",
			      x->f->running, x->s->id);
	else if (!x->s->agent)
		decide_refuse(x, -EHOSTUNREACH, ERR_CONFLICT,
			      "the agent in session %s does not answer: no "
			      "command can be started; rewind it or fork it "
			      "at an earlier point",
			      x->s->id);
	return !decide_refused(x);
}

static json_t *env_names(json_t *env)
{
	json_t *names = json_array(), *v;
	const char *key;

	json_object_foreach(env, key, v)
		json_array_append_new(names, json_string(key));
	return names;
}

static void start_effect(struct decide *x, const char *id)
{
	const struct command *c = x->c;
	struct effect *fx = decide_effect(x, EFFECT_EXEC_START);

	fx->operation[0] = 0;
	base_strcpy(fx->exec, sizeof(fx->exec), id);
	base_strcpy(fx->tag, sizeof(fx->tag), id);
	base_strcpy(fx->user, sizeof(fx->user), c->user);
	fx->argv = json_incref(c->argv);
	fx->env = json_incref(c->env);
	fx->cwd = c->cwd ? base_strdup(c->cwd) : NULL;
	fx->has_stdin = c->has_stdin;
	fx->tty = c->tty;
}

void decide_exec_start(struct decide *x)
{
	const struct command *c = x->c;
	const char *id = c->exec[0] ? c->exec : c->fresh;
	json_t *data;

	if (!usable(x) || !good_exec(x))
		return;
	data = decide_event(x, EVENT_EXEC_STARTED);
	json_put_str(data, "id", id);
	json_put_str(data, "tag", id);
	json_put_int(data, "epoch", (int64_t)x->s->epoch);
	json_object_set(data, "argv", c->argv);
	json_put_str(data, "cwd", c->cwd);
	json_put_str(data, "user", c->user[0] ? c->user : NULL);
	if (c->env)
		json_object_set_new(data, "env", env_names(c->env));
	if (c->env_digest[0])
		json_put_str(data, "env_digest", c->env_digest);
	json_put_bool(data, "stdin", c->has_stdin);
	json_put_bool(data, "tty", c->tty);
	decide_put_idem(x, data);
	start_effect(x, id);
	base_strcpy(x->d->exec, sizeof(x->d->exec), id);
}

void decide_exec_signal(struct decide *x)
{
	const struct command *c = x->c;
	const struct exec *run = &x->f->exec;
	struct effect *fx;
	json_t *data;

	if (!usable(x))
		return;
	if (!x->f->have_exec || strcmp(run->session, x->s->id))
		decide_refuse(x, -ENOENT, ERR_NOT_FOUND,
			      "no exec %s in "
			      "session %s",
			      c->exec, x->s->id);
	else if (run->state != EXEC_RUNNING)
		decide_refuse(x, -ESRCH, ERR_CONFLICT,
			      "exec %s has ended already (%s)", run->id,
			      fsm_name(&exec_fsm, (int)run->state));
	else if (c->signal < 1 || c->signal > 64)
		decide_refuse(x, -EINVAL, ERR_INVALID,
			      "there is no signal %d: 1 to 64", c->signal);
	if (decide_refused(x))
		return;
	data = decide_event(x, EVENT_EXEC_SIGNALLED);
	json_put_str(data, "id", run->id);
	json_put_int(data, "signal", c->signal);
	fx = decide_effect(x, EFFECT_EXEC_SIGNAL);
	fx->operation[0] = 0;
	base_strcpy(fx->exec, sizeof(fx->exec), run->id);
	base_strcpy(fx->tag, sizeof(fx->tag), run->tag);
	fx->signal = c->signal;
	base_strcpy(x->d->exec, sizeof(x->d->exec), run->id);
}

void decide_exec_exited(struct decide *x)
{
	const struct command *c = x->c;
	const struct exec *run = &x->f->exec;
	json_t *data;

	if (!x->s || !x->f->have_exec || run->state != EXEC_RUNNING ||
	    c->epoch != x->s->epoch || x->s->state == SESSION_STOPPING)
		return;
	data = decide_event(x, EVENT_EXEC_EXITED);
	json_put_str(data, "id", run->id);
	json_put_int(data, "code", c->code);
	json_put_int(data, "signal", c->signal);
	json_put_int(data, "out", (int64_t)MIN(c->out_len, 1ull << 52));
	json_put_int(data, "err", (int64_t)MIN(c->err_len, 1ull << 52));
	if (c->err.msg[0])
		json_put_str(data, "error", c->err.msg);
	base_strcpy(x->d->exec, sizeof(x->d->exec), run->id);
}

/* --- what is alive after a restore --------------------------------------- */

static const struct exec *by_tag(const struct exec *list, int nr, const char *tag)
{
	for (int i = 0; i < nr; i++)
		if (!strcmp(list[i].tag, tag))
			return &list[i];
	return NULL;
}

static void adopt(struct decide *x, const char *id, const char *origin,
		  const struct exec *known, const struct exec_hello *h)
{
	json_t *data = decide_event(x, EVENT_EXEC_ADOPTED);

	json_put_str(data, "id", id);
	json_put_str(data, "tag", h->tag);
	json_put_str(data, "origin", origin[0] ? origin : NULL);
	json_put_int(data, "epoch", (int64_t)x->s->epoch);
	json_put_int(data, "out", (int64_t)MIN(h->out, 1ull << 52));
	json_put_int(data, "err", (int64_t)MIN(h->err, 1ull << 52));
	if (!known)
		return;
	if (known->argv)
		json_object_set(data, "argv", known->argv);
	if (known->env)
		json_object_set(data, "env", known->env);
	json_put_str(data, "cwd", known->cwd[0] ? known->cwd : NULL);
	json_put_str(data, "user", known->user[0] ? known->user : NULL);
	json_put_bool(data, "stdin", known->has_stdin);
	json_put_bool(data, "tty", known->tty);
}

static void greet_own(struct decide *x, const struct exec *own,
		      const struct exec_hello *h, bool starting)
{
	if (h->exited && own->state == EXEC_EXITED)
		return; /* its exit was recorded, only not acknowledged */
	if (!starting && own->state == EXEC_RUNNING)
		return;
	adopt(x, own->id, own->origin, own, h);
}

static void lose(struct decide *x, const struct exec *run, const char *why)
{
	json_t *data = decide_event(x, EVENT_EXEC_LOST);

	json_put_str(data, "id", run->id);
	json_put_str(data, "why", why);
}

static bool said(const struct command *c, const char *tag)
{
	for (int i = 0; i < c->nr_hello; i++)
		if (!strcmp(c->hello[i].tag, tag))
			return true;
	return false;
}

static void lose_unsaid(struct decide *x, bool starting)
{
	const struct facts *f = x->f;

	for (int i = 0; i < f->nr_execs; i++) {
		const struct exec *run = &f->execs[i];

		if (run->state != EXEC_RUNNING || said(x->c, run->tag))
			continue;
		if (starting)
			lose(x, run,
			     "it was not yet running, or no longer, "
			     "at the point the session went back to");
		else if (run->started_ns <= x->c->hello_ns)
			lose(x, run, "the guest does not know it");
	}
}

void decide_hello(struct decide *x, bool starting)
{
	const struct command *c = x->c;
	const struct facts *f = x->f;
	bool foreign;

	if (!x->s || !c->hello_known || c->epoch != x->s->epoch)
		return;
	if (!starting && x->s->state != SESSION_RUNNING &&
	    x->s->state != SESSION_PAUSED)
		return;
	foreign = starting && x->s->start.id[0] &&
		  strcmp(x->s->start.session, x->s->id) != 0;
	for (int i = 0; i < c->nr_hello; i++) {
		const struct exec_hello *h = &c->hello[i];
		const struct exec *own = by_tag(f->execs, f->nr_execs, h->tag);
		const struct exec *from =
			by_tag(f->origins, f->nr_origins, h->tag);

		if (own)
			greet_own(x, own, h, starting);
		else if (foreign)
			adopt(x, f->ids[i].s, from ? from->id : "", from, h);
	}
	lose_unsaid(x, starting);
}
