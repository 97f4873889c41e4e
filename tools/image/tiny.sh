#!/bin/sh
# tiny.sh AGENT OUT: builds the template `tiny` into the folder OUT:
#     vmlinux        Debian's cloud kernel as ELF
#     initrd.cpio    the agent as /init, and the virtio modules
#     disk.img       ext4, 256 MiB, sparse: busybox and a handful of files
#     template.json  names, digests, kernel command line
# Needs no root, no loop device, no mount and, with the kernel in the cache,
# no network. The same inputs give the same bytes: times, owners, ids and
# orders are fixed. A crash leaves OUT without template.json, which is
# written last.
set -eu
export LC_ALL=C TZ=UTC
umask 022

agent=$1
out=$2
here=$(dirname "$0")
epoch=${SOURCE_DATE_EPOCH:-1700000000}
disk_mib=256
uuid=6372796f-7469-4e79-8000-000000000001
modules='virtio_ring virtio virtio_mmio virtio_console virtio_blk virtio-rng'
# the driver adds tsc_early_khz=N, the host's, without which microvm hangs
cmdline='quiet mitigations=off no_timer_check cryptomgr.notests nokaslr nopti'
# reboot=t: this machine has no keyboard controller to be reset by; a guest
# that reboots or panics would try for ever, and not end
cmdline="$cmdline audit=0 panic=-1 reboot=t rdinit=/init tsc=reliable"

fail() {
	echo "tiny.sh: $*" >&2
	exit 1
}

need() { # COMMAND PACKAGE
	command -v "$1" >/dev/null ||
		fail "$1 is missing: apt-get install $2 (or make deps)"
}

PATH=$PATH:/usr/sbin:/sbin
need busybox busybox-static
need cpio cpio
need lz4 lz4
need mke2fs e2fsprogs
need debugfs e2fsprogs

# --- initrd -------------------------------------------------------------------
# Modules go in by name in the order of loading; what a module depends on must
# come before it, which is checked against what the module itself says.
add_module() {
	file=$(find "$kernel/modules" -name "$1.ko" | head -n 1)
	if [ -z "$file" ]; then
		fail "kernel $(cat "$kernel/release") has no module $1"
	fi
	for dep in $(tr '\0' '\n' <"$file" | sed -n 's/^depends=//p' |
		tr ',' ' '); do
		grep -qx "$dep.ko" "$work/initrd/modules/order" ||
			fail "module $1 needs $dep, which isn't loaded before it"
	done
	cp "$file" "$work/initrd/modules/$1.ko"
	echo "$1.ko" >>"$work/initrd/modules/order"
}

make_initrd() {
	mkdir -p "$work/initrd/modules"
	: >"$work/initrd/modules/order"
	for m in $modules; do
		add_module "$m"
	done
	cp "$agent" "$work/initrd/init"
	chmod 755 "$work/initrd/init"
	find "$work/initrd" -exec touch -h -d "@$epoch" {} +
	(cd "$work/initrd" && find . | sort |
		cpio -o -H newc -R 0:0 --reproducible --quiet) >"$1"
}

# --- disk ---------------------------------------------------------------------
make_tree() {
	mkdir -p "$1/usr/bin" "$1/home/user" "$1/etc/cryo/fork.d"
	for d in dev proc sys run tmp root mnt opt srv var/log var/tmp \
		usr/lib usr/share usr/local/bin usr/local/sbin; do
		mkdir -p "$1/$d"
	done
	ln -s usr/bin "$1/bin"
	ln -s usr/bin "$1/sbin"
	ln -s bin "$1/usr/sbin"
	ln -s usr/lib "$1/lib"
	ln -s ../run "$1/var/run"
	cp "$(command -v busybox)" "$1/usr/bin/busybox"
	for applet in $(busybox --list); do
		[ -e "$1/usr/bin/$applet" ] ||
			ln -s busybox "$1/usr/bin/$applet"
	done
	cp -r "$here/tiny/etc/." "$1/etc"
	: >"$1/etc/machine-id"
	ln -s ../proc/self/mounts "$1/etc/mtab"
	find "$1" -exec touch -h -d "@$epoch" {} +
}

