/*
 * create: the options that say what a session shall be, shared by the verbs
 * that make one.
 */
#ifndef TOOLS_CRYO_CREATE_H
#define TOOLS_CRYO_CREATE_H

#include "tools/cryo/cryo.h"

struct create_common {
	const char *template, *every, *ttl;
	int64_t memory, vcpus, disk;
};

/* Rows of an option table: `s` has a struct create_common as member `m`. */
#define CREATE_COMMON(s, m)                                          \
	{ .name = "template",                                        \
	  .kind = ARGS_TEXT,                                         \
	  .value = "T",                                              \
	  .help = "name:tag of the template to start from",          \
	  .at = offsetof(s, m.template) },                           \
		{ .name = "snapshot-every",                          \
		  .kind = ARGS_TEXT,                                 \
		  .value = "60s",                                    \
		  .help = "time from one rolling point to the next", \
		  .at = offsetof(s, m.every) },                      \
		{ .name = "memory",                                  \
		  .kind = ARGS_INT,                                  \
		  .value = "MiB",                                    \
		  .help = "memory of the machine",                   \
		  .min = 1,                                          \
		  .max = 1 << 20,                                    \
		  .at = offsetof(s, m.memory) },                     \
		{ .name = "vcpus",                                   \
		  .kind = ARGS_INT,                                  \
		  .value = "N",                                      \
		  .help = "processors of the machine",               \
		  .min = 1,                                          \
		  .max = 1024,                                       \
		  .at = offsetof(s, m.vcpus) },                      \
		{ .name = "disk",                                    \
		  .kind = ARGS_INT,                                  \
		  .value = "MiB",                                    \
		  .help = "size of its disk",                        \
		  .min = 1,                                          \
		  .max = 1 << 24,                                    \
		  .at = offsetof(s, m.disk) },                       \
	{                                                            \
		.name = "ttl", .kind = ARGS_TEXT, .value = "1h",     \
		.help = "running time after which it is suspended",  \
		.at = offsetof(s, m.ttl)                             \
	}

/* Puts what was given into the body of a request. */
void create_body(json_t *body, const struct create_common *o);

#endif
