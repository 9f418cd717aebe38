"""A simulated engine behind an OpenAI-compatible API: it answers words, but its cache and its events are real.

python engine.py --router http://127.0.0.1:9000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import uuid
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn
from kvcache.testing import SimulatedEngine
from prompts import BLOCK_SIZE, token_ids
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request

DEVICE_BLOCKS = 1600
PREFILL_TOKENS_PER_S = 20_000.0
DECODE_TOKENS_PER_S = 500.0
HEARTBEAT_S, GIVE_UP_S = 0.1, 5.0
WORDS = ("a", "block", "is", "where", "the", "cache", "keeps", "what", "it", "was", "told")


class Engine:
    """One prefill at a time; of a prompt only what is not cached takes time."""

    def __init__(self, name: str, cache: SimulatedEngine) -> None:
        self.name = name
        self.incarnation = uuid.uuid4().hex
        self._cache = cache
        self._prefilling = asyncio.Lock()
        self._waiting = 0

    def heartbeat(self) -> dict[str, Any]:
        """Who this is, where it publishes, and how busy it is."""
        return {
            "name": self.name,
            "incarnation_id": self.incarnation,
            "stream": self._cache.stream_config(),
            "load_metrics": {
                "waiting_requests_num": self._waiting,
                "gpu_cache_usage_perc": self._cache.device_block_count / DEVICE_BLOCKS,
            },
        }

    async def prefill(self, prompt: Sequence[int]) -> int:
        """Compute a prompt, and publish what that stored and evicted. Returns the tokens that were cached."""
        self._waiting += 1
        try:
            await self._prefilling.acquire()
        finally:
            self._waiting -= 1
        try:
            cached = sum(self._cache.expected_match(prompt))
            await asyncio.sleep((len(prompt) - cached) / PREFILL_TOKENS_PER_S)
            self._cache.prefill(prompt)
        finally:
            self._prefilling.release()
        return cached

    async def answer(self, request: Request) -> Response:
        """`/v1/completions` and `/v1/chat/completions`, streamed."""
        path, body = request.url.path, await request.json()
        prompt = token_ids(path, body)
        events = self._events(path, prompt, body.get("max_tokens", 16))
        return StreamingResponse(events, media_type="text/event-stream")

    async def _events(self, path: str, prompt: Sequence[int], count: int) -> AsyncIterator[str]:
        cached = await self.prefill(prompt)
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": count,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        for number in range(count):
            # The same prompt is answered the same.
            word = WORDS[(len(prompt) + number) % len(WORDS)] + " "
            yield event(path, word, usage if number + 1 == count else None)
            await asyncio.sleep(1 / DECODE_TOKENS_PER_S)
        yield "data: [DONE]\n\n"


def event(path: str, word: str, usage: dict[str, Any] | None) -> str:
    """One token as a server-sent event; the last one has the usage."""
    chat = path.endswith("/chat/completions")
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if usage else None}
    choice |= {"delta": {"content": word}} if chat else {"text": word}
    chunk = {
        "object": "chat.completion.chunk" if chat else "text_completion",
        "choices": [choice],
        "usage": usage,
    }
    return f"data: {json.dumps(chunk)}\n\n"


async def send_heartbeats(engine: Engine, router: str, server: uvicorn.Server) -> None:
    """Until the router has not listened for seconds; then the engine ends."""
    loop = asyncio.get_running_loop()
    heard_at_s = loop.time()
    async with httpx.AsyncClient(base_url=router, timeout=1.0, trust_env=False) as client:
        while loop.time() < heard_at_s + GIVE_UP_S:
            with contextlib.suppress(httpx.TransportError):
                await client.post("/heartbeat", json=engine.heartbeat())
                heard_at_s = loop.time()
            await asyncio.sleep(HEARTBEAT_S)
    server.should_exit = True


async def serve(port: int, router: str) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        name = f"127.0.0.1:{listener.getsockname()[1]}"
        cache = SimulatedEngine(name, block_size=BLOCK_SIZE, device_blocks=DEVICE_BLOCKS)
        with cache:
            engine = Engine(name, cache)
            app = Starlette(
                routes=[
                    Route("/health", lambda _: JSONResponse({"status": "ok"})),
                    Route("/v1/completions", engine.answer, methods=["POST"]),
                    Route("/v1/chat/completions", engine.answer, methods=["POST"]),
                ]
            )
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
            beats = asyncio.create_task(send_heartbeats(engine, router, server))
            await server.serve(sockets=[listener])
            beats.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description="A simulated engine.")
    parser.add_argument("--router", required=True, help="URL of the router to serve under")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    args = parser.parse_args()
    asyncio.run(serve(args.port, args.router))


if __name__ == "__main__":
    main()
