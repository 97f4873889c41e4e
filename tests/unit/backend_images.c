/*
 * The cache of hot images: one load per point, copies that outlive their
 * entry, a limit of RAM by least recent use, and walls between tenants.
 */
#include "core/backend/images.h"

#include <pthread.h>
#include <sys/resource.h>

#include "tests/fds.h"
#include "tests/tap.h"

#define PARENT "p0000000000000000001"

static struct images *cache;

static struct image_key key_of(const char *tenant, const char *point)
{
	return (struct image_key){ .tenant = tenant,
				   .session = PARENT,
				   .point = point };
}

/* An image of `bytes`, whose first pack id begins with `mark`. */
static struct image_hot image(uint64_t bytes, uint8_t mark)
{
	struct image_hot h = { .nr_packs = 1, .bytes = bytes };

	for (int i = 0; i < WIRE_IMAGE_FDS; i++)
		h.fds[i] = fds_memfd(4096, 0);
	h.packs = base_alloc(sizeof(*h.packs));
	h.packs[0][0] = mark;
	return h;
}

/* 1 and the mark if the point is there, 0 if it had to be loaded (and is). */
static int get_or_load(const char *tenant, const char *point, uint64_t bytes,
		       uint8_t mark)
{
	struct image_key k = key_of(tenant, point);
	struct image_hot h, copy = { .fds = { -1, -1, -1 } };
	int hit = images_get(cache, &k, &copy) == 0;

	if (!hit) {
		h = image(bytes, mark);
		images_put(cache, &k, &h, NULL);
	} else if (copy.nr_packs != 1 || copy.packs[0][0] != mark ||
		   copy.bytes != bytes) {
		bail("another image came");
	}
	image_hot_done(&copy);
	return hit;
}

static void test_copy(void)
{
	struct image_key k = key_of("t1", "point-a");
	struct image_hot h = image(4096, 1), a, b;
	int inode = dup(h.fds[0]);

	cache = images_new(1 << 20);
	is_int(images_get(cache, &k, &a), 1, "an unknown point has to be loaded");
	images_put(cache, &k, &h, &a);
	ok(h.fds[0] == -1 && !h.packs, "what is put belongs to the cache");
	ok(fds_same(a.fds[0], inode) && a.nr_packs == 1 && a.packs[0][0] == 1,
	   "and who loaded it gets a copy");
	is_int(images_get(cache, &k, &b), 0, "from then on it is there");
	ok(b.fds[0] != a.fds[0] && fds_same(b.fds[0], inode) &&
		   (fcntl(b.fds[0], F_GETFD) & FD_CLOEXEC),
	   "with descriptors of its own");
	images_free(cache);
	ok(fds_same(a.fds[2], a.fds[2]) && fds_same(b.fds[0], inode),
	   "copies outlive the cache");
	image_hot_done(&a);
	image_hot_done(&b);
	image_hot_done(&b); /* again: nothing happens */
	close(inode);
}

static void test_tenants(void)
{
	cache = images_new(1 << 20);
	get_or_load("t1", "point-a", 4096, 1);
	is_int(get_or_load("t1", "point-a", 4096, 1), 1,
	       "an image is shared inside a tenant");
	is_int(get_or_load("t2", "point-a", 4096, 2), 0,
	       "and not with another, also of the same point");
	is_int(get_or_load("t1", "point-a", 4096, 1) +
		       get_or_load("t2", "point-a", 4096, 2),
	       2, "each keeps its own");
	images_forget(cache, PARENT);
	is_int(get_or_load("t1", "point-a", 4096, 3) +
		       get_or_load("t2", "point-a", 4096, 4),
	       0, "a session that is destroyed takes all of them along");
	images_free(cache);
}

