#!/bin/sh
# The image `tiny` boots in a bare QEMU and its agent does all it must, also
# after the machine was saved and started again, twice.
set -eu
cd "$(dirname "$0")/../.."
B=${CRYO_BUILD:-build}

if [ ! -e "$B/image/tiny/template.json" ]; then
	echo "Bail out! no image in $B/image/tiny: run make image"
	exit 1
fi
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/cryo-guest.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
timeout 550 "$B/tests/e2e/guest_boot" "$B/image/tiny" "$scratch"
