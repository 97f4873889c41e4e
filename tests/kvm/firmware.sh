#!/bin/sh
# The walls, capture and restore under KVM, with a firmware payload of our own:
# no Linux guest is needed for it. Without a usable /dev/kvm it says so.
CRYO_TEST_ACCEL=kvm exec "${CRYO_BUILD:-build}/tests/crash/helper_walls"
