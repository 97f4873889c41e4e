/*
 * output: see output.h. Theory: every restore starts a new epoch, and an exec
 * that it brought back gets a new transcript there, which begins where the
 * guest's memory had it: at the first byte that no host had acknowledged. So
 * the output of an exec on the present line is a chain of files, from its
 * first epoch to the present one, each cut off where the next one begins. A
 * fork's chain goes on in its parent's files.
 *
 * A reader's cursor names the epoch that it read from. When that epoch is
 * over, the answer is REWOUND: where the two lines part, or where the reader
 * stands if that is before.
 *
 * Open readers are kept by the cursor that they stand at, so that following
 * a growing file is one read per record.
 */
#include "tools/cryod/output.h"

#include <pthread.h>
#include <time.h>

#include "core/rows.h"
#include "store/transcript.h"

#define CHAIN_MAX 256 /* epochs looked back */
#define TAILS_MAX 64

/* A reader that stands behind everything below `at`. */
struct tail {
	char exec[ID_LEN + 1];
	uint32_t epoch;
	uint64_t at[SANDBOX_STREAM_NR];
	uint64_t used;
	struct transcript_reader *reader; /* NULL: free */
};

struct output {
	struct host *host;
	const struct view_port *views;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t generation, counter;
	struct tail tails[TAILS_MAX];
};

/* One file of the chain. */
struct segment {
	char session[ID_LEN + 1], exec[ID_LEN + 1];
	uint32_t epoch;
	uint64_t from[SANDBOX_STREAM_NR];
};

struct chain {
	struct exec exec; /* its row */
	bool ready; /* the present epoch's file is there */
	int nr;
	struct segment seg[CHAIN_MAX]; /* newest first */
};

struct output *output_new(struct host *h, const struct view_port *views)
{
	struct output *o = base_alloc(sizeof(*o));
	pthread_condattr_t attr;

	o->host = h;
	o->views = views;
	pthread_mutex_init(&o->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&o->changed, &attr);
	pthread_condattr_destroy(&attr);
	return o;
}

void output_free(struct output *o)
{
	if (!o)
		return;
	for (int i = 0; i < TAILS_MAX; i++)
		transcript_reader_free(o->tails[i].reader);
	pthread_mutex_destroy(&o->lock);
	pthread_cond_destroy(&o->changed);
	free(o);
}

void output_poke(struct output *o)
{
	pthread_mutex_lock(&o->lock);
	o->generation++;
	pthread_cond_broadcast(&o->changed);
	pthread_mutex_unlock(&o->lock);
}

/* --- the chain ------------------------------------------------------------------ */

static int output_open(struct output *o, const struct segment *g,
		       struct transcript_reader **ret, struct err *e)
{
	uint8_t key[32];
	int fd, r = host_transcript_read(o->host, g->session, g->exec, g->epoch,
					 key, &fd, e);

	if (r == 0)
		r = transcript_reader_open(ret, fd, key, e);
	base_wipe(key, sizeof(key));
	return r;
}

static int output_segment(struct output *o, struct segment *g, struct err *e)
{
	struct transcript_reader *t;
	const struct transcript_info *info;
	int r = output_open(o, g, &t, e);

	if (r < 0)
		return r;
	info = transcript_reader_info(t);
	g->from[SANDBOX_STDOUT] = info->out_from;
	g->from[SANDBOX_STDERR] = info->err_from;
	transcript_reader_free(t);
	return 0;
}

/* The epoch that this segment's epoch goes on from; 1: there is none. */
static int output_before(const struct reader *rd, struct segment *g,
			 struct err *e)
{
	uint8_t key[ID_LEN + 8];
	SCOPED_JSON json_t *row = NULL;
	struct point_ref start = { 0 };
	struct exec x;
	int r;

	memcpy(key, g->session, ID_LEN);
	put_be64(key + ID_LEN, g->epoch);
	r = rows_json(rd, TABLE_EPOCHS, key, sizeof(key), &row, e);
	if (r == -ENOENT || (r == 0 && !json_object_get(row, "start")))
		return 1;
	if (r == 0)
		r = fields_decode(json_object_get(row, "start"),
				  &point_ref_fields, &start, e);
	if (r < 0)
		return r;
	g->epoch = (uint32_t)start.epoch;
	if (!strcmp(start.session, g->session))
		return 0;
	r = rows_exec(rd, g->exec, &x, e);
	if (r == 0) {
		memcpy(g->session, start.session, sizeof(g->session));
		memcpy(g->exec, x.origin, sizeof(g->exec));
		exec_done(&x);
	}
	return r < 0 ? r : g->exec[0] == 0;
}

static int output_chain_walk(struct output *o, const struct reader *rd,
			     struct chain *c, struct err *e)
{
	struct segment g = { .epoch = (uint32_t)c->exec.epoch };
	int r = 0;

