/*
 * worker: jobs that may block, on a thread of their own.
 *
 * Two lists under one mutex: what waits and what is done. The eventfd is
 * written after a job went to the second list, so a reader that empties the
 * eventfd first and the list after it misses nothing.
 *
 * Invariants:
 *  1. A job belongs to exactly one of: its maker, `wait`, the thread, `done`.
 *  2. nr counts jobs from submit until worker_done() hands them back.
 */
#include "tools/agent/worker.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

struct worker {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct job *wait, **wait_end;
	struct job *done, **done_end;
	unsigned nr;
	int event;
	worker_fn fn;
	void *ctx;
};

static struct job *list_take(struct job **head, struct job ***end)
{
	struct job *j = *head;

	if (!j)
		return NULL;
	*head = j->next;
	if (!*head)
		*end = head;
	j->next = NULL;
	return j;
}

static void list_put(struct job ***end, struct job *j)
{
	j->next = NULL;
	**end = j;
	*end = &j->next;
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	const uint64_t one = 1;

	for (;;) {
		struct job *j;

		pthread_mutex_lock(&w->lock);
		while (!(j = list_take(&w->wait, &w->wait_end)))
			pthread_cond_wait(&w->more, &w->lock);
		pthread_mutex_unlock(&w->lock);
		w->fn(w->ctx, j);
		pthread_mutex_lock(&w->lock);
		list_put(&w->done_end, j);
		pthread_mutex_unlock(&w->lock);
		if (write(w->event, &one, sizeof(one)) < 0)
			NEVER("an eventfd takes a 1");
	}
	return NULL;
}

struct worker *worker_new(worker_fn fn, void *ctx)
{
	struct worker *w = base_alloc(sizeof(*w));
	pthread_attr_t attr;
	pthread_t t;

	w->wait_end = &w->wait;
	w->done_end = &w->done;
	w->fn = fn;
	w->ctx = ctx;
	w->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256u << 10);
	if (w->event < 0 || pthread_create(&t, &attr, worker_run, w))
		base_panic("start", "worker thread", __FILE__, __LINE__);
	pthread_attr_destroy(&attr);
	pthread_detach(t);
	return w;
}

int worker_submit(struct worker *w, struct job *j)
{
	int r = -EBUSY;

	pthread_mutex_lock(&w->lock);
	if (w->nr < WORKER_JOBS_MAX) {
		w->nr++;
		list_put(&w->wait_end, j);
		pthread_cond_signal(&w->more);
		r = 0;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

struct job *worker_done(struct worker *w)
{
	uint64_t n;
	struct job *j;

	if (read(w->event, &n, sizeof(n)) < 0)
		n = 0; /* empty: the list may still hold some */
	pthread_mutex_lock(&w->lock);
	j = list_take(&w->done, &w->done_end);
	if (j)
		w->nr--;
	pthread_mutex_unlock(&w->lock);
	return j;
}

int worker_fd(const struct worker *w)
{
	return w->event;
}

struct job *job_new(enum agent_type type, uint64_t id)
{
	struct job *j = base_alloc(sizeof(*j));

	j->type = type;
	j->id = id;
	return j;
}

void job_free(struct job *j)
{
	if (!j)
		return;
	free(j->path);
	free(j->data);
	buf_done(&j->reply);
	free(j);
}
