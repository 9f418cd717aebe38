"""Follows the engine beside it, and prints the blocks held and how far memory rose at most.

``follower.py EVENTS_PORT REPLAY_PORT MESSAGE_BYTES BLOCKS BLOCK_SIZE``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import kvcache

events, replay, message_bytes, blocks, block_size = map(int, sys.argv[1:])


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


config = {
    "streams": [
        {
            "instance_name": "engine",
            "endpoint": f"tcp://127.0.0.1:{events}",
            "replay_endpoint": f"tcp://127.0.0.1:{replay}",
            "topic": "xllm-kv",
            "block_size": block_size,
        }
    ],
    "max_message_bytes": message_bytes,
    "replay_timeout_ms": 60_000,
}
before = peak_bytes()
with kvcache.Directory(kvcache.KvEventsConfig.from_dict(config)) as directory:
    directory.wait_synchronized(timeout=60)
    (stream,) = directory.streams()
    (match,) = directory.query([])
    assert stream["synchronized"]
    print(match.device_blocks, peak_bytes() - before)
