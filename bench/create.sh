#!/bin/sh
# create: from the wish for a sandbox to its first exec's answer, through the
# command line. first: on an empty data folder, where the template boots and
# is parked. create: what every later one costs. run: create, exec, output,
# destroy, in one call. exec: in a sandbox that has been running for a while.
# Beside them bare QEMU: its boot, its -incoming on a warm image, and an exec
# by the agent without daemon and command line.
. bench/lib.sh
N=${N:-20}
bench create "from nothing to the first exec's answer"

floor boot 3
floor resume 15
floor exec 40

created=
create_exec() {
	created=$(cryo create) && guest "$created" true
}

up
timed first create_exec
cryo rm "$created" >/dev/null
i=0
while [ $i -lt "$N" ]; do
	timed create create_exec
	timed exec guest "$created" true
	timed rm cryo rm "$created"
	timed run cryo run -- true
	i=$((i + 1))
done

report floor-boot-exec ms
report first ms floor-boot-exec
report floor-resume-exec ms
report create ms floor-resume-exec
report run ms floor-resume-exec
report floor-exec ms
report exec ms floor-exec
report rm ms
bench_end
