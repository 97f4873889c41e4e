/*
 * cryo-verify's three levels on real folders: one that an engine wrote with a
 * fake driver, one with real packs. What is whole passes; each kind of damage
 * fails its level, and the report names it.
 */
#include "core/point.h"
#include "snapshotter/packer.h"
#include "store/datadir.h"
#include "store/view.h"
#include "tests/unit/store_help.h"
#include "tests/world.h"
#include "tools/verify/verify.h"

struct node {
	const char *data;
	struct keys *keys;
	struct evlog *log;
	struct store_port store;
};

static void node_open(struct node *n, const char *name)
{
	struct err e = { 0 };

	n->data = help_path(name);
	if (datadir_create(n->data, (uid_t)-1, (gid_t)-1, &e) ||
	    keys_open(&n->keys, n->data, NULL, false, &clock_real, &e) ||
	    evlog_open(&n->log, n->data, n->keys, EVLOG_WRITE, &e))
		bail("%s", e.msg);
	view_store_port(n->log, &n->store);
}

static void node_close(struct node *n)
{
	evlog_close(n->log);
	keys_close(n->keys);
}

/* --- looking -------------------------------------------------------------- */

static struct report report;

static bool level_good(enum level l)
{
	bool any = false;

	for (size_t i = 0; i < report.nr; i++) {
		any |= report.checks[i].level == l;
		if (report.checks[i].level == l && report.checks[i].failed)
			return false;
	}
	return any;
}

static const struct check *check_named(const char *name)
{
	static const struct check none;

	for (size_t i = 0; i < report.nr; i++)
		if (!strcmp(report.checks[i].name, name))
			return &report.checks[i];
	return &none;
}

static void look(const char *name, bool deep)
{
	struct verify v = { .data = help_path(name), .deep = deep };
	struct err e = { 0 };

	if (keys_open(&v.keys, v.data, NULL, true, &clock_real, &e) ||
	    evlog_open(&v.log, v.data, v.keys, EVLOG_INSPECT, &e) ||
	    lmdb_txn_begin(&v.txn, evlog_env(v.log), false, &e))
		bail("%s", e.msg);
	if (chain_verify(&v, &e) || fold_verify(&v, &e))
		bail("%s", e.msg);
	bytes_verify(&v);
	report = v.report;
	for (size_t i = 0; i < MIN(report.nr_problems, 3u); i++)
		printf("# %s\n", report.problems[i].text);
	evlog_close(v.log);
	keys_close(v.keys);
	idset_done(&v.gone);
}

static bool told(const char *a, const char *b)
{
	for (size_t i = 0; i < MIN(report.nr_problems, REPORT_PROBLEMS_MAX); i++)
		if (strstr(report.problems[i].text, a) &&
		    strstr(report.problems[i].text, b))
			return true;
	return false;
}

/* --- a folder that an engine wrote ---------------------------------------- */

static char kept[ID_LEN + 1], removed[ID_LEN + 1], child[ID_LEN + 1];

static void create(struct world *w, const char *name, char ret[ID_LEN + 1])
{
	const struct reply *r = world_ask(w, world_create(name));

	if (r->rc)
		bail("create: %s", r->err.msg);
	base_strcpy(ret, ID_LEN + 1, r->session);
	world_settle(w);
}

static void live(struct world *w, struct node *n)
{
	struct command *c;

	create(w, "kept", kept);
	create(w, "removed", removed);
	fake_roll(w->fake, removed);
	fake_roll(w->fake, kept);
	world_advance(w, 60 * NS_PER_S);
	fake_roll(w->fake, kept);
	world_settle(w);
	c = world_command(COMMAND_FORK, removed);
	c->nr_children = 1;
	if (world_do(w, c)->rc)
		bail("fork: %s", w->reply.err.msg);
	base_strcpy(child, sizeof(child), w->reply.children[0]);
	c = world_command(COMMAND_EXEC_START, kept);
	c->argv = json_pack("[s]", "/bin/true");
	if (world_do(w, c)->rc)
		bail("exec: %s", w->reply.err.msg);
	if (world_simple(w, COMMAND_SUSPEND, kept)->rc)
		bail("suspend: %s", w->reply.err.msg);
	if (keys_session_destroy(n->keys, removed, NULL) ||
	    world_simple(w, COMMAND_DESTROY, removed)->rc)
		bail("destroy: %s", w->reply.err.msg);
}

