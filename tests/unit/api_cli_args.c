/*
 * api_cli_args: option tables of the command line: every way to write an
 * option, and everything that is refused with the reason.
 */
#include "tools/cryo/args.c" /* the module itself: it is in no library */

#include "tests/tap.h"

struct opts {
	bool flag;
	const char *text;
	struct args_list list;
	int64_t number;
};

static const struct args_opt table[] = {
	{ .name = "flag",
	  .letter = 'f',
	  .kind = ARGS_FLAG,
	  .help = "a flag",
	  .at = offsetof(struct opts, flag) },
	{ .name = "text",
	  .letter = 't',
	  .kind = ARGS_TEXT,
	  .value = "T",
	  .help = "a text",
	  .at = offsetof(struct opts, text) },
	{ .name = "list",
	  .kind = ARGS_LIST,
	  .value = "L",
	  .help = "a list",
	  .at = offsetof(struct opts, list) },
	{ .name = "number",
	  .letter = 'n',
	  .kind = ARGS_INT,
	  .value = "N",
	  .help = "a number",
	  .min = 1,
	  .max = 64,
	  .at = offsetof(struct opts, number) },
};

static const struct args_spec spec = {
	.verb = "try",
	.usage = "ID [--flag] -- CMD...",
	.about = "Tries.",
	.opts = table,
	.nr_opts = ARRAY_LEN(table),
	.min_pos = 1,
	.max_pos = 2,
	.command = true,
};

static struct opts o;
static struct args a;
static struct err e;

/* Parses words given in one string, cut at blanks. */
static int parse(const char *line)
{
	static char text[512];
	static char *argv[64];
	int argc = 0;
	char *save = NULL;

	o = (struct opts){ 0 };
	a = (struct args){ 0 };
	e = (struct err){ 0 };
	base_strcpy(text, sizeof(text), line);
	for (char *w = strtok_r(text, " ", &save); w;
	     w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	argv[argc] = NULL;
	return args_parse(&spec, argc, argv, &o, &a, &e);
}

static void good(void)
{
	is_int(parse("id -- ls -l --flag"), 0, "a command behind --");
	is_str(a.pos[0], "id", "the word before it");
	ok(a.nr_cmd == 3 && !strcmp(a.cmd[2], "--flag") && !a.cmd[3] && !o.flag,
	   "what follows is the command's own");
	is_int(parse("--flag id --text=x --number 7 other -- c"), 0,
	       "mixed in any order");
	ok(o.flag && o.number == 7 && !strcmp(o.text, "x") && a.nr_pos == 2,
	   "all are taken");
	is_int(parse("-f -n7 -t x id -- c"), 0, "letters");
	ok(o.flag && o.number == 7 && !strcmp(o.text, "x"), "do the same");
	is_int(parse("id --list a --list=b --list c=d -- c"), 0, "a list");
	ok(o.list.nr == 3 && !strcmp(o.list.v[1], "b") &&
		   !strcmp(o.list.v[2], "c=d"),
	   "keeps its order");
	is_int(parse("id --text -x -- c"), 0, "a value may begin with a dash");
	is_str(o.text, "-x", "it is taken as it is");
	is_int(parse("id --text= -- c"), 0, "an empty value");
	is_str(o.text, "", "is a value");
	is_int(parse("- --json --data /d -- c"), 0, "a dash alone is a word");
	ok(a.json && !strcmp(a.data, "/d"), "and what every verb knows");
	is_int(parse("id --data=/e -- c"), 0, "--data=");
	is_str(a.data, "/e", "as well");
}

static void refused(void)
{
	static const struct {
		const char *line, *names;
	} bad[] = {
		{ "-- c", "missing" },
		{ "id", "after --" },
		{ "id --", "after --" },
		{ "a b c -- d", "c" },
		{ "id --nothing -- c", "--nothing" },
		{ "id --fla -- c", "--fla" },
		{ "id --flags -- c", "--flags" },
		{ "id -x -- c", "-x" },
		{ "id --flag=1 -- c", "flag" },
		{ "id --text", "--text" },
		{ "id --number 0 -- c", "1 to 64" },
		{ "id --number 65 -- c", "1 to 64" },
		{ "id --number 7x -- c", "1 to 64" },
		{ "id --number= -- c", "1 to 64" },
		{ "id --number 99999999999999999999 -- c", "1 to 64" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		is_int(parse(bad[i].line), -EINVAL, "refuses: %s", bad[i].line);
		ok(strstr(e.msg, bad[i].names) != NULL, "and says why: %s",
		   e.msg);
	}
}

static void bounds(void)
{
	static char word[] = "--list=x", id[] = "id";
	char *argv[ARGS_LIST_MAX + 2] = { id };

	for (int i = 1; i < ARGS_LIST_MAX + 2; i++)
		argv[i] = word;
	o = (struct opts){ 0 };
	is_int(args_parse(&spec, ARGS_LIST_MAX + 2, argv, &o, &a, &e), -EINVAL,
	       "a list has an end");
	is_int(o.list.nr, ARGS_LIST_MAX, "at its bound");
}

int main(void)
{
	good();
	refused();
	bounds();
	return tap_done();
}
