"""From registered instances to the streams to be followed (spec: instances and discovery).

Pure: a snapshot, the configuration and the limit give the plan, whatever the order of the rows. Port ranges
are compared as intervals, since a registration may claim any number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kvcache._frozen import FrozenMapping
from kvcache.endpoint import MAX_PORT, Endpoint, parse_endpoint
from kvcache.registry.model import InstanceType, Role
from kvcache.registry.shown import shown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcache.config import DiscoveryConfig
    from kvcache.registry.model import Instance
    from kvcache.registry.snapshot import RegistrySnapshot

__all__ = ["Plan", "PlannedStream", "Shape", "plan", "shape_of"]

_EVENT: Final = "event port"
_REPLAY: Final = "replay port"


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """One rank of one instance, to be followed."""

    instance_name: str
    dp_rank: int
    identity: str
    """Of the process; see `Registration.identity`."""
    endpoint: str
    """Where events are published: `tcp://host:port`."""
    replay_endpoint: str
    """Where snapshots are answered: `tcp://host:port`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be followed, and why the rest is not. Every instance is in exactly one of the three."""

    streams: tuple[PlannedStream, ...]
    """By instance name, then rank; every rank of an instance or none."""
    exclusions: Mapping[str, str]
    """Why an instance that should be followed cannot be, by name in order: faults to be told."""
    unsubscribed: Mapping[str, str]
    """Why an instance is not to be followed, as its role or state will have it; no fault."""

    def reason(self, name: str) -> str:
        """Why this instance is not followed; empty when it is, or is not known."""
        return self.exclusions.get(name) or self.unsubscribed.get(name, "")

    def without(self, refused: Mapping[str, str]) -> Plan:
        """The same, but for instances that cannot be followed for reasons found elsewhere."""
        if not refused:
            return self
        return Plan(
            streams=tuple(one for one in self.streams if one.instance_name not in refused),
            exclusions=FrozenMapping(dict(sorted({**self.exclusions, **refused}.items()))),
            unsubscribed=self.unsubscribed,
        )

    def identified(self, snapshot: RegistrySnapshot) -> Plan:
        """The plan for a snapshot of the same shape: as it is, but for the processes behind the names."""
        instances = snapshot.instances
        streams = tuple(
            one
            if one.identity == (identity := instances[one.instance_name].identity)
            else replace(one, identity=identity)
            for one in self.streams
        )
        return replace(self, streams=streams)


Shape: TypeAlias = "list[tuple[str, int, Role, InstanceType, bool]]"
"""By instance: all that a plan depends on, but for the identities. Loads and heartbeats are no part of it."""


def shape_of(snapshot: RegistrySnapshot) -> Shape:
    """The shape of a snapshot; a hundred times cheaper than the plan that it stands for."""
    return [
        (name, one.registration.dp_size, one.role, one.registration.type, one.schedulable)
        for name, one in snapshot.instances.items()
    ]


def plan(snapshot: RegistrySnapshot, config: DiscoveryConfig, max_streams: int) -> Plan:
    """The streams that `config` derives from the instances, at most `max_streams` of them."""
    wanted: list[Instance] = []
    unsubscribed: dict[str, str] = {}
    for name, instance in sorted(snapshot.instances.items()):
        reason = _unsubscribed_reason(instance)
        if reason:
            unsubscribed[name] = reason
        else:
            wanted.append(instance)
    addresses, exclusions = _addresses(wanted)
    ranges = [
        port_range
        for instance in wanted
        if instance.name in addresses
        for port_range in _port_ranges(instance, addresses[instance.name], config)
    ]
    _exclude_conflicts(ranges, exclusions)
    # Afterwards: of two reasons the one that no neighbour can heal. Past the last port nothing is
    # shared, but whoever seems to overflows.
    _exclude_overflows(ranges, exclusions)
    streams = _take(wanted, addresses, exclusions, config, max_streams)
    return Plan(
        streams=tuple(streams),
        exclusions=FrozenMapping(dict(sorted(exclusions.items()))),
        unsubscribed=FrozenMapping(unsubscribed),
    )


def _unsubscribed_reason(instance: Instance) -> str:
    if not instance.schedulable:
        return "the instance is SUSPECT: its lease is lost and it does not answer"
    if instance.role is Role.DECODE:
        if instance.type is InstanceType.MIX:
            return "the instance serves as decode now, and only prefill is followed"
        return "the instance serves decode, and only prefill is followed"
    return ""


def _addresses(instances: Iterable[Instance]) -> tuple[dict[str, Endpoint], dict[str, str]]:
    addresses, faults = {}, {}
    for instance in instances:
        name = instance.name
        address = _address(name)
        if address is None:
            faults[name] = f"the name is not host:port: {shown_name(name)}"
        else:
            addresses[name] = address
    return addresses, faults


# Plans are made again and again for the same names, and reading them is most of the work.
@lru_cache(maxsize=16384)
def _address(name: str) -> Endpoint | None:
    try:
        return parse_endpoint(f"tcp://{name}")
    except ValueError:
        return None


# --- ports ---------------------------------------------------------------------------------------


class _PortRange(NamedTuple):
    """The ports of all ranks of one instance in one use, on one host."""

    host: str
    """In the spelling that all names of one socket share."""
    first: int
    last: int
    """Of the last rank; may be past 65535."""
    name: str
    use: str

    def says(self, port: int) -> str:
        return f"the {self.use} of rank {port - self.first} of {shown_name(self.name)}"


def _port_ranges(
    instance: Instance, address: Endpoint, config: DiscoveryConfig
) -> Iterable[_PortRange]:
    host, port = address.identity
    for use, offset in (
        (_EVENT, config.event_port_offset),
        (_REPLAY, config.replay_port_offset),
    ):
        first = port + offset
        yield _PortRange(host, first, first + instance.dp_size - 1, instance.name, use)


def _exclude_overflows(ranges: Iterable[_PortRange], exclusions: dict[str, str]) -> None:
    past = [one for one in ranges if one.last > MAX_PORT]
    for one in sorted(past, key=lambda one: (one.name, one.use)):
        port = max(one.first, MAX_PORT + 1)
        exclusions[one.name] = f"{one.says(port)} is past {MAX_PORT}: {port}"


def _exclude_conflicts(ranges: Iterable[_PortRange], exclusions: dict[str, str]) -> None:
    """Exclude every instance that would share a port, with a reason that names both sides.

    An instance whose ports overflow takes part: the ranks whose ports exist may still publish there.
    """
    for _, on_host in groupby(sorted(ranges), key=lambda one: one.host):
        # In order of first ports, a range meets an earlier one exactly if it meets the one that reaches
        # furthest, and every earlier one that it meets has met that one, or is it.
        furthest: _PortRange | None = None
        for one in on_host:
            if furthest is not None and one.first <= furthest.last:
                _exclude_pair(one, furthest, exclusions)
                if one.last <= furthest.last:
                    continue
            furthest = one


def _exclude_pair(one: _PortRange, other: _PortRange, exclusions: dict[str, str]) -> None:
    port = max(one.first, other.first)
    for here, there in ((one, other), (other, one)):
        reason = f"{here.says(port)} is also {there.says(port)}: {port}"
        exclusions.setdefault(here.name, reason)


# --- the limit -----------------------------------------------------------------------------------


def _take(
    wanted: Iterable[Instance],
    addresses: Mapping[str, Endpoint],
    exclusions: dict[str, str],
    config: DiscoveryConfig,
    max_streams: int,
) -> Iterable[PlannedStream]:
    """Whole instances in the order of names, as long as they fit; a later, smaller one may."""
    left = max_streams
    streams: list[PlannedStream] = []
    for instance in wanted:
        if instance.name in exclusions:
            continue
        if instance.dp_size > left:
            exclusions[instance.name] = (
                f"the instance needs {instance.dp_size} streams, "
                f"and of max_streams {max_streams} there are left: {left}"
            )
            continue
        left -= instance.dp_size
        address = addresses[instance.name]
        streams.extend(
            PlannedStream(
                instance_name=instance.name,
                dp_rank=rank,
                identity=instance.identity,
                endpoint=_endpoint(address, config.event_port_offset + rank),
                replay_endpoint=_endpoint(address, config.replay_port_offset + rank),
            )
            for rank in range(instance.dp_size)
        )
    return streams


def _endpoint(address: Endpoint, offset: int) -> str:
    return str(Endpoint(address.host, address.port + offset))
