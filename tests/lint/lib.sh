# lib.sh: what the lint scripts share. Each script is a TAP test that checks
# the tree at $LINT_ROOT (default: here); selftest.sh runs them on bad trees.
# A check prints one line per violation, "file:line: what"; none is a pass.
set -u
LC_ALL=C
export LC_ALL
LINT_DIR=$(cd "$(dirname "$0")" && pwd)
cd "${LINT_ROOT:-.}" || exit 1
# one line per result: checks stand at the end of pipes, in shells of their own
lint_results=$(mktemp "${TMPDIR:-/tmp}/cryo-lint.XXXXXX") || exit 1
trap 'rm -f "$lint_results"' EXIT
trap 'exit 130' INT TERM

# Our C files; the extra words choose: `lint_sources '*.h'`.
lint_sources() {
	for d in core store snapshotter api tools tests bench; do
		[ ! -d $d ] || find $d -name "${1:-*.[ch]}" -type f
	done | sort
}

# All text that is committed, or would be.
lint_tree() {
	find . \( -name .git -o -name 'build*' -o -path ./bench/results \) \
		-prune -o -type f -print | sed 's,^\./,,' | sort
}

# Runs the awk program $1 over the C files named on standard input. Per line
# it finds in `line` the line without comments and what stands in quotes.
lint_awk() {
	prog=$1
	shift
	xargs -r awk "$@" "$(cat "$LINT_DIR/c.awk")
$prog"
}

# lint_check NAME: violations come on standard input
lint_check() {
	found=$(cat)
	if [ -z "$found" ]; then
		echo good >>"$lint_results"
		echo "ok $(lint_count) - $1"
	else
		echo bad >>"$lint_results"
		echo "not ok $(lint_count) - $1"
		printf '%s\n' "$found" | sed 's/^/# /'
	fi
}

lint_skip() {
	echo good >>"$lint_results"
	echo "ok $(lint_count) - $1 # SKIP $2"
}

lint_count() {
	awk 'END { print NR }' "$lint_results"
}

lint_done() {
	echo "1..$(lint_count)"
	! grep -q bad "$lint_results"
	exit
}
