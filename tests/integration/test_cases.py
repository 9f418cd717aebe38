"""Inputs that broke other systems, as a real publisher sends them; the smallest of each kind."""

from __future__ import annotations

import time
from typing import Any

import kvcache
import msgpack
import pytest
import zmq
from following import (
    BLOCK,
    engine,
    follow,
    hits,
    status,
    tokens,
    wait_agrees,
    wait_doubted,
    wait_until,
)
from kvcache.testing import ReplayFault, SimulatedEngine

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8]
FIRST, SECOND = PROMPT[:BLOCK], PROMPT[BLOCK:]


def store(hashes: list[Any], parent: Any, token_ids: list[Any], **more: Any) -> dict[str, Any]:
    event = {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": token_ids,
        "block_size": BLOCK,
        "medium": "GPU",
    }
    return event | more


def wait_hits(directory: kvcache.Directory, device: int, host_only: int = 0) -> None:
    expected = {("engine-a", 0): (device, host_only)}
    wait_until(
        lambda: hits(directory, PROMPT) == expected, f"{expected}: {hits(directory, PROMPT)}"
    )


def undoubted(directory: kvcache.Directory) -> bool:
    return sum(status(directory)["doubts"].values()) == 0


def test_unknown_keys_and_trailing_elements_are_skipped(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        event = store([2], None, FIRST, future_key={"x": [1, {"y": b"z"}]})
        payload = msgpack.packb([1.5, [event], 0, b"\0", {"more": []}])
        one.publish_frames([b"xllm-kv", (0).to_bytes(8, "big"), payload])
        wait_hits(directory, BLOCK)


def test_array_events_are_a_decode_error_and_visible(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        one.publish_batch([["BlockStored", [1], None, FIRST, BLOCK, None, "GPU"]])  # type: ignore[list-item]
        wait_doubted(directory, "decode")
        assert status(directory)["last_error"]


def test_signed_unsigned_and_bytes_name_one_block(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        one.publish_batch([store([-1], None, FIRST), store([5], 2**64 - 1, SECOND)])
        wait_hits(directory, 2 * BLOCK)
        one.publish_batch([store([b"?" * 24 + (5).to_bytes(8, "big")], -1, SECOND)])
        wait_until(lambda: status(directory)["already_stored_total"] == 1)
        one.publish_batch([{"type": "BlockRemoved", "block_hashes": [2**64 - 1], "medium": "gpu"}])
        wait_hits(directory, 0)
        one.publish_batch([store([0], None, FIRST)])
        wait_hits(directory, 2 * BLOCK)
        assert undoubted(directory)


@pytest.mark.parametrize("name", [1.5, "1", b"", b"1234567", None, True])
def test_what_is_no_block_hash_is_a_decode_error(one: SimulatedEngine, name: object) -> None:
    with follow(one) as directory:
        one.publish_batch([store([name], None, FIRST)])
        wait_doubted(directory, "decode")


@pytest.mark.parametrize("token", [-1, 2**32, 1.0, "1", None, True, [1, 2]])
def test_what_is_no_token_id_is_a_decode_error(one: SimulatedEngine, token: object) -> None:
    with follow(one) as directory:
        one.publish_batch([store([1], None, [token, 2, 3, 4])])
        wait_doubted(directory, "decode")


@pytest.mark.parametrize("size", [0, -16, 2 * BLOCK, 2**40])
def test_a_foreign_block_size_is_never_divided(one: SimulatedEngine, size: int) -> None:
    with follow(one) as directory:
        one.publish_batch([store([1], None, PROMPT, block_size=size)])
        wait_doubted(directory, "block_size")
        assert f"block size {size}, configured {BLOCK}" in status(directory)["last_error"]


def test_unknown_removals_are_harmless(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        one.publish_batch([{"type": "BlockRemoved", "block_hashes": [42], "medium": "gpu"}])
        one.publish_batch([store([42], None, FIRST)])
        wait_hits(directory, BLOCK)
        one.publish_batch([{"type": "BlockRemoved", "block_hashes": [42, 42, 43], "medium": "gpu"}])
        wait_hits(directory, 0)
        assert undoubted(directory)
        assert status(directory)["already_removed_total"] == 3
        assert status(directory)["device_blocks"] == 0


def test_one_name_with_two_contents_is_a_doubt(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        one.publish_batch([store([1], None, FIRST)])
        one.publish_batch([store([1], None, SECOND)])
        wait_doubted(directory, "wire_conflict")


def test_another_tier_makes_a_block_known_and_not_resident(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        one.publish_batch([store([1], None, FIRST, medium="disk")])
        one.publish_batch([store([2], 1, SECOND)])
        wait_until(lambda: status(directory)["device_blocks"] == 1)
        assert hits(directory, PROMPT) == {("engine-a", 0): (0, 0)}
        assert (status(directory)["other_tier_total"], undoubted(directory)) == (1, True)
        one.publish_batch([store([1], None, [])])
        wait_hits(directory, 2 * BLOCK)


def test_both_forms_of_the_end_marker_are_read(one: SimulatedEngine) -> None:
    one.prefill(PROMPT)
    one.faults.arm_replay(ReplayFault.FOUR_FRAME_END, None)
    with follow(one) as directory:
        assert hits(directory, PROMPT) == {("engine-a", 0): (2 * BLOCK, 0)}


def test_an_empty_payload_is_no_snapshot(one: SimulatedEngine) -> None:
    one.faults.arm_replay(ReplayFault.EMPTY_PAYLOAD, 1)
    with follow(one) as directory:
        assert status(directory)["doubts"]["replay"] == 1
        assert status(directory)["snapshot_failures_total"] == 1


def test_a_restarted_publisher_has_one_connection_again(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        for number in range(3):
            one.restart()
            one.prefill(tokens(number, 1))
            wait_agrees(directory, one, tokens(number, 1))
            wait_until(lambda: one.subscribers == 1)
        assert status(directory)["connects_total"] == 4


def test_same_tokens_under_other_hashes_on_one_host() -> None:
    with (
        engine("10.0.0.1:8000", hash_seed=1) as first,
        engine("10.0.0.1:8001", hash_seed=2) as second,
    ):
        prompt = tokens(1, 5)
        first.prefill(prompt[: 3 * BLOCK])
        second.prefill(prompt)
        with follow(first, second) as directory:
            assert hits(directory, prompt) == {
                ("10.0.0.1:8000", 0): (3 * BLOCK, 0),
                ("10.0.0.1:8001", 0): (5 * BLOCK, 0),
            }


def test_a_publisher_with_heartbeats_keeps_its_subscriber(one: SimulatedEngine) -> None:
    """A received PING is answered: libzmq drops a peer that does not within its timeout."""
    context = zmq.Context()
    publisher = context.socket(zmq.XPUB)
    publisher.setsockopt(zmq.HEARTBEAT_IVL, 50)
    publisher.setsockopt(zmq.HEARTBEAT_TIMEOUT, 200)
    publisher.setsockopt(zmq.LINGER, 0)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    try:
        config = one.stream_config() | {"endpoint": f"tcp://127.0.0.1:{port}"}
        with kvcache.Directory(
            kvcache.KvEventsConfig.from_dict({"streams": [config]})
        ) as directory:
            directory.wait_synchronized(timeout=30)
            end = time.monotonic() + 1.5
            sequence = 1
            while time.monotonic() < end:
                payload = msgpack.packb([0.0, [], 0])
                publisher.send_multipart([b"xllm-kv", sequence.to_bytes(8, "big"), payload])
                wait_until(lambda expected=sequence: status(directory)["sequence"] == expected)  # type: ignore[misc]
                sequence += 1
                time.sleep(0.25)  # longer than the publisher's patience with a silent peer
            assert status(directory)["connects_total"] == 1
            assert undoubted(directory)
    finally:
        publisher.close()
        context.term()
