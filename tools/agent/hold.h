/*
 * hold: keeps every CPU of the guest away from user processes for a moment,
 * so that what a snapshot finds running, and what runs first after a restore,
 * is the agent.
 */
#ifndef TOOLS_AGENT_HOLD_H
#define TOOLS_AGENT_HOLD_H

#include "core/base.h"

struct hold;

/* One thread per CPU, asleep. */
struct hold *hold_new(uint32_t nr_cpus);

/* Takes all CPUs until hold_end() or until_ns (CLOCK_MONOTONIC). */
void hold_begin(struct hold *h, int64_t until_ns);
void hold_end(struct hold *h);

/* True once each CPU is in our hands; hold_fd() is readable when it may be. */
bool hold_reached(struct hold *h);
int hold_fd(const struct hold *h);
void hold_drain(struct hold *h); /* makes hold_fd() quiet again */
bool hold_active(struct hold *h);

#endif
