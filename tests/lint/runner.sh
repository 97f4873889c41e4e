#!/bin/sh
# Does tests/run count what it should, and fail when it should?
set -u
LC_ALL=C
export LC_ALL
run=$(cd "$(dirname "$0")/.." && pwd)/run
dir=$(mktemp -d "${TMPDIR:-/tmp}/cryo-runner.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir" || exit 1
nr=0
bad=0

ok() { # RC WHAT
	nr=$((nr + 1))
	if [ "$1" = 0 ]; then
		echo "ok $nr - $2"
	else
		bad=1
		echo "not ok $nr - $2"
		sed 's/^/# /' out
	fi
}

# expect STATUS "last line" "what": runs test.sh, given on standard input
expect() {
	cat >test.sh
	sh "$run" -t 2 test.sh >out 2>&1
	rc=$?
	[ $rc = "$1" ] && [ "$(tail -n 1 out)" = "$2" ]
	ok $? "$3"
}

said() {
	grep -qF "$1" out
	ok $? "and says: $1"
}

expect 0 "2 passed, 0 failed" "two passed assertions" <<'END'
echo "ok 1 - a"; echo "ok 2 - b"; echo "1..2"
END
expect 1 "1 passed, 1 failed" "a failed one" <<'END'
echo "1..2"; echo "ok 1 - a"; echo "not ok 2 - b"; echo "# the reason"; exit 1
END
said "the reason"
expect 1 "1 passed, 1 failed" "no plan" <<'END'
echo "ok 1 - a"
END
said "no plan"
expect 1 "1 passed, 1 failed" "a plan not kept" <<'END'
echo "1..2"; echo "ok 1 - a"
END
said "planned 2, ran 1"
expect 1 "2 passed, 1 failed" "more than was planned" <<'END'
echo "1..1"; echo "ok 1 - a"; echo "ok 2 - a"
END
expect 1 "1 passed, 1 failed" "a bail out" <<'END'
echo "ok 1 - a"; echo "Bail out! no disk"; exit 1
END
said "Bail out! no disk"
expect 1 "1 passed, 1 failed" "a bad exit status" <<'END'
echo "ok 1 - a"; echo "1..1"; exit 3
END
said "exit status 3"
expect 1 "1 passed, 2 failed" "a crash" <<'END'
echo "ok 1 - a"; kill -SEGV $$
END
said "killed by signal 11"
expect 1 "1 passed, 1 failed" "a test that never ends" <<'END'
echo "ok 1 - a"; echo "1..1"; sleep 60
END
said "ended after 2 s"
expect 1 "0 passed, 1 failed" "a test that tests nothing" <<'END'
echo "1..0"
END
expect 1 "0 passed, 0 failed" "nothing but a skipped test is no success" <<'END'
echo "1..0 # SKIP no machine"
END
said "skipped: no machine"
expect 0 "1 passed, 0 failed" "a skipped assertion is not passed" <<'END'
echo "ok 1 - a"; echo "ok 2 # skip not here"; echo "1..2"
END
said "1 skipped"

echo 'echo "ok 1"; echo "1..1"' >a.sh
cp a.sh b.sh
echo 'date +%s%N >>times; sleep 0.3; date +%s%N >>times
	echo "ok 1"; echo "1..1"' >s1.sh
cp s1.sh s2.sh
sh "$run" -j 2 a.sh b.sh -- s1.sh s2.sh >out 2>&1
[ "$(tail -n 1 out)" = "4 passed, 0 failed" ]
ok $? "results of several tests are added"
[ "$(sort -n times)" = "$(cat times)" ] && [ "$(wc -l <times)" = 4 ]
ok $? "tests after -- run one after another"
sh "$run" a.sh none.sh >out 2>&1
[ $? = 1 ] && [ "$(tail -n 1 out)" = "1 passed, 2 failed" ]
ok $? "a test that is not there fails"
sh "$run" >out 2>&1
[ $? = 1 ] && [ "$(tail -n 1 out)" = "0 passed, 0 failed" ]
ok $? "no test at all is no success"

echo "1..$nr"
exit $bad