static void make_engine_folder(const char *name)
{
	static struct world w;
	struct node n;

	node_open(&n, name);
	memset(&w, 0, sizeof(w));
	memstore_init(&w.m);
	clock_virtual_init(&w.clock, 1700000000 * NS_PER_S);
	w.fake = fake_new(&w.clock.clock, 0);
	view_store_port(n.log, &w.m.port);
	view_read_port(n.log, &w.m.views);
	world_engine(&w);
	world_template(&w);
	live(&w, &n);
	engine_free(w.en);
	fake_free(w.fake);
	memstore_done(&w.m);
	node_close(&n);
}

static void test_engine_folder(void)
{
	const struct check *c;

	make_engine_folder("engine");
	look("engine", false);
	ok(level_good(LEVEL_CHAIN), "the chain is intact");
	ok(level_good(LEVEL_FOLD), "the fold equals the rows");
	ok(report.events > 20, "%llu events", (unsigned long long)report.events);
	is_int(check_named("links")->done, report.events, "each link is seen");
	c = check_named("bodies");
	ok(strstr(c->note, "sealed, key destroyed (1 sessions)"),
	   "and the destroyed key is told: %s", c->note);
	ok(check_named("rows")->done > 10, "rows are compared: %llu",
	   (unsigned long long)check_named("rows")->done);
	ok(strstr(check_named("rows")->note, "left out"),
	   "operations of the destroyed session are left out: %s",
	   check_named("rows")->note);
	ok(!level_good(LEVEL_BYTES), "the fake's points have no bytes");
	is_int(check_named("points")->failed, check_named("points")->done,
	       "none of them");
	ok(check_named("points")->done >= 4, "though there are some");
	ok(told(kept, "point "), "and the session is named");
	ok(!report_good(&report), "so the whole is not good");
}

/* --- damage to log and rows ----------------------------------------------- */

typedef void (*damage_fn)(struct node *n, struct rowbox *r, struct lmdb_txn *txn);

static void damage(const char *name, damage_fn fn)
{
	struct lmdb_txn *txn;
	struct rowbox r;
	struct node n;
	struct err e = { 0 };

	make_engine_folder(name);
	node_open(&n, name);
	evlog_rowbox_init(n.log, &r);
	lmdb_txn_begin(&txn, evlog_env(n.log), true, NULL);
	fn(&n, &r, txn);
	if (lmdb_txn_commit(txn, &e))
		bail("%s", e.msg);
	rowbox_done(&r);
	node_close(&n);
	look(name, false);
}

static void change_state(struct node *n UNUSED, struct rowbox *r,
			 struct lmdb_txn *txn)
{
	SCOPED(buf_done) struct buf row = { 0 };
	char *at;

	rowbox_get(r, txn, TABLE_SESSIONS, kept, ID_LEN, &row, NULL);
	at = memmem(row.p, row.len, "\"suspended\"", 11);
	if (!at)
		bail("no state in the row");
	memcpy(at, "\"destroyed\"", 11);
	rowbox_put(r, txn, TABLE_SESSIONS, kept, ID_LEN, row.p, row.len, NULL);
}

static void drop_row(struct node *n UNUSED, struct rowbox *r, struct lmdb_txn *txn)
{
	rowbox_del(r, txn, TABLE_SESSIONS, kept, ID_LEN, NULL);
}

static void add_row(struct node *n UNUSED, struct rowbox *r, struct lmdb_txn *txn)
{
	rowbox_put(r, txn, TABLE_KEYS, "stranger", 8, "{}", 2, NULL);
}

static void raw_row(struct node *n UNUSED, struct rowbox *r UNUSED,
		    struct lmdb_txn *txn)
{
	lmdb_txn_put(txn, TABLE_KEYS, "raw", 3, "{}", 2, NULL);
}

static void drop_index(struct node *n UNUSED, struct rowbox *r UNUSED,
		       struct lmdb_txn *txn)
{
	SCOPED(lmdb_cur_close_p) struct lmdb_cur *c = NULL;
	struct lmdb_row row;
	uint8_t key[ID_LEN + 8];

	lmdb_cur_open(&c, txn, EVLOG_TABLE_BY_SESSION, NULL);
	if (lmdb_cur_move(c, LMDB_FIRST, &row, NULL))
		bail("no index");
	memcpy(key, row.key, sizeof(key));
	lmdb_txn_del(txn, EVLOG_TABLE_BY_SESSION, key, sizeof(key), NULL);
}

