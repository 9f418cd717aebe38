"""Faults of the simulated engine's live messages."""

from __future__ import annotations

import struct

import msgpack  # type: ignore[import-untyped]
import pytest
from engine_reader import BLOCK, Reader, tokens
from kvcache.testing import LiveFault, SimulatedEngine


def test_drop_uses_up_sequences(engine: SimulatedEngine, reader: Reader) -> None:
    engine.faults.drop_next(2)
    assert [engine.publish_batch([]) for _ in range(3)] == [0, 1, 2]
    assert reader.sequences(1) == [2]
    engine.faults.drop_next()
    engine.prefill(tokens(1))
    assert reader.snapshot()[0] == 3  # lost silently: only a snapshot tells
    assert engine.faults.armed == 0


def test_duplicate_and_reorder_happen_in_the_order_armed(
    engine: SimulatedEngine, reader: Reader
) -> None:
    engine.faults.arm_live(LiveFault.DUPLICATE)
    engine.faults.arm_live(LiveFault.REORDER, 2)
    for _ in range(4):
        engine.publish_batch([])
    assert reader.sequences(5) == [0, 0, 2, 1, 3]


def test_payloads_can_be_broken(engine: SimulatedEngine, reader: Reader) -> None:
    engine.faults.arm_live(LiveFault.TRUNCATE)
    engine.faults.arm_live(LiveFault.GARBAGE)
    for sequence in range(2):
        engine.publish_batch([{"type": "AllBlocksCleared"}])
        topic, number, payload = reader.frames()
        assert (topic, number) == (b"xllm-kv", struct.pack(">Q", sequence))
        with pytest.raises((ValueError, msgpack.UnpackException)):
            msgpack.unpackb(payload)


def test_batches_can_lie(engine: SimulatedEngine, reader: Reader) -> None:
    for fault in (LiveFault.WRONG_DP_RANK, LiveFault.WRONG_BLOCK_SIZE, LiveFault.OVERSIZE):
        engine.faults.arm_live(fault)
    engine.faults.oversize_bytes = 100_000
    engine.prefill(tokens(1))
    assert reader.batch()[1][2] == 1
    engine.prefill(tokens(2))
    (_, events, rank) = reader.batch()[1]
    assert (events[0]["block_size"], rank) == (2 * BLOCK, 0)
    engine.prefill(tokens(3))
    payload = reader.frames()[2]
    assert len(payload) > 100_000
    assert msgpack.unpackb(payload)[1][0]["token_ids"] == tokens(3)[-BLOCK:]
    engine.faults.arm_live(LiveFault.WRONG_TOPIC)
    engine.prefill(tokens(4))
    assert reader.frames()[0] == b"xllm-kv-other"


def test_raw_frames_bypass_sequence_and_faults(engine: SimulatedEngine, reader: Reader) -> None:
    engine.faults.drop_next()
    engine.publish_frames([b"xllm-kv", b"x"])
    assert reader.frames() == [b"xllm-kv", b"x"]
    assert engine.faults.armed == 1
    assert engine.sequence == 0
