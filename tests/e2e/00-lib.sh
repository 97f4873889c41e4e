#!/bin/sh
# The checks of lib.sh themselves: each says ok and not ok where it must.
. tests/e2e/lib.sh

# Runs lines in a shell of its own that has sourced lib.sh; all it said.
script() {
	printf '. tests/e2e/lib.sh\n%s\ndone_testing\n' "$1" | sh 2>&1
	echo "status $?"
}

good() { # NAME LINES
	like "$1" "$(script "$2")" '^ok 1 - x$'
}

bad() { # NAME LINES
	like "$1" "$(script "$2")" '^not ok 1 - x$'
}

good "ok: a command that succeeds" 'ok x true'
bad "ok: a command that fails" 'ok x false'
like "ok: the command's words are shown" "$(script 'ok x ls /no/such')" \
	'^#.*No such file'
good "fails: the status that was asked for" 'fails x 3 sh -c "exit 3"'
bad "fails: another status" 'fails x 3 sh -c "exit 2"'
bad "fails: success" 'fails x 1 true'
good "is: equal" 'is x "a b" "a b"'
bad "is: different" 'is x a b'
good "isnt: different" 'isnt x a b'
bad "isnt: equal" 'isnt x a a'
good "like: it matches" 'like x "abc 12" "^abc [0-9]+$"'
bad "like: it does not" 'like x abc "^b"'
good "unlike: it does not match" 'unlike x abc "^b"'
bad "unlike: it matches" 'unlike x abc b'
good "within: in bounds" 'within x 5 5 6'
bad "within: below" 'within x 4 5 6'
bad "within: above" 'within x 7 5 6'
bad "within: no number" 'within x "" 0 6'
good "wait_for: comes in time" 'n=0
	later() { n=$((n + 1)); [ $n -ge 3 ]; }
	ok x wait_for 5 later'
bad "wait_for: never comes" 'ok x wait_for 1 false'
like "a failed check fails the script" "$(script 'is x a b')" '^status 1$'
like "the plan counts the checks" "$(script 'is x a a
	is y b b')" '^1\.\.2$'
like "a script that stops half-way bails out" "$(script 'is x a a
	exit 0')" '^Bail out!'

sleep 600 &
p=$!
below=$(proc_below $$)
like "proc_below finds a child" "$below" "^$p\$"
UP_PID=$$
proc_remember
UP_PID=
is "proc_named finds it by name" "$(proc_named sleep)" "$p"
sed -i "/^$$ /d" "$T/pids"
proc_end_all
ok "proc_end_all ends what was remembered" wait_for 5 proc_gone "$p"

sleep 600 &
p=$!
echo "$p 1" >"$T/pids"
proc_end_all
fails "but not a process that got the id later" 1 proc_gone "$p"
kill "$p"
rm "$T/pids"

done_testing
