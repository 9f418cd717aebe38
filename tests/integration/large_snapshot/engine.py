"""An engine that has published one message, and answers for its state with one large snapshot.

``engine.py BLOCKS BLOCK_SIZE`` prints its ports and the snapshot's bytes, and runs for two minutes at most.
"""

from __future__ import annotations

import struct
import sys
import time

import numpy as np
import zmq

BLOCKS_IN_EVENT = 64


def text(value: str) -> bytes:
    return bytes([0xA0 | len(value)]) + value.encode()


def array(length: int) -> bytes:
    return b"\xdd" + struct.pack(">I", length)


def snapshot(blocks: int, block_size: int) -> bytes:
    random = np.random.default_rng(1)
    out = bytearray(b"\x93\xcb" + struct.pack(">d", 1.0))
    out += array(1 + blocks // BLOCKS_IN_EVENT)
    out += b"\x81" + text("type") + text("AllBlocksCleared")
    for event in range(blocks // BLOCKS_IN_EVENT):
        hashes = np.empty(BLOCKS_IN_EVENT, dtype=[("tag", "u1"), ("value", ">u8")])
        hashes["tag"] = 0xCF
        hashes["value"] = event * BLOCKS_IN_EVENT + np.arange(BLOCKS_IN_EVENT) + (1 << 60)
        tokens = np.empty(BLOCKS_IN_EVENT * block_size, dtype=[("tag", "u1"), ("value", ">u4")])
        tokens["tag"] = 0xCE
        # As many as take five bytes each in a vocabulary of 152,000; the others take three.
        short = random.random(len(tokens)) < 65536 / 152_000
        tokens["value"] = random.integers(65_536, 152_000, len(tokens))
        raw = tokens.view(np.uint8).reshape(-1, 5).copy()
        raw[short, 2] = 0xCD
        keep = np.ones_like(raw, dtype=bool)
        keep[short, :2] = False
        out += b"\x86" + text("type") + text("BlockStored")
        out += text("block_hashes") + array(BLOCKS_IN_EVENT) + hashes.tobytes()
        out += text("parent_block_hash") + b"\xc0"
        out += text("token_ids") + array(len(tokens)) + raw[keep].tobytes()
        out += text("block_size") + b"\xcd" + struct.pack(">H", block_size)
        out += text("medium") + text("gpu")
    return bytes(out + b"\x00")


def main() -> None:
    payload = snapshot(int(sys.argv[1]), int(sys.argv[2]))
    context = zmq.Context()
    publisher, replay = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (publisher, replay)]
    print(*ports, len(payload), flush=True)
    replay.rcvtimeo = 1000
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            peer, *_ = replay.recv_multipart()
        except zmq.Again:
            continue
        replay.send_multipart([peer, b"", bytes(8), payload])
        replay.send_multipart([peer, b"", b"\xff" * 8, b""])


main()
