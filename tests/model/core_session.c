/*
 * Exhausts the life of a session: from an empty node, every command a client
 * can give and every outcome a driver can report (also such that nobody
 * waits for, of another epoch, or told twice) is tried in every state that
 * can be reached, with the real engine over a store in memory.
 *
 * A state is what matters for what may happen next: see print_state(). Three
 * searches, each to its end: the life of one session; the first create of a
 * template, with the park session that it makes; a fork and its parent.
 *
 * For each state
 *   - folding its log gives its rows;
 *   - each open operation is held by a session, each slot by an open one;
 *   - destroy is accepted, or under way;
 *   - the daemon is killed and starts again, with the sandboxes alive or
 *     gone, and a driver that from then on does as it is told, fails at
 *     everything, loses every sandbox, or never answers: every operation
 *     comes to an end, and a destroy then leaves nothing behind.
 */
#include "core/engine.h"
#include "core/rows.h"

#include "tests/memstore.h"
#include "tests/tap.h"

#define TENANT "t0000000000000000001"
#define DIGEST64 \
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SUBJECT "s0000000000000000001"
#define CHILD "s0000000000000000002"
#define EXEC "e0000000000000000001"
#define STATE_TEXT 400
#define STATES_MAX 20000

enum driver { GOOD, FAILING, DEADLY, SILENT, DRIVERS };

static const char *const driver_names[DRIVERS] = { "good", "failing", "deadly",
						   "silent" };

static struct clock_virtual clk;
static uint64_t ids;

/* --- a node -------------------------------------------------------------- */

struct node {
	struct memstore *m;
	struct engine *en;
	struct backend backend;
	struct effect *fx[256];
	int nr_fx;
	struct reply reply;
};

static void new_id(struct id *ret)
{
	snprintf(ret->s, sizeof(ret->s), "w%019llu", (unsigned long long)++ids);
}

static void collect(void *ctx, struct effect *fx)
{
	struct node *n = ctx;

	if (n->nr_fx == (int)ARRAY_LEN(n->fx))
		bail("effects without end");
	n->fx[n->nr_fx++] = fx;
}

static void node_open(struct node *n, struct memstore *m)
{
	struct engine_conf conf = { .store = &m->port,
				    .clock = &clk.clock,
				    .backend = &n->backend,
				    .limits = limits_default,
				    .batch_max = 2,
				    .new_id = new_id,
				    .boot_id = { 1 } };

	memset(n, 0, sizeof(*n));
	n->m = m;
	n->backend =
		(struct backend){ .name = "model", .ctx = n, .start = collect };
	n->en = engine_new(&conf);
}

static void node_close(struct node *n)
{
	engine_free(n->en);
	for (int i = 0; i < n->nr_fx; i++)
		effect_free(n->fx[i]);
}

static void done(void *ctx, const struct reply *r)
{
	((struct node *)ctx)->reply = *r;
}

static void give(struct node *n, struct command *c)
{
	clock_virtual_advance(&clk, NS_PER_S);
	c->done = done;
	c->done_ctx = n;
	engine_submit(n->en, c);
	while (engine_step(n->en))
		;
}

static struct session row(struct memstore *m, const char *id)
{
	struct reader r = { &mem_ops, m };
	struct session s = { .state = SESSION_NONE };
	struct err e;

	if (!id[0])
		return s;
	mem_begin(m, &e);
	rows_session(&r, id, &s, &e);
	mem_abort(m);
	return s;
}

/* --- the alphabet -------------------------------------------------------- */

static struct command *ask(enum command_kind kind)
{
	struct command *c = command_new(kind);

	base_strcpy(c->tenant, sizeof(c->tenant), TENANT);
	base_strcpy(c->session, sizeof(c->session), SUBJECT);
	c->no_wait = true;
	return c;
}

static struct command *tell(const struct session *s, enum command_kind kind,
			    bool stale)
{
	struct command *c = command_new(kind);

	base_strcpy(c->session, sizeof(c->session), s->id);
	base_strcpy(c->operation, sizeof(c->operation), s->op.id);
	c->epoch = s->epoch;
	if (stale && s->epoch > 1)
		c->epoch--;
	else if (stale)
		c->epoch++;
	c->err.code = ERR_INTERNAL;
	return c;
}

