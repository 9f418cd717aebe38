"""How a routed request goes on, told over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kvcache.registry.model import InstanceType, Load, Registration
from kvcache.registry.registry import Registry
from kvcache.routing.policies import make_policy
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from serving import App

if TYPE_CHECKING:
    import httpx

ROUTE = "/v1/internal/route"
REQUESTS = "/v1/internal/requests"


def app_of(policy: str) -> App:
    registry = Registry()
    for name in ("a:1", "b:1"):
        registration = Registration(
            name,
            InstanceType.DEFAULT,
            incarnation_id="i1",
            ttft_profiling_data=((100, 10.0), (1000, 100.0), (2000, 210.0)),
            tpot_profiling_data=((100, 1, 10.0), (100, 8, 20.0), (1000, 4, 15.0)),
        )
        registry.put(f"XLLM:DEFAULT:{name}", registration, 1)
        registry.record_heartbeat(name, incarnation_id="i1", load=Load(0, 0.5))
    return App(Service(None, registry, policy=make_policy(policy)), ServerSettings())


def post(app: App, path: str, body: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return app.ask("POST", path, content=content)


def tell(app: App, request_id: str, event: str) -> bool:
    answer = post(app, REQUESTS, {"request_id": request_id, "event": event})
    assert answer.status_code == 200
    return bool(answer.json()["accounted"])


def route(app: App, request_id: str, tokens: int) -> str:
    body = {"token_ids": [1] * tokens, "request_id": request_id}
    return str(post(app, ROUTE, body).json()["prefill"])


def test_what_is_under_way_decides_where_the_next_goes() -> None:
    app = app_of("SLO_AWARE")
    first = route(app, "long", 2000)
    assert tell(app, "long", "begin")
    # While the long one prefills, all others go elsewhere.
    others = {route(app, f"r{number}", 10) for number in range(4)}
    assert others == {"a:1", "b:1"} - {first}
    assert tell(app, "long", "first_token")
    assert tell(app, "long", "token")
    assert tell(app, "long", "finish")
    assert not tell(app, "long", "finish"), "it is done"
    assert {route(app, f"s{number}", 10) for number in range(4)} == {"a:1", "b:1"}


def test_what_the_policy_does_not_know_is_not_accounted() -> None:
    assert not tell(app_of("SLO_AWARE"), "unknown", "begin")
    app = app_of("CAR")
    route(app, "r", 10)
    assert not tell(app, "r", "begin")


def test_what_is_told_out_of_order_is_shown() -> None:
    app = app_of("SLO_AWARE")
    route(app, "r", 10)
    assert not tell(app, "r", "finish")
    assert not tell(app, "r", "begin")
    shown = app.ask("GET", "/v1/internal/decisions").json()["accounting"]
    assert shown == {
        "requests": 0,
        "ends_remembered": 1,
        "late_begins": 1,
        "aged_out": 0,
        "displaced": 0,
    }
    metrics = app.ask("GET", "/metrics").text.splitlines()
    for line in (
        'kvcache_route_requests{policy="SLO_AWARE"} 0.0',
        'kvcache_route_ends_remembered{policy="SLO_AWARE"} 1.0',
        'kvcache_route_late_begins_total{policy="SLO_AWARE"} 1.0',
        'kvcache_route_requests_aged_out_total{policy="SLO_AWARE"} 0.0',
        'kvcache_route_requests_displaced_total{policy="SLO_AWARE"} 0.0',
    ):
        assert line in metrics


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        ([], 400, "not_an_object"),
        ({"event": "begin"}, 400, "invalid_request_id"),
        ({"request_id": 1, "event": "begin"}, 400, "invalid_request_id"),
        ({"request_id": "r" * 257, "event": "finish"}, 400, "invalid_request_id"),
        ({"request_id": "r"}, 400, "invalid_event"),
        ({"request_id": "r", "event": "attach"}, 400, "invalid_event"),
        ({"request_id": "r", "event": ["begin"]}, 400, "invalid_event"),
        ({"request_id": "r", "event": "begin", "more": 1}, 400, "unknown_field"),
        (b" " * 4097, 413, "body_too_large"),
    ],
)
def test_what_is_no_event_is_refused(body: Any, status: int, code: str) -> None:
    answer = post(app_of("RR"), REQUESTS, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