static void add_index(struct node *n UNUSED, struct rowbox *r UNUSED,
		      struct lmdb_txn *txn)
{
	uint8_t key[ID_LEN + 8] = { 'z' };

	lmdb_txn_put(txn, EVLOG_TABLE_BY_SESSION, key, sizeof(key), "", 0, NULL);
}

static void record_get(struct lmdb_txn *txn, uint64_t seq, struct buf *ret)
{
	const void *p;
	size_t len;

	if (lmdb_txn_get(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), &p, &len, NULL))
		bail("no event");
	buf_put(ret, p, len);
}

static void change_event(struct node *n UNUSED, struct rowbox *r UNUSED,
			 struct lmdb_txn *txn)
{
	SCOPED(buf_done) struct buf b = { 0 };
	uint64_t seq = 5;
	char *at;

	record_get(txn, seq, &b);
	at = memmem(b.p, b.len, "\"wall_ns\":\"1", 12);
	if (!at)
		bail("no time");
	at[11] = '2';
	lmdb_txn_put(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), b.p, b.len, NULL);
}

static void change_box(struct node *n UNUSED, struct rowbox *r UNUSED,
		       struct lmdb_txn *txn)
{
	SCOPED(buf_done) struct buf b = { 0 };
	uint64_t seq = 5;

	record_get(txn, seq, &b);
	b.p[b.len - 1] ^= 1;
	lmdb_txn_put(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), b.p, b.len, NULL);
}

static void drop_event(struct node *n UNUSED, struct rowbox *r UNUSED,
		       struct lmdb_txn *txn)
{
	uint64_t seq = 5;

	lmdb_txn_del(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), NULL);
}

static void swap_events(struct node *n UNUSED, struct rowbox *r UNUSED,
			struct lmdb_txn *txn)
{
	SCOPED(buf_done) struct buf a = { 0 }, b = { 0 };
	uint64_t five = 5, six = 6;

	record_get(txn, five, &a);
	record_get(txn, six, &b);
	lmdb_txn_put(txn, EVLOG_TABLE_LOG, &five, 8, b.p, b.len, NULL);
	lmdb_txn_put(txn, EVLOG_TABLE_LOG, &six, 8, a.p, a.len, NULL);
}

static void drop_last(struct node *n, struct rowbox *r UNUSED,
		      struct lmdb_txn *txn)
{
	uint64_t seq = evlog_last_seq(n->log);

	lmdb_txn_del(txn, EVLOG_TABLE_LOG, &seq, sizeof(seq), NULL);
}

static void lose_key(struct node *n, struct rowbox *r UNUSED,
		     struct lmdb_txn *txn UNUSED)
{
	keys_session_destroy(n->keys, kept, NULL);
}

static void test_damage(void)
{
	damage("d1", change_state);
	ok(!level_good(LEVEL_FOLD) && level_good(LEVEL_CHAIN),
	   "a changed row: the fold differs, the chain is intact");
	is_int(check_named("rows")->failed, 1, "one row");
	ok(told(kept, "members: state"), "row and member are named");
	damage("d2", drop_row);
	ok(told(kept, "is missing") && check_named("rows")->failed == 1,
	   "a row removed");
	damage("d3", add_row);
	ok(told("stranger", "in no event") && check_named("rows")->failed == 1,
	   "a row added");
	damage("d4", raw_row);
	ok(told("table keys", "does not open"), "a row that nobody sealed");
	damage("d5", drop_index);
	ok(!level_good(LEVEL_CHAIN) && told("missing in the index", ""),
	   "an index entry removed");
	damage("d6", add_index);
	ok(!level_good(LEVEL_CHAIN) && told("events account for", ""),
	   "an index entry added");
	damage("d7", change_event);
	ok(told("event 5 is not what was logged", ""), "an event changed");
	is_int(check_named("links")->failed, 1, "one event, one problem");
	damage("d8", change_box);
	ok(check_named("links")->failed == 0 &&
		   check_named("bodies")->failed == 1 &&
		   told("event 5", "does not open"),
	   "a body changed");
	damage("d9", drop_event);
	ok(told("events 5 to 5 are missing", ""), "an event removed");
	damage("d10", swap_events);
	ok(check_named("links")->failed >= 2 &&
		   told("event 5 says it is another number", ""),
	   "two events swapped");
	damage("d11", drop_last);
	ok(check_named("head")->failed == 1 && told("but its head", ""),
	   "the end cut off");
	damage("d12", lose_key);
	ok(told(kept, "its key is missing"), "a lost key is no destroyed one");
}

