from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kvcache.exceptions import RequestError
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from serving import App

if TYPE_CHECKING:
    from serving import FakeDirectory

QUERY = "/v1/internal/kv-cache/query"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "x/y", None])
def test_any_content_type_is_answered_with_the_directory_s_bytes(
    app: App, directory: FakeDirectory, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = app.query(b' {"token_ids":[1,2]} ', headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"matches": [], "asked": 2}
    assert directory.bodies == [b' {"token_ids":[1,2]} ']


@pytest.mark.parametrize("code", ["invalid_json", "unknown_field", "token_id_out_of_range"])
def test_a_refused_request_keeps_its_code(app: App, directory: FakeDirectory, code: str) -> None:
    directory.failure = RequestError(code, "token_ids[3] is not an integer: 1.5")
    answer = app.query({"token_ids": []})
    assert answer.status_code == 400
    assert answer.json() == {"error": "token_ids[3] is not an integer: 1.5", "code": code}


def test_an_unexpected_failure_is_logged_and_shows_nothing(
    app: App, directory: FakeDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    directory.failure = RuntimeError("a private detail")
    answer = app.query({"token_ids": []})
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert "private" not in answer.text
    assert [r.exc_info[1] for r in caplog.records if r.exc_info] == [directory.failure]


def test_without_an_index_queries_get_503_with_a_reason() -> None:
    answer = App(Service(None), ServerSettings()).query({"token_ids": [1]})
    assert answer.status_code == 503
    assert answer.json()["code"] == "index_disabled"
    assert "kv_events_config_file" in answer.json()["error"]


def test_a_closed_directory_is_503(app: App, directory: FakeDirectory) -> None:
    directory.close()
    answer = app.query({"token_ids": [1]})
    assert (answer.status_code, answer.json()["code"]) == (503, "shutting_down")


@pytest.mark.parametrize(("size", "expected"), [(99, 200), (100, 200), (101, 413)])
def test_the_body_limit_is_exact(directory: FakeDirectory, size: int, expected: int) -> None:
    app = App(Service(directory), ServerSettings(max_body_bytes=100))
    body = b'{"token_ids":[]}'.ljust(size)

    async def chunks() -> Any:
        for start in range(0, size, 30):
            yield body[start : start + 30]

    declared = app.ask("POST", QUERY, content=body)
    chunked = app.ask("POST", QUERY, content=chunks())
    for answer in (declared, chunked):
        assert answer.status_code == expected
        if expected == 413:
            assert answer.json()["code"] == "body_too_large"
    assert directory.bodies == ([body, body] if expected == 200 else [])


def test_a_large_query_leaves_the_event_loop_free(app: App, directory: FakeDirectory) -> None:
    assert app.query({"token_ids": [1]}).status_code == 200
    assert app.query({"token_ids": [1234567] * 100_000}).json()["asked"] == 100_000
    inline, offloaded = directory.threads
    assert inline is threading.current_thread()
    assert offloaded is not inline


def test_a_request_cut_off_at_shutdown_is_503_without_a_traceback(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def scenario() -> None:
        asked = asyncio.Event()

        async def receive() -> Any:
            asked.set()
            await asyncio.Event().wait()  # a client that never finishes its body

        scope = {
            "type": "http",
            "method": "POST",
            "path": QUERY,
            "headers": [],
            "query_string": b"",
        }
        task = asyncio.ensure_future(app.app(scope, receive, send))
        await asked.wait()
        task.cancel()
        await task

    asyncio.run(scenario())
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["code"] == "shutting_down"
    assert not [record for record in caplog.records if record.exc_info]
