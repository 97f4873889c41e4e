/*
 * show: rows as the documents that clients see. What is in a document is a
 * promise; a row may change without it.
 *
 * Invariants: times are RFC 3339 in UTC, durations text such as "1m",
 * sizes whole numbers with the unit in the name; what is not known or does
 * not apply is left out.
 */
#include "api/v1/v1.h"

void v1_put_time(json_t *o, const char *key, int64_t wall_ns)
{
	char text[CLOCK_TEXT_LEN];

	if (!wall_ns)
		return;
	clock_format(text, wall_ns);
	json_put_str(o, key, text);
}

/* A row's "x_ns" becomes a document's "x". */
void v1_rename_time(json_t *o, const char *from, const char *to)
{
	struct err ignore;
	int64_t ns;

	if (json_get_ns(o, from, &ns, &ignore) == 0)
		v1_put_time(o, to, ns);
	json_object_del(o, from);
}

void v1_put_duration(json_t *o, const char *key, int64_t ns)
{
	char text[48];

	clock_format_duration(text, sizeof(text), ns);
	json_put_str(o, key, text);
}

static void v1_put_word(json_t *o, const char *key, const char *value)
{
	json_put_str(o, key, value && *value ? value : NULL);
}

static json_t *v1_ref_json(const struct point_ref *p)
{
	json_t *o;

	if (!p->id[0])
		return NULL;
	o = json_object();
	json_put_str(o, "id", p->id);
	json_put_str(o, "session", p->session);
	json_put_int(o, "epoch", (int64_t)p->epoch);
	v1_put_time(o, "time", p->time_ns);
	return o;
}

static void v1_put_ref(json_t *o, const char *key, const struct point_ref *p)
{
	json_t *ref = v1_ref_json(p);

	if (ref)
		json_object_set_new(o, key, ref);
}

static void v1_put_spec(json_t *o, const struct session_spec *spec)
{
	v1_put_word(o, "template", spec->template);
	json_put_int(o, "memory_mib", spec->memory_mib);
	json_put_int(o, "vcpus", spec->vcpus);
	json_put_int(o, "disk_mib", spec->disk_mib);
	json_put_str(o, "keep", session_keep_words[spec->keep]);
	if (spec->snapshot_every_ns)
		v1_put_duration(o, "snapshot_every", spec->snapshot_every_ns);
}

/* The limit counts running time only, so what is left is the honest value. */
static void v1_put_ttl(json_t *o, const struct session *s,
		       const struct api_conf *conf)
{
	int64_t left;

	if (!s->spec.ttl_ns)
		return;
	left = session_ttl_left(s, clock_mono(conf->clock), s->running_boot);
	v1_put_duration(o, "ttl", s->spec.ttl_ns);
	v1_put_duration(o, "ttl_left", MAX(left, 0) / NS_PER_S * NS_PER_S);
}

static json_t *v1_failure_json(int code, const char *why)
{
	json_t *o = json_object();

	json_put_str(o, "code",
		     code >= 0 && code < ERR_NR ? err_word((enum err_code)code)
						: "internal");
	json_put_str(o, "detail", why);
	return o;
}

json_t *v1_session_json(const struct session *s, const struct api_conf *conf)
{
	json_t *o = json_object();
	struct point_ref base = point_ref_of(&s->base);

	json_put_str(o, "id", s->id);
	v1_put_word(o, "name", s->name);
	v1_put_word(o, "tenant", s->tenant);
	json_put_str(o, "state", session_state_word(s->state));
	json_put_int(o, "epoch", (int64_t)s->epoch);
	v1_put_spec(o, &s->spec);
	v1_put_ttl(o, s, conf);
	v1_put_word(o, "parent", s->parent);
	v1_put_ref(o, "base", &base);
	v1_put_ref(o, "head", &s->head);
	v1_put_ref(o, "undo", &s->undo);
	json_put_int(o, "snapshots", (int64_t)s->points);
	json_put_int(o, "stored_bytes", (int64_t)s->stored_bytes);
	json_put_int(o, "forks", (int64_t)s->children);
	json_put_bool(o, "capturing", session_capturing(s));
	v1_put_word(o, "operation", s->op.id);
	v1_put_word(o, "backend", s->backend);
	v1_put_word(o, "accel", s->accel);
	json_put_bool(o, "agent", s->agent);
	if (s->stalled)
		json_put_str(o, "stalled", s->stall_why);
	if (s->state == SESSION_FAILED)
		json_object_set_new(o, "failure",
				    v1_failure_json(s->fail_code, s->fail_why));
	v1_put_word(o, "created_by", s->actor);
	v1_put_time(o, "created", s->created_ns);
	v1_put_time(o, "changed", s->changed_ns);
	v1_put_time(o, "started", s->started_ns);
	return o;
}

