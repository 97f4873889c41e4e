/*
 * command: allocation and words of commands; see command.h. Ownership: a
 * command owns its JSON, cwd and hello; whoever holds the command frees it.
 */
#include "core/command.h"

static const char *const words[COMMAND_NR] = {
#define X(name, word) [COMMAND_##name] = word,
	COMMANDS(X)
#undef X
};

struct command *command_new(enum command_kind kind)
{
	struct command *c = base_alloc(sizeof(*c));

	PRE(kind < COMMAND_NR);
	c->kind = kind;
	return c;
}

void command_free(struct command *c)
{
	if (!c)
		return;
	json_decref(c->info);
	json_decref(c->argv);
	json_decref(c->env);
	free(c->cwd);
	free(c->hello);
	free(c);
}

const char *command_word(enum command_kind kind)
{
	PRE(kind < COMMAND_NR);
	return words[kind];
}

struct exec_hello *command_hello(struct command *c, int nr)
{
	PRE(nr >= 0 && nr <= EXEC_HELLO_MAX && !c->hello);
	c->hello_known = true;
	c->nr_hello = nr;
	c->hello = base_alloc(sizeof(*c->hello) * (size_t)MAX(nr, 1));
	return c->hello;
}

bool command_is_client(enum command_kind kind)
{
	return kind < COMMAND_NODE_START;
}
