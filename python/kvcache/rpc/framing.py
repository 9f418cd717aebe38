"""Frames of brpc's standard protocol (`baidu_std`): bytes in, frames out, without I/O.

    "PRPC" | body size, u32 | meta size, u32 | meta | payload

Sizes are big-endian; the body is meta and payload, and the payload is the message with its attachment, which only
the meta can tell apart. Every size is checked as soon as it is there. The buffer grows with what has
arrived, never with what was announced.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kvcache.rpc.errors import FramingError

__all__ = [
    "HEADER_BYTES",
    "MAX_BODY_BYTES",
    "MAX_META_BYTES",
    "Frame",
    "FrameReader",
    "encode_frame",
]

MAX_BODY_BYTES: Final = 1 << 20
"""A heartbeat has some hundred bytes; an old engine adds 18 bytes for each block that changed since the last one."""

MAX_META_BYTES: Final = 64 * 1024
"""A meta has some hundred bytes; a user may add fields of his own."""

READ_AHEAD_BYTES: Final = 64 * 1024
"""What may be fed beyond one frame, before frames are taken out."""

_MAGIC: Final = b"PRPC"
_HEADER: Final = struct.Struct(">4sII")
HEADER_BYTES: Final = _HEADER.size


class Frame(NamedTuple):
    """One whole frame, its parts not read yet."""

    meta: bytes
    payload: bytes
    """The message and its attachment."""


def encode_frame(meta: bytes, message: bytes = b"") -> bytes:
    """The frame of a meta and a message without an attachment."""
    return _HEADER.pack(_MAGIC, len(meta) + len(message), len(meta)) + meta + message


class FrameReader:
    """Cuts the bytes of one connection into frames.

    Feed it, then take frames until there is none. `FramingError` is all that it raises; after one it keeps
    nothing and raises the same again.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._failed: str | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes kept: less than a frame of the largest size once `next_frame` has returned None."""
        return len(self._buffer)

    def feed(self, data: bytes | memoryview) -> None:
        """Bytes have arrived. Raises `FramingError` when frames are not taken out in between."""
        self._check()
        if len(self._buffer) + len(data) > HEADER_BYTES + MAX_BODY_BYTES + READ_AHEAD_BYTES:
            self._fail("more is sent than is read ahead")
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """The next whole frame, None before it is there. Raises `FramingError`."""
        self._check()
        buffer = self._buffer
        # An HTTP client is told apart by its first byte.
        if not _MAGIC.startswith(buffer[: len(_MAGIC)]):
            self._fail("the bytes are not of the protocol baidu_std")
        if len(buffer) < HEADER_BYTES:
            return None
        _, body_size, meta_size = _HEADER.unpack_from(buffer)
        if body_size > MAX_BODY_BYTES:
            self._fail(f"the body exceeds {MAX_BODY_BYTES} bytes: {body_size}")
        if meta_size > min(body_size, MAX_META_BYTES):
            limit = "the body" if meta_size > body_size else f"{MAX_META_BYTES} bytes"
            self._fail(f"the meta exceeds {limit}: {meta_size}")
        end = HEADER_BYTES + body_size
        if len(buffer) < end:
            return None
        middle = HEADER_BYTES + meta_size
        with memoryview(buffer) as view:
            frame = Frame(bytes(view[HEADER_BYTES:middle]), bytes(view[middle:end]))
        del buffer[:end]
        return frame

    def _check(self) -> None:
        if self._failed is not None:
            raise FramingError(self._failed)

    def _fail(self, reason: str) -> None:
        self._failed = reason
        self._buffer = bytearray()
        raise FramingError(reason)
