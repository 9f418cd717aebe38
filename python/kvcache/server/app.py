"""`create_app`: the ASGI application around a service.

It wires routes and layers and decides nothing else. From the outside in: guard (no traceback),
token gate, router. The interactive pages of the framework are off, since they load their scripts
from the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import Route

from kvcache._core import __version__
from kvcache.metrics import QueryMetrics, build_registry
from kvcache.server.auth import TokenGate
from kvcache.server.errors import http_exception_handler
from kvcache.server.guard import Guard
from kvcache.server.health import health_router
from kvcache.server.heartbeat import HEARTBEAT_PATH, HeartbeatRoute
from kvcache.server.instances import instances_router
from kvcache.server.openapi import (
    DESCRIPTION,
    HEARTBEAT_OPERATION,
    QUERY_OPERATION,
    REQUESTS_OPERATION,
    ROUTE_OPERATION,
)
from kvcache.server.query import QUERY_PATH, QueryRoute
from kvcache.server.requests import REQUESTS_PATH, RequestsRoute
from kvcache.server.route import ROUTE_PATH, RouteRoute, decisions_router
from kvcache.server.scrape import metrics_router
from kvcache.server.streams import streams_router

if TYPE_CHECKING:
    from kvcache.server.settings import ServerSettings
    from kvcache.service import Service

__all__ = ["create_app"]


class _App(FastAPI):
    """Adds the routes that are not the framework's to the framework's API description."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, built once."""
        document = super().openapi()
        document["paths"].setdefault(QUERY_PATH, {"post": QUERY_OPERATION})
        document["paths"].setdefault(HEARTBEAT_PATH, {"post": HEARTBEAT_OPERATION})
        document["paths"].setdefault(ROUTE_PATH, {"post": ROUTE_OPERATION})
        document["paths"].setdefault(REQUESTS_PATH, {"post": REQUESTS_OPERATION})
        return document


def create_app(service: Service, settings: ServerSettings) -> FastAPI:
    """The application. The caller owns `service` and closes it after the last request."""
    queries = QueryMetrics()
    app = _App(
        title="kvcache",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        # A redirect would be built from the client's own Host header.
        redirect_slashes=False,
        exception_handlers={HTTPException: http_exception_handler},
    )
    query = QueryRoute(service, queries, settings.max_body_bytes)
    app.router.routes.append(Route(QUERY_PATH, query.answer, methods=["POST"]))
    heartbeat = HeartbeatRoute(service)
    app.router.routes.append(Route(HEARTBEAT_PATH, heartbeat.answer, methods=["POST"]))
    route = RouteRoute(service, settings.max_body_bytes)
    app.router.routes.append(Route(ROUTE_PATH, route.answer, methods=["POST"]))
    requests = RequestsRoute(service)
    app.router.routes.append(Route(REQUESTS_PATH, requests.answer, methods=["POST"]))
    app.include_router(decisions_router(service))
    app.include_router(streams_router(service))
    app.include_router(instances_router(service))
    app.include_router(health_router(service))
    app.include_router(metrics_router(build_registry(service, queries, __version__)))
    # The last one added is the outermost.
    if settings.internal_api_token is not None:
        app.add_middleware(TokenGate, token=settings.internal_api_token)
    app.add_middleware(Guard)
    return app
