#!/bin/sh
# deps.sh: installs the Debian packages that cryo is built and run with.
#
#   tools/deps.sh           what `make demo` needs
#   tools/deps.sh --test    that, and what `make test` needs on top
#   tools/deps.sh --plan    changes nothing but apt's lists of packages: one
#                           line with packages, download size, space needed
#   tools/deps.sh --list    the names, one a line
#
# Does nothing, in some milliseconds, when all is there. Never installs
# recommended packages, never upgrades, never removes. A run that is cut off
# can be repeated: apt and dpkg do their own recovery.
set -u
LC_ALL=C
DEBIAN_FRONTEND=noninteractive
export LC_ALL DEBIAN_FRONTEND

BUILD="gcc libc6-dev make libjansson-dev liblmdb-dev libzstd-dev libssl-dev
	libxxhash-dev liburing-dev libmicrohttpd-dev libcurl4-openssl-dev
	libseccomp-dev"
RUN="qemu-system-x86 seabios busybox-static lz4 cpio e2fsprogs ca-certificates"
TEST="jq curl procps openssl"
# The guest's kernel: downloaded and unpacked by tools/image, not installed.
KERNEL=linux-image-cloud-amd64
# Room for build tree, guest image and the data of one demo.
OWN_MB=500
APT="apt-get -q -o DPkg::Lock::Timeout=300"

die() {
	printf 'deps: %s\n' "$*" >&2
	exit 1
}

# The packages of "$@" that are not installed.
missing() {
	have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" \
		2>/dev/null | sed -n 's/^installed //p')
	for p in "$@"; do
		case "
$have
" in
		*"
$p
"*) ;;
		*) echo "$p" ;;
		esac
	done
}

# True if apt knows where to get every package of "$@".
known() {
	for p in "$@"; do
		apt-cache policy "$p" 2>/dev/null |
			grep -q 'Candidate: [^(]' || return 1
	done
}

update() {
	[ "$(id -u)" = 0 ] ||
		die "the lists of packages are empty or old: run as root, or" \
			"run 'apt-get update' as root"
	$APT update >"$log" 2>&1 || {
		tail -n 15 "$log" >&2
		die "apt-get update failed (above): check the network and" \
			"/etc/apt/sources.list"
	}
}

# "Need to get 1,234 kB/20.5 MB of archives." -> bytes still to download;
# "After this operation, 80.1 MB of additional disk space" -> bytes needed
apt_figures() {
	[ $# -gt 0 ] || {
		echo 0 0
		return
	}
	apt-get -o Debug::NoLocking=1 install --no-install-recommends \
		--assume-no "$@" 2>/dev/null </dev/null | awk '
	function bytes(n, unit) {
		gsub(",", "", n)
		sub("/.*", "", unit)
		return n * (unit == "GB" ? 1e9 : unit == "MB" ? 1e6 : \
			unit == "kB" ? 1e3 : 1)
	}
	/^Need to get / { get = bytes($4, $5) }
	/^After this operation, .* additional/ { use = bytes($4, $5) }
	END { printf "%.0f %.0f\n", get, use }'
}

# Bytes of the guest's kernel package, 0 once tools/image/kernel.sh has it.
kernel_bytes() {
	cache=${CRYO_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cryo}
	if [ -e "$cache/kernel/current/release" ]; then
		echo 0
		return
	fi
	name=$(apt-cache depends "$KERNEL" 2>/dev/null |
		sed -n 's/^ *Depends: *\(linux-image-[^ ]*\).*/\1/p' | head -n 1)
	apt-cache show --no-all-versions "${name:-$KERNEL}" 2>/dev/null |
		awk '/^Size: / && !n { n = $2 } END { printf "%.0f\n", n }'
}

plan() {
	# shellcheck disable=SC2046 # names of packages have no spaces
	set -- $(missing $want)
	if [ $# -gt 0 ] && ! known "$@" "$KERNEL"; then
		update
	fi
	nr=$#
	names=$(echo "$@" | sed 's/ /, /g')
	figures=$(apt_figures "$@")
	kernel=$(kernel_bytes)
	free=$(df -Pk . | awk 'NR == 2 { printf "%.0f", $4 / 1000 }')
	get=$(((${figures% *} + kernel + 999999) / 1000000))
	use=$(((${figures#* } + 999999) / 1000000 + OWN_MB))
	if [ "$nr" = 0 ]; then
		printf 'packages: all installed; '
	else
		printf 'packages: %s (and what they depend on); ' "$names"
	fi
	[ "$kernel" = 0 ] || printf 'guest kernel: %s, not installed; ' \
		"$KERNEL"
	printf 'to download: %s MB; free space needed: %s MB (%s MB free)\n' \
		"$get" "$use" "$free"
}

install() {
	# shellcheck disable=SC2046
	set -- $(missing $want)
	[ $# -gt 0 ] || return 0
	[ "$(id -u)" = 0 ] ||
		die "not root, and these packages are missing: $*; run" \
			"'make deps' as root, or install them"
	known "$@" || update
	known "$@" || die "apt knows no package for one of: $* (Debian 12 has" \
		"them all in 'main'; see /etc/apt/sources.list)"
	printf 'deps: installing %s\n' "$*" >&2
	# lists that are some days old name files that are gone: update once
	if ! apt_install "$@"; then
		update
		apt_install "$@" || {
			tail -n 25 "$log" >&2
			die "apt-get install failed (above)"
		}
	fi
	left=$(missing $want)
	[ -z "$left" ] || die "still missing after apt-get: $left"
}

apt_install() {
	$APT install -y --no-install-recommends "$@" >"$log" 2>&1 </dev/null
}

want="$BUILD $RUN"
do=install
for arg in "$@"; do
	case $arg in
	--test) want="$want $TEST" ;;
	--plan) do=plan ;;
	--list) do=list ;;
	*) die "unknown argument '$arg'; see the head of tools/deps.sh" ;;
	esac
done
if [ "$do" = list ]; then
	# shellcheck disable=SC2086
	printf '%s\n' $want
	exit 0
fi
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
	die "this is no Debian (dpkg-query and apt-get are missing); install" \
		"by other means what 'tools/deps.sh --list' prints"
log=$(mktemp "${TMPDIR:-/tmp}/cryo-deps.XXXXXX") || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
$do
