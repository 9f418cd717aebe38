"""What the registry holds: identities, and which loads are legal (spec: CAR, state machine)."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvcache.registry.model import (
    UNIDENTIFIED,
    Instance,
    InstanceType,
    Latency,
    Load,
    Registration,
    Role,
    State,
)

# A busy machine is no fault of an example; a failing one prints what reproduces it.
PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


def registration(**changes: Any) -> Registration:
    return Registration(**{"name": "h:1", "type": InstanceType.DEFAULT} | changes)


def test_the_incarnation_is_the_identity() -> None:
    first = registration(incarnation_id="a", register_ts_ms=1)
    assert first.identity == registration(incarnation_id="a", register_ts_ms=2).identity
    assert first.identity != registration(incarnation_id="b", register_ts_ms=1).identity


def test_without_incarnation_the_time_is_the_identity() -> None:
    assert registration(register_ts_ms=1).identity == registration(register_ts_ms=1).identity
    assert registration(register_ts_ms=1).identity != registration(register_ts_ms=2).identity
    assert registration(register_ts_ms=0).identity != UNIDENTIFIED


def test_without_both_all_are_equal() -> None:
    assert registration().identity == registration(dp_size=2).identity == UNIDENTIFIED


def test_an_incarnation_never_equals_a_time() -> None:
    assert registration(incarnation_id="5").identity != registration(register_ts_ms=5).identity
    assert registration(incarnation_id=UNIDENTIFIED).identity != UNIDENTIFIED


LEGAL: list[tuple[Any, Any]] = [
    (0, 0),
    (0, 0.0),
    (3, 1),
    (2**64 - 1, 1.0),
    (7, 0.5),
    (7, -0.0),
    (7, 5e-324),
]


@pytest.mark.parametrize(("waiting", "usage"), LEGAL)
def test_legal_loads(waiting: Any, usage: Any) -> None:
    load = Load.of({"waiting_requests_num": waiting, "gpu_cache_usage_perc": usage, "more": []})
    assert load == Load(waiting, float(usage))
    assert load.legal
    assert math.copysign(1, load.gpu_cache_usage_perc or 0.0) == 1


ILLEGAL_WAITING: list[Any] = [
    -1, 1.0, 1.5, 2**64, 10**5000, "1", None, True, False, [1], {}, math.nan, math.inf
]  # fmt: skip
ILLEGAL_USAGE: list[Any] = [
    -0.1, 1.0000001, -1, 2, 10**5000, math.nan, math.inf, -math.inf, "0.5", None, True, False, [0.5], {}
]  # fmt: skip


@pytest.mark.parametrize("waiting", ILLEGAL_WAITING, ids=lambda value: repr(type(value)))
def test_illegal_waiting(waiting: Any) -> None:
    load = Load.of({"waiting_requests_num": waiting, "gpu_cache_usage_perc": 0.5})
    assert (load.waiting_requests_num, load.gpu_cache_usage_perc) == (None, 0.5)
    assert not load.legal
    assert load.fault.startswith("waiting_requests_num must be an integer of 0 to 2^64-1: ")
    assert len(load.fault) < 200


@pytest.mark.parametrize("usage", ILLEGAL_USAGE, ids=lambda value: repr(type(value)))
def test_illegal_usage(usage: Any) -> None:
    load = Load.of({"waiting_requests_num": 1, "gpu_cache_usage_perc": usage})
    assert (load.waiting_requests_num, load.gpu_cache_usage_perc) == (1, None)
    assert load.fault.startswith("gpu_cache_usage_perc must be a number of 0 to 1: ")
    assert len(load.fault) < 200


def test_missing_fields_are_illegal() -> None:
    assert Load.of({}).fault == "waiting_requests_num is missing, gpu_cache_usage_perc is missing"


@pytest.mark.parametrize("metrics", [None, [], 3, "x", True])
def test_what_is_no_object_is_an_illegal_load(metrics: Any) -> None:
    assert Load.of(metrics).fault.startswith("the load must be an object: ")


@PATIENT
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_whatever_a_load_holds_it_is_judged(value: Any) -> None:
    for metrics in (
        value,
        {"waiting_requests_num": value, "gpu_cache_usage_perc": value},
        {"waiting_requests_num": 1, "gpu_cache_usage_perc": value},
    ):
        load = Load.of(metrics)
        waiting, usage = load.waiting_requests_num, load.gpu_cache_usage_perc
        assert load.legal == (waiting is not None and usage is not None)
        assert load.fault.isprintable()
        assert len(load.fault) < 400
        if load.legal:
            assert type(waiting) is int
            assert type(usage) is float
            assert math.isfinite(usage)
            json.dumps([waiting, usage], allow_nan=False)


def test_latencies_are_read_where_they_are_integers() -> None:
    assert Latency.of({"recent_max_ttft": 5, "recent_max_tbt": -1}) == Latency(5, -1)
    assert Latency.of({"recent_max_ttft": 2**63, "recent_max_tbt": True}) == Latency(None, None)
    assert Latency.of([]) == Latency(None, None)


@pytest.mark.parametrize(
    ("state", "schedulable"),
    [(State.ACTIVE, True), (State.LEASE_LOST, True), (State.SUSPECT, False)],
)
def test_schedulable_states(state: State, schedulable: bool) -> None:
    row = Instance(registration(), "XLLM:DEFAULT:h:1", Role.DEFAULT, state, 0.0, 1)
    assert row.schedulable is schedulable
    assert row.load(0.0) is None


def test_rows_do_not_change() -> None:
    row = Instance(registration(), "k", Role.DEFAULT, State.ACTIVE, 0.0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.state = State.SUSPECT  # type: ignore[misc]
