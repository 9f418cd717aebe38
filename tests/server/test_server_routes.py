from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from serving import App, status

if TYPE_CHECKING:
    from serving import FakeDirectory

QUERY = "/v1/internal/kv-cache/query"
HEARTBEAT = "/v1/internal/heartbeat"
ROUTE = "/v1/internal/route"
REQUESTS = "/v1/internal/requests"
GET_ROUTES = [
    "/health",
    "/healthz",
    "/liveness",
    "/ready",
    "/readyz",
    "/readiness",
    "/metrics",
    "/openapi.json",
    "/v1/internal/streams",
    "/v1/internal/instances",
    "/v1/internal/decisions",
]


@pytest.mark.parametrize("path", GET_ROUTES)
def test_get_routes_take_get_head_and_options_only(app: App, path: str) -> None:
    assert app.ask("GET", path).status_code == 200
    assert app.ask("HEAD", path).status_code == 200
    options = app.ask("OPTIONS", path)
    assert (options.status_code, options.content) == (204, b"")
    assert options.headers["allow"] == "GET, HEAD, OPTIONS"
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = app.ask(method, path)
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
        assert answer.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_the_query_route_takes_post_only(app: App, method: str) -> None:
    answer = app.ask(method, QUERY)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "OPTIONS, POST"


@pytest.mark.parametrize(
    "path", ["/nope", "/health/", "/docs", "/redoc", "/v1/internal", "/v1/internal/x", "//health"]
)
def test_other_paths_are_404_in_the_one_shape(app: App, path: str) -> None:
    answer = app.ask("GET", f"http://kv{path}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"
    assert set(answer.json()) == {"error", "code"}


def test_a_hostile_path_is_echoed_on_one_bounded_line(app: App) -> None:
    answer = app.ask("GET", "/%0a%1b%ff" + "x" * 5000)
    assert answer.status_code == 404
    message = answer.json()["error"]
    assert message.isprintable()
    assert len(message) < 300


def test_streams_are_shown_as_the_directory_says(app: App, directory: FakeDirectory) -> None:
    answer = app.ask("GET", "/v1/internal/streams")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"streams": directory.statuses}


def test_ready_shows_the_share_and_stays_ready_when_unsynchronized(
    app: App, directory: FakeDirectory
) -> None:
    lost = status("c:1", state="snapshotting", synchronized=False, error="replay timed out")
    directory.statuses = [status(), lost, lost, lost]
    answer = app.ask("GET", "/ready")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "index": "enabled",
        "streams": 4,
        "synchronized": 1,
        "synchronized_share": 0.25,
        "etcd": None,
    }


def test_ready_without_an_index_says_so() -> None:
    answer = App(Service(None), ServerSettings()).ask("GET", "/ready")
    assert answer.status_code == 200
    assert answer.json()["index"] == "disabled"
    assert answer.json()["synchronized_share"] is None


def test_a_closed_service_is_alive_and_not_ready(app: App, directory: FakeDirectory) -> None:
    directory.close()
    assert app.ask("GET", "/health").json() == {"status": "ok"}
    for path in ("/ready", "/v1/internal/streams"):
        answer = app.ask("GET", path)
        assert (answer.status_code, answer.json()["code"]) == (503, "shutting_down")
    assert app.ask("GET", "/metrics").status_code == 200


def test_openapi_describes_every_route(app: App) -> None:
    document = app.ask("GET", "/openapi.json").json()
    described = set(document["paths"])
    assert described == {QUERY, HEARTBEAT, ROUTE, REQUESTS, *GET_ROUTES} - {"/openapi.json"}
    answer = document["paths"][QUERY]["post"]["responses"]["200"]
    schema = answer["content"]["application/json"]["schema"]
    match = schema["properties"]["matches"]["items"]
    assert "host_only_hit_tokens" in match["required"]
