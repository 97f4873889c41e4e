#!/bin/sh
# What must not stand in the tree: folders of somebody's machine, marks of
# unfinished work, remains of a merge.
. "$(dirname "$0")/lib.sh"
# this file and its self-test name what they look for
others() {
	lint_tree | grep -v '^tests/lint/\(words\|selftest\)\.sh$'
}

others | xargs grep -nIE \
	'(^|[^A-Za-z0-9_.*$}/-])/(work|Users|workspace|builds|buildroot)/[A-Za-z0-9_]' |
	lint_check "no folder of a build machine"

others | xargs grep -nIE '(^|[^A-Za-z0-9_.*$}/-])/home/[A-Za-z0-9_]' |
	grep -v '/home/user\>' |
	lint_check "no home but that of a guest's user"

others | xargs grep -nIwE 'TODO|FIXME|XXX|HACK|NOCOMMIT' |
	lint_check "no mark of unfinished work"

others | xargs grep -nIE '^(<<<<<<<|>>>>>>>|=======$)' |
	lint_check "no remains of a merge"

# Keys in text form; tests make theirs at run time.
others | xargs grep -nIE -e '-----BEGIN [A-Z ]*PRIVATE KEY-----' |
	lint_check "no private key"

lint_done
