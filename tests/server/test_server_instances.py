"""Heartbeats over HTTP, and the list of instances."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kvcache.registry.model import InstanceType, Registration
from kvcache.registry.registry import Registry
from kvcache.server.settings import ServerSettings
from kvcache.service import Service
from serving import App, FakeDirectory

HEARTBEAT = "/v1/internal/heartbeat"
INSTANCES = "/v1/internal/instances"
NAME = "127.0.0.1:8000"


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.put(
        f"XLLM:PREFILL:{NAME}",
        Registration(NAME, InstanceType.PREFILL, dp_size=2, incarnation_id="i1", register_ts_ms=7),
        5,
    )
    return made


@pytest.fixture
def app(directory: FakeDirectory, registry: Registry) -> App:
    return App(Service(directory, registry), ServerSettings())


def beat(app: App, body: Any) -> tuple[int, dict[str, Any]]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = app.ask("POST", HEARTBEAT, content=content)
    return answer.status_code, answer.json()


def instance(app: App) -> dict[str, Any]:
    answer = app.ask("GET", INSTANCES)
    assert answer.status_code == 200
    (row,) = answer.json()["instances"]
    return dict(row)


def test_an_instance_is_listed_as_it_registered(app: App) -> None:
    assert instance(app) == {
        "instance_name": NAME,
        "type": "PREFILL",
        "role": "PREFILL",
        "state": "ACTIVE",
        "incarnation_id": "i1",
        "register_ts_ms": 7,
        "dp_size": 2,
        "load": None,
        "streams": 0,
        "excluded": "",
    }
    assert app.ask("GET", INSTANCES).json()["etcd"] is None


def test_a_heartbeat_brings_its_load(app: App) -> None:
    load = {"waiting_requests_num": 3, "gpu_cache_usage_perc": 0.25, "novel": [1]}
    body = {"name": NAME, "incarnation_id": "i1", "load_metrics": load, "cache_event": {"x": 1}}
    assert beat(app, body) == (200, {"status": "ok"})
    shown = instance(app)["load"]
    assert 0 <= shown.pop("age_ms") < 20_000
    assert shown == {
        "waiting_requests_num": 3,
        "gpu_cache_usage_perc": 0.25,
        "source": "heartbeat",
        "fault": "",
    }


@pytest.mark.parametrize(
    ("waiting", "usage"),
    [("-1", "0.5"), ("1.0", "0.5"), ("true", "0"), ("1", "NaN"), ("1", "1e400"), ("1", "1.01")],
)
def test_an_illegal_load_is_accepted_and_told(app: App, waiting: str, usage: str) -> None:
    load = f'{{"waiting_requests_num":{waiting},"gpu_cache_usage_perc":{usage}}}'
    body = f'{{"name":"{NAME}","incarnation_id":"i1","load_metrics":{load}}}'
    assert beat(app, body.encode())[0] == 200
    assert instance(app)["load"]["fault"]


def test_a_heartbeat_without_a_load_keeps_the_last(app: App) -> None:
    load = {"waiting_requests_num": 3, "gpu_cache_usage_perc": 0.25}
    beat(app, {"name": NAME, "incarnation_id": "i1", "load_metrics": load})
    assert beat(app, {"name": NAME, "incarnation_id": "i1"})[0] == 200
    assert instance(app)["load"]["waiting_requests_num"] == 3


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "127.0.0.1:1"}, 404, "unknown_instance"),
        ({"name": NAME, "incarnation_id": "i2"}, 409, "other_incarnation"),
        ({"name": NAME}, 409, "other_incarnation"),
        ({"name": ""}, 400, "invalid_name"),
        ({"name": 5}, 400, "invalid_name"),
        ({}, 400, "invalid_name"),
        ({"name": NAME, "incarnation_id": 1}, 400, "invalid_incarnation_id"),
        ([], 400, "not_an_object"),
        (b"{", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b"[" * 60_000, 400, "invalid_json"),
        (b'{"name":' + b"1" * 60_000 + b"}", 400, "invalid_json"),
        (b" " * 65_537, 413, "body_too_large"),
    ],
)
def test_what_is_no_heartbeat_of_the_instance_changes_nothing(
    app: App, body: Any, status: int, code: str
) -> None:
    found, answer = beat(app, body)
    assert (found, answer["code"]) == (status, code)
    assert instance(app)["load"] is None


def test_metrics_show_every_cell_of_the_registry(app: App) -> None:
    text = app.ask("GET", "/metrics").text
    assert 'kvcache_registry_instances{state="ACTIVE",type="PREFILL"} 1.0' in text
    assert 'kvcache_registry_instances{state="SUSPECT",type="MIX"} 0.0' in text
    assert 'kvcache_registry_transitions_total{from="none",to="ACTIVE"} 1.0' in text
    assert 'kvcache_registry_events_total{kind="heartbeat"} 0.0' in text
    assert "kvcache_etcd_" not in text
