"""The table of transitions, one test a rule (spec: state machine of one instance)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kvcache.registry.model import InstanceType, Registration, Role, State
from kvcache.registry.state import (
    Delete,
    Event,
    Heartbeat,
    Ignored,
    IgnoredReason,
    Moved,
    ProbeCancelled,
    ProbeFinished,
    ProbeWanted,
    Put,
    Record,
    Refreshed,
    RoleChanged,
    SetRole,
    Tick,
    deadline_s,
    transition,
)

STATES = list(State)
KEY = "XLLM:DEFAULT:h:1"


def registration(incarnation_id: str = "i1", **changes: Any) -> Registration:
    fields = {"name": "h:1", "type": InstanceType.DEFAULT, "incarnation_id": incarnation_id}
    return Registration(**fields | changes)


def record(state: State = State.ACTIVE, **changes: Any) -> Record:
    fields = {
        "registration": registration(),
        "key": KEY,
        "role": Role.DEFAULT,
        "state": state,
        "since_s": 100.0,
        "revision": 10,
    }
    return Record(**fields | changes)


def put(incarnation_id: str = "i1", *, elsewhere: bool = False, **changes: Any) -> Put:
    revision = changes.pop("revision", 20)
    key = changes.pop("key", KEY)
    return Put(key, registration(incarnation_id, **changes), revision, decode_elsewhere=elsewhere)


def mix(incarnation_id: str = "i1", *, elsewhere: bool) -> Put:
    return put(incarnation_id, elsewhere=elsewhere, type=InstanceType.MIX, key="XLLM:MIX:h:1")


def delete(incarnation_id: str | None = "i1", key: str = KEY, generation: int = 7) -> Delete:
    previous = None if incarnation_id is None else registration(incarnation_id)
    return Delete(key, previous, generation)


# --- PUT -----------------------------------------------------------------------------------------


def test_a_put_registers() -> None:
    after, effects = transition(None, put(), 5.0)
    assert after == record(since_s=5.0, revision=20)
    assert effects == (Moved(None, State.ACTIVE),)


@pytest.mark.parametrize("state", STATES)
def test_a_put_of_the_same_incarnation_refreshes(state: State) -> None:
    after, effects = transition(record(state), put(dp_size=2), 105.0)
    since_s = 100.0 if state is State.ACTIVE else 105.0
    assert after == record(registration=registration(dp_size=2), since_s=since_s)
    moved = () if state is State.ACTIVE else (Moved(state, State.ACTIVE),)
    assert effects == (Refreshed(), *moved)


@pytest.mark.parametrize(("revision", "kept"), [(9, 9), (10, 10), (11, 10)])
def test_a_refresh_keeps_the_earlier_revision(revision: int, kept: int) -> None:
    after, _ = transition(record(), put(revision=revision), 105.0)
    assert after is not None
    assert after.revision == kept


@pytest.mark.parametrize("state", STATES)
def test_a_put_of_another_incarnation_replaces(state: State) -> None:
    after, effects = transition(record(state), put("i2"), 105.0)
    assert after == record(registration=registration("i2"), since_s=105.0, revision=20)
    assert effects == (Moved(state, None), Moved(None, State.ACTIVE))


@pytest.mark.parametrize(
    ("before", "now", "replaced"),
    [
        ({"register_ts_ms": 1}, {"register_ts_ms": 1}, False),
        ({"register_ts_ms": 1}, {"register_ts_ms": 2}, True),
        ({"register_ts_ms": 1}, {}, True),
        ({}, {}, False),
    ],
)
def test_without_incarnation_the_time_decides(
    before: dict[str, Any], now: dict[str, Any], replaced: bool
) -> None:
    old = record(registration=registration("", **before))
    _, effects = transition(old, put("", **now), 105.0)
    assert (Moved(State.ACTIVE, None) in effects) is replaced


@pytest.mark.parametrize("incarnation_id", ["i1", "i2"])
def test_a_put_cancels_a_probe(incarnation_id: str) -> None:
    after, effects = transition(record(probe=7), put(incarnation_id), 105.0)
    assert effects[0] == ProbeCancelled(7)
    assert after is not None
    assert after.probe is None
    assert transition(after, ProbeFinished(7, healthy=False), 106.0) == (
        after,
        (Ignored(IgnoredReason.PROBE_CANCELLED),),
    )


def test_a_put_under_another_key_moves_the_instance() -> None:
    event = put(type=InstanceType.DECODE, key="XLLM:DECODE:h:1")
    after, effects = transition(record(), event, 105.0)
    assert after is not None
    assert (after.key, after.role) == ("XLLM:DECODE:h:1", Role.DECODE)
    assert effects == (Refreshed(), RoleChanged(Role.DEFAULT, Role.DECODE))
    stale = transition(after, delete(), 106.0)
    assert stale == (after, (Ignored(IgnoredReason.OTHER_KEY),))


# --- MIX -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        (InstanceType.DEFAULT, Role.DEFAULT),
        (InstanceType.PREFILL, Role.PREFILL),
        (InstanceType.DECODE, Role.DECODE),
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_types_that_are_roles(kind: InstanceType, role: Role, elsewhere: bool) -> None:
    after, _ = transition(None, put(type=kind, elsewhere=elsewhere), 0.0)
    assert after is not None
    assert after.role is role


@pytest.mark.parametrize(("elsewhere", "role"), [(True, Role.PREFILL), (False, Role.DECODE)])
def test_mix_starts_as_prefill_if_somebody_decodes(elsewhere: bool, role: Role) -> None:
    first, _ = transition(None, mix(elsewhere=elsewhere), 0.0)
    assert first is not None
    assert first.role is role
    replaced, _ = transition(first, mix("i2", elsewhere=not elsewhere), 1.0)
    assert replaced is not None
    assert replaced.role is not role


def test_a_refresh_keeps_the_role_of_mix() -> None:
    first, _ = transition(None, mix(elsewhere=False), 0.0)
    assert first is not None
    flipped, effects = transition(first, SetRole(Role.PREFILL), 1.0)
    assert effects == (RoleChanged(Role.DECODE, Role.PREFILL),)
    again, effects = transition(flipped, mix(elsewhere=False), 2.0)
    assert effects == (Refreshed(),)
    assert again is not None
    assert again.role is Role.PREFILL


def test_what_becomes_mix_gets_a_role_as_if_new() -> None:
    after, effects = transition(record(), mix(elsewhere=True), 1.0)
    assert after is not None
    assert after.role is Role.PREFILL
    assert RoleChanged(Role.DEFAULT, Role.PREFILL) in effects


def test_only_mix_changes_its_role() -> None:
    refused = (Ignored(IgnoredReason.FIXED_ROLE),)
    assert transition(record(), SetRole(Role.PREFILL), 1.0) == (record(), refused)
    first, _ = transition(None, mix(elsewhere=False), 0.0)
    assert transition(first, SetRole(Role.DEFAULT), 1.0) == (first, refused)
    assert transition(first, SetRole(Role.DECODE), 1.0) == (first, ())


# --- DELETE and probes ---------------------------------------------------------------------------


def test_a_delete_of_an_active_instance_starts_a_probe() -> None:
    assert transition(record(), delete(), 105.0) == (record(probe=7), (ProbeWanted(7),))


def test_a_delete_without_a_previous_value_counts() -> None:
    assert transition(record(), delete(None), 105.0) == (record(probe=7), (ProbeWanted(7),))


@pytest.mark.parametrize("state", STATES)
def test_stale_deletes(state: State) -> None:
    other = transition(record(state), delete("i2"), 105.0)
    assert other == (record(state), (Ignored(IgnoredReason.OTHER_INCARNATION),))
    key = transition(record(state), delete(key="XLLM:MIX:h:1"), 105.0)
    assert key == (record(state), (Ignored(IgnoredReason.OTHER_KEY),))


@pytest.mark.parametrize(
    "before", [record(probe=3), record(State.LEASE_LOST), record(State.SUSPECT)]
)
def test_a_lease_is_lost_once(before: Record) -> None:
    after = transition(before, delete(), 105.0)
    assert after == (before, (Ignored(IgnoredReason.LEASE_LOST_ALREADY),))


@pytest.mark.parametrize(("healthy", "state"), [(True, State.LEASE_LOST), (False, State.SUSPECT)])
def test_the_probe_decides(healthy: bool, state: State) -> None:
    after, effects = transition(record(probe=7), ProbeFinished(7, healthy), 105.0)
    assert after == record(state, since_s=105.0)
    assert effects == (Moved(State.ACTIVE, state),)


@pytest.mark.parametrize(
    "before", [None, record(), record(probe=8), record(State.LEASE_LOST), record(State.SUSPECT)]
)
def test_answers_of_other_probes_are_ignored(before: Record | None) -> None:
    after = transition(before, ProbeFinished(7, healthy=False), 105.0)
    assert after == (before, (Ignored(IgnoredReason.PROBE_CANCELLED),))


def test_while_a_probe_runs_the_instance_stays_active() -> None:
    before = record(probe=7)
    assert transition(before, Tick(), 1e9) == (before, ())
    assert transition(before, Heartbeat("i1"), 105.0) == (before, ())


# --- heartbeats ----------------------------------------------------------------------------------


def test_a_heartbeat_restarts_the_clock_of_a_lost_lease() -> None:
    after = transition(record(State.LEASE_LOST), Heartbeat("i1"), 102.0)
    assert after == (record(State.LEASE_LOST, since_s=102.0), ())


def test_a_heartbeat_brings_a_suspect_back_to_lease_lost() -> None:
    after, effects = transition(record(State.SUSPECT), Heartbeat("i1"), 102.0)
    assert after == record(State.LEASE_LOST, since_s=102.0)
    assert effects == (Moved(State.SUSPECT, State.LEASE_LOST),)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("registered", "said"), [("i1", "i2"), ("i1", ""), ("", "i1")])
def test_heartbeats_of_another_incarnation_are_ignored(
    state: State, registered: str, said: str
) -> None:
    before = record(state, registration=registration(registered))
    after = transition(before, Heartbeat(said), 102.0)
    assert after == (before, (Ignored(IgnoredReason.OTHER_INCARNATION),))


def test_heartbeats_of_old_engines_have_no_incarnation() -> None:
    before = record(State.SUSPECT, registration=registration("", register_ts_ms=5))
    after, _ = transition(before, Heartbeat(""), 102.0)
    assert after is not None
    assert after.state is State.LEASE_LOST


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "lasts_s"), [(State.LEASE_LOST, 3.0), (State.SUSPECT, 15.0)])
def test_lost_states_end(state: State, lasts_s: float) -> None:
    before = record(state)
    assert deadline_s(before) == 100.0 + lasts_s
    assert transition(before, Tick(), 100.0 + lasts_s - 0.001) == (before, ())
    after, effects = transition(before, Tick(), 100.0 + lasts_s)
    if state is State.LEASE_LOST:
        assert after == record(State.SUSPECT, since_s=100.0 + lasts_s)
        assert effects == (Moved(state, State.SUSPECT),)
    else:
        assert after is None
        assert effects == (Moved(state, None),)


def test_a_deadline_that_is_due_is_never_missed_by_rounding() -> None:
    for thousandth in range(1, 3000):
        before = record(State.LEASE_LOST, since_s=thousandth / 1000)
        deadline = deadline_s(before)
        assert deadline is not None
        after, _ = transition(before, Tick(), deadline)
        assert after is not None
        assert after.state is State.SUSPECT


def test_after_a_late_tick_a_suspect_has_its_whole_time() -> None:
    after, _ = transition(record(State.LEASE_LOST), Tick(), 500.0)
    assert after == record(State.SUSPECT, since_s=500.0)


# --- what is not registered, and the table itself -------------------------------------------------


@pytest.mark.parametrize("event", [delete(), Heartbeat("i1"), SetRole(Role.DECODE)])
def test_events_of_unknown_instances_are_ignored(event: Event) -> None:
    assert transition(None, event, 0.0) == (None, (Ignored(IgnoredReason.NOT_REGISTERED),))


def test_time_means_nothing_to_the_unknown() -> None:
    assert transition(None, Tick(), 0.0) == (None, ())


@pytest.mark.parametrize("state", [None, *STATES])
def test_every_cell_is_filled_and_an_ignored_event_changes_nothing(state: State | None) -> None:
    before = None if state is None else record(state)
    events: list[Event] = [
        put(), put("i2"), delete(), delete("i2"), ProbeFinished(1, healthy=True), Heartbeat("i1"),
        Heartbeat("x"), Tick(), SetRole(Role.DECODE),
    ]  # fmt: skip
    for event in events:
        after, effects = transition(before, event, 100.0)
        if any(isinstance(effect, Ignored) for effect in effects):
            assert after is before
        assert after is None or replace(after) == after
        assert after is None or (after.probe is None) or after.state is State.ACTIVE
