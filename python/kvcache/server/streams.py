"""`GET /v1/internal/streams`: the state of every stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from kvcache.exceptions import ClosedError
from kvcache.server.errors import error_response

if TYPE_CHECKING:
    from kvcache.service import Service

__all__ = ["streams_router"]


def streams_router(service: Service) -> APIRouter:
    """The route, around a service."""
    router = APIRouter()

    # Not async: up to 128 streams are rendered in a worker thread, beside the hot route.
    @router.get(
        "/v1/internal/streams",
        response_class=Response,
        responses={200: {"content": {"application/json": {}}}},
    )
    def streams() -> Response:
        """State of every stream: endpoints, rates, memory, last error, doubts by kind."""
        try:
            statuses = service.streams()
        except ClosedError:
            return error_response(503, "shutting_down", "the service is shutting down")
        return Response(json.dumps({"streams": statuses}), media_type="application/json")

    return router
