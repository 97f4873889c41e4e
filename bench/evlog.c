/*
 * evlog: how many durable events a second, and how long each waits.
 *
 * 1, 16 and 64 clients that each wait for their event to be on the disk
 * before they send the next; one thread takes whatever waits, at most 64, and
 * makes it durable at once, as the engine does. Events of 300 bytes, sealed
 * and chained, without rows. In the same run, in the same folder, with the
 * same threads: the floor, a plain file that gets 332 bytes an event by
 * write(2) and fdatasync(2).
 *
 *   evlog            a table        JSON=1 evlog   one object a line
 *   SECONDS=5 evlog  a case's time  TMPDIR=DIR     where (/var/tmp)
 *
 * A case is named by who stores and how many wait: "log-16", "raw-16".
 */
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "store/evlog.h"

#define CLIENTS_MAX 64
#define BATCH_MAX 64
#define SAMPLES_MAX (1u << 20)
#define EVENT_LEN 300 /* bytes of an event's body */
#define RAW_LEN (EVENT_LEN + CHAIN_HASH_LEN)

struct client {
	pthread_t thread;
	sem_t done;
	struct bench *bench;
	struct client *next; /* in the queue */
};

typedef void (*store_fn)(struct bench *b, size_t nr);

/* One case while it runs. */
struct bench {
	store_fn store; /* makes nr events durable */
	struct evlog *log;
	int raw_fd;
	int64_t end_ns;
	pthread_mutex_t lock; /* over the rest */
	pthread_cond_t wake;
	struct client *first, **last;
	size_t running; /* clients not done yet */
	double *us; /* samples */
	size_t nr;
};

struct row {
	char name[16];
	size_t n;
	double p50, p90, p99, max, per_s;
};

_Noreturn static void die(const char *what, const struct err *e)
{
	fprintf(stderr, "bench evlog: %s%s%s\n", what, e ? ": " : "",
		e ? e->msg : "");
	exit(1);
}

/* --- the two stores ------------------------------------------------------- */

