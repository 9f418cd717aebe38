"""The life of one instance, as a table of transitions (spec: state machine of one instance).

`transition` is pure: a record (None while the name is not registered), an event and a time give the next
record and the effects. Times are seconds of one monotonic clock. It neither probes nor counts nor logs;
the registry does what the effects say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from kvcache.registry.model import InstanceType, Registration, Role, State

__all__ = [
    "LEASE_LOST_S",
    "SUSPECT_S",
    "Delete",
    "Effect",
    "Event",
    "Heartbeat",
    "Ignored",
    "IgnoredReason",
    "Moved",
    "ProbeCancelled",
    "ProbeFinished",
    "ProbeWanted",
    "Put",
    "Record",
    "Refreshed",
    "RoleChanged",
    "SetRole",
    "Step",
    "Tick",
    "deadline_s",
    "transition",
]

LEASE_LOST_S: Final = 3.0
"""LEASE_LOST lasts this long without a heartbeat, in seconds."""

SUSPECT_S: Final = 15.0
"""SUSPECT lasts this long before the instance is deregistered, in seconds."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of a registered instance."""

    registration: Registration
    key: str
    role: Role
    state: State
    since_s: float
    revision: int
    """The etcd revision of the put at which this process was first seen."""
    probe: int | None = None
    """Generation of the probe that runs; only while ACTIVE."""


# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Put:
    """A registration was written under `key` at etcd's `revision`."""

    key: str
    registration: Registration
    revision: int
    decode_elsewhere: bool
    """Whether another, schedulable instance is in the decode role: it settles where MIX starts."""


@dataclass(frozen=True, slots=True)
class Delete:
    """A registration key is gone: its lease lapsed or was revoked."""

    key: str
    previous: Registration | None
    """What stood there; None when that is not known, so that the event cannot be shown stale."""
    generation: int
    """Number for the probe that this may start; never given before."""


@dataclass(frozen=True, slots=True)
class ProbeFinished:
    """A health probe answered."""

    generation: int
    healthy: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The instance said that it is alive."""

    incarnation_id: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by."""


@dataclass(frozen=True, slots=True)
class SetRole:
    """A MIX instance is to serve as prefill or decode."""

    role: Role


Event: TypeAlias = Put | Delete | ProbeFinished | Heartbeat | Tick | SetRole


# --- effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """From one state to another; None is not registered. A new process leaves and enters anew."""

    before: State | None
    after: State | None


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The same process registered again."""


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """A registered process has another role."""

    before: Role
    after: Role


@dataclass(frozen=True, slots=True)
class ProbeWanted:
    """Ask the instance whether it is alive, and answer with this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class ProbeCancelled:
    """The answer of this probe does not matter any more."""

    generation: int


class IgnoredReason(StrEnum):
    """Why an event changed nothing."""

    NOT_REGISTERED = "not_registered"
    OTHER_KEY = "other_key"
    OTHER_INCARNATION = "other_incarnation"
    LEASE_LOST_ALREADY = "lease_lost_already"
    PROBE_CANCELLED = "probe_cancelled"
    FIXED_ROLE = "fixed_role"


@dataclass(frozen=True, slots=True)
class Ignored:
    """The event changed nothing."""

    reason: IgnoredReason


Effect: TypeAlias = Moved | Refreshed | RoleChanged | ProbeWanted | ProbeCancelled | Ignored
Step: TypeAlias = tuple[Record | None, tuple[Effect, ...]]


# --- the table -----------------------------------------------------------------------------------


def transition(record: Record | None, event: Event, now_s: float) -> Step:
    """The next record and what follows from it."""
    cell = _TABLE[None if record is None else record.state, type(event)]
    return cell(record, event, now_s)


def deadline_s(record: Record) -> float | None:
    """When a `Tick` will move the record, if nothing happens before; None for never."""
    if record.state is State.LEASE_LOST:
        return record.since_s + LEASE_LOST_S
    if record.state is State.SUSPECT:
        return record.since_s + SUSPECT_S
    return None


def _register(_record: None, put: Put, now_s: float) -> Step:
    registration = put.registration
    role = _first_role(registration.type, decode_elsewhere=put.decode_elsewhere)
    record = Record(registration, put.key, role, State.ACTIVE, now_s, put.revision)
    return record, (Moved(None, State.ACTIVE),)


