#!/bin/sh
# demo.sh: the main job of cryo before the reader's eyes. `make demo` builds
# everything and runs it; alone: CRYO_BUILD=build sh tools/demo/demo.sh
#
# Each step says what it does, how long it took, and what was checked. It
# does nothing that a user could not do: the verbs of `cryo`, a `kill -9`, and
# the shell. Everything happens in a folder of its own, with a node of its
# own; on the way out, also after Ctrl-C, its sessions are removed, its
# processes ended by their ids, and the folder is deleted.
#
# Ends with "demo: N checks passed"; the exit status is 0 only if all did.
set -u
LC_ALL=C.UTF-8
export LC_ALL

B=${CRYO_BUILD:-build}
case $B in
/*) ;;
*) B=$PWD/$B ;;
esac
case ${TERM:-dumb} in
dumb) bold= dim= red= off= ;;
*) bold='\033[1m' dim='\033[2m' red='\033[31m' off='\033[0m' ;;
esac
[ -t 1 ] || bold= dim= red= off=

# --- telling what happens -------------------------------------------------------

passed=0 failed=0 step_nr=0 step_from=

now_ms() {
	date +%s%3N
}

seconds() { # MILLISECONDS
	printf '%d.%d s' $(($1 / 1000)) $(($1 % 1000 / 100))
}

step() { # TEXT: a new step; says how long the one before took
	step_end
	remember
	step_nr=$((step_nr + 1))
	step_from=$(now_ms)
	printf "${bold}%2d. %s${off}\n" $step_nr "$1"
}

step_end() {
	[ -n "$step_from" ] || return 0
	printf "    ${dim}%s${off}\n\n" "$(seconds $(($(now_ms) - step_from)))"
	step_from=
}

say() { # TEXT
	printf '    %s\n' "$*"
}

check() { # TEXT COMMAND...: counts
	what=$1
	shift
	if "$@" >/dev/null 2>&1; then
		passed=$((passed + 1))
		printf '    ok  %s\n' "$what"
	else
		failed=$((failed + 1))
		printf "    ${red}NO  %s${off}\n" "$what"
	fi
}

die() { # TEXT
	printf '\ndemo: %s\n' "$*" >&2
	[ ! -s "$T/up.log" ] || tail -n 15 "$T/up.log" >&2
	exit 1
}

# Shows a command the way one types it (or as $as), then runs it; what it
# prints is in $out. All else depends on it: if it fails, so does the demo.
as=
run() {
	printf "    ${dim}\$ cryo %s${off}\n" "${as:-$*}"
	as=
	out=$("$B/cryo" "$@" 2>"$T/err") ||
		die "cryo $* failed: $(cat "$T/err")"
	grep -v '\.\.\.$' "$T/err" | sed 's/^/    /'
}

# wait_for SECONDS COMMAND...
wait_for() {
	wait_end=$(($(now_ms) + $1 * 1000))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(now_ms)" -lt "$wait_end" ] || return 1
		sleep 0.1
	done
}

between() { # LOW VALUE HIGH
	[ "$1" -le "$2" ] && [ "$2" -le "$3" ]
}

# --- processes: known by id and start time, which no other has -------------------

# "PID STARTED PARENT NAME" of all
processes() {
	sed 's/^\([0-9]*\) (\([^ ]*\).*) /\1 \2 /' /proc/[0-9]*/stat \
		2>/dev/null | awk '{ print $1, $22, $4, $2 }' | tr -d ')'
}

# Ours: what runs below `cryo up`. Sandboxes outlive it, so write them down.
remember() {
	[ -n "$up" ] || return 0
	processes | awk -v up="$up" '
	{ started[$1] = $2; parent[$1] = $3; name[$1] = $4 }
	END {
		for (p in parent)
			for (q = p; q > 1; q = parent[q])
				if (q == up) {
					print p, started[p], name[p]
					break
				}
	}' >>"$T/ours"
}

