"""`Stays`: what lives in one process and can be neither pickled nor copied says so."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

__all__ = ["Stays"]


class Stays:
    """Base of what has threads, sockets or locks of its own."""

    __slots__ = ()

    _stays: ClassVar[str]
    """Why, and what to do instead: "it has …: make …"."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be pickled or copied, as {self._stays}")
