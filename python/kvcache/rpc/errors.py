"""What can go wrong with a connection, and with one call on it.

RpcError
├── FramingError  the bytes are no frames of the protocol: nothing more can be read from this connection
└── CallError     one call is refused, with a code that its caller knows; the connection goes on
"""

from __future__ import annotations

from enum import IntEnum

from kvcache.exceptions import KvCacheError

__all__ = ["CallError", "ErrorCode", "FramingError", "RpcError"]


class ErrorCode(IntEnum):
    """brpc's numbers, as far as they are answered here; 0 is none."""

    NO_SERVICE = 1001
    NO_METHOD = 1002
    BAD_REQUEST = 1003
    INTERNAL = 2001
    OVERCROWDED = 2004


class RpcError(KvCacheError):
    """Base of everything about calls from engines."""


class FramingError(RpcError):
    """The bytes of a connection are no frames; what follows them has no meaning."""


class CallError(RpcError):
    """A call is refused; the message goes to the caller."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)
