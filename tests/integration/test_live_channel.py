"""A stream whose live messages never arrive, while its snapshots do."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import kvcache
import zmq
from following import (
    DEADLINE_S,
    engine,
    follow,
    hits,
    status,
    tokens,
    wait_agrees,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcache.testing import SimulatedEngine

RESYNC_MS = 200


@contextmanager
def follow_otherwise(one: SimulatedEngine, **changes: object) -> Iterator[kvcache.Directory]:
    """Follows an engine as another one than it is."""
    config = {
        "streams": [one.stream_config() | changes],
        "resync_interval_ms": RESYNC_MS,
        "replay_timeout_ms": 1000,
    }
    with kvcache.Directory(kvcache.KvEventsConfig.from_dict(config)) as directory:
        directory.wait_synchronized(timeout=DEADLINE_S)
        yield directory


def publish_until_doubted(directory: kvcache.Directory, one: SimulatedEngine) -> None:
    """Publishes a batch before every calibration, until the stream is not believed any more."""
    seed = 100
    while not status(directory)["doubts"]["live_channel"]:
        one.prefill(tokens(seed, 1))
        seed += 1
        before = one.snapshot_requests
        wait_until(
            lambda seen=before: (  # type: ignore[misc]
                one.snapshot_requests > seen or status(directory)["doubts"]["live_channel"]
            )
        )
        assert seed < 200, f"never doubted: {status(directory)}"


def assert_not_believed_again(directory: kvcache.Directory, one: SimulatedEngine) -> None:
    """Further snapshots, of an engine that works and of one that is quiet, change nothing."""
    for seed in range(3):
        one.prefill(tokens(seed, 1))
        before = one.snapshot_requests
        wait_until(lambda seen=before: one.snapshot_requests >= seen + 2)  # type: ignore[misc]
        now = status(directory)
        assert not now["synchronized"]
        assert now["doubts"]["live_channel"] == 1
        assert hits(directory, tokens(seed, 1)) == {}


def test_another_topic_is_found_and_named() -> None:
    with (
        engine(topic="xllm-kw") as one,
        follow_otherwise(one, topic="xllm-kv") as directory,
    ):
        publish_until_doubted(directory, one)
        # A probe sees what is published while it looks.
        seeds = itertools.count(300)

        def is_named() -> bool:
            one.prefill(tokens(next(seeds), 1))
            return "xllm-kw" in status(directory)["error"]

        wait_until(is_named)
        now = status(directory)
        assert "xllm-kv" in now["error"]
        assert now["sequences_lost_found_by_calibration_total"] > 0
        assert now["blocks_lost_found_by_calibration_total"] > 0
        assert directory.query(tokens(1, 1))[0].error == now["error"]
        assert_not_believed_again(directory, one)
        assert "xllm-kw" in status(directory)["error"]
        # As after a change of the engine's configuration, in place.
        one.topic = "xllm-kv"
        one.prefill(tokens(4, 1))
        directory.wait_synchronized(timeout=DEADLINE_S)
        wait_agrees(directory, one, tokens(4, 1))


def test_a_live_port_that_never_says_anything_is_found() -> None:
    with zmq.Context() as context, context.socket(zmq.PUB) as mute, engine() as one:
        port = mute.bind_to_random_port("tcp://127.0.0.1")
        with follow_otherwise(one, endpoint=f"tcp://127.0.0.1:{port}") as directory:
            publish_until_doubted(directory, one)
            wait_until(
                lambda: (
                    "nothing arrives at the live endpoint on any topic"
                    in status(directory)["error"]
                ),
                status(directory)["error"],
            )
            assert_not_believed_again(directory, one)
            assert "proxy" in status(directory)["error"]


@contextmanager
def losing_proxy(one: SimulatedEngine, topic: str) -> Iterator[str]:
    """A proxy of the live endpoint that has lost the first subscription to `topic` only."""
    ended = threading.Event()
    with zmq.Context() as context, context.socket(zmq.XPUB) as front:
        front.setsockopt(zmq.XPUB_MANUAL, 1)
        port = front.bind_to_random_port("tcp://127.0.0.1")

        def forward() -> None:
            lost = False
            with context.socket(zmq.SUB) as back:
                back.connect(one.endpoint)
                back.subscribe(b"")
                poller = zmq.Poller()
                poller.register(front, zmq.POLLIN)
                poller.register(back, zmq.POLLIN)
                while not ended.is_set():
                    ready = dict(poller.poll(20))
                    if front in ready:
                        wish = front.recv()
                        if wish[1:] == topic.encode() and wish[:1] == b"\1" and not lost:
                            lost = True
                        elif wish[:1] == b"\1":
                            front.setsockopt(zmq.SUBSCRIBE, wish[1:])
                    if back in ready:
                        front.send_multipart(back.recv_multipart())

        thread = threading.Thread(target=forward)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{port}"
        finally:
            ended.set()
            thread.join()


def test_a_lost_subscription_is_made_anew() -> None:
    with (
        engine(topic="xllm-kv") as one,
        losing_proxy(one, "xllm-kv") as endpoint,
        follow_otherwise(one, endpoint=endpoint) as directory,
    ):
        publish_until_doubted(directory, one)
        seeds = itertools.count(300)

        def is_connected_anew() -> bool:
            one.prefill(tokens(next(seeds), 1))
            now = status(directory)
            return now["connects_total"] == 2 and now["synchronized"]

        wait_until(is_connected_anew)
        one.prefill(tokens(1, 2))
        wait_agrees(directory, one, tokens(1, 2))
        now = status(directory)
        assert (now["doubts"]["live_channel"], now["doubts"]["disconnect"]) == (1, 1)


def test_after_a_reconnect_a_quiet_engine_is_believed_again() -> None:
    with (
        engine(topic="xllm-kw") as one,
        follow_otherwise(one, topic="xllm-kv") as directory,
    ):
        publish_until_doubted(directory, one)
        one.topic = "xllm-kv"
        one.restart()
        directory.wait_synchronized(timeout=DEADLINE_S)
        one.prefill(tokens(1, 2))
        wait_agrees(directory, one, tokens(1, 2))


def test_a_quiet_engine_stays_synchronized(one: SimulatedEngine) -> None:
    prompt = tokens(1, 3)
    one.prefill(prompt)
    with follow(one, resync_interval_ms=20) as directory:
        wait_until(lambda: status(directory)["calibrations_total"] >= 30)
        wait_agrees(directory, one, prompt)
        now = status(directory)
        assert (now["synchronized"], sum(now["doubts"].values())) == (True, 0)
        assert now["sequences_lost_found_by_calibration_total"] == 0
        assert now["blocks_lost_found_by_calibration_total"] == 0


def test_a_busy_engine_loses_nothing(one: SimulatedEngine) -> None:
    with follow(one, resync_interval_ms=20) as directory:
        seed = 0
        while status(directory)["calibrations_total"] < 30:
            one.prefill(tokens(seed, 1))
            seed += 1
            # The engine answers under the lock that it publishes under.
            time.sleep(0.001)
        wait_agrees(directory, one, tokens(seed - 1, 1))
        now = status(directory)
        assert (now["synchronized"], sum(now["doubts"].values())) == (True, 0)
        assert now["sequences_lost_found_by_calibration_total"] == 0
        assert now["blocks_lost_found_by_calibration_total"] == 0


def test_a_lost_tail_is_counted_and_no_doubt(one: SimulatedEngine) -> None:
    with follow(one, resync_interval_ms=RESYNC_MS) as directory:
        one.prefill(tokens(1, 1))
        wait_agrees(directory, one, tokens(1, 1))
        one.faults.drop_next(2)
        one.prefill(tokens(2, 1))
        one.prefill(tokens(3, 3))
        wait_agrees(directory, one, tokens(3, 3))
        wait_until(lambda: status(directory)["sequences_lost_found_by_calibration_total"] == 2)
        now = status(directory)
        assert now["blocks_lost_found_by_calibration_total"] == 4
        assert (now["synchronized"], sum(now["doubts"].values())) == (True, 0)
        # The channel works: what comes over it is no loss.
        one.prefill(tokens(4, 1))
        wait_agrees(directory, one, tokens(4, 1))
        assert status(directory)["sequences_lost_found_by_calibration_total"] == 2
