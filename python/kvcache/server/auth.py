"""The token gate of `/v1/internal`.

It stands before the router, so that a caller without the token learns nothing: neither which
routes exist nor which methods they take, and no body of his is read. The comparison takes the
same time wherever the first difference is.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from kvcache.server.errors import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["TokenGate"]

_PREFIX: Final = "/v1/internal"
_HEADER: Final = b"x-internal-token"


class TokenGate:
    """ASGI middleware: 401 for a request under `/v1/internal` without the right token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets one request pass, or refuses it."""
        if scope["type"] != "http" or not _guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == _HEADER]
        if len(given) == 1 and hmac.compare_digest(given[0], self._token):
            await self._app(scope, receive, send)
            return
        reason = "is wrong" if given else "is missing"
        response = error_response(401, "unauthorized", f"the X-Internal-Token header {reason}")
        await response(scope, receive, send)


def _guarded(path: str) -> bool:
    return path == _PREFIX or path.startswith(_PREFIX + "/")
