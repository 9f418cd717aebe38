"""Every error of the service is `{"error": "one sentence", "code": "stable_snake_case"}`.

`error_response` is the only way to make one. The handler here turns what the router raises
(no such route, wrong method) into the same shape; what nobody expected is `guard`'s.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.exceptions import HTTPException
    from starlette.requests import Request

__all__ = ["error_response", "http_exception_handler"]

_MAX_ECHO_CHARS: Final = 200


def error_response(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """One error: an HTTP status, a stable code, and one sentence for a person."""
    return Response(
        json.dumps({"error": message, "code": code}),
        status_code=status,
        media_type="application/json",
        headers=headers,
    )


async def http_exception_handler(request: Request, exc: Exception) -> Response:
    """Answers for the router, which raises an `HTTPException` for 404 and 405."""
    # Registered for HTTPException alone; the signature is the framework's.
    error: HTTPException = exc  # type: ignore[assignment]
    if error.status_code == 404:  # noqa: PLR2004
        return error_response(404, "not_found", f"no such route: {_echo(request.url.path)}")
    if error.status_code == 405:  # noqa: PLR2004
        return _method_not_allowed(request, error.headers or {})
    return error_response(error.status_code, "http_error", str(error.detail), error.headers)


def _method_not_allowed(request: Request, headers: Mapping[str, str]) -> Response:
    allowed = {method.strip() for method in headers.get("Allow", "").split(",")} - {""}
    if "GET" in allowed:
        allowed.add("HEAD")  # served as GET without a body
    allow = {"Allow": ", ".join(sorted(allowed | {"OPTIONS"}))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=allow)
    return error_response(
        405, "method_not_allowed", f"this route does not take {_echo(request.method)}", allow
    )


def _echo(text: str) -> str:
    """What the client sent, on one line and bounded."""
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= _MAX_ECHO_CHARS else f"{shown[:_MAX_ECHO_CHARS]}…"
