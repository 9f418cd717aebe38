"""Restarts, the end, and threads that share a simulated engine."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from engine_reader import Reader, tokens
from kvcache.testing import SimulatedEngine


def test_restart_takes_the_same_ports_with_an_empty_cache(
    engine: SimulatedEngine, reader: Reader
) -> None:
    endpoints = (engine.endpoint, engine.replay_endpoint)
    engine.prefill(tokens(2))
    assert reader.batch()[0] == 0
    for turn in range(3):
        engine.restart()
        reader.new_client()
        assert (engine.endpoint, engine.replay_endpoint) == endpoints
        assert engine.device_block_count == 0
        reader.wait_subscribed()
        engine.prefill(tokens(2, salt=turn))
        assert reader.batch()[0] == 0
        assert reader.snapshot()[0] == 0
    assert engine.snapshot_requests == 3


@pytest.mark.parametrize(
    ("options", "expected"), [({"keep_sequence": True}, 2), ({"first_sequence": 6}, 6)]
)
def test_restart_may_hide_in_the_sequence(
    engine: SimulatedEngine, reader: Reader, options: dict[str, Any], expected: int
) -> None:
    engine.prefill(tokens(1))
    engine.prefill(tokens(2))
    assert reader.sequences(2) == [0, 1]
    engine.restart(**options)
    reader.new_client()
    assert reader.snapshot()[0] == expected - 1
    reader.wait_subscribed()
    engine.prefill(tokens(1))
    assert reader.batch()[0] == expected


def test_what_was_published_before_close_arrives(engine: SimulatedEngine, reader: Reader) -> None:
    for turn in range(100):
        engine.publish_batch([{"type": "BlockRemoved", "block_hashes": [turn], "medium": "gpu"}])
    engine.close()
    engine.close()
    assert reader.sequences(100) == list(range(100))


def test_threads_share_an_engine(engine: SimulatedEngine, reader: Reader) -> None:
    def publish() -> None:
        for _ in range(50):
            engine.publish_batch([])

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reader.sequences(200) == list(range(200))
