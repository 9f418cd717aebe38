"""What each way into the index from Python costs beside the others, and each way to read an answer.

Nothing here fails for being slow. In a run of these, `nothing` is what a call and its answer cost alone, and
`BlockKeys` a walk without hashing.
"""

from __future__ import annotations

import array
import json
from typing import TYPE_CHECKING, Any

import kvcache
import numpy as np
import pytest
from kvcache import _core

if TYPE_CHECKING:
    from collections.abc import Callable

    import w1
    from pytest_benchmark.fixture import BenchmarkFixture

STREAMS, BLOCK_SIZE, PROMPT_TOKENS = 128, 16, 8192
TURN_TOKENS = 512


def conversation(tokens: w1.Tokens) -> kvcache.Conversation:
    begun = kvcache.Conversation(BLOCK_SIZE)
    begun.extend(tokens)
    return begun


WAYS_IN: dict[str, Callable[[w1.Tokens], Any]] = {
    "numpy uint32": lambda tokens: tokens,
    "numpy int32": lambda tokens: tokens.astype(np.int32),
    "numpy int64": lambda tokens: tokens.astype(np.int64),
    "array": lambda tokens: array.array("I", tokens.tolist()),
    "bytes": lambda tokens: tokens.tobytes(),
    "memoryview": lambda tokens: memoryview(tokens.tobytes()),
    "list": lambda tokens: tokens.tolist(),
    "tuple": lambda tokens: tuple(tokens.tolist()),
    "BlockKeys": lambda tokens: kvcache.block_keys(tokens, BLOCK_SIZE),
    "Conversation": conversation,
    "nothing": lambda tokens: tokens[:0],
}
"""What a query can be given."""

WAYS_OUT: dict[str, Callable[[kvcache.Matches], Any]] = {
    "an object a stream": lambda answer: [match.device_hit_tokens for match in answer],
    "a list": lambda answer: answer.device_hit_tokens.tolist(),
    "numpy": lambda answer: np.asarray(answer.device_hit_tokens),
}


@pytest.fixture(scope="module")
def prompt() -> w1.Tokens:
    return np.random.default_rng(1).integers(0, 150_000, PROMPT_TOKENS, dtype=np.uint32)


@pytest.fixture(scope="module")
def held(prompt: w1.Tokens) -> kvcache.PrefixIndex:
    """An index of streams that hold all of the prompt, or a half, a third, a quarter of it."""
    index = kvcache.PrefixIndex(BLOCK_SIZE)
    for stream in range(STREAMS):
        blocks = PROMPT_TOKENS // BLOCK_SIZE // (1 + stream % 4)
        tokens = prompt[: blocks * BLOCK_SIZE]
        index.store(f"10.0.0.{stream}:8000", list(range(blocks)), tokens)
    return index


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.benchmark(group=f"query {PROMPT_TOKENS} held tokens from Python")
def test_way_in(
    benchmark: BenchmarkFixture, way: str, prompt: w1.Tokens, held: kvcache.PrefixIndex
) -> None:
    answer = benchmark(held.query, WAYS_IN[way](prompt))
    assert max(answer.device_hit_tokens) == (0 if way == "nothing" else PROMPT_TOKENS)


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.benchmark(group=f"hits of {STREAMS} streams")
def test_way_out(
    benchmark: BenchmarkFixture, way: str, prompt: w1.Tokens, held: kvcache.PrefixIndex
) -> None:
    hits = benchmark(WAYS_OUT[way], held.query(prompt))
    assert (len(hits), max(hits)) == (STREAMS, PROMPT_TOKENS)


@pytest.mark.parametrize("way", ["hash all again", "Conversation"])
@pytest.mark.benchmark(group=f"a turn of {TURN_TOKENS} tokens after {PROMPT_TOKENS - TURN_TOKENS}")
def test_turn(
    benchmark: BenchmarkFixture, way: str, prompt: w1.Tokens, held: kvcache.PrefixIndex
) -> None:
    before, turn = PROMPT_TOKENS - TURN_TOKENS, prompt[-TURN_TOKENS:]
    chat = conversation(prompt[:before])

    def append() -> kvcache.Matches:
        chat.truncate(before)
        chat.extend(turn)
        return held.query(chat)

    answer = benchmark(append if way == "Conversation" else lambda: held.query(prompt))
    assert max(answer.device_hit_tokens) == PROMPT_TOKENS


@pytest.mark.parametrize("way", ["kvcache", "json.loads, then a list"])
@pytest.mark.benchmark(group=f"{PROMPT_TOKENS} tokens in an HTTP body")
def test_body(benchmark: BenchmarkFixture, way: str, prompt: w1.Tokens) -> None:
    """The directory follows nobody: what is compared is the parsing."""
    body = json.dumps({"token_ids": prompt.tolist()}).encode()
    with _core.Directory([]) as directory:
        ways: dict[str, Callable[[], Any]] = {
            "kvcache": lambda: directory.query_json(body),
            "json.loads, then a list": lambda: directory.query(json.loads(body)["token_ids"]),
        }
        benchmark(ways[way])
