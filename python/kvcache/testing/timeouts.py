"""`waitable`: a timeout as a test gives it, checked as the directory checks its own."""

from __future__ import annotations

import threading
from numbers import Real

__all__ = ["waitable"]

_RIGHT = "timeout must be a number of seconds from 0, or None or inf to wait for ever"


def waitable(timeout: float | None) -> float | None:
    """Give what a lock can wait for: None waits for ever, as does a number that is too large.

    Raises `TypeError`, `ValueError`.
    """
    if timeout is None:
        return None
    # Whoever is not checked by types may give anything.
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(f"{_RIGHT}: {timeout!r}")
    if not timeout >= 0:  # NaN does not compare
        raise ValueError(f"{_RIGHT}: {timeout!r}")
    return None if timeout > threading.TIMEOUT_MAX else float(timeout)
