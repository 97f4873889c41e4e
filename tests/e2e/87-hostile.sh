#!/bin/sh
# Root in the guest does its worst: against the agent, against its machine,
# against memory. Its session pays for it, nobody else does.
. tests/e2e/lib.sh
up

cryo create --name other >/dev/null
fresh() {
	cryo rm victim >/dev/null 2>&1
	cryo create --name victim --snapshot-every 5s >/dev/null
}
both_answer() { # WHAT
	is "$1: the session answers" "$(guest victim echo yes)" yes
	is "$1: so does another" "$(guest other echo yes)" yes
}

# --- the agent --------------------------------------------------------------------
fresh
guest victim sh -c 'dd if=/dev/urandom of=/dev/vport0p1 bs=4k count=100' \
	>/dev/null 2>&1
both_answer "noise into the agent's channel"
guest victim sh -c 'kill -9 1; kill -STOP 1
	for t in /proc/1/task/*; do kill -STOP ${t##*/}; kill -9 ${t##*/}; done' \
	>/dev/null 2>&1
both_answer "signals to the agent and its threads"

# --- the machine --------------------------------------------------------------------
# The machine's own end, whichever way, is an end and not a spin.
for how in 'poweroff -f' 'reboot -f' 'echo c >/proc/sysrq-trigger' \
	'echo b >/proc/sysrq-trigger'; do
	fresh
	timeout -k 1 60 "$B/cryo" exec victim -- sh -c "$how" >/dev/null 2>&1
	ok "$how: the session is failed" wait_for 30 is_state victim failed
	cryo resume victim
	both_answer "$how, resumed"
done

# --- memory ---------------------------------------------------------------------------
fresh
cryo exec --detach victim -- sh -c 'mkdir /m; mount -t tmpfs -o size=150m none /m
	while :; do dd if=/dev/urandom of=/m/x bs=1M count=120 conv=notrunc
	done 2>/dev/null' >/dev/null
sleep 12
both_answer "memory rewritten all the time"
ok "a point is taken of it" cryo snapshot victim
cryo suspend victim >/dev/null
cryo resume victim
both_answer "suspended and resumed"

# --- processes ----------------------------------------------------------------------
fresh
cryo exec --detach victim -- sh -c 'f() { f | f & }; f; sleep 1000' >/dev/null
sleep 5
is "a fork bomb: another session answers" "$(guest other echo yes)" yes
ok "and the bomb is removed" timeout 60 "$B/cryo" rm victim

# --- a guest that hangs -------------------------------------------------------------
fresh
exec_pid=
"$B/cryo" exec victim -- sleep 1000 >/dev/null 2>"$T/err" &
exec_pid=$!
wait_for 20 sh -c "'$B/cryo' exec victim -- ps | grep -q 'sleep 1000'"
for p in $(proc_named qemu); do
	kill -STOP "$p"
done
interrupted() {
	kill -INT "$exec_pid"
	proc_gone "$exec_pid"
}
ok "interrupts leave a command that can't be ended" wait_for 20 interrupted
like "which is said" "$(cat "$T/err")" 'left alone'
for p in $(proc_named qemu); do
	kill -CONT "$p"
done
is "others go on behind it" "$(guest other echo yes)" yes
cryo rm victim >/dev/null
cryo rm other >/dev/null
ok "all of it verifies" cryo verify --deep
done_testing
