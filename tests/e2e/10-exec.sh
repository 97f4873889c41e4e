#!/bin/sh
# Commands in a sandbox: what goes in (arguments, environment, input, user,
# folder, signals) and what comes out (two streams, a status), byte for byte.
. tests/e2e/lib.sh
up
id=$(cryo create --name box) || bail "no session"

# --- words in, words out ------------------------------------------------------

like "create prints the id" "$id" '^[a-z][a-z0-9]{19}$'
is "the session runs" "$(state "$id")" running
is "its name works like its id" "$(field box id)" "$id"
like "ls shows it" "$(cryo ls)" "$id +box +running"
is "it is a Linux of its own" "$(guest "$id" uname -s)" Linux
isnt "with a kernel of its own" "$(guest "$id" uname -r)" "$(uname -r)"
# else each idle guest costs a tick every 4 ms, and a busy host starves it
like "whose timer rests when it does" \
	"$(guest "$id" grep -m 1 hres_active /proc/timer_list)" ': 1$'
is "a word" "$(guest "$id" echo hello)" hello
is "arguments arrive as they are" \
	"$(guest "$id" printf '[%s]' 'a  b' '' "it's" 'ü€' '$x `y` *' '-- "q"')" \
	"[a  b][][it's][ü€][\$x \`y\` *][-- \"q\"]"
is "a line break in an argument" "$(guest "$id" printf %s 'a
b')" 'a
b'

# --- status -------------------------------------------------------------------

fails "exit 0" 0 guest "$id" true
fails "exit 1" 1 guest "$id" false
fails "exit 7" 7 guest "$id" sh -c 'exit 7'
fails "exit 255" 255 guest "$id" sh -c 'exit 255'
fails "killed by signal 9: 128 + 9" 137 guest "$id" sh -c 'kill -9 $$'
fails "no such command: 127" 127 guest "$id" no-such-command
like "and it says so" "$out" 'No such file'
fails "not executable: 126" 126 guest "$id" /etc/passwd
like "and it says so" "$out" 'Permission denied'
fails "no command" 2 cryo exec "$id" --

# --- two streams --------------------------------------------------------------

guest "$id" sh -c 'echo out; echo err >&2; printf out2; exit 3' \
	>"$T/out" 2>"$T/err"
is "the status beside output" $? 3
is "standard output, also without a line break" "$(cat "$T/out")" 'out
out2'
is "standard error apart from it" "$(cat "$T/err")" err

# Binary, larger than any buffer on the way, on both streams at once.
guest "$id" sh -c 'head -c 6000000 /dev/urandom >/tmp/a
	head -c 3000000 /dev/urandom >/tmp/b
	cat /tmp/a & cat /tmp/b >&2; wait' >"$T/out" 2>"$T/err"
sums=$(guest "$id" sh -c 'md5sum </tmp/a; md5sum </tmp/b; rm /tmp/a /tmp/b')
is "6 MB of binary output and 3 MB of errors" \
	"$(md5sum <"$T/out"; md5sum <"$T/err")" "$sums"
is "and not a byte more" "$(wc -c <"$T/out") $(wc -c <"$T/err")" \
	"6000000 3000000"

# --- input --------------------------------------------------------------------

is "a pipe is its input" "$(printf 'one\ntwo\n' | guest "$id" wc -l)" 2
is "a file is its input" "$(guest "$id" wc -c <tests/e2e/lib.sh)" \
	"$(wc -c <tests/e2e/lib.sh)"
head -c 3000000 /dev/urandom >"$T/in"
is "3 MB of binary input" "$(guest "$id" md5sum <"$T/in")" \
	"$(md5sum <"$T/in")"
is "and back again" "$(guest "$id" cat <"$T/in" | md5sum)" \
	"$(md5sum <"$T/in")"
is "to one that is slow to read it" \
	"$(guest "$id" sh -c 'sleep 2; md5sum' <"$T/in")" "$(md5sum <"$T/in")"
ok "a command that reads none of it" \
	sh -c '"$0" exec "$1" -- true <"$2"' "$B/cryo" "$id" "$T/in"
is "no input: it sees the end" "$(guest "$id" cat)" ""

# Input that is there before the command has started must wait for it.
early() { # NUMBER
	echo "$1" | timeout 60 "$B/cryo" exec "$id" -- cat
}
bgs=
for i in 1 2 3 4 5 6 7 8 9; do
	early $i >"$T/early.$i" &
	bgs="$bgs $!"
done
# shellcheck disable=SC2086
wait $bgs
is "input that comes early, nine at once" \
	"$(cat "$T"/early.[1-9] | tr -d '\n')" 123456789

# --- environment, folder, user --------------------------------------------------

secret=s3cret-$$-$(now_ms)
KEY_HERE="from here" NOT_GIVEN=1
export KEY_HERE NOT_GIVEN
is "--env K=V and --env K" "$(cryo exec "$id" --env "A=$secret" \
	--env KEY_HERE --env 'C=a=b' -- \
	sh -c 'echo "$A,$KEY_HERE,$C"')" "$secret,from here,a=b"
fails "--env of a variable that is not set" 1 \
	cryo exec "$id" --env NOT_SET_HERE -- true
like "and it says which" "$out" NOT_SET_HERE
cryo events "$id" --json >"$T/events"
unlike "a value is in no event" "$(cat "$T/events")" "$secret"
like "its name is" "$(cat "$T/events")" '"A"'
is "no other variable goes in" \
	"$(guest "$id" env | sort | cut -d = -f 1 | xargs)" \
	"HOME LOGNAME PATH USER"
is "--cwd" "$(cryo exec "$id" --cwd /usr/bin -- pwd)" /usr/bin
fails "--cwd that is not there" 127 cryo exec "$id" --cwd /no/such -- pwd
like "and it says so" "$out" 'working directory'
is "root by default" "$(guest "$id" id -un)" root
is "--user by name" \
	"$(cryo exec "$id" --user user -- sh -c 'id -u; id -g; echo $HOME')" \
	'1000
1000
/home/user'
is "--user by number" "$(cryo exec "$id" --user 7:8 -- id -u)" 7
fails "a user may not read root's files" 1 \
	cryo exec "$id" --user user -- cat /etc/shadow
fails "a user that is not there" 127 cryo exec "$id" --user nobody2 -- id
like "and it says which" "$out" nobody2

# --- signals --------------------------------------------------------------------

started() { # COMMAND: in the background, until it has said "ready"
	"$B/cryo" exec "$id" -- sh -c "$1" >"$T/out" 2>"$T/err" &
	bg=$!
	wait_for 30 grep -q ready "$T/out" || bail "no word from the command"
}

ended() { # sets $status
	wait_for 30 proc_gone $bg || kill -9 $bg
	status=0
	wait $bg || status=$?
}

has_said_no() { # TIMES
	[ "$(grep -c no "$T/out")" = "$1" ]
}

loop='echo ready; while :; do sleep 0.1; done'
started 'trap "echo got it; exit 9" INT; '"$loop"
kill -INT $bg
ended
is "Ctrl-C goes to the command" "$status" 9
is "which may answer" "$(tail -n 1 "$T/out")" "got it"
started "$loop"
kill -TERM $bg
ended
is "one that does not catch TERM ends by it" "$status" 143
started 'trap "echo no" INT; '"$loop"
for i in 1 2; do
	kill -INT $bg
	wait_for 30 has_said_no $i
done
kill -INT $bg
ended
is "the third Ctrl-C kills" "$status" 137
ok "it had caught two" has_said_no 2
is "nothing of them is left in the guest" \
	"$(guest "$id" ps -o args | grep -c 'echo [r]eady')" 0

# --- detached, and read again ---------------------------------------------------

x=$(cryo exec "$id" --detach -- sh -c 'n=0; while [ $n -lt 2000 ]; do
	n=$((n + 1)); echo "line $n"; done; echo late >&2; : >/tmp/said
	until [ -e /tmp/go ]; do sleep 0.1; done; echo end; exit 5')
like "--detach prints the command's id" "$x" '^[a-z][a-z0-9]{19}$'
seq -f 'line %.0f' 2000 >"$T/want"

has_said() {
	[ "$(cryo logs "$x" 2>&1 | wc -l)" = 2001 ]
}
ok "logs: what it has said so far" wait_for 30 has_said
cryo logs "$x" >"$T/out" 2>"$T/err"
ok "all of standard output" cmp "$T/want" "$T/out"
is "and standard error" "$(cat "$T/err")" late
like "show lists it" "$(cryo show "$id")" "$x +running"

# From an offset, as a client does that was cut off: the id of an event is the
# position behind it.
from=$(head -n 1000 "$T/want" | wc -c)
api GET "/v1/execs/$x/output?follow=0" '' -H "Last-Event-ID: 1:$from:0"
printf '%s\n' "$out" | sed -n 's/^data: \({.*"stdout".*\)$/\1/p' |
	jq -r .data | base64 -d >"$T/rest"
tail -n 1000 "$T/want" >"$T/half"
ok "re-attached from the middle: the other half" cmp "$T/half" "$T/rest"
"$B/cryo" logs "$x" --follow >"$T/follow" 2>/dev/null &
bg=$!
guest "$id" touch /tmp/go
ended
is "logs --follow ends with the command" "$status" 0
{ cat "$T/want" && echo end; } >"$T/all"
ok "and has it all" cmp "$T/all" "$T/follow"
api GET "/v1/execs/$x/output"
like "its end is an event of the stream" "$out" '"code":5'
api GET "/v1/execs/$x/wait"
is "and stands in its row" \
	"$(answer '"\(.state) \(.code) \(.stdout_bytes) \(.stderr_bytes)"')" \
	"exited 5 $(wc -c <"$T/all") 5"
fails "logs of what is not there" 1 cryo logs aaaaaaaaaaaaaaaaaaaa
like "and it says which" "$out" aaaaaaaaaaaaaaaaaaaa

# --- many at once ----------------------------------------------------------------

bgs=
for i in 1 2 3 4 5 6 7 8; do
	guest "$id" sh -c 'sleep 0.2; echo "this is $1"; exit $1' - $i \
		>"$T/many.$i" 2>&1 &
	bgs="$bgs $!"
done
got=
for bg in $bgs; do
	ended
	got="$got$status "
done
is "eight at once: each its own status" "$got" "1 2 3 4 5 6 7 8 "
is "and its own words" "$(cat "$T"/many.[1-8])" "$(seq -f 'this is %.0f' 8)"

done_testing
