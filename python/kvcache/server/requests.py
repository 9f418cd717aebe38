"""`POST /v1/internal/requests`: how a routed request goes on, for policies that account for requests.

`{"request_id": "…", "event": "begin" | "first_token" | "token" | "finish" | "cancel"}`. Without these SLO_AWARE, which rests
on what is under way, sees idle instances. Other policies take no notice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from kvcache._core import MAX_REQUEST_ID_CHARS
from kvcache.exceptions import RequestError
from kvcache.server.body import BodyTooLargeError, ClientGoneError, parse_object, read_body
from kvcache.server.errors import error_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from kvcache.service import Service

__all__ = ["REQUESTS_PATH", "RequestsRoute"]

REQUESTS_PATH: Final = "/v1/internal/requests"
_MAX_BODY_BYTES: Final = 4096


class RequestsRoute:
    """Tells a service's router of one event at a time."""

    def __init__(self, service: Service) -> None:
        router = service.router
        self._events: dict[str, Callable[[str], bool]] = {
            "begin": router.begin,
            "first_token": router.first_token,
            "token": router.token,
            "finish": router.finish,
            "cancel": router.cancel,
        }

    async def answer(self, request: Request) -> Response:
        """Tell one event; `accounted` says whether the policy knew the request, and not this of it."""
        try:
            body = await read_body(request.headers, request.receive, _MAX_BODY_BYTES)
            request_id, event = self._parse(body)
        except BodyTooLargeError as refused:
            return error_response(413, "body_too_large", str(refused))
        except ClientGoneError:
            return Response(status_code=400)  # to nobody
        except RequestError as refused:
            return error_response(400, refused.code, str(refused))
        accounted = self._events[event](request_id)
        return Response(json.dumps({"accounted": accounted}), media_type="application/json")

    def _parse(self, body: bytes) -> tuple[str, str]:
        """Read the request id and the event. Raises `RequestError`."""
        fields = parse_object(body)
        if unknown := fields.keys() - {"request_id", "event"}:
            raise RequestError("unknown_field", f"unknown field: {ascii(min(unknown))[1:41]}")
        request_id, event = fields.get("request_id"), fields.get("event")
        # Bounded, as ends are remembered.
        if not isinstance(request_id, str) or not 0 < len(request_id) <= MAX_REQUEST_ID_CHARS:
            reason = f"request_id must be a string of 1 to {MAX_REQUEST_ID_CHARS} characters"
            raise RequestError("invalid_request_id", reason)
        if not isinstance(event, str) or event not in self._events:
            raise RequestError("invalid_event", f"event must be one of: {', '.join(self._events)}")
        return request_id, event
