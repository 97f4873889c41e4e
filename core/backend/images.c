/*
 * images: see images.h.
 *
 * Invariants: 1. an entry is loading (one thread works on it) or has
 * descriptors. 2. Copies have descriptors of their own, so dropping an entry
 * never pulls memory from under a start.
 */
#include "core/backend/images.h"

#include <fcntl.h>
#include <pthread.h>

struct entry {
	struct entry *next;
	char tenant[ID_LEN + 1], session[ID_LEN + 1], point[ID_LEN + 1];
	bool loading, forgotten; /* loading, but nobody may have it after */
	uint64_t used; /* of the counter, for least recent use */
	struct image_hot hot;
};

struct images {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct entry *first;
	uint64_t max_bytes, bytes, counter;
};

struct images *images_new(uint64_t max_bytes)
{
	struct images *m = base_alloc(sizeof(*m));

	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->changed, NULL);
	m->max_bytes = max_bytes;
	return m;
}

void image_hot_done(struct image_hot *h)
{
	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		if (h->fds[i] >= 0)
			close(h->fds[i]);
	free(h->packs);
	*h = (struct image_hot){ .fds = { -1, -1, -1 } };
}

/* False when the process is out of descriptors. */
static bool image_hot_copy(const struct image_hot *h, struct image_hot *ret)
{
	struct image_hot c = *h;
	bool good = true;

	c.packs = base_alloc(h->nr_packs * sizeof(*c.packs) + 1);
	memcpy(c.packs, h->packs, h->nr_packs * sizeof(*c.packs));
	for (int i = 0; i < WIRE_IMAGE_FDS; i++) {
		c.fds[i] = fcntl(h->fds[i], F_DUPFD_CLOEXEC, 3);
		good = good && c.fds[i] >= 0;
	}
	if (!good)
		image_hot_done(&c);
	else
		*ret = c;
	return good;
}

static struct entry *images_find(struct images *m, const struct image_key *k)
{
	struct entry *x;

	for (x = m->first; x; x = x->next)
		if (!strcmp(x->point, k->point) && !strcmp(x->tenant, k->tenant))
			return x;
	return NULL;
}

static void images_drop(struct images *m, struct entry *x)
{
	for (struct entry **p = &m->first; *p; p = &(*p)->next) {
		if (*p == x) {
			*p = x->next;
			break;
		}
	}
	if (!x->loading) {
		m->bytes -= x->hot.bytes;
		image_hot_done(&x->hot);
	}
	free(x);
}

void images_free(struct images *m)
{
	if (!m)
		return;
	while (m->first)
		images_drop(m, m->first);
	pthread_mutex_destroy(&m->lock);
	pthread_cond_destroy(&m->changed);
	free(m);
}

int images_get(struct images *m, const struct image_key *k, struct image_hot *ret)
{
	struct entry *x;
	int r = 1;

	pthread_mutex_lock(&m->lock);
	while ((x = images_find(m, k)) && x->loading)
		pthread_cond_wait(&m->changed, &m->lock);
	if (x) {
		x->used = ++m->counter;
		r = image_hot_copy(&x->hot, ret) ? 0 : 1;
	}
	if (r == 1 && x)
		images_drop(m, x);
	if (r == 1) {
		x = base_alloc(sizeof(*x));
		base_strcpy(x->tenant, sizeof(x->tenant), k->tenant);
		base_strcpy(x->session, sizeof(x->session), k->session);
		base_strcpy(x->point, sizeof(x->point), k->point);
		x->loading = true;
		x->next = m->first;
		m->first = x;
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

/* Makes room; the entry just used stays even if it alone is too large. */
static void images_trim(struct images *m, const struct entry *keep)
{
	while (m->bytes > m->max_bytes) {
		struct entry *oldest = NULL;

		for (struct entry *x = m->first; x; x = x->next)
			if (!x->loading && x != keep &&
			    (!oldest || x->used < oldest->used))
				oldest = x;
		if (!oldest)
			return;
		images_drop(m, oldest);
	}
}

void images_put(struct images *m, const struct image_key *k,
		struct image_hot *hot, struct image_hot *ret)
{
	struct entry *x;

	pthread_mutex_lock(&m->lock);
	x = images_find(m, k);
	PRE(x && x->loading);
	x->hot = *hot;
	*hot = (struct image_hot){ .fds = { -1, -1, -1 } };
	x->loading = false;
	x->used = ++m->counter;
	m->bytes += x->hot.bytes;
	if (ret && !image_hot_copy(&x->hot, ret))
		*ret = (struct image_hot){ .fds = { -1, -1, -1 } };
	if (x->forgotten)
		images_drop(m, x);
	else
		images_trim(m, x);
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
}

void images_give_up(struct images *m, const struct image_key *k)
{
	struct entry *x;

	pthread_mutex_lock(&m->lock);
	x = images_find(m, k);
	if (x && x->loading)
		images_drop(m, x);
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
}

void images_forget(struct images *m, const char *session)
{
	struct entry *x, *next;

	pthread_mutex_lock(&m->lock);
	for (x = m->first; x; x = next) {
		next = x->next;
		if (strcmp(x->session, session) != 0)
			continue;
		if (x->loading)
			x->forgotten = true;
		else
			images_drop(m, x);
	}
	pthread_mutex_unlock(&m->lock);
}
