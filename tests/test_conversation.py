"""`Conversation`: what a next turn appends is hashed, and the keys are those of all tokens."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import kvcache
import numpy as np
import pytest


def same(one: kvcache.BlockKeys, other: kvcache.BlockKeys) -> bool:
    return (one.block_hashes, one.content_keys) == (other.block_hashes, other.content_keys)


def test_any_turns_are_the_tokens_hashed_at_once() -> None:
    seed = int(os.environ.get("KVCACHE_SEED", random.SystemRandom().getrandbits(32)))
    print(f"KVCACHE_SEED={seed}")
    rng = random.Random(seed)
    for _ in range(100):
        block_size, hash_seed = rng.choice([1, 2, 3, 8, 16, 32, 100]), rng.getrandbits(64)
        conversation = kvcache.Conversation(block_size, hash_seed=hash_seed)
        tokens: list[int] = []
        for _turn in range(rng.randrange(1, 12)):
            if rng.random() < 0.2:
                asked = rng.randrange(len(tokens) + 3)
                left = conversation.truncate(asked)
                assert 0 <= min(asked, len(tokens)) - left < block_size
                del tokens[left:]
            else:
                turn = [rng.getrandbits(32) for _ in range(rng.randrange(3 * block_size + 2))]
                conversation.extend(np.array(turn, dtype=np.uint32) if len(turn) % 2 else turn)
                tokens += turn
            assert conversation.token_count == len(tokens)
            expected = kvcache.block_keys(tokens, block_size, hash_seed)
            assert same(conversation.block_keys(), expected)


def test_is_asked_about_like_its_tokens() -> None:
    index = kvcache.PrefixIndex(block_size=2)
    index.store("a", [1, 2, 3], [1, 2, 3, 4, 5, 6])
    conversation = kvcache.Conversation(block_size=2)
    held = []
    for turn in ([1], [2, 3], [4, 5, 6], [7, 8]):
        conversation.extend(turn)
        held.append(index.query(conversation)[0].device_hit_tokens)
    assert held == [0, 2, 6, 6]
    keys = conversation.block_keys()
    assert conversation.truncate(3) == 2
    assert index.query(conversation)[0].device_hit_tokens == 2
    assert index.query(keys)[0].device_hit_tokens == 6
    with pytest.raises(ValueError, match="block size 4"):
        index.query(kvcache.Conversation(block_size=4))
    with pytest.raises(ValueError, match="seed 7"):
        index.query(kvcache.Conversation(block_size=2, hash_seed=7))


def test_a_bad_turn_appends_nothing() -> None:
    conversation = kvcache.Conversation(block_size=2)
    conversation.extend([1, 2, 3])
    for bad in ([4, -1], [4, 2**32], "4", np.array([4, -1]), b"123"):
        turn: Any = bad
        with pytest.raises(kvcache.TokenIdsError):
            conversation.extend(turn)
    assert repr(conversation) == "Conversation(block_size=2, hash_seed=1024, token_count=3)"


def test_arguments() -> None:
    conversation = kvcache.Conversation()
    assert (conversation.block_size, conversation.hash_seed, conversation.token_count) == (
        128,
        1024,
        0,
    )
    with pytest.raises(ValueError, match="at least 1"):
        kvcache.Conversation(0)
    with pytest.raises(OverflowError):
        conversation.truncate(-1)


def test_queries_beside_turns_see_whole_turns() -> None:
    turn, turns = 4 * 16, 300
    index = kvcache.PrefixIndex(block_size=16)
    tokens = np.arange(turn * turns, dtype=np.uint32)
    index.store("a", list(range(len(tokens) // 16)), tokens)
    conversation = kvcache.Conversation(block_size=16)

    def grow() -> None:
        for start in range(0, len(tokens), turn):
            conversation.extend(tokens[start : start + turn])

    writer = threading.Thread(target=grow)
    writer.start()
    seen = [0]
    while seen[-1] < len(tokens):
        seen.append(index.query(conversation).device_hit_tokens[0])
        assert seen[-1] % turn == 0
        assert writer.is_alive() or index.query(conversation).device_hit_tokens[0] == len(tokens)
    writer.join()
    assert seen == sorted(seen)
