/*
 * vm: one sandbox's keeper. Threads:
 *   loop    the link to cryod, the agent, timers, the VMM's pidfd
 *   worker  one job after the other: load, start, pause, continue, capture;
 *           owns QMP, dirty tracking, the packer
 *   disk    the guest's block requests (snapshotter/disk_nbd)
 * A job that needs the loop's things calls it over and waits.
 */
#ifndef TOOLS_VM_VM_H
#define TOOLS_VM_VM_H

#include <pthread.h>

#include "core/backend/qmp.h"
#include "snapshotter/dirty.h"
#include "snapshotter/disk_nbd.h"
#include "snapshotter/packer.h"
#include "tools/vm/agent.h"
#include "tools/vm/execs.h"
#include "tools/vm/link.h"

struct job;
struct report;

struct vm {
	struct loop *loop;
	struct link *link;
	struct agent *agent; /* loop */
	struct execs *execs; /* loop */
	struct wire_setup setup;
	_Atomic enum wire_phase phase;

	/* storage: made before the filter, used by the worker */
	struct io *io;
	struct packset *packs;
	struct image *image;
	struct packer *packer;
	struct buf device; /* device state to start from */
	int template_fd, overlay_fd, ram_fd;

	/* blocks of the base point, for both users of the disk */
	pthread_mutex_t base_lock;
	struct packset_reader *base_reader;

	/* machine: worker */
	struct qmp *qmp;
	struct guestmem *mem;
	struct dirty *dirty;
	struct disk *disk;
	struct disk_nbd *nbd;
	uint64_t *bits; /* one epoch's pages */
	uint8_t *staging;
	uint32_t *staging_pages;
	int64_t last_point_ns;
	struct {
		bool have;
		uint8_t id[PACK_ID_LEN], key[CRYPT_KEY_LEN];
		int fd;
	} spare; /* the next pack: captures go on while the daemon is away */
	int pidfd;
	struct loop_watch pidfd_watch;

	/* rolling captures: loop */
	struct loop_timer roll_timer, heal_timer;
	bool stalled; /* as the daemon was told last */
	bool capturing, token_asked;
	int64_t every_ns;
	uint64_t ticket; /* of the last capture that the daemon ordered */

	/* reports to cryod that it has not yet acknowledged: loop */
	struct report *reports, **last_report;
	bool reporting;
	struct loop_timer report_timer;

	/* jobs */
	pthread_mutex_t job_lock;
	pthread_cond_t job_ready;
	struct job *jobs, **last_job;
};

/* --- worker --------------------------------------------------------------- */

struct job {
	struct job *next;
	void (*run)(struct vm *vm, struct job *j);
	struct link_from from; /* whom to answer */
	uint8_t body[sizeof(struct wire_start) + 512];
	size_t len;
	int fds[WIRE_FDS_MAX], nr_fds; /* the job's; -1 once taken */
	struct wire_capture capture;
};

int worker_start(struct vm *vm, struct err *e);
/* Takes the message's descriptors. */
void worker_submit(struct vm *vm, struct wire_msg *m,
		   void (*run)(struct vm *vm, struct job *j));
void worker_capture(struct vm *vm, const struct wire_capture *c);
int job_take_fd(struct job *j, int i);

/* --- jobs ----------------------------------------------------------------- */

void load_point(struct vm *vm, struct job *j); /* LOAD */
void load_image(struct vm *vm, struct job *j); /* IMAGE */
void start_machine(struct vm *vm, struct job *j); /* START */
void start_pause(struct vm *vm, struct job *j);
void start_cont(struct vm *vm, struct job *j);
void start_heal(struct vm *vm, struct job *j);
/* To a daemon that was away: whether the machine waits for disk space. */
void start_tell_stalled(struct vm *vm);
void capture_run(struct vm *vm, struct job *j);
/* Gets a spare pack if there is none and the daemon is there. */
void capture_refill(struct vm *vm);

/* Content of a block below the overlay (disk_ops.read_base, maps_base). */
int load_read_base(void *ctx, uint32_t block, void *page);
bool load_maps_base(void *ctx, uint32_t block);
/*
 * Opens the packs that the guest may read blocks from, so that its disk works
 * on while the daemon is away (worker).
 */
void load_open_packs(struct vm *vm);

/* --- rolling captures (loop) ---------------------------------------------- */

void roll_start(struct vm *vm);
void roll_stop(struct vm *vm);
void roll_done(struct vm *vm); /* a capture ended */

/* --- reports (loop) ------------------------------------------------------- */

void report_captured(struct vm *vm, const struct wire_captured *c);
void report_skipped(struct vm *vm, uint32_t kind, uint64_t ticket,
		    const char *why);
void report_died(struct vm *vm, const char *why);
void report_flush(struct vm *vm); /* the daemon is there */
uint32_t report_count(const struct vm *vm);

/* --- files (loop) --------------------------------------------------------- */

void files_request(struct vm *vm, struct wire_msg *m);

#endif
