#!/bin/sh
# Does tools/deps.sh ask apt for what is missing and for nothing else, and say
# what to do when it can't? A small Debian of shell scripts stands in for apt.
set -u
LC_ALL=C
export LC_ALL
deps=$(cd "$(dirname "$0")/../.." && pwd)/tools/deps.sh
dir=$(mktemp -d "${TMPDIR:-/tmp}/cryo-depstest.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
mkdir "$dir/bin" "$dir/here"
cd "$dir/here" || exit 1
nr=0
bad=0

ok() { # RC WHAT
	nr=$((nr + 1))
	if [ "$1" = 0 ]; then
		echo "ok $nr - $2"
	else
		bad=1
		echo "not ok $nr - $2"
		cat "$dir/out" "$dir/calls" 2>/dev/null | sed 's/^/# /'
	fi
}

script() {
	cat >"$dir/bin/$1"
	chmod +x "$dir/bin/$1"
}

# $dir/have: installed packages; $dir/offer: those that apt knows;
# $dir/fresh: those it knows after an update; $dir/broken: update fails
script dpkg-query <<END
#!/bin/sh
shift 2
for p; do
	grep -qx "\$p" $dir/have && echo "installed \$p"
done
exit 1
END
script apt-cache <<END
#!/bin/sh
case \$1 in
policy) grep -qx "\$2" $dir/offer && echo "  Candidate: 1.0" ||
	echo "  Candidate: (none)" ;;
depends) echo "  Depends: linux-image-6.1.0-1-cloud-amd64" ;;
show) printf 'Package: %s\nSize: 26705532\n\nSize: 1\n' "\$3" ;;
esac
END
script apt-get <<END
#!/bin/sh
echo "\$*" >>$dir/calls
case " \$* " in
*" --assume-no "*)
	echo "Need to get 1,500 kB/20.0 MB of archives."
	echo "After this operation, 80.5 MB of additional disk space will be used."
	exit 1 ;;
*" update "*)
	[ ! -e $dir/broken ] || { echo "E: no route to mirror"; exit 100; }
	cat $dir/fresh >>$dir/offer ;;
*" install "*)
	for p; do
		case \$p in
		install) seen=1 ;;
		-*) ;;
		*) [ -z "\${seen:-}" ] || {
			grep -qx "\$p" $dir/offer || {
				echo "E: 404 for \$p"
				exit 100
			}
			echo "\$p" >>$dir/have
		} ;;
		esac
	done ;;
esac
END
script id <<END
#!/bin/sh
cat $dir/uid
END

reset() {
	echo 0 >"$dir/uid"
	rm -rf "$dir/cache"
	rm -f "$dir/broken"
	: >"$dir/calls"
	sh "$deps" --list >"$dir/have"
	{
		sh "$deps" --list --test
		echo linux-image-cloud-amd64
	} >"$dir/offer"
	: >"$dir/fresh"
}

lack() {
	for p; do
		grep -vx "$p" "$dir/have" >"$dir/tmp"
		mv "$dir/tmp" "$dir/have"
	done
}

run() {
	PATH=$dir/bin:$PATH CRYO_CACHE=$dir/cache sh "$deps" "$@" \
		>"$dir/out" 2>&1
}

reset
run
ok $? "nothing is missing: done"
[ ! -s "$dir/calls" ] && [ ! -s "$dir/out" ]
ok $? "without calling apt or saying a word"

lack lz4 liblmdb-dev
run
ok $? "two packages are missing: installed"
[ "$(grep -c . "$dir/calls")" = 1 ] &&
	grep -q ' install -y --no-install-recommends liblmdb-dev lz4$' \
		"$dir/calls"
ok $? "in one call, with these two, without recommended ones"

reset
lack qemu-system-x86
mv "$dir/offer" "$dir/fresh"
: >"$dir/offer"
run
ok $? "empty lists of packages are filled first"
[ "$(sed 's/.* \(update\|install\).*/\1/' "$dir/calls" | tr '\n' ' ')" = \
	"update install " ]
ok $? "by one update"

reset
lack jq
run
ok $? "a package for tests only is not missed by the demo"
[ ! -s "$dir/calls" ]
ok $? "so apt is not called"
run --test
grep -q 'jq' "$dir/have"
ok $? "but by the tests"

reset
lack lz4
echo 1000 >"$dir/uid"
run
[ $? = 1 ] && grep -q "not root.*missing: lz4.*make deps" "$dir/out" &&
	[ ! -s "$dir/calls" ]
ok $? "who is not root is told which packages are missing"

reset
lack lz4
grep -vx lz4 "$dir/offer" >"$dir/tmp"
mv "$dir/tmp" "$dir/offer"
touch "$dir/broken"
run
[ $? = 1 ] && grep -q "no route to mirror" "$dir/out" &&
	grep -q "apt-get update failed" "$dir/out"
ok $? "a failed update shows what apt said"

reset
lack lz4
grep -vx lz4 "$dir/offer" >"$dir/tmp"
mv "$dir/tmp" "$dir/offer"
run
[ $? = 1 ] && grep -q "no package for one of: lz4" "$dir/out"
ok $? "a package that is nowhere is named"

reset
lack lz4 cpio
run --plan
ok $? "the plan"
grep -q 'packages: lz4, cpio (and what.*kernel: linux-image-cloud-amd64' \
	"$dir/out"
ok $? "names the packages and the guest's kernel"
# 1,500 kB + 26,705,532 bytes, rounded up; 80.5 MB + 500 of our own
grep -q 'to download: 29 MB; free space needed: 581 MB' "$dir/out"
ok $? "adds apt's figures and the kernel's"
[ "$(wc -l <"$dir/out")" = 1 ] && ! grep -qx lz4 "$dir/have"
ok $? "is one line and installs nothing"

reset
run --plan
grep -q 'packages: all installed.*to download: 27 MB; .* needed: 500 MB' \
	"$dir/out"
ok $? "with all installed only the kernel is left"

mkdir -p "$dir/cache/kernel/current"
echo 6.1 >"$dir/cache/kernel/current/release"
run --plan
grep -q 'all installed; to download: 0 MB; .* needed: 500 MB' "$dir/out"
ok $? "and nothing once it is in the cache"

rm "$dir/bin/dpkg-query"
mkdir "$dir/none"
for p in sh mktemp rm; do
	ln -s "$(command -v $p)" "$dir/none/$p"
done
PATH=$dir/none sh "$deps" >"$dir/out" 2>&1
[ $? = 1 ] && grep -q "this is no Debian" "$dir/out"
ok $? "another system is told so"

run --nonsense
[ $? = 1 ] && grep -q "unknown argument '--nonsense'" "$dir/out"
ok $? "an unknown argument is refused"

echo "1..$nr"
exit $bad
