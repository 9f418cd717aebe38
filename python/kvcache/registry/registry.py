"""`Registry`: every instance that is known, told by whoever follows etcd and receives heartbeats.

It keeps records and loads, has `state` decide, and gives readers a snapshot. Thread-safe: one lock, held for
moments and never while somebody else's code runs. It starts nothing by itself: its owner calls `tick` when
the deadline is due, runs the probes that `take_probes` names, and reports back with `probe_finished`.
"""

from __future__ import annotations

import logging
import threading
import time
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kvcache._stays import Stays
from kvcache.registry.counts import EventKind, RegistryCounts
from kvcache.registry.loads import Loads
from kvcache.registry.model import Instance, LoadReport, Role, State
from kvcache.registry.shown import shown_name
from kvcache.registry.snapshot import RegistrySnapshot, SnapshotCache
from kvcache.registry.state import (
    Delete,
    Heartbeat,
    Ignored,
    IgnoredReason,
    Moved,
    ProbeCancelled,
    ProbeFinished,
    ProbeWanted,
    Put,
    Refreshed,
    RoleChanged,
    SetRole,
    Tick,
    deadline_s,
    transition,
)
from kvcache.registry.told import Told

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcache.registry.model import Latency, Load, Registration
    from kvcache.registry.state import Effect, Event, Record

__all__ = ["MAX_NAME_CHARS", "HeartbeatOutcome", "Probe", "Registry", "RegistrySnapshot"]

_log = logging.getLogger("kvcache.registry")

MAX_NAME_CHARS: Final = 1024
"""Of a name or an incarnation in a heartbeat. Who receives heartbeats sees to it: those that were warned of are remembered."""


class HeartbeatOutcome(Enum):
    """What became of a heartbeat."""

    ACCEPTED = "accepted"
    UNKNOWN = "unknown"
    """No instance of this name is registered."""
    OTHER_INCARNATION = "other_incarnation"
    """Another process is registered under this name."""


class Probe(NamedTuple):
    """A health probe to be run: of whom, and the number to answer with."""

    name: str
    generation: int


