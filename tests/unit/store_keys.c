/*
 * Keys: the vectors of ADR 0021, the hierarchy on disk, its cache under a
 * virtual clock, destruction, grants.
 */
#include "store/keys.h"

#include "store/keyfile.h"
#include "tests/unit/store_help.h"

#define SESSION "abcdefghij0123456789"
#define TENANT "t0000000000000000000"
#define OTHER "zzzzzzzzzz0123456789"

static struct clock_virtual now;

static struct keys *open_keys(const char *data, bool read_only, int want)
{
	struct keys *k = NULL;
	struct err e = { 0 };

	mkdir(help_path(data), 0700);
	is_int(keys_open(&k, help_path(data), NULL, read_only, &now.clock, &e),
	       want, "open keys of %s: %s", data, e.msg);
	return k;
}

/* --- the format ----------------------------------------------------------- */

struct file_vector {
	struct keyfile_name name;
	uint8_t parent, key; /* first byte of the counted key */
	const char *hex;
};

static const struct file_vector file_vectors[] = {
	{ { KEYFILE_NODE, "", "" },
	  0xc0,
	  0x00,
	  "636b657901000000010000000000000000000000000000000000000000000000"
	  "0000000000000000000000000000000000000000fa50bbd74141414141414141"
	  "414141414e9b3d1d7841932754b364e8ae9e8b3269a85f9003129699dea6b670"
	  "dc33616f8a9e0b18146d5fae5bdd9925ee2a5916" },
	{ { KEYFILE_TENANT, TENANT, "" },
	  0xc0,
	  0x20,
	  "636b657901000000021400007430303030303030303030303030303030303030"
	  "0000000000000000000000000000000000000000b1f3dd964242424242424242"
	  "42424242c5c8c4dac61b0f4464aa79ab685e832bc1509c73a36812fe1311043b"
	  "69d4cdc2f40639ab083344e4c4f42ac5e5582ee1" },
	{ { KEYFILE_SESSION, SESSION, TENANT },
	  0x20,
	  0x40,
	  "636b657901000000031400006162636465666768696a30313233343536373839"
	  "74303030303030303030303030303030303030300340d0a84343434343434343"
	  "43434343b07305609f7f914be02467cfd4558d5befb255849cab68eb1af56525"
	  "b24adb93524614bb7bda6bcb94197f1f3cdfd3c6" },
};

static const char grants_hex[] =
	"6367726101000000020000006162636465666768696a30313233343536373839"
	"8513563a44444444444444444444444444ab15a1e45bd984c223995cc6316366"
	"3d0ac3b1dcf9a14c7b77a1070da7b9b1fc86abc7559818180664e870bbfba3b1"
	"2c4ea31bde96123d0aa1c217c9e26ad6de5fd3a9a76f1c64abc253e6abc97c85"
	"cc0ebdcb92a9d432f569eee7f9f390bc4a5b6bc1fc01b6db5947d0b621806b70";

