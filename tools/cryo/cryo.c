/*
 * cryo: shared by the verbs: waiting for operations, walking lists,
 * printing.
 *
 * How waiting works: the command goes out with ?wait, so a quick operation
 * is one round trip; else its operation is asked for again and again, each
 * time waiting on the server. The daemon may restart meanwhile.
 *
 * Invariants: an operation that was accepted is followed to its end; an
 * operation that failed is an error with the operation's own reason.
 */
#include "tools/cryo/cryo.h"

#include <stdio.h>

#define CRYO_WAIT_FIRST_S 2 /* after that, say what we wait for */
#define CRYO_WAIT_S 30
#define CRYO_PAGE_ITEMS "200"

const char *cryo_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s && *s ? s : "-";
}

int64_t cryo_int(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

bool cryo_bool(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

void cryo_print_json(const json_t *j)
{
	SCOPED(buf_done) struct buf b = { 0 };

	if (json_canonical(&b, j) < 0)
		NEVER("the server's documents have no floats");
	fwrite(b.p, 1, b.len, stdout);
	putchar('\n');
}

int cryo_usage(struct cryo *x, const struct args_spec *spec, struct err *e)
{
	x->usage = true;
	return err_set(e, -EINVAL, ERR_INVALID, "usage: cryo %s %s", spec->verb,
		       spec->usage);
}

int cryo_flush(struct err *e)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	return err_set(e, -EIO, ERR_INTERNAL,
		       "standard output could not be written (full disk or "
		       "closed pipe)");
}

void cryo_session_path(struct buf *b, const char *session, const char *rest)
{
	buf_put_str(b, "/v1/sessions/");
	client_segment(b, session);
	if (rest)
		buf_printf(b, "/%s", rest);
}

/* --- operations ----------------------------------------------------------- */

static bool cryo_ended(const json_t *op)
{
	return strcmp(cryo_text(op, "state"), "open") != 0;
}

static void cryo_say_waiting(const json_t *op)
{
	const char *stage = cryo_text(op, "stage");

	fprintf(stderr, "cryo: %s: %s ...\n", cryo_text(op, "kind"),
		strcmp(stage, "-") ? stage : "under way");
}

/* A failed operation's own words, with its own code. */
static int cryo_failed(const json_t *op, struct err *e)
{
	const json_t *why = json_object_get(op, "failure");
	enum err_code code = ERR_INTERNAL;

	for (int i = 0; i < ERR_NR; i++)
		if (!strcmp(err_word((enum err_code)i), cryo_text(why, "code")))
			code = (enum err_code)i;
	return err_set(e, -EIO, code, "%s", cryo_text(why, "detail"));
}

static int cryo_poll(struct cryo *x, json_t **op, struct err *e)
{
	struct client_retry retry = { 0 };

	while (!cryo_ended(*op)) {
		SCOPED(buf_done) struct buf path = { 0 };
		json_t *next = NULL;
		int r;

		buf_printf(&path, "/v1/operations/%s?wait=%d",
			   cryo_text(*op, "id"), CRYO_WAIT_S);
		r = client_call(x->client, "GET", buf_cstr(&path), NULL, &next,
				e);
		if (r < 0 && e->code == ERR_BUSY && client_retry_wait(&retry))
			continue;
		if (r < 0)
			return err_wrap(e, r, "following operation %s",
					cryo_text(*op, "id"));
		retry = (struct client_retry){ 0 };
		/* which point was meant is said in the first answer only */
		json_object_set(next, "found", json_object_get(*op, "found"));
		json_decref(*op);
		*op = next;
	}
	return 0;
}

int cryo_operate(struct cryo *x, const char *method, const char *path,
		 const json_t *body, json_t **ret, struct err *e)
{
	SCOPED(buf_done) struct buf full = { 0 };
	SCOPED_JSON json_t *op = NULL;
	char wait[16];
	int r;

	buf_put_str(&full, path);
	snprintf(wait, sizeof(wait), "%d", CRYO_WAIT_FIRST_S);
	client_query(&full, "wait", wait);
	r = client_call(x->client, method, buf_cstr(&full), body, &op, e);
	if (r < 0)
		return r;
	if (!json_is_object(op))
		return err_set(e, -EPROTO, ERR_INTERNAL,
			       "the daemon answered %s %s without an operation",
			       method, path);
	if (!cryo_ended(op)) {
		cryo_say_waiting(op);
		r = cryo_poll(x, &op, e);
		if (r < 0)
			return r;
	}
	r = strcmp(cryo_text(op, "state"), "failed") ? 0 : cryo_failed(op, e);
	*ret = STEAL(op);
	return r;
}

int cryo_session_verb(struct cryo *x, const char *session, const char *verb,
		      const json_t *body, json_t **ret, struct err *e)
{
	SCOPED(buf_done) struct buf path = { 0 };

	cryo_session_path(&path, session, verb);
	return cryo_operate(x, "POST", buf_cstr(&path), body, ret, e);
}

/* --- lists ---------------------------------------------------------------- */

static int cryo_list_page(struct cryo *x, const char *path, const char *after,
			  json_t **ret, struct err *e)
{
	SCOPED(buf_done) struct buf full = { 0 };

	buf_put_str(&full, path);
	client_query(&full, "limit", CRYO_PAGE_ITEMS);
	client_query(&full, "after", after);
	return client_call(x->client, "GET", buf_cstr(&full), NULL, ret, e);
}

int cryo_list(struct cryo *x, const char *path, cryo_item_fn fn, void *ctx,
	      struct err *e)
{
	SCOPED_FREE char *after = NULL;

	for (;;) {
		SCOPED_JSON json_t *page = NULL;
		json_t *item;
		const char *next;
		size_t i;
		int r = cryo_list_page(x, path, after, &page, e);

		if (r < 0)
			return r;
		json_array_foreach(json_object_get(page, "items"), i, item) {
			r = fn(ctx, item);
			if (r)
				return r;
		}
		next = json_string_value(json_object_get(page, "next"));
		if (!next)
			return 0;
		free(after);
		after = base_strdup(next);
	}
}
