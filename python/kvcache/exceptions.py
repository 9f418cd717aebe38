"""The exceptions of kvcache.

KvCacheError
├── ConfigError        a configuration that cannot be used; lists every fault with its path
├── TokenIdsError      token ids of a wrong type, or outside 0 … 2^32-1
├── RequestError       an HTTP body that is not a valid request; carries a stable code
├── StoreError         blocks that cannot be stored: unknown parent, conflict, limit, shape
├── WaitTimeoutError   streams did not synchronize in time
└── ClosedError        the directory was closed
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ClosedError",
    "ConfigError",
    "ConfigFault",
    "KvCacheError",
    "RequestError",
    "StoreError",
    "TokenIdsError",
    "WaitTimeoutError",
]


class KvCacheError(Exception):
    """Base of everything that kvcache raises on purpose."""


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


class WaitTimeoutError(KvCacheError, TimeoutError):
    """Streams did not synchronize in time; the message names them with their reasons."""


class ClosedError(KvCacheError, RuntimeError):
    """The directory was closed."""
