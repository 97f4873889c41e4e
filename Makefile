# cryo: one non-recursive makefile. Objects go to $(B); quiet unless V=1.
#   make B=build-x     another build folder     make DEV=1   warnings are errors
#   make CC=clang      the other compiler       make SAN=address,undefined
B ?= build
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
SAN ?=
Q := $(if $(V),,@)
say = $(if $(V),@:,@printf '  %-6s %s\n' '$(1)' '$(2)')

IS_CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
WARN := -Wall -Wextra -Wshadow -Wformat=2 -Wvla -Wundef -Wcast-qual \
	-Wpointer-arith -Wwrite-strings -Wstrict-prototypes \
	-Wmissing-prototypes -Wold-style-definition -Wimplicit-fallthrough \
	-Wswitch-enum -Wnull-dereference -Wconversion -Wdouble-promotion \
	-Wredundant-decls -Wnested-externs
WARN += $(if $(IS_CLANG),-Wno-gnu-statement-expression,-Wlogical-op \
	-Wduplicated-cond -Wduplicated-branches)
HARD := -fPIE -fno-common -fno-strict-aliasing -fstack-protector-strong \
	-fstack-clash-protection -fcf-protection
HARD += $(if $(SAN),,-D_FORTIFY_SOURCE=$(if $(IS_CLANG),2,3))
LINK := -pie -Wl,-z,relro,-z,now,-z,noexecstack
SANF := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer \
	-fno-sanitize-recover=undefined)
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=gnu17 -D_GNU_SOURCE -I. $(CFLAGS) $(WARN) \
	$(if $(DEV),-Werror) $(HARD) $(SANF) -pthread -MMD -MP
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
ifneq ($(wildcard tools/$(DIR_$(1))/*.c),)
ALL_PROGRAMS += $(B)/$(1)
$(B)/$(1): $(call obj,$(wildcard tools/$(DIR_$(1))/*.c)) $(call libs,all)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$^ $(call ldlibs,all) $(EXTRA_$(1))
endif
endef

# --- tests: tests/unit/LIB_name.c links LIB and what is below it ------------
TEST_SRC := $(wildcard tests/unit/*.c tests/prop/*.c tests/model/*.c)
TESTS := $(patsubst tests/%.c,$(B)/tests/%,$(TEST_SRC))
test_lib = $(firstword $(subst _, ,$(notdir $(1))))

define TEST_RULE
$(patsubst tests/%.c,$(B)/tests/%,$(1)): $(call obj,$(1)) \
		$(call libs,$(call test_lib,$(1)))
	$$(call say,LD,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$^ $(call ldlibs,$(call test_lib,$(1)))
endef

.DEFAULT_GOAL := all
.PHONY: all deps image demo test test-units test-e2e test-kvm lint bench clean help
.SECONDARY:

$(foreach l,$(LIBS),$(eval $(call LIB_RULE,$(l))))
$(foreach p,$(PROGRAMS),$(eval $(call PROGRAM_RULE,$(p))))
$(foreach t,$(TEST_SRC),$(eval $(call TEST_RULE,$(t))))

$(B)/obj/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

-include tools/image/image.mk

all: $(ALL_PROGRAMS) $(ALL_EXTRA) ## build everything into build/

units: $(TESTS)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n",$$1,$$2}' \
		$(MAKEFILE_LIST)

clean: ## remove the build folder
	$(Q)rm -rf $(B)

-include $(patsubst %.o,%.d,$(shell find $(B)/obj -name '*.o' 2>/dev/null))
