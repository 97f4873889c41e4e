/*
 * worker: runs jobs one after the other on a thread of its own. Whatever
 * blocks (QMP, disk, materialising) happens here, so that the loop can keep
 * answering the daemon and the agent.
 */
#include "tools/vm/vm.h"

#include <signal.h>

int job_take_fd(struct job *j, int i)
{
	PRE(i < j->nr_fds);
	return base_steal_fd(&j->fds[i]);
}

static void worker_put(struct vm *vm, struct job *j)
{
	pthread_mutex_lock(&vm->job_lock);
	*vm->last_job = j;
	vm->last_job = &j->next;
	pthread_cond_signal(&vm->job_ready);
	pthread_mutex_unlock(&vm->job_lock);
}

void worker_submit(struct vm *vm, struct wire_msg *m,
		   void (*run)(struct vm *vm, struct job *j))
{
	struct job *j = base_alloc(sizeof(*j));

	j->run = run;
	if (m) {
		j->from = link_from(vm->link, m);
		j->len = MIN(m->len, sizeof(j->body));
		memcpy(j->body, m->body, j->len);
		j->nr_fds = m->nr_fds;
		for (int i = 0; i < m->nr_fds; i++)
			j->fds[i] = wire_take_fd(m, i);
	}
	worker_put(vm, j);
}

void worker_capture(struct vm *vm, const struct wire_capture *c)
{
	struct job *j = base_alloc(sizeof(*j));

	j->run = capture_run;
	j->capture = *c;
	worker_put(vm, j);
}

static struct job *worker_next(struct vm *vm)
{
	struct job *j;

	pthread_mutex_lock(&vm->job_lock);
	while (!vm->jobs)
		pthread_cond_wait(&vm->job_ready, &vm->job_lock);
	j = vm->jobs;
	vm->jobs = j->next;
	if (!vm->jobs)
		vm->last_job = &vm->jobs;
	pthread_mutex_unlock(&vm->job_lock);
	return j;
}

static void *worker_main(void *ctx)
{
	struct vm *vm = ctx;

	for (;;) {
		struct job *j = worker_next(vm);

		j->run(vm, j);
		for (int i = 0; i < j->nr_fds; i++)
			base_close_p(&j->fds[i]);
		free(j);
	}
	return NULL;
}

int worker_start(struct vm *vm, struct err *e)
{
	pthread_t t;
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&t, NULL, worker_main, vm);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return err_sys(e, r, "start the worker thread");
	pthread_detach(t);
	return 0;
}
