# lib.sh: what the end-to-end tests and the benchmarks share. Sourced by
# scripts in POSIX sh that run from the root of the tree:
#
#   . tests/e2e/lib.sh
#   up                                  # cryo up on a folder of its own
#   id=$(cryo create)
#   is "it runs" "$(state "$id")" running
#   done_testing
#
# Each check prints one line of TAP; call them from the script's own shell,
# not from a pipe or $(...), or they are not counted. Variables that are set
# here for good: B T CRYO_DATA UP_PID UP_LOG out code, and those named tap_*.
# On the way out, also after a signal or a failed script, every session is
# removed, every process that was started is ended by its id, and the folder
# is deleted (KEEP=1 keeps it and says where). CRYO_BUILD names the build
# folder.
set -u
LC_ALL=C
export LC_ALL

B=${CRYO_BUILD:-build}
case $B in
/*) ;;
*) B=$PWD/$B ;;
esac

T=$(mktemp -d "${TMPDIR:-/var/tmp}/cryo-e2e.XXXXXX") || exit 1
chmod 711 "$T" # the daemon's own user passes through
CRYO_DATA=$T/data
export CRYO_DATA
UP_PID= # of `cryo up`, while it runs
UP_LOG=$T/up.log
tap_nr=0 tap_failed=0 tap_ended= tap_cut=

cryo() {
	"$B/cryo" "$@"
}

# --- checks -------------------------------------------------------------------

tap_line() { # GOOD NAME
	tap_nr=$((tap_nr + 1))
	if [ "$1" = 1 ]; then
		echo "ok $tap_nr - $2"
	else
		tap_failed=$((tap_failed + 1))
		echo "not ok $tap_nr - $2"
	fi
}

tap_note() { # text on standard input
	sed 's/^/#   /'
}

# ok NAME COMMAND...: it succeeds; what it says is shown only if not
ok() {
	tap_name=$1
	shift
	if "$@" >"$T/ok.out" 2>&1; then
		tap_line 1 "$tap_name"
	else
		echo "status $?: $*" >>"$T/ok.out"
		tap_line 0 "$tap_name"
		tail -n 20 "$T/ok.out" | tap_note
	fi
}

# fails NAME STATUS COMMAND...: it ends with STATUS; its words are in $out
fails() {
	tap_name=$1 tap_want=$2
	shift 2
	out=$("$@" 2>&1) && tap_got=0 || tap_got=$?
	if [ "$tap_got" = "$tap_want" ]; then
		tap_line 1 "$tap_name"
	else
		tap_line 0 "$tap_name"
		printf '%s\nstatus %s, not %s: %s\n' "$out" "$tap_got" "$tap_want" \
			"$*" | tap_note
	fi
}

is() { # NAME GOT WANT
	if [ "$2" = "$3" ]; then
		tap_line 1 "$1"
	else
		tap_line 0 "$1"
		printf 'got:  %s\nwant: %s\n' "$2" "$3" | tap_note
	fi
}

isnt() { # NAME GOT OTHER
	if [ "$2" != "$3" ]; then
		tap_line 1 "$1"
	else
		tap_line 0 "$1"
		printf 'both: %s\n' "$2" | tap_note
	fi
}

# like NAME TEXT PATTERN: an extended regular expression, as in grep -E
like() {
	if printf '%s\n' "$2" | grep -Eq -- "$3"; then
		tap_line 1 "$1"
	else
		tap_line 0 "$1"
		printf 'text: %s\npattern: %s\n' "$2" "$3" | tap_note
	fi
}

unlike() { # NAME TEXT PATTERN
	if printf '%s\n' "$2" | grep -Eq -- "$3"; then
		tap_line 0 "$1"
		printf 'text: %s\npattern: %s\n' "$2" "$3" | tap_note
	else
		tap_line 1 "$1"
	fi
}

# within NAME GOT LOW HIGH: whole numbers
within() {
	if [ "$2" -ge "$3" ] 2>/dev/null && [ "$2" -le "$4" ]; then
		tap_line 1 "$1"
	else
		tap_line 0 "$1"
		printf 'got %s, want %s..%s\n' "$2" "$3" "$4" | tap_note
	fi
}

skip_all() { # WHY
	echo "1..0 # SKIP $1"
	tap_ended=1
	exit 0
}

bail() { # WHY: nothing after this could mean anything
	echo "Bail out! $1"
	[ ! -s "$UP_LOG" ] || tail -n 30 "$UP_LOG" | tap_note
	tap_ended=1
	exit 1
}

done_testing() {
	[ "$tap_failed" = 0 ] || [ ! -s "$UP_LOG" ] || {
		echo "# the daemon's last words:"
		tail -n 30 "$UP_LOG" | tap_note
	}
	echo "1..$tap_nr"
	tap_ended=1
	[ "$tap_failed" = 0 ]
	exit
}

# --- time ---------------------------------------------------------------------

now_ms() {
	date +%s%3N
}

# wait_for SECONDS COMMAND...: again and again until it succeeds
wait_for() {
	wait_end=$(($(now_ms) + $1 * 1000))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(now_ms)" -lt "$wait_end" ] || return 1
		sleep 0.1
	done
}

# --- processes ----------------------------------------------------------------

# A process is known by id and start time, so that an id that was given to
# somebody else is never signalled.
proc_start() { # PID
	sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

# All descendants of $1, itself not
proc_below() {
	ps -e -o pid=,ppid= | awk -v top="$1" '
	{ parent[$1] = $2 }
	END {
		for (p in parent)
			for (q = parent[p]; q > 1; q = parent[q])
				if (q == top) {
					print p
					break
				}
	}'
}

# Remembers what runs below `cryo up`: sandboxes outlive it.
proc_remember() (
	[ -n "$UP_PID" ] || return 0
	for p in "$UP_PID" $(proc_below "$UP_PID"); do
		s=$(proc_start "$p")
		[ -z "$s" ] || echo "$p $s"
	done >>"$T/pids"
)

# Ends what was remembered and still runs.
proc_end_all() (
	[ -e "$T/pids" ] || return 0
	sort -u "$T/pids" | while read -r p s; do
		[ "$(proc_start "$p")" != "$s" ] || kill -9 "$p" 2>/dev/null
	done
)

# proc_named NAME: ids of our processes of that name (cryod, cryo-helper,
# cryo-vm, qemu), from this run of `cryo up` and those before
proc_named() (
	proc_remember
	sort -u "$T/pids" | while read -r p s; do
		[ "$(proc_start "$p")" != "$s" ] ||
			[ "$(cat "/proc/$p/comm" 2>/dev/null)" != "$1" ] ||
			echo "$p"
	done
)

proc_gone() { # PID
	[ ! -e "/proc/$1" ] || grep -q '^State:.*[ZX] (' "/proc/$1/status"
}

# --- the daemon ---------------------------------------------------------------

# What a test with a real machine needs; the rest of it is skipped without.
needs_machine() {
	[ "$(id -u)" = 0 ] || skip_all "needs root"
	[ -x "$B/cryo" ] || skip_all "there is no $B/cryo: run make"
	command -v qemu-system-x86_64 >/dev/null || skip_all "needs QEMU"
	command -v jq >/dev/null || skip_all "needs jq"
}

up_answers() {
	cryo ls
}

# up [OPTION...]: starts `cryo up` and waits until it answers
up() {
	needs_machine
	[ -z "$UP_PID" ] || bail "up: it runs already"
	# in a session of its own: a signal to our group is for us to handle
	setsid "$B/cryo" up --data "$CRYO_DATA" "$@" >>"$UP_LOG" 2>&1 \
		</dev/null &
	UP_PID=$!
	wait_for 60 up_ready || bail "cryo up does not answer"
	kill -0 "$UP_PID" 2>/dev/null || bail "cryo up has ended"
	# it answers first and takes in the image beside it then
	[ ! -e "$B/image/tiny/template.json" ] ||
		wait_for 60 has_template || bail "template tiny does not come"
	proc_remember
}

has_template() {
	cryo template ls --json | jq -se 'any(.name == "tiny:latest")'
}

up_ready() {
	up_answers || ! kill -0 "$UP_PID" 2>/dev/null
}

# Ends the daemon as an operator does; sandboxes go on.
down() {
	[ -n "$UP_PID" ] || return 0
	proc_remember
	kill -TERM "$UP_PID" 2>/dev/null
	wait_for 30 proc_gone "$UP_PID" || kill -9 "$UP_PID" 2>/dev/null
	wait "$UP_PID" 2>/dev/null
	UP_PID=
}

# Ends the daemon with all that runs as root for it, with no time to tidy.
crash() {
	proc_remember
	kill -9 $(proc_named cryod) $(proc_named cryo-helper) "$UP_PID" \
		2>/dev/null
	wait "$UP_PID" 2>/dev/null
	UP_PID=
}

# --- sessions -----------------------------------------------------------------

# field ID MEMBER: of the session's document, "null" if it isn't there
field() {
	cryo show --json "$1" | jq -r ".$2"
}

state() { # ID
	field "$1" state
}

is_state() { # ID STATE
	[ "$(state "$1")" = "$2" ]
}

# guest ID COMMAND...: runs it in the sandbox
guest() {
	guest_id=$1
	shift
	cryo exec "$guest_id" -- "$@"
}

# a list as one array, as a page, or as one item after the other
items='if type == "array" then .[] else .items[]? // . end'

# points ID: one point a line, as JSON, oldest first
points() {
	cryo snapshots --json "$1" | jq -c "$items" | jq -sc 'sort_by(.seq)[]'
}

nr_points() { # ID
	points "$1" | wc -l
}

at_least_points() { # ID NUMBER
	[ "$(nr_points "$1")" -ge "$2" ]
}

# events ID TYPE: the data of the session's events of that type, one a line
events() {
	cryo events --json "$1" | jq -c "select(.type == \"$2\") | .data"
}

nr_events() { # ID TYPE
	events "$1" "$2" | wc -l
}

newest_point() { # ID
	cryo snapshots -n 1 --json "$1" | jq -r .id
}

# A time the way `--at` takes it: the host's, now
now_rfc() {
	date -u +%Y-%m-%dT%H:%M:%S.%NZ
}

# api METHOD PATH [BODY [HEADER...]]: over the unix socket; the status is in
# $code, what it answered in $out
api() {
	api_method=$1 api_path=$2
	shift 2
	api_body=
	[ $# = 0 ] || {
		api_body=$1
		shift
	}
	[ -z "$api_body" ] ||
		set -- -H 'Content-Type: application/json' --data "$api_body" "$@"
	code=$(curl -s -m 60 -o "$T/api.out" -w '%{http_code}' \
		--unix-socket "$CRYO_DATA/run/api.sock" -X "$api_method" "$@" \
		"http://localhost$api_path")
	out=$(cat "$T/api.out")
}

answer() { # FIELD: of what the API answered last
	printf '%s' "$out" | jq -r "$1"
}

# --- a program whose state is in memory only -----------------------------------

# counter ID: starts it; prints its exec. A line is "WORD NUMBER": the word
# is drawn once, the number grows by one.
counter() {
	cryo exec --detach "$1" -- sh -c 'w=$(od -An -N4 -tx1 /dev/urandom |
		tr -d " "); n=0
		while n=$((n + 1)); do echo $w $n; sleep 0.1; done'
}

# exec_like ID PATTERN: the running exec whose arguments match
exec_like() {
	api GET "/v1/sessions/$1/execs?limit=200"
	answer "[.items[] | select(.state == \"running\" and
		(.argv | join(\" \") | test(\"$2\")))][0].id"
}

count() { # EXEC
	cryo logs "$1" | tail -n 1 | cut -d ' ' -f 2
}

word() { # EXEC
	cryo logs "$1" | tail -n 1 | cut -d ' ' -f 1
}

counted_past() { # EXEC NUMBER
	[ "$(count "$1")" -gt "$2" ]
}

counts_on() { # EXEC
	counts_from=$(count "$1")
	wait_for 20 counted_past "$1" "${counts_from:-0}"
}

# One word, and no number twice or missing
gapless() { # EXEC
	cryo logs "$1" | awk '
	NR == 1 { word = $1; n = $2 - 1 }
	$1 != word || $2 != n + 1 { print "after", n, "came", $0; bad++ }
	{ n = $2 }
	END { exit bad || NR < 2 }'
}

rm_all() (
	for s in $(cryo ls --json 2>/dev/null | jq -r "$items | .id"); do
		timeout 30 "$B/cryo" rm "$s" >/dev/null 2>&1
	done
)

# --- the end ------------------------------------------------------------------

tidy() {
	status=$?
	trap - EXIT INT TERM
	if [ -n "$UP_PID" ] && [ -z "$tap_cut" ]; then
		rm_all
		down
	fi
	proc_remember # who cut us off does not wait for long
	proc_end_all
	[ -n "$tap_ended" ] || [ "$tap_nr" = 0 ] || echo "Bail out! cut off"
	if [ -n "${KEEP:-}" ]; then
		echo "# kept: $T"
	else
		rm -rf "$T"
	fi
	exit "$status"
}
trap tidy EXIT
trap 'tap_cut=1; exit 130' INT TERM HUP PIPE
