"""Loads and heartbeats in the registry (spec: service replicas)."""

from __future__ import annotations

import logging

import pytest
from kvcache.registry.model import InstanceType, Latency, Load, Registration
from kvcache.registry.registry import HeartbeatOutcome
from registry_world import ILLEGAL, LEGAL, A, B, C, World


@pytest.fixture
def world() -> World:
    return World()


def load(world: World, name: str = A) -> tuple[str, Load] | None:
    report = world.registry.snapshot().instances[name].load(world.clock.now_s)
    return report and (report.source, report.load)


def test_a_heartbeat_counts_at_once_and_for_three_seconds(world: World) -> None:
    world.put(A)
    assert load(world) is None
    latency = Latency(5, 6)
    busy = Load(9, 0.9)
    world.registry.record_heartbeat(A, incarnation_id="i1", load=busy, latency=latency)
    world.put_load(A)
    assert load(world) == ("heartbeat", busy)
    row = world.registry.snapshot().instances[A]
    assert row.heartbeat is not None
    assert row.heartbeat.latency == latency
    world.clock.now_s += 1.0
    world.put_load(A)
    world.clock.now_s += 2.0
    assert load(world) == ("etcd", LEGAL)


def test_a_heartbeat_without_load_is_no_report(world: World) -> None:
    world.put(A)
    world.registry.record_heartbeat(A, incarnation_id="i1", load=LEGAL)
    world.registry.record_heartbeat(A, incarnation_id="i1")
    assert load(world) == ("heartbeat", LEGAL)


def test_an_illegal_load_stands_until_a_legal_one_arrives(world: World) -> None:
    world.put(A)
    world.put_load(A)
    world.put_load(A, ILLEGAL)
    assert load(world) == ("etcd", ILLEGAL)
    outcome = world.registry.record_heartbeat(A, incarnation_id="i1", load=ILLEGAL)
    assert outcome is HeartbeatOutcome.ACCEPTED
    assert load(world) == ("heartbeat", ILLEGAL)
    world.registry.record_heartbeat(A, incarnation_id="i1", load=LEGAL)
    assert load(world) == ("heartbeat", LEGAL)


def test_a_new_process_has_no_report_yet(world: World) -> None:
    world.put(A, "i1")
    world.put_load(A)
    world.registry.record_heartbeat(A, incarnation_id="i1", load=LEGAL)
    world.put(A, "i2")
    assert load(world) is None
    world.put_load(A)
    assert load(world) == ("etcd", LEGAL)


def test_a_refresh_keeps_the_reports(world: World) -> None:
    world.put(A)
    world.put_load(A)
    world.put(A)
    assert load(world) == ("etcd", LEGAL)


def test_a_load_may_be_told_before_its_registration(world: World) -> None:
    world.registry.put_load(A, LEGAL, 7)
    for revision, counts in ((8, False), (7, True)):
        registry_row = Registration(A, InstanceType.DEFAULT, incarnation_id=str(revision))
        world.registry.put("k", registry_row, revision)
        assert (load(world) is not None) is counts


def test_a_deleted_load_is_no_report(world: World) -> None:
    world.put(A)
    world.put_load(A)
    world.registry.delete_load(A)
    assert load(world) is None
    world.registry.delete_load("nobody:1")


def test_the_master_uploads_heartbeats_of_the_last_three_seconds(world: World) -> None:
    for name in (B, A, C):
        world.put(name)
        world.registry.record_heartbeat(name, incarnation_id="i1", load=LEGAL)
        world.clock.now_s += 1.0
    world.put_load(B)
    assert list(world.registry.recent_heartbeat_loads()) == [A, C]
    world.put(A, "i2")
    assert list(world.registry.recent_heartbeat_loads()) == [C]


@pytest.mark.parametrize(
    ("name", "incarnation_id", "outcome"),
    [
        (A, "i1", HeartbeatOutcome.ACCEPTED),
        (A, "i0", HeartbeatOutcome.OTHER_INCARNATION),
        (A, "", HeartbeatOutcome.OTHER_INCARNATION),
        (B, "i1", HeartbeatOutcome.UNKNOWN),
    ],
)
def test_outcomes_of_heartbeats(
    world: World, name: str, incarnation_id: str, outcome: HeartbeatOutcome
) -> None:
    world.put(A)
    assert (
        world.registry.record_heartbeat(name, incarnation_id=incarnation_id, load=LEGAL) is outcome
    )
    assert (load(world) is not None) is (outcome is HeartbeatOutcome.ACCEPTED)


def test_ignored_heartbeats_are_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.put(A)
    with caplog.at_level(logging.WARNING, "kvcache.registry"):
        for _ in range(100):
            world.registry.record_heartbeat(A, incarnation_id="i0")
            world.registry.record_heartbeat("evil\n:1")
    assert [line.getMessage() for line in caplog.records] == [
        f"ignored a heartbeat of another incarnation: {A}",
        "ignored a heartbeat of an unknown instance: evil\\n:1",
    ]
