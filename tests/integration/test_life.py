"""A stream's life over real TCP (spec: a stream's life), one test a clause."""

from __future__ import annotations

import socket
import time

import pytest
from following import (
    BLOCK,
    agrees,
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
from kvcache.testing import LiveFault, ReplayFault, SimulatedEngine
from kvcache.testing.wire import batch_payload, live_frames, stored


def test_late_join_sees_what_was_there(one: SimulatedEngine) -> None:
    prompt = tokens(1, 6)
    one.prefill(prompt)
    with follow(one) as directory:
        assert hits(directory, prompt) == {("engine-a", 0): (6 * BLOCK, 0)}
        assert status(directory)["sequence"] == one.sequence
        one.prefill(prompt + tokens(2, 2))
        wait_agrees(directory, one, prompt + tokens(2, 2))


@pytest.mark.parametrize("first_sequence", [0, 1])
def test_an_idle_engine_is_synchronized_and_may_start_at_zero_or_one(first_sequence: int) -> None:
    with engine(first_sequence=first_sequence) as one, follow(one) as directory:
        prompt = tokens(1, 2)
        one.prefill(prompt)
        wait_agrees(directory, one, prompt)
        one.prefill(tokens(2, 2))
        wait_agrees(directory, one, tokens(2, 2))
        assert sum(status(directory)["doubts"].values()) == 0


def test_an_engine_that_is_not_there_yet_is_waited_for() -> None:
    with engine() as one:
        one.prefill(tokens(1, 2))
        one.close()
        with follow(one, synchronized=False) as directory:
            wait_until(lambda: "refused" in status(directory)["error"])
            assert status(directory)["state"] == "connecting"
            assert hits(directory, tokens(1, 2)) == {}
            one.start()
            directory.wait_synchronized(timeout=30)
            wait_agrees(directory, one, tokens(1, 2))


def test_a_gap_costs_the_hits_until_the_next_snapshot(one: SimulatedEngine) -> None:
    prompt = tokens(1, 4)
    one.prefill(prompt)
    with follow(one) as directory:
        hold(one)
        one.faults.drop_next(1)
        one.prefill(tokens(2, 1))
        one.prefill(tokens(3, 1))
        wait_doubted(directory, "gap")
        (match,) = directory.query(prompt)
        assert not match.synchronized
        assert (
            match.device_hit_tokens,
            match.host_only_hit_tokens,
            match.reusable_prefix_tokens,
        ) == (0, 0, 0)
        assert "gap" in match.error or "snapshot" in match.error
        let_go(one)
        directory.wait_synchronized(timeout=30)
        for seed, blocks in ((1, 4), (2, 1), (3, 1)):
            wait_agrees(directory, one, tokens(seed, blocks))
        assert directory.query([])[0].error == ""


def test_messages_that_arrive_during_a_snapshot_are_merged(one: SimulatedEngine) -> None:
    hold(one)
    with follow(one, synchronized=False) as directory:
        wait_until(lambda: one.snapshot_requests >= 1)
        for seed in range(20):
            one.prefill(tokens(seed, 1))
        let_go(one)
        directory.wait_synchronized(timeout=30)
        for seed in range(20):
            wait_agrees(directory, one, tokens(seed, 1))
        assert status(directory)["doubts"]["gap"] == 0


def test_a_process_restart_is_noticed_even_when_numbers_go_on(one: SimulatedEngine) -> None:
    old = tokens(1, 3)
    one.prefill(old)
    with follow(one) as directory:
        wait_agrees(directory, one, old)
        one.restart(first_sequence=one.sequence + 1)
        one.prefill(tokens(2, 1))
        wait_doubted(directory, "disconnect")
        wait_agrees(directory, one, tokens(2, 1))
        assert hits(directory, old) == {("engine-a", 0): (0, 0)}


def test_a_sequence_that_goes_back_is_a_restart(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        for seed in range(3):
            one.prefill(tokens(seed, 1))
        wait_agrees(directory, one, tokens(2, 1))
        one.publish_frames(live_frames(one.topic, 0, batch_payload([], 0, 0.0)))
        wait_doubted(directory, "sequence_reset")
        directory.wait_synchronized(timeout=30)
        wait_agrees(directory, one, tokens(2, 1))


def test_a_clear_recovers_without_a_snapshot(one: SimulatedEngine) -> None:
    one.prefill(tokens(1, 2))
    with follow(one) as directory:
        hold(one)
        one.faults.drop_next(1)
        one.prefill(tokens(2, 1))
        one.clear()
        one.prefill(tokens(3, 1))
        wait_agrees(directory, one, tokens(3, 1))
        assert hits(directory, tokens(1, 2)) == {("engine-a", 0): (0, 0)}
        assert status(directory)["snapshots_total"] == 1


def test_a_silently_lost_tail_is_found_by_calibration(one: SimulatedEngine) -> None:
    with follow(one, resync_interval_ms=300) as directory:
        one.prefill(tokens(1, 1))
        wait_agrees(directory, one, tokens(1, 1))
        one.faults.drop_next(1)
        one.prefill(tokens(2, 1))
        wait_agrees(directory, one, tokens(2, 1))
        assert sum(status(directory)["doubts"].values()) == 0


def test_calibration_under_load_never_flickers(one: SimulatedEngine) -> None:
    base = tokens(1, 8)
    one.prefill(base)
    with follow(one, resync_interval_ms=60) as directory:
        deadline = time.monotonic() + 3
        seed = 100
        while time.monotonic() < deadline:
            one.prefill(base)
            one.prefill(tokens(seed, 1))
            seed += 1
            (match,) = directory.query(base)
            assert match.synchronized
            assert match.device_hit_tokens == len(base)
        wait_until(lambda: status(directory)["calibrations_total"] >= 5)
        assert sum(status(directory)["doubts"].values()) == 0


def test_a_calibration_that_gets_no_answer_is_counted(one: SimulatedEngine) -> None:
    one.prefill(tokens(1, 1))
    with follow(one, resync_interval_ms=100, replay_timeout_ms=100) as directory:
        one.faults.arm_replay(ReplayFault.SILENT, None)
        wait_until(lambda: status(directory)["calibration_failures_total"] >= 2)
        assert agrees(directory, one, tokens(1, 1))
        one.faults.disarm()
        before = status(directory)["calibrations_total"]
        wait_until(lambda: status(directory)["calibrations_total"] > before)


def test_orphans_count_as_nothing_and_cause_no_storm(one: SimulatedEngine) -> None:
    prompt = tokens(1, 4)
    one.prefill(prompt)
    one.evict(one.wire_hashes(prompt)[1:2], "gpu")
    with follow(one) as directory:
        assert hits(directory, prompt) == {("engine-a", 0): (BLOCK, 0)}
        assert status(directory)["orphan_blocks"] == 2
        before = one.snapshot_requests
        parent = one.wire_hashes(prompt)[3]
        one.publish_batch([stored([77], parent, tokens(9, 1), BLOCK, "gpu")])
        one.prefill(tokens(2, 1))
        wait_agrees(directory, one, tokens(2, 1))
        assert one.snapshot_requests == before
        assert sum(status(directory)["doubts"].values()) == 0


def test_an_unknown_parent_in_a_live_message_is_a_doubt(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        one.publish_batch([stored([77], 12345, tokens(9, 1), BLOCK, "gpu")])
        wait_doubted(directory, "unknown_parent")
        directory.wait_synchronized(timeout=30)


@pytest.mark.parametrize(
    ("fault", "doubt"),
    [
        (LiveFault.GARBAGE, "decode"),
        (LiveFault.TRUNCATE, "decode"),
        (LiveFault.WRONG_DP_RANK, "dp_rank"),
        (LiveFault.WRONG_BLOCK_SIZE, "block_size"),
        (LiveFault.DUPLICATE, "sequence_reset"),
        (LiveFault.OVERSIZE, "message_size"),
    ],
)
def test_a_malformed_batch_costs_its_own_stream_only(
    one: SimulatedEngine, fault: LiveFault, doubt: str
) -> None:
    with engine("engine-b") as other:
        other.prefill(tokens(5, 2))
        with follow(one, other) as directory:
            hold(one)
            one.faults.arm_live(fault)
            one.prefill(tokens(1, 1))
            wait_doubted(directory, doubt)
            assert hits(directory, tokens(5, 2)) == {("engine-b", 0): (2 * BLOCK, 0)}
            let_go(one)
            directory.wait_synchronized(timeout=30)
            wait_agrees(directory, one, tokens(1, 1))


def test_topics_are_compared_exactly() -> None:
    with engine(topic="kv") as one, follow(one) as directory:
        one.publish_frames([b"kv2", (1).to_bytes(8, "big"), b"x"])
        one.prefill(tokens(1, 1))
        wait_agrees(directory, one, tokens(1, 1))
        assert status(directory)["foreign_topic_total"] == 1
        assert sum(status(directory)["doubts"].values()) == 0


def test_close_leaves_no_thread_behind(one: SimulatedEngine) -> None:
    import threading  # noqa: PLC0415

    import psutil  # noqa: PLC0415

    process = psutil.Process()
    before = process.num_threads()
    with follow(one) as directory:
        assert process.num_threads() > before
        start = time.monotonic()
        directory.close()
        assert time.monotonic() - start < 1
        assert directory.closed
    wait_until(lambda: process.num_threads() <= before, f"threads: {threading.enumerate()}")
    wait_until(lambda: one.subscribers == 0)


def test_a_peer_that_announces_a_huge_frame_leaves_memory_flat() -> None:
    import psutil  # noqa: PLC0415

    ready = bytes([0xFF, *[0] * 8, 0x7F, 3, 1]) + b"NULL".ljust(20, b"\0") + bytes(32)
    with (
        socket.create_server(("127.0.0.1", 0)) as publisher,
        socket.create_server(("127.0.0.1", 0)) as replay,
    ):
        config = {
            "instance_name": "mad",
            "endpoint": f"tcp://127.0.0.1:{publisher.getsockname()[1]}",
            "replay_endpoint": f"tcp://127.0.0.1:{replay.getsockname()[1]}",
        }
        import kvcache  # noqa: PLC0415

        before = psutil.Process().memory_info().rss
        with kvcache.Directory(
            kvcache.KvEventsConfig.from_dict({"streams": [config]})
        ) as directory:
            peer, _ = publisher.accept()
            with peer:
                peer.sendall(ready)
                command = b"\x05READY\x0bSocket-Type\0\0\0\4XPUB"
                peer.sendall(bytes([4, len(command)]) + command)
                peer.sendall(b"\x02" + (2**60).to_bytes(8, "big") + bytes(1000))
                wait_doubted(directory, "message_size")
            assert psutil.Process().memory_info().rss - before < 64 << 20