class Registry(Stays):
    """The instances, their states, roles and loads. `clock` gives seconds and never goes back."""

    _stays = "it is told by its own process of what changes: pass on its snapshot, or feed another"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self._names: dict[str, str] = {}  # by tracked key
        self._decoding: set[str] = set()  # schedulable, in the decode role
        self._deadlines: dict[str, float] = {}
        self._probes: dict[str, int] = {}  # wanted and not taken
        self._generation = 0
        self._loads = Loads()
        self._cache = SnapshotCache()
        self._counts = RegistryCounts()
        self._told = Told()
        self._listeners: tuple[Callable[[], None], ...] = ()

    # --- what etcd says ---------------------------------------------------------------------------

    def put(self, key: str, registration: Registration, revision: int) -> None:
        """A registration was written under `key` at etcd's mod `revision`.

        The entries of an initial list are told in the order of their revisions.
        """
        name = registration.name
        with self._lock:
            elsewhere = len(self._decoding) > (name in self._decoding)
            event = Put(key, registration, revision, decode_elsewhere=elsewhere)
            effects, changed = self._apply(name, event, EventKind.PUT)
        self._tell(name, effects, changed=changed)

    def delete(
        self, key: str, previous: Registration | None, revision: int
    ) -> IgnoredReason | None:
        """A registration is gone; `previous` is what stood there, None where that is not known.

        Returns why it was ignored, None when it was not. Only the key that was written last for a name is
        tracked; the deletion of another is stale, as is that of another process's registration.
        """
        del revision  # a deletion is judged by what it deleted
        with self._lock:
            name = self._names.get(key) or (previous.name if previous else "")
            self._generation += 1
            event = Delete(key, previous, self._generation)
            effects, changed = self._apply(name, event, EventKind.DELETE)
        self._tell(name, effects, changed=changed)
        return _ignored(effects)

    def put_load(self, name: str, load: Load, revision: int) -> None:
        """A load was written to etcd for `name` at mod `revision`."""
        with self._lock:
            self._counts.events[EventKind.PUT_LOAD] += 1
            self._loads.put_copy(name, LoadReport(load, "etcd", self._clock()), revision)
            changed = self._mark(name)
        self._tell(name, (), changed=changed)

    def delete_load(self, name: str) -> None:
        """The load of `name` is gone from etcd; a heartbeat's stays."""
        with self._lock:
            self._counts.events[EventKind.DELETE_LOAD] += 1
            changed = self._loads.delete_copy(name) and self._mark(name)
        self._tell(name, (), changed=changed)

    # --- what instances say ------------------------------------------------------------------------

    def record_heartbeat(
        self,
        name: str,
        *,
        incarnation_id: str = "",
        load: Load | None = None,
        latency: Latency | None = None,
    ) -> HeartbeatOutcome:
        """An instance is alive, and says its load if it has one; an illegal load is taken as well."""
        with self._lock:
            now_s = self._clock()
            effects, changed = self._apply(name, Heartbeat(incarnation_id), EventKind.HEARTBEAT)
            reason = _ignored(effects)
            if reason is None and load is not None:
                self._loads.record_heartbeat(name, LoadReport(load, "heartbeat", now_s, latency))
                changed = self._mark(name)
            new = reason is not None and self._told.is_new((name, incarnation_id, reason))
        self._tell(name, effects, changed=changed)
        if reason is None:
            return HeartbeatOutcome.ACCEPTED
        if new:
            what = "an unknown instance"
            if reason is IgnoredReason.OTHER_INCARNATION:
                what = "another incarnation"
            _log.warning("ignored a heartbeat of %s: %s", what, shown_name(name))
        if reason is IgnoredReason.NOT_REGISTERED:
            return HeartbeatOutcome.UNKNOWN
        return HeartbeatOutcome.OTHER_INCARNATION

    def recent_heartbeat_loads(self) -> dict[str, Load]:
        """What the master writes to etcd: loads from heartbeats of the last 3 s, by name in order."""
        with self._lock:
            reports = self._loads.recent_heartbeats(self._clock())
        return {name: report.load for name, report in reports.items()}

    # --- what its owner does -----------------------------------------------------------------------

    def take_probes(self) -> tuple[Probe, ...]:
        """The probes to be started now; each is given once, and not if it was cancelled before."""
        with self._lock:
            probes = tuple(Probe(name, number) for name, number in self._probes.items())
            self._probes.clear()
        return probes

    def wants_probe(self, name: str, generation: int) -> bool:
        """Whether the answer of this probe would count: it was taken, and not cancelled since."""
        with self._lock:
            record = self._records.get(name)
            return record is not None and record.probe == generation

    def probe_finished(self, name: str, generation: int, healthy: bool) -> bool:
        """The answer of a probe; whether it counted, as its question was not cancelled."""
        with self._lock:
            event = ProbeFinished(generation, healthy)
            effects, changed = self._apply(name, event, EventKind.PROBE)
        self._tell(name, effects, changed=changed)
        return _ignored(effects) is None

    def tick(self, now_s: float) -> float | None:
        """Do what is due at `now_s`, of the registry's clock. Returns when to come again; None: not yet known.

        One call moves an instance one state on. Whatever changes the answer notifies the listeners.
        """
        done: list[tuple[str, tuple[Effect, ...]]] = []
        with self._lock:
            due = [name for name, deadline in self._deadlines.items() if deadline <= now_s]
            for name in due:
                effects, _ = self._apply(name, Tick(), None, now_s)
                done.append((name, effects))
            following = min(self._deadlines.values(), default=None)
        for position, (name, effects) in enumerate(done, 1):
            self._tell(name, effects, changed=position == len(done))
        return following

    def set_role(self, name: str, role: Role) -> bool:
        """Have a MIX instance serve as PREFILL or DECODE; False when it cannot, as it is gone or no MIX."""
        with self._lock:
            effects, changed = self._apply(name, SetRole(role), EventKind.SET_ROLE)
        self._tell(name, effects, changed=changed)
        return _ignored(effects) is None

    # --- what readers see --------------------------------------------------------------------------

    def now_s(self) -> float:
        """The time now, of the clock by which reports and states are timed."""
        return self._clock()

    def snapshot(self) -> RegistrySnapshot:
        """The instances now. Takes no lock when nothing changed since the last call."""
        current = self._cache.current
        if current is not None:
            return current
        with self._lock:
            return self._cache.build(self._row)

    def counts(self) -> RegistryCounts:
        """Totals since the start, for metrics; a copy."""
        with self._lock:
            return self._counts.copy()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after every change, also of a deadline or a wanted probe.

        It is called outside the lock, in the thread that made the change, and must be quick: it wakes
        somebody. Returns what ends the subscription.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = tuple(kept for kept in self._listeners if kept is not listener)

        return unsubscribe

    # --- inside ------------------------------------------------------------------------------------

    def _apply(
        self, name: str, event: Event, kind: EventKind | None, now_s: float | None = None
    ) -> tuple[tuple[Effect, ...], bool]:
        """Apply one event under the lock: the effects, and whether anything changed."""
        before = self._records.get(name)
        after, effects = transition(before, event, self._clock() if now_s is None else now_s)
        if kind is not None:
            self._counts.events[kind] += 1
        for effect in effects:
            self._follow(name, effect, kind)
        if after == before:
            return effects, False
        self._store(name, before, after)
        self._cache.mark(name)
        return effects, True

    def _follow(self, name: str, effect: Effect, kind: EventKind | None) -> None:
        match effect:
            case Moved(before, after):
                self._counts.transitions[before, after] += 1
                if after is None:
                    self._loads.forget_process(name)
            case Refreshed():
                self._counts.refreshed += 1
            case ProbeWanted(generation):
                self._probes[name] = generation
            case ProbeCancelled():
                self._counts.probes_cancelled += 1
                self._probes.pop(name, None)
            case Ignored(reason) if kind is not None:
                self._counts.ignored[kind, reason] += 1

    def _store(self, name: str, before: Record | None, after: Record | None) -> None:
        if before is not None and self._names.get(before.key) == name:
            del self._names[before.key]
        self._decoding.discard(name)
        self._deadlines.pop(name, None)
        if after is None:
            del self._records[name]
            return
        self._records[name] = after
        self._names[after.key] = name
        if after.role is Role.DECODE and after.state is not State.SUSPECT:
            self._decoding.add(name)
        deadline = deadline_s(after)
        if deadline is not None:
            self._deadlines[name] = deadline

    def _mark(self, name: str) -> bool:
        """A load changed: whether there is a row to show it."""
        if name not in self._records:
            return False
        self._cache.mark(name)
        return True

    def _row(self, name: str) -> Instance | None:
        record = self._records.get(name)
        if record is None:
            return None
        heartbeat, copy = self._loads.reports(name, record.revision)
        return Instance(
            registration=record.registration,
            key=record.key,
            role=record.role,
            state=record.state,
            since_s=record.since_s,
            revision=record.revision,
            heartbeat=heartbeat,
            etcd_load=copy,
        )

    def _tell(self, name: str, effects: tuple[Effect, ...], *, changed: bool) -> None:
        """Log and notify, outside the lock."""
        for effect in effects:
            if isinstance(effect, Moved):
                _log.info(
                    "instance %s: %s to %s",
                    shown_name(name),
                    _state_name(effect.before),
                    _state_name(effect.after),
                )
            elif isinstance(effect, RoleChanged):
                _log.info("instance %s: now serves as %s", shown_name(name), effect.after.value)
        if not changed:
            return
        for listener in self._listeners:
            try:
                listener()
            except Exception:  # noqa: BLE001 - whose fault it is, the change is made, and others wait
                _log.exception("a listener of the registry failed")


def _ignored(effects: tuple[Effect, ...]) -> IgnoredReason | None:
    return next((effect.reason for effect in effects if isinstance(effect, Ignored)), None)


def _state_name(state: State | None) -> str:
    return "not registered" if state is None else state.value
