"""`Rotation`: whose turn it is among candidates that are equally good.

The one whose last turn is the longest ago, by name: equal instances share exactly, a change of membership neither
skips nor repeats anyone, and it is fair whichever of them meet. (To go on behind the last name would not be: of two
pairs that take turns, each would always give its first.)
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_REMEMBERED", "Rotation"]

MAX_REMEMBERED: Final = 8192
"""Names remembered; of more, the half whose turns are the longest ago is forgotten, and counts as never chosen."""


class _Turns(dict[str, int]):
    """The number of each name's last turn, 0 before the first."""

    def __missing__(self, name: str) -> int:
        return 0


class Rotation:
    """Remembers turns. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns = _Turns()
        self._last = 0

    def take(self, names: Sequence[str], tied: Sequence[int]) -> int:
        """Which of `tied`, places in `names`, has its turn now: a place in `tied`."""
        if len(tied) == 1:
            return 0
        turn = self._turns.__getitem__
        equal = names if len(tied) == len(names) else [names[place] for place in tied]
        with self._lock:
            turns = list(map(turn, equal))
            at = turns.index(min(turns))
            self._last += 1
            self._turns[equal[at]] = self._last
            if len(self._turns) > MAX_REMEMBERED:
                self._forget()
        return at

    def _forget(self) -> None:
        kept = sorted(self._turns.items(), key=lambda item: item[1])[len(self._turns) // 2 :]
        self._turns.clear()
        self._turns.update(kept)
