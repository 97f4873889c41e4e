/*
 * auth: peers of the unix socket, and API keys.
 *
 * A token is "cryo_" + key id + "_" + 64 hex digits of secret. The id finds
 * the row; the secret's SHA-256 must be the row's `hash`. The secret has 256
 * random bits, so a plain hash is enough: there is nothing to guess.
 *
 * Invariants: a secret is never stored, never logged, compared in constant
 * time; an unknown id, a malformed token and a wrong secret get one answer;
 * rights are read from the row at each request, so a removed key stops at
 * once.
 */
#include "api/auth.h"

#include <stdio.h>

static const struct {
	const char *word;
	enum scope scope;
} auth_words[] = {
	{ "read", SCOPE_READ },
	{ "write", SCOPE_WRITE },
	{ "exec", SCOPE_EXEC },
	{ "admin", SCOPE_ADMIN },
};

int auth_local(struct principal *ret, uid_t uid, uid_t owner,
	       const char *tenant, struct err *e)
{
	struct principal p = { .local = true, .scopes = SCOPE_ALL };

	if (uid != 0 && uid != geteuid() && uid != owner)
		return err_set(e, -EPERM, ERR_FORBIDDEN,
			       "user %u may not administer this daemon over "
			       "its socket; use root, or TCP with an API key",
			       (unsigned)uid);
	base_strcpy(p.tenant, sizeof(p.tenant), tenant);
	snprintf(p.actor, sizeof(p.actor), "local:%u", (unsigned)uid);
	*ret = p;
	return 0;
}

static void auth_hex(char *ret, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		snprintf(ret + 2 * i, 3, "%02x", p[i]);
}

static void auth_hash_text(char ret[DIGEST_TEXT_LEN + 1], const char *secret,
			   auth_hash_fn hash)
{
	uint8_t digest[32];

	hash(digest, secret, AUTH_SECRET_LEN);
	auth_hex(ret, digest, sizeof(digest));
}

/* "Bearer cryo_ID_SECRET" -> id and where the secret begins */
static int auth_split(const char *header, struct id *ret_id,
		      const char **ret_secret)
{
	char id[ID_LEN + 1] = "";

	if (!header || strncasecmp(header, "Bearer ", 7))
		return -EINVAL;
	header += 7;
	if (strlen(header) != AUTH_TOKEN_LEN || strncmp(header, "cryo_", 5) ||
	    header[5 + ID_LEN] != '_')
		return -EINVAL;
	memcpy(id, header + 5, ID_LEN);
	*ret_secret = header + 5 + ID_LEN + 1;
	return id_parse(ret_id, id);
}

static int auth_refuse(const char *header, struct err *e)
{
	return err_set(e, -EACCES, ERR_UNAUTHORIZED,
		       header ? "this API key is not valid; make one with "
				"`cryo key create`"
			      : "an API key is needed: send it as "
				"\"Authorization: Bearer KEY\"");
}

int auth_bearer(struct principal *ret, const struct reader *r,
		const char *header, auth_hash_fn hash, struct err *e)
{
	SCOPED_JSON json_t *row = NULL;
	struct principal p = { 0 };
	const char *secret, *want, *tenant;
	char have[DIGEST_TEXT_LEN + 1];
	struct id id;
	int n;

	if (auth_split(header, &id, &secret) < 0)
		return auth_refuse(header, e);
	n = rows_json(r, TABLE_KEYS, id.s, ID_LEN, &row, e);
	if (n == -ENOENT)
		return auth_refuse(header, e);
	if (n < 0)
		return n;
	want = json_string_value(json_object_get(row, "hash"));
	tenant = json_string_value(json_object_get(row, "tenant"));
	auth_hash_text(have, secret, hash);
	if (!want || strlen(want) != DIGEST_TEXT_LEN || !tenant ||
	    !base_same_secret(have, want, DIGEST_TEXT_LEN))
		return auth_refuse(header, e);
	n = auth_scopes_parse(&p.scopes, json_object_get(row, "scopes"), e);
	if (n < 0)
		return err_wrap(e, n, "API key %s", id.s);
	base_strcpy(p.tenant, sizeof(p.tenant), tenant);
	base_strcpy(p.key, sizeof(p.key), id.s);
	snprintf(p.actor, sizeof(p.actor), "key:%s", id.s);
	*ret = p;
	return 0;
}

void auth_token_new(char ret_token[AUTH_TOKEN_LEN + 1],
		    char ret_hash[DIGEST_TEXT_LEN + 1], const char *id,
		    auth_hash_fn hash)
{
	uint8_t raw[AUTH_SECRET_LEN / 2];
	char secret[AUTH_SECRET_LEN + 1];

	PRE(id_valid(id));
	base_random(raw, sizeof(raw));
	auth_hex(secret, raw, sizeof(raw));
	auth_hash_text(ret_hash, secret, hash);
	snprintf(ret_token, AUTH_TOKEN_LEN + 1, "cryo_%s_%s", id, secret);
	base_wipe(raw, sizeof(raw));
	base_wipe(secret, sizeof(secret));
}

json_t *auth_scopes_to_json(unsigned scopes)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ARRAY_LEN(auth_words); i++)
		if (scopes & auth_words[i].scope)
			json_array_append_new(list,
					      json_string(auth_words[i].word));
	return list;
}

static unsigned auth_scope_of(const char *word)
{
	for (size_t i = 0; word && i < ARRAY_LEN(auth_words); i++)
		if (!strcmp(word, auth_words[i].word))
			return auth_words[i].scope;
	return 0;
}

int auth_scopes_parse(unsigned *ret, const json_t *list, struct err *e)
{
	unsigned scopes = 0, one;
	json_t *item;
	size_t i;

	if (!json_is_array(list))
		return err_set(e, -EINVAL, ERR_INVALID,
			       "\"scopes\" must be a list of: read, write, "
			       "exec, admin");
	json_array_foreach(list, i, item) {
		one = auth_scope_of(json_string_value(item));
		if (!one)
			return err_set(e, -EINVAL, ERR_INVALID,
				       "\"%.40s\" is not a scope; there are: "
				       "read, write, exec, admin",
				       json_is_string(item)
					       ? json_string_value(item)
					       : "(not a string)");
		scopes |= one;
	}
	*ret = scopes;
	return 0;
}
