"""The model of an engine's cache, without sockets."""

from __future__ import annotations

import os
import random

import pytest
from engine_reader import BLOCK, tokens
from event_mirror import Mirror
from kvcache.testing import BlockCache


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
