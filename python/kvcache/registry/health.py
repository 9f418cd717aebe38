"""Asks an instance whether it is alive, when its lease is lost (spec: state machine of one instance).

The only file of this room that does I/O. `GET http://<name>/health` at the registered address itself: a
redirect, a proxy from the environment or a cookie would answer for somebody else. Bodies are never read.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final, Self

import httpx

from kvcache.endpoint import parse_endpoint

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "MAX_CONCURRENT_PROBES",
    "PROBE_ATTEMPTS",
    "PROBE_PAUSE_S",
    "PROBE_TIMEOUT_S",
    "HealthProbe",
]

PROBE_TIMEOUT_S: Final = 1.0
"""One attempt, from the look-up of the name to the status line and headers, in seconds."""

PROBE_ATTEMPTS: Final = 2
PROBE_PAUSE_S: Final = 0.1
"""Between two attempts, in seconds."""

MAX_CONCURRENT_PROBES: Final = 64
"""Attempts at one time; others wait their turn, and their time runs from then. When the leases of a fleet lapse
together, answers must not be late because of our own work: 128 at one time were, on a busy machine."""

_OK: Final = 200
_FAILURES: Final = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)


class HealthProbe:
    """Probes instances; an async context manager, used within one event loop."""

    def __init__(self, max_concurrent: int = MAX_CONCURRENT_PROBES) -> None:
        # The bare transport follows no redirect, reads no environment and keeps no cookie. The empty
        # TLS context is never used, and spares loading the system's certificates.
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )
        self._places = asyncio.Semaphore(max_concurrent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what is open."""
        await self._transport.aclose()

    async def is_alive(self, name: str) -> bool:
        """Whether the instance of this name, `host:port`, answers with status 200. Never raises but when cancelled."""
        for attempt in range(PROBE_ATTEMPTS):
            if attempt:
                await asyncio.sleep(PROBE_PAUSE_S)
            async with self._places:
                if await self._attempt(name):
                    return True
        return False

    async def _attempt(self, name: str) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                response = await self._transport.handle_async_request(_request(name))
                status = response.status_code
                await response.aclose()
        except (TimeoutError, *_FAILURES):
            return False
        return status == _OK


def _request(name: str) -> httpx.Request:
    """Build the request. Raises `ValueError`, `httpx.InvalidURL` for a name that is no address."""
    endpoint = parse_endpoint(f"tcp://{name}")
    # Resolvers want the zone of a link-local address bare, where a URL has it escaped.
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    url = f"http://{host}:{endpoint.port}/health"
    headers = {"User-Agent": "kvcache", "Accept": "*/*"}
    return httpx.Request("GET", url, headers=headers)
