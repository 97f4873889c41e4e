#!/bin/sh
# The size of files and functions. A function may be longer than the limit
# only if sizes.allow names it with its length: "path function lines". The
# list is a ratchet: an entry that is no longer needed, or allows more than
# the function has, fails too.
. "$(dirname "$0")/lib.sh"
FILE_MAX=1000
FUNCTION_MAX=70
allow=${LINT_ALLOW:-$LINT_DIR/sizes.allow}

lint_sources | lint_awk '
FNR == 1 && last && nr > max { printf "%s: %d lines\n", last, nr }
{ last = FILENAME; nr = FNR }
END { if (nr > max) printf "%s: %d lines\n", last, nr }
' -v max=$FILE_MAX | lint_check "no file is longer than $FILE_MAX lines"

# Functions in kernel layout: a { alone in the first column, until its }.
lint_sources '*.c' | lint_awk '
FNR == 1 { head = ""; start = 0 }
/^[a-zA-Z_].*\(/ && !start && line !~ /;[ \t]*$/ && line !~ /^#/ {
	head = line
	sub(/\(.*/, "", head)
	sub(/^.*[ \t*]/, "", head)
}
/^\{/ { start = FNR }
/^\}/ {
	if (start && FNR - start + 1 > 0)
		print FILENAME, head, FNR - start + 1
	start = 0
}' | awk -v max=$FUNCTION_MAX -v allow="$allow" '
BEGIN {
	while ((getline entry < allow) > 0) {
		if (entry ~ /^#/ || entry == "")
			continue
		split(entry, part, " ")
		limit[part[1] " " part[2]] = part[3]
	}
}
{
	key = $1 " " $2
	if (!(key in limit)) {
		if ($3 > max)
			printf "%s: %s() has %d lines\n", $1, $2, $3
		next
	}
	met[key] = 1
	if ($3 > limit[key])
		printf "%s: %s() has %d lines, allowed are %d\n", $1, $2, \
			$3, limit[key]
	else if ($3 < limit[key])
		printf "%s: %s() has only %d lines: lower its entry in " \
			"sizes.allow\n", $1, $2, $3
}
END {
	for (key in limit)
		if (!(key in met))
			printf "%s: no such function: remove its entry from " \
				"sizes.allow\n", key
}' | lint_check "no function is longer than $FUNCTION_MAX lines"

lint_sources | lint_awk '
length($0) > 100 { say(length($0) " columns") }
' | lint_check "no line is longer than 100 characters"

lint_done
