#!/bin/sh
# The node's processes end without warning: what runs as root for it, all of
# it at once, and what keeps a sandbox. Guests go on; a new `cryo up` finds
# them.
. tests/e2e/lib.sh
up

id=$(cryo create --name keeps)
guest keeps sh -c 'dd if=/dev/urandom of=/big bs=1M count=8 2>/dev/null; sync'
sum=$(guest keeps md5sum /big)

# --- cryo up itself -------------------------------------------------------------
helper=$(proc_named cryo-helper)
kill -9 "$UP_PID"
wait "$UP_PID" 2>/dev/null
UP_PID=
ok "without its \`cryo up\` the node stops" wait_for 30 proc_gone "$helper"
up
is "a new one finds the sandbox" "$(state keeps)" running
is "which has what it had" "$(guest keeps md5sum /big)" "$sum"

# --- a disk while nobody is there -------------------------------------------------
# The second fork starts from an image in memory: it has opened no pack yet.
point=$(cryo snapshot keeps)
cryo fork keeps --at "$point" --name first >/dev/null
cryo fork keeps --at "$point" --name second >/dev/null
cryo exec --detach second -- sh -c 'sleep 8
	echo 3 >/proc/sys/vm/drop_caches
	md5sum /big >/tmp/sum.new; mv /tmp/sum.new /tmp/sum' >/dev/null
crash
gone=$(date +%s)
# so long that the guest is through long before, also on a busy host
sleep 25
back=$(date +%s)
up
guest second cat /tmp/sum >"$T/sum" 2>/dev/null
is "a fork reads its base's blocks with no daemon" "$(cat "$T/sum")" "$sum"
within "and did so while there was none" \
	"$(guest second stat -c %Y /tmp/sum)" "$gone" "$back"

# --- what keeps a sandbox ----------------------------------------------------------
for victim in cryo-vm qemu; do
	cryo rm first >/dev/null 2>&1
	cryo fork keeps --at "$point" --name first >/dev/null
	for p in $(proc_named $victim); do
		# of `first`: the youngest of its kind
		youngest=$p
		break
	done
	for p in $(proc_named $victim); do
		[ "$(proc_start "$p")" -le "$(proc_start "$youngest")" ] ||
			youngest=$p
	done
	kill -9 "$youngest"
	ok "kill -9 of $victim: the session is failed" \
		wait_for 30 is_state first failed
	like "$victim: an event says why" "$(events first session.failed)" '"why":'
	is "$victim: others run on" "$(guest keeps md5sum /big)" "$sum"
	cryo suspend keeps >/dev/null
	cryo resume keeps
	is "$victim: and can be suspended and resumed" \
		"$(guest keeps md5sum /big)" "$sum"
done

cryo rm first >/dev/null
cryo rm second >/dev/null
cryo rm keeps >/dev/null
down
left=
for p in $(proc_named cryo-vm) $(proc_named qemu); do
	proc_gone "$p" || left="$left $p"
done
is "nothing is left running" "$left" ""
is "no socket is left" "$(ls "$CRYO_DATA/run" | grep -c '\.[0-9]')" 0
ok "and all of it verifies" cryo verify --deep
done_testing
