"""An instance as the service meets it: registered in etcd, a health route, real engines at derived ports."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from kvcache.testing import SimulatedEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from etcd_server import Etcd

TYPES = {"DEFAULT": 0, "PREFILL": 1, "DECODE": 2, "MIX": 3}
EVENT_OFFSET, REPLAY_OFFSET = 10_000, 30_000
DEADLINE_S = 20.0
BLOCK = 128


def eventually(condition: Callable[[], object], what: str, within_s: float = DEADLINE_S) -> float:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + within_s, f"not in time: {what}"
        time.sleep(0.01)
    return time.monotonic() - started


def prompt(seed: int, blocks: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(2**32) for _ in range(blocks * BLOCK)]


def free_http_port(ranks: int) -> int:
    """One from which all derived ports are free too."""
    while True:
        port = random.randrange(20_000, 30_000)
        offsets = [
            0,
            *(one + rank for one in (EVENT_OFFSET, REPLAY_OFFSET) for rank in range(ranks)),
        ]
        with ExitStack() as held:
            try:
                for offset in offsets:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port + offset))
            except OSError:
                continue
        return port


class Registered:
    """Engines of `ranks` ranks, of which `dp_size` are registered. Ended by leaving the context."""

    def __init__(
        self, etcd: Etcd, *, ranks: int = 1, kind: str = "PREFILL", root: str = ""
    ) -> None:
        self.etcd = etcd
        self.kind = kind
        self.healthy = True
        self.port = free_http_port(ranks)
        self.name = f"127.0.0.1:{self.port}"
        self.lease = ""
        self._root = root
        self.engines = [
            SimulatedEngine(
                self.name,
                dp_rank=rank,
                endpoint=f"tcp://127.0.0.1:{self.port + EVENT_OFFSET + rank}",
                replay_endpoint=f"tcp://127.0.0.1:{self.port + REPLAY_OFFSET + rank}",
            )
            for rank in range(ranks)
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for engine in self.engines:
            self._stack.enter_context(engine)
        self._stack.enter_context(health_server(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def key(self, kind: str | None = None) -> str:
        return f"{self._root}XLLM:{kind or self.kind}:{self.name}"

    def value(self, incarnation: str | None = "i1", **fields: Any) -> str:
        value = {"name": self.name, "rpc_address": "", "type": TYPES[self.kind], "dp_size": 1}
        if incarnation is not None:
            value["incarnation_id"] = incarnation
        return json.dumps(value | fields)

    def register(self, incarnation: str | None = "i1", **fields: Any) -> Self:
        """Writes the registration, under a lease that lasts longer than any test."""
        granted = self.etcd.ctl("lease", "grant", "600").split()
        self.lease = granted[1]
        self.etcd.ctl("put", self.key(), self.value(incarnation, **fields), f"--lease={self.lease}")
        return self

    def lose_lease(self) -> None:
        self.etcd.ctl("lease", "revoke", self.lease)


class health_server:  # noqa: N801 - used as a function
    """Serves `GET /health` at an instance's name: 200 while it is healthy, else 503."""

    def __init__(self, instance: Registered) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if instance.healthy and self.path == "/health" else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", instance.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
