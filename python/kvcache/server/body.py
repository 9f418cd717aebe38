"""Reads a request body, and stops when it grows too large.

The limit holds for what is declared and for what arrives: a chunked body has no length, and a
declared one may lie. At most `limit` bytes and one chunk are held. Flow control is the server's:
nothing is read from the socket while nobody asks for more.

A body is JSON as UTF-8: one in another encoding, or compressed, is refused by its name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kvcache._core import refuse_encoding
from kvcache.exceptions import RequestError

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import Receive

__all__ = ["BodyTooLargeError", "ClientGoneError", "parse_object", "read_body"]

_MAX_ECHO_CHARS: Final = 40


class BodyTooLargeError(Exception):
    """The body exceeds the limit; the message says by what."""


class ClientGoneError(Exception):
    """The client went away before the body was whole."""


async def read_body(headers: Headers, receive: Receive, limit_bytes: int) -> bytes:
    """The whole body.

    Raises `BodyTooLargeError`, `ClientGoneError`; `RequestError` for a content encoding.
    """
    declared = encoding = ""
    # One pass, on the hot route; every `get` would be another.
    for name, value in headers.raw:
        if name == b"content-length":
            declared = value.decode("latin-1")
        elif name == b"content-encoding":
            encoding = value.decode("latin-1")
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
            if encoding:
                _refuse_content_encoding(encoding)
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises `RequestError`."""
    # `json` would read UTF-16 and UTF-32 too, as no other route does.
    refuse_encoding(body)
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("invalid_json", "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise RequestError("not_an_object", "the body must be a JSON object")
    return fields


def _refuse_content_encoding(named: str) -> None:
    if all(word.strip().lower() in {"", "identity"} for word in named.split(",")):
        return
    shown = ascii(named)[1:-1][:_MAX_ECHO_CHARS]
    raise RequestError(
        "invalid_json",
        f"the content encoding is not supported: {shown};"
        " send JSON as UTF-8 without a byte order mark, not compressed",
    )
