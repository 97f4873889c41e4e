# image: the agent that runs in the guest, and the template `tiny`. The agent
# is linked statically from its own objects: no sanitizer, no library of ours
# that needs more than libc.
AGENT_SRC := $(wildcard tools/agent/*.c) core/agent_proto.c core/base.c \
	core/buf.c core/id.c
AGENT_OBJ := $(patsubst %.c,$(B)/obj/agent/%.o,$(AGENT_SRC))
AGENT_CFLAGS = -std=gnu17 -D_GNU_SOURCE -I. -O2 $(WARN) $(if $(DEV),-Werror) \
	-fno-common -fno-strict-aliasing -fstack-protector-strong \
	-fno-pie -ffunction-sections -pthread -MMD -MP
IMAGE_TINY := $(B)/image/tiny
ALL_EXTRA += $(B)/cryo-agent

$(B)/obj/agent/%.o: %.c
	$(call say,CC,$< (guest))
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(AGENT_CFLAGS) -c -o $@ $<

$(B)/cryo-agent: $(AGENT_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) -static -no-pie -pthread -Wl,--gc-sections -s -o $@ $^

$(IMAGE_TINY)/template.json: $(B)/cryo-agent tools/image/tiny.sh \
		tools/image/kernel.sh $(shell find tools/image/tiny -type f)
	$(call say,IMAGE,$(@D))
	$(Q)tools/image/tiny.sh $(B)/cryo-agent $(@D)

image: $(IMAGE_TINY)/template.json ## build the guest template tiny

# tests that run the agent need it beside them
$(B)/tests/unit/backend_agent_native: | $(B)/cryo-agent
units: $(B)/tests/e2e/guest_boot

$(B)/tests/e2e/guest_boot: $(call obj,tests/e2e/guest_boot.c) \
		$(call libs,backend)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(call ldlibs,backend)
