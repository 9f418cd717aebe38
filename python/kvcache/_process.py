"""`Home`: the process that something runs in. A forked child has a copy of it, and none of its threads."""

from __future__ import annotations

import os
from typing import Final

from kvcache.exceptions import KvCacheError

__all__ = ["Home"]


class _Forks:
    """Forks between the process that imported this module and this one."""

    count = 0


def _forked() -> None:
    _Forks.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Home:
    """Where `what` runs: in the process that makes this, or nowhere until it settles."""

    __slots__ = ("_forks", "_what")

    def __init__(self, what: str, *, settled: bool = True) -> None:
        self._what: Final = what
        self._forks = _Forks.count if settled else None

    def settle(self) -> None:
        """It runs in this process from now on."""
        self._forks = _Forks.count

    def leave(self) -> None:
        """It runs nowhere any more; a child may start a copy of its own."""
        self._forks = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs in a process that this one was forked from."""
        return self._forks is not None and self._forks != _Forks.count

    def check(self) -> None:
        """Raises `KvCacheError` when it runs elsewhere: what it shows stands still here, and locks may be held for ever."""
        if self._forks is not None and self._forks != _Forks.count:
            # The words are those of the core's directory.
            raise KvCacheError(
                f"this {self._what} was started in another process, and its threads do not exist in "
                "this one: start it after the fork"
            )
