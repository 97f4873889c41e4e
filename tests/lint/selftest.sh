#!/bin/sh
# Does each check of this folder fail when it should? Every case is a small
# tree with one fault, put over a good tree in which nothing is wrong.
set -u
LC_ALL=C
export LC_ALL
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d "${TMPDIR:-/tmp}/cryo-selftest.XXXXXX") || exit 1
trap 'rm -rf "$tree" "$tree.in" "$tree.out"' EXIT
trap 'exit 130' INT TERM
nr=0
bad=0

result() {
	nr=$((nr + 1))
	echo "$1 $nr - $2"
	if [ "$1" != ok ]; then
		bad=1
		sed 's/^/# /' "$tree.out"
		rm -f "$tree.out"
	fi
}

good_tree() {
	rm -rf "$tree"
	mkdir -p "$tree/core/backend" "$tree/store" "$tree/api" \
		"$tree/tools/vm" "$tree/tools/cryo" "$tree/tests"
	cp "$here/../../.clang-format" "$tree/"
	cat >"$tree/core/thing.h" <<'END'
/* thing: a good header */
#ifndef CORE_THING_H
#define CORE_THING_H

typedef int (*thing_fn)(void *ctx);
int thing_do(void);

#endif
END
	cat >"$tree/core/thing.c" <<'END'
/* thing: a good source; strcpy( and sprintf( in a comment are no calls */
#include "core/thing.h"

#include <stdio.h>

int thing_do(void)
{
	return puts("strcpy(a, b) in a string");
}
END
	cat >"$tree/store/use.c" <<'END'
/* use: store may include core */
#include "core/thing.h"
END
	: >"$tree/allow"
}

# catches CHECK FILE "what must be said": FILE comes on standard input
catches() {
	good_tree
	mkdir -p "$(dirname "$tree/$2")"
	cat >"$tree/$2"
	verdict "$1" "$2" "$3"
}

verdict() {
	LINT_ROOT=$tree LINT_ALLOW=$tree/allow sh "$here/$1.sh" \
		>"$tree.out" 2>&1
	rc=$?
	if [ $rc != 0 ] && grep -q '^not ok' "$tree.out" &&
		grep '^# ' "$tree.out" | grep -qF "$3"; then
		result ok "$1 finds: $3"
	else
		result "not ok" "$1 must find in $2: $3"
	fi
	rm -f "$tree.out"
}

for check in includes headers sizes banned format words; do
	good_tree
	if LINT_ROOT=$tree LINT_ALLOW=$tree/allow sh "$here/$check.sh" \
		>"$tree.out" 2>&1; then
		result ok "$check finds nothing in a good tree"
	else
		result "not ok" "$check finds nothing in a good tree"
	fi
	rm -f "$tree.out"
done

comment='/* a file */'

catches includes core/up.c "core may not include store/evlog.h" <<END
$comment
#include "store/evlog.h"
END
catches includes core/up.c "core may not include core/backend/qmp.h" <<END
$comment
#include "core/backend/qmp.h"
END
catches includes api/up.c "api may not include store/view.h" <<END
$comment
#  include "store/view.h"
END
catches includes tools/cryo/up.c "another: tools/vm/link.h" <<END
$comment
#include "tools/vm/link.h"
END
catches includes store/log.c "jansson.h belongs to core/json alone" <<END
$comment
#include <jansson.h>
END
catches includes store/log.c "openssl belongs to store/crypt alone" <<END
$comment
#include <openssl/evp.h>
END
catches includes store/log.c "no such file from the root: thing.h" <<END
$comment
#include "thing.h"
END

