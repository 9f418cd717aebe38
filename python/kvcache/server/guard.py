"""The outermost layer: no request ends in a traceback, and none without an answer.

What nobody expected is logged once and answered with 500; a request that the shutdown cuts off
is answered with 503. HEAD is served as GET; the HTTP server leaves the body out.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kvcache.server.errors import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

_log = logging.getLogger("kvcache.server")


class Guard:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # A copy: the server must still see HEAD to leave the body out.
            scope = {**scope, "method": "GET"}
        started = False

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noting_send)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            _log.warning("cut off a request at shutdown: %s", ascii(scope["path"]))
            response = error_response(503, "shutting_down", "the service is shutting down")
        except Exception:  # noqa: BLE001  (whatever it is: the client gets an answer, the log a trace)
            _log.exception("unexpected error in a request: %s", ascii(scope["path"]))
            response = error_response(500, "internal_error", "unexpected error; see the log")
        else:
            return
        if not started:
            await response(scope, receive, send)
