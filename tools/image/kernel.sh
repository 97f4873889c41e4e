#!/bin/sh
# kernel.sh: Debian's cloud kernel for amd64, downloaded and unpacked, never
# installed. Prints the folder that has it: vmlinux (ELF), release, modules/.
#
# The package is what linux-image-cloud-amd64 depends on; apt-get checks its
# signature. The result is kept in CRYO_CACHE (default ~/.cache/cryo) and used
# from there without a network until CRYO_KERNEL_REFRESH=1 asks for the newest.
# A crash leaves a folder named .new-*, which nothing reads.
set -eu

cache=${CRYO_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cryo}/kernel
meta=linux-image-cloud-amd64

fail() {
	echo "kernel.sh: $*" >&2
	exit 1
}

# the package that the meta package stands for today
resolve() {
	apt-cache depends "$meta" 2>/dev/null |
		sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1
}

refresh() {
	apt-get update >&2 || fail "apt-get update failed: the list of" \
		"packages is needed to find the guest's kernel; check the" \
		"network and /etc/apt/sources.list"
	package=$(resolve)
	[ -n "$package" ] || fail "apt knows no package $meta: check the" \
		"network, and that Debian's main archive for amd64 is in" \
		"/etc/apt/sources.list"
}

fetch() {
	(cd "$1" && apt-get -o APT::Sandbox::User=root -qq \
		download "$package" >&2)
}

# Lists may be missing, or older than the archive: then once more with new ones.
download() {
	package=$(resolve)
	if [ -n "$package" ] && fetch "$1"; then
		return
	fi
	refresh
	fetch "$1" || fail "download of $package failed: check the network"
}

number() { # FILE OFFSET BYTES: a little-endian number in it
	od -An -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' \n'
}

# The compressed ELF inside a bzImage (Linux Documentation/x86/boot.rst:
# setup_sects at 0x1f1, payload_offset at 0x248, payload_length at 0x24c; the
# last 4 bytes of the payload are its unpacked size).
extract() {
	sects=$(number "$1" 497 1)
	start=$(((sects + 1) * 512 + $(number "$1" 584 4)))
	len=$(($(number "$1" 588 4) - 4))
	tail -c "+$((start + 1))" "$1" | head -c "$len" >"$2.packed"
	case $(od -An -t x1 -N 4 "$2.packed" | tr -d ' \n') in
	02214c18) lz4 -dcq "$2.packed" >"$2" ;;
	28b52ffd) zstd -dcq "$2.packed" >"$2" ;;
	fd377a58) xz -dc --single-stream "$2.packed" >"$2" ;;
	1f8b*) gzip -dc "$2.packed" >"$2" ;;
	*) fail "$1: its payload is packed in an unknown way" ;;
	esac || fail "$1: its payload can't be unpacked"
	rm "$2.packed"
	[ "$(od -An -t x1 -N 4 "$2" | tr -d ' \n')" = 7f454c46 ] ||
		fail "$1: its payload is no ELF file"
}

if [ -e "$cache/current/release" ] && [ -z "${CRYO_KERNEL_REFRESH:-}" ]; then
	readlink -f "$cache/current"
	exit
fi

mkdir -p "$cache" || fail "can't make $cache: set CRYO_CACHE to a folder" \
	"that can be written"
new=$(mktemp -d "$cache/.new-XXXXXX")
trap 'rm -rf "$new"' EXIT
download "$new"
deb=$(echo "$new"/*.deb)
version=$(dpkg-deb -f "$deb" Version | tr ':~' '__')
release=${package#linux-image-}
mkdir "$new/all" "$new/out"
dpkg-deb -x "$deb" "$new/all"
extract "$new/all/boot/vmlinuz-$release" "$new/out/vmlinux"
cp -r "$new/all/lib/modules/$release/kernel" "$new/out/modules"
echo "$version" >"$new/out/version"
echo "$release" >"$new/out/release"
rm -rf "${cache:?}/$release-$version"
mv "$new/out" "$cache/$release-$version"
ln -sfn "$release-$version" "$cache/current"
readlink -f "$cache/current"
