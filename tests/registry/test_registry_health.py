"""The health probe, against real servers on the loopback (spec: state machine of one instance)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias
from unittest import mock

import pytest
from kvcache.registry.health import (
    PROBE_PAUSE_S,
    PROBE_TIMEOUT_S,
    HealthProbe,
)

Answer: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Answers each request with the next answer, and the last one from then on."""

    answers: list[Answer]
    name: str = ""
    requests: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    handlers: list[asyncio.Task[None]] = field(default_factory=list)
    open_connections: int = 0
    most_connections: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.handlers.append(task)
        self.open_connections += 1
        self.most_connections = max(self.most_connections, self.open_connections)
        try:
            self.times.append(time.monotonic())
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head.decode())
            self.asked.set()
            answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test ends
        finally:
            self.open_connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(*answers: Answer, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    server = Server(list(answers))
    listener = await asyncio.start_server(server.serve, host, 0)
    port = listener.sockets[0].getsockname()[1]
    server.name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        yield server
    finally:
        listener.close()
        for handler in server.handlers:
            handler.cancel()
        await asyncio.gather(*server.handlers, return_exceptions=True)


def says(text: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(text.encode())
        await writer.drain()

    return answer


def status(line: str, *headers: str) -> Answer:
    return says("\r\n".join([f"HTTP/1.1 {line}", "Content-Length: 0", *headers, "", ""]))


OK = status("200 OK")


async def hang(_writer: asyncio.StreamWriter) -> None:
    """Until the test ends."""
    await asyncio.Event().wait()


async def stall_after_200(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
    await writer.drain()
    await hang(writer)


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        await writer.drain()


async def endless_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: " + b"x" * 65536 + b"\r\n")
        await writer.drain()


async def is_alive(name: str) -> bool:
    async with HealthProbe() as probe:
        return await probe.is_alive(name)


def run(*answers: Answer, host: str = "127.0.0.1") -> tuple[bool, Server]:
    async def probe() -> tuple[bool, Server]:
        async with serving(*answers, host=host) as server:
            return await is_alive(server.name), server

    return asyncio.run(probe())


def test_200_is_alive_and_asked_once() -> None:
    alive, server = run(OK)
    assert alive
    assert len(server.requests) == 1
    line, *headers = server.requests[0].split("\r\n")
    assert line == "GET /health HTTP/1.1"
    assert f"Host: {server.name}" in headers


@pytest.mark.parametrize(
    "line",
    ["204 No Content", "301 Moved", "404 Not Found", "500 Oops", "503 Busy", "999 What"],
)
def test_other_statuses_are_not(line: str) -> None:
    alive, server = run(status(line))
    assert not alive
    assert len(server.requests) == 2


def test_the_second_attempt_counts_after_a_pause() -> None:
    alive, server = run(status("503 Busy"), OK)
    assert alive
    first, second = server.times
    assert second - first >= PROBE_PAUSE_S * 0.9


def test_a_redirect_is_not_followed() -> None:
    async def probe() -> None:
        async with serving(OK) as target:
            redirect = status("302 Found", f"Location: http://{target.name}/health")
            async with serving(redirect) as server:
                assert not await is_alive(server.name)
            assert not target.requests

    asyncio.run(probe())


def test_a_proxy_of_the_environment_is_not_asked() -> None:
    async def probe() -> None:
        async with serving(OK) as proxy, serving(status("503 Busy")) as server:
            names = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
            settings = dict.fromkeys(names, f"http://{proxy.name}") | {
                "no_proxy": "",
                "NO_PROXY": "",
            }
            with mock.patch.dict(os.environ, settings):
                assert not await is_alive(server.name)
            assert not proxy.requests

    asyncio.run(probe())


def test_no_cookie_is_kept() -> None:
    async def probe() -> None:
        async with serving(status("503 Busy", "Set-Cookie: a=b")) as server:
            assert not await is_alive(server.name)
            assert all("cookie" not in request.lower() for request in server.requests)

    asyncio.run(probe())


def test_an_instance_that_hangs_costs_two_timeouts() -> None:
    started = time.monotonic()
    alive, server = run(hang)
    waited = time.monotonic() - started
    assert not alive
    assert len(server.requests) == 2
    assert 0 <= waited - (2 * PROBE_TIMEOUT_S + PROBE_PAUSE_S) + 0.05 < 10


@pytest.mark.parametrize("answer", [stall_after_200, endless])
def test_a_body_is_not_read(answer: Answer) -> None:
    alive, server = run(answer)
    assert alive
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        says(""),
        says("SSH-2.0-OpenSSH\r\n\r\n"),
        says("HTTP/1.1 200 OK\r\n"),
        says("\0" * 100),
        endless_headers,
    ],
    ids=["closed", "another protocol", "unfinished", "binary", "endless headers"],
)
def test_garbage_is_not_alive(answer: Answer) -> None:
    alive, _ = run(answer)
    assert not alive


def test_nobody_listens() -> None:
    async def probe() -> None:
        async with serving(OK) as server:
            pass
        assert not await is_alive(server.name)

    asyncio.run(probe())


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "no.such.host.invalid:80",
        "::1:80",
        "*:80",
        "a b:80",
        "h:99999",
        "[fe80::1%25nope0]:9",
        "\ud800:1",
    ],
)
def test_names_that_cannot_be_asked(name: str) -> None:
    assert not asyncio.run(is_alive(name))


def test_ipv6() -> None:
    try:
        alive, server = run(OK, host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    assert alive
    assert f"Host: {server.name}" in server.requests[0]


def test_probes_at_one_time_are_bounded_and_a_waiting_one_loses_no_time() -> None:
    """More probes than places, and together longer than one timeout: all succeed."""

    async def slow(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3 * PROBE_TIMEOUT_S)
        await OK(writer)

    async def probe() -> None:
        async with serving(slow) as server, HealthProbe(max_concurrent=2) as probe:
            names = [server.name] * 10
            assert all(await asyncio.gather(*map(probe.is_alive, names)))
            assert server.most_connections <= 2

    asyncio.run(probe())


def test_a_probe_can_be_cancelled() -> None:
    async def probe() -> None:
        async with serving(hang) as server, HealthProbe() as probe:
            task = asyncio.create_task(probe.is_alive(server.name))
            async with asyncio.timeout(10):
                await server.asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(probe())
