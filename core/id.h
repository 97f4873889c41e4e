/*
 * id: names of things: 20 characters of [a-z0-9], random, the first a letter
 * (103 bits). Never derived from time or content, so they tell nothing.
 */
#ifndef CORE_ID_H
#define CORE_ID_H

#include "core/base.h"

#define ID_LEN 20

struct id {
	char s[ID_LEN + 1];
};

void id_new(struct id *ret_id);
bool id_valid(const char *s);
int id_parse(struct id *ret_id, const char *s); /* -EINVAL if not an id */

#endif
