"""The registry: what it tells readers, listeners, the prober and metrics (spec: instances)."""

from __future__ import annotations

import threading

import pytest
from kvcache.registry.counts import EventKind
from kvcache.registry.model import InstanceType, Registration, Role, State
from kvcache.registry.registry import HeartbeatOutcome, Probe, Registry
from kvcache.registry.state import IgnoredReason
from registry_world import LEGAL, A, B, C, World


@pytest.fixture
def world() -> World:
    return World()


# --- a life --------------------------------------------------------------------------------------


def test_a_lease_that_flaps(world: World) -> None:
    """Cases 24: stale delete, lease lost and found, healthy and not."""
    old = world.put(A, "i1")
    new = world.put(A, "i2")
    assert world.delete(A, old) is IgnoredReason.OTHER_INCARNATION
    assert world.state(A) is State.ACTIVE
    world.lose(A, new, healthy=True)
    assert world.state(A) is State.LEASE_LOST
    assert world.registry.snapshot().instances[A].schedulable
    world.put(A, "i2")
    assert world.state(A) is State.ACTIVE
    world.lose(A, new, healthy=False)
    assert world.state(A) is State.SUSPECT
    assert not world.registry.snapshot().instances[A].schedulable


def test_ticks_move_what_is_due_and_say_when_to_come_again(world: World) -> None:
    first, second = world.put(A), world.put(B)
    assert world.tick() is None
    world.lose(A, first, healthy=True)
    world.clock.now_s += 1.0
    world.lose(B, second, healthy=False)
    assert world.tick() == 1003.0
    assert world.tick(2.0) == 1016.0
    assert (world.state(A), world.state(B)) == (State.SUSPECT, State.SUSPECT)
    assert world.tick(13.0) == 1018.0
    assert (world.state(A), world.state(B)) == (State.SUSPECT, None)
    assert world.tick(2.0) is None
    assert not world.registry.snapshot().instances


def test_heartbeats_hold_a_lost_lease(world: World) -> None:
    world.lose(A, world.put(A), healthy=True)
    for _ in range(10):
        assert world.tick(2.0) is not None
        outcome = world.registry.record_heartbeat(A, incarnation_id="i1")
        assert outcome is HeartbeatOutcome.ACCEPTED
    assert world.state(A) is State.LEASE_LOST
    world.tick(3.0)
    assert world.state(A) is State.SUSPECT
    world.registry.record_heartbeat(A, incarnation_id="i1")
    assert world.state(A) is State.LEASE_LOST


def test_a_type_change_moves_the_key(world: World) -> None:
    before = world.put(A, type=InstanceType.PREFILL)
    world.put(A, type=InstanceType.DECODE)
    row = world.registry.snapshot().instances[A]
    assert (row.key, row.role, row.type) == (f"XLLM:DECODE:{A}", Role.DECODE, InstanceType.DECODE)
    assert world.delete(A, before, InstanceType.PREFILL) is IgnoredReason.OTHER_KEY
    assert world.delete(A, None, InstanceType.PREFILL) is IgnoredReason.NOT_REGISTERED
    assert not world.registry.take_probes()


# --- probes --------------------------------------------------------------------------------------


def test_a_probe_is_taken_once(world: World) -> None:
    world.delete(A, world.put(A))
    [probe] = world.registry.take_probes()
    assert probe.name == A
    assert not world.registry.take_probes()


def test_a_cancelled_probe_is_not_taken(world: World) -> None:
    world.delete(A, world.put(A))
    world.put(A)
    assert not world.registry.take_probes()


def test_the_answer_of_a_cancelled_probe_is_ignored(world: World) -> None:
    registration = world.put(A)
    world.delete(A, registration)
    [cancelled] = world.registry.take_probes()
    world.put(A)
    world.delete(A, registration)
    [current] = world.registry.take_probes()
    assert not world.registry.probe_finished(A, cancelled.generation, healthy=False)
    assert world.state(A) is State.ACTIVE
    assert world.registry.probe_finished(A, current.generation, healthy=True)
    assert world.state(A) is State.LEASE_LOST


def test_generations_are_of_the_registry_and_not_of_the_process(world: World) -> None:
    world.delete(A, world.put(A, "i1"))
    [old] = world.registry.take_probes()
    world.delete(A, world.put(A, "i2"))
    [new] = world.registry.take_probes()
    assert old.generation != new.generation
    assert not world.registry.probe_finished(*Probe(A, old.generation), healthy=False)


# --- roles ---------------------------------------------------------------------------------------


def role(world: World, name: str) -> Role:
    return world.registry.snapshot().instances[name].role


def test_of_two_mix_instances_one_decodes(world: World) -> None:
    world.put(A, type=InstanceType.MIX)
    world.put(B, type=InstanceType.MIX)
    world.put(C, type=InstanceType.MIX)
    assert [role(world, name) for name in (A, B, C)] == [Role.DECODE, Role.PREFILL, Role.PREFILL]


def test_a_new_process_does_not_count_itself_as_decode(world: World) -> None:
    world.put(A, "i1", type=InstanceType.MIX)
    world.put(A, "i2", type=InstanceType.MIX)
    assert role(world, A) is Role.DECODE


def test_a_suspect_does_not_count_as_decode(world: World) -> None:
    registration = world.put(A, type=InstanceType.DECODE)
    world.delete(A, registration, InstanceType.DECODE)
    world.put(B, type=InstanceType.MIX)
    assert role(world, B) is Role.PREFILL  # a probe runs: still active
    [probe] = world.registry.take_probes()
    world.registry.probe_finished(A, probe.generation, healthy=False)
    world.put(C, type=InstanceType.MIX)
    assert role(world, C) is Role.DECODE


