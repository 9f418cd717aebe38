"""`Told`: what was logged already, so that a repeated fault is one line and not a flood."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["MAX_TOLD", "Told"]

MAX_TOLD: Final = 1024
"""Things remembered; the one that was met the longest ago is forgotten first, and may be told again."""


class Told:
    """Remembers the latest things that were told. Not thread-safe; its owner guards it."""

    def __init__(self, limit: int = MAX_TOLD) -> None:
        self._limit = limit
        self._told: OrderedDict[Hashable, None] = OrderedDict()

    def is_new(self, thing: Hashable) -> bool:
        """Whether this was not told yet; from now on it was."""
        new = thing not in self._told
        self._told[thing] = None
        self._told.move_to_end(thing)
        if len(self._told) > self._limit:
            self._told.popitem(last=False)
        return new
