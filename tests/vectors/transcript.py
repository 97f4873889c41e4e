#!/usr/bin/env python3
"""Test vectors of ADR 0080, worked out from its text alone.

A second implementation of the encoder. Needs python3-cryptography. Prints
NAME = HEX lines.
"""
import struct

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from formats import crc32c

DATA_KEY = bytes(range(32))
EXEC = b"e0123456789abcdefghi"
TAG = b"t0123456789abcdefghi"
EPOCH = 3
KEY = HKDF(hashes.SHA256(), 32, None,
           b"cryo-transcript-v1" + EXEC + struct.pack("<I", EPOCH)
           ).derive(DATA_KEY)
OUT, ERR = 1, 2


def header(out_from, err_from):
    head = b"CRYT" + struct.pack("<HHI", 1, 0, EPOCH) + TAG
    head += struct.pack("<QQQI", out_from, err_from, 0, 0)
    return head + crc32c(head)


def record(head, number, stream, offset, data):
    rec = struct.pack("<IBBHQI", number, stream, 0, 0, offset, len(data))
    rec += crc32c(rec)
    nonce = struct.pack("<QI", number, 0)
    return rec + AESGCM(KEY).encrypt(nonce, data, head + rec)


def exec_states(states):
    out = struct.pack("<HH", 1, len(states))
    for tag, phase, code, signal, *offsets in states:
        out += tag + struct.pack("<BIIQQQQ", phase, code, signal, *offsets)
    return out


if __name__ == "__main__":
    head = header(1000, 20)
    print("key =", KEY.hex())
    print("header =", head.hex())
    print("record1 =", record(head, 1, OUT, 1000, b"hello, world\n").hex())
    print("record2 =", record(head, 2, ERR, 20, b"oops").hex())
    # number 3 was used up by a write that failed
    print("record4 =", record(head, 4, OUT, 1013, b"\x00").hex())
    print("execs =", exec_states([(TAG, 1, 143, 15, 1000, 20, 1014, 24)]).hex())
