from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from serving import App

if TYPE_CHECKING:
    from serving import FakeDirectory

TOKEN = "s3cret-Token"  # noqa: S105
QUERY = "/v1/internal/kv-cache/query"
STREAMS = "/v1/internal/streams"


@pytest.fixture
def guarded(directory: FakeDirectory) -> App:
    return App(Service(directory), ServerSettings(internal_api_token=TOKEN))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], 401),
        ([("X-Internal-Token", TOKEN)], 200),
        ([("x-internal-token", TOKEN)], 200),
        ([("X-Internal-Token", "")], 401),
        ([("X-Internal-Token", TOKEN.lower())], 401),
        ([("X-Internal-Token", TOKEN + "x")], 401),
        ([("X-Internal-Token", TOKEN[:-1])], 401),
        ([("X-Internal-Token", f"Bearer {TOKEN}")], 401),
        ([("Authorization", f"Bearer {TOKEN}")], 401),
        ([("X-Internal-Token", b"\xff\xfe")], 401),
        ([("X-Internal-Token", TOKEN), ("X-Internal-Token", "other")], 401),
        ([("X-Internal-Token", "other"), ("X-Internal-Token", TOKEN)], 401),
    ],
)
def test_who_may_ask(
    guarded: App, given: list[tuple[str, str | bytes]], expected: int, directory: FakeDirectory
) -> None:
    headers = [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in given
    ]
    for answer in (
        guarded.query({"token_ids": []}, headers=headers),
        guarded.ask("GET", STREAMS, headers=headers),
    ):
        assert answer.status_code == expected
        if expected == 401:
            assert answer.json()["code"] == "unauthorized"
            assert TOKEN not in answer.text
    assert len(directory.bodies) == (expected == 200)


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", [QUERY, "/v1/internal", "/v1/internal/", "/v1/internal/nope"])
def test_without_the_token_routes_and_methods_stay_hidden(
    guarded: App, method: str, path: str
) -> None:
    assert guarded.ask(method, path).status_code == 401


def test_an_oversized_body_without_the_token_is_not_read(guarded: App) -> None:
    assert guarded.query(b"x" * 17_000_000).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/openapi.json"])
def test_probes_and_scrapes_need_no_token(guarded: App, path: str) -> None:
    assert guarded.ask("GET", path).status_code == 200


@pytest.mark.parametrize("path", ["/v1/internalx", "/v1/./internal/nope", "//v1/internal/streams"])
def test_other_spellings_reach_no_guarded_route(guarded: App, path: str) -> None:
    assert guarded.ask("GET", f"http://kv{path}").status_code in {401, 404}


def test_an_escaped_path_is_guarded_as_what_it_means(guarded: App) -> None:
    assert guarded.ask("GET", "/v1/%69nternal/streams").status_code == 401


def test_the_token_shows_in_no_repr() -> None:
    assert TOKEN not in repr(ServerSettings(internal_api_token=TOKEN))