static void test_file_vector(const struct file_vector *v)
{
	SCOPED(buf_done) struct buf file = { 0 };
	uint8_t parent[32], want[32], key[32], made[KEYFILE_LEN];
	struct keyfile_name name;
	struct err e = { 0 };
	int opened = 0;

	help_hex(&file, v->hex);
	help_count(parent, 32, v->parent);
	help_count(want, 32, v->key);
	is_int(keyfile_decode(&name, file.p, file.len, &e), 0,
	       "vector of kind %d decodes", v->name.kind);
	ok(!memcmp(&name, &v->name, sizeof(name)), "to its owner");
	is_int(keyfile_unwrap(key, file.p, parent, &e), 0, "unwraps");
	is_mem(key, want, 32, "to its key");
	keyfile_wrap(made, &v->name, parent, want);
	is_mem(made, file.p, KEYFILE_HEAD_LEN, "wrap makes the same header");
	is_int(keyfile_unwrap(key, made, parent, &e), 0, "and opens again");
	for (size_t i = 0; i < file.len; i++) {
		file.p[i] ^= 1;
		opened += !keyfile_decode(&name, file.p, file.len, &e) &&
			  !keyfile_unwrap(key, file.p, parent, &e);
		/* also with a header that adds up */
		put_u32(file.p + 52, crypt_crc32c(file.p, 52));
		opened += i < 52 && !keyfile_unwrap(key, file.p, parent, &e);
		file.p[i] ^= 1;
		put_u32(file.p + 52, crypt_crc32c(file.p, 52));
	}
	is_int(opened, 0, "no bit of it can change");
	parent[31] ^= 1;
	is_int(keyfile_unwrap(key, file.p, parent, &e), -EBADMSG,
	       "another parent key does not open it");
	put_u16(file.p + 4, 2);
	put_u32(file.p + 52, crypt_crc32c(file.p, 52));
	is_int(keyfile_decode(&name, file.p, file.len, &e), -EPROTONOSUPPORT,
	       "version 2: %s", e.msg);
	is_int(keyfile_decode(&name, file.p, file.len - 1, &e), -EBADMSG,
	       "short");
}

static void test_grants_vector(void)
{
	SCOPED(buf_done) struct buf file = { 0 }, out = { 0 }, made = { 0 };
	struct keys_grant want[2];
	uint8_t key[32];
	struct err e = { 0 };

	help_hex(&file, grants_hex);
	help_count(key, 32, 0x40);
	for (int i = 0; i < 2; i++) {
		help_count(want[i].pack, 16, (uint8_t)(16 * i));
		memset(want[i].key, 0x51 + i, 32);
	}
	is_int(keyfile_grants_open(&out, SESSION, key, file.p, file.len, &e), 0,
	       "grants vector opens: %s", e.msg);
	ok(out.len == sizeof(want) && !memcmp(out.p, want, out.len),
	   "to two grants");
	keyfile_grants_seal(&made, SESSION, key, want, 2);
	is_int(made.len, file.len, "sealing makes as many bytes");
	is_mem(made.p, file.p, KEYFILE_GRANTS_HEAD_LEN, "and the header");
	is_int(keyfile_grants_open(&out, OTHER, key, file.p, file.len, &e),
	       -EBADMSG, "not for another session");
	is_int(keyfile_grants_open(&out, SESSION, key, file.p, file.len - 1, &e),
	       -EBADMSG, "not cut off");
	file.p[file.len - 1] ^= 1;
	is_int(keyfile_grants_open(&out, SESSION, key, file.p, file.len, &e),
	       -EBADMSG, "not changed");
}

