"""What a query answers (spec: query, content keys), from engines over real TCP."""

from __future__ import annotations

import json

import kvcache
import pytest
from following import BLOCK, engine, follow, hits, status, tokens, wait_agrees, wait_until
from kvcache.testing import ReplayFault, SimulatedEngine


def test_device_and_host_copies_interleave_in_one_walk() -> None:
    with engine(host_blocks=64) as one:
        prompt = tokens(1, 5)
        one.prefill(prompt)
        names = one.wire_hashes(prompt)
        one.offload(prompt)
        one.evict([names[0], names[4]], "cpu")
        one.evict([names[1], names[3]], "gpu")
        with follow(one) as directory:
            assert hits(directory, prompt) == {("engine-a", 0): (3 * BLOCK, 2 * BLOCK)}
            one.evict([names[1]], "cpu")
            wait_agrees(directory, one, prompt)
            assert hits(directory, prompt) == {("engine-a", 0): (BLOCK, 0)}


def test_removing_one_tier_leaves_the_other(one: SimulatedEngine) -> None:
    prompt = tokens(1, 1)
    one.prefill(prompt)
    (name,) = one.wire_hashes(prompt)
    with follow(one) as directory:
        one.publish_batch(
            [{"type": "BlockStored", "block_hashes": [name], "block_size": 0, "medium": "CPU"}]
        )
        wait_until(lambda: directory.query(prompt)[0].host_blocks == 1)
        match = directory.query(prompt)[0]
        assert (match.device_hit_tokens, match.host_only_hit_tokens) == (BLOCK, 0), (
            "both tiers count as device"
        )
        one.publish_batch([{"type": "BlockRemoved", "block_hashes": [name], "medium": "gpu"}])
        wait_until(lambda: hits(directory, prompt) == {("engine-a", 0): (0, BLOCK)})
        one.publish_batch(
            [{"type": "BlockRemoved", "block_hashes": [name], "medium": "CPU_PINNED"}]
        )
        wait_until(lambda: hits(directory, prompt) == {("engine-a", 0): (0, 0)})
        # Known still: a tokenless store brings it back.
        one.publish_batch([{"type": "BlockStored", "block_hashes": [name], "medium": "gpu"}])
        wait_until(lambda: hits(directory, prompt) == {("engine-a", 0): (BLOCK, 0)})


def test_the_walk_stops_at_the_first_missing_block(one: SimulatedEngine) -> None:
    prompt = tokens(1, 5)
    one.prefill(prompt)
    with follow(one) as directory:
        one.evict([one.wire_hashes(prompt)[2]], "gpu")
        wait_agrees(directory, one, prompt)
        assert hits(directory, prompt) == {("engine-a", 0): (2 * BLOCK, 0)}
        assert directory.query(prompt)[0].device_blocks == 4
        one.prefill(prompt)
        wait_until(lambda: hits(directory, prompt) == {("engine-a", 0): (5 * BLOCK, 0)})


def test_a_partial_block_never_counts(one: SimulatedEngine) -> None:
    prompt = tokens(1, 2)
    one.prefill(prompt)
    with follow(one) as directory:
        for length, expected in ((0, 0), (BLOCK - 1, 0), (BLOCK, BLOCK), (2 * BLOCK - 1, BLOCK)):
            assert hits(directory, prompt[:length]) == {("engine-a", 0): (expected, 0)}
        assert hits(directory, [*prompt, 1]) == {("engine-a", 0): (2 * BLOCK, 0)}


def test_nothing_is_stitched_across_ranks_or_instances() -> None:
    prompt = tokens(1, 4)
    with engine("a", 0) as first, engine("a", 1) as second, engine("b", 0) as third:
        first.prefill(prompt[: 2 * BLOCK])
        second.prefill(prompt)
        second.evict(second.wire_hashes(prompt)[:1], "gpu")
        third.prefill(prompt[: 3 * BLOCK])
        with follow(third, second, first) as directory:
            assert hits(directory, prompt) == {
                ("a", 0): (2 * BLOCK, 0),
                ("a", 1): (0, 0),
                ("b", 0): (3 * BLOCK, 0),
            }
            assert [(m.instance_name, m.dp_rank) for m in directory.query(prompt)] == [
                ("a", 0),
                ("a", 1),
                ("b", 0),
            ]


def test_the_engines_own_hashes_do_not_matter() -> None:
    prompt = tokens(1, 3)
    with engine("a", hash_seed=1) as first, engine("b", hash_seed=2) as second:
        first.prefill(prompt)
        second.prefill(prompt)
        assert first.wire_hashes(prompt) != second.wire_hashes(prompt)
        with follow(first, second) as directory:
            assert set(hits(directory, prompt).values()) == {(3 * BLOCK, 0)}


def test_streams_of_different_block_sizes_in_one_directory() -> None:
    prompt = tokens(1, 4)
    with engine("a") as small, SimulatedEngine("b", block_size=2 * BLOCK) as large:
        small.prefill(prompt[: 3 * BLOCK])
        large.prefill(prompt[: 3 * BLOCK])
        with follow(small, large) as directory:
            assert hits(directory, prompt) == {("a", 0): (3 * BLOCK, 0), ("b", 0): (2 * BLOCK, 0)}
            keys = kvcache.block_keys(prompt, BLOCK)
            assert hits(directory, keys) == {("a", 0): (3 * BLOCK, 0), ("b", 0): (0, 0)}  # type: ignore[arg-type]


def test_json_answers_are_the_python_ones() -> None:
    with engine('quoted "name" \\ ü') as one:
        prompt = tokens(1, 2)
        one.prefill(prompt)
        with follow(one) as directory:
            answer = json.loads(directory.query_json(json.dumps({"token_ids": prompt}).encode()))
            (match,) = directory.query(prompt)
            assert answer == {
                "matches": [{field: getattr(match, field) for field in answer["matches"][0]}]
            }
            assert len(answer["matches"][0]) == 10


def test_status_without_tokens(one: SimulatedEngine) -> None:
    one.prefill(tokens(1, 3))
    with follow(one) as directory:
        (match,) = directory.query([])
        assert (match.synchronized, match.device_blocks, match.reusable_prefix_tokens) == (
            True,
            3,
            0,
        )


def test_before_the_first_view_there_is_no_sequence(one: SimulatedEngine) -> None:
    one.faults.arm_replay(ReplayFault.SILENT, None)
    with follow(one, synchronized=False) as directory:
        wait_until(lambda: status(directory)["state"] == "snapshotting")
        (match,) = directory.query(tokens(1, 1))
        assert (match.sequence, match.synchronized) == (None, False)
        assert match.error
        with pytest.raises(kvcache.WaitTimeoutError, match="engine-a#0"):
            directory.wait_synchronized(timeout=0.05)


def test_a_closed_directory_says_so(one: SimulatedEngine) -> None:
    with follow(one) as directory:
        pass
    with pytest.raises(kvcache.ClosedError):
        directory.query([])
    directory.close()
