"""What only real sockets show: framing, disconnects, and bodies that never end."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from serving import DEADLINE_SECONDS, wait_until

if TYPE_CHECKING:
    import pytest
    from serving import FakeDirectory

POST = b"POST /v1/internal/kv-cache/query HTTP/1.1\r\nHost: kv\r\n"


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=DEADLINE_SECONDS)


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    """One response: its status and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        assert part, "closed before an answer"
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536)
    return int(head.split()[1]), body


def test_a_connection_serves_query_after_query(
    live: tuple[str, int], directory: FakeDirectory
) -> None:
    with connect(live) as connection:
        for count in range(3):
            body = json.dumps({"token_ids": [1] * count}).encode()
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            status, answer = read_answer(connection)
            assert (status, json.loads(answer)["asked"]) == (200, count)
    assert len(directory.bodies) == 3


def test_head_has_the_headers_of_get_and_no_body(live: tuple[str, int]) -> None:
    with connect(live) as connection:
        connection.sendall(b"HEAD /health HTTP/1.1\r\nHost: kv\r\nConnection: close\r\n\r\n")
        data = b""
        while part := connection.recv(65536):
            data += part
    assert data.startswith(b"HTTP/1.1 200")
    assert data.endswith(b"\r\n\r\n")


def test_a_declared_length_over_the_limit_is_refused_before_the_body(
    live: tuple[str, int], directory: FakeDirectory
) -> None:
    with connect(live) as connection:
        connection.sendall(
            POST + b"Content-Length: 99999999999999999999\r\nExpect: 100-continue\r\n\r\n"
        )
        data = connection.recv(65536)
    # Either the parser refuses such a number, or we do; never "100 Continue".
    assert data.split()[1] in {b"400", b"413"}
    with connect(live) as connection:
        connection.sendall(POST + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
        status, body = read_answer(connection)
    assert (status, json.loads(body)["code"]) == (413, "body_too_large")
    assert directory.bodies == []


def test_a_chunked_body_is_refused_as_it_passes_the_limit(
    live: tuple[str, int], directory: FakeDirectory
) -> None:
    with connect(live) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(11):
            connection.sendall(b"64\r\n" + b"1" * 100 + b"\r\n")
        # The end of the body never comes, and the answer does not wait for it.
        status, body = read_answer(connection)
    assert (status, json.loads(body)["code"]) == (413, "body_too_large")
    assert directory.bodies == []


def test_a_client_that_leaves_mid_body_is_counted_and_not_logged(
    live: tuple[str, int], directory: FakeDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(live) as connection:
        connection.sendall(POST + b"Content-Length: 500\r\n\r\n" + b'{"token_ids":[')

    def counted() -> bool:
        with connect(live) as probe:
            probe.sendall(b"GET /metrics HTTP/1.1\r\nHost: kv\r\n\r\n")
            return (
                b'kvcache_query_requests_total{outcome="disconnected"} 1.0'
                in (read_answer(probe)[1])
            )

    wait_until(counted, "the disconnect in the metrics")
    assert directory.bodies == []
    assert caplog.records == []