/* The vectors as a folder: keys.c reads what Python wrote. */
static void test_vector_folder(void)
{
	static const char *const names[] = {
		"vec/keys/node.key",
		"vec/keys/tenant/" TENANT ".key",
		"vec/keys/session/ab/" SESSION ".key",
	};
	static const char *const dirs[] = { "vec", "vec/keys", "vec/keys/tenant",
					    "vec/keys/session",
					    "vec/keys/session/ab" };
	static const char provider[] =
		"c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf\n";
	uint8_t key[64], pack[16], want[32], extra[8];
	struct err e = { 0 };
	struct keys *k;
	char tenant[ID_LEN + 1];

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		mkdir(help_path(dirs[i]), 0700);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		SCOPED(buf_done) struct buf b = { 0 };

		help_hex(&b, file_vectors[i].hex);
		help_write(help_path(names[i]), b.p, b.len);
	}
	{
		SCOPED(buf_done) struct buf b = { 0 };

		help_hex(&b, grants_hex);
		help_write(help_path("vec/keys/session/ab/" SESSION ".grants"),
			   b.p, b.len);
	}
	help_write(help_path("vec/keys/provider.key"), provider, 65);
	k = open_keys("vec", true, 0);
	help_count(want, 32, 0x40);
	is_int(keys_session_get(k, SESSION, key, &e), 0, "session key: %s",
	       e.msg);
	is_mem(key, want, 32, "is the vector's");
	is_int(keys_session_tenant(k, SESSION, tenant, &e), 0, "its tenant");
	is_str(tenant, TENANT, "is the vector's");
	help_count(pack, 16, 0);
	is_int(keys_pack_key(k, SESSION, pack, true, key, &e), 0, "own pack");
	ok(help_is_hex(key, 32,
		       "95c8cacaea823c7db261f86f3938a648b2d8e1fb8130e9b4f352eb"
		       "5f6ba137f7"),
	   "derives the vector's key");
	is_int(keys_pack_key(k, SESSION, pack, false, key, &e), 0,
	       "the same pack by grant");
	memset(want, 0x51, 32);
	is_mem(key, want, 32, "has the granted key");
	put_u64(extra, 3);
	is_int(keys_session_derive(k, SESSION, "cryo-overlay-v1", extra, 8, key,
				   64, &e),
	       0, "derive 64 bytes");
	ok(help_is_hex(key, 64,
		       "40ebd30b931d2c4d3133b5adc27c2da28cbed90f6d688c783b0122"
		       "3e37fb99c8eb0ab56460edd03acb3808b5a613f44845c0f0bf2cd5"
		       "6eca1d051fae29144470"),
	   "are the vector's");
	keys_node_derive(k, "cryo-scope-v1", NULL, 0, key, 32);
	ok(help_is_hex(key, 32,
		       "04832d4ff376b0406d83ac762b634b862730732429a3f3f4cbf18b"
		       "f35335f95f"),
	   "and so is the node's tag key");
	is_int(keys_session_destroy(k, SESSION, &e), -EROFS,
	       "read-only destroys nothing");
	is_int(keys_session_create(k, TENANT, OTHER, &e), -EROFS,
	       "and makes nothing");
	keys_close(k);
}

/* --- the folder ----------------------------------------------------------- */

static void test_first_start(void)
{
	SCOPED(buf_done) struct buf a = { 0 }, b = { 0 };
	uint8_t one[32], two[32];
	struct stat st;
	struct keys *k = open_keys("d", false, 0);

	keys_node_derive(k, "x", NULL, 0, one, 32);
	keys_close(k);
	help_read(&a, help_path("d/keys/provider.key"));
	is_int(a.len, 65, "provider key: 64 digits and a newline");
	stat(help_path("d/keys/provider.key"), &st);
	is_int(st.st_mode & 0777, 0600, "0600");
	stat(help_path("d/keys/node.key"), &st);
	is_int(st.st_mode & 0777, 0600, "so is the node's");
	is_int(st.st_size, KEYFILE_LEN, "of 116 bytes");
	k = open_keys("d", false, 0);
	keys_node_derive(k, "x", NULL, 0, two, 32);
	is_mem(one, two, 32, "the second start finds the same node key");
	keys_close(k);
	help_read(&b, help_path("d/keys/provider.key"));
	ok(b.len == a.len && !memcmp(a.p, b.p, a.len), "nothing was remade");

	chmod(help_path("d/keys/provider.key"), 0640);
	open_keys("d", false, -EACCES);
	chmod(help_path("d/keys/provider.key"), 0600);
	help_write(help_path("d/keys/provider.key"), a.p, 63);
	open_keys("d", false, -EBADMSG);
	a.p[3] = 'G';
	help_write(help_path("d/keys/provider.key"), a.p, 65);
	open_keys("d", false, -EBADMSG);
	unlink(help_path("d/keys/provider.key"));
	open_keys("d", false, -ENOKEY);
	ok(access(help_path("d/keys/provider.key"), F_OK) != 0,
	   "a lost provider key is not replaced");
	help_write(help_path("d/keys/provider.key"), b.p, 65);
	k = open_keys("d", false, 0);
	keys_close(k);
	open_keys("none", true, -ENOENT);
}

