"""Which report counts (spec: service replicas)."""

from __future__ import annotations

import pytest
from kvcache.registry.loads import HEARTBEAT_FIRST_S, Loads, counting_report
from kvcache.registry.model import Load, LoadReport


def beat(at_s: float, waiting: int = 1) -> LoadReport:
    return LoadReport(Load(waiting, 0.5), "heartbeat", at_s)


def copy(at_s: float, waiting: int = 2) -> LoadReport:
    return LoadReport(Load(waiting, 0.5), "etcd", at_s)


@pytest.mark.parametrize(
    ("heartbeat_s", "etcd_s", "now_s", "source"),
    [
        (None, None, 0.0, None),
        (10.0, None, 1000.0, "heartbeat"),
        (None, 10.0, 1000.0, "etcd"),
        (10.0, 9.0, 10.0, "heartbeat"),  # at once
        (10.0, 12.0, 12.0, "heartbeat"),  # for three seconds
        (10.0, 12.0, 12.999, "heartbeat"),
        (10.0, 12.0, 13.0, "etcd"),  # then the later arrival
        (10.0, 9.0, 13.0, "heartbeat"),
        (10.0, 13.5, 14.0, "etcd"),
        (10.0, 10.0, 14.0, "heartbeat"),
    ],
)
def test_which_report_counts(
    heartbeat_s: float | None, etcd_s: float | None, now_s: float, source: str | None
) -> None:
    chosen = counting_report(
        None if heartbeat_s is None else beat(heartbeat_s),
        None if etcd_s is None else copy(etcd_s),
        now_s,
    )
    assert (chosen and chosen.source) == source


@pytest.mark.parametrize(("written", "counts"), [(9, False), (10, True), (11, True)])
def test_a_copy_written_before_the_registration_is_no_report(written: int, counts: bool) -> None:
    loads = Loads()
    loads.put_copy("h:1", copy(0.0), written)
    assert loads.reports("h:1", 10) == (None, copy(0.0) if counts else None)


def test_a_copy_outlives_the_process_and_a_heartbeat_does_not() -> None:
    loads = Loads()
    loads.put_copy("h:1", copy(0.0), 5)
    loads.record_heartbeat("h:1", beat(0.0))
    loads.forget_process("h:1")
    assert loads.reports("h:1", 1) == (None, copy(0.0))


def test_a_deleted_copy_is_gone_and_the_heartbeat_stays() -> None:
    loads = Loads()
    loads.put_copy("h:1", copy(0.0), 5)
    loads.record_heartbeat("h:1", beat(0.0))
    assert loads.delete_copy("h:1")
    assert not loads.delete_copy("h:1")
    assert loads.reports("h:1", 1) == (beat(0.0), None)


def test_recent_heartbeats_are_of_the_last_three_seconds() -> None:
    loads = Loads()
    for name, at_s in (("c:1", 10.0), ("a:1", 9.0), ("b:1", 8.0)):
        loads.record_heartbeat(name, beat(at_s))
    assert list(loads.recent_heartbeats(8.0 + HEARTBEAT_FIRST_S)) == ["a:1", "c:1"]
