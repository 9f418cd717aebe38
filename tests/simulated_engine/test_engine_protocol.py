"""What the simulated engine says to subscribers and to snapshot clients."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import pytest
import zmq
from engine_reader import BLOCK, DEADLINE_S, Reader, tokens
from event_mirror import Mirror
from kvcache.exceptions import ClosedError, WaitTimeoutError
from kvcache.testing import SimulatedEngine, SimulatedFleet


def test_a_live_batch_is_three_frames(engine: SimulatedEngine, reader: Reader) -> None:
    assert engine.prefill([*tokens(3), 7]) == 0
    topic, sequence, payload = reader.frames()
    assert topic == b"xllm-kv"
    assert sequence == bytes(8)
    timestamp, events, rank = msgpack.unpackb(payload)
    assert isinstance(timestamp, float)
    assert rank == 0
    assert events == [
        {
            "type": "BlockStored",
            "block_hashes": engine.wire_hashes(tokens(3)),
            "parent_block_hash": None,
            "token_ids": tokens(3),
            "block_size": BLOCK,
            "medium": "gpu",
        }
    ]
    assert engine.prefill(tokens(4)) == 3
    sequence_2, (_, events, _) = reader.batch()
    assert sequence_2 == 1 == engine.sequence
    assert events[0]["parent_block_hash"] == engine.wire_hashes(tokens(3))[-1]
    assert events[0]["token_ids"] == tokens(4)[-BLOCK:]


def test_nothing_is_published_when_nothing_changes(engine: SimulatedEngine, reader: Reader) -> None:
    engine.prefill(tokens(2))
    assert engine.prefill(tokens(2)) == 2
    engine.evict_device(0)
    engine.prefill(tokens(2)[:3])
    engine.clear()
    assert reader.batch()[0] == 0
    assert reader.batch()[1][1] == [{"type": "AllBlocksCleared"}]
    assert engine.sequence == 1
    assert engine.device_block_count == 0


@pytest.mark.parametrize("first", [0, 1, 41])
def test_the_watermark_is_the_last_sequence(first: int) -> None:
    with (
        SimulatedEngine("e", dp_rank=3, block_size=BLOCK, first_sequence=first) as engine,
        Reader(engine) as reader,
    ):
        watermark, (_, events, rank) = reader.snapshot()
        assert (watermark, events, rank) == (max(first - 1, 0), [], 3)
        engine.prefill(tokens(2))
        assert reader.batch()[0] == first
        watermark, (_, events, _) = reader.snapshot()
        assert watermark == first == engine.sequence
        assert events[0]["block_hashes"] == engine.wire_hashes(tokens(2))
        assert engine.snapshot_requests == 2


def test_requests_of_another_shape_are_not_answered(
    engine: SimulatedEngine, reader: Reader
) -> None:
    reader.send_request(b"", b"short")
    reader.send_request(bytes(8))
    reader.send_request(b"", bytes(8), b"more")
    reader.snapshot()
    assert not reader.answer_waits()
    assert engine.snapshot_requests == 1


def test_a_snapshot_comes_parents_first_in_small_events_with_both_tiers() -> None:
    with (
        SimulatedEngine("e", block_size=BLOCK, device_blocks=200, host_blocks=200) as engine,
        Reader(engine) as reader,
    ):
        engine.prefill(tokens(100))
        engine.prefill(tokens(2) + tokens(3, salt=9))
        engine.offload(tokens(100))
        engine.evict_device(5)
        expected, live = Mirror(), Mirror()
        live.apply(event for _ in range(4) for event in reader.batch()[1][1])
        events = reader.snapshot()[1][1]
        assert len(events) > 2
        expected.apply(events)
        assert expected.tiers == live.tiers
        assert expected.orphans() == set()
        seen: set[int | None] = {None}
        for event in events:
            assert not event["token_ids"] or event["parent_block_hash"] in seen
            seen.update(event["block_hashes"])
        assert any(not event["token_ids"] and event["medium"] == "cpu" for event in events)


def test_an_explicit_eviction_leaves_an_orphan_in_the_snapshot(
    engine: SimulatedEngine, reader: Reader
) -> None:
    engine.prefill(tokens(3))
    middle = engine.wire_hashes(tokens(3))[1]
    engine.evict([middle], "gpu")
    assert engine.expected_match(tokens(3)) == (BLOCK, 0)
    mirror = Mirror()
    mirror.apply(reader.snapshot()[1][1])
    assert mirror.orphans() == {engine.wire_hashes(tokens(3))[2]}
    engine.prefill(tokens(2))
    assert engine.expected_match(tokens(3)) == (3 * BLOCK, 0)


def test_ipv6_and_chosen_ports() -> None:
    with SimulatedEngine(
        "e", endpoint="tcp://[::1]:0", replay_endpoint="tcp://[::1]:0", block_size=BLOCK
    ) as engine:
        assert engine.endpoint.startswith("tcp://[::1]:")
        with Reader(engine) as reader:
            engine.prefill(tokens(1))
            assert reader.batch()[0] == 0
            assert reader.snapshot()[0] == 0
        with pytest.raises(zmq.ZMQError):
            SimulatedEngine("f", replay_endpoint=engine.endpoint).start()


def test_subscriptions_are_counted_by_what_they_let_through(engine: SimulatedEngine) -> None:
    with pytest.raises(WaitTimeoutError, match="engine-a"):
        engine.wait_subscribed(0.0)
    with Reader(engine), Reader(engine):
        engine.wait_subscribed(DEADLINE_S, count=2)
        assert engine.subscribers == 2
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        other = context.socket(zmq.SUB)
        other.setsockopt(zmq.SUBSCRIBE, b"else")
        other.setsockopt(zmq.SUBSCRIBE, b"xllm")
        other.connect(engine.endpoint)
        engine.wait_subscribed(DEADLINE_S, count=3)
        assert engine.subscribers == 3
        context.destroy(linger=0)


def test_stream_config_and_fleet() -> None:
    engines = [SimulatedEngine("e", dp_rank=rank, topic="") for rank in (0, 1)]
    with SimulatedFleet(engines) as fleet:
        config = fleet.config(replay_timeout_ms=500)
        assert config["replay_timeout_ms"] == 500
        assert config["streams"] == [
            {
                "instance_name": "e",
                "dp_rank": rank,
                "block_size": 128,
                "endpoint": fleet[rank].endpoint,
                "replay_endpoint": fleet[rank].replay_endpoint,
                "topic": "",
            }
            for rank in (0, 1)
        ]
        ports = {e.rpartition(":")[2] for one in fleet for e in (one.endpoint, one.replay_endpoint)}
        assert len(ports) == 4
    with pytest.raises(ClosedError):
        engines[0].prefill([0] * 128)
