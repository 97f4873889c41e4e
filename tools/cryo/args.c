/*
 * args: option tables.
 *
 * How it works: options and positional words may be mixed; "--" ends both
 * and begins the command. `--name value`, `--name=value`, `-n value` and
 * `-nvalue` are the same. Every verb also knows --data, --json and --help.
 *
 * Invariants: a failed parse names the word it fails on and the usage; an
 * option's value is never taken for a positional word.
 */
#include "tools/cryo/args.h"

#include <inttypes.h>
#include <stdio.h>

static const struct args_opt args_common[] = {
	{ .name = "data",
	  .kind = ARGS_TEXT,
	  .value = "DIR",
	  .help = "the daemon's data folder (else CRYO_DATA)",
	  .at = offsetof(struct args, data) },
	{ .name = "json",
	  .kind = ARGS_FLAG,
	  .help = "print JSON for programs",
	  .at = offsetof(struct args, json) },
	{ .name = "help",
	  .letter = 'h',
	  .kind = ARGS_FLAG,
	  .help = "print this text",
	  .at = offsetof(struct args, help) },
};

static int args_usage(const struct args_spec *spec, struct err *e,
		      const char *what, const char *word)
{
	return err_set(e, -EINVAL, ERR_INVALID,
		       "%s%s%.60s; usage: cryo %s %s (see cryo %s --help)",
		       what, word ? " " : "", word ? word : "", spec->verb,
		       spec->usage, spec->verb);
}

static int args_int(const char *s, const struct args_opt *o, int64_t *ret)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(s, &end, 10);
	if (errno || end == s || *end || v < o->min || v > o->max)
		return -EINVAL;
	*ret = v;
	return 0;
}

static int args_store(const struct args_spec *spec, const struct args_opt *o,
		      const char *value, void *opts, struct err *e)
{
	void *at = (char *)opts + o->at;
	struct args_list *list = at;

	switch (o->kind) {
	case ARGS_FLAG:
		*(bool *)at = true;
		return 0;
	case ARGS_TEXT:
		*(const char **)at = value;
		return 0;
	case ARGS_LIST:
		if (list->nr == ARGS_LIST_MAX)
			return args_usage(spec, e, "too many of", o->name);
		list->v[list->nr++] = value;
		return 0;
	case ARGS_INT:
		if (args_int(value, o, at) == 0)
			return 0;
		return err_set(e, -EINVAL, ERR_INVALID,
			       "--%s %.40s: give a whole number from %" PRId64
			       " to %" PRId64,
			       o->name, value, o->min, o->max);
	}
	NEVER("an option of no kind");
}

/* Matches argv word `s`; *ret_value points behind '=' or letter, or NULL. */
static bool args_match(const struct args_opt *o, const char *s,
		       const char **ret_value)
{
	size_t len = strlen(o->name);

	*ret_value = NULL;
	if (s[1] != '-') {
		if (!o->letter || s[1] != o->letter)
			return false;
		if (s[2])
			*ret_value = s + 2 + (s[2] == '=');
		return true;
	}
	if (strncmp(s + 2, o->name, len) || (s[2 + len] && s[2 + len] != '='))
		return false;
	if (s[2 + len])
		*ret_value = s + 3 + len;
	return true;
}

/* Words taken, 0 if the option isn't in this table, -EINVAL. */
static int args_option(const struct args_spec *spec, const struct args_opt *table,
		       int nr, char **argv, int left, void *opts, struct err *e)
{
	const char *value;

	for (int i = 0; i < nr; i++) {
		const struct args_opt *o = &table[i];
		int r;

		if (!args_match(o, argv[0], &value))
			continue;
		if (o->kind == ARGS_FLAG && value)
			return args_usage(spec, e, "no value belongs to",
					  o->name);
		if (o->kind == ARGS_FLAG || value) {
			r = args_store(spec, o, value, opts, e);
			return r < 0 ? r : 1;
		}
		if (left < 2)
			return args_usage(spec, e, "a value is missing after",
					  argv[0]);
		r = args_store(spec, o, argv[1], opts, e);
		return r < 0 ? r : 2;
	}
	return 0;
}

static int args_check(const struct args_spec *spec, const struct args *a,
		      struct err *e)
{
	if (a->nr_pos < spec->min_pos)
		return args_usage(spec, e, "something is missing", NULL);
	if (spec->command && !a->nr_cmd)
		return args_usage(spec, e,
				  "the command is missing: put it after --",
				  NULL);
	return 0;
}

/* One word that isn't "--"; the number of words taken or -EINVAL. */
static int args_word(const struct args_spec *spec, char **argv, int left,
		     void *opts, struct args *a, struct err *e)
{
	int n;

	if (argv[0][0] != '-' || !argv[0][1]) {
		if (a->nr_pos == spec->max_pos)
			return args_usage(spec, e, "one word too many:", argv[0]);
		a->pos[a->nr_pos++] = argv[0];
		return 1;
	}
	n = args_option(spec, spec->opts, spec->nr_opts, argv, left, opts, e);
	if (n == 0)
		n = args_option(spec, args_common, (int)ARRAY_LEN(args_common),
				argv, left, a, e);
	if (n == 0)
		return args_usage(spec, e, "unknown option", argv[0]);
	return n;
}

int args_parse(const struct args_spec *spec, int argc, char **argv, void *opts,
	       struct args *ret, struct err *e)
{
	struct args a = { 0 };

	for (int i = 0; i < argc;) {
		int n;

		if (!strcmp(argv[i], "--") && spec->command) {
			a.cmd = argv + i + 1;
			a.nr_cmd = argc - i - 1;
			break;
		}
		n = args_word(spec, argv + i, argc - i, opts, &a, e);
		if (n < 0)
			return n;
		i += n;
	}
	if (a.help) {
		args_help(spec);
		return 1;
	}
	*ret = a;
	return args_check(spec, ret, e);
}

static void args_help_one(const struct args_opt *o)
{
	char left[64];
	int n = snprintf(left, sizeof(left), "--%s%s%s", o->name,
			 o->value ? " " : "", o->value ? o->value : "");

	if (o->letter && n > 0 && (size_t)n < sizeof(left))
		snprintf(left + n, sizeof(left) - (size_t)n, ", -%c", o->letter);
	printf("  %-26s %s\n", left, o->help);
}

void args_help(const struct args_spec *spec)
{
	printf("usage: cryo %s %s\n\n%s\n\n", spec->verb, spec->usage,
	       spec->about);
	for (int i = 0; i < spec->nr_opts; i++)
		args_help_one(&spec->opts[i]);
	for (size_t i = 0; i < ARRAY_LEN(args_common); i++)
		args_help_one(&args_common[i]);
}
