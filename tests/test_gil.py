"""Queries release the GIL, short ones too."""

from __future__ import annotations

import sys
import threading
import time
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


def conversation() -> kvcache.Conversation:
    kept = kvcache.Conversation(2)
    kept.extend([1, 2, 3, 4])
    return kept


@pytest.mark.usefixtures("no_switching")
@pytest.mark.parametrize(
    "prompt", [[1, 2, 3, 4], kvcache.block_keys([1, 2, 3, 4], 2), conversation()], ids=type
)
def test_a_thread_that_queries_lets_others_run(prompt: Any) -> None:
    index = kvcache.PrefixIndex(block_size=2)
    index.store("a", [1, 2], [1, 2, 3, 4])
    stop = False
    told = False

    def ask() -> None:
        nonlocal told
        end = time.monotonic() + PATIENCE_SECONDS
        while not stop and time.monotonic() < end:
            index.query(prompt)
        told = stop

    asking = threading.Thread(target=ask)
    asking.start()
    # Reached only when the other thread gives the GIL away, or has given up.
    stop = True
    asking.join(2 * PATIENCE_SECONDS)
    assert told