catches headers core/x.h "core/x.h: no guard CORE_X_H" <<END
$comment
#ifndef X_H
#define X_H
#endif
END
catches headers core/backend/x.h "no guard CORE_BACKEND_X_H" <<END
$comment
#ifndef CORE_BACKEND_X_H
#define CORE_BACKEND_Y_H
#endif
END
catches headers core/thing.c "first includes stdio.h, not core/thing.h" <<END
$comment
#include <stdio.h>
#include "core/thing.h"
END
catches headers core/x.c "core/x.c:1: no opening comment" <<END
#include <stdio.h>
END
catches headers core/x.c "typedef of a struct" <<END
$comment
typedef struct x x_t;
END
catches headers core/x.c "() for no arguments" <<END
$comment
static int x()
{
	return 0;
}
END

{
	echo "$comment"
	yes '' | head -n 1000
} >"$tree.in"
catches sizes core/long.c "core/long.c: 1001 lines" <"$tree.in"

# a function of $1 lines, braces included
function_of() {
	printf '%s\nstatic int long_one(int a,\n\t\t    int b)\n{\n' "$comment"
	yes '	a++;' | head -n $(($1 - 2))
	echo '}'
}
function_of 71 >"$tree.in"
catches sizes core/x.c "long_one() has 71 lines" <"$tree.in"
good_tree
function_of 70 >"$tree/core/x.c"
LINT_ROOT=$tree LINT_ALLOW=$tree/allow sh "$here/sizes.sh" >"$tree.out" 2>&1 &&
	result ok "sizes lets a function of 70 lines pass" ||
	result "not ok" "sizes lets a function of 70 lines pass"
good_tree
function_of 80 >"$tree/core/x.c"
echo 'core/x.c long_one 80' >"$tree/allow"
LINT_ROOT=$tree LINT_ALLOW=$tree/allow sh "$here/sizes.sh" >"$tree.out" 2>&1 &&
	result ok "sizes lets pass what sizes.allow names" ||
	result "not ok" "sizes lets pass what sizes.allow names"
echo 'core/x.c long_one 79' >"$tree/allow"
verdict sizes core/x.c "long_one() has 80 lines, allowed are 79"
echo 'core/x.c long_one 81' >"$tree/allow"
verdict sizes core/x.c "lower its entry"
echo 'core/x.c gone 80' >"$tree/allow"
verdict sizes core/x.c "core/x.c gone: no such function"
{
	echo "$comment"
	printf '%0101d\n' 0
} >"$tree.in"
catches sizes core/x.c "core/x.c:2: 101 columns" <"$tree.in"

for call in strcpy strcat strncpy sprintf vsprintf atoi alloca system gets \
	strtok popen mktemp rand; do
	catches banned core/x.c "core/x.c:4: $call()" <<END
$comment
void x(char *a)
{
	a = b + $call (a);
}
END
done
catches banned tools/vm/x.c "opens files of the system" <<END
$comment
struct tm *x = gmtime_r(&t, &tm);
END
catches banned core/x.c "core/x.c:5: strcpy()" <<END
/* a comment
   over lines: strcat(a, b)
 */
/* one */ int a; /* two
*/ int b = strcpy(a, "\"");
END

if command -v clang-format >/dev/null; then
	catches format core/x.c "core/x.c:2" <<END
$comment
int   x(void) { return 0; }
END
fi
printf '%s\nint x; \n' "$comment" >"$tree.in"
catches format core/x.c "core/x.c:2: blanks at the end" <"$tree.in"

catches words docs/a.md "docs/a.md:1" <<END
see /work/thing for it
END
catches words Makefile "Makefile:1" <<END
DIR := "/Users/me"
END
catches words tools/a.sh "tools/a.sh:1" <<END
cd /home/somebody/src
END
catches words core/x.c "core/x.c:1" <<END
/* TODO: later */
END
catches words docs/a.md "docs/a.md:2" <<END
a
<<<<<<< HEAD
END
catches words docs/a.pem "docs/a.pem:1" <<END
-----BEGIN RSA PRIVATE KEY-----
END

rm -f "$tree.out" "$tree.in"
echo "1..$nr"
exit $bad