static void fill_event(struct event *ev)
{
	char text[167];

	/* What makes the body EVENT_LEN bytes. */
	memset(text, '.', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	*ev = (struct event){ .wall_ns = clock_wall(&clock_real),
			      .mono_ns = clock_mono(&clock_real),
			      .schema = 1 };
	base_strcpy(ev->type_name, sizeof(ev->type_name), "bench.event");
	base_strcpy(ev->tenant, sizeof(ev->tenant), "t0000000000000000001");
	base_strcpy(ev->session, sizeof(ev->session), "s0000000000000000001");
	base_strcpy(ev->actor, sizeof(ev->actor), "system");
	ev->data = json_object();
	json_put_str(ev->data, "text", text);
}

static void store_log(struct bench *b, size_t nr)
{
	struct err e = { 0 };

	if (evlog_begin(b->log, &e))
		die("begin", &e);
	for (size_t i = 0; i < nr; i++) {
		struct event ev;

		fill_event(&ev);
		if (evlog_append(b->log, &ev, &e))
			die("append", &e);
		event_done(&ev);
	}
	if (evlog_commit(b->log, &e))
		die("commit", &e);
}

static void store_raw(struct bench *b, size_t nr)
{
	static const uint8_t bytes[BATCH_MAX * RAW_LEN];

	if (base_write_all(b->raw_fd, bytes, nr * RAW_LEN) ||
	    fdatasync(b->raw_fd))
		die("write the plain file", NULL);
}

/* --- clients and the one writer ------------------------------------------- */

static void *client_run(void *ctx)
{
	struct client *c = ctx;
	struct bench *b = c->bench;
	int64_t from, now = clock_mono(&clock_real);

	while (now < b->end_ns) {
		from = now;
		pthread_mutex_lock(&b->lock);
		c->next = NULL;
		*b->last = c;
		b->last = &c->next;
		pthread_cond_signal(&b->wake);
		pthread_mutex_unlock(&b->lock);
		sem_wait(&c->done);
		now = clock_mono(&clock_real);
		pthread_mutex_lock(&b->lock);
		if (b->nr < SAMPLES_MAX)
			b->us[b->nr++] = (double)(now - from) / 1e3;
		pthread_mutex_unlock(&b->lock);
	}
	pthread_mutex_lock(&b->lock);
	b->running--;
	pthread_cond_signal(&b->wake);
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* Takes what waits; 0 once no client is left. */
static size_t take(struct bench *b, struct client *batch[BATCH_MAX])
{
	size_t nr = 0;

	pthread_mutex_lock(&b->lock);
	while (!b->first && b->running)
		pthread_cond_wait(&b->wake, &b->lock);
	while (b->first && nr < BATCH_MAX) {
		batch[nr++] = b->first;
		b->first = b->first->next;
	}
	if (!b->first)
		b->last = &b->first;
	pthread_mutex_unlock(&b->lock);
	return nr;
}

static void writer_run(struct bench *b)
{
	struct client *batch[BATCH_MAX];
	size_t nr;

	while ((nr = take(b, batch))) {
		b->store(b, nr);
		for (size_t i = 0; i < nr; i++)
			sem_post(&batch[i]->done);
	}
}

static void run_case(struct bench *b, size_t clients, int64_t ns)
{
	static struct client c[CLIENTS_MAX];

	b->nr = 0;
	b->first = NULL;
	b->last = &b->first;
	b->running = clients;
	b->end_ns = clock_mono(&clock_real) + ns;
	for (size_t i = 0; i < clients; i++) {
		c[i].bench = b;
		sem_init(&c[i].done, 0, 0);
		if (pthread_create(&c[i].thread, NULL, client_run, &c[i]))
			die("start a client", NULL);
	}
	writer_run(b);
	for (size_t i = 0; i < clients; i++) {
		pthread_join(c[i].thread, NULL);
		sem_destroy(&c[i].done);
	}
}

/* --- what came out -------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Nearest rank of sorted samples. */
static double rank(const struct bench *b, size_t percent)
{
	return b->us[(b->nr * percent + 99) / 100 - 1];
}

static struct row sum_up(struct bench *b, const char *who, size_t clients,
			 int64_t ns, FILE *raw)
{
	struct row r = { .n = b->nr };

	if (!b->nr)
		die("no event in a whole case: give it more SECONDS", NULL);
	snprintf(r.name, sizeof(r.name), "%s-%zu", who, clients);
	for (size_t i = 0; raw && i < b->nr; i++)
		fprintf(raw, "%s %.1f\n", r.name, b->us[i]);
	qsort(b->us, b->nr, sizeof(*b->us), compare);
	r.p50 = rank(b, 50);
	r.p90 = rank(b, 90);
	r.p99 = b->nr < 100 ? b->us[b->nr - 1] : rank(b, 99);
	r.max = b->us[b->nr - 1];
	r.per_s = (double)b->nr * 1e9 / (double)ns;
	return r;
}

static void print(const struct row *r, const struct row *peer)
{
	const char *json = getenv("JSON");
	double ratio = r->p50 / peer->p50;

	if (json && !strcmp(json, "1"))
		printf("{\"bench\":\"evlog\",\"case\":\"%s\",\"unit\":\"us\","
		       "\"n\":%zu,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,"
		       "\"max\":%.1f,\"ratio\":%.3f,\"peer\":\"%s\","
		       "\"per_s\":%.0f}\n",
		       r->name, r->n, r->p50, r->p90, r->p99, r->max, ratio,
		       peer->name, r->per_s);
	else
		printf("%-8s %8zu %9.0f %9.0f %9.0f %9.0f  us  %6.2f x %-7s "
		       "%8.0f /s\n",
		       r->name, r->n, r->p50, r->p90, r->p99, r->max, ratio,
		       peer->name, r->per_s);
	fflush(stdout);
}

/* --- all cases ------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *st UNUSED,
		      int type UNUSED, struct FTW *at UNUSED)
{
	return remove(path);
}

static void run_all(struct bench *b, int64_t ns, FILE *raw)
{
	static const size_t clients[] = { 1, 16, 64 };

	for (size_t i = 0; i < ARRAY_LEN(clients); i++) {
		struct row log, plain;

		b->store = store_raw;
		run_case(b, clients[i], ns);
		plain = sum_up(b, "raw", clients[i], ns, raw);
		b->store = store_log;
		run_case(b, clients[i], ns);
		log = sum_up(b, "log", clients[i], ns, raw);
		print(&plain, &plain);
		print(&log, &plain);
	}
}

static void run_in(const char *dir, int64_t ns)
{
	struct bench b = { .lock = PTHREAD_MUTEX_INITIALIZER,
			   .wake = PTHREAD_COND_INITIALIZER };
	FILE *raw = fopen("bench/results/evlog.raw", "w");
	struct keys *keys;
	char path[PATH_MAX];
	struct err e = { 0 };

	if (snprintf(path, sizeof(path), "%s/plain", dir) >= (int)sizeof(path))
		die("TMPDIR is too long", NULL);
	b.us = base_alloc(SAMPLES_MAX * sizeof(*b.us));
	b.raw_fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (b.raw_fd < 0)
		die("make the plain file", NULL);
	if (keys_open(&keys, dir, NULL, false, &clock_real, &e) ||
	    evlog_open(&b.log, dir, keys, EVLOG_WRITE, &e))
		die("open the log", &e);
	run_all(&b, ns, raw);
	evlog_close(b.log);
	keys_close(keys);
	close(b.raw_fd);
	free(b.us);
	if (raw)
		fclose(raw);
}

int main(void)
{
	const char *tmp = getenv("TMPDIR"), *s = getenv("SECONDS");
	const char *json = getenv("JSON");
	long seconds = s ? strtol(s, NULL, 10) : 2;
	char dir[PATH_MAX];

	if (seconds < 1 || seconds > 600)
		die("SECONDS: 1 to 600", NULL);
	snprintf(dir, sizeof(dir), "%s/cryo-bench-XXXXXX",
		 tmp ? tmp : "/var/tmp");
	if (!mkdtemp(dir))
		die("make a folder to work in", NULL);
	if (!json || strcmp(json, "1") != 0)
		printf("evlog: durable events of %d bytes, groups of at most "
		       "%d\n%-8s %8s %9s %9s %9s %9s\n",
		       EVENT_LEN, BATCH_MAX, "case", "n", "p50", "p90", "p99",
		       "max");
	run_in(dir, seconds * NS_PER_S);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}
