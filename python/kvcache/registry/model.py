"""What the registry holds, as immutable values (spec: how xLLM instances appear in etcd).

An instance is what it registered, which changes only with a new registration, and how it is: state, role,
load. Times are seconds of one monotonic clock. Nothing here knows the JSON or the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, Literal, Self, TypeGuard

from kvcache.registry.loads import counting_report
from kvcache.registry.shown import shown

__all__ = [
    "UNIDENTIFIED",
    "Instance",
    "InstanceType",
    "Latency",
    "Load",
    "LoadReport",
    "Registration",
    "Role",
    "State",
]

_U64_MAX = 2**64 - 1
_I64_MAX = 2**63 - 1
_MISSING: Final = object()

UNIDENTIFIED: Final = "unidentified"
"""Identity of a process that registered neither an incarnation nor a time: equal among themselves."""


class InstanceType(IntEnum):
    """What an instance registered as; the number stands in its registration."""

    DEFAULT = 0
    PREFILL = 1
    DECODE = 2
    MIX = 3


class Role(Enum):
    """What an instance does now: its type, and for MIX what it was last told to be."""

    DEFAULT = "DEFAULT"
    PREFILL = "PREFILL"
    DECODE = "DECODE"


class State(Enum):
    """How far an instance is believed to be alive."""

    ACTIVE = "ACTIVE"
    """Its lease holds, or a probe still runs."""
    LEASE_LOST = "LEASE_LOST"
    """The lease lapsed, but it answers; it serves on while heartbeats come."""
    SUSPECT = "SUSPECT"
    """It serves no more, and is forgotten unless it comes back."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What one process registered, already checked."""

    name: str
    """HTTP address, `host:port`."""
    type: InstanceType
    dp_size: int = 1
    """Data-parallel ranks, at least 1."""
    incarnation_id: str = ""
    """One life of the process; empty when the engine is too old to give one."""
    register_ts_ms: int | None = None
    """When the process registered, in milliseconds; None when it did not say."""
    rpc_address: str = ""
    ttft_profiling_data: tuple[tuple[float, float], ...] = ()
    """Prompt length in tokens and time to the first token in milliseconds."""
    tpot_profiling_data: tuple[tuple[float, float, float], ...] = ()
    """Average length, batch size, and time of one output token in milliseconds."""
    cluster_ids: tuple[int, ...] = ()
    """This and what follows is what engines need of each other to move KV data; it is only passed on."""
    k_cache_ids: tuple[int, ...] = ()
    v_cache_ids: tuple[int, ...] = ()
    addrs: tuple[str, ...] = ()
    device_ips: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()

    @property
    def identity(self) -> str:
        """Which process this is: equal texts mean the same one.

        The incarnation; without it, the time of registration; without both, `UNIDENTIFIED`.
        """
        if self.incarnation_id:
            return f"incarnation {self.incarnation_id}"
        if self.register_ts_ms is not None:
            return f"registered {self.register_ts_ms}"
        return UNIDENTIFIED


@dataclass(frozen=True, slots=True)
class Load:
    """How busy an instance said it is; illegal when `fault` says why.

    An illegal load excludes its instance until a legal one arrives. What was illegal is None.
    """

    waiting_requests_num: int | None
    """Requests in the queue, 0 … 2^64-1."""
    gpu_cache_usage_perc: float | None
    """Share of the Device cache in use, 0 … 1."""
    fault: str = ""

    @classmethod
    def of(cls, metrics: object) -> Self:
        """Read a JSON object's two fields; whatever else it may be is an illegal load. Never raises."""
        if not isinstance(metrics, Mapping):
            return cls(None, None, f"the load must be an object: {shown(metrics)}")
        waiting: Any = metrics.get("waiting_requests_num", _MISSING)
        usage: Any = metrics.get("gpu_cache_usage_perc", _MISSING)
        faults = []
        if not _is_integer(waiting) or not 0 <= waiting <= _U64_MAX:
            faults.append(_fault("waiting_requests_num", "an integer of 0 to 2^64-1", waiting))
            waiting = None
        # Comparing settles NaN and the infinities too, and no huge integer is converted.
        if not _is_number(usage) or not 0 <= usage <= 1:
            faults.append(_fault("gpu_cache_usage_perc", "a number of 0 to 1", usage))
            usage = None
        # A sum with 0.0 makes a float of 0 and 1, and 0 of a negative zero.
        return cls(waiting, usage if usage is None else usage + 0.0, ", ".join(faults))

    @property
    def legal(self) -> bool:
        """Whether a choice may rest on it."""
        return not self.fault


@dataclass(frozen=True, slots=True)
class Latency:
    """The worst latencies of late, as a heartbeat carries them; None where it carried no integer."""

    recent_max_ttft: int | None
    recent_max_tbt: int | None

    @classmethod
    def of(cls, metrics: object) -> Self:
        """Read a JSON object's two fields; whatever else is None. Never raises."""
        fields = metrics if isinstance(metrics, Mapping) else {}
        ttft, tbt = (
            value if _is_integer(value) and -_I64_MAX - 1 <= value <= _I64_MAX else None
            for value in (fields.get("recent_max_ttft"), fields.get("recent_max_tbt"))
        )
        return cls(ttft, tbt)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A load, where it came from and when."""

    load: Load
    source: Literal["heartbeat", "etcd"]
    received_at_s: float
    latency: Latency | None = None
    """Only heartbeats carry it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One row of a registry snapshot."""

    registration: Registration
    key: str
    """The tracked registration key, without a namespace."""
    role: Role
    state: State
    since_s: float
    """Since when it is in this state; in LEASE_LOST since the last heartbeat."""
    revision: int
    """The etcd revision at which this process was first seen."""
    heartbeat: LoadReport | None = None
    etcd_load: LoadReport | None = None

    @property
    def name(self) -> str:
        """HTTP address, `host:port`."""
        return self.registration.name

    @property
    def type(self) -> InstanceType:
        """What it registered as."""
        return self.registration.type

    @property
    def dp_size(self) -> int:
        """Data-parallel ranks, at least 1."""
        return self.registration.dp_size

    @property
    def identity(self) -> str:
        """Which process this is; see `Registration.identity`."""
        return self.registration.identity

    @property
    def schedulable(self) -> bool:
        """Whether it may be given requests."""
        return self.state is not State.SUSPECT

    def load(self, now_s: float) -> LoadReport | None:
        """The report that counts at `now_s`, legal or not; None before the first."""
        return counting_report(self.heartbeat, self.etcd_load, now_s)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fault(field: str, rule: str, value: object) -> str:
    if value is _MISSING:
        return f"{field} is missing"
    return f"{field} must be {rule}: {shown(value)}"
