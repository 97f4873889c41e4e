#!/usr/bin/env python3
"""Test vectors of ADR 0030-0032, worked out from their text alone.

A second implementation of the encoders, sharing no code with the C one.
Needs python3-cryptography and the zstd command. Prints NAME = HEX lines.
"""
import hashlib
import struct
import subprocess

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def sha256(data):
    return hashlib.sha256(data).digest()


def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


# --- 0030: pack and frame ---------------------------------------------------

DATA_KEY = bytes(range(32))
PACK = bytes(0xA0 + i for i in range(16))
PACK2 = bytes(0xC0 + i for i in range(16))
KEY = HKDF(hashes.SHA256(), 32, None, b"cryo-pack-v1" + PACK).derive(DATA_KEY)


def pack_head(pack, created_ns):
    head = b"CRYOPACK" + struct.pack("<HHI", 1, 0, 0) + pack
    head += struct.pack("<q", created_ns) + bytes(20)
    return head + crc32c(head)


def frame(kind, flags, pages, number, offset, plain, payload=None):
    payload = plain if payload is None else payload
    head = b"FRME" + struct.pack("<BBHIII", kind, flags, pages, number,
                                 len(plain), len(payload) + 16)
    head += crc32c(head)
    sealed = AESGCM(KEY).encrypt(number.to_bytes(12, "little"), payload,
                                 PACK + struct.pack("<Q", offset) + head)
    out = head + sealed
    return out + bytes(-len(out) % 16)


def zstd(plain):
    return subprocess.run(
        ["zstd", "-1", "-c", "-q", "--no-check", f"--stream-size={len(plain)}"],
        input=plain, stdout=subprocess.PIPE, check=True).stdout


