"""The choice over HTTP: answers, refusals, past decisions, metrics, flags."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kvcache.cli.main import main
from kvcache.registry.model import InstanceType, Load, Registration
from kvcache.registry.registry import Registry
from kvcache.routing.cache_aware import CacheAware
from kvcache.routing.round_robin import RoundRobin
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from serving import App

if TYPE_CHECKING:
    import httpx

ROUTE = "/v1/internal/route"
DECISIONS = "/v1/internal/decisions"


def register(registry: Registry, name: str, kind: InstanceType, waiting: int | None) -> None:
    registration = Registration(name, kind, incarnation_id="i1")
    registry.put(f"XLLM:{kind.name}:{name}", registration, 1)
    if waiting is not None:
        registry.record_heartbeat(name, incarnation_id="i1", load=Load(waiting, 0.5))


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    register(made, "a:1", InstanceType.DEFAULT, 4)
    register(made, "b:1", InstanceType.DEFAULT, 1)
    register(made, "c:1", InstanceType.DEFAULT, None)
    return made


def app_of(registry: Registry, **changes: Any) -> App:
    service = Service(None, registry, **{"policy": CacheAware()} | changes)
    return App(service, ServerSettings(max_body_bytes=1000))


def ask(app: App, body: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return app.ask("POST", ROUTE, content=content)


def test_a_choice_shows_every_candidate(registry: Registry) -> None:
    answer = ask(app_of(registry), {"token_ids": [1, 2, 3]})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["policy"], body["prefill"], body["decode"]) == ("CAR", "b:1", None)
    assert {one["instance_name"]: one["queue_cost"] for one in body["candidates"]} == {
        "a:1": 1.0,
        "b:1": 0.25,
    }
    for one in body["candidates"]:
        assert one["role"] == "prefill"
        assert one["kv_hit_ratio"] == 0
        assert one["score"] == 0.5 + 0.5 * one["queue_cost"]


def test_explain_adds_the_excluded_with_reasons(registry: Registry) -> None:
    body = ask(app_of(registry), {"token_ids": [], "explain": True}).json()
    excluded = {one["instance_name"]: one["excluded"] for one in body["candidates"]}
    assert excluded["a:1"] == excluded["b:1"] == ""
    assert excluded["c:1"]


def test_nothing_can_serve_says_why(registry: Registry) -> None:
    nothing = app_of(Registry())
    assert ask(nothing, {"token_ids": [1]}).status_code == 503
    assert ask(nothing, {"token_ids": [1]}).json()["code"] == "no_instance"
    for name in ("a:1", "b:1"):
        registry.record_heartbeat(name, incarnation_id="i1", load=Load.of({}))
    answer = ask(app_of(registry), {"token_ids": [1]})
    assert answer.status_code == 503
    assert answer.json()["excluded"].keys() == {"a:1", "b:1", "c:1"}
    assert all(answer.json()["excluded"].values())


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_field"),
        ({"token_ids": [1.0]}, 400, "invalid_token_ids"),
        ({"token_ids": [True]}, 400, "invalid_token_ids"),
        ({"token_ids": [1], "explain": "yes"}, 400, "invalid_explain"),
        ({"token_ids": [1], "request_id": 7}, 400, "invalid_request_id"),
        ({"token_ids": [1], "more": 7}, 400, "unknown_field"),
        (b"nothing", 400, "not_an_object"),
        (b" " * 1001, 413, "body_too_large"),
    ],
)
def test_what_is_no_request_is_refused(
    registry: Registry, body: Any, status: int, code: str
) -> None:
    answer = ask(app_of(registry), body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_the_last_decisions_can_be_asked_for_afterwards(registry: Registry) -> None:
    app = app_of(registry)
    for number in range(3):
        ask(app, {"token_ids": [number], "request_id": f"r{number}"})
    found = app.ask("GET", DECISIONS).json()["decisions"]
    assert [one["request_id"] for one in found] == ["r2", "r1", "r0"]
    (one,) = app.ask("GET", f"{DECISIONS}?request_id=r1").json()["decisions"]
    assert (one["prefill"], one["prefill_decided_by"]) == ("b:1", "queue_cost")
    assert "token_ids" not in one
    assert app.ask("GET", f"{DECISIONS}?request_id=unknown").json() == {"decisions": []}


def test_metrics_count_choices_and_the_shadow(registry: Registry) -> None:
    app = app_of(registry, shadow_policy=RoundRobin())
    for _ in range(4):
        ask(app, {"token_ids": [1, 2]})
    text = app.ask("GET", "/metrics").text
    assert 'kvcache_route_choices_total{policy="CAR",role="prefill"} 4.0' in text
    assert 'kvcache_route_asked_tokens_total{policy="CAR",role="prefill"} 8.0' in text
    assert 'kvcache_route_choices_total{policy="CAR",role="decode"} 0.0' in text
    assert 'kvcache_route_shadow_choices_total{policy="RR"} 4.0' in text


@pytest.mark.parametrize(
    ("flags", "faults"),
    [
        (["--load_balance_policy", "FASTEST"], ["--load_balance_policy"]),
        (["--car_prefill_lambda", "nan"], ["--car_prefill_lambda"]),
        (["--car-prefill-lambda", "-0.1"], ["--car_prefill_lambda"]),
        (["--car_host_hit_weight", "1.1"], ["--car_host_hit_weight"]),
        (["--car_host_hit_weight", "inf"], ["--car_host_hit_weight"]),
        (["--target_ttft", "0"], ["--target_ttft"]),
        (["--target_tpot", "x"], ["--target_tpot"]),
        (["--shadow_policy", "x"], ["--shadow_policy"]),
        (["--shadow_car_prefill_lambda", "0.5"], ["--shadow_car_prefill_lambda"]),
        (
            ["--shadow_policy", "CAR", "--shadow_car_host_hit_weight", "2"],
            ["--shadow_car_host_hit_weight"],
        ),
    ],
)
def test_bad_policies_exit_2(
    capsys: pytest.CaptureFixture[str], flags: list[str], faults: list[str]
) -> None:
    assert main(["serve", *flags]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == faults