static void make_point(struct command *c, enum point_kind kind)
{
	struct id id;

	new_id(&id);
	base_strcpy(c->made.id, sizeof(c->made.id), id.s);
	c->made.time_ns = clk.wall;
	c->made.kind = kind;
}

static struct command *fork_one(const char *at)
{
	struct command *c = ask(COMMAND_FORK);

	base_strcpy(c->point, sizeof(c->point), at);
	c->nr_children = 1;
	base_strcpy(c->children[0].id, ID_LEN + 1, CHILD);
	return c;
}

static struct command *at_point(enum command_kind kind, const char *point)
{
	struct command *c = ask(kind);

	base_strcpy(c->point, sizeof(c->point), point);
	return c;
}

static struct command *create(enum session_keep keep)
{
	struct command *c = ask(COMMAND_CREATE);

	c->spec.keep = keep;
	c->spec.ttl_ns = NS_PER_S;
	return c;
}

static struct command *start_exec(void)
{
	struct command *c = ask(COMMAND_EXEC_START);

	base_strcpy(c->exec, sizeof(c->exec), EXEC);
	c->argv = json_pack("[s]", "true");
	return c;
}

static struct command *with_hello(struct command *c, bool said)
{
	struct exec_hello *h = command_hello(c, said);

	if (said)
		base_strcpy(h[0].tag, sizeof(h[0].tag), EXEC);
	c->hello_ns = clk.wall;
	c->agent = true;
	return c;
}

static struct command *captured(const struct session *s, bool asked, bool stay,
				bool stale)
{
	struct command *c = tell(s, COMMAND_CAPTURED, stale);

	make_point(c, POINT_ROLLING);
	c->stay_stopped = stay;
	if (!asked)
		c->operation[0] = 0;
	return c;
}

static struct command *failed(const struct session *s, enum effect_kind kind)
{
	struct command *c = tell(s, COMMAND_EFFECT_FAILED, false);

	c->effect = kind;
	base_strcpy(c->tag, sizeof(c->tag), EXEC);
	return c;
}

static struct command *skipped(const struct session *s, bool asked)
{
	struct command *c = tell(s, COMMAND_CAPTURE_SKIPPED, false);

	c->made.kind = POINT_ROLLING;
	if (!asked)
		c->operation[0] = 0;
	return c;
}

static struct command *exec_cmd(const struct session *s, enum command_kind kind)
{
	struct command *c = kind == COMMAND_EXEC_SIGNAL ? ask(kind)
							: tell(s, kind, false);

	base_strcpy(c->exec, sizeof(c->exec), EXEC);
	base_strcpy(c->tag, sizeof(c->tag), EXEC);
	c->signal = 9;
	return c;
}

/* The commands that clients give; NULL after the last. */
static struct command *client_letter(int i, const struct session *s)
{
	struct command *c;

	switch (i) {
	case 0:
		return create(KEEP_DURABLE);
	case 1:
		return create(KEEP_NONE);
	case 2:
		return ask(COMMAND_PAUSE);
	case 3:
		return ask(COMMAND_CONTINUE);
	case 4:
		return ask(COMMAND_SUSPEND);
	case 5:
		return ask(COMMAND_RESUME);
	case 6:
		return at_point(COMMAND_RESUME, s->base.id);
	case 7:
		return at_point(COMMAND_REWIND, s->base.id);
	case 8:
		c = ask(COMMAND_REWIND);
		c->undo = true;
		return c;
	case 9:
		return ask(COMMAND_SNAPSHOT);
	case 10:
		return ask(COMMAND_DESTROY);
	case 11:
		return s->children ? ask(COMMAND_PAUSE) : fork_one("");
	case 12:
		return s->children ? ask(COMMAND_PAUSE) : fork_one(s->head.id);
	case 13:
		return start_exec();
	case 14:
		return exec_cmd(s, COMMAND_EXEC_SIGNAL);
	case 15:
		c = ask(COMMAND_TTL);
		c->tenant[0] = 0;
		return c;
	default:
		return NULL;
	}
}

