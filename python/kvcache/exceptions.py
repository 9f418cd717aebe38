"""The exceptions of kvcache.

KvCacheError
├── ConfigError        a configuration that cannot be used; lists every fault with its path
├── TokenIdsError      token ids of a wrong type, or outside 0 … 2^32-1
├── RequestError       an HTTP body that is not a valid request; carries a stable code
├── StoreError         blocks that cannot be stored: unknown parent, conflict, limit, shape
├── NoInstanceError    no instance can serve a request; says of each why not
├── WaitTimeoutError   streams did not synchronize in time
└── ClosedError        the directory was closed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kvcache._frozen import FrozenMapping

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ClosedError",
    "ConfigError",
    "ConfigFault",
    "KvCacheError",
    "NoInstanceError",
    "RequestError",
    "StoreError",
    "TokenIdsError",
    "WaitTimeoutError",
]


class KvCacheError(Exception):
    """Base of everything that kvcache raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is made anew from its arguments, which here are its message alone.
        return _raised_elsewhere, (type(self), self.args, self.__dict__)


def _raised_elsewhere(
    kind: type[KvCacheError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> KvCacheError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One thing that is wrong with a configuration.

    `path` is where: dotted keys, list items as `[i]` (`streams[2].endpoint`); empty for the whole.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(KvCacheError, ValueError):
    """A configuration that cannot be used; `faults` has every fault, not only the first."""

    def __init__(self, faults: list[ConfigFault]) -> None:
        self.faults = faults
        super().__init__("\n".join(str(fault) for fault in faults))


class TokenIdsError(KvCacheError, ValueError):
    """Token ids of a wrong type, or outside 0 … 2^32-1; the message names the first bad entry."""


class RequestError(KvCacheError, ValueError):
    """An HTTP body that is not a valid request; `code` is stable snake_case."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class StoreError(KvCacheError, ValueError):
    """Blocks that cannot be stored; the index is as it was before the call."""


class NoInstanceError(KvCacheError):
    """No instance can serve a request now; `excluded` has the reason of each, by name."""

    def __init__(self, excluded: Mapping[str, str]) -> None:
        self.excluded: Mapping[str, str] = FrozenMapping(dict(excluded))
        super().__init__(f"no instance can serve: {_reasons(self.excluded)}")


_MAX_REASONS: Final = 8


def _reasons(excluded: Mapping[str, str]) -> str:
    if not excluded:
        return "none is registered"
    reasons = [f"{name}: {reason}" for name, reason in list(excluded.items())[:_MAX_REASONS]]
    if len(excluded) > _MAX_REASONS:
        reasons.append(f"and {len(excluded) - _MAX_REASONS} more")
    return "; ".join(reasons)


class WaitTimeoutError(KvCacheError, TimeoutError):
    """Streams did not synchronize in time; the message names them with their reasons."""


class ClosedError(KvCacheError, RuntimeError):
    """The directory was closed."""
