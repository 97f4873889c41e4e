#!/bin/sh
# resume: from the wish to go on to the first exec's answer, through the
# command line, of a session with 32 MiB of its own in memory.
#
# hot: its image is in the daemon's cache. cold: the daemon was ended and
# started again and the page cache dropped, so that everything comes from the
# packs. fork-8: eight at once, until all eight have answered. Beside them bare
# QEMU: -incoming on a warm sealed image, to the agent's first word (reply) and
# to the end of its first exec.
. bench/lib.sh
N=${N:-10}
COLD=${COLD:-4}
bench resume "from suspended, or a point, to the first exec's answer"

floor resume 15
up_warm
id=$(cryo create --snapshot-every 24h) || bail "create"
guest "$id" dd if=/dev/urandom of=/dev/shm/own bs=1M count=32 2>/dev/null ||
	bail "exec"

i=0
while [ $i -lt "$N" ]; do
	timed suspend cryo suspend "$id"
	timed resume-hot resume_exec "$id"
	i=$((i + 1))
done
cryo snapshot "$id" --name base >/dev/null || bail "snapshot"
i=0
while [ $i -lt "$N" ]; do
	timed fork-hot fork_exec "$id"
	forked_rm
	i=$((i + 1))
done
i=0
while [ $i -lt $(((N + 2) / 3)) ]; do
	timed fork-8-hot fork_many "$id" 8
	forked_rm
	i=$((i + 1))
done

i=0
while [ $i -lt "$COLD" ]; do
	cryo suspend "$id" >/dev/null || bail "suspend"
	cool
	timed resume-cold resume_exec "$id"
	cryo suspend "$id" >/dev/null || bail "suspend"
	cool
	timed fork-cold fork_exec "$id"
	forked_rm
	cool
	timed fork-8-cold fork_many "$id" 8
	forked_rm
	cryo resume "$id" >/dev/null || bail "resume"
	i=$((i + 1))
done

report floor-resume-reply ms
report floor-resume-exec ms
report resume-hot ms floor-resume-exec
report resume-cold ms floor-resume-exec
report fork-hot ms floor-resume-exec
report fork-cold ms floor-resume-exec
report fork-8-hot ms floor-resume-exec
report fork-8-cold ms floor-resume-exec
report suspend ms
bench_end