/* What a driver may report about a session. */
static struct command *driver_letter(int i, const struct session *s)
{
	switch (i) {
	case 0:
		return with_hello(tell(s, COMMAND_STARTED, false), false);
	case 1:
		return with_hello(tell(s, COMMAND_STARTED, false), true);
	case 2:
		return tell(s, COMMAND_STARTED, true);
	case 3:
		return tell(s, COMMAND_PAUSED, false);
	case 4:
		return tell(s, COMMAND_CONTINUED, false);
	case 5:
		return captured(s, true, false, false);
	case 6:
		return captured(s, false, false, false);
	case 7:
		return captured(s, false, true, false);
	case 8:
		return captured(s, true, true, true);
	case 9:
		return skipped(s, true);
	case 10:
		return skipped(s, false);
	case 11:
		return tell(s, COMMAND_KILLED, false);
	case 12:
		return tell(s, COMMAND_KILLED, true);
	case 13:
		return tell(s, COMMAND_PURGED, false);
	case 14:
		return tell(s, COMMAND_DIED, false);
	case 15:
		return tell(s, COMMAND_DIED, true);
	case 16:
		return tell(s, COMMAND_STALLED, false);
	case 17:
		return tell(s, COMMAND_HEALED, false);
	case 18:
		return exec_cmd(s, COMMAND_EXEC_EXITED);
	case 19:
		return with_hello(tell(s, COMMAND_EXEC_HELLO, false), false);
	case 20:
		return with_hello(tell(s, COMMAND_EXEC_HELLO, false), true);
	case 21:
		return tell(s, COMMAND_OVERDUE, false);
	default:
		if (i - 22 < EFFECT_NR)
			return failed(s, (enum effect_kind)(i - 22));
		return NULL;
	}
}

#define CLIENT_LETTERS 16
#define DRIVER_LETTERS (22 + EFFECT_NR)
/* clients; the driver on subject, child and park */
#define LETTERS (CLIENT_LETTERS + 3 * DRIVER_LETTERS)

/* Letters that are about execs: the life of one session has them. */
#define EXEC_LETTERS (1u << 1 | 1u << 18 | 1u << 19 | 1u << 20)

struct search {
	const char *name;
	uint32_t clients; /* letters of clients, as bits */
	uint32_t driver; /* letters of the driver that are left out */
	bool parked; /* begins with the template parked */
	bool child, park; /* the driver speaks of these as well */
};

static const struct search searches[] = {
	{ "one life", 0xffffu & ~(1u << 11 | 1u << 12), 0, true, false, false },
	{ "first create", 1u << 0 | 1u << 5 | 1u << 10, EXEC_LETTERS, false,
	  false, true },
	{ "fork",
	  1u << 0 | 1u << 2 | 1u << 4 | 1u << 5 | 1u << 9 | 1u << 10 |
		  1u << 11 | 1u << 12,
	  EXEC_LETTERS | 1u << 16 | 1u << 17, true, true, false },
};

static const char *park_id(struct memstore *m)
{
	static char id[ID_LEN + 1];

	id[0] = 0;
	for (size_t i = 0; i < m->now.nr; i++) {
		const struct mem_row *r = m->now.row[i];

		if (r->table == TABLE_PARKS)
			memcpy(id, r->bytes + r->key_len, ID_LEN);
	}
	return id;
}

/* NULL: not in this search, or not in this state. */
static struct command *letter(const struct search *find, struct memstore *m, int i)
{
	struct session s = row(m, SUBJECT);
	int who, what;

	if (i < CLIENT_LETTERS)
		return find->clients & 1u << i ? client_letter(i, &s) : NULL;
	who = (i - CLIENT_LETTERS) / DRIVER_LETTERS;
	what = (i - CLIENT_LETTERS) % DRIVER_LETTERS;
	if ((who == 1 && !find->child) || (who == 2 && !find->park) ||
	    (find->driver & 1u << what))
		return NULL;
	if (who == 1)
		s = row(m, CHILD);
	else if (who == 2)
		s = row(m, park_id(m));
	if (s.state == SESSION_NONE && who)
		return NULL;
	if (s.state == SESSION_NONE)
		base_strcpy(s.id, sizeof(s.id), SUBJECT);
	return driver_letter(what, &s);
}

