"""From the registry and a directory's streams to the candidates of one moment (spec: CAR, candidates).

Pure. An instance whose hits must not count, as the directory follows another process than the registry knows, can
still be chosen: a doubt about the cache never costs an instance its requests.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kvcache._core import CandidateCosts
from kvcache._frozen import FrozenMapping
from kvcache.registry.loads import HEARTBEAT_FIRST_S
from kvcache.registry.model import Role
from kvcache.routing.base import Candidate, Candidates

if TYPE_CHECKING:
    from kvcache.registry.model import Instance, LoadReport
    from kvcache.registry.snapshot import RegistrySnapshot
    from kvcache.routing.base import ServingRole

__all__ = ["candidates_of", "reports_count_until"]

_SUSPECT: Final = "the instance is SUSPECT: its lease is lost and it does not answer"
_NO_LOAD: Final = "the instance has not reported its load yet"
_NO_DECODE: Final = "the instance only prefills, and no decode instance can serve"


def candidates_of(
    snapshot: RegistrySnapshot,
    now_s: float,
    streams: tuple[tuple[str, int], ...],
    identities: tuple[str | None, ...],
    *,
    needs_load: bool,
) -> Candidates:
    """Who can be chosen at `now_s`, of the registry's clock.

    `streams` and `identities` are those of the answer whose hits are to count. Holds until the snapshot changes, the
    streams do, or `reports_count_until` is reached.
    """
    prefill: dict[str, Candidate] = {}
    decode: dict[str, Candidate] = {}
    excluded: dict[str, tuple[ServingRole, str]] = {}
    for name, instance in snapshot.instances.items():
        report = instance.load(now_s)
        role: ServingRole = "decode" if instance.role is Role.DECODE else "prefill"
        reason = _exclusion(instance, report, needs_load=needs_load)
        if reason:
            excluded[name] = (role, reason)
        else:
            (decode if role == "decode" else prefill)[name] = Candidate(instance, report)
    if not decode:
        for name in [n for n, one in prefill.items() if one.instance.role is not Role.DEFAULT]:
            del prefill[name]
            excluded[name] = ("prefill", _NO_DECODE)
    ranks = _ranks(streams)
    places, no_hits = [], {}
    for name, candidate in prefill.items():
        found, why = _places(candidate.instance, ranks.get(name, {}), identities)
        places.append(found)
        if why:
            no_hits[name] = why
    return Candidates(
        prefill=tuple(prefill.values()),
        decode=tuple(decode.values()),
        prefill_names=tuple(prefill),
        decode_names=tuple(decode),
        places=tuple(places),
        no_hits=FrozenMapping(no_hits),
        excluded=FrozenMapping(dict(sorted(excluded.items()))),
        held=CandidateCosts(places, [0.0] * len(places), miss_weight=0.0, host_hit_weight=1.0),
        ignored_ranks=_ignored_ranks(snapshot, ranks),
    )


def reports_count_until(snapshot: RegistrySnapshot, now_s: float) -> float:
    """The first moment after `now_s` at which another load report of some instance counts; infinite for never."""
    until_s = math.inf
    for instance in snapshot.instances.values():
        heartbeat, copy = instance.heartbeat, instance.etcd_load
        if heartbeat is None or copy is None or copy.received_at_s <= heartbeat.received_at_s:
            continue
        turns_at_s = heartbeat.received_at_s + HEARTBEAT_FIRST_S
        if now_s < turns_at_s < until_s:
            until_s = turns_at_s
    return until_s


def _exclusion(instance: Instance, report: LoadReport | None, *, needs_load: bool) -> str:
    if not instance.schedulable:
        return _SUSPECT
    if not needs_load:
        return ""
    if report is None:
        return _NO_LOAD
    if not report.load.legal:
        return f"the load of the instance is illegal: {report.load.fault}"
    return ""


def _ranks(streams: tuple[tuple[str, int], ...]) -> dict[str, dict[int, int]]:
    """The place of each rank, by instance."""
    ranks: dict[str, dict[int, int]] = {}
    for place, (name, rank) in enumerate(streams):
        ranks.setdefault(name, {})[rank] = place
    return ranks


def _places(
    instance: Instance, ranks: dict[int, int], identities: tuple[str | None, ...]
) -> tuple[tuple[int, ...], str]:
    """Where all ranks of the instance are, or nowhere and why."""
    if instance.dp_size > len(ranks):
        missing = next(rank for rank in range(instance.dp_size) if rank not in ranks)
        return (), f"rank {missing} is not followed"
    places = []
    for rank in range(instance.dp_size):
        place = ranks.get(rank)
        if place is None:
            return (), f"rank {rank} is not followed"
        identity = identities[place]
        if identity is None:
            return (
                (),
                f"rank {rank} is followed by a static stream, of which nobody knows the process",
            )
        if identity != instance.identity:
            return (), f"rank {rank} is followed as another process"
        places.append(place)
    return tuple(places), ""


def _ignored_ranks(snapshot: RegistrySnapshot, ranks: dict[str, dict[int, int]]) -> int:
    ignored = 0
    for name, places in ranks.items():
        instance = snapshot.instances.get(name)
        if instance is not None:
            ignored += sum(rank >= instance.dp_size for rank in places)
    return ignored
