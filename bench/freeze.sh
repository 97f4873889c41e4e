#!/bin/sh
# freeze: how long a capture stops the guest, and how long it takes in all.
#
# even: 20 MiB of fresh random bytes, written evenly over each minute, with a
# point every 60 s for MINUTES (5). burst: 32 MiB written at once, then a
# point, BURSTS (8) times. Freeze and capture are the host's own figures of
# each point; seen-* are measured from outside, by a guest that prints a line
# every few milliseconds: the longest silence while a point is made, and in as
# long a time without one. What lies between them is the price of a capture;
# the silence without one is the emulation and the path of the output.
. bench/lib.sh
MINUTES=${MINUTES:-5}
BURSTS=${BURSTS:-8}
bench freeze "how long a capture stops the guest"

floor freeze 40
up_warm

# point_samples CASE FILTER: figures of the session's points of that kind
point_samples() {
	points "$id" | jq -r --arg c "$1" "select($2)"' |
		"\($c)-freeze \(.freeze_us / 1000)",
		"\($c)-capture \(.capture_us / 1000)",
		"\($c)-dirty \((.memory_pages + .disk_pages) * 4)",
		"\($c)-stored \(.stored_bytes / 1024 | floor)"' >>"$SAMPLES"
}

# --- even ---------------------------------------------------------------------
even='f=/dev/shm/even
dd if=/dev/urandom of=$f bs=4k count=5120 2>/dev/null
: >/dev/shm/ready
while :; do
	i=0
	while [ $i -lt 240 ]; do
		dd if=/dev/urandom of=$f bs=4k count=21 seek=$((i * 21)) \
			conv=notrunc 2>/dev/null
		i=$((i + 1))
		usleep 220000
	done
done'
id=$(cryo create --snapshot-every 60s) || bail "create"
cryo exec "$id" --detach -- sh -c "$even" >/dev/null || bail "exec"
wait_for 120 guest "$id" test -e /dev/shm/ready || bail "no guest"
# the next holds the whole file: what is measured comes after it
first=$(($(nr_points "$id") + 1))
wait_for 180 at_least_points "$id" $first || bail "no rolling point"
wait_for $((MINUTES * 60 + 120)) at_least_points "$id" $((first + MINUTES)) ||
	bail "rolling points do not come"
skip=$(points "$id" | sed -n "${first}p" | jq .seq)
point_samples even ".seq > $skip"
cryo rm "$id" >/dev/null

# --- burst --------------------------------------------------------------------
id=$(cryo create --snapshot-every 24h) || bail "create"
i=0
while [ $i -lt "$BURSTS" ]; do
	guest "$id" dd if=/dev/urandom of=/dev/shm/burst bs=1M count=32 \
		2>/dev/null || bail "burst"
	timed burst-snapshot cryo snapshot "$id" --name "burst-$i"
	i=$((i + 1))
done
point_samples burst '.name and (.name | startswith("burst-"))'

# --- from outside ---------------------------------------------------------------
cryo exec "$id" -- sh -c 'while :; do echo; usleep 3000; done' 2>/dev/null |
	"$B/bench/floor" gaps >"$T/gaps" &
listener=$!
wait_for 30 test -s "$T/gaps" || bail "no output from the guest"
i=0
while [ $i -lt "$BURSTS" ]; do
	start=$(now_ms)
	cryo snapshot "$id" --name "seen-$i" >/dev/null || bail "snapshot"
	end=$(now_ms)
	sleep 0.3
	echo "seen-capture $start $end" >>"$T/windows"
	rest=$((end - start + 300))
	start=$(now_ms)
	sleep "$((rest / 1000)).$(printf %03d $((rest % 1000)))"
	echo "seen-quiet $start $(now_ms)" >>"$T/windows"
	i=$((i + 1))
done
cryo rm "$id" >/dev/null
wait "$listener"
awk 'NR == FNR { at[NR] = $1; gap[NR] = $2; n = NR; next }
{
	longest = 0
	for (i = 1; i <= n; i++)
		if (at[i] >= $2 && at[i] - gap[i] <= $3 && gap[i] > longest)
			longest = gap[i]
	if (longest)
		print $1, longest
}' "$T/gaps" "$T/windows" >>"$SAMPLES"

report floor-freeze ms
report even-freeze ms floor-freeze
report even-capture ms
report even-dirty KiB
report even-stored KiB
report burst-freeze ms floor-freeze
report burst-capture ms
report burst-snapshot ms
report burst-dirty KiB
report seen-capture ms
report seen-quiet ms
bench_end
