#!/bin/sh
# Files in and out: `cp` both ways, and what `run --out` brings home. A file
# appears whole, under its name, or not at all.
. tests/e2e/lib.sh
up
id=$(cryo create --name f) || bail "no session"

sum() { # FILE
	md5sum <"$1" | cut -d ' ' -f 1
}

guest_sum() { # PATH
	guest f md5sum "$1" | cut -d ' ' -f 1
}

# --- there and back -------------------------------------------------------------

there_and_back() { # NAME: $T/NAME goes in and comes out the same
	ok "$1: in" cryo cp "$T/$1" "f:/root/$1"
	is "$1: is there as it is here" "$(guest_sum "/root/$1")" "$(sum "$T/$1")"
	ok "$1: out" cryo cp "$id:/root/$1" "$T/$1.back"
	ok "$1: is the same" cmp "$T/$1" "$T/$1.back"
}

odd='a name with  spaces, ü & 100% of "+%41?"'
: >"$T/empty"
printf '\000\001\377\n\r\000' >"$T/binary"
head -c 4096 /dev/urandom >"$T/page"
head -c 65537 /dev/urandom >"$T/$odd"
head -c $((20 << 20)) /dev/urandom >"$T/large"
for f in empty binary page "$odd" large; do
	there_and_back "$f"
done
is "a name arrives as it is" \
	"$(guest f sh -c 'cd /root; printf %s *spaces*')" "$odd"
guest f rm /root/large

# --- mode and place -------------------------------------------------------------

printf 'hello\n' >"$T/text"
chmod 750 "$T/text"
ok "an executable" cryo cp "$T/text" f:/root/tool
is "stays one" "$(guest f stat -c %a /root/tool)" 750
guest f chmod 604 /root/tool
ok "out" cryo cp f:/root/tool "$T/tool"
is "with the mode it has there" "$(stat -c %a "$T/tool")" 604
ok "into a folder there, under its own name" cryo cp "$T/text" f:/tmp/
is "it is there" "$(guest f cat /tmp/text)" hello
ok "into a folder that is not there yet" cryo cp "$T/text" f:/srv/a/b/text
is "it is made" "$(guest f cat /srv/a/b/text)" hello
mkdir "$T/dir"
ok "into a folder here, under its own name" cryo cp f:/tmp/text "$T/dir"
is "it is there" "$(cat "$T/dir/text")" hello
ok "over a file that is there" cryo cp "$T/empty" f:/root/tool
is "replaces it" "$(guest f stat -c %s /root/tool)" 0

guest f sh -c 'mkdir -p /root/tree/sub; echo 1 >/root/tree/one
	echo 2 >"/root/tree/sub/t w o"; ln -s /etc/passwd /root/tree/link'
ok "a folder comes out" cryo cp f:/root/tree "$T/tree"
is "with all that is in it" \
	"$(cat "$T/tree/one" "$T/tree/sub/t w o" | tr -d '\n')" 12
fails "and no link that points out of it" 1 test -L "$T/tree/link"

# --- whole or not at all ----------------------------------------------------------

printf 'old\n' >"$T/old"
cryo cp "$T/old" f:/root/whole
"$B/cryo" cp "$T/large" f:/root/whole &
p=$!
torn=0 looks=0
while ! proc_gone $p; do
	size=$(guest f stat -c %s /root/whole)
	looks=$((looks + 1))
	[ "$size" = 4 ] || [ "$size" = $((20 << 20)) ] || torn=$((torn + 1))
done
wait $p
is "never half of it ($looks looks)" $torn 0
is "then all of it" "$(guest_sum /root/whole)" "$(sum "$T/large")"

# --- what can't be ----------------------------------------------------------------

fails "a file that is not there" 1 cryo cp f:/root/none "$T/none"
like "it says which" "$out" /root/none
like "and why" "$out" 'No such file'
fails "nothing was made here" 1 test -e "$T/none"
fails "a file that is not here" 1 cryo cp "$T/none" f:/root/none
like "it says which and why" "$out" "$T/none.*No such file"
fails "nothing was made there" 1 guest f test -e /root/none
fails "below what is no folder" 1 cryo cp "$T/text" f:/etc/passwd/file
like "it says which and why" "$out" '/etc/passwd.*([Nn]ot a dir|exists)'
fails "onto a folder" 1 cryo cp "$T/text" f:/etc
like "it says so" "$out" '/etc.*(directory|folder)'
fails "out to where no folder is" 1 cryo cp f:/root/page "$T/no/such/f"
like "it says where" "$out" no/such
fails "where nobody may write" 1 cryo cp "$T/text" f:/proc/version
like "it says where" "$out" /proc
fails "a device" 1 cryo cp f:/dev/zero "$T/zero"
like "is not a regular file" "$out" 'regular file'
fails "a folder goes in another way" 1 cryo cp "$T/dir" f:/root/dir
like "which is named" "$out" 'tar'
fails "both sides here" 2 cryo cp "$T/text" "$T/dir/other"
like "it says how to write it" "$out" 'ID:/path'
fails "both sides there" 2 cryo cp f:/root/page f:/root/other
fails "a session that is not there" 1 cryo cp "$T/text" nobody:/root/f
like "it says which" "$out" nobody
is "no half of a file is left there" \
	"$(guest f sh -c 'find / -xdev -name "*cryo*" -type f | grep -v ^/init')" \
	""
is "nor here" "$(find "$T" -name '*.cryo-*')" ""

# More than the disk holds: refused, and there is room again for what fits.
guest f sh -c 'free=$(df -k / | awk "END { print \$4 }")
	fallocate -l $(((free - 8192) * 1024)) /root/fill'
fails "more than the disk holds" 1 cryo cp "$T/large" f:/root/large2
like "it says why" "$out" '[Nn]o space'
fails "nothing of it is there" 1 guest f test -e /root/large2
guest f rm /root/fill
ok "the session works on" cryo cp "$T/large" f:/root/large2
is "for a file that is whole" "$(guest_sum /root/large2)" "$(sum "$T/large")"

# --- around points -------------------------------------------------------------------

cryo pause f
fails "paused: not now" 1 cryo cp f:/root/page "$T/page.late"
like "it says why and what to do" "$out" 'paused.*resume'
cryo resume f
ok "resumed: now" cryo cp f:/root/page "$T/page.late"
cryo rm f

# --- run --out ---------------------------------------------------------------------

ok "run --out, a file and a folder" cryo run --out "/root/f=$T/out.file" \
	--out "/root/d=$T/out.dir" -- sh -c 'echo file >/root/f
	mkdir -p /root/d/e; echo one >/root/d/1; echo two >/root/d/e/2'
is "the file" "$(cat "$T/out.file")" file
is "the folder" "$(cat "$T/out.dir/1" "$T/out.dir/e/2")" 'one
two'
fails "run's status is the command's" 6 cryo run --out "/root/f=$T/out.six" \
	-- sh -c 'echo six >/root/f; exit 6'
is "what it made comes home all the same" "$(cat "$T/out.six")" six
fails "run --out of what was not made" 1 \
	cryo run --out "/root/none=$T/out.none" -- true
like "it says which" "$out" /root/none
fails "run --out written wrong" 2 cryo run --out "root=$T/x" -- true
printf 'a b\n' | cryo run -- sh -c 'read x y; echo "$y"; echo oh >&2' \
	>"$T/out" 2>"$T/err"
is "run's input and output" "$(cat "$T/out")" b
like "and errors" "$(cat "$T/err")" '^oh$'
is "no session is left of it" "$(cryo ls --json | wc -l)" 0

done_testing