/* A log without the node's key: a new key would only hide the loss. */
static void test_lost_node_key(void)
{
	mkdir(help_path("lost"), 0700);
	mkdir(help_path("lost/log"), 0700);
	help_write(help_path("lost/log/data.mdb"), "x", 1);
	open_keys("lost", false, -ENOENT);
	ok(access(help_path("lost/keys/node.key"), F_OK) != 0,
	   "no node key is made beside an old log");
}

static void test_elsewhere(void)
{
	struct keys *k = NULL;
	struct err e = { 0 };
	const char *path = help_path("provider-elsewhere");

	mkdir(help_path("e"), 0700);
	is_int(keys_open(&k, help_path("e"), path, false, &now.clock, &e), 0,
	       "provider key elsewhere: %s", e.msg);
	keys_close(k);
	ok(!access(path, F_OK) &&
		   access(help_path("e/keys/provider.key"), F_OK) != 0,
	   "is made there only");
	open_keys("e", false, -ENOKEY);
}

static void test_session(void)
{
	SCOPED(buf_done) struct buf file = { 0 };
	struct err e = { .code = ERR_NR };
	struct keys *k = open_keys("s", false, 0);
	uint8_t one[32], two[32], none[32];
	char tenant[ID_LEN + 1] = "x";
	struct stat st;

	is_int(keys_session_get(k, SESSION, one, &e), -ENOENT, "no key yet");
	is_int(e.code, ERR_NR, "with e untouched");
	is_int(keys_session_create(k, TENANT, SESSION, &e), 0, "create");
	is_int(keys_session_get(k, SESSION, one, &e), 0, "now it has one");
	is_int(keys_session_create(k, TENANT, SESSION, &e), 0, "create again");
	keys_forget_all(k);
	is_int(keys_session_get(k, SESSION, two, &e), 0, "from the file");
	is_mem(one, two, 32, "it is the same key");
	is_int(keys_session_create(k, "other-tenant", SESSION, &e), -EEXIST,
	       "not for another tenant: %s", e.msg);
	is_int(keys_session_create(k, TENANT, OTHER, &e), 0, "another session");
	keys_session_get(k, OTHER, two, &e);
	ok(memcmp(one, two, 32) != 0, "has another key");
	is_int(keys_session_create(k, TENANT, "../../x", &e), -EINVAL,
	       "no path: %s", e.msg);
	is_int(keys_session_create(k, "node", OTHER, &e), -EINVAL,
	       "no tenant may be called node: %s", e.msg);
	is_int(keys_session_create(k, "", "parked", &e), 0, "no tenant");
	is_int(keys_session_create(k, "", "parked", &e), 0, "again");
	is_int(keys_session_tenant(k, "parked", tenant, &e), 0, "it has");
	is_str(tenant, "", "none");
	is_int(keys_session_get(k, "a23456789012345678901", none, &e), -EINVAL,
	       "21 characters");
	stat(help_path("s/keys/session/ab/" SESSION ".key"), &st);
	is_int(st.st_mode & 0777, 0600, "0600");
	help_read(&file, help_path("s/keys/session/ab/" SESSION ".key"));
	ok(!memmem(file.p, file.len, one, 32), "the key is not in its file");
	/* A file under another's name. */
	help_write(help_path("s/keys/session/zz/" OTHER ".key"), file.p,
		   file.len);
	keys_forget_all(k);
	is_int(keys_session_get(k, OTHER, two, &e), -EBADMSG,
	       "a file under another's name is refused: %s", e.msg);
	unlink(help_path("s/keys/tenant/" TENANT ".key"));
	keys_forget_all(k);
	is_int(keys_session_get(k, SESSION, two, &e), -EBADMSG,
	       "a lost tenant key is no destroyed session: %s", e.msg);
	keys_close(k);
}

