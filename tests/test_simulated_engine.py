"""The simulated engine against a reader of its own: pyzmq sockets and plain MessagePack."""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import msgpack  # type: ignore[import-untyped]
import pytest
import zmq
from kvcache.exceptions import ClosedError, WaitTimeoutError
from kvcache.testing import (
    BlockCache,
    Conversations,
    LiveFault,
    ReplayFault,
    SimulatedEngine,
    SimulatedFleet,
)
from kvcache.testing.event_log import MAX_BLOCKS_PER_EVENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DEADLINE_S = 10.0
DEADLINE_MS = int(DEADLINE_S * 1000)
END = 2**64 - 1
BLOCK = 4


def tokens(blocks: int, salt: int = 0) -> list[int]:
    return [salt * 1000 + position for position in range(blocks * BLOCK)]


class Reader:
    """A subscriber and a snapshot client that share no code with the engine."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.RCVTIMEO, DEADLINE_MS),
            (zmq.IPV6, 1),
            (zmq.RECONNECT_IVL, 10),
        ):
            self._context.setsockopt(option, value)
        self._sub = self._context.socket(zmq.SUB)
        self._sub.setsockopt(zmq.SUBSCRIBE, engine.topic.encode())
        self._sub.connect(engine.endpoint)
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.connect(engine.replay_endpoint)

    def new_client(self) -> None:
        """Ask over a new connection; one to an engine that died would swallow a request."""
        self._dealer.close()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.connect(self._engine.replay_endpoint)

    def __enter__(self) -> Self:
        self.wait_subscribed()
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    def wait_subscribed(self) -> None:
        """Wait for the engine to know us; libzmq subscribes again only while its user polls."""
        deadline = time.monotonic() + DEADLINE_S
        while not self._engine.subscribers:
            assert time.monotonic() < deadline
            self._sub.poll(10)

    def frames(self) -> list[bytes]:
        return self._sub.recv_multipart()

    def batch(self) -> tuple[int, list[Any]]:
        topic, sequence, payload = self.frames()
        assert topic == self._engine.topic.encode()
        return struct.unpack(">Q", sequence)[0], msgpack.unpackb(payload)

    def sequences(self, count: int) -> list[int]:
        return [self.batch()[0] for _ in range(count)]

    def ask(self) -> None:
        self._dealer.send_multipart([b"", struct.pack(">Q", 0)])

    def send_request(self, *frames: bytes) -> None:
        self._dealer.send_multipart(frames)

    def answer(self) -> list[bytes]:
        return self._dealer.recv_multipart()

    def answer_waits(self) -> bool:
        return bool(self._dealer.poll(0))

    def snapshot(self) -> tuple[int, list[Any]]:
        self.ask()
        empty, watermark, payload = self.answer()
        assert empty == b""
        assert self.answer() == [b"", struct.pack(">Q", END), b""]
        return struct.unpack(">Q", watermark)[0], msgpack.unpackb(payload)


class Mirror:
    """What a reader of the events believes to be resident."""

    def __init__(self) -> None:
        self.tiers: dict[str, set[int]] = {"gpu": set(), "cpu": set()}
        self.known: dict[int, tuple[int | None, tuple[int, ...]]] = {}

    def apply(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            if event["type"] == "AllBlocksCleared":
                self.__init__()  # type: ignore[misc]
            elif event["type"] == "BlockRemoved":
                for name in event["block_hashes"]:
                    self.tiers[event["medium"]].remove(name)
            else:
                self._store(event)

    def _store(self, event: dict[str, Any]) -> None:
        names, ids, size = event["block_hashes"], event["token_ids"], event["block_size"]
        assert 0 < len(names) <= MAX_BLOCKS_PER_EVENT
        assert not ids or len(ids) == len(names) * size
        parent = event["parent_block_hash"]
        for position, name in enumerate(names):
            if ids:
                content = (parent, tuple(ids[position * size : (position + 1) * size]))
                assert self.known.setdefault(name, content) == content
            assert name in self.known
            assert name not in self.tiers[event["medium"]]
            self.tiers[event["medium"]].add(name)
            parent = name

    def orphans(self) -> set[int]:
        resident = self.tiers["gpu"] | self.tiers["cpu"]
        return {
            name
            for name in resident
            if self.known[name][0] is not None and self.known[name][0] not in resident
        }


@pytest.fixture
def engine() -> Iterator[SimulatedEngine]:
    with SimulatedEngine("engine-a", block_size=BLOCK, device_blocks=8) as running:
        yield running


@pytest.fixture
def reader(engine: SimulatedEngine) -> Iterator[Reader]:
    with Reader(engine) as connected:
        yield connected


# --- the protocol --------------------------------------------------------------------------------


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


# --- life ----------------------------------------------------------------------------------------


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


# --- faults of live messages ---------------------------------------------------------------------


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


# --- faults of answers ---------------------------------------------------------------------------


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


# --- the model -----------------------------------------------------------------------------------


def test_the_least_recently_used_leaf_goes_first() -> None:
    cache = BlockCache(block_size=BLOCK, device_blocks=4)
    old, new = cache.wire_hashes(tokens(2)), cache.wire_hashes(tokens(2, salt=1))
    cache.prefill(tokens(2))
    cache.prefill(tokens(2, salt=1))
    cache.prefill(tokens(2))  # used again, so the other one is now the older
    events = cache.prefill(tokens(1, salt=2)).events
    assert events[0] == {"type": "BlockRemoved", "block_hashes": [new[1]], "medium": "gpu"}
    assert all(cache.tiers(name) == {"gpu"} for name in (*old, new[0]))


def test_a_prompt_larger_than_the_device_is_stored_as_far_as_it_fits() -> None:
    cache = BlockCache(block_size=BLOCK, device_blocks=4)
    assert cache.prefill(tokens(9)).reused_blocks == 0
    assert cache.expected_match(tokens(9)) == (4 * BLOCK, 0)
    assert cache.prefill(tokens(9)).events == []


def test_pinned_blocks_stay() -> None:
    cache = BlockCache(block_size=BLOCK, device_blocks=3)
    cache.prefill(tokens(2))
    cache.pin(cache.wire_hashes(tokens(2)))
    cache.prefill(tokens(3, salt=1))
    assert cache.expected_match(tokens(2)) == (2 * BLOCK, 0)
    assert cache.expected_match(tokens(3, salt=1)) == (BLOCK, 0)
    cache.unpin(cache.wire_hashes(tokens(2)))
    cache.prefill(tokens(3, salt=1))
    assert cache.expected_match(tokens(2)) == (0, 0)


def test_evicted_blocks_move_to_the_host_and_come_back() -> None:
    cache = BlockCache(block_size=BLOCK, device_blocks=2, host_blocks=4)
    cache.prefill(tokens(2))
    events = cache.evict_device(1)
    leaf = cache.wire_hashes(tokens(2))[1]
    assert [(e["type"], e["block_hashes"], e["medium"]) for e in events] == [
        ("BlockStored", [leaf], "cpu"),
        ("BlockRemoved", [leaf], "gpu"),
    ]
    assert events[0]["token_ids"] == []
    assert cache.expected_match(tokens(2)) == (BLOCK, BLOCK)
    again = cache.prefill(tokens(2))
    assert again.reused_blocks == 2
    assert cache.expected_match(tokens(2)) == (2 * BLOCK, 0)
    assert cache.tiers(leaf) == {"gpu", "cpu"}


def test_names_depend_on_prefix_and_seed() -> None:
    one, other = (
        BlockCache(block_size=BLOCK, device_blocks=1, hash_seed=s) for s in (0, 2**64 - 1)
    )
    names = one.wire_hashes(tokens(1) + tokens(1))
    assert names[0] != names[1]
    assert set(names).isdisjoint(other.wire_hashes(tokens(1) + tokens(1)))
    assert names[:1] == one.wire_hashes(tokens(1))


def seeds() -> list[int]:
    given = os.environ.get("KVCACHE_SEED")
    return [int(given)] if given else [1, 2, random.SystemRandom().randrange(2**32)]


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("host_blocks", [0, 5, 40])
def test_a_random_walk_keeps_the_invariants(seed: int, host_blocks: int) -> None:
    print(f"KVCACHE_SEED={seed}")
    rng = random.Random(seed)
    cache = BlockCache(block_size=BLOCK, device_blocks=16, host_blocks=host_blocks)
    mirror = Mirror()
    torn = False  # an explicit eviction may have left orphans, until the next clear
    for _ in range(600):
        prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 12) * BLOCK)]
        prompt = [prompt[at - at % BLOCK] for at in range(len(prompt))]
        names = cache.wire_hashes(prompt)
        action = rng.choices(
            ["prefill", "offload", "evict_device", "pin", "unpin", "evict", "clear"],
            [60, 10, 10, 4, 6, 1, 1],
        )[0]
        if action == "prefill":
            before = sum(cache.expected_match(prompt))
            done = cache.prefill(prompt)
            assert done.reused_blocks * BLOCK == before
            mirror.apply(done.events)
        elif action == "offload":
            mirror.apply(cache.offload(names))
        elif action == "evict_device":
            mirror.apply(cache.evict_device(rng.randrange(6)))
        elif action == "evict":
            mirror.apply(cache.evict(names[:1], "gpu"))
            torn = True
        elif action == "clear":
            mirror.apply(cache.clear())
            torn = False
        else:
            (cache.pin if action == "pin" else cache.unpin)(names)
        assert cache.device_block_count == len(mirror.tiers["gpu"]) <= 16
        assert cache.host_block_count == len(mirror.tiers["cpu"]) <= host_blocks
        assert torn or not mirror.orphans()
        retold = Mirror()
        retold.apply(cache.snapshot())
        assert retold.tiers == mirror.tiers


# --- traffic -------------------------------------------------------------------------------------


def test_conversations_grow_share_and_repeat() -> None:
    traffic = Conversations(
        seed=7, count=5, turns=3, system_prompts=2, system_tokens=16, vocabulary=100, at_once=2
    )
    turns = list(traffic)
    assert turns == list(traffic)
    assert len(turns) == 15
    assert {token < 100 for turn in turns for token in turn.token_ids} == {True}
    assert len({tuple(turn.token_ids[:16]) for turn in turns}) == 2
    for conversation in range(5):
        own = [turn for turn in turns if turn.conversation == conversation]
        assert [turn.turn for turn in own] == [0, 1, 2]
        for earlier, later in pairwise(own):
            assert later.token_ids[: len(earlier.token_ids)] == earlier.token_ids
            assert len(later.token_ids) > len(earlier.token_ids)
    assert [turn.conversation for turn in turns] != sorted(turn.conversation for turn in turns)
    assert list(Conversations(seed=8, count=1)) != list(Conversations(seed=9, count=1))