	memcpy(g.session, c->exec.session, sizeof(g.session));
	memcpy(g.exec, c->exec.id, sizeof(g.exec));
	while (c->nr < CHAIN_MAX) {
		r = output_segment(o, &g, e);
		if (r == 0) {
			c->ready = c->ready || c->nr == 0;
			c->seg[c->nr++] = g;
			if (!g.from[SANDBOX_STDOUT] && !g.from[SANDBOX_STDERR])
				return 0;
		} else if (r != -ENOENT && r != -ENODATA) {
			return r;
		} else if (c->nr == 0 && c->exec.state == EXEC_RUNNING) {
			return 0; /* its file is about to be made */
		}
		r = output_before(rd, &g, e);
		if (r != 0)
			return MIN(r, 0);
	}
	return 0;
}

static int output_chain(struct output *o, const char *exec, struct chain *c,
			struct err *e)
{
	void *view;
	int r = o->views->open(o->views->ctx, &view, e);

	if (r < 0)
		return r;
	c->nr = 0;
	c->ready = false;
	{
		struct reader rd = { o->views->ops, view };

		r = rows_exec(&rd, exec, &c->exec, e);
		if (r == -ENOENT)
			err_set(e, r, ERR_NOT_FOUND, "no exec %s", exec);
		if (r == 0) {
			r = output_chain_walk(o, &rd, c, e);
			if (r < 0)
				exec_done(&c->exec);
		}
	}
	o->views->close(view);
	return r;
}

/* --- reading ----------------------------------------------------------------------- */

/* A reader of this segment that has nothing to give below the cursor. */
static int output_take(struct output *o, const struct segment *g,
		       const uint64_t at[SANDBOX_STREAM_NR],
		       struct transcript_reader **ret, struct err *e)
{
	struct transcript_reader *t = NULL;

	pthread_mutex_lock(&o->lock);
	for (int i = 0; i < TAILS_MAX && !t; i++) {
		struct tail *k = &o->tails[i];

		if (k->reader && k->epoch == g->epoch &&
		    !strcmp(k->exec, g->exec) && k->at[0] == at[0] &&
		    k->at[1] == at[1]) {
			t = k->reader;
			k->reader = NULL;
		}
	}
	pthread_mutex_unlock(&o->lock);
	if (!t)
		return output_open(o, g, ret, e);
	*ret = t;
	return 0;
}

static void output_keep(struct output *o, const struct segment *g,
			const uint64_t at[SANDBOX_STREAM_NR],
			struct transcript_reader *t)
{
	struct tail *k = &o->tails[0];

	pthread_mutex_lock(&o->lock);
	for (int i = 0; i < TAILS_MAX; i++)
		if (!o->tails[i].reader || o->tails[i].used < k->used)
			k = &o->tails[i];
	transcript_reader_free(k->reader);
	*k = (struct tail){ .epoch = g->epoch,
			    .at = { at[0], at[1] },
			    .used = ++o->counter,
			    .reader = t };
	memcpy(k->exec, g->exec, sizeof(k->exec));
	pthread_mutex_unlock(&o->lock);
}

/* Cuts a piece to [at, bound) and max; false if nothing is left of it. */
static bool output_clip(struct transcript_piece *p, uint64_t at, uint64_t bound,
			size_t max)
{
	if (p->offset + p->len <= at || p->offset >= bound)
		return false;
	if (p->offset < at) {
		p->p += at - p->offset;
		p->len -= at - p->offset;
		p->offset = at;
	}
	p->len = MIN(p->len, bound - p->offset);
	p->len = MIN(p->len, max);
	return p->len > 0;
}

/* The next piece of one file behind the cursor: 1 found, 0 none. */
static int output_next(struct output *o, const struct segment *g,
		       const uint64_t bound[SANDBOX_STREAM_NR],
		       const struct sandbox_cursor *at, void *data, size_t max,
		       struct sandbox_chunk *ret, struct err *e)
{
	uint64_t behind[SANDBOX_STREAM_NR] = { at->off[0], at->off[1] };
	struct transcript_reader *t;
	struct transcript_piece p;
	int r = output_take(o, g, at->off, &t, e);

	if (r < 0)
		return r;
	while ((r = transcript_reader_next(t, &p, e)) == 0) {
		int s = p.stream == TRANSCRIPT_OUT ? SANDBOX_STDOUT
						   : SANDBOX_STDERR;
		uint64_t end = p.offset + p.len;

		if (!output_clip(&p, at->off[s], bound[s], max))
			continue;
		*ret = (struct sandbox_chunk){ .kind = SANDBOX_DATA,
					       .stream = s,
					       .off = p.offset,
					       .len = p.len };
		memcpy(data, p.p, p.len);
		behind[s] = p.offset + p.len;
		if (behind[s] == end)
			output_keep(o, g, behind, t);
		else
			transcript_reader_free(t);
		return 1;
	}
	if (r < 0)
		transcript_reader_free(t);
	else
		output_keep(o, g, behind, t);
	return MIN(r, 0);
}