TEXT = b"cryo device state, not compressed"
PAGE = bytes(i // 64 for i in range(4096))

# --- 0032: state digest -----------------------------------------------------


def element(kind, index, page):
    seed = sha256(b"cryo-lthash-v1" + struct.pack("<BI", kind, index) +
                  sha256(page)[:24])
    enc = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return struct.unpack("<1024H", enc.update(bytes(2048)))


def total(pages):
    lanes = [0] * 1024
    for page in pages:
        lanes = [(a + b) & 0xFFFF for a, b in zip(lanes, element(*page))]
    return struct.pack("<1024H", *lanes)


def root(memory, disk, device, compat, memory_pages, disk_pages):
    return sha256(b"cryo-state-v1" + memory + disk + device + compat +
                  struct.pack("<II", memory_pages, disk_pages))


ONES = b"\xff" * 4096
MEMORY = [(0, 0, ONES), (0, 70000, PAGE)]
DISK = [(1, 0, ONES), (1, 9, bytes(4096))]

# --- 0031: manifest ---------------------------------------------------------

BASE, ZERO = 0, 1


def loc(pack, offset, slot):
    return ("loc", pack, offset // 16, slot)


def zigzag(v):
    return v * 2 if v >= 0 else -v * 2 - 1


def entries(items, first=0):
    """items: [(index, loc)]"""
    out, index, last = varint(len(items)), first - 1, (0, 0, 0)
    for i, place in items:
        out += varint(i - index - 1)
        index = i
        if place in (BASE, ZERO):
            out += varint(place << 2)
            continue
        _, pack, unit, slot = place
        if (pack, unit, slot) == (last[0], last[1], last[2] + 1):
            out += varint(1)
        elif pack == last[0]:
            out += varint((zigzag(unit - last[1]) << 2 | slot) << 2 | 2)
        else:
            out += varint(pack << 2 | 3) + varint(unit << 2 | slot)
        last = (pack, unit, slot)
    return out


def ref(place):
    return varint(place[1] + 1) + varint(place[2])


def chunk(kind, number, packs, items):
    out = struct.pack("<HBBIH", 1, kind, 0, number, len(packs))
    return out + b"".join(packs) + entries(items, number * 16384)


def manifest(flags, kind, point, session, epoch, time_ns, depth, sizes,
             compat, device_hash, root_, packs, parent, base, device,
             device_len, sums, execs, maps):
    out = struct.pack("<HHBBH", 1, flags, kind, 0, len(packs))
    out += point + session + struct.pack("<QqIII", epoch, time_ns, depth,
                                         *sizes)
    out += compat + device_hash + root_ + b"".join(packs)
    if flags & 2:
        out += parent[0] + ref(parent[1])
    if not flags & 1:
        out += ref(base)
    out += varint(0) if device is None else ref(device) + varint(device_len)
    out += b"".join(sums) + varint(len(execs)) + execs
    for one in maps:
        if flags & 1:
            out += varint(len(one))
            out += b"".join(varint(0) if c is None else ref(c) for c in one)
        else:
            out += entries(one)
    return out


COMPAT, DEVICE = b"\x11" * 32, sha256(TEXT)
ROOT = root(total(MEMORY), total(DISK), DEVICE, COMPAT, 131072, 40000)
KEYFRAME = manifest(
    1 | 4 | 8, 7, b"p" * 20, b"s" * 20, 3, 1767225600123456789, 0,
    (131072, 40000), COMPAT, DEVICE, ROOT, [PACK, PACK2], None, None,
    loc(0, 64, 0), len(TEXT), [total(MEMORY), total(DISK)], b"execs",
    [[loc(0, 160, 0), None, None, None, loc(1, 0x12340, 0), None, None, None],
     [loc(0, 240, 0), None, None]])
DELTA = manifest(
    2 | 4, 200, b"q" * 20, b"s" * 20, 3, 1767225660123456789, 5,
    (131072, 40000), COMPAT, DEVICE, ROOT, [PACK, PACK2],
    (b"p" * 20, loc(1, 4096, 0)), loc(0, 320, 0), None, 0, [total(MEMORY)],
    b"", [[(0, BASE), (5, loc(1, 0x400, 0)), (6, loc(1, 0x400, 1)),
           (7, loc(1, 0x400, 2)), (300, loc(1, 0x200, 3)),
           (301, loc(0, 64, 1)), (131071, loc(0, 0x10000040, 0))],
          [(0, ZERO), (39999, loc(0, 96, 3))]])
CHUNK = chunk(1, 2, [PACK], [(32768, loc(0, 64, 0)), (32769, loc(0, 64, 1)),
                             (32771, ZERO), (49151, loc(0, 64, 1))])

if __name__ == "__main__":
    def show(name, value):
        print(name, "=", value.hex())

    show("pack key", KEY)
    show("pack header", pack_head(PACK, 1767225600123456789))
    show("device frame, stored", frame(2, 1, 0, 0, 64, TEXT))
    show("page frame, zstd", frame(1, 0, 1, 1, 160, PAGE, zstd(PAGE)))
    show("page hash", sha256(PAGE)[:24])
    show("element 0 of ones, lanes 0..7",
         struct.pack("<8H", *element(0, 0, ONES)[:8]))
    show("memory sum, SHA-256", sha256(total(MEMORY)))
    show("disk sum, SHA-256", sha256(total(DISK)))
    show("memory sum, lanes 0..7", total(MEMORY)[:16])
    show("empty root", root(bytes(2048), bytes(2048), sha256(b""), bytes(32),
                            65536, 0))
    show("root", ROOT)
    show("chunk", CHUNK)
    show("keyframe, SHA-256 of %d bytes" % len(KEYFRAME), sha256(KEYFRAME))
    show("delta, SHA-256 of %d bytes" % len(DELTA), sha256(DELTA))
    show("delta up to the sum", DELTA[:DELTA.index(total(MEMORY))])
    show("delta after the sum",
         DELTA[DELTA.index(total(MEMORY)) + 2048:])
    show("keyframe after the sums",
         KEYFRAME[KEYFRAME.index(total(DISK)) + 2048:])