ours() { # those of ours that run: "PID NAME"
	[ -e "$T/ours" ] || return 0
	processes | awk '
	NR == FNR { ours[$1 " " $2] = 1; next }
	$1 " " $2 in ours { print $1, $4 }' "$T/ours" -
}

gone() { # PID
	[ ! -e "/proc/$1" ] || grep -q '^State:.*[ZX] (' "/proc/$1/status"
}

daemon_pid() {
	remember
	ours | sed -n 's/ cryod$//p' | head -n 1
}

none_runs() {
	[ -z "$(ours)" ]
}

node_start() {
	# in a session of its own: a Ctrl-C is for us, and we tidy up
	setsid "$B/cryo" up >>"$T/up.log" 2>&1 </dev/null &
	up=$!
	wait_for 60 node_ready || die "the node did not start"
}

node_ready() {
	[ "$(grep -c 'cryo up: ready' "$T/up.log")" = $((starts + 1)) ] ||
		gone "$up"
}

node_stop() { # as an operator does it
	remember
	kill -TERM "$up" 2>/dev/null
	wait_for 30 gone "$up" || kill -9 "$up"
	wait "$up" 2>/dev/null
	up=
	starts=$((starts + 1))
}

tidy() {
	status=$?
	trap - EXIT
	trap '' INT TERM HUP
	if [ -n "$up" ]; then
		for s in $("$B/cryo" ls 2>/dev/null | awk 'NR > 1 { print $1 }'); do
			timeout 20 "$B/cryo" rm "$s" >/dev/null 2>&1
		done
		node_stop
	fi
	for p in $(ours | cut -d ' ' -f 1); do
		kill -9 "$p"
	done
	rm -rf "$T"
	exit "$status"
}

# --- what the guest runs ----------------------------------------------------------

# A word and a number that exist nowhere but in a shell's variables.
counter='word=$(od -An -N4 -tx1 /dev/urandom | tr -d " "); n=0
while n=$((n + 1)); do echo $word $n; sleep 0.25; done'

# Files that come one after the other, each with its checksum noted.
writer='mkdir /root/work; cd /root/work; n=0
while n=$((n + 1)); do
	head -c 9000 /dev/urandom >file$n; md5sum file$n >>sums; sleep 0.5
done'

# exec_of SESSION WORD: the command there whose line has WORD in it
exec_of() {
	"$B/cryo" show "$1" | grep " running .*$2" | cut -d ' ' -f 1
}

counted() { # EXEC: "WORD NUMBER" of now
	"$B/cryo" logs "$1" | tail -n 1
}

number() { # EXEC
	counted "$1" | cut -d ' ' -f 2
}

is_counting() { # EXEC: goes on from where it is
	is_counting_from=$(number "$1")
	wait_for 10 has_passed "$1" "$is_counting_from"
}

has_passed() { # EXEC NUMBER
	[ "$(number "$1")" -gt "$2" ]
}

# One word, and each number one more than that before it
without_gap() { # EXEC
	"$B/cryo" logs "$1" | awk '
	NR > 1 && ($1 != word || $2 != n + 1) { bad++ }
	{ word = $1; n = $2 }
	END { exit bad || NR < 2 }'
}

in_guest() { # SESSION COMMAND...
	in_guest_id=$1
	shift
	"$B/cryo" exec "$in_guest_id" -- "$@"
}

nr_files() { # SESSION
	in_guest "$1" sh -c 'wc -l </root/work/sums'
}

files_good() { # SESSION
	in_guest "$1" sh -c 'cd /root/work && md5sum -c sums'
}

nr_points() { # SESSION
	"$B/cryo" snapshots "$1" | awk 'NR > 1' | wc -l
}

has_points() { # SESSION NUMBER
	[ "$(nr_points "$1")" -ge "$2" ]
}

newest_point() { # SESSION
	"$B/cryo" snapshots -n 1 "$1" | awk 'NR == 2 { print $1 }'
}

