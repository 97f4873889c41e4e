/*
 * accel_probe: may sandboxes use KVM here? That /dev/kvm opens proves
 * little: there are hosts where firmware runs and a Linux kernel hangs. So
 * the proof is a real boot under KVM up to the agent's first words within a
 * deadline, remembered per (boot of the host, guest kernel, VMM build).
 */
#ifndef CORE_BACKEND_ACCEL_PROBE_H
#define CORE_BACKEND_ACCEL_PROBE_H

#include "core/backend/vmm_argv.h"
#include "core/err.h"

#define ACCEL_PROBE_DEADLINE_MS 20000

enum accel_wish { ACCEL_AUTO, ACCEL_WANT_KVM, ACCEL_WANT_TCG };

struct accel_probe {
	enum accel_wish wish;
	bool has_kvm; /* struct helper_info.has_kvm */
	/*
	 * Boots the template's kernel with VMM_ACCEL_KVM through the usual
	 * path and waits for the agent; cleans up after itself in any case.
	 */
	int (*boot)(void *ctx, int timeout_ms, struct err *e);
	void *ctx;
	int cache_dir; /* keeps the file "accel-probe"; -1: no memory */
	const char *boot_id; /* /proc/sys/kernel/random/boot_id */
	const uint8_t *kernel_digest; /* 32 bytes */
	const uint8_t *vmm_digest; /* 32 bytes */
};

struct accel_result {
	enum vmm_accel accel;
	bool remembered; /* no boot was needed */
	char why[256]; /* for people: "KVM: Linux booted in 1.2 s" */
};

/* -ENODEV only when KVM is wanted and not usable; e says why. */
int accel_probe(const struct accel_probe *p, struct accel_result *ret,
		struct err *e);

/* Rate of this host's time stamp counter, measured in about 60 ms. */
int accel_tsc_khz(uint32_t *ret_khz, struct err *e);

#endif