/* --- real packs ----------------------------------------------------------- */

#define PAGES 64u

static struct node bytes_node;
static struct id session, grandchild;

static void append(struct node *n, const char *type, const char *about,
		   json_t *data)
{
	struct event ev = help_event(type, "t0000000000000000001", about, 1);
	struct err e = { 0 };

	json_decref(ev.data);
	ev.data = data;
	if (n->store.begin(n->store.ctx, &e) ||
	    n->store.append(n->store.ctx, &ev, &e) ||
	    project_apply(&n->store, &ev, &e) ||
	    n->store.commit(n->store.ctx, &e))
		bail("%s: %s", type, e.msg);
	event_done(&ev);
}

/* As the daemon does it: a file in the session's folder. */
static int next_pack(void *ctx, uint8_t ret_id[PACK_ID_LEN],
		     uint8_t ret_key[CRYPT_KEY_LEN], int *ret_fd, struct err *e)
{
	struct node *n = ctx;
	char path[PATH_MAX];
	size_t len;

	if (datadir_id_mkdir(n->data, "packs", session.s, e))
		return -EIO;
	base_random(ret_id, PACK_ID_LEN);
	datadir_id_path(path, n->data, "packs", session.s);
	len = strlen(path);
	path[len++] = '/';
	for (size_t i = 0; i < PACK_ID_LEN; i++)
		len += (size_t)snprintf(path + len, 3, "%02x", ret_id[i]);
	base_strcpy(path + len, sizeof(path) - len, ".pack");
	*ret_fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	return keys_pack_key(n->keys, session.s, ret_id, true, ret_key, e);
}

static int no_supply(void *ctx UNUSED, const uint8_t id[PACK_ID_LEN] UNUSED,
		     int *ret_fd UNUSED, uint8_t ret_key[CRYPT_KEY_LEN] UNUSED,
		     struct err *e)
{
	return err_set(e, -ENOENT, ERR_NOT_FOUND, "nothing to read yet");
}

static void put_pages(struct packer *p, uint64_t *seed, uint32_t nr)
{
	_Alignas(8) static uint64_t page[CRYO_PAGE / 8];

	for (uint32_t i = 0; i < nr; i++) {
		for (size_t k = 0; k < ARRAY_LEN(page); k++)
			page[k] = tap_rand(seed);
		if (packer_page(p, i % 2 ? PAGE_DISK : PAGE_MEMORY,
				i * 7 % PAGES, page, NULL))
			bail("page");
	}
}

static struct point capture(struct packer *p, uint64_t *seed, int nr)
{
	struct packer_point about = { .epoch = 1 };
	struct point row = { .epoch = 1, .kind = POINT_ROLLING };
	struct packer_result res;
	struct err e = { 0 };
	struct id id;

	id_new(&id);
	memcpy(row.id, id.s, sizeof(id.s));
	memcpy(about.id, id.s, sizeof(id.s));
	memcpy(about.session, session.s, sizeof(session.s));
	row.time_ns = about.time_ns = 1767225600000000000 + nr * 60 * NS_PER_S;
	if (packer_begin(p, &about, &e))
		bail("%s", e.msg);
	put_pages(p, seed, 20);
	if (packer_finish(p, "device", 6, "", 0, &res, &e))
		bail("%s", e.msg);
	memcpy(row.pack, res.at.id, sizeof(row.pack));
	row.offset = res.at.offset;
	memcpy(row.root, res.root, sizeof(row.root));
	row.keyframe = res.keyframe;
	return row;
}

static void make_points(struct node *n)
{
	struct io *io = io_plain_new();
	struct packset *ps = packset_new(io, no_supply, NULL);
	struct image *img = image_new(PAGES, PAGES);
	struct packer_config c = { .io = io,
				   .ps = ps,
				   .img = img,
				   .clock = &clock_real,
				   .next_pack = next_pack,
				   .ctx = n };
	struct packer *p = packer_new(&c);
	uint64_t seed = tap_seed();

	for (int i = 1; i <= 3; i++) {
		struct point row = capture(p, &seed, i);
		json_t *data = json_object();

		fields_encode(data, &point_fields, &row);
		append(n, "snapshot.committed", session.s, data);
		packer_close_pack(p); /* a pack for each point */
	}
	packer_free(p);
	image_free(img);
	packset_free(ps);
	io_free(io);
}

