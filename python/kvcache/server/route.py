"""`POST /v1/internal/route` and `GET /v1/internal/decisions`: who serves a prompt, why, and who served the last ones."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from kvcache._core import parse_route_request
from kvcache.exceptions import NoInstanceError, RequestError
from kvcache.server.body import BodyTooLargeError, ClientGoneError, read_body
from kvcache.server.errors import error_response

if TYPE_CHECKING:
    from starlette.requests import Request

    from kvcache.service import Service

__all__ = ["ROUTE_PATH", "RouteRoute", "decisions_router"]

ROUTE_PATH: Final = "/v1/internal/route"
_DECISIONS_PATH: Final = "/v1/internal/decisions"


class RouteRoute:
    """Chooses for requests by a service's router."""

    def __init__(self, service: Service, max_body_bytes: int) -> None:
        self._service = service
        self._max_body_bytes = max_body_bytes

    async def answer(self, request: Request) -> Response:
        """One choice; every refusal is an error response, never an exception."""
        try:
            body = await read_body(request.headers, request.receive, self._max_body_bytes)
            token_ids, request_id, explain = parse_route_request(body)
            decision = self._service.router.route(token_ids, request_id, explain)
        except RequestError as refused:
            return error_response(400, refused.code, str(refused))
        except BodyTooLargeError as refused:
            return error_response(413, "body_too_large", str(refused))
        except ClientGoneError:
            return Response(status_code=400)  # to nobody
        except NoInstanceError as nobody:
            return _no_instance(nobody)
        return Response(json.dumps(decision.to_dict()), media_type="application/json")


def _no_instance(nobody: NoInstanceError) -> Response:
    body: dict[str, Any] = {
        "error": str(nobody),
        "code": "no_instance",
        "excluded": dict(nobody.excluded),
    }
    return Response(json.dumps(body), status_code=503, media_type="application/json")


def decisions_router(service: Service) -> APIRouter:
    """The route of past decisions, around a service."""
    router = APIRouter()

    # Not async: a decision's explanation is worked out when it is asked for.
    @router.get(
        _DECISIONS_PATH,
        response_class=Response,
        responses={200: {"content": {"application/json": {}}}},
    )
    def decisions(request_id: str | None = None) -> Response:
        """The last decisions, newest first, with the terms that decided them.

        With `request_id` those of one request.
        Where the policy accounts for requests, `accounting` has how many are under way, and what
        was told out of order.
        """
        if request_id is None:
            found = service.router.decisions()[::-1]
        else:
            one = service.router.decision(request_id)
            found = [] if one is None else [one]
        body: dict[str, Any] = {"decisions": [decision.to_dict() for decision in found]}
        accounting = service.router.accounting_counts()
        if accounting is not None:
            body["accounting"] = dataclasses.asdict(accounting)
        return Response(json.dumps(body), media_type="application/json")

    return router
