"""What `kvcache serve` writes of its streams, text and JSON."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from kvcache.testing import SimulatedEngine
from serving import Process, wait_until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_incident_can_be_read_from_the_log_alone(tmp_path: Path, log_format: str) -> None:
    path = tmp_path / "kv.json"
    with SimulatedEngine("e:1") as engine:
        path.write_text(json.dumps({"streams": [engine.stream_config()]}))
        flags = ("--port=0", f"--kv_events_config_file={path}", f"--log_format={log_format}")
        with Process("serve", *flags) as served:

            def lines() -> list[str]:
                return [line for line in served.stderr if "stream e:1 rank 0 " in line]

            wait_until(lambda: len(lines()) == 1, "the first synchronization")
            engine.restart()
            wait_until(lambda: len(lines()) == 3, "a loss and a return")
            served.signal(signal.SIGTERM)
            assert served.wait() == 0
        assert len(lines()) == 3, "a stop is no loss"
    words = ("synchronized for the first time after ", "is lost after ", "is back after ")
    for line, level, word in zip(lines(), ("INFO", "WARNING", "INFO"), words, strict=True):
        assert word in line
        assert level in line.upper()
