/*
 * effect: allocation and words of effects; see effect.h. Whoever holds an
 * effect frees it.
 */
#include "core/effect.h"

static const char *const words[EFFECT_NR] = {
#define X(name, word) [EFFECT_##name] = word,
	EFFECTS(X)
#undef X
};

struct effect *effect_new(enum effect_kind kind)
{
	struct effect *fx = base_alloc(sizeof(*fx));

	fx->kind = kind;
	return fx;
}

void effect_free(struct effect *fx)
{
	if (!fx)
		return;
	json_decref(fx->argv);
	json_decref(fx->env);
	free(fx->cwd);
	free(fx);
}

const char *effect_word(enum effect_kind kind)
{
	PRE(kind < EFFECT_NR);
	return words[kind];
}