/* --- states -------------------------------------------------------------- */

static int state_text(const struct session *s, char *text, size_t len)
{
	if (s->state == SESSION_NONE)
		return snprintf(text, len, "-");
	return snprintf(
		text, len, "%s %s/%s%s%s%s%s%s%s%s",
		session_state_word(s->state), operation_kind_words[s->op.kind],
		operation_step_words[s->op.step], s->head.id[0] ? " head" : "",
		strcmp(s->head.session, s->id) ? "" : " own",
		s->undo.id[0] ? " undo" : "", s->waits_on[0] ? " waits" : "",
		s->stalled ? " stalled" : "", s->children ? " forked" : "",
		s->spec.keep == KEEP_NONE ? " none" : "");
}

/* Everything that decides about what may happen next. */
static void print_state(struct memstore *m, char text[STATE_TEXT])
{
	struct session s = row(m, SUBJECT), c = row(m, CHILD);
	struct session p = row(m, park_id(m));
	struct reader r = { &mem_ops, m };
	struct exec x = { .state = EXEC_STATE_NONE };
	struct err e;
	int n = state_text(&s, text, STATE_TEXT);

	mem_begin(m, &e);
	rows_exec(&r, EXEC, &x, &e);
	mem_abort(m);
	n += snprintf(text + n, STATE_TEXT - (size_t)n, " exec %s | child ",
		      fsm_name(&exec_fsm, (int)x.state));
	exec_done(&x);
	n += state_text(&c, text + n, STATE_TEXT - (size_t)n);
	n += snprintf(text + n, STATE_TEXT - (size_t)n, " | park ");
	state_text(&p, text + n, STATE_TEXT - (size_t)n);
}

struct state {
	struct memstore m;
	char text[STATE_TEXT];
	struct state *next; /* in its bucket */
};

#define BUCKETS 4096

static struct state *states[STATES_MAX];
static struct state *buckets[BUCKETS];
static int nr_states;

static uint32_t hash(const char *text)
{
	uint32_t h = 2166136261u;

	while (*text)
		h = (h ^ (uint8_t)*text++) * 16777619u;
	return h % BUCKETS;
}

static bool known(const char *text)
{
	for (struct state *s = buckets[hash(text)]; s; s = s->next)
		if (!strcmp(s->text, text))
			return true;
	return false;
}

static void remember(const struct memstore *m, const char *text)
{
	struct state *s = base_alloc(sizeof(*s));

	if (nr_states == STATES_MAX)
		bail("more than %d states", STATES_MAX);
	memstore_clone(&s->m, m);
	base_strcpy(s->text, sizeof(s->text), text);
	s->next = buckets[hash(text)];
	buckets[hash(text)] = s;
	states[nr_states++] = s;
}

/* --- what must hold ------------------------------------------------------ */

static bool held_by(struct memstore *m, const char *op)
{
	for (size_t i = 0; i < m->now.nr; i++) {
		const struct mem_row *r = m->now.row[i];
		struct session s;
		struct err e;

		if (r->table != TABLE_SESSIONS)
			continue;
		if (session_decode(&s, r->bytes + r->key_len, r->len, &e))
			bail("a session's row is broken: %s", e.msg);
		if (!strcmp(s.op.id, op))
			return true;
	}
	return false;
}

static int open_operations(struct memstore *m)
{
	int n = 0;

	for (size_t i = 0; i < m->now.nr; i++)
		n += m->now.row[i]->table == TABLE_OPERATIONS_OPEN;
	return n;
}

