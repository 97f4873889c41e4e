#!/bin/sh
# The shape of files: guards of headers, own header first, opening comments.
. "$(dirname "$0")/lib.sh"

lint_sources '*.h' | lint_awk '
FNR == 1 {
	if (want)
		printf "%s: no guard %s\n", last, want
	want = toupper(FILENAME)
	gsub(/[\/.-]/, "_", want)
	last = FILENAME
}
/^#ifndef / && want && $2 == want { seen = FNR }
/^#define / && want && $2 == want && seen == FNR - 1 { want = "" }
END {
	if (want)
		printf "%s: no guard %s\n", last, want
}' | lint_check "headers are guarded by their path"

lint_sources '*.c' | while read -r f; do
	own=${f%.c}.h
	[ -e "$own" ] || continue
	first=$(sed -n 's/^#include *["<]\([^">]*\)[">].*/\1/p' "$f" |
		head -n 1)
	case $first in
	"$own" | "${f%.c}_internal.h" | "${f%.c}_impl.h") continue ;;
	esac
	echo "$f: first includes $first, not $own"
done | lint_check "a source includes its own header first"

lint_sources | while read -r f; do
	head -n 1 "$f" | grep -q '^/\*' || echo "$f:1: no opening comment"
done | lint_check "files say first what they are for"

lint_sources | lint_awk '
line ~ /^[ \t]*typedef[ \t]/ && line !~ /\(\*/ && line !~ /[a-z_]+\(/ {
	if (line ~ /(struct|enum|union)/)
		say("typedef of a struct, enum or union")
}' | lint_check "no typedef but of callbacks"

lint_sources | lint_awk '
line ~ /^[a-z][a-z_0-9 *]*\(\)[ \t]*;?$/ { say("() for no arguments, not (void)") }
' | lint_check "a function without arguments says (void)"

lint_done