static void test_cache(void)
{
	struct keys *k = open_keys("c", false, 0);
	struct err e = { 0 };
	char name[ID_LEN + 1];
	uint8_t one[32], key[32];
	int bad = 0;

	keys_session_create(k, TENANT, SESSION, &e);
	keys_session_get(k, SESSION, one, &e);
	help_rm(help_path("c/keys/session/ab"));
	clock_virtual_advance(&now, 59 * NS_PER_S);
	is_int(keys_session_get(k, SESSION, key, &e), 0,
	       "59 s later it is known without its file");
	is_mem(key, one, 32, "and the same");
	clock_virtual_advance(&now, NS_PER_S);
	is_int(keys_session_get(k, SESSION, key, &e), -ENOENT,
	       "60 s after it was read it is not");

	/* The provider key gone: nothing unwraps, what is known fades. */
	keys_session_create(k, TENANT, SESSION, &e);
	unlink(help_path("c/keys/provider.key"));
	is_int(keys_session_get(k, SESSION, key, &e), 0,
	       "without the provider: known for a while");
	clock_virtual_advance(&now, 60 * NS_PER_S);
	is_int(keys_session_get(k, SESSION, key, &e), -ENOKEY,
	       "then refused, and not as destroyed: %s", e.msg);
	ok(strstr(e.msg, "provider key"), "naming the provider key");
	keys_close(k);

	k = open_keys("c2", false, 0);
	for (int i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "s%d", i + 1000);
		bad += keys_session_create(k, TENANT, name, &e) != 0;
	}
	for (int i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "s%d", i + 1000);
		bad += keys_session_get(k, name, key, &e) != 0;
	}
	is_int(bad, 0, "600 sessions, more than the cache holds");
	keys_close(k);
}

static size_t files_below(const char *path)
{
	return help_files(path, "", 0, NULL);
}

static void test_destroy(void)
{
	static const struct keys_grant grant = { { 7 }, { 8 } };
	const char *path;
	struct keys *k = open_keys("x", false, 0);
	struct err e = { .code = ERR_NR };
	uint8_t key[32], pack[16] = { 7 };
	int fd;

	keys_session_create(k, TENANT, SESSION, &e);
	keys_session_create(k, TENANT, OTHER, &e);
	keys_grant_add(k, SESSION, &grant, 1, &e);
	keys_session_get(k, SESSION, key, &e);
	path = help_path("x/keys/session/ab/" SESSION ".key");
	/* The inode of the key file, watched through its end. */
	fd = open(path, O_RDONLY);
	is_int(keys_session_destroy(k, SESSION, &e), 0, "destroy");
	{
		uint8_t left[KEYFILE_LEN + 1];
		struct keyfile_name name;

		is_int(pread(fd, left, sizeof(left), 0), KEYFILE_LEN,
		       "the file had its length to the end");
		is_int(keyfile_decode(&name, left, KEYFILE_LEN, &e), -EBADMSG,
		       "but its bytes were overwritten");
	}
	close(fd);
	ok(access(path, F_OK) != 0, "the name is gone");
	is_int(files_below(help_path("x/keys/session/ab")), 0, "and the grants");
	is_int(files_below(help_path("x/keys/tmp")), 0, "nothing in tmp");
	e.code = ERR_NR;
	is_int(keys_session_get(k, SESSION, key, &e), -ENOENT,
	       "no key, at once, in spite of the cache");
	is_int(e.code, ERR_NR, "with e untouched");
	is_int(keys_pack_key(k, SESSION, pack, true, key, &e), -ENOENT,
	       "no pack key: %s", e.msg);
	is_int(e.code, ERR_GONE, "it is gone");
	is_int(keys_session_destroy(k, SESSION, &e), 0, "again: fine");
	is_int(keys_session_get(k, OTHER, key, &e), 0, "others are untouched");
	keys_close(k);
}

