"""A directory that answers from memory, and ways to ask an application around it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import httpx
from kvcache.exceptions import ClosedError, RequestError
from kvcache.server.app import create_app
from kvcache.server.settings import ServerSettings
from kvcache.service import Service

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from kvcache.types import StreamStatus

DEADLINE_SECONDS = 20.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


def status(name: str = "a:1", rank: int = 0, **changes: Any) -> StreamStatus:
    full: dict[str, Any] = {
        "instance_name": name,
        "dp_rank": rank,
        "state": "synchronized",
        "synchronized": True,
        "error": "",
        "last_error": "",
        "sequence": 7,
        "endpoint": "tcp://127.0.0.1:18000",
        "replay_endpoint": "tcp://127.0.0.1:38000",
        "topic": "xllm-kv",
        "block_size": 128,
        "hash_seed": 1024,
        "device_blocks": 11,
        "host_blocks": 12,
        "known_blocks": 30,
        "orphan_blocks": 1,
        "memory_bytes": 4096,
        "buffered_bytes": 0,
        "messages_total": 8,
        "bytes_total": 900,
        "messages_per_second": 0.5,
        "bytes_per_second": 90.0,
        "blocks_stored_total": 40,
        "blocks_removed_total": 17,
        "already_stored_total": 2,
        "already_removed_total": 3,
        "other_tier_total": 0,
        "orphaned_total": 1,
        "foreign_topic_total": 0,
        "connects_total": 1,
        "snapshots_total": 1,
        "snapshot_failures_total": 0,
        "calibrations_total": 4,
        "calibration_failures_total": 0,
        "sequences_lost_found_by_calibration_total": 6,
        "blocks_lost_found_by_calibration_total": 5,
        "doubts": {"gap": 2, "decode": 0, "disconnect": 0},
    }
    return full | changes  # type: ignore[return-value]


class FakeDirectory:
    """Echoes what it was asked, and fails on demand."""

    def __init__(self) -> None:
        self.statuses: list[StreamStatus] = [status(), status("b:1", 1)]
        self.failure: Exception | None = None
        self.bodies: list[bytes] = []
        self.threads: list[threading.Thread] = []
        self.closed = False

    def query_json(self, body: bytes) -> bytes:
        assert type(body) is bytes
        self.bodies.append(body)
        self.threads.append(threading.current_thread())
        if self.closed:
            raise ClosedError("the directory was closed")
        if self.failure is not None:
            raise self.failure
        try:
            token_ids = json.loads(body)["token_ids"]
        except ValueError as error:
            raise RequestError("invalid_json", "the body is not JSON") from error
        return json.dumps({"matches": [], "asked": len(token_ids)}).encode()

    def streams(self) -> list[StreamStatus]:
        if self.closed:
            raise ClosedError("the directory was closed")
        return self.statuses

    def close(self) -> None:
        self.closed = True


class App:
    """One application, asked without sockets."""

    def __init__(self, service: Service, settings: ServerSettings) -> None:
        self.app = create_app(service, settings)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://kv") as client:
                return await client.request(method, path, **more)

        return asyncio.run(once())

    def query(self, body: Any, **more: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", "/v1/internal/kv-cache/query", content=content, **more)


class Process:
    """`kvcache ARGS…` as a process; its stderr is collected as it comes."""

    def __init__(self, *args: str, env: dict[str, str] | None = None) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "kvcache", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | (env or {}),
            text=True,
        )
        self.stderr: list[str] = []
        self.stdout: list[str] = []
        self._readers = [
            threading.Thread(target=self._collect, args=pair, daemon=True)
            for pair in ((self._popen.stdout, self.stdout), (self._popen.stderr, self.stderr))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _collect(pipe: Any, lines: list[str]) -> None:
        with pipe:
            for line in pipe:
                lines.append(line.rstrip("\n"))  # noqa: PERF401  (others read as it grows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(DEADLINE_SECONDS)
        for reader in self._readers:
            reader.join(DEADLINE_SECONDS)

    def url(self) -> str:
        """Waits for the ready line and returns what it names."""
        start = "kvcache: serving on "

        def ready() -> bool:
            assert self._popen.poll() is None, self.stderr
            return any(line.startswith(start) for line in self.stderr)

        wait_until(ready, "the ready line")
        return next(line for line in self.stderr if line.startswith(start)).removeprefix(start)

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        code = self._popen.wait(seconds)
        for reader in self._readers:
            reader.join(DEADLINE_SECONDS)
        return code