# Where the counter stood in the point that a fork began with: the log says
# how much of the output is older than the fork.
counted_at_birth() { # FORK EXEC
	bytes=$("$B/cryo" events "$1" | grep " exec.adopted .* id=$2 " |
		sed 's/.* out=\([0-9]*\).*/\1/')
	"$B/cryo" logs "$2" >"$T/log"
	head -c "${bytes:-0}" "$T/log" | tail -n 1 | cut -d ' ' -f 2
}

same_word() { # EXEC EXEC
	[ "$(counted "$1" | cut -d ' ' -f 1)" = \
		"$(counted "$2" | cut -d ' ' -f 1)" ]
}

fewer_files() { # SESSION SESSION
	between 1 "$(nr_files "$1")" $(($(nr_files "$2") - 1))
}

work_is_gone() { # SESSION
	in_guest "$1" sh -c '[ ! -e /root/work/file1 ]'
}

has_left_line() { # SESSION
	"$B/cryo" snapshots "$1" | grep -q ' left '
}

distinct() { # COLUMN: of what eight forks said
	cut -d ' ' -f "$1" "$T/said" | sort -u | grep -c .
}

field() { # SESSION TITLE: of what `cryo show` says
	"$B/cryo" show "$1" | sed -n "s/^$2  *//p"
}

# --- the demo ---------------------------------------------------------------------

[ "$(id -u)" = 0 ] || {
	echo "demo: not root; cryo up makes users and namespaces for its" \
		"sandboxes: run it with sudo" >&2
	exit 1
}
[ -x "$B/cryo" ] && [ -e "$B/image/tiny/template.json" ] || {
	echo "demo: $B has no cryo or no guest image; run: make demo" >&2
	exit 1
}
T=$(mktemp -d "${TMPDIR:-/var/tmp}/cryo-demo.XXXXXX") || exit 1
chmod 711 "$T" # the daemon's own user passes through
CRYO_DATA=$T/data
export CRYO_DATA
up= starts=0
trap tidy EXIT
trap 'exit 130' INT TERM HUP
from=$(now_ms)

step "Start a node: one command, one data folder."
say "\$ cryo up &"
node_start
check "the node answers" "$B/cryo" ls
say "isolation: $("$B/cryo" doctor 2>/dev/null |
	sed -n 's/^[a-z]* *isolation *//p')"

step "Create a session: a Linux of its own, with a point every 3 seconds."
say "The first one of a template boots it, once. All later ones start there."
run create --name demo --snapshot-every 3s
id=$out
check "it runs" test "$(field demo state)" = running
say "$(in_guest demo uname -srm)"

step "Run two programs: one keeps its state in memory only, one writes files."
as="exec --detach demo -- sh -c 'word=...; n=0
        while n=\$((n + 1)); do echo \$word \$n; sleep 0.25; done'"
run exec --detach demo -- sh -c "$counter"
x=$out
as="exec --detach demo -- sh -c '...
        while ...; do ... >file\$n; md5sum file\$n >>sums; sleep 0.5; done'"
run exec --detach demo -- sh -c "$writer"
check "the counter counts" wait_for 20 has_passed "$x" 3
check "the writer writes" wait_for 20 files_good demo
say "the counter says: $(counted "$x")"

step "Let time pass: points come by themselves, behind the running guest."
now=$(nr_points demo)
check "two more points" wait_for 30 has_points demo $((now + 2))
then_time=$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)
then_number=$(number "$x")
now=$(nr_points demo)
check "and another two" wait_for 30 has_points demo $((now + 2))
"$B/cryo" snapshots -n 4 demo | sed 's/^/    /'

step "Fork it as it was at $then_time."
run fork demo --at "$then_time"
fork=$out
fx=$(exec_of "$fork" word)
at=$(counted_at_birth "$fork" "$fx")
say "the fork's counter went on from $at; the original's is at $(number "$x")"
check "memory is that of the moment" between 1 "${at:-0}" $((then_number + 3))
check "with the same word, which only memory holds" same_word "$fx" "$x"
check "and it counts on by itself" is_counting "$fx"
check "files are those of the moment" fewer_files "$fork" demo
check "each of them whole" files_good "$fork"
check "the original goes on" is_counting "$x"
"$B/cryo" rm "$fork" >/dev/null 2>&1

