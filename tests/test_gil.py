"""Queries that take long enough release the GIL; short ones, and lists, keep it."""

from __future__ import annotations

import sys
import threading
import time
from array import array
from typing import TYPE_CHECKING, Any

import kvcache
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER_SECONDS = 60.0
PATIENCE_SECONDS = 10.0


@pytest.fixture
def no_switching() -> Iterator[None]:
    """A thread that computes keeps the GIL until it gives it away by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(NEVER_SECONDS)
    yield
    sys.setswitchinterval(before)


def conversation(token_ids: Any) -> kvcache.Conversation:
    kept = kvcache.Conversation(2)
    kept.extend(token_ids)
    return kept


def asked(prompt: Any, queries: int) -> bool:
    """Whether this thread ran while another asked that often, which otherwise gives up after a while."""
    index = kvcache.PrefixIndex(block_size=2)
    index.store("a", [1, 2], [1, 2, 3, 4])
    stop = False
    told = False

    def ask() -> None:
        nonlocal told
        end = time.monotonic() + PATIENCE_SECONDS
        for _ in range(queries):
            index.query(prompt)
            if stop or time.monotonic() > end:
                break
        told = stop

    asking = threading.Thread(target=ask)
    asking.start()
    # Reached only when the other thread gives the GIL away, or has ended.
    stop = True
    asking.join(2 * PATIENCE_SECONDS)
    return told


LONG = list(range(20_000))
SHORT = [1, 2, 3, 4]


@pytest.mark.usefixtures("no_switching")
@pytest.mark.parametrize(
    "prompt",
    [array("I", LONG), array("q", LONG), kvcache.block_keys(LONG, 2), conversation(LONG)],
    ids=lambda prompt: f"{type(prompt).__name__} {getattr(prompt, 'typecode', '')}",
)
def test_long_queries_let_others_run(prompt: Any) -> None:
    assert asked(prompt, 10**9)


@pytest.mark.usefixtures("no_switching")
@pytest.mark.parametrize(
    "prompt",
    [
        SHORT,
        array("I", SHORT),
        kvcache.block_keys(SHORT, 2),
        conversation(SHORT),
        LONG,
        tuple(LONG),
    ],
    ids=lambda prompt: (
        f"{type(prompt).__name__} of {len(prompt) if hasattr(prompt, '__len__') else ''}"
    ),
)
def test_short_queries_and_lists_keep_the_lock(prompt: Any) -> None:
    """Whoever waits for it may ask for it after a switch interval, which here is for ever."""
    assert not asked(prompt, 200)


@pytest.mark.usefixtures("no_switching")
def test_huge_lists_let_others_run() -> None:
    assert asked([*LONG] * 7, 10**9)
