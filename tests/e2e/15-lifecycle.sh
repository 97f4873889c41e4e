#!/bin/sh
# The states of a session: every way in and out, and a random walk.
. tests/e2e/lib.sh
up

# --- pause: in memory ---------------------------------------------------------------
id=$(cryo create --name life --snapshot-every 1h)
x=$(counter life)
ok "a program runs" counts_on "$x"
ok "pause" cryo pause life
is "paused" "$(state life)" paused
n=$(count "$x")
fails "paused, a command is refused" 1 guest life true
like "it says why and what to do" "$out" 'paused.*resume'
ok "pause again is no error" cryo pause life
ok "resume" cryo resume life
is "running" "$(state life)" running
ok "the program goes on" counts_on "$x"
ok "without a gap" gapless "$x"
is "the same incarnation" "$(field life epoch)" 1

# --- suspend: on disk -------------------------------------------------------------------
ok "suspend" cryo suspend life
is "suspended" "$(state life)" suspended
is "no process is left" "$(proc_named qemu | wc -l)$(proc_named cryo-vm | wc -l)" 00
is "it left a point" "$(points life | jq -r .kind | tail -n 1)" suspend
fails "suspended, a command is refused" 1 guest life true
like "it says why and what to do" "$out" 'suspended.*resume'
ok "suspend again is no error" cryo suspend life
ok "its output is there" cryo logs "$x"
ok "resume" cryo resume life
ok "the program goes on" counts_on "$x"
ok "without a gap" gapless "$x"
is "a new incarnation" "$(field life epoch)" 2
ok "a second time: suspend" cryo suspend life
ok "a second time: resume" cryo resume life
ok "a second time: it goes on" counts_on "$x"
ok "from paused: pause" cryo pause life
ok "from paused: suspend" cryo suspend life
ok "from paused: resume" cryo resume life
ok "from paused: it goes on" counts_on "$x"
ok "without a gap through all of it" gapless "$x"
ok "resume while it runs is no error" cryo resume life

# --- rm from every state --------------------------------------------------------------------
ok "rm while it runs" cryo rm life
fails "gone" 1 cryo show life
is "the name is free again" "$(cryo create --name life | wc -l)" 1
cryo pause life
ok "rm while paused" cryo rm life
id=$(cryo create)
cryo suspend "$id" >/dev/null
ok "rm while suspended" cryo rm "$id"
id=$(cryo create)
kill -9 "$(proc_named qemu)"
ok "a killed machine fails the session" wait_for 20 is_state "$id" failed
ok "rm while failed" cryo rm "$id"
fails "rm of what is gone" 1 cryo rm "$id"
like "says so" "$out" "$id"
api POST /v1/sessions '{}'
id=$(answer .session)
ok "rm while it is being created" cryo rm "$id"
ok "it is gone then" wait_for 20 sh -c '! "$0" show "$1"' "$B/cryo" "$id"
is "nothing runs, nothing is listed" \
	"$(proc_named qemu | wc -l) $(cryo ls --json | wc -l)" "0 0"
is "every accepted operation has ended" "$(cryo events --json | jq -rs '
	[.[] | select(.type == "operation.accepted") | .data.operation] -
	[.[] | select(.type | test("operation.(done|failed)")) |
		.data.operation] - [.[] | .data.ended? // empty] | length')" 0

# --- a random walk: whatever comes, the program never misses a number -----------------------
seed=${CRYO_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
echo "# CRYO_SEED=$seed"
random() { # N: 0..N-1 into $r
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	r=$((seed / 65536 % $1))
}

id=$(cryo create --snapshot-every 2s)
x=$(counter "$id")
counts_on "$x"
walk='' bad=0
for step in 1 2 3 4 5 6 7 8 9 10 11 12; do
	random 6
	case $r in
	0) what="pause resume" ;;
	1) what="suspend resume" ;;
	2) what="pause suspend resume" ;;
	3) what="snapshot" ;;
	4) what="fork" ;;
	5) what="crash" ;;
	esac
	walk="$walk $what,"
	for verb in $what; do
		case $verb in
		fork)
			child=$(cryo fork "$id" 2>/dev/null)
			xc=$(exec_like "$child" 'while n=')
			counts_on "$xc" && gapless "$xc" >/dev/null &&
				[ "$(word "$xc")" = "$(word "$x")" ] ||
				bad=$((bad + 1))
			cryo rm "$id" || bad=$((bad + 1))
			id=$child x=$xc
			;;
		crash)
			kill -9 "$(proc_named cryod)"
			wait_for 30 up_answers || bad=$((bad + 1))
			;;
		*) cryo "$verb" "$id" >/dev/null 2>&1 || bad=$((bad + 1)) ;;
		esac
	done
	counts_on "$x" || bad=$((bad + 1))
	[ $bad = 0 ] || break
done
is "12 steps:$walk" $bad 0
ok "and no number is missing" gapless "$x"
ok "the log and all points verify" cryo verify
done_testing