step "kill -9 the daemon."
pid=$(daemon_pid)
epoch=$(field demo epoch)
before=$(number "$x")
say "\$ kill -9 $pid    # cryod; the counter is at $before"
kill -9 "$pid"
check "it is dead" wait_for 5 gone "$pid"
check "another one serves, and knows all" wait_for 30 has_passed "$x" $((before + 10))
check "the guest was never touched: same epoch" test "$(field demo epoch)" = "$epoch"
check "and no number is missing in what it said" without_gap "$x"
check "points go on" wait_for 30 has_points demo $(($(nr_points demo) + 1))

step "Suspend it, stop everything, start again, resume."
run suspend demo
last=$(counted "$x")
node_stop
check "no process is left" wait_for 20 none_runs
node_start
run resume demo
check "it goes on exactly where it was: $last" is_counting "$x"
check "not one number twice, none left out" without_gap "$x"
check "and its clock is right" \
	between -2 $(($(in_guest demo date +%s) - $(date +%s))) 2

step "An accident: all its work is deleted. Rewind; then undo that."
run snapshot demo --name good
run exec demo -- sh -c 'rm -r /root/work/*'
check "the work is gone" work_is_gone demo
run rewind demo --at good
check "it is back, each file whole" files_good demo
check "and the counter counts on from there" is_counting "$x"
run rewind demo --undo
check "undone: as it was, with the work gone" work_is_gone demo

step "Fork the good moment eight times at once."
run fork demo --at good -n 8
forks=$out
for f in $forks; do
	# random number, host name, files that are not as noted
	printf '%s\n' "$(in_guest "$f" sh -c 'cd /root/work
		cat /proc/sys/kernel/random/uuid; hostname
		md5sum -c sums 2>/dev/null | grep -vc OK' | tr '\n' ' ')"
done >"$T/said"
head -n 3 "$T/said" | sed 's/^/    /; s/ [0-9]* $//'
check "all eight answer" test "$(grep -c . "$T/said")" = 8
check "each with other random numbers" test "$(distinct 1)" = 8
check "each with a host name of its own" test "$(distinct 2)" = 8
check "all with the good files" test "$(grep -c ' 0 $' "$T/said")" = 8

step "Draw what happened."
run timeline demo
printf '%s\n' "$out" | sed 's/^/    /'
check "the line that was left is kept" has_left_line demo
for f in $forks; do
	"$B/cryo" rm "$f" >/dev/null 2>&1
done
check "without its eight forks it goes on" is_counting "$x"

step "Verify: the log's chain, the state it adds up to, every point's bytes."
run verify
printf '%s\n' "$out" | sed 's/^/    /'
check "all of it is as the log says" test -n "$out"

step "A command in a session of its own, of which nothing stays."
sessions=$("$B/cryo" ls | wc -l)
as='run -- sh -c '"'echo \"hello from \$(uname -s) \$(uname -r)\"'"
run run -- sh -c 'echo "hello from $(uname -s) $(uname -r)"'
say "$out"
check "it said hello" test "${out%% *}" = hello
check "its session is gone" test "$("$B/cryo" ls | wc -l)" = "$sessions"

step "Clean up: a removed session's key is destroyed, its points are noise."
run rm demo
check "no session is left" test "$("$B/cryo" ls | wc -l)" = 1
node_stop
check "no process is left" wait_for 20 none_runs
step_end

if [ $failed = 0 ]; then
	printf 'demo: %d checks passed, in %s\n' $passed \
		"$(seconds $(($(now_ms) - from)))"
else
	printf 'demo: %d checks passed, %d failed\n' $passed $failed
	exit 1
fi
