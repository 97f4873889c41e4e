#!/bin/sh
# Calls that are not to be made: unbounded copies, shells, shared state.
. "$(dirname "$0")/lib.sh"

lint_sources | lint_awk '
BEGIN {
	why["strcpy"] = why["strcat"] = why["stpcpy"] = "use base_strcpy or buf"
	why["strncpy"] = why["strncat"] = "use base_strcpy or buf"
	why["sprintf"] = why["vsprintf"] = "use snprintf or buf_printf"
	why["gets"] = "unbounded"
	why["atoi"] = why["atol"] = why["atoll"] = "no errors: use strtoll"
	why["alloca"] = "unbounded stack"
	why["system"] = why["popen"] = "no shell: fork and exec with arguments"
	why["strtok"] = "hidden state"
	why["tmpnam"] = why["mktemp"] = why["tempnam"] = "races"
	why["vfork"] = "shared stack"
	why["rand"] = why["srand"] = why["random"] = "use base_random"
}
index(line, "(") {
	# each word that stands before a parenthesis
	rest = line
	while (match(rest, /[A-Za-z0-9_]+[ \t]*\(/)) {
		before = substr(rest, 1, RSTART - 1)
		name = substr(rest, RSTART, RLENGTH - 1)
		rest = substr(rest, RSTART + RLENGTH)
		sub(/[ \t]+$/, "", name)
		if (before ~ /(\.|->)$/ || !(name in why))
			continue
		say(name "(): " why[name])
	}
}' | lint_check "no banned call"

# These read files of the system behind our back (time zones, users, names);
# processes that may open no path would die of it.
lint_sources | grep '^core/\|^store/\|^snapshotter/\|^tools/vm/' |
	lint_awk '
line ~ /(^|[^a-zA-Z0-9_])(localtime|localtime_r|gmtime|gmtime_r|mktime|getpwnam|getpwuid|getgrnam|getaddrinfo|setlocale)[ \t]*\(/ {
	say("opens files of the system")
}' | lint_check "no call that opens files behind our back"

lint_done