/* What a crash in the middle of a destruction leaves. */
static void test_leftover(void)
{
	struct keys *k = open_keys("l", false, 0);
	struct err e = { 0 };

	keys_session_create(k, TENANT, SESSION, &e);
	keys_close(k);
	rename(help_path("l/keys/session/ab/" SESSION ".key"),
	       help_path("l/keys/tmp/half"));
	k = open_keys("l", true, 0);
	is_int(files_below(help_path("l/keys/tmp")), 1,
	       "read-only leaves what is there");
	keys_close(k);
	k = open_keys("l", false, 0);
	is_int(files_below(help_path("l/keys/tmp")), 0,
	       "the next start ends a half destruction");
	keys_close(k);
}

static void test_grants(void)
{
	static struct keys_grant many[KEYS_GRANTS_MAX];
	struct keys *k = open_keys("g", false, 0);
	struct err e = { 0 };
	uint8_t key[32], own[32], pack[16] = { 1, 2, 3 };

	keys_session_create(k, TENANT, SESSION, &e);
	keys_session_create(k, TENANT, OTHER, &e);
	is_int(keys_pack_key(k, SESSION, pack, true, own, &e), 0, "own key");
	is_int(keys_pack_key(k, OTHER, pack, false, key, &e), -ENOENT,
	       "another's pack is not readable: %s", e.msg);
	is_int(keys_pack_key(k, OTHER, pack, true, key, &e), 0,
	       "and claiming it");
	ok(memcmp(key, own, 32) != 0, "gives a key that opens nothing");
	memcpy(many[0].pack, pack, 16);
	memcpy(many[0].key, own, 32);
	is_int(keys_grant_add(k, OTHER, many, 1, &e), 0, "grant it");
	is_int(keys_pack_key(k, OTHER, pack, false, key, &e), 0, "now it is");
	is_mem(key, own, 32, "with the owner's key");
	is_int(keys_session_destroy(k, SESSION, &e), 0, "the owner goes");
	is_int(keys_pack_key(k, OTHER, pack, false, key, &e), 0,
	       "the grant stays");
	is_int(keys_grant_add(k, SESSION, many, 1, &e), -ENOENT,
	       "none to a destroyed session: %s", e.msg);

	for (size_t i = 1; i < KEYS_GRANTS_MAX; i++)
		put_u64(many[i].pack, i << 8 | 0xff);
	is_int(keys_grant_add(k, OTHER, many, 5, &e), 0, "some with it again");
	is_int(keys_grant_add(k, OTHER, many + 5, 3, &e), 0, "and others");
	pack[0] = 0xff;
	pack[1] = 7;
	pack[2] = 0;
	is_int(keys_pack_key(k, OTHER, pack, false, key, &e), 0, "all are there");
	{
		struct stat st;

		stat(help_path("g/keys/session/zz/" OTHER ".grants"), &st);
		is_int(st.st_size, 36 + 28 + 8 * 48, "each kept once");
	}
	is_int(keys_grant_add(k, OTHER, many, KEYS_GRANTS_MAX, &e), -E2BIG,
	       "too many: %s", e.msg);
	keys_session_create(k, TENANT, "many", &e);
	is_int(keys_grant_add(k, "many", many, KEYS_GRANTS_MAX, &e), 0,
	       "as many as may be");
	keys_close(k);
	k = open_keys("g", false, 0);
	memcpy(pack, many[KEYS_GRANTS_MAX - 1].pack, 16);
	is_int(keys_pack_key(k, "many", pack, false, key, &e), 0,
	       "the last of them, after a restart: %s", e.msg);
	help_flip(help_path("g/keys/session/ma/many.grants"), 5000);
	is_int(keys_pack_key(k, "many", pack, false, key, &e), -EBADMSG,
	       "a changed grants file is refused: %s", e.msg);
	keys_close(k);
}

int main(void)
{
	clock_virtual_init(&now, 1767225600000000000);
	for (size_t i = 0; i < ARRAY_LEN(file_vectors); i++)
		test_file_vector(&file_vectors[i]);
	test_grants_vector();
	test_vector_folder();
	test_first_start();
	test_lost_node_key();
	test_elsewhere();
	test_session();
	test_cache();
	test_destroy();
	test_leftover();
	test_grants();
	return tap_done();
}
