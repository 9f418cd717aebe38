"""Metrics of the registry and of following etcd, read at each scrape."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kvcache.registry.model import InstanceType, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcache.discovery.replica import Replica
    from kvcache.discovery.runner import Discovery
    from kvcache.rpc.server import RpcCounts
    from kvcache.service import Service

__all__ = ["etcd_families", "registry_families"]


def registry_families(service: Service) -> Iterator[Metric]:
    """What is registered, what happened to it, and what of it cannot be followed."""
    instances = GaugeMetricFamily(
        "kvcache_registry_instances", "Registered instances.", labels=["type", "state"]
    )
    rows = service.registry.snapshot().instances.values()
    found = Counter((row.type, row.state) for row in rows)
    for kind, state in product(InstanceType, State):
        instances.add_metric([kind.name, state.value], found[kind, state])
    yield instances
    excluded = GaugeMetricFamily(
        "kvcache_registry_excluded",
        "1 for each instance that should be followed and cannot be; /v1/internal/instances says why.",
        labels=["instance_name"],
    )
    exclusions = {} if service.follower is None else service.follower.plan.exclusions
    for name in exclusions:
        excluded.add_metric([name], 1)
    yield excluded
    yield from _registry_counters(service)


def _registry_counters(service: Service) -> Iterator[Metric]:
    counts = service.registry.counts()
    events = CounterMetricFamily(
        "kvcache_registry_events", "What the registry was told, by kind.", labels=["kind"]
    )
    for kind, count in counts.events.items():
        events.add_metric([kind.value], count)
    yield events
    ignored = CounterMetricFamily(
        "kvcache_registry_ignored_events",
        "Events that changed nothing, by kind and reason.",
        labels=["kind", "reason"],
    )
    for (kind, reason), count in counts.ignored.items():
        ignored.add_metric([kind.value, reason.value], count)
    yield ignored
    transitions = CounterMetricFamily(
        "kvcache_registry_transitions",
        "Changes of an instance's state; none is not registered.",
        labels=["from", "to"],
    )
    for (before, after), count in counts.transitions.items():
        transitions.add_metric([_name(before), _name(after)], count)
    yield transitions


def _name(state: State | None) -> str:
    return "none" if state is None else state.value


def etcd_families(discovery: Discovery | None) -> Iterator[Metric]:
    """How etcd is being followed; nothing without etcd."""
    if discovery is None:
        return
    status, mirror, feed = discovery.status, discovery.mirror, discovery.feed
    yield GaugeMetricFamily(
        "kvcache_etcd_connected",
        "1 while the watch is alive; at 0 the last known instances stay.",
        value=float(status.connected),
    )
    yield GaugeMetricFamily(
        "kvcache_etcd_revision_number",
        "The last revision that is known to be included, 0 before the first list.",
        value=status.revision,
    )
    counters, client = mirror.counters, mirror.client_counters
    for name, text, value in (
        ("lists", "Lists of the whole range.", counters.lists_total),
        ("events", "Changes told by etcd.", counters.events_total),
        ("watch_failures", "Watches that ended.", counters.watch_failures_total),
        ("compactions", "Watches that came too late.", counters.compactions_total),
        ("probes", "Reads to tell a quiet watch from a dead one.", counters.probes_total),
        ("requests", "Requests, logins and watches too.", client.requests_total),
        ("failed_requests", "Requests that failed.", client.failures_total),
        ("logins", "Logins.", client.logins_total),
    ):
        yield CounterMetricFamily(f"kvcache_etcd_{name}", text, value=value)
    ignored = CounterMetricFamily(
        "kvcache_etcd_ignored_changes",
        "Changes of keys that were not understood, or stale; the log says which.",
        labels=["what"],
    )
    for what, count in feed.ignored.items():
        ignored.add_metric([what], count)
    yield ignored
    if discovery.replica is not None:
        yield from _replica_families(discovery.replica)
    if discovery.rpc is not None:
        yield from _rpc_families(discovery.rpc.counts)


def _rpc_families(counts: RpcCounts) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kvcache_registry_rpc_connections",
        "Connections of engines, open.",
        value=counts.connections,
    )
    for name, text, value in (
        ("connections", "Connections accepted.", counts.connections_total),
        ("refused_connections", "Closed as there was no room.", counts.connections_refused_total),
        ("faulted_connections", "Closed for the peer's fault.", counts.connections_faulted_total),
    ):
        yield CounterMetricFamily(f"kvcache_registry_rpc_{name}", text, value=value)
    calls = CounterMetricFamily(
        "kvcache_registry_rpc_calls", "Calls by error code; 0 for none.", labels=["code"]
    )
    for code, count in sorted({0: 0, **counts.calls_total}.items()):
        calls.add_metric([str(code)], count)
    yield calls


def _replica_families(replica: Replica) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kvcache_etcd_is_master",
        "1 while this replica is master, and no other can be.",
        value=float(replica.is_master()),
    )
    counters, uploads = replica.counters, replica.upload_counters
    for name, value in dataclasses.asdict(counters).items():
        text = f"Of this replica: {name.removesuffix('_total').replace('_', ' ')}."
        yield CounterMetricFamily(f"kvcache_etcd_replica_{name}", text, value=value)
    for name, value in dataclasses.asdict(uploads).items():
        text = f"As master: {name.removesuffix('_total').replace('_', ' ')}."
        yield CounterMetricFamily(f"kvcache_etcd_upload_{name}", text, value=value)
