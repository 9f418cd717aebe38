"""`Turns`: connections with something to do take turns, a few milliseconds at a time.

However many they are and however much they send, others in the same event loop wait no longer than that.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Turns"]

_SLICE_S: Final = 0.002


class Turns:
    """For one event loop."""

    def __init__(self, slice_s: float = _SLICE_S) -> None:
        self._slice_s = slice_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = False

    def add(self, turn: Callable[[], None]) -> None:
        """Have `turn` called soon, after those that wait already; it must be short and never raise."""
        self._waiting.append(turn)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        end_s = time.monotonic() + self._slice_s
        while self._waiting:
            self._waiting.popleft()()
            if time.monotonic() >= end_s:
                break
        self._due = bool(self._waiting)
        if self._due:
            asyncio.get_running_loop().call_soon(self._take)
