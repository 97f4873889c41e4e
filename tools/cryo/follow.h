/*
 * follow: a command's output from the daemon to two descriptors, through
 * restarts of the daemon; and the other way round: standard input and
 * signals to the command. Shared by exec, run and logs.
 */
#ifndef TOOLS_CRYO_FOLLOW_H
#define TOOLS_CRYO_FOLLOW_H

#include "api/sse.h"

#include "tools/cryo/cryo.h"

/* Gets the bytes of one stream (0 stdout, 1 stderr); nonzero stops. */
typedef int (*follow_fn)(void *ctx, int stream, const void *p, size_t len,
			 struct err *e);

struct follow {
	/* in */
	struct client *client;
	const char *exec;
	bool once; /* what is there now; don't wait for more */
	bool patient; /* also wait for a daemon that was not there at first */
	follow_fn fn;
	void *ctx;
	/* out */
	bool ended, lost;
	int status; /* exit status for our own process */
	/* private */
	struct sse_reader sse;
	struct buf bytes;
	bool retry;
	struct err *e;
};

/* Until the command ends (or, `once`, no more is there). 0 or -errno. */
int follow_output(struct follow *f, struct err *e);

/* A follow_fn: to standard output and error. */
int follow_print(void *ctx, int stream, const void *p, size_t len, struct err *e);

/*
 * From here on SIGINT, SIGTERM and SIGHUP are taken by a thread: passed to
 * the command once there is one; the third SIGINT is a SIGKILL. Before any
 * other thread starts.
 */
struct follow_input;
struct follow_input *follow_signals(struct client *client);
bool follow_interrupted(const struct follow_input *in);
/* The command they go to; with `forward`, sends it our standard input. */
void follow_attach(struct follow_input *in, const char *exec, bool forward);

/* Is standard input something to be forwarded: not a terminal, not null? */
bool follow_has_stdin(void);

/*
 * Starts argv in a session. *ret_exec is owned by the caller.
 * `stdin_` tells whether standard input will be sent.
 */
struct follow_start {
	const char *session;
	char **argv;
	const struct args_list *env; /* K=V, or K: taken from here */
	const char *cwd, *user;
	bool has_stdin;
};
int follow_start(struct cryo *x, const struct follow_start *s,
		 json_t **ret_exec, struct err *e);

/*
 * Runs one to its end: output printed, signals passed on, stdin forwarded.
 * *ret_status is what our own process should end with.
 */
int follow_run(struct cryo *x, struct follow_input *in,
	       const struct follow_start *s, int *ret_status, struct err *e);

#endif
