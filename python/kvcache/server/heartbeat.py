"""`POST /v1/internal/heartbeat`: an instance says that it is alive, and how busy it is.

Unknown fields are ignored, as engines send more than is needed here. An illegal load is accepted: the
instance is alive, and excluded from choices until a legal one arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from kvcache.exceptions import RequestError
from kvcache.registry.model import Latency, Load
from kvcache.registry.registry import MAX_NAME_CHARS, HeartbeatOutcome
from kvcache.server.body import BodyTooLargeError, ClientGoneError, parse_object, read_body
from kvcache.server.errors import error_response

if TYPE_CHECKING:
    from starlette.requests import Request

    from kvcache.service import Service

__all__ = ["HEARTBEAT_PATH", "HeartbeatRoute"]

HEARTBEAT_PATH: Final = "/v1/internal/heartbeat"
_MAX_BODY_BYTES: Final = 64 * 1024


class HeartbeatRoute:
    """Hands heartbeats to a service's registry."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, request: Request) -> Response:
        """One heartbeat; every refusal is an error response, never an exception."""
        try:
            body = await read_body(request.headers, request.receive, _MAX_BODY_BYTES)
            heartbeat = _parse(body)
        except BodyTooLargeError as refused:
            return error_response(413, "body_too_large", str(refused))
        except ClientGoneError:
            return Response(status_code=400)  # to nobody
        except RequestError as refused:
            return error_response(400, refused.code, str(refused))
        return self._record(heartbeat)

    def _record(self, heartbeat: dict[str, Any]) -> Response:
        name = heartbeat["name"]
        has_load = "load_metrics" in heartbeat
        outcome = self._service.registry.record_heartbeat(
            name,
            incarnation_id=heartbeat.get("incarnation_id") or "",
            load=Load.of(heartbeat["load_metrics"]) if has_load else None,
            latency=Latency.of(heartbeat.get("latency_metrics")),
        )
        if outcome is HeartbeatOutcome.UNKNOWN:
            return error_response(404, "unknown_instance", "no instance is registered by this name")
        if outcome is HeartbeatOutcome.OTHER_INCARNATION:
            reason = "another incarnation of this instance is registered"
            return error_response(409, "other_incarnation", reason)
        return Response('{"status":"ok"}', media_type="application/json")


def _parse(body: bytes) -> dict[str, Any]:
    heartbeat = parse_object(body)
    name, incarnation_id = heartbeat.get("name"), heartbeat.get("incarnation_id")
    incarnation_id = "" if incarnation_id is None else incarnation_id
    # Bounded, as the registry remembers whom it warned of.
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
        raise RequestError("invalid_name", "name must be the instance's registered host:port")
    if not isinstance(incarnation_id, str) or len(incarnation_id) > MAX_NAME_CHARS:
        raise RequestError("invalid_incarnation_id", "incarnation_id must be a string")
    return heartbeat
