#!/bin/sh
# A disk that fills up: captures stop, then guests that write, and the log last
# of all, which never breaks. When there is room again all goes on.
if [ "$(id -u)" = 0 ] && [ -z "${FULL_DISK:-}" ]; then
	# mounts of our own, gone with us
	FULL_DISK=1 exec unshare -m sh "$0" "$@"
fi
. tests/e2e/lib.sh
needs_machine
mkdir "$T/small"
mount -t tmpfs -o size=900m,mode=711 none "$T/small" || skip_all "can't mount"
CRYO_DATA=$T/small/data
up

free_mib() {
	df -m "$T/small" | awk 'NR == 2 { print $4 }'
}
fill_all() {
	cat /dev/zero >>"$T/small/fill" 2>/dev/null
}

cryo create --name a --snapshot-every 5s >/dev/null
cryo create --name b --snapshot-every 5s >/dev/null
guest a sh -c 'dd if=/dev/urandom of=/keep bs=1M count=10 2>/dev/null; sync'
keep=$(guest a md5sum /keep)
cryod=$(proc_named cryod)

# --- under a tenth: no points ---------------------------------------------------
fallocate -l $(($(free_mib) - 75))M "$T/small/fill"
fails "no snapshot is taken" 1 cryo snapshot a
like "which says what to do" "$out" '7[0-9] MiB of 900 are free.*make room'
skips() { [ "$(nr_events b snapshot.skipped)" -ge 1 ]; }
ok "rolling ones are skipped, with an event" wait_for 30 skips
is "sessions run on" "$(guest a echo yes)" yes

# --- less: a guest that writes waits ----------------------------------------------
cryo exec --detach a -- sh -c 'dd if=/dev/urandom of=/big bs=1M count=100
	sync; md5sum /big >/big.sum; sync' >/dev/null
ok "its disk stalls, with an event" wait_for 60 \
	sh -c "'$B/cryo' events --json a | grep -q session.stalled"
sleep 8
is "one event, however often it tries" "$(nr_events a session.stalled)" 1
is "it has not healed" "$(nr_events a session.healed)" 0
within "it has left the log some space" "$(free_mib)" 48 72
ok "and not eaten the log's reserve" test -e "$CRYO_DATA/log/ballast"
is "others run on" "$(guest b echo yes)" yes

# --- nothing at all: by a stranger ------------------------------------------------
fill_all
cryo create --name c >/dev/null 2>&1
is "the log gives its reserve back, and goes on" "$(guest b echo yes)" yes
fill_all
refused() { # the last bytes of what was free go first
	out=$(cryo create --name "d$1" 2>&1) || return 0
	fill_all
	return 1
}
n=0
until refused $n || [ $n = 30 ]; do
	n=$((n + 1))
done
like "with that gone commands are refused" "$out" 'space'
is "the daemon lives" "$(proc_named cryod)" "$cryod"
ok "and answers" cryo ls

# --- room again ---------------------------------------------------------------------
rm "$T/small/fill"
healed() { [ "$(nr_events a session.healed)" = 1 ]; }
ok "the guest's disk heals, with an event" wait_for 60 healed
ok "what it wrote is written" wait_for 120 "$B/cryo" exec a -- test -s /big.sum
is "whole" "$(guest a md5sum /big)" "$(guest a cat /big.sum)"
is "with what was there before" "$(guest a md5sum /keep)" "$keep"
for s in $(cryo ls --json | jq -r .name); do
	case $s in
	[cd]*) cryo rm "$s" >/dev/null ;;
	esac
done
ok "points are taken again" cryo snapshot b
cryo rm a >/dev/null
ballast() {
	guest b true
	test -e "$CRYO_DATA/log/ballast"
}
ok "the log has its reserve again" wait_for 60 ballast
cryo suspend b >/dev/null
cryo resume b
is "and a session comes back" "$(guest b echo yes)" yes
cryo rm b >/dev/null
ok "all of it verifies" cryo verify --deep
down
umount "$T/small"
done_testing