# Owners, modes and times that mke2fs would take from this machine's files.
inode_fixes() {
	(cd "$1" && find . | sort) | while read -r path; do
		path=${path#.}
		owner=0
		case $path in
		/home/user*) owner=1000 ;;
		esac
		for f in "uid $owner" "gid $owner" "atime @$epoch" \
			"ctime @$epoch" "mtime @$epoch" "crtime @$epoch" \
			'atime_extra 0' 'ctime_extra 0' 'mtime_extra 0' \
			'crtime_extra 0'; do
			echo "sif ${path:-/} $f"
		done
	done
	echo "sif /lost+found crtime @$epoch"
	echo 'sif /tmp mode 041777'
	echo 'sif /var/tmp mode 041777'
	echo 'sif /root mode 040700'
	echo 'sif /home/user mode 040755'
	echo 'sif /etc/shadow mode 0100600'
}

make_disk() {
	make_tree "$work/tree"
	rm -f "$1"
	truncate -s "${disk_mib}M" "$1"
	E2FSPROGS_FAKE_TIME=$epoch SOURCE_DATE_EPOCH=$epoch mke2fs -q -F \
		-t ext4 -b 4096 -I 256 -N 32768 -m 0 -J size=4 -L cryo \
		-U "$uuid" -O ^resize_inode \
		-E "hash_seed=$uuid,lazy_itable_init=0,lazy_journal_init=0,nodiscard" \
		-d "$work/tree" "$1"
	inode_fixes "$work/tree" >"$work/fixes"
	E2FSPROGS_FAKE_TIME=$epoch debugfs -w -f "$work/fixes" "$1" \
		>"$work/debugfs.log" 2>&1 ||
		fail "debugfs failed: $(tail -n 1 "$work/debugfs.log")"
	if grep -q ': \(File not found\|.*[Ee]rror\)' "$work/debugfs.log"; then
		fail "debugfs: $(grep -m 1 ': ' "$work/debugfs.log")"
	fi
	cp --sparse=always "$1" "$1.sparse"
	mv "$1.sparse" "$1"
}

# --- template.json ------------------------------------------------------------
digest() {
	sha256sum "$1" | cut -d ' ' -f 1
}

# Canonical JSON (RFC 8785); `digest` is the SHA-256 of the same without it.
# $1 is that member, or nothing; $2 $3 $4 the digests of the files.
describe() {
	printf '{"cmdline":"%s",%s"disk":"disk.img","disk_bytes":%d,' \
		"$cmdline" "$1" $((disk_mib << 20))
	printf '"disk_sha256":"%s","initrd":"initrd.cpio",' "$2"
	printf '"initrd_sha256":"%s","kernel":"vmlinux",' "$3"
	printf '"kernel_sha256":"%s","kernel_version":"%s",' "$4" \
		"$(cat "$kernel/release") $(cat "$kernel/version")"
	printf '"name":"tiny:latest","schema":1}'
}

[ -x "$agent" ] || fail "$agent is no program: build the agent first"
kernel=$("$here/kernel.sh")
mkdir -p "$out"
rm -f "$out/template.json"
work=$(mktemp -d "$out/.work-XXXXXX")
trap 'rm -rf "$work"' EXIT
make_initrd "$out/initrd.cpio"
make_disk "$out/disk.img"
cp "$kernel/vmlinux" "$out/vmlinux"
set -- "$(digest "$out/disk.img")" "$(digest "$out/initrd.cpio")" \
	"$(digest "$out/vmlinux")"
sum=$(describe '' "$@" | sha256sum | cut -d ' ' -f 1)
describe "\"digest\":\"$sum\"," "$@" >"$work/template.json"
mv "$work/template.json" "$out/template.json"
