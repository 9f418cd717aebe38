"""`POST /v1/internal/kv-cache/query`: the hot route.

The body goes to the directory as bytes and the answer comes back as bytes; nothing here parses
JSON, and the framework's validation is not on the way. Any content type is taken.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from kvcache.exceptions import ClosedError, RequestError
from kvcache.server.body import BodyTooLargeError, ClientGoneError, read_body
from kvcache.server.errors import error_response
from kvcache.service import IndexUnavailableError

if TYPE_CHECKING:
    from starlette.requests import Request

    from kvcache.metrics import QueryMetrics
    from kvcache.service import Service

__all__ = ["QUERY_PATH", "QueryRoute"]

QUERY_PATH: Final = "/v1/internal/kv-cache/query"

_INLINE_BODY_BYTES: Final = 256 * 1024
"""Up to here (about 0.3 ms) a query runs on the event loop: a hop to a thread costs a third of
that. Larger ones leave the loop free, since the directory works without the GIL."""


class QueryRoute:
    """Answers queries from a service and counts them."""

    def __init__(self, service: Service, metrics: QueryMetrics, max_body_bytes: int) -> None:
        self._service = service
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def answer(self, request: Request) -> Response:
        """One query; every refusal is an error response, never an exception."""
        try:
            body = await read_body(request.headers, request.receive, self._max_body_bytes)
            started = time.perf_counter()
            if len(body) <= _INLINE_BODY_BYTES:
                answer = self._service.query_json(body)
            else:
                answer = await asyncio.to_thread(self._service.query_json, body)
        except RequestError as refused:
            self._metrics.failed("invalid")
            return error_response(400, refused.code, str(refused))
        except BodyTooLargeError as refused:
            self._metrics.failed("too_large")
            return error_response(413, "body_too_large", str(refused))
        except ClientGoneError:
            self._metrics.failed("disconnected")
            return Response(status_code=400)  # to nobody
        except IndexUnavailableError as refused:
            self._metrics.failed("unavailable")
            return error_response(503, "index_disabled", str(refused))
        except ClosedError:
            self._metrics.failed("unavailable")
            return error_response(503, "shutting_down", "the service is shutting down")
        self._metrics.answered(time.perf_counter() - started, len(body))
        return Response(answer, media_type="application/json")
