"""Each limit of the configuration costs the offending stream its hits, and nothing else."""

from __future__ import annotations

from following import (
    BLOCK,
    engine,
    follow,
    hits,
    hold,
    let_go,
    status,
    tokens,
    wait_agrees,
    wait_doubted,
    wait_until,
)
from kvcache.testing import ReplayFault, SimulatedEngine


def test_max_blocks_per_stream(one: SimulatedEngine) -> None:
    with engine("engine-b") as other:
        other.prefill(tokens(50, 2))
        one.prefill(tokens(1, 6))
        with follow(one, other, max_blocks_per_stream=8) as directory:
            one.prefill(tokens(2, 3))
            wait_doubted(directory, "block_limit", times=2)
            assert "max_blocks_per_stream" in status(directory)["error"]
            assert hits(directory, tokens(50, 2)) == {("engine-b", 0): (2 * BLOCK, 0)}
            one.evict_device(4)
            wait_until(lambda: status(directory)["synchronized"])
            wait_agrees(directory, one, tokens(1, 6))


def test_blocks_that_are_gone_make_room(one: SimulatedEngine) -> None:
    with follow(one, max_blocks_per_stream=8) as directory:
        for seed in range(20):
            one.prefill(tokens(seed, 2))
            one.evict_device(2)
        one.prefill(tokens(99, 2))
        wait_agrees(directory, one, tokens(99, 2))
        assert status(directory)["known_blocks"] <= 8
        assert sum(status(directory)["doubts"].values()) == 0


def test_max_message_bytes(one: SimulatedEngine) -> None:
    with follow(one, max_message_bytes=20_000) as directory:
        one.prefill(tokens(1, 1))
        wait_agrees(directory, one, tokens(1, 1))
        one.publish_frames([b"xllm-kv", (one.sequence + 1).to_bytes(8, "big"), bytes(20_001)])
        wait_doubted(directory, "message_size")
        wait_agrees(directory, one, tokens(1, 1))


def test_max_message_bytes_of_a_snapshot(one: SimulatedEngine) -> None:
    one.prefill(tokens(1, 60))
    with follow(one, synchronized=False, max_message_bytes=500) as directory:
        wait_doubted(directory, "message_size")
        assert not status(directory)["synchronized"]


def test_max_buffered_bytes(one: SimulatedEngine) -> None:
    hold(one)
    with follow(
        one, synchronized=False, max_buffered_bytes=4000, max_message_bytes=100_000
    ) as directory:
        wait_until(lambda: one.snapshot_requests >= 1)
        for seed in range(60):
            one.prefill(tokens(seed, 1))
            assert status(directory)["buffered_bytes"] <= 110_000
        wait_doubted(directory, "buffer_limit")
        let_go(one)
        wait_until(lambda: status(directory)["synchronized"])
        wait_agrees(directory, one, tokens(59, 1))


def test_replay_timeout(one: SimulatedEngine) -> None:
    for fault in (ReplayFault.SILENT, ReplayFault.NO_END):
        one.faults.arm_replay(fault, None)
        with follow(one, synchronized=False, replay_timeout_ms=100) as directory:
            wait_doubted(directory, "replay_timeout", times=2)
            assert "replay_timeout_ms" in status(directory)["error"]
            one.faults.disarm()
            directory.wait_synchronized(timeout=30)


def test_a_failing_snapshot_is_no_busy_loop(one: SimulatedEngine) -> None:
    one.faults.arm_replay(ReplayFault.GARBAGE, None)
    with follow(one, synchronized=False) as directory:
        wait_until(lambda: one.snapshot_requests >= 3)
        first = one.snapshot_requests
        wait_until(lambda: status(directory)["snapshot_failures_total"] >= first + 1)
        assert one.snapshot_requests <= 12
        one.faults.disarm()
        directory.wait_synchronized(timeout=30)
