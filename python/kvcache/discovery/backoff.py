"""How long to wait before trying again."""

from __future__ import annotations

import random

__all__ = ["Backoff"]


class Backoff:
    """Doubles a bound from `min_s` to `max_s`, and waits anything up to it.

    Full jitter: replicas that lost etcd together do not come back together.
    """

    def __init__(self, min_s: float, max_s: float) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._bound_s = min_s

    def next(self) -> float:
        """Seconds to wait now."""
        bound_s = self._bound_s
        self._bound_s = min(bound_s * 2, self._max_s)
        return random.uniform(0, bound_s)  # noqa: S311  (jitter, not a secret)

    def reset(self) -> None:
        """What was tried works."""
        self._bound_s = self._min_s
