"""The example router, as somebody who reads its README starts it."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "router"
DEADLINE_S = 30.0
PROMPT = {"prompt": "The quick brown fox jumps over the lazy dog.", "max_tokens": 4}


@contextmanager
def script(*command: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, str(EXAMPLE / command[0]), *command[1:]],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@contextmanager
def router() -> Iterator[httpx.Client]:
    with script("router.py", "--port", "0", "--duration", "100") as started:
        assert started.stdout is not None
        url = started.stdout.readline().strip()
        with httpx.Client(base_url=url, timeout=DEADLINE_S, trust_env=False) as client:
            yield client


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def know(client: httpx.Client, engines: int) -> None:
    until(lambda: client.get("/health").json()["synchronized"] == engines)


def words(answer: httpx.Response) -> list[Any]:
    return [line for line in answer.text.splitlines() if line]


def test_compare_receives_every_stream_whole_and_reuses_more_with_car() -> None:
    command = [sys.executable, str(EXAMPLE / "compare.py"), "--conversations", "5", "--turns", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    # It fails for a stream that broke off.
    assert done.returncode == 0, done.stderr
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head[:3] == ["policy", "requests", "reused"]
    assert [row[0] for row in rows] == ["CAR", "RR"]
    requests = [sum(map(int, row[1].split("+"))) for row in rows]
    assert requests == [20, 20]
    car, rr = (float(row[2].removesuffix("%")) for row in rows)
    assert car > rr


def test_the_second_time_the_same_engine_is_chosen_for_its_cache() -> None:
    with router() as client:
        url = str(client.base_url)
        with script("engine.py", "--router", url), script("engine.py", "--router", url):
            know(client, 2)
            first = client.post("/v1/completions", json=PROMPT)
            assert first.headers["x-kvcache-hit-tokens"] == "0/44"
            assert first.headers["x-kvcache-decided-by"] == "rotation"
            assert len(words(first)) == PROMPT["max_tokens"] + 1
            assert words(first)[-1] == "data: [DONE]"

            def again_by_cache() -> bool:
                again = client.post("/v1/completions", json=PROMPT)
                return again.headers["x-kvcache-hit-tokens"] == "32/44"

            # The events are on their way for a moment, and the first request counts until the next report.
            until(again_by_cache)


def test_what_cannot_be_served_is_refused_with_a_reason() -> None:
    with router() as client:
        for body in (b"nonsense", b"[]", b'{"prompt": 1}'):
            assert client.post("/v1/completions", content=body).status_code == 400
        nobody = client.post("/v1/completions", json=PROMPT)
        assert nobody.status_code == 503
        assert nobody.json()["error"]["message"]
        with script("engine.py", "--router", str(client.base_url)):
            know(client, 1)
            assert client.post("/v1/completions", json=PROMPT).status_code == 200
        dead = client.post("/v1/completions", json=PROMPT)
        assert dead.status_code == 502
        assert "does not answer" in dead.json()["error"]["message"]


def test_an_engine_ends_when_its_router_is_gone() -> None:
    with ExitStack() as stack:
        with router() as client:
            url = str(client.base_url)
            engine = stack.enter_context(script("engine.py", "--router", url))
            know(client, 1)
        assert engine.wait(timeout=DEADLINE_S) == 0


def test_whoever_goes_away_in_the_middle_holds_up_nobody() -> None:
    with router() as client, script("engine.py", "--router", str(client.base_url)):
        know(client, 1)
        long = PROMPT | {"max_tokens": 100_000}
        with client.stream("POST", "/v1/completions", json=long) as answer:
            assert next(answer.iter_lines()).startswith("data: ")
        assert words(client.post("/v1/completions", json=PROMPT))[-1] == "data: [DONE]"
