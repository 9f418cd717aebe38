"""`GET /metrics`: Prometheus text, or OpenMetrics where the scraper asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request  # noqa: TC002  (the framework reads the annotation)
from starlette.responses import Response

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["metrics_router"]


def metrics_router(registry: CollectorRegistry) -> APIRouter:
    """The route, around a registry."""
    router = APIRouter()

    # Not async: thousands of series are rendered in a worker thread, beside the hot route.
    @router.get(
        "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
    )
    def metrics(request: Request) -> Response:
        """Metrics of streams, queries and the process."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    return router