/* Open operations and slots belong together. */
static bool slots_good(struct memstore *m)
{
	for (size_t i = 0; i < m->now.nr; i++) {
		const struct mem_row *r = m->now.row[i];
		char id[ID_LEN + 1] = "";

		if (r->table != TABLE_OPERATIONS_OPEN)
			continue;
		memcpy(id, r->bytes, ID_LEN);
		if (!held_by(m, id))
			return false;
	}
	for (size_t i = 0; i < m->now.nr; i++) {
		const struct mem_row *r = m->now.row[i];
		struct session s;
		struct err e;

		if (r->table != TABLE_SESSIONS)
			continue;
		session_decode(&s, r->bytes + r->key_len, r->len, &e);
		if (s.op.id[0] &&
		    !mem_is(&m->now,
			    mem_lower(&m->now, TABLE_OPERATIONS_OPEN, s.op.id,
				      ID_LEN),
			    TABLE_OPERATIONS_OPEN, s.op.id, ID_LEN))
			return false;
		if ((s.state == SESSION_CREATING || s.state == SESSION_RESUMING) &&
		    !s.op.id[0])
			return false;
	}
	return true;
}

/* --- after a crash ------------------------------------------------------- */

static struct command *answer(const struct effect *fx, enum driver d,
			      struct memstore *m)
{
	static const enum command_kind good[EFFECT_NR] = {
		[EFFECT_BOOT] = COMMAND_STARTED,
		[EFFECT_RESTORE] = COMMAND_STARTED,
		[EFFECT_STOP] = COMMAND_PAUSED,
		[EFFECT_CONT] = COMMAND_CONTINUED,
		[EFFECT_CAPTURE] = COMMAND_CAPTURED,
		[EFFECT_KILL] = COMMAND_KILLED,
		[EFFECT_PURGE] = COMMAND_PURGED,
	};
	struct session s = row(m, fx->session);
	enum command_kind kind = good[fx->kind];
	struct command *c;

	if (d == SILENT || fx->kind == EFFECT_EXEC_START ||
	    fx->kind == EFFECT_EXEC_SIGNAL)
		return NULL;
	if (d == FAILING)
		kind = fx->kind == EFFECT_CAPTURE ? COMMAND_CAPTURE_SKIPPED
						  : COMMAND_EFFECT_FAILED;
	if (d == DEADLY && fx->kind != EFFECT_KILL && fx->kind != EFFECT_PURGE)
		kind = COMMAND_DIED;
	base_strcpy(s.id, sizeof(s.id), fx->session);
	c = tell(&s, kind, false);
	base_strcpy(c->operation, sizeof(c->operation), fx->operation);
	c->epoch = fx->epoch;
	c->effect = fx->kind;
	c->stay_stopped = fx->stay_stopped;
	if (fx->kind == EFFECT_CAPTURE)
		make_point(c, fx->point_kind);
	return c;
}

static void drive(struct node *n, enum driver d)
{
	for (int turn = 0; n->nr_fx; turn++) {
		struct effect *fx = n->fx[0];
		struct command *c = answer(fx, d, n->m);

		if (turn > 500) {
			char text[STATE_TEXT];

			print_state(n->m, text);
			bail("the %s driver never comes to rest: %s of %s in "
			     "\"%s\"",
			     driver_names[d], effect_word(fx->kind),
			     fx->session, text);
		}
		memmove(n->fx, n->fx + 1,
			(size_t)(--n->nr_fx) * sizeof(n->fx[0]));
		effect_free(fx);
		if (c)
			give(n, c);
	}
}

static void add_live(struct memstore *m, const char *id,
		     struct backend_live *list, int *nr)
{
	struct session s = row(m, id);

	if (s.state == SESSION_NONE)
		return;
	base_strcpy(list[*nr].session, ID_LEN + 1, s.id);
	list[(*nr)++].epoch = s.epoch;
}

struct open_ids {
	int nr;
	char id[16][ID_LEN + 1];
};

static void list_open(struct memstore *m, struct open_ids *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < m->now.nr; i++) {
		const struct mem_row *r = m->now.row[i];

		if (r->table == TABLE_OPERATIONS_OPEN &&
		    ret->nr < (int)ARRAY_LEN(ret->id))
			memcpy(ret->id[ret->nr++], r->bytes, ID_LEN);
	}
}

