"""Alive and ready, under the names that probes of other systems use.

Alive means that the process answers. Ready means that the configuration is loaded and the
service listens: unsynchronized streams only lower the share in the body, since a fleet whose
engines restart must not take its router out of service.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import Response

from kvcache.exceptions import ClosedError
from kvcache.server.errors import error_response

if TYPE_CHECKING:
    from kvcache.service import Service

__all__ = ["health_router"]


def _etcd(service: Service) -> str | None:
    """Whether etcd is being followed; None without it. Without etcd the last known instances serve on."""
    if service.discovery is None:
        return None
    return "connected" if service.discovery.status.connected else "disconnected"


def health_router(service: Service) -> APIRouter:
    """The routes, around a service. They ask for no token: probes have none."""
    router = APIRouter()

    async def health() -> Response:
        """The process is alive."""
        return Response('{"status":"ok"}', media_type="application/json")

    async def ready() -> Response:
        """Configuration loaded and listening; the body has the share that is synchronized."""
        try:
            statuses = [] if service.closed else service.streams()
        except ClosedError:
            statuses = []
        if service.closed:
            return error_response(503, "shutting_down", "the service is shutting down")
        synchronized = sum(status["synchronized"] for status in statuses)
        body = {
            "status": "ready",
            "index": "enabled" if service.index_enabled else "disabled",
            "streams": len(statuses),
            "synchronized": synchronized,
            # Without streams there is nothing to have a share of.
            "synchronized_share": synchronized / len(statuses) if statuses else None,
            "etcd": _etcd(service),
        }
        return Response(json.dumps(body), media_type="application/json")

    documented: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}}}}
    for path, endpoint in {
        "/health": health,
        "/healthz": health,
        "/liveness": health,
        "/ready": ready,
        "/readyz": ready,
        "/readiness": ready,
    }.items():
        router.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            response_class=Response,
            responses=documented,
            name=path.strip("/"),
        )
    return router
