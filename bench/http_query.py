"""A query of 32,768 tokens over HTTP, beside the same request to a route that answers a constant.

    python bench/http_query.py [REQUESTS A ROUND]

The constant's server has the same layers and reads the same body to its end; only the directory is not asked. Each
serves in a process of its own, and they are asked in turns over one kept connection each.
"""

from __future__ import annotations

import http.client
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kvcache.server.app import create_app
from kvcache.server.listen import base_url, bind
from kvcache.server.query import QUERY_PATH
from kvcache.server.run import Server
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from kvcache.testing import SimulatedEngine, SimulatedFleet

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENS, STREAMS, ROUNDS = 32_768, 8, 5
HOST = "127.0.0.1"
READY = "kvcache: serving on "
PATIENCE_S = 30.0


class Constant(Service):
    """Has one answer, whatever is asked."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(None)
        self._answer = answer

    def query_json(self, _body: bytes) -> bytes:
        return self._answer


def serve_constant(answer: bytes) -> None:
    with bind(HOST, 0) as listener:
        url = base_url(HOST, listener.getsockname()[1])

        def ready() -> None:
            print(f"{READY}{url}", file=sys.stderr, flush=True)

        Server(create_app(Constant(answer), ServerSettings()), ready).run(sockets=[listener])


@contextmanager
def serving(*command: str) -> Iterator[http.client.HTTPConnection]:
    """A connection to a server that says on stderr when it is ready."""
    server = subprocess.Popen(  # noqa: S603 (our own arguments)
        [sys.executable, *command], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if line.startswith(READY))
        url = urlsplit(line.removeprefix(READY).strip())
        connection = http.client.HTTPConnection(url.netloc, timeout=PATIENCE_S)
        yield connection
        connection.close()
    finally:
        server.terminate()
        server.communicate()


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    connection.request("POST", QUERY_PATH, body)
    response = connection.getresponse()
    answer = response.read()
    assert response.status == 200, answer
    return answer


def wait_for_hits(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    """The answer once every stream holds the whole prompt."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = post(connection, body)
        hits = [match["device_hit_tokens"] for match in json.loads(answer)["matches"]]
        if hits == [TOKENS] * STREAMS:
            return answer
        assert time.monotonic() < deadline, f"never held: {hits}"
        time.sleep(0.02)


def median_ms(connection: http.client.HTTPConnection, body: bytes, requests: int) -> float:
    times = []
    for _ in range(requests):
        start = time.perf_counter()
        post(connection, body)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def measure(block_size: int, requests: int) -> dict[str, object]:
    rng = random.Random(1)
    prompt = [rng.randrange(151_936) for _ in range(TOKENS)]
    body = json.dumps({"token_ids": prompt}, separators=(",", ":")).encode()
    engines = [
        SimulatedEngine(f"engine-{number}", block_size=block_size, device_blocks=4096)
        for number in range(STREAMS)
    ]
    with SimulatedFleet(engines) as fleet, tempfile.TemporaryDirectory() as folder:
        for engine in fleet:
            engine.prefill(prompt)
        config, constant = Path(folder) / "kv_events.json", Path(folder) / "answer.json"
        config.write_text(json.dumps(fleet.config()))
        follow = ("-m", "kvcache", "serve", "--port", "0", "--kv_events_config_file", str(config))
        with serving(*follow) as ours:
            constant.write_bytes(wait_for_hits(ours, body))
            with serving(__file__, "--constant", str(constant)) as theirs:
                post(theirs, body)
                pairs = [
                    (median_ms(ours, body, requests), median_ms(theirs, body, requests))
                    for _ in range(ROUNDS)
                ]
    p50, constant_p50 = (min(side) for side in zip(*pairs, strict=True))
    return {
        "measure": "query over HTTP",
        "contestant": "kvcache",
        "variant": f"{TOKENS} tokens",
        "block_size": block_size,
        "streams": STREAMS,
        "entries": 0,
        "p50_ms": p50,
        "constant_p50_ms": constant_p50,
        "more_ms": p50 - constant_p50,
        "median_more_ms": statistics.median(a - b for a, b in pairs),
        "body_bytes": len(body),
    }


def main() -> None:
    if sys.argv[1:2] == ["--constant"]:
        serve_constant(Path(sys.argv[2]).read_bytes())
        return
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    for block_size in (16, 128):
        print(json.dumps(measure(block_size, requests)))


if __name__ == "__main__":
    main()
