/*
 * cryo-verify: checks a data folder against itself: the chain of its log, the
 * rows against the events, the bytes of every point against their roots.
 *
 * Only reads; as root it first becomes the folder's owner, so that no file
 * of another owner can come to be in it (LMDB makes its lock file if that is
 * missing) and hostile bytes are not read as root.
 *
 * Exit status: 0 all good, 1 something is not, 2 it could not be checked.
 */
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <sys/stat.h>

#include "store/datadir.h"
#include "tools/verify/verify.h"

struct options {
	const char *data, *provider;
	bool json, deep;
};

static void usage(FILE *f)
{
	fputs("usage: cryo-verify [--data DIR] [--provider-key FILE] [--deep] "
	      "[--json]\n"
	      "\n"
	      "Checks a data folder, in use or not: the event log's chain, the "
	      "rows against\nthe events, the bytes of every point against the "
	      "root in its event.\n"
	      "\n"
	      "  --data DIR           the folder (CRYO_DATA; /var/lib/cryo)\n"
	      "  --provider-key FILE  if it is not DIR/keys/provider.key\n"
	      "  --deep               also read packs that no point needs\n"
	      "  --json               one JSON object\n"
	      "  --version, --help\n"
	      "\n"
	      "Exits with 0: all good, 1: something is not, 2: can't check.\n",
	      f);
}

/* 0 to go on, else exit with ret_status. */
static int parse(int argc, char **argv, struct options *o, int *ret_status)
{
	static const struct option longs[] = {
		{ "data", required_argument, NULL, 'd' },
		{ "provider-key", required_argument, NULL, 'p' },
		{ "deep", no_argument, NULL, 'D' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	const char *env = getenv("CRYO_DATA");
	int c;

	o->data = env ? env : "/var/lib/cryo";
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			o->data = optarg;
			break;
		case 'p':
			o->provider = optarg;
			break;
		case 'D':
			o->deep = true;
			break;
		case 'j':
			o->json = true;
			break;
		case 'h':
			usage(stdout);
			*ret_status = 0;
			return 1;
		case 'V':
			printf("cryo-verify %s\n", CRYO_VERSION);
			*ret_status = 0;
			return 1;
		default:
			usage(stderr);
			*ret_status = 2;
			return 1;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "cryo-verify: \"%s\" is one too many\n",
			argv[optind]);
		*ret_status = 2;
		return 1;
	}
	return 0;
}

static int become_owner(const char *data, struct err *e)
{
	struct stat st;

	if (stat(data, &st))
		return err_sys(e, errno, "data folder %s", data);
	if (geteuid() || !st.st_uid)
		return 0;
	if (setgroups(0, NULL) || setresgid(st.st_gid, st.st_gid, st.st_gid) ||
	    setresuid(st.st_uid, st.st_uid, st.st_uid))
		return err_sys(e, errno, "become user %u", st.st_uid);
	return 0;
}

static int open_all(struct verify *v, const struct options *o, struct err *e)
{
	int r = keys_open(&v->keys, o->data, o->provider, true, &clock_real, e);

	if (!r)
		r = evlog_open(&v->log, o->data, v->keys, EVLOG_INSPECT, e);
	if (!r)
		r = lmdb_txn_begin(&v->txn, evlog_env(v->log), false, e);
	return r;
}

static int verify(struct verify *v, const struct options *o, struct err *e)
{
	int r = open_all(v, o, e);

	if (!r)
		r = chain_verify(v, e);
	if (!r)
		r = fold_verify(v, e);
	if (!r)
		bytes_verify(v);
	return r;
}

static void verify_done(struct verify *v)
{
	lmdb_txn_abort(v->txn);
	evlog_close(v->log);
	keys_close(v->keys);
	idset_done(&v->gone);
}

int main(int argc, char **argv)
{
	static struct verify v;
	struct options o = { 0 };
	struct err e = { 0 };
	pid_t writer = 0;
	int status;

	if (parse(argc, argv, &o, &status))
		return status;
	v.data = o.data;
	v.deep = o.deep;
	if (become_owner(o.data, &e) || verify(&v, &o, &e)) {
		fprintf(stderr, "cryo-verify: %s\n", e.msg);
		verify_done(&v);
		return 2;
	}
	datadir_lock_holder(o.data, &writer, NULL);
	if (o.json)
		report_json(&v.report, o.data);
	else
		report_print(&v.report, o.data, writer);
	status = report_good(&v.report) ? 0 : 1;
	verify_done(&v);
	return status;
}
