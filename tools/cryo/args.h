/*
 * args: the command line of a verb, described by a table. The same table
 * parses, checks and prints `--help`, so the three can't disagree. Tables
 * are constant: where a value goes is an offset into the verb's options.
 */
#ifndef TOOLS_CRYO_ARGS_H
#define TOOLS_CRYO_ARGS_H

#include "core/err.h"

#define ARGS_POS_MAX 64
#define ARGS_LIST_MAX 64

struct args_list {
	const char *v[ARGS_LIST_MAX];
	int nr;
};

enum args_kind {
	ARGS_FLAG, /* bool */
	ARGS_TEXT, /* const char * */
	ARGS_LIST, /* struct args_list: may be given again and again */
	ARGS_INT, /* int64_t in min..max */
};

struct args_opt {
	const char *name; /* "snapshot-every" */
	char letter; /* 'n', or 0 */
	enum args_kind kind;
	const char *value; /* what help calls the value: "60s" */
	const char *help;
	size_t at; /* offset into the verb's options; zero if not given */
	int64_t min, max;
};

struct args_spec {
	const char *verb;
	const char *usage; /* after "cryo VERB ": "ID [--at T]" */
	const char *about; /* lines of help */
	const struct args_opt *opts;
	int nr_opts;
	int min_pos, max_pos;
	bool command; /* takes "-- CMD...", and needs it */
};

struct args {
	const char *pos[ARGS_POS_MAX];
	int nr_pos;
	char **cmd; /* after "--"; NULL-terminated */
	int nr_cmd;
	bool json, help;
	const char *data; /* --data, or NULL */
};

/*
 * Parses argv[0..argc) (after the verb) into `opts`, the verb's zeroed
 * struct, and `ret`. 0; -EINVAL with what is wrong and how to write it; 1
 * after printing help: the verb ends with success.
 */
int args_parse(const struct args_spec *spec, int argc, char **argv, void *opts,
	       struct args *ret, struct err *e);

void args_help(const struct args_spec *spec);

#endif
