#!/bin/sh
# Guest bytes reach a file system only sealed: a marker that is in a guest's
# memory and on its disk is nowhere below the data folder, nor in the files
# without a name that its keeper holds open, in whatever state the session is.
# The marker is put together inside the guest, so no argument holds it.
. tests/e2e/lib.sh
up

marker='grave''l-orchid-7713'
make='m=grave; m=${m}l-orchid-7713; i=0
while [ $i -lt 4000 ]; do echo "$m $i"; i=$((i+1)); done >/root/marker
sync; echo $m >/dev/shm/marker
while :; do echo "$m" >/dev/null; sleep 0.2; done'

# files_with PATTERN: regular files below the data folder that hold it
files_with() {
	grep -rlaF "$1" "$CRYO_DATA" --exclude-dir=templates \
		--exclude-dir=vmm 2>/dev/null
}

# Files that the keepers of sandboxes hold open and that have no name.
unnamed() {
	for p in $(proc_named cryo-vm); do
		for f in "/proc/$p/fd/"*; do
			case $(readlink "$f") in
			"$CRYO_DATA"/*' (deleted)') echo "$f" ;;
			esac
		done
	done
}

unnamed_with() { # PATTERN
	for f in $(unnamed); do
		! grep -qaF "$1" "$f" || echo "$f"
	done
}

nowhere() { # STATE
	is "$1: the marker is in no file" "$(files_with "$marker")" ""
	is "$1: nor in a file without a name" "$(unnamed_with "$marker")" ""
}

# --- the search finds what is there ---------------------------------------------

printf 'x%sx' "$marker" >"$CRYO_DATA/planted"
is "a planted marker is found" "$(files_with "$marker")" "$CRYO_DATA/planted"
rm "$CRYO_DATA/planted"

# --- in every state -------------------------------------------------------------

id=$(cryo create --name s --snapshot-every 2s) || bail "no session"
cryo exec --detach s -- sh -c "$make" >/dev/null
written() {
	[ "$(guest s sh -c 'wc -l </root/marker')" = 4000 ]
}
wait_for 60 written || bail "the guest wrote nothing"
is "the guest has it on its disk" \
	"$(guest s tail -n 1 /root/marker)" "$marker 3999"
is "and in its memory" "$(guest s cat /dev/shm/marker)" "$marker"
n=$(nr_points s)
wait_for 60 at_least_points s $((n + 2)) || bail "no points"
isnt "its disk's overlay is open without a name" "$(unnamed)" ""
nowhere "running, after points"

crash
nowhere "the daemon is dead"
up
nowhere "adopted"

kill -9 "$(proc_named cryo-vm)"
wait_for 60 is_state s failed || bail "not failed"
nowhere "the keeper was killed"
cryo resume s || bail "no resume"
is "a point brings it back" "$(guest s cat /dev/shm/marker)" "$marker"
f=$(cryo fork s) || bail "no fork"
is "a fork has it" "$(guest "$f" cat /dev/shm/marker)" "$marker"
nowhere "forked"
cryo suspend s >/dev/null || bail "no suspend"
nowhere "suspended"
down
nowhere "the node is down"
up
ok "rm of both" cryo rm s "$f"
nowhere "removed"
done_testing