/* A limit of running time may have begun new ones meanwhile. */
static bool some_open(struct memstore *m, const struct open_ids *list)
{
	for (int i = 0; i < list->nr; i++)
		if (mem_is(&m->now,
			   mem_lower(&m->now, TABLE_OPERATIONS_OPEN,
				     list->id[i], ID_LEN),
			   TABLE_OPERATIONS_OPEN, list->id[i], ID_LEN))
			return true;
	return false;
}

static bool at_rest(struct memstore *m, const char *id, enum driver d)
{
	struct session s = row(m, id);

	return s.state == SESSION_NONE || s.state == SESSION_RUNNING ||
	       s.state == SESSION_PAUSED || s.state == SESSION_SUSPENDED ||
	       s.state == SESSION_FAILED ||
	       (s.state == SESSION_STOPPING && d != GOOD && d != DEADLY);
}

/* Lets operations that nobody answers run into their limit. */
static void wait_it_out(struct node *n)
{
	for (int i = 0; i < 4 && open_operations(n->m); i++) {
		clock_virtual_advance(&clk, 20 * 60 * NS_PER_S);
		while (engine_step(n->en))
			;
		drive(n, SILENT);
	}
}

static bool destroyed(struct node *n, const char *id)
{
	struct command *c;

	if (row(n->m, id).state == SESSION_NONE)
		return true;
	c = ask(COMMAND_DESTROY);
	base_strcpy(c->session, sizeof(c->session), id);
	give(n, c);
	if (n->reply.rc) {
		printf("#   destroy refused: %s\n", n->reply.err.msg);
		return false;
	}
	drive(n, GOOD);
	return row(n->m, id).state == SESSION_NONE;
}

/* Nothing of a session is left but its operations. */
static bool left_behind(struct memstore *m, const char *id)
{
	for (size_t i = 0; i < m->now.nr; i++) {
		const struct mem_row *r = m->now.row[i];

		if (r->table != TABLE_OPERATIONS &&
		    memmem(r->bytes, r->key_len, id, ID_LEN))
			return true;
	}
	return false;
}

static const char *crash(const struct state *st, enum driver d, bool alive)
{
	struct backend_live live[3] = { 0 };
	struct memstore m;
	struct node n;
	struct err e;
	const char *wrong = NULL;
	struct open_ids before;
	int nr = 0;

	memstore_clone(&m, &st->m);
	list_open(&m, &before);
	if (alive) {
		add_live(&m, SUBJECT, live, &nr);
		add_live(&m, CHILD, live, &nr);
		add_live(&m, park_id(&m), live, &nr);
	}
	node_open(&n, &m);
	if (engine_recover(n.en, live, nr, &e))
		bail("recovery: %s", e.msg);
	drive(&n, d);
	wait_it_out(&n);
	if (some_open(&m, &before))
		wrong = "an operation never ends";
	else if (!at_rest(&m, SUBJECT, d) || !at_rest(&m, CHILD, d))
		wrong = "a session is stuck";
	else if (!destroyed(&n, SUBJECT) || !destroyed(&n, CHILD))
		wrong = "it can't be destroyed";
	else if (left_behind(&m, SUBJECT) || left_behind(&m, CHILD))
		wrong = "something is left behind";
	else if (open_operations(&m))
		wrong = "an operation outlives the session";
	if (wrong) {
		char text[STATE_TEXT];

		print_state(&m, text);
		printf("#   became: %s\n", text);
	}
	node_close(&n);
	memstore_done(&m);
	return wrong;
}

/* --- the search ---------------------------------------------------------- */

static struct {
	long tried, moved, refused, quiet, crashes;
} count;

static void check_state(const struct state *st)
{
	struct memstore m;

	memstore_clone(&m, &st->m);
	if (!memstore_consistent(&m))
		ok(false, "fold equals rows in: %s", st->text);
	if (!slots_good(&m))
		ok(false, "slots and operations agree in: %s", st->text);
	memstore_done(&m);
	for (int d = 0; d < DRIVERS; d++)
		for (int alive = 0; alive < 2; alive++) {
			const char *wrong = crash(st, (enum driver)d, alive);

			count.crashes++;
			if (wrong)
				ok(false, "%s: crash, %s driver, %s: %s", wrong,
				   driver_names[d], alive ? "alive" : "gone",
				   st->text);
		}
}

