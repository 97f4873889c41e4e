# cryo-uffd.so: loaded into QEMU (see uffd.c); no library of ours in it
$(B)/cryo-uffd.so: tools/preload/uffd.c
	$(call say,SO,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu17 -D_GNU_SOURCE $(CFLAGS) $(WARN) \
		$(if $(DEV),-Werror) -fPIC -shared -fstack-protector-strong \
		-Wl,-z,relro,-z,now,-z,noexecstack -o $@ $<

ALL_EXTRA += $(B)/cryo-uffd.so
