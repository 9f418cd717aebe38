"""Faults of the simulated engine's answers to snapshot requests."""

from __future__ import annotations

import struct
import time

import msgpack  # type: ignore[import-untyped]
import pytest
from engine_reader import DEADLINE_S, END, Reader, tokens
from event_mirror import Mirror
from kvcache.exceptions import WaitTimeoutError
from kvcache.testing import LiveFault, ReplayFault, SimulatedEngine


def test_held_answers_keep_the_state_of_their_request(
    engine: SimulatedEngine, reader: Reader
) -> None:
    engine.prefill(tokens(1))
    engine.faults.arm_replay(ReplayFault.HOLD)
    reader.ask()
    engine.wait_snapshot_requests(1, DEADLINE_S)
    engine.prefill(tokens(3))
    assert engine.held_replays == 1
    assert not reader.answer_waits()
    assert engine.release_replays() == 1
    _, watermark, payload = reader.answer()
    assert watermark == struct.pack(">Q", 0)
    assert msgpack.unpackb(payload)[1][0]["token_ids"] == tokens(1)
    reader.answer()
    assert reader.snapshot()[0] == 1


def test_delayed_answers_come_late_with_the_state_of_their_request(
    engine: SimulatedEngine, reader: Reader
) -> None:
    engine.faults.replay_delay_s = 0.2
    engine.faults.arm_replay(ReplayFault.DELAY)
    asked = time.monotonic()
    reader.ask()
    engine.wait_snapshot_requests(1, DEADLINE_S)
    engine.prefill(tokens(1))
    _, _, late = reader.answer()
    assert time.monotonic() - asked >= 0.2
    assert msgpack.unpackb(late)[1] == []
    assert reader.answer()[1] == struct.pack(">Q", END)


def test_silence_until_disarmed(engine: SimulatedEngine, reader: Reader) -> None:
    engine.faults.arm_replay(ReplayFault.SILENT, None)
    for count in (1, 2, 3):
        reader.ask()
        engine.wait_snapshot_requests(count, DEADLINE_S)
    with pytest.raises(WaitTimeoutError):
        engine.wait_snapshot_requests(4, 0.0)
    engine.faults.disarm()
    reader.snapshot()
    assert not reader.answer_waits()


def test_end_markers_can_be_missing_or_of_the_other_form(
    engine: SimulatedEngine, reader: Reader
) -> None:
    engine.faults.arm_replay(ReplayFault.NO_END)
    engine.faults.arm_replay(ReplayFault.FOUR_FRAME_END)
    end = struct.pack(">Q", END)
    reader.ask()
    assert reader.answer()[1] == bytes(8)
    reader.ask()
    assert reader.answer()[1] == bytes(8)
    assert reader.answer() == [b"", b"", end, b""]


def test_snapshot_payloads_can_be_broken(engine: SimulatedEngine, reader: Reader) -> None:
    engine.prefill(tokens(1))
    engine.prefill(tokens(2))
    faults = (ReplayFault.EMPTY_PAYLOAD, ReplayFault.GARBAGE, ReplayFault.TRUNCATE)
    for fault in faults:
        engine.faults.arm_replay(fault)
        reader.ask()
        _, watermark, payload = reader.answer()
        assert watermark == struct.pack(">Q", 1)
        assert (payload == b"") == (fault is ReplayFault.EMPTY_PAYLOAD)
        with pytest.raises((ValueError, msgpack.UnpackException)):
            msgpack.unpackb(payload)
        assert reader.answer()[1] == struct.pack(">Q", END)


def test_snapshots_can_be_stale_orphaned_or_too_large(
    engine: SimulatedEngine, reader: Reader
) -> None:
    with pytest.raises(ValueError, match="stale_snapshot"):
        engine.faults.arm_replay(ReplayFault.STALE)
    engine.prefill(tokens(1))
    engine.faults.stale_snapshot = engine.snapshot()
    engine.prefill(tokens(2))
    engine.faults.arm_replay(ReplayFault.STALE)
    watermark, (_, events, _) = reader.snapshot()
    assert (watermark, events[0]["token_ids"]) == (0, tokens(1))

    engine.faults.arm_replay(ReplayFault.ORPHANS)
    mirror = Mirror()
    mirror.apply(reader.snapshot()[1][1])
    assert len(mirror.orphans()) == 1
    assert set(engine.wire_hashes(tokens(2))) < mirror.tiers["gpu"]

    engine.faults.oversize_bytes = 50_000
    engine.faults.arm_replay(ReplayFault.OVERSIZE)
    reader.ask()
    payload = reader.answer()[2]
    assert len(payload) > 50_000
    assert len(msgpack.unpackb(payload)[1]) == 1
    with pytest.raises(ValueError, match="at least once: 0"):
        engine.faults.arm_live(LiveFault.DROP, 0)
