/*
 * api_auth: tokens, scopes, peers; what is refused and that it tells
 * nothing.
 */
#include "api/auth.h"

#include "store/crypt.h"
#include "tests/memstore.h"
#include "tests/tap.h"

static struct memstore store;

/* A key's row as the log's projection writes it. */
static void put_key(const char *id, const char *hash, const char *scopes)
{
	SCOPED_FREE char *row =
		base_printf("{\"hash\":\"%s\",\"id\":\"%s\",\"scopes\":%s,"
			    "\"tenant\":\"tenant00000000000001\"}",
			    hash, id, scopes);
	struct err e;

	store.port.begin(&store, &e);
	store.port.put(&store, TABLE_KEYS, id, ID_LEN, row, strlen(row), &e);
	store.port.commit(&store, &e);
}

static int bearer(struct principal *p, const char *header, struct err *e)
{
	struct reader r = { .ops = store.views.ops };
	int n;

	store.views.open(store.views.ctx, &r.view, e);
	n = auth_bearer(p, &r, header, crypt_sha256, e);
	store.views.close(r.view);
	return n;
}

static void tokens(void)
{
	/* SHA-256 of 64 times "0", by the openssl command line */
	static const char zeros_hash[] = "60e05bd1b195af2f94112fa7197a5c8828905"
					 "8840ce7c6df9693756bc6250f55";
	static const char id[] = "abcdefghij0123456789";
	char token[AUTH_TOKEN_LEN + 1], again[AUTH_TOKEN_LEN + 1];
	char hash[DIGEST_TEXT_LEN + 1], header[256];
	struct principal p = { 0 };
	struct err e = { 0 };

	put_key(id, zeros_hash, "[\"read\",\"exec\"]");
	snprintf(header, sizeof(header), "Bearer cryo_%s_%064d", id, 0);
	is_int(bearer(&p, header, &e), 0, "a right key");
	is_str(p.tenant, "tenant00000000000001", "is its tenant's");
	is_str(p.actor, "key:abcdefghij0123456789", "and acts by its id");
	ok(p.scopes == (SCOPE_READ | SCOPE_EXEC) && !p.local,
	   "with its row's scopes, not as local administration");
	header[0] = 'b';
	is_int(bearer(&p, header, &e), 0, "the scheme's case doesn't matter");

	auth_token_new(token, hash, id, crypt_sha256);
	auth_token_new(again, hash, id, crypt_sha256);
	ok(strcmp(token, again), "no two tokens are the same");
	is_int((int)strlen(again), AUTH_TOKEN_LEN, "of the stated length");
	put_key(id, hash, "[\"admin\"]");
	snprintf(header, sizeof(header), "Bearer %s", again);
	is_int(bearer(&p, header, &e), 0, "a new token opens its own row");
	snprintf(header, sizeof(header), "Bearer %s", token);
	is_int(bearer(&p, header, &e), -EACCES, "and no other does");
}

static void refusals(void)
{
	static const char id[] = "abcdefghij0123456789";
	char token[AUTH_TOKEN_LEN + 1], hash[DIGEST_TEXT_LEN + 1];
	char good[256], header[300], unknown_text[256];
	struct principal p = { .tenant = "untouched" };
	struct err e = { 0 };

	auth_token_new(token, hash, id, crypt_sha256);
	put_key(id, hash, "[\"read\"]");
	snprintf(good, sizeof(good), "Bearer %s", token);
	is_int(bearer(&p, NULL, &e), -EACCES, "no header");
	is_int(e.code, ERR_UNAUTHORIZED, "is not authenticated");
	snprintf(header, sizeof(header), "Bearer cryo_%s_%.64s",
		 "zzzzzzzzzz0123456789", token + 26);
	is_int(bearer(&p, header, &e), -EACCES, "an unknown key");
	base_strcpy(unknown_text, sizeof(unknown_text), e.msg);
	for (size_t i = 7; i < strlen(good); i += 9) {
		base_strcpy(header, sizeof(header), good);
		header[i] = header[i] == '0' ? '1' : '0';
		ok(bearer(&p, header, &e) == -EACCES &&
			   !strcmp(e.msg, unknown_text),
		   "a wrong character at %zu, and the same words", i);
	}
	snprintf(header, sizeof(header), "%s0", good);
	is_int(bearer(&p, header, &e), -EACCES, "one character more");
	base_strcpy(header, strlen(good), good);
	is_int(bearer(&p, header, &e), -EACCES, "one less");
	snprintf(header, sizeof(header), "Basic %s", token);
	is_int(bearer(&p, header, &e), -EACCES, "another scheme");
	is_int(bearer(&p, good + 7, &e), -EACCES, "no scheme");
	put_key(id, "short", "[\"read\"]");
	is_int(bearer(&p, good, &e), -EACCES, "a row with a broken hash");
	put_key(id, hash, "\"all\"");
	ok(bearer(&p, good, &e) < 0, "a row with broken scopes");
	ok(bearer(&p, good, &e) < 0 && !strcmp(p.tenant, "untouched"),
	   "nothing is given with an error");
}

static void scopes(void)
{
	static const char *const bad[] = {
		"{}", "\"read\"", "[\"Read\"]", "[\"read\",5]", "[\"\"]",
	};
	struct err e = { 0 };
	unsigned got = 77;

	for (unsigned s = 0; s <= SCOPE_ALL; s++) {
		SCOPED_JSON json_t *list = auth_scopes_to_json(s);

		ok(auth_scopes_parse(&got, list, &e) == 0 && got == s,
		   "scopes %u there and back", s);
	}
	got = 77;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		SCOPED_JSON json_t *j = NULL;

		json_parse(&j, bad[i], strlen(bad[i]), &e);
		is_int(auth_scopes_parse(&got, j, &e), -EINVAL, "refuses %s",
		       bad[i]);
	}
	is_int((int)got, 77, "and gives nothing");
	is_int(auth_scopes_parse(&got, NULL, &e), -EINVAL, "nor for none");
}

static void peers(void)
{
	struct principal p;
	struct err e = { 0 };

	is_int(auth_local(&p, 0, 4711, "t", &e), 0, "root administers");
	is_str(p.actor, "local:0", "under its uid");
	ok(p.local && p.scopes == SCOPE_ALL, "and may everything");
	is_int(auth_local(&p, 4711, 4711, "t", &e), 0, "so does the owner");
	is_int(auth_local(&p, geteuid(), 4711, "t", &e), 0, "and our own uid");
	is_int(auth_local(&p, 4712, 4711, "t", &e), -EPERM, "nobody else");
	ok(strstr(e.msg, "4712") != NULL, "who is named");
}

int main(void)
{
	memstore_init(&store);
	tokens();
	refusals();
	scopes();
	peers();
	memstore_done(&store);
	return tap_done();
}