def _put(record: Record, put: Put, now_s: float) -> Step:
    cancelled = () if record.probe is None else (ProbeCancelled(record.probe),)
    if put.registration.identity != record.registration.identity:
        fresh, effects = _register(None, put, now_s)
        return fresh, (*cancelled, Moved(record.state, None), *effects)
    effects = (*cancelled, Refreshed())
    role = record.role
    if put.registration.type is not record.registration.type:
        role = _first_role(put.registration.type, decode_elsewhere=put.decode_elsewhere)
    if role is not record.role:
        effects += (RoleChanged(record.role, role),)
    since_s = record.since_s
    if record.state is not State.ACTIVE:
        since_s = now_s
        effects += (Moved(record.state, State.ACTIVE),)
    # The earlier revision: a load between two puts of one process is its own. Only an etcd that
    # was set up anew counts from a lower one.
    revision = min(record.revision, put.revision)
    return (
        Record(put.registration, put.key, role, State.ACTIVE, since_s, revision),
        effects,
    )


def _first_role(kind: InstanceType, *, decode_elsewhere: bool) -> Role:
    if kind is InstanceType.MIX:
        return Role.PREFILL if decode_elsewhere else Role.DECODE
    return Role[kind.name]


def _delete(record: Record, delete: Delete, _now_s: float) -> Step:
    if delete.key != record.key:
        return record, (Ignored(IgnoredReason.OTHER_KEY),)
    previous = delete.previous
    if previous is not None and previous.identity != record.registration.identity:
        return record, (Ignored(IgnoredReason.OTHER_INCARNATION),)
    if record.state is not State.ACTIVE or record.probe is not None:
        return record, (Ignored(IgnoredReason.LEASE_LOST_ALREADY),)
    return replace(record, probe=delete.generation), (ProbeWanted(delete.generation),)


def _probed(record: Record, probe: ProbeFinished, now_s: float) -> Step:
    if probe.generation != record.probe:
        return record, (Ignored(IgnoredReason.PROBE_CANCELLED),)
    return _move(record, State.LEASE_LOST if probe.healthy else State.SUSPECT, now_s)


def _beat(record: Record, heartbeat: Heartbeat, now_s: float) -> Step:
    if heartbeat.incarnation_id != record.registration.incarnation_id:
        return record, (Ignored(IgnoredReason.OTHER_INCARNATION),)
    if record.state is State.ACTIVE:
        return record, ()
    if record.state is State.LEASE_LOST:
        return replace(record, since_s=now_s), ()
    return _move(record, State.LEASE_LOST, now_s)


def _expire(record: Record, _tick: Tick, now_s: float) -> Step:
    deadline = deadline_s(record)
    if deadline is None or now_s < deadline:
        return record, ()
    if record.state is State.LEASE_LOST:
        # Since now, not since the deadline: after a late tick heartbeats may still be waiting.
        return _move(record, State.SUSPECT, now_s)
    return None, (Moved(record.state, None),)


def _set_role(record: Record, wish: SetRole, _now_s: float) -> Step:
    if record.registration.type is not InstanceType.MIX or wish.role is Role.DEFAULT:
        return record, (Ignored(IgnoredReason.FIXED_ROLE),)
    if wish.role is record.role:
        return record, ()
    return replace(record, role=wish.role), (RoleChanged(record.role, wish.role),)


def _move(record: Record, state: State, now_s: float) -> Step:
    moved = replace(record, state=state, since_s=now_s, probe=None)
    return moved, (Moved(record.state, state),)


def _unchanged(record: Record | None, _event: Event, _now_s: float) -> Step:
    return record, ()


def _unknown(record: None, _event: Event, _now_s: float) -> Step:
    return record, (Ignored(IgnoredReason.NOT_REGISTERED),)


def _no_probe(record: Record | None, _event: Event, _now_s: float) -> Step:
    return record, (Ignored(IgnoredReason.PROBE_CANCELLED),)


_Cell: TypeAlias = Callable[[Any, Any, float], Step]

_TABLE: Final[dict[tuple[State | None, type[Event]], _Cell]] = {
    (None, Put): _register,
    (None, Delete): _unknown,
    (None, ProbeFinished): _no_probe,
    (None, Heartbeat): _unknown,
    (None, Tick): _unchanged,
    (None, SetRole): _unknown,
    (State.ACTIVE, Put): _put,
    (State.ACTIVE, Delete): _delete,
    (State.ACTIVE, ProbeFinished): _probed,
    (State.ACTIVE, Heartbeat): _beat,
    (State.ACTIVE, Tick): _unchanged,
    (State.ACTIVE, SetRole): _set_role,
    (State.LEASE_LOST, Put): _put,
    (State.LEASE_LOST, Delete): _delete,
    (State.LEASE_LOST, ProbeFinished): _no_probe,
    (State.LEASE_LOST, Heartbeat): _beat,
    (State.LEASE_LOST, Tick): _expire,
    (State.LEASE_LOST, SetRole): _set_role,
    (State.SUSPECT, Put): _put,
    (State.SUSPECT, Delete): _delete,
    (State.SUSPECT, ProbeFinished): _no_probe,
    (State.SUSPECT, Heartbeat): _beat,
    (State.SUSPECT, Tick): _expire,
    (State.SUSPECT, SetRole): _set_role,
}
