# lib.sh: what the benchmarks in shell share. Sourced, from the root of the
# tree; starts and ends daemons by tests/e2e/lib.sh.
#
#   . bench/lib.sh
#   bench freeze "how long a capture stops the guest"
#   sample CASE VALUE                 # as often as there are samples
#   timed CASE COMMAND...             # one sample: its time in ms
#   report CASE UNIT [PEER]           # a row; the ratio is to PEER's median
#   bench_end
#
# JSON=1: one object a line instead of a table. The samples themselves are
# left in bench/results/NAME.raw, "CASE VALUE" a line. Percentiles are nearest
# rank: the smallest sample that so many percent do not exceed.
. tests/e2e/lib.sh

JSON=${JSON:-}
BENCH= HEAD_DONE=
SAMPLES=$T/samples
: >"$SAMPLES"

# Words for people must not get between the lines of JSON.
note() {
	echo "bench: $*" >&2
}

skip_all() {
	note "skipped: $1"
	tap_ended=1
	exit 0
}

bail() {
	note "$1"
	[ ! -s "$UP_LOG" ] || tail -n 30 "$UP_LOG" >&2
	tap_ended=1
	exit 1
}

bench() { # NAME WHAT
	BENCH=$1
	tap_ended=1 # no TAP here
	needs_machine
	[ "$JSON" = 1 ] && return
	cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
	printf '%s: %s\n%s x %s, Linux %s, load %s\n' "$1" "$2" "$(nproc)" \
		"${cpu:-unknown CPU}" "$(uname -r)" \
		"$(cut -d ' ' -f 1 /proc/loadavg)"
}

now_us() {
	date +%s%6N
}

sample() { # CASE VALUE
	echo "$1 $2" >>"$SAMPLES"
}

# us_sample CASE START_US: the time since then, in ms
us_sample() {
	us=$(($(now_us) - $2))
	sample "$1" "$((us / 1000)).$(printf %03d $((us % 1000)))"
}

timed() { # CASE COMMAND...
	timed_case=$1 timed_start=$(now_us)
	shift
	"$@" >"$T/timed.out" 2>&1 || {
		cat "$T/timed.out" >&2
		bail "$BENCH: failed: $*"
	}
	us_sample "$timed_case" "$timed_start"
}

# floor WHAT N: samples of bare QEMU, from bench/floor.c
floor() {
	CRYO_BUILD=$B "$B/bench/floor" "$1" "$2" >>"$SAMPLES" ||
		bail "bare QEMU failed"
}

# All of a case: "n p50 p90 p99 max", or nothing without samples
stats() { # CASE
	awk -v c="$1" '$1 == c { print $2 }' "$SAMPLES" | sort -g | awk '
	function rank(percent,   r) {
		r = int(percent / 100 * NR)
		if (r < percent / 100 * NR)
			r++
		return v[r < 1 ? 1 : r]
	}
	{ v[NR] = $1 }
	END { if (NR) print NR, rank(50), rank(90), rank(99), v[NR] }'
}

report() { # CASE UNIT [PEER]
	report_case=$1 report_unit=$2 report_peer=${3:-}
	set -- $(stats "$1")
	[ $# = 5 ] || bail "$BENCH: no samples of $report_case"
	ratio=
	if [ -n "$report_peer" ]; then
		ratio=$(stats "$report_peer" | awk -v mine="$2" \
			'$2 > 0 { printf "%.2f", mine / $2 }')
		[ -n "$ratio" ] || bail "$BENCH: no samples of $report_peer"
	fi
	if [ "$JSON" = 1 ]; then
		row_json "$@"
	else
		row_text "$@"
	fi
}

row_json() {
	printf '{"bench":"%s","case":"%s","unit":"%s","n":%s,' \
		"$BENCH" "$report_case" "$report_unit" "$1"
	printf '"p50":%s,"p90":%s,"p99":%s,"max":%s,"ratio":%s,"peer":%s}\n' \
		"$2" "$3" "$4" "$5" "${ratio:-null}" \
		"$([ -n "$report_peer" ] && echo "\"$report_peer\"" || echo null)"
}

row_text() {
	[ -n "$HEAD_DONE" ] || printf '%-26s %4s %9s %9s %9s %9s %-4s %s\n' \
		case n p50 p90 p99 max unit ratio
	HEAD_DONE=1
	printf '%-26s %4s %9s %9s %9s %9s %-4s %s\n' "$report_case" \
		"$1" "$2" "$3" "$4" "$5" "$report_unit" \
		"${ratio:+$ratio x $report_peer}" | sed 's/ *$//'
}

bench_end() {
	mkdir -p bench/results
	cp "$SAMPLES" "bench/results/$BENCH.raw"
}

# --- sessions -----------------------------------------------------------------

# A fresh data folder with the template's park made, so that what follows
# measures creation and not the first boot.
up_warm() {
	up
	warm=$(cryo create) || bail "create"
	guest "$warm" true || bail "exec"
	cryo rm "$warm" >/dev/null || bail "rm"
}

# Daemon ended and started again, page cache dropped: nothing is hot.
cool() {
	down
	sync
	[ ! -w /proc/sys/vm/drop_caches ] || echo 3 >/proc/sys/vm/drop_caches
	up
}

# resume_exec ID, fork_exec ID: until the first exec has been answered
resume_exec() {
	cryo resume "$1" && guest "$1" true
}

FORKED=
fork_exec() {
	FORKED=$(cryo fork "$1") && guest "$FORKED" true
}

# fork_many ID N: until the first exec of every fork has been answered
fork_many() {
	FORKED=$(cryo fork "$1" -n "$2") || return
	jobs=
	for f in $FORKED; do
		guest "$f" true &
		jobs="$jobs $!"
	done
	for j in $jobs; do
		wait "$j" || return
	done
}

forked_rm() {
	for f in $FORKED; do
		cryo rm "$f" >/dev/null || bail "rm"
	done
	FORKED=
}
