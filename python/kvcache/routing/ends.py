"""`Ends`: remembers which requests have ended, so that a begin that is told late enters nothing.

Begin and end of one request often travel on different connections, so that either may arrive first.
An end is remembered with the choice that it ended. A later choice under the same id is another try,
and begins as usual.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["END_AGE_S", "MAX_ENDS", "Ends"]

MAX_ENDS: Final = 65_536
"""Ends remembered at one time; of more, the oldest is forgotten.

They take 14 MB with ids of 36 characters, 28 with 256.
"""

END_AGE_S: Final = 60.0
"""Longer than a client retries a lost message, and so short that ids may be used again."""

_ANY_CHOICE: Final = -1


class _End(NamedTuple):
    at_s: float
    choice: int
    """The number of the choice that ended; `_ANY_CHOICE` as long as no begin was told."""


class Ends:
    """The last ends, by request id. Not thread-safe. Time is an argument and never goes back."""

    def __init__(self, max_ends: int = MAX_ENDS, age_s: float = END_AGE_S) -> None:
        self._max_ends = max_ends
        self._age_s = age_s
        self._ends: dict[str, _End] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, request_id: str, choice: int, now_s: float) -> None:
        """Remember that this choice ended."""
        self._ends.pop(request_id, None)
        self._ends[request_id] = _End(now_s, choice)
        self.forget(now_s)

    def add_early(self, request_id: str, now_s: float) -> None:
        """Remember the end of a request that nobody began. An end that is told twice is one."""
        if request_id not in self._ends:
            self.add(request_id, _ANY_CHOICE, now_s)

    def settles(self, request_id: str, choice: int, now_s: float) -> bool:
        """Whether a begin of this choice comes after its end, and enters nothing."""
        self.forget(now_s)
        end = self._ends.get(request_id)
        if end is None:
            return False
        if end.choice == _ANY_CHOICE:
            # From now on it is known what it ended, so that another try is not taken for the same.
            self._ends[request_id] = end._replace(choice=choice)
            return True
        return choice <= end.choice

    def forget(self, now_s: float) -> None:
        """Forget what is too old or too much."""
        while self._ends:
            oldest = next(iter(self._ends))
            young = now_s - self._ends[oldest].at_s < self._age_s
            if young and len(self._ends) <= self._max_ends:
                return
            del self._ends[oldest]