json_t *v1_point_json(const struct point *p, bool on_line)
{
	json_t *o = json_object();

	json_put_str(o, "id", p->id);
	json_put_str(o, "session", p->session);
	v1_put_time(o, "time", p->time_ns);
	json_put_int(o, "epoch", (int64_t)p->epoch);
	json_put_int(o, "seq", (int64_t)p->seq);
	v1_put_word(o, "parent", p->parent);
	json_put_str(o, "kind", point_kind_words[p->kind]);
	v1_put_word(o, "name", p->name);
	json_put_bool(o, "on_line", on_line);
	json_put_bool(o, "keyframe", p->keyframe);
	json_put_bool(o, "unquiesced", p->unquiesced);
	json_put_int(o, "memory_pages", (int64_t)p->memory_pages);
	json_put_int(o, "disk_pages", (int64_t)p->disk_pages);
	json_put_int(o, "stored_bytes", (int64_t)p->stored_bytes);
	json_put_int(o, "freeze_us", (int64_t)p->freeze_us);
	json_put_int(o, "capture_us", (int64_t)p->capture_us);
	json_put_hex(o, "root", p->root, sizeof(p->root));
	return o;
}

json_t *v1_exec_json(const struct exec *x)
{
	json_t *o = json_object();

	json_put_str(o, "id", x->id);
	json_put_str(o, "session", x->session);
	v1_put_word(o, "origin", x->origin);
	json_put_int(o, "epoch", (int64_t)x->epoch);
	json_put_str(o, "state", fsm_name(&exec_fsm, (int)x->state));
	if (x->state == EXEC_EXITED) {
		json_put_int(o, "code", x->code);
		if (x->signal)
			json_put_int(o, "signal", x->signal);
		json_put_int(o, "stdout_bytes", (int64_t)x->out);
		json_put_int(o, "stderr_bytes", (int64_t)x->err);
	}
	v1_put_word(o, "why", x->why);
	json_object_set(o, "argv", x->argv);
	json_object_set(o, "env", x->env);
	v1_put_word(o, "cwd", x->cwd);
	v1_put_word(o, "user", x->user);
	json_put_bool(o, "stdin", x->has_stdin);
	v1_put_time(o, "started", x->started_ns);
	v1_put_time(o, "ended", x->ended_ns);
	return o;
}

json_t *v1_operation_json(const struct operation *op)
{
	json_t *o = json_object();
	bool broken = op->state == OPERATION_BROKEN;

	json_put_str(o, "id", op->id);
	json_put_str(o, "kind", operation_kind_words[op->kind]);
	json_put_str(o, "state", fsm_name(&operation_fsm, (int)op->state));
	json_put_str(o, "session", op->session);
	if (op->state == OPERATION_OPEN)
		v1_put_word(o, "stage", op->stage);
	if (broken)
		json_object_set_new(o, "failure",
				    v1_failure_json(op->error_code, op->error));
	v1_put_word(o, "point", op->point);
	if (op->sessions && json_array_size(op->sessions))
		json_object_set(o, "sessions", op->sessions);
	v1_put_time(o, "accepted", op->accepted_ns);
	v1_put_time(o, "ended", op->ended_ns);
	return o;
}