/* Data behind the cursor: 1 found, 0 none now. */
static int output_find(struct output *o, const struct chain *c,
		       const struct sandbox_cursor *at, void *data, size_t max,
		       struct sandbox_chunk *ret, struct err *e)
{
	for (int i = c->nr - 1; i >= 0; i--) {
		uint64_t bound[SANDBOX_STREAM_NR] = { UINT64_MAX, UINT64_MAX };
		int r;

		if (i > 0)
			memcpy(bound, c->seg[i - 1].from, sizeof(bound));
		if (at->off[0] >= bound[0] && at->off[1] >= bound[1])
			continue;
		r = output_next(o, &c->seg[i], bound, at, data, max, ret, e);
		if (r != 0)
			return r;
	}
	return 0;
}

/* --- the answer ---------------------------------------------------------------------- */

/*
 * Where the line of epoch `old` and the present one part. An epoch that is
 * not on the chain was left by a rewind: its own file tells where it began.
 */
static void output_part(struct output *o, const struct chain *c, uint64_t old,
			uint64_t ret[SANDBOX_STREAM_NR])
{
	struct segment g = c->seg[0];
	struct err e;

	ret[0] = ret[1] = 0;
	for (int i = 1; i < c->nr; i++) {
		if (c->seg[i].epoch == old) {
			memcpy(ret, c->seg[i - 1].from, sizeof(g.from));
			return;
		}
	}
	g.epoch = (uint32_t)old;
	if (c->nr == 0 || output_segment(o, &g, &e) < 0)
		return;
	for (int s = 0; s < SANDBOX_STREAM_NR; s++)
		ret[s] = MIN(g.from[s], c->seg[0].from[s]);
}

static void output_rewound(struct output *o, const struct chain *c,
			   const struct sandbox_cursor *at,
			   struct sandbox_chunk *ret)
{
	uint64_t part[SANDBOX_STREAM_NR];

	output_part(o, c, at->epoch, part);
	*ret = (struct sandbox_chunk){ .kind = SANDBOX_REWOUND };
	ret->at.epoch = c->exec.epoch;
	for (int s = 0; s < SANDBOX_STREAM_NR; s++)
		ret->at.off[s] = MIN(at->off[s], part[s]);
}

static void output_ended(const struct exec *x, struct sandbox_chunk *ret)
{
	*ret = (struct sandbox_chunk){ .kind = x->state == EXEC_EXITED
						       ? SANDBOX_EXIT
						       : SANDBOX_LOST,
				       .code = x->code,
				       .signal = x->signal };
}

/* One look: 1 answered, 0 nothing yet. */
static int output_look(struct output *o, struct chain *c, const char *exec,
		       const struct sandbox_cursor *at, void *data, size_t max,
		       struct sandbox_chunk *ret, struct err *e)
{
	struct exec *x = &c->exec;
	int r = output_chain(o, exec, c, e);

	if (r < 0)
		return r;
	if (at->epoch && at->epoch != x->epoch) {
		r = c->ready || x->state != EXEC_RUNNING;
		if (r)
			output_rewound(o, c, at, ret);
	} else {
		if (c->ready || x->state != EXEC_RUNNING)
			r = output_find(o, c, at, data, max, ret, e);
		if (r == 0 && x->state != EXEC_RUNNING) {
			output_ended(x, ret);
			r = 1;
		}
	}
	if (r > 0)
		ret->epoch = x->epoch;
	exec_done(x);
	return r;
}

int output_read(struct output *o, const char *exec,
		const struct sandbox_cursor *at, void *data, size_t max,
		int timeout_ms, struct sandbox_chunk *ret, struct err *e)
{
	SCOPED_FREE struct chain *c = base_alloc(sizeof(*c));
	struct timespec until;
	bool late = false;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000l;
	if (until.tv_nsec >= 1000000000l) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000l;
	}
	for (;;) {
		uint64_t seen;
		int r;

		pthread_mutex_lock(&o->lock);
		seen = o->generation;
		pthread_mutex_unlock(&o->lock);
		r = output_look(o, c, exec, at, data, max, ret, e);
		if (r != 0)
			return MIN(r, 0);
		if (late || timeout_ms == 0)
			break;
		pthread_mutex_lock(&o->lock);
		while (seen == o->generation && !late)
			late = pthread_cond_timedwait(&o->changed, &o->lock,
						      &until) == ETIMEDOUT;
		pthread_mutex_unlock(&o->lock);
	}
	*ret = (struct sandbox_chunk){ .kind = SANDBOX_NOTHING };
	return 0;
}
