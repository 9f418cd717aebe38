"""Reads a request body, and stops when it grows too large.

The limit holds for what is declared and for what arrives: a chunked body has no length, and a
declared one may lie. At most `limit` bytes and one chunk are held. Flow control is the server's:
nothing is read from the socket while nobody asks for more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import Receive

__all__ = ["BodyTooLargeError", "ClientGoneError", "read_body"]


class BodyTooLargeError(Exception):
    """The body exceeds the limit; the message says by what."""


class ClientGoneError(Exception):
    """The client went away before the body was whole."""


async def read_body(headers: Headers, receive: Receive, limit_bytes: int) -> bytes:
    """The whole body. Raises `BodyTooLargeError`, `ClientGoneError`."""
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdecimal() and int(declared) > limit_bytes:
        raise BodyTooLargeError(f"the body exceeds {limit_bytes} bytes: {declared}")
    chunks: list[bytes] = []
    total = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        total += len(chunk)
        if total > limit_bytes:
            raise BodyTooLargeError(f"the body exceeds {limit_bytes} bytes")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
