"""The registry against a plain model of the specification, on walks that hypothesis chooses.

The model keeps dictionaries and reads the rules one by one; it shares no code with the registry. A
failing walk is printed with the blob that reproduces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kvcache.registry.model import InstanceType, Load, Registration, Role
from kvcache.registry.registry import HeartbeatOutcome, Registry

NAMES = st.sampled_from(["a:1", "b:1", "c:1"])
KINDS = st.sampled_from(list(InstanceType))
# An incarnation, or a time, or neither.
IDENTITIES = st.sampled_from([("i1", 1), ("i2", 1), ("", 1), ("", 2), ("", None)])
LOADS = st.builds(Load, st.integers(0, 3), st.sampled_from([0.0, 0.5]))
ILLEGAL = st.just(Load(None, 0.5, "illegal"))


@dataclass
class Expected:
    """What the specification says about one instance."""

    kind: InstanceType
    identity: tuple[str, int | None]
    dp_size: int
    role: str
    revision: int
    state: str = "ACTIVE"
    since: float = 0.0
    probing: bool = False
    beat: tuple[Load, float] | None = None

    @property
    def process(self) -> tuple[str, int | None]:
        incarnation_id, register_ts_ms = self.identity
        return (incarnation_id, None) if incarnation_id else ("", register_ts_ms)


class RegistryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.revision = 0
        self.registry = Registry(lambda: self.now)
        self.expected: dict[str, Expected] = {}
        self.copies: dict[str, tuple[Load, float, int]] = {}
        self.etcd: dict[tuple[InstanceType, str], Registration] = {}
        self.old_probes: list[tuple[str, int]] = []
        self.probes: dict[str, int] = {}

    # --- what happens ----------------------------------------------------------------------------

    @rule(name=NAMES, kind=KINDS, identity=IDENTITIES, dp_size=st.integers(1, 2))
    def put(
        self, name: str, kind: InstanceType, identity: tuple[str, int | None], dp_size: int
    ) -> None:
        incarnation_id, time_ms = identity
        value = Registration(name, kind, dp_size, incarnation_id, time_ms)
        self.revision += 1
        self.etcd[kind, name] = value
        self.registry.put(f"{kind.name}:{name}", value, self.revision)
        decoders = [
            other
            for other, row in self.expected.items()
            if other != name and row.role == "DECODE" and row.state != "SUSPECT"
        ]
        fresh_role = kind.name
        if kind.name == "MIX":
            fresh_role = "PREFILL" if decoders else "DECODE"
        row = self.expected.get(name)
        fresh = Expected(kind, identity, dp_size, fresh_role, self.revision, since=self.now)
        if row is not None and row.process == fresh.process:
            if row.kind == kind:
                fresh.role = row.role
            if row.state == "ACTIVE":
                fresh.since = row.since
            fresh.revision, fresh.beat = row.revision, row.beat
        self.expected[name] = fresh
        self.forget_probe(name)

    @rule(name=NAMES, kind=KINDS, previous=st.sampled_from(["right", "unknown", "stale"]))
    def delete(self, name: str, kind: InstanceType, previous: str) -> None:
        value = self.etcd.pop((kind, name), None)
        if previous == "stale":
            value = Registration(name, kind, incarnation_id="i0")
        self.revision += 1
        told = None if previous == "unknown" else value
        ignored = self.registry.delete(f"{kind.name}:{name}", told, self.revision)
        row = self.expected.get(name)
        counts = (
            row is not None
            and row.kind == kind
            and row.state == "ACTIVE"
            and not row.probing
            and (told is None or same_process(told, row))
        )
        assert (ignored is None) == counts
        if row is not None and counts:
            row.probing = True

    @rule()
    def take_probes(self) -> None:
        taken = self.registry.take_probes()
        for probe in taken:
            assert self.expected[probe.name].probing
            assert probe.name not in self.probes
            self.probes[probe.name] = probe.generation
        assert set(self.probes) == {name for name, row in self.expected.items() if row.probing}

    @precondition(lambda self: self.probes)
    @rule(data=st.data(), healthy=st.booleans())
    def finish_probe(self, data: Any, healthy: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.probes)))
        assert self.registry.probe_finished(name, self.probes.pop(name), healthy)
        row = self.expected[name]
        row.probing, row.since = False, self.now
        row.state = "LEASE_LOST" if healthy else "SUSPECT"

    @precondition(lambda self: self.old_probes)
    @rule(data=st.data(), healthy=st.booleans())
    def finish_cancelled_probe(self, data: Any, healthy: bool) -> None:
        name, generation = data.draw(st.sampled_from(self.old_probes))
        assert not self.registry.probe_finished(name, generation, healthy)

    @rule(
        name=NAMES,
        incarnation_id=st.sampled_from(["i1", "i2", ""]),
        load=st.none() | LOADS | ILLEGAL,
    )
    def heartbeat(self, name: str, incarnation_id: str, load: Load | None) -> None:
        outcome = self.registry.record_heartbeat(name, incarnation_id=incarnation_id, load=load)
        row = self.expected.get(name)
        if row is None:
            assert outcome is HeartbeatOutcome.UNKNOWN
        elif row.identity[0] != incarnation_id:
            assert outcome is HeartbeatOutcome.OTHER_INCARNATION
        else:
            assert outcome is HeartbeatOutcome.ACCEPTED
            if row.state != "ACTIVE":
                row.state, row.since = "LEASE_LOST", self.now
            if load is not None:
                row.beat = (load, self.now)

    @rule(name=NAMES, load=LOADS | ILLEGAL)
    def put_load(self, name: str, load: Load) -> None:
        self.revision += 1
        self.registry.put_load(name, load, self.revision)
        self.copies[name] = (load, self.now, self.revision)

    @rule(name=NAMES)
    def delete_load(self, name: str) -> None:
        self.registry.delete_load(name)
        self.copies.pop(name, None)

    @rule(name=NAMES, role=st.sampled_from(list(Role)))
    def set_role(self, name: str, role: Role) -> None:
        row = self.expected.get(name)
        flips = row is not None and row.kind.name == "MIX" and role is not Role.DEFAULT
        assert self.registry.set_role(name, role) == flips
        if row is not None and flips:
            row.role = role.value

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 2.5, 3.0, 15.0, 100.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        following = self.registry.tick(self.now)
        for name, row in list(self.expected.items()):
            waited = self.now - row.since
            if row.state == "LEASE_LOST" and waited >= 3.0:
                row.state, row.since = "SUSPECT", self.now
            elif row.state == "SUSPECT" and waited >= 15.0:
                del self.expected[name]
        limits = {"LEASE_LOST": 3.0, "SUSPECT": 15.0}
        due = [
            row.since + limits[row.state] for row in self.expected.values() if row.state in limits
        ]
        assert following == min(due, default=None)

    def forget_probe(self, name: str) -> None:
        if name in self.probes:
            self.old_probes.append((name, self.probes.pop(name)))

    # --- what must hold --------------------------------------------------------------------------

    @invariant()
    def the_snapshot_is_as_expected(self) -> None:
        instances = self.registry.snapshot().instances
        assert list(instances) == sorted(self.expected)
        for name, row in self.expected.items():
            seen = instances[name]
            assert seen.key == f"{row.kind.name}:{name}"
            assert (seen.type, seen.dp_size, seen.role.value) == (row.kind, row.dp_size, row.role)
            assert (seen.state.value, seen.since_s) == (row.state, row.since)
            assert seen.schedulable == (row.state != "SUSPECT")
            report = seen.load(self.now)
            assert (report and (report.source, report.load)) == self.counting_load(name, row)

    def counting_load(self, name: str, row: Expected) -> tuple[str, Load] | None:
        copy = self.copies.get(name)
        if copy is not None and copy[2] < row.revision:
            copy = None
        if row.beat is None:
            return copy and ("etcd", copy[0])
        recent = self.now - row.beat[1] < 3.0
        if copy is None or recent or copy[1] <= row.beat[1]:
            return ("heartbeat", row.beat[0])
        return ("etcd", copy[0])

    @invariant()
    def the_upload_is_as_expected(self) -> None:
        assert self.registry.recent_heartbeat_loads() == {
            name: row.beat[0]
            for name, row in sorted(self.expected.items())
            if row.beat is not None and self.now - row.beat[1] < 3.0
        }


def same_process(value: Registration, row: Expected) -> bool:
    if value.incarnation_id:
        return row.process == (value.incarnation_id, None)
    return row.process == ("", value.register_ts_ms)


TestRegistryMachine = RegistryMachine.TestCase
TestRegistryMachine.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
