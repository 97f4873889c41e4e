#!/bin/sh
# Who may include whom, and the one module of each foreign library; the rules
# stand in ARCHITECTURE.md.
. "$(dirname "$0")/lib.sh"

lint_sources | lint_awk '
function folder(path) {
	if (path ~ /^core\/backend\//)
		return "core/backend"
	sub(/\/.*/, "", path)
	return path
}
BEGIN {
	may["core"] = " core "
	may["core/backend"] = " core core/backend "
	may["store"] = " core store "
	may["snapshotter"] = " core store snapshotter "
	may["api"] = " core api "
	may["tools"] = " core core/backend store snapshotter api tools "
	may["tests"] = may["bench"] = may["tools"] "tests bench "
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
	path = $0
	sub(/^[^"]*"/, "", path)
	sub(/".*/, "", path)
	if (index(may[folder(FILENAME)], " " folder(path) " ") == 0)
		say(folder(FILENAME) " may not include " path)
}' | lint_check "folders include only what is below them"

lint_sources | lint_awk '
/^[ \t]*#[ \t]*include[ \t]*"/ {
	path = $0
	sub(/^[^"]*"/, "", path)
	sub(/".*/, "", path)
	if (path ~ /^tools\// && FILENAME ~ /^tools\//) {
		split(path, a, "/")
		split(FILENAME, b, "/")
		if (a[2] != b[2])
			say("one tool may not include another: " path)
	}
}' | lint_check "tools do not include each other"

# A header of a library may be named only in the module that stands for it:
# that module'"'"'s .c and .h. Tests and benchmarks are free: they check ours
# against theirs.
lint_sources | grep -v '^tests/\|^bench/' | lint_awk '
BEGIN {
	home["jansson.h"] = "core/json"
	home["lmdb.h"] = "store/lmdb_env"
	home["zstd.h"] = home["zstd_errors.h"] = "store/zst"
	home["xxhash.h"] = "store/xxh"
	home["openssl"] = "store/crypt"
	home["liburing.h"] = "snapshotter/ring"
	home["microhttpd.h"] = "api/http"
	home["curl"] = "tools/cryo/client"
	home["seccomp.h"] = "core/backend/seccomp"
}
/^[ \t]*#[ \t]*include[ \t]*</ {
	lib = $0
	sub(/^[^<]*</, "", lib)
	sub(/[\/>].*/, "", lib)
	module = FILENAME
	sub(/\.[ch]$/, "", module)
	if (lib in home && module != home[lib])
		say(lib " belongs to " home[lib] " alone")
}' | lint_check "each foreign library enters through one module"

lint_sources | while read -r f; do
	sed -n 's/^[ \t]*#[ \t]*include[ \t]*"\([^"]*\)".*/\1/p' "$f" |
		while read -r h; do
			[ -e "$h" ] || echo "$f: no such file from the root: $h"
		done
done | lint_check "includes are written from the root"

lint_done