/* One letter in one state; remembers where it leads. */
static void try_letter(const struct search *find, const struct state *st, int i)
{
	char text[STATE_TEXT];
	struct memstore m;
	struct node n;
	struct command *c;
	uint64_t before = st->m.now.nr_events;
	bool was_there =
		row((struct memstore *)(uintptr_t)&st->m, SUBJECT).state !=
		SESSION_NONE;
	bool destroy;

	memstore_clone(&m, &st->m);
	node_open(&n, &m);
	c = letter(find, &m, i);
	if (c) {
		destroy = c->kind == COMMAND_DESTROY;
		give(&n, c);
		count.tried++;
		if (n.reply.rc) {
			count.refused++;
			if (!n.reply.err.msg[0] || m.now.nr_events != before)
				ok(false, "a refusal says why, does nothing");
			if (destroy && was_there)
				ok(false, "destroy refused in %s", st->text);
		} else if (m.now.nr_events == before) {
			count.quiet++;
		} else {
			count.moved++;
		}
		print_state(&m, text);
		if (!slots_good(&m))
			ok(false, "letter %d in \"%s\" breaks a slot", i,
			   st->text);
		if (!known(text))
			remember(&m, text);
	}
	node_close(&n);
	memstore_done(&m);
}

static void add_template(struct memstore *m)
{
	struct command *c = ask(COMMAND_TEMPLATE_ADD);
	struct node n;

	node_open(&n, m);
	c->admin = true;
	c->session[0] = 0;
	base_strcpy(c->spec.template, sizeof(c->spec.template), "tiny");
	base_strcpy(c->digest, sizeof(c->digest), DIGEST64);
	give(&n, c);
	node_close(&n);
}

/* A session that comes and goes leaves the template parked. */
static void park_template(struct memstore *m)
{
	struct node n;

	node_open(&n, m);
	give(&n, create(KEEP_DURABLE));
	drive(&n, GOOD);
	if (!destroyed(&n, SUBJECT))
		bail("the first session can't be destroyed");
	node_close(&n);
}

static void report(const struct search *find, int by_state[])
{
	printf("# %s: %d states, %ld commands tried: %ld transitions, %ld "
	       "refused, %ld without effect; %ld crashes survived\n",
	       find->name, nr_states, count.tried, count.moved, count.refused,
	       count.quiet, count.crashes);
	for (int i = 0; i < nr_states; i++)
		by_state[row(&states[i]->m, SUBJECT).state]++;
}

static void forget_all(void)
{
	for (int i = 0; i < nr_states; i++) {
		memstore_done(&states[i]->m);
		free(states[i]);
	}
	memset(buckets, 0, sizeof(buckets));
	memset(&count, 0, sizeof(count));
	nr_states = 0;
}

static void search(const struct search *find, int limit, int by_state[])
{
	int failed_before = tap_failed;
	struct memstore m;
	char text[STATE_TEXT];

	memstore_init(&m);
	add_template(&m);
	if (find->parked)
		park_template(&m);
	print_state(&m, text);
	remember(&m, text);
	memstore_done(&m);
	for (int i = 0; i < nr_states && i < limit && tap_failed < 20; i++) {
		check_state(states[i]);
		for (int k = 0; k < LETTERS; k++)
			try_letter(find, states[i], k);
	}
	ok(tap_failed == failed_before, "%s: all of it holds in %d states",
	   find->name, nr_states);
	report(find, by_state);
	forget_all();
}

int main(void)
{
	int by_state[SESSION_STATE_NR] = { 0 };
	const char *max = getenv("CRYO_MODEL_STATES");
	long limit = max ? strtol(max, NULL, 10) : STATES_MAX;

	clock_virtual_init(&clk, 1700000000 * NS_PER_S);
	for (size_t i = 0; i < ARRAY_LEN(searches); i++)
		search(&searches[i], (int)MIN(limit, STATES_MAX), by_state);
	for (int i = SESSION_CREATING; i < SESSION_DESTROYED; i++)
		ok(by_state[i] > 0, "%d states with the session %s",
		   by_state[i], session_state_word((enum session_state)i));
	return tap_done();
}
