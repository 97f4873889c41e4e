#!/bin/sh
# Memory and disk of a point are one moment, after rewind, undo, fork and
# resume: a program that writes files and checks them all, again and again,
# with its own notes in memory, never finds anything wrong.
. tests/e2e/lib.sh
up

# The checker: in memory, the number of rounds and the checksum of each of
# eight files; on disk, the files and the number of rounds. Each round reads
# everything back from the disk itself, compares, then writes the next file.
# A line per round: "ROUND ok", or "ROUND TORN why".
cat >"$T/checker" <<'END'
mkdir -p /root/w && cd /root/w || exit 1
n=0
while :; do
	sync; echo 3 >/proc/sys/vm/drop_caches
	why=
	[ $n = 0 ] || [ "$(cat last)" = $n ] || why="last is $(cat last)"
	for i in 0 1 2 3 4 5 6 7; do
		eval "want=\${sum$i:-}"
		[ -z "$want" ] || [ "$(md5sum <f$i)" = "$want" ] || why="$why f$i"
	done
	echo "$n ${why:+TORN }${why:-ok}"
	n=$((n + 1)) i=$((n % 8))
	head -c $((20000 + n % 7 * 5000)) /dev/urandom >f$i
	eval "sum$i=\$(md5sum <f$i)"
	echo $n >last
done
END
id=$(cryo create --name w --snapshot-every 2s)
cryo cp "$T/checker" w:/root/checker
x=$(cryo exec --detach w -- sh /root/checker)

rounds() { # EXEC
	cryo logs "$1" | tail -n 1 | cut -d ' ' -f 1
}

rounds_past() { # EXEC NUMBER
	[ "$(rounds "$1")" -gt "$2" ]
}

# It still runs, has done two more rounds, and never said TORN
sound() { # EXEC
	sound_from=$(rounds "$1")
	wait_for 60 rounds_past "$1" $((${sound_from:-0} + 2)) || return 1
	! cryo logs "$1" | grep TORN
}

ok "the checker runs" sound "$x"
ok "points are taken behind it" wait_for 60 at_least_points w 4
ok "and it sees none of them" sound "$x"

# --- fork, anywhere -----------------------------------------------------------------
for p in $(points w | jq -r .id | tail -n 4); do
	f=$(cryo fork w --at "$p" 2>/dev/null)
	ok "a fork at $p is sound" sound "$(exec_like "$f" checker)"
	cryo rm "$f"
done

# --- suspend and resume --------------------------------------------------------------------
cryo suspend w >/dev/null
ok "resume" cryo resume w
ok "sound" sound "$x"

# --- rewind and undo ---------------------------------------------------------------------------
guest w sh -c 'echo before >/root/mark'
cryo snapshot w --name mark >/dev/null
at_mark=$(rounds "$x")
guest w sh -c 'echo after >/root/mark; echo new >/root/new'
sound "$x" >/dev/null
present=$(rounds "$x")
epoch=$(field w epoch)
ok "rewind" cryo rewind w --at mark
is "the file is as it was" "$(guest w cat /root/mark)" before
fails "and a later one is not there" 1 guest w test -e /root/new
is "a new incarnation" "$(field w epoch)" $((epoch + 1))
is "the present that was left is a point" \
	"$(points w | jq -r .name | grep -c '^before-rewind-1$')" 1
ok "the program is as it was, and sound" sound "$x"
within "with its rounds" "$(cryo logs "$x" | sed -n "/^$at_mark /,\$p" |
	head -n 2 | tail -n 1 | cut -d ' ' -f 1)" "$at_mark" $((at_mark + 2))
ok "undo" cryo rewind w --undo
is "the present is back" "$(guest w cat /root/mark /root/new | tr '\n' ' ')" \
	"after new "
ok "sound" sound "$x"
within "it goes on from the present" "$(rounds "$x")" "$present" \
	$((present + 60))
like "the line that was left is in the list" "$(cryo snapshots w)" ' left '
ok "undo again goes where undo came from" cryo rewind w --undo
is "which is after the mark" "$(guest w cat /root/mark)" before
ok "sound" sound "$x"
ok "rewind onto a line that was left" cryo rewind w --at before-rewind-1
is "is the present of then" "$(guest w cat /root/mark)" after
ok "sound" sound "$x"
fails "rewind needs a moment" 1 cryo rewind w
like "it says how to give one" "$out" 'at|undo'
fails "or one of both" 1 cryo rewind w --at mark --undo

# --- a suspended session starts at an earlier moment ----------------------------------------------
cryo suspend w >/dev/null
ok "resume --at" cryo resume w --at mark
is "is a rewind" "$(guest w cat /root/mark)" before
ok "sound" sound "$x"
ok "undo of that" cryo rewind w --undo
is "the present is back" "$(guest w cat /root/mark)" after
ok "sound" sound "$x"

# --- many captures in a row ------------------------------------------------------------------------
for i in 1 2 3 4 5 6 7 8 9 10; do
	cryo snapshot w --name "row-$i" >/dev/null
done
ok "sound after ten captures in a row" sound "$x"
for i in 3 7 10; do
	f=$(cryo fork w --at "row-$i" 2>/dev/null)
	ok "row-$i is sound" sound "$(exec_like "$f" checker)"
	cryo rm "$f"
done
ok "every point's bytes are what its event says" cryo verify
done_testing
