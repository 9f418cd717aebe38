"""The collector that renders every metric of a service at a scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcache.exceptions import ClosedError
from kvcache.metrics.discovery import etcd_families, registry_families
from kvcache.metrics.routing import route_families
from kvcache.metrics.streams import stream_families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcache.metrics.queries import QueryMetrics
    from kvcache.service import Service

__all__ = ["build_registry"]


class _ServiceCollector(Collector):
    """Renders the streams of a service, its queries, and what the process is."""

    def __init__(self, service: Service, queries: QueryMetrics, version: str) -> None:
        self._service = service
        self._queries = queries
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Reads the directory once, so that all stream series are of one moment."""
        try:
            statuses = self._service.streams()
        except ClosedError:
            statuses = []  # a last scrape while the service shuts down
        yield from stream_families(statuses)
        yield from self._queries.collect()
        yield from route_families(self._service.router.counts())
        yield from registry_families(self._service)
        yield from etcd_families(self._service.discovery)
        yield GaugeMetricFamily(
            "kvcache_process_index_enabled",
            "1 when a configuration was loaded, 0 when the index is disabled.",
            value=float(self._service.index_enabled),
        )
        build = GaugeMetricFamily(
            "kvcache_process_build_info", "Always 1; the version is a label.", labels=["version"]
        )
        build.add_metric([self._version], 1)
        yield build


def build_registry(service: Service, queries: QueryMetrics, version: str) -> CollectorRegistry:
    """A registry of its own: what else the embedding process exports stays out of it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ServiceCollector(service, queries, version))
    # kvcache_process_{cpu_seconds_total,resident_memory_bytes,open_fds,…}
    ProcessCollector(namespace="kvcache", registry=registry)
    return registry
