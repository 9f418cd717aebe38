"""An OpenAI-compatible proxy that sends each request where most of its prompt is cached.

python router.py --port 9000 --policy CAR
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import socket
from typing import TYPE_CHECKING

import httpx
import kvcache
import uvicorn
from prompts import BLOCK_SIZE, token_ids
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request


def make_policy(name: str) -> kvcache.CacheAware | kvcache.RoundRobin:
    """Weights as docs/routing.md advises where requests come in bursts."""
    if name == "RR":
        return kvcache.RoundRobin()
    return kvcache.CacheAware(prefill_lambda=0.7, inflight_correction=True)


class Proxy:
    """Follows the engines that say they are there, and chooses among them."""

    def __init__(
        self, policy: str, directory: kvcache.Directory, client: httpx.AsyncClient
    ) -> None:
        self._directory = directory
        self._client = client
        self._registry = kvcache.Registry()
        self._router = kvcache.Router(directory, self._registry, make_policy(policy))
        self._streams: dict[str, kvcache.StreamSpec] = {}
        self._revisions = itertools.count(1)

    async def heartbeat(self, request: Request) -> Response:
        """An engine is alive; a process that is new is registered, and its stream followed from now on."""
        beat = await request.json()
        name, incarnation = beat["name"], beat["incarnation_id"]
        registration = kvcache.Registration(
            name, kvcache.InstanceType.DEFAULT, incarnation_id=incarnation
        )
        known = self._registry.snapshot().instances.get(name)
        if known is None or known.identity != registration.identity:
            self._registry.put(name, registration, next(self._revisions))
            # Hits count only for the process that is registered, which the stream therefore has to name.
            spec = kvcache.StreamSpec(**beat["stream"], identity=registration.identity)
            self._streams[name] = spec
            self._directory.set_streams(list(self._streams.values()))
        load = kvcache.Load.of(beat["load_metrics"])
        self._registry.record_heartbeat(name, incarnation_id=incarnation, load=load)
        return JSONResponse({"status": "ok"})

    async def status(self, _: Request) -> Response:
        """How many engines can be chosen, and how many of their caches are known."""
        streams = self._directory.streams()
        synchronized = sum(stream["synchronized"] for stream in streams)
        return JSONResponse({"engines": len(streams), "synchronized": synchronized})

    async def proxy(self, request: Request) -> Response:
        """Choose, and pass the engine's answer on as it comes, with the reason in its headers."""
        path = request.url.path
        try:
            body = await request.json()
            prompt = token_ids(path, body)
        except (ValueError, LookupError, TypeError, AttributeError):
            return refused(400, "the body is no request with a prompt")
        try:
            decision = self._router.route(prompt)
        except kvcache.NoInstanceError as error:
            return refused(503, str(error))
        asked = self._client.build_request("POST", f"http://{decision.prefill}{path}", json=body)
        try:
            answer = await self._client.send(asked, stream=True)
        except httpx.TransportError as error:
            return refused(502, f"{decision.prefill} does not answer: {error}")
        headers = {"content-type": answer.headers["content-type"], **reason(decision)}
        return StreamingResponse(passed_on(answer), answer.status_code, headers)


def refused(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)


def reason(decision: kvcache.Decision) -> dict[str, str]:
    """Why this engine, for whoever looks at one answer."""
    return {
        "x-kvcache-policy": decision.policy,
        "x-kvcache-instance": decision.prefill,
        "x-kvcache-decided-by": decision.prefill_decided_by,
        "x-kvcache-hit-tokens": f"{decision.hit_tokens}/{decision.token_count}",
    }


async def passed_on(answer: httpx.Response) -> AsyncIterator[bytes]:
    """The bytes as they come; whoever asked may go away at any time."""
    async with contextlib.aclosing(answer):
        async for piece in answer.aiter_raw():
            yield piece


async def serve(port: int, policy: str, duration: float | None) -> None:
    config = kvcache.KvEventsConfig.from_dict({"discovery": {"block_size": BLOCK_SIZE}})
    # As many streams at a time as there are.
    limits, timeout = httpx.Limits(), httpx.Timeout(60.0, connect=2.0)
    listener = socket.create_server(("127.0.0.1", port))
    with listener, kvcache.Directory(config) as directory:
        async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as client:
            proxy = Proxy(policy, directory, client)
            app = Starlette(
                routes=[
                    Route("/health", proxy.status),
                    Route("/heartbeat", proxy.heartbeat, methods=["POST"]),
                    Route("/v1/completions", proxy.proxy, methods=["POST"]),
                    Route("/v1/chat/completions", proxy.proxy, methods=["POST"]),
                ]
            )
            print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
            if duration is not None:
                asyncio.get_running_loop().call_later(
                    duration, setattr, server, "should_exit", True
                )
            await server.serve(sockets=[listener])


def main() -> None:
    parser = argparse.ArgumentParser(description="A cache-aware router.")
    parser.add_argument("--port", type=int, default=9000, help="0: any free one, which is printed")
    parser.add_argument("--policy", choices=("CAR", "RR"), default="CAR")
    parser.add_argument("--duration", type=float, help="seconds after which it ends by itself")
    args = parser.parse_args()
    asyncio.run(serve(args.port, args.policy, args.duration))


if __name__ == "__main__":
    main()