static void test_limit(void)
{
	cache = images_new(3000);
	get_or_load("t", "a", 1000, 1);
	get_or_load("t", "b", 1000, 2);
	get_or_load("t", "c", 1000, 3);
	is_int(get_or_load("t", "a", 1000, 1), 1, "three fit");
	get_or_load("t", "d", 1000, 4);
	ok(get_or_load("t", "a", 1000, 1) && get_or_load("t", "c", 1000, 3) &&
		   get_or_load("t", "d", 1000, 4),
	   "a fourth drives out");
	is_int(get_or_load("t", "b", 1000, 2), 0, "the least recently used");
	get_or_load("t", "huge", 5000, 5);
	is_int(get_or_load("t", "huge", 5000, 5), 1,
	       "one over the limit stays while it is the newest");
	is_int(get_or_load("t", "d", 1000, 4), 0, "alone");
	is_int(get_or_load("t", "huge", 5000, 5), 0, "and goes next");
	images_free(cache);
}

/* --- one load at a time -------------------------------------------------- */

static _Atomic int waiting, loaded, hits;

static void *asker(void *ctx)
{
	struct image_key k = key_of("t", ctx);
	struct image_hot copy = { .fds = { -1, -1, -1 } };

	waiting++;
	if (images_get(cache, &k, &copy) == 0) {
		hits++;
	} else {
		struct image_hot h = image(1000, 9);

		loaded++;
		images_put(cache, &k, &h, NULL);
	}
	image_hot_done(&copy);
	return NULL;
}

#define ASKERS 8

static void ask_all(pthread_t t[ASKERS])
{
	static char point[] = "p";

	waiting = loaded = hits = 0;
	for (int i = 0; i < ASKERS; i++)
		if (pthread_create(&t[i], NULL, asker, point))
			bail("thread");
	wait_for(waiting == ASKERS);
}

static void join_all(pthread_t t[ASKERS])
{
	for (int i = 0; i < ASKERS; i++)
		pthread_join(t[i], NULL);
}

static void test_one_load(void)
{
	struct image_key k = key_of("t", "p");
	struct image_hot h = image(1000, 7), mine;
	pthread_t t[ASKERS];

	cache = images_new(1 << 20);
	images_get(cache, &k, &mine);
	ask_all(t);
	is_int(loaded + hits, 0, "while one loads, the others wait");
	images_put(cache, &k, &h, NULL);
	join_all(t);
	ok(loaded == 0 && hits == ASKERS, "and get what it loaded");
	images_free(cache);

	cache = images_new(1 << 20);
	images_get(cache, &k, &mine);
	ask_all(t);
	images_give_up(cache, &k);
	join_all(t);
	ok(loaded == 1 && hits == ASKERS - 1,
	   "when it gives up, one of them takes over");
	images_free(cache);
}

static void test_forget_while_loading(void)
{
	struct image_key k = key_of("t", "p");
	struct image_hot h = image(1000, 7), mine;
	pthread_t t[ASKERS];

	cache = images_new(1 << 20);
	images_get(cache, &k, &mine);
	ask_all(t);
	images_forget(cache, PARENT);
	images_put(cache, &k, &h, &mine);
	is_int(mine.nr_packs, 1, "who was loading still gets its image");
	join_all(t);
	ok(loaded == 1 && hits == ASKERS - 1,
	   "a forgotten one is not given to those who waited");
	image_hot_done(&mine);
	images_free(cache);
}

/* Out of descriptors: the image is dropped, never handed out in part. */
static void test_no_descriptors(void)
{
	struct image_key k = key_of("t", "p");
	struct image_hot h = image(1000, 7), copy;
	struct rlimit old, tight;
	int before;

	cache = images_new(1 << 20);
	images_get(cache, &k, &copy);
	images_put(cache, &k, &h, NULL);
	before = fds_count();
	getrlimit(RLIMIT_NOFILE, &old);
	tight = old;
	tight.rlim_cur = (rlim_t)dup(0) + 1; /* room for one or two */
	close((int)tight.rlim_cur - 1);
	setrlimit(RLIMIT_NOFILE, &tight);
	is_int(images_get(cache, &k, &copy), 1, "no room for a copy: load again");
	setrlimit(RLIMIT_NOFILE, &old);
	is_int(fds_count(), before - 3, "the entry and the part of a copy went");
	images_give_up(cache, &k);
	images_free(cache);
}

int main(void)
{
	int before = fds_count();

	test_copy();
	test_tenants();
	test_limit();
	test_one_load();
	test_forget_while_loading();
	test_no_descriptors();
	is_int(fds_count(), before, "every descriptor is closed in the end");
	return tap_done();
}
