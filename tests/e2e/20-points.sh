#!/bin/sh
# Points: by hand and by themselves, named, listed; and every way to name a
# moment, with an answer that says which point was meant.
. tests/e2e/lib.sh
up
id=$(cryo create --name p --snapshot-every 1h)

# The session writes down what time it is; each point is known by what is
# in the file.
mark() { # TEXT
	guest p sh -c "echo $1 >/root/mark; sync"
}

# forked_at T: what the file says at T; in $said what cryo said
forked_at() {
	fork=$(cryo fork p --at "$1" 2>"$T/said") || {
		echo "failed: $(cat "$T/said")"
		return
	}
	guest "$fork" cat /root/mark
	cryo rm "$fork"
}

mark one
p1=$(cryo snapshot p --name first-one)
like "snapshot prints a point's id" "$p1" '^[a-z][a-z0-9]{19}$'
t1=$(now_rfc)
mark two
p2=$(cryo snapshot p)
sleep 1
t2=$(now_rfc)
mark three
p3=$(cryo snapshot p --name third_.3)
mark four

# --- the list -----------------------------------------------------------------------
is "three points are listed, newest first" \
	"$(cryo snapshots p --json | jq -r .id | tr '\n' ' ')" "$p3 $p2 $p1 "
is "all by hand" "$(points p | jq -r .kind | sort -u)" manual
is "with their names" "$(points p | jq -r '.name // ""' | tr '\n' ',')" \
	"first-one,,third_.3,"
is "times rise strictly" "$(points p | jq -r .time)" \
	"$(points p | jq -r .time | sort -u)"
is "each stands on the one before" \
	"$(points p | jq -r .parent | tail -n 2 | tr '\n' ' ')" "$p1 $p2 "
like "as a table" "$(cryo snapshots p)" "$p1 .* manual +first-one +1 +yes"
is "the newest N" "$(cryo snapshots -n 1 p --json | jq -r .id)" "$p3"
like "drawn" "$(cryo timeline p)" "$p2"
is "in the log, one event each" "$(events p snapshot.committed |
	jq -r .id | tr '\n' ' ')" "$p1 $p2 $p3 "
is "with a digest of all its state" "$(events p snapshot.committed |
	jq -r .root | grep -cE '^[0-9a-f]{64}$')" 3
fails "a name is given once" 1 cryo snapshot p --name first-one
like "it says so" "$out" 'first-one'
fails "a name must be one" 1 cryo snapshot p --name '-10m'
like "it says what one is" "$out" 'name'

# --- moments ---------------------------------------------------------------------------
is "at a name" "$(forked_at first-one)" one
like "which point that was" "$(cat "$T/said")" "$p1 .*first-one"
is "at an id" "$(forked_at "$p2")" two
is "at a time: the newest point before it" "$(forked_at "$t1")" one
like "and how far off it is" "$(cat "$T/said")" "$p1 .* before the moment"
is "at a later time" "$(forked_at "$t2")" two
is "at a time with an offset" "$(forked_at "$(date -d "$t2 + 3 hours" -u \
	+%Y-%m-%dT%H:%M:%S.%N)+03:00")" two
ago=$(($(date +%s) - $(date -d "$t2" +%s)))
like "at -Ns: about then" "$(forked_at "-${ago}s")" '^(two|three)$'
like "at -0s: the newest" "$(forked_at "-0s")" three
like "at -500ms: the newest" "$(forked_at "-500ms")" three
seq=$(points p | jq -r "select(.id == \"$p2\") | .seq")
is "at an event: a point's own" "$(forked_at "@$seq")" two
is "at an event after it" "$(forked_at "@$((seq + 1))")" two
is "at no moment: the present" "$(fork=$(cryo fork p) &&
	guest "$fork" cat /root/mark && cryo rm "$fork")" four

# --- no such moments ---------------------------------------------------------------------
first=$(points p | jq -r .time | head -n 1)
fails "before the session was" 1 cryo fork p --at 2001-02-03T04:05:06Z
like "says when its first is" "$out" '2001-02-03.*first is'
fails "in the future" 1 cryo fork p --at 2101-02-03T04:05:06Z
like "says so" "$out" 'future'
fails "no such name" 1 cryo fork p --at nothing-like-it
like "says which, and what lists them" "$out" 'nothing-like-it.*cryo snapshots'
fails "no such id" 1 cryo fork p --at aaaaaaaaaaaaaaaaaaaa
like "says which" "$out" 'aaaaaaaaaaaaaaaaaaaa'
fails "no such event" 1 cryo fork p --at @999999
like "says what the last is" "$out" '999999.*last is [0-9]+'
for bad in '@x' '@' '-' '-5y' 'yesterday!' '2026-13-01T00:00:00Z' \
	'12:30' '' '-99999999999999999999s' '@99999999999999999999999'; do
	fails "no moment: \"$bad\"" 1 cryo fork p --at "$bad"
done
like "says what would be one" "$(cryo fork p --at 'yesterday!' 2>&1)" \
	'-10m.*(name|id)'
is "nothing came of all that" "$(cryo ls --json | wc -l)" 1

# --- points that come by themselves ----------------------------------------------------------
roll=$(cryo create --name roll --snapshot-every 2s)
ok "rolling points come" wait_for 30 at_least_points roll 4
is "they are rolling" "$(points roll | jq -r .kind | sort -u)" rolling
gaps=$(points roll | jq -r '.time | sub("\\..*"; "Z") | fromdate' | awk '
	NR > 1 && ($1 - last < 1 || $1 - last > 6) { bad++ }
	{ last = $1 } END { print bad + 0 }')
is "about every 2 s" "$gaps" 0
ok "paused" cryo pause roll
n=$(nr_points roll)
sleep 5
is "a paused session has nothing new to keep" "$(nr_points roll)" "$n"
cryo resume roll
ok "resumed, points come again" wait_for 30 at_least_points roll $((n + 1))
cryo suspend roll >/dev/null
n=$(nr_points roll)
sleep 3
is "nor a suspended one" "$(nr_points roll)" "$n"
is "an hour is an hour" "$(points p | jq -r .kind | grep -c rolling)" 0
ok "all of them verify" cryo verify
done_testing
