#!/bin/sh
# Layout: .clang-format decides.
. "$(dirname "$0")/lib.sh"

if command -v clang-format >/dev/null; then
	lint_sources | xargs -r -n 20 clang-format --dry-run 2>&1 |
		grep 'warning:\|error:' | sed 's/: *warning: .*/: layout/' |
		sort -u | lint_check "files are laid out by clang-format"
else
	lint_skip "files are laid out by clang-format" \
		"clang-format not installed"
fi

lint_tree | grep -v '^LICENSE$' | xargs grep -nI '[[:blank:]]$' |
	cut -d: -f1-2 | sed 's/$/: blanks at the end/' |
	lint_check "no line ends in blanks"

lint_done
