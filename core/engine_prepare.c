/*
 * engine_prepare: everything that decide() must not fetch for itself: ids,
 * times, defaults, the digest of env. Once per command, so that one that
 * waits its turn keeps its ids; times are taken anew for each try.
 */
#include "core/engine_internal.h"

#include <stdio.h>

static void need_id(struct engine *en, char *id)
{
	struct id fresh;

	if (id[0])
		return;
	en->conf.new_id(&fresh);
	base_strcpy(id, ID_LEN + 1, fresh.s);
}

/* Tags come from a guest: no nonsense, nothing twice. */
static void clean_hello(struct command *c)
{
	int kept = 0;

	for (int i = 0; i < c->nr_hello; i++) {
		bool twice = false;

		for (int k = 0; k < kept; k++)
			twice |= !strcmp(c->hello[k].tag, c->hello[i].tag);
		if (!twice && id_valid(c->hello[i].tag))
			c->hello[kept++] = c->hello[i];
	}
	c->nr_hello = kept;
}

static void digest_env(struct engine *en, struct command *c)
{
	struct buf b SCOPED(buf_done) = { 0 };
	uint8_t digest[32];

	if (!en->conf.env_digest || !json_object_size(c->env) ||
	    c->env_digest[0] || json_canonical(&b, c->env))
		return;
	en->conf.env_digest(en->conf.env_digest_ctx, c->tenant, b.p, b.len,
			    digest);
	base_wipe(b.p, b.len);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(c->env_digest + 2 * i, 3, "%02x", digest[i]);
}

static void prepare_create(struct engine *en, struct command *c)
{
	need_id(en, c->session);
	need_id(en, c->park);
	need_id(en, c->park_op);
	session_spec_fill(&c->spec, &en->conf.limits);
}

void engine_prepare(struct engine *en, struct command *c)
{
	c->wall_ns = clock_wall(en->conf.clock);
	c->mono_ns = clock_mono(en->conf.clock);
	memcpy(c->boot_id, en->conf.boot_id, sizeof(c->boot_id));
	if (command_is_client(c->kind) || c->kind == COMMAND_TTL)
		need_id(en, c->operation);
	if (c->kind == COMMAND_CREATE)
		prepare_create(en, c);
	if (c->kind == COMMAND_TEMPLATE_ADD)
		session_spec_fill(&c->spec, &en->conf.limits);
	if (c->kind == COMMAND_EXEC_START) {
		need_id(en, c->fresh);
		digest_env(en, c);
	}
	for (int i = 0; i < MIN(c->nr_children, FORK_MAX); i++)
		need_id(en, c->children[i].id);
	if (c->nr_hello)
		clean_hello(c);
}