def test_roles_of_mix_flip(world: World) -> None:
    world.put(A, type=InstanceType.MIX)
    assert world.registry.set_role(A, Role.PREFILL)
    assert role(world, A) is Role.PREFILL
    world.put(B, type=InstanceType.MIX)
    assert role(world, B) is Role.DECODE
    world.put(C)
    assert not world.registry.set_role(C, Role.DECODE)
    assert not world.registry.set_role(A, Role.DEFAULT)
    assert not world.registry.set_role("nobody:1", Role.DECODE)


# --- readers -------------------------------------------------------------------------------------


def test_snapshots_are_in_the_order_of_names_and_read_only(world: World) -> None:
    for name in (C, B, A):
        world.put(name)
    instances = world.registry.snapshot().instances
    assert list(instances) == sorted([A, B, C])
    with pytest.raises(TypeError):
        instances[A] = instances[B]  # type: ignore[index]


def test_a_snapshot_is_kept_until_something_changes(world: World) -> None:
    world.put(A)
    first = world.registry.snapshot()
    world.put(A)  # a refresh that changes nothing
    world.tick(1.0)
    world.registry.record_heartbeat(B)
    world.registry.record_heartbeat(A, incarnation_id="i1")
    world.put_load("nobody:1")
    assert world.registry.snapshot().instances is first.instances
    world.put_load(A)
    second = world.registry.snapshot()
    assert second.version > first.version
    assert first.instances[A].etcd_load is None
    assert second.instances[A].etcd_load is not None


def test_a_snapshot_that_is_current_is_read_without_the_lock(world: World) -> None:
    world.put(A)
    current = world.registry.snapshot()
    with world.registry._lock:
        assert world.registry.snapshot() is current


def test_listeners_are_called_outside_the_lock_on_every_change(world: World) -> None:
    seen: list[int] = []
    unsubscribe = world.registry.subscribe(lambda: seen.append(world.registry.snapshot().version))
    registration = world.put(A)
    world.put(A)  # nothing changes
    assert len(seen) == 1
    world.delete(A, registration)  # a probe is wanted
    assert len(seen) == 2
    assert seen[0] == seen[1]  # which no reader sees
    world.put_load(A)
    world.put_load(B)  # nobody sees it
    assert len(seen) == 3
    unsubscribe()
    world.put(B)
    assert len(seen) == 3


def test_a_listener_that_fails_disturbs_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    seen: list[bool] = []
    world.registry.subscribe(fail)
    world.registry.subscribe(lambda: seen.append(True))
    world.put(A)
    assert seen == [True]
    assert "a listener of the registry failed" in caplog.text


# --- counts --------------------------------------------------------------------------------------


def test_counts(world: World) -> None:
    zeros = world.registry.counts()
    assert set(zeros.events.values()) == set(zeros.ignored.values()) == {0}
    first = world.put(A)
    world.put(A)
    world.lose(A, first, healthy=True)
    world.delete(A, first)
    world.registry.record_heartbeat(B)
    world.put(A, "i2")
    counts = world.registry.counts()
    assert counts.events[EventKind.PUT] == 3
    assert counts.events[EventKind.DELETE] == 2
    assert counts.refreshed == 1
    assert {cell: n for cell, n in counts.ignored.items() if n} == {
        (EventKind.DELETE, IgnoredReason.LEASE_LOST_ALREADY): 1,
        (EventKind.HEARTBEAT, IgnoredReason.NOT_REGISTERED): 1,
    }
    assert {cell: n for cell, n in counts.transitions.items() if n} == {
        (None, State.ACTIVE): 2,
        (State.ACTIVE, State.LEASE_LOST): 1,
        (State.LEASE_LOST, None): 1,
    }
    assert set(zeros.transitions) == set(counts.transitions)
    assert set(zeros.events.values()) == {0}  # a copy


def test_nothing_is_left_of_instances_that_went(world: World) -> None:
    for turn in range(50):
        name = f"h:{turn + 1}"
        world.lose(name, world.put(name, str(turn)), healthy=False)
        world.registry.record_heartbeat("never:1", incarnation_id=str(turn))
    world.tick(15.0)
    registry = world.registry
    world.registry.snapshot()
    assert not registry._records
    assert not registry._names
    assert not registry._deadlines
    assert not registry._decoding
    assert not registry._probes
    assert not registry._loads._heartbeats
    assert not registry._cache._rows


def test_threads_agree_on_one_history() -> None:
    """Writers of disjoint names and a reader: every snapshot is ordered, the counts add up."""
    registry = Registry()
    rounds, writers = 200, 4
    start = threading.Barrier(writers + 1)
    torn: list[str] = []

    def write(number: int) -> None:
        name = f"h:{number + 1}"
        start.wait()
        for turn in range(rounds):
            registration = Registration(name, InstanceType.MIX, incarnation_id=str(turn))
            registry.put("k" + name, registration, turn)
            registry.record_heartbeat(name, incarnation_id=str(turn), load=LEGAL)
            registry.delete("k" + name, registration, turn)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    start.wait()
    version = -1
    while any(thread.is_alive() for thread in threads):
        snapshot = registry.snapshot()
        if snapshot.version < version or list(snapshot.instances) != sorted(snapshot.instances):
            torn.append(str(snapshot.version))
        version = snapshot.version
    for thread in threads:
        thread.join(10)
    assert not torn
    counts = registry.counts()
    assert counts.events[EventKind.PUT] == counts.events[EventKind.DELETE] == rounds * writers
    assert counts.transitions[None, State.ACTIVE] == rounds * writers
    assert len(registry.take_probes()) == writers
