#!/bin/sh
# floor: bare QEMU, with cryo's command line and image but without cryo.
. bench/lib.sh
bench floor "bare QEMU: what the other benches are compared with"

floor boot "${N:-3}"
floor freeze "${N:-40}"
floor resume "${N:-15}"
floor exec "${N:-40}"

report floor-boot-reply ms
report floor-boot-exec ms
report floor-stop ms
report floor-save ms
report floor-cont ms
report floor-freeze ms
report floor-start ms
report floor-resume-reply ms
report floor-resume-exec ms
report floor-exec ms
bench_end