static void make_bytes_folder(const char *name)
{
	struct node *n = &bytes_node;

	node_open(n, name);
	id_new(&session);
	append(n, "session.created", session.s, json_pack("{s{}}", "spec"));
	append(n, "session.started", session.s, json_pack("{si}", "epoch", 1));
	make_points(n);
	node_close(n);
}

/* One of the folder's pack files, the same for the same nr. */
static const char *pack_file(const char *name, size_t nr)
{
	char folder[PATH_MAX];
	const char *path;

	snprintf(folder, sizeof(folder), "%s/packs", help_path(name));
	if (help_files(folder, ".pack", nr, &path) <= nr)
		bail("no pack file");
	return path;
}

static void test_bytes(void)
{
	SCOPED(buf_done) struct buf b = { 0 };
	char moved[PATH_MAX];
	int failed = 0;

	make_bytes_folder("bytes");
	look("bytes", true);
	ok(report_good(&report), "a folder with real packs is good");
	is_int(check_named("points")->done, 3, "three points are read");
	is_int(check_named("whole packs")->done, 3, "and three packs scanned");

	/* Any byte of any pack: some point needs it, or the scan sees it. */
	for (size_t i = 0; i < 3; i++) {
		help_read(&b, pack_file("bytes", i));
		help_flip(pack_file("bytes", i), b.len / 2);
		look("bytes", true);
		failed += !level_good(LEVEL_BYTES) && told(session.s, "");
		help_write(pack_file("bytes", i), b.p, b.len);
		buf_reset(&b);
	}
	is_int(failed, 3, "a flipped byte in each pack is found");
	ok(level_good(LEVEL_CHAIN) && level_good(LEVEL_FOLD),
	   "and is no matter of chain or fold");
	look("bytes", false);
	ok(report_good(&report), "with the bytes back it is good again");

	/* as cryod hands a spare one out, or as a writer's death leaves it */
	snprintf(moved, sizeof(moved), "%s", pack_file("bytes", 0));
	base_strcpy(strrchr(moved, '/') + 1, 38,
		    "00000000000000000000000000000000.pack");
	help_write(moved, "", 0);
	look("bytes", true);
	ok(report_good(&report), "an empty pack is no damage");
	is_int(check_named("whole packs")->done, 3, "nor counted as one");
	unlink(moved);

	snprintf(moved, sizeof(moved), "%s", pack_file("bytes", 1));
	rename(moved, help_path("away"));
	look("bytes", false);
	ok(!level_good(LEVEL_BYTES) && told("neither among", session.s),
	   "a pack that is missing");
	rename(help_path("away"), moved);
}

/* A row that claims another root than its packs have, event and all. */
static void test_wrong_root(void)
{
	struct node *n = &bytes_node;
	SCOPED(buf_done) struct buf b = { 0 };
	struct view_port port;
	struct point row = { 0 };
	json_t *data = json_object();
	void *view;
	uint8_t key[POINT_KEY_LEN];

	node_open(n, "bytes");
	view_read_port(n->log, &port);
	port.open(port.ctx, &view, NULL);
	point_key(key, session.s, 1767225600000000000 + 180 * NS_PER_S);
	if (port.ops->get(view, TABLE_POINTS, key, sizeof(key), &b, NULL) ||
	    point_decode(&row, b.p, b.len, NULL))
		bail("no point");
	port.close(view);
	id_new(&grandchild);
	memcpy(row.id, grandchild.s, sizeof(row.id));
	row.time_ns += NS_PER_S;
	row.root[0] ^= 1;
	fields_encode(data, &point_fields, &row);
	append(n, "snapshot.committed", session.s, data);
	node_close(n);
	look("bytes", false);
	ok(!level_good(LEVEL_BYTES) && told(grandchild.s, ""),
	   "a root that the bytes do not have");
	is_int(check_named("points")->failed, 1, "that point alone");
	ok(level_good(LEVEL_FOLD), "while the fold is equal");
}

int main(void)
{
	test_engine_folder();
	test_damage();
	test_bytes();
	test_wrong_root();
	return tap_done();
}
