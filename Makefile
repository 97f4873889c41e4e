# cryo: one non-recursive makefile. Objects go to $(B); quiet unless V=1.
#   make B=build-x     another build folder     make DEV=1   warnings are errors
#   make CC=clang      the other compiler       make SAN=address,undefined
# Only `deps`, `demo` and `test` (and what starts like it) install packages;
# they come before the compiler is there, so nothing here may need one to be
# read.
SAN ?=
B ?= build$(if $(SAN),-san)
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
Q := $(if $(V),,@)
say = $(if $(V),@:,@printf '  %-6s %s\n' '$(1)' '$(2)')

# Targets that build nothing themselves need no probe of the compiler.
OUTER := deps demo test test-units test-e2e test-kvm lint clean help
INNER := $(if $(filter-out $(OUTER),$(or $(MAKECMDGOALS),all)),yes)
probe = $(if $(INNER),$(shell echo 'int x;' | $(CC) -Werror $(1) -x c -c \
	-o /dev/null - >/dev/null 2>&1 && echo '$(1)'))

WARN := -Wall -Wextra -Wshadow -Wformat=2 -Wvla -Wundef -Wcast-qual \
	-Wpointer-arith -Wwrite-strings -Wstrict-prototypes \
	-Wmissing-prototypes -Wold-style-definition -Wimplicit-fallthrough \
	-Wswitch-enum -Wnull-dereference -Wconversion -Wdouble-promotion \
	-Wredundant-decls -Wnested-externs
WARN += $(foreach w,-Wno-gnu-statement-expression -Wlogical-op \
	-Wduplicated-cond -Wduplicated-branches,$(call probe,$(w)))
HARD := -fPIE -fno-common -fno-strict-aliasing
HARD += $(foreach f,-fstack-protector-strong -fstack-clash-protection \
	-fcf-protection,$(call probe,$(f)))
HARD += $(if $(SAN),,$(or $(call probe,-O2 -D_FORTIFY_SOURCE=3),\
	$(call probe,-O2 -D_FORTIFY_SOURCE=2)))
LINK := -pie -Wl,-z,relro,-z,now,-z,noexecstack
SANF := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer \
	-fno-sanitize-recover=undefined)
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=gnu17 -D_GNU_SOURCE -I. $(HARD) $(CFLAGS) $(WARN) \
	$(if $(DEV),-Werror) $(SANF) -pthread -MMD -MP
ALL_LDFLAGS = $(LINK) $(SANF) -pthread $(LDFLAGS)

