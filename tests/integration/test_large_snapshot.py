"""A snapshot of the largest stream that the limits allow is received and applied in pieces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKS = 262_144
BLOCK = 128
SCRIPTS = Path(__file__).parent / "large_snapshot"


@pytest.mark.skipif(sys.platform != "linux", reason="reads peak memory from /proc")
def test_peak_memory_is_less_than_twice_the_message() -> None:
    with subprocess.Popen(
        [sys.executable, SCRIPTS / "engine.py", str(BLOCKS), str(BLOCK)],
        stdout=subprocess.PIPE,
        text=True,
    ) as engine:
        try:
            assert engine.stdout is not None
            events, replay, message_bytes = map(int, engine.stdout.readline().split())
            assert message_bytes > 140_000_000
            follower = subprocess.run(
                [sys.executable, SCRIPTS / "follower.py"]
                + [str(n) for n in (events, replay, message_bytes, BLOCKS, BLOCK)],
                stdout=subprocess.PIPE,
                text=True,
                timeout=100,
                check=True,
            )
        finally:
            engine.terminate()
    blocks, peak_bytes = map(int, follower.stdout.split())
    assert blocks == BLOCKS
    print(f"{peak_bytes / message_bytes:.2f} times {message_bytes} bytes")
    assert peak_bytes < 2 * message_bytes, f"{peak_bytes / message_bytes:.2f} times the message"