# --- libraries: one per folder, linked in the order of the include rules ----
LIBS := core backend store snapshotter api
SRC_core := $(wildcard core/*.c)
SRC_backend := $(wildcard core/backend/*.c)
SRC_store := $(wildcard store/*.c)
SRC_snapshotter := $(wildcard snapshotter/*.c)
SRC_api := $(wildcard api/*.c api/v1/*.c)
LDLIBS_core := -ljansson
LDLIBS_backend := -lseccomp
LDLIBS_store := -llmdb -lzstd -lcrypto -lxxhash
LDLIBS_snapshotter := -luring
LDLIBS_api := -lmicrohttpd
# what each library needs below it
UP_core := core
UP_backend := backend core
UP_store := store core
UP_snapshotter := snapshotter store core
UP_api := api backend store core
UP_all := api snapshotter backend store core

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
lib = $(B)/lib$(1).a
libs = $(foreach l,$(UP_$(1)),$(call lib,$(l)))
ldlibs = $(foreach l,$(UP_$(1)),$(LDLIBS_$(l)))

define LIB_RULE
$(call lib,$(1)): $(call obj,$(SRC_$(1)))
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef

# --- programs: tools/NAME/*.c -> build/NAME ---------------------------------
PROGRAMS := cryo cryod cryo-helper cryo-vm cryo-verify
DIR_cryo := cryo
DIR_cryod := cryod
DIR_cryo-helper := helper
DIR_cryo-vm := vm
DIR_cryo-verify := verify
EXTRA_cryo := -lcurl

define PROGRAM_RULE
ifneq ($(wildcard tools/$(DIR_$(1))/main.c),)
ALL_PROGRAMS += $(B)/$(1)
$(B)/$(1): $(call obj,$(wildcard tools/$(DIR_$(1))/*.c)) $(call libs,all)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$^ $(call ldlibs,all) $(EXTRA_$(1))
endif
endef

# --- tests ------------------------------------------------------------------
# tests/*/LIB_name.c links LIB and what is below it; where LIB is a folder of
# tools/ it links that folder's objects, without its main.c, and every library.
TEST_DIRS := unit prop model sim crash kvm
TEST_SRC := $(foreach d,$(TEST_DIRS),$(wildcard tests/$(d)/*.c))
TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(TEST_SRC))
test_lib = $(firstword $(subst _, ,$(notdir $(1))))
test_tool = $(if $(filter $(LIBS) all,$(1)),,$(call obj,\
	$(filter-out %/main.c,$(wildcard tools/$(1)/*.c))))
test_up = $(if $(filter $(LIBS),$(1)),$(1),all)

define TEST_RULE
$(patsubst tests/%.c,$(B)/tests/%,$(1)): $(call obj,$(1)) \
		$(call test_tool,$(2)) $(call libs,$(call test_up,$(2)))
	$$(call say,LD,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$^ \
		$(call ldlibs,$(call test_up,$(2))) $(EXTRA_$(2))
endef

# Fuzz targets: tests/fuzz/LIB_name.c (or name.c: all libraries), built whole
# by clang with libFuzzer; SECONDS=60, seeds in tests/fuzz/NAME-corpus/.
FUZZ := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
define FUZZ_RULE
fuzz-$(1):
	$$(Q)mkdir -p $(B)/fuzz/corpus-$(1)
	$$(call say,FUZZ,$(1))
	$$(Q)clang -std=gnu17 -D_GNU_SOURCE -I. -g -O1 -pthread \
		-fsanitize=fuzzer,address,undefined -o $(B)/fuzz/$(1) \
		tests/fuzz/$(1).c $(foreach l,$(UP_$(call test_up,$(2))),\
		$(SRC_$(l))) $(call ldlibs,$(call test_up,$(2)))
	$$(Q)$(B)/fuzz/$(1) -max_total_time=$$(or $$(SECONDS),60) \
		$(B)/fuzz/corpus-$(1) $(wildcard tests/fuzz/$(1)-corpus)
endef

# --- benchmarks: bench/NAME.c with all libraries; bench/NAME.sh runs one ----
BENCH_BIN := $(patsubst bench/%.c,$(B)/bench/%,$(wildcard bench/*.c))
BENCHES := $(sort $(patsubst bench/%.c,%,$(wildcard bench/*.c)) \
	$(patsubst bench/%.sh,%,$(filter-out bench/lib.sh,\
	$(wildcard bench/*.sh))))
BENCH_OUT := bench/results/$$b.$(if $(filter 1,$(JSON)),jsonl,txt)

# Runs $(1), keeps what it said in bench/results, and its exit status.
define BENCH_RUN
for b in $(1); do \
	run=bench/$$b.sh; [ -e $$run ] && run="sh $$run" || \
		run=$(B)/bench/$$b; \
	{ CRYO_BUILD=$(B) JSON=$(JSON) $$run; \
		echo $$? >$(B)/bench.rc; } | \
		tee $(BENCH_OUT); \
	[ "$$(cat $(B)/bench.rc)" = 0 ] || { \
		echo "bench: $$b failed" >&2; exit 1; }; \
done
endef

define BENCH_RULE
bench-$(1): all image $(BENCH_BIN)
	$$(Q)$$(call BENCH_RUN,$(1))
endef

.DEFAULT_GOAL := all
.PHONY: all units deps image demo test test-units test-e2e test-kvm \
	lint bench clean help $(BENCHES:%=bench-%) $(FUZZ:%=fuzz-%)
.SECONDARY:
.DELETE_ON_ERROR:

$(foreach l,$(LIBS),$(eval $(call LIB_RULE,$(l))))
$(foreach p,$(PROGRAMS),$(eval $(call PROGRAM_RULE,$(p))))
$(foreach t,$(TEST_SRC),$(eval $(call TEST_RULE,$(t),$(call test_lib,$(t)))))
$(foreach f,$(FUZZ),$(eval $(call FUZZ_RULE,$(f),$(call test_lib,$(f)))))
$(foreach b,$(BENCHES),$(eval $(call BENCH_RULE,$(b))))

$(B)/obj/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(B)/bench/%: $(B)/obj/bench/%.o $(call libs,all)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call ldlibs,all)

# what is built in other ways; these add to ALL_EXTRA
-include tools/image/image.mk
-include tools/preload/preload.mk

# --- targets ----------------------------------------------------------------
# A second make builds: by then the compiler is there.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
AGAIN = +$(Q)$(MAKE) --no-print-directory $(JOBS) B=$(B)
RUN := CRYO_BUILD=$(B) sh tests/run
UNIT_TESTS = $(filter-out $(B)/tests/kvm/% $(B)/tests/crash/%,$(TESTS))
LINTS := $(filter-out tests/lint/lib.sh,$(wildcard tests/lint/*.sh))
E2E = $(filter $(B)/tests/crash/%,$(TESTS)) \
	$(filter-out %/lib.sh,$(wildcard tests/e2e/*.sh tests/crash/*.sh))
KVM = $(filter $(B)/tests/kvm/%,$(TESTS)) $(wildcard tests/kvm/*.sh)

all: $(ALL_PROGRAMS) $(ALL_EXTRA) ## build everything into build/

# Some tests start our programs. What is static or preloaded into QEMU takes
# no sanitizer and is not needed by the tests that do.
units: $(TESTS) $(ALL_PROGRAMS) $(if $(SAN),,$(ALL_EXTRA)) ## build the test programs, run nothing

deps: ## install the packages that cryo is built and run with
	$(Q)sh tools/deps.sh

demo: ## the main job before your eyes: sessions that go back in time
	@sh tools/deps.sh --plan
	@sh tools/deps.sh
	$(AGAIN) all image
	@CRYO_BUILD=$(B) sh tools/demo/demo.sh

test: ## install what is missing, build, run every test
	@sh tools/deps.sh --test
	$(AGAIN) DEV=1 all units image
	@$(RUN) -j 2 $(LINTS) $(UNIT_TESTS) -- $(E2E)

test-units: ## only the tests without a machine, and the lint
	@sh tools/deps.sh --test
	$(AGAIN) DEV=1 units
	@$(RUN) -j 2 $(LINTS) $(UNIT_TESTS)

test-e2e: ## only the tests on real machines
	@sh tools/deps.sh --test
	$(AGAIN) DEV=1 all units image
	@$(RUN) $(E2E)

test-kvm: ## the KVM path, with a firmware payload of our own
	@sh tools/deps.sh --test
	$(AGAIN) DEV=1 all units
	@CRYO_TEST_ACCEL=kvm $(RUN) $(KVM)

lint: ## include rules, sizes, banned calls, format
	@$(RUN) $(LINTS)

bench: all image $(BENCH_BIN) ## run the benchmarks; bench-NAME runs one
	$(Q)$(call BENCH_RUN,$(BENCHES))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-12s %s\n",$$1,$$2}' \
		$(MAKEFILE_LIST)

clean: ## remove the build folder
	$(Q)rm -rf $(B)

-include $(patsubst %.o,%.d,$(shell find $(B)/obj -name '*.o' 2>/dev/null))
